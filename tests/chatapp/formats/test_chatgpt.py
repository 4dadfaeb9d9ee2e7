"""ChatGPT's export: what is hidden, split, called and branched in its map of nodes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from chatapp.formats import Conversation, ParsedFile, UnknownFormatError, parse, visible_line

from .conftest import ParseFile, ParseOne


def node(
    key: str, parent: str | None, role: str = "user", text: Any = "", **more: Any
) -> dict[str, Any]:
    """A node; `text` may be a content, and `more` are fields of the message."""
    content = text if isinstance(text, dict) else {"content_type": "text", "parts": [text]}
    message = {
        "id": key,
        "author": {"role": role, "name": more.pop("name", None), "metadata": {}},
        "create_time": 1_714_585_031.25,
        "content": content,
        "metadata": {},
        "recipient": "all",
        "weight": 1.0,
    } | more
    return {"id": key, "parent": parent, "children": [], "message": message}


def export(*nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    mapping: dict[str, Any] = {one["id"]: one for one in nodes}
    for one in nodes:
        if one["parent"] in mapping:
            mapping[one["parent"]]["children"].append(one["id"])
    about = {"title": "T", "conversation_id": "c1", "current_node": nodes[-1]["id"]}
    return about | {"mapping": mapping} | more


def read(*nodes: dict[str, Any], **more: Any) -> ParsedFile:
    return parse(json.dumps([export(*nodes, **more)]))


def one(*nodes: dict[str, Any], **more: Any) -> Conversation:
    parsed = read(*nodes, **more)
    assert parsed.problems == ()
    (conversation,) = parsed.conversations
    return conversation


def said(conversation: Conversation) -> list[tuple[str, Any]]:
    return [(m.wire["role"], m.wire["content"]) for m in conversation.messages]


def links(conversation: Conversation) -> dict[str, str | None]:
    return {message.key: message.parent for message in conversation.messages}


ROOT = {"id": "root", "parent": None, "children": [], "message": None}
CODE = {"content_type": "code", "language": "python", "text": "print(6 * 7)"}


# --- the real files -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "counts", "branches"),
    [
        ("chatgpt_export/chatgpt_tree.json", [11], [3]),
        ("chatgpt_export/chatgpt_2025_user_context.json", [10], [1]),
        ("chatgpt_export/chatgpt_citations.json", [1], [1]),
        ("chatgpt_export/chatgpt_modern_export.json", [4, 2], [1, 1]),
    ],
)
def test_real_exports_have_these_messages_and_branches(
    parsed: ParseFile, path: str, counts: list[int], branches: list[int]
) -> None:
    found = parsed(path)

    assert found.format == "chatgpt"
    assert [len(one.messages) for one in found.conversations] == counts
    ends = [{m.key for m in one.messages} - {m.parent for m in one.messages} for one in
            found.conversations]  # fmt: skip
    assert [len(keys) for keys in ends] == branches


def test_the_visible_line_of_the_real_tree_ends_at_its_current_node(only: ParseOne) -> None:
    conversation = only("chatgpt_export/chatgpt_tree.json")
    line = visible_line(conversation)

    assert len(line) == 6
    assert line[-1].key.startswith("f63b8e17")
    assert conversation.title == "Assist user with summary"
    assert conversation.created_at == datetime(2024, 5, 1, 17, 37, 11, 148505, tzinfo=UTC)
    assert {m.metadata.get("model") for m in conversation.messages if m.wire["role"] != "user"} == {
        "text-davinci-002-render-sha"
    }


def test_a_conversation_without_a_map_is_a_problem_and_the_others_are_read(
    parsed: ParseFile,
) -> None:
    found = parsed("chatgpt_export/chatgpt_modern_export.json")

    (problem,) = found.problems
    assert problem.line == 2
    assert "'Corrupted entry'" in problem.text
    assert "mapping" in problem.text


def test_links_to_nodes_that_are_not_in_the_file_are_told(parsed: ParseFile) -> None:
    found = parsed("chatgpt_export/chatgpt_citations.json")

    texts = " ".join(problem.text for problem in found.problems)
    assert "A parent is not in the file" in texts
    assert "shown last is not in the file" in texts
    assert found.conversations[0].messages[0].wire["role"] == "assistant"


# --- what is hidden -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hidden",
    [
        node("h", "q", "system", "Rules.", weight=0),
        node("h", "q", "system", "Rules.", weight=0.0),
        node("h", "q", "user", "x", metadata={"is_visually_hidden_from_conversation": True}),
        node("h", "q", "user", {"content_type": "user_editable_context", "user_profile": "x"}),
        node("h", "q", "assistant", {"content_type": "reasoning_recap", "content": "For 5 s"}),
        node("h", "q", "assistant", ""),
        node("h", "q", "assistant", " \n "),
        {"id": "h", "parent": "q", "children": [], "message": None},
    ],
)
def test_a_node_that_nobody_sees_is_passed_over(hidden: dict[str, Any]) -> None:
    conversation = one(
        ROOT, node("q", "root", "user", "Why?"), hidden, node("a", "h", "assistant", "So.")
    )

    assert said(conversation) == [("user", "Why?"), ("assistant", "So.")]
    assert links(conversation) == {"q": None, "a": "q"}


def test_a_line_that_ends_hidden_ends_on_what_is_shown_above() -> None:
    conversation = one(
        node("q", None, "user", "Why?"),
        node("a", "q", "assistant", "So."),
        node("b", "q", "assistant", "Because."),
        node("h", "a", "system", "x", weight=0),
    )

    assert conversation.leaf == "a"


# --- order and branches ---------------------------------------------------------------------------


def test_the_order_of_the_map_does_not_matter() -> None:
    nodes = [
        node("q", None, "user", "Why?"),
        node("a", "q", "assistant", "So."),
        node("b", "q", "assistant", "So."),
        node("c", "b", "user", "Oh."),
    ]
    straight = export(*nodes)
    shuffled = straight | {"mapping": dict(reversed(straight["mapping"].items()))}

    first, second = (parse(json.dumps([value])).conversations[0] for value in (straight, shuffled))

    assert [m.key for m in first.messages] == ["q", "a", "b", "c"]
    assert first.messages == second.messages


def test_equal_texts_of_siblings_stay_two_branches() -> None:
    conversation = one(
        node("q", None, "user", "Why?"),
        node("a", "q", "assistant", "So.", end_turn=True),
        node("b", "q", "assistant", "So.", end_turn=True),
    )

    assert links(conversation) == {"q": None, "a": "q", "b": "q"}


def test_several_roots_are_kept() -> None:
    conversation = one(node("q", None, "user", "Why?"), node("r", None, "user", "How?"))

    assert links(conversation) == {"q": None, "r": None}


def test_a_parent_that_only_its_children_list_knows_is_found() -> None:
    value = export(node("q", None, "user", "Why?"), node("a", "q", "assistant", "So."))
    del value["mapping"]["a"]["parent"]

    (conversation,) = parse(json.dumps(value)).conversations

    assert links(conversation) == {"q": None, "a": "q"}


# --- answers in several nodes ---------------------------------------------------------------------


def test_thoughts_text_and_the_rest_of_a_text_become_one_answer() -> None:
    thoughts = {
        "content_type": "thoughts",
        "thoughts": [{"summary": "S", "content": "Six sevens."}],
    }
    conversation = one(
        node("q", None, "user", "6 * 7?"),
        node("t", "q", "assistant", thoughts),
        node("a", "t", "assistant", "It is for",
             metadata={"finish_details": {"type": "max_tokens"}, "model_slug": "m1"}),
        node("b", "a", "assistant", "ty-two.", end_turn=True,
             metadata={"finish_details": {"type": "stop"}, "model_slug": "m1"}),
    )  # fmt: skip

    answer = conversation.messages[1]
    assert said(conversation) == [("user", "6 * 7?"), ("assistant", "It is forty-two.")]
    assert answer.reasoning == "Six sevens."
    assert answer.finish_reason == "stop"
    assert answer.metadata == {"model": "m1"}
    assert conversation.leaf == answer.key == "t"


def test_texts_of_one_answer_that_were_not_cut_stand_apart() -> None:
    conversation = one(
        node("q", None, "user", "Why?"),
        node("a", "q", "assistant", "First."),
        node("b", "a", "assistant", "Second."),
    )

    assert said(conversation)[1] == ("assistant", "First.\n\nSecond.")


def test_an_answer_that_ended_the_turn_is_not_joined_to_the_next() -> None:
    conversation = one(
        node("q", None, "user", "Why?"),
        node("a", "q", "assistant", "So.", end_turn=True),
        node("b", "a", "assistant", "Anything else?", end_turn=True),
    )

    assert len(conversation.messages) == 3


def test_an_answer_that_goes_on_in_two_ways_is_not_joined() -> None:
    conversation = one(
        node("q", None, "user", "Why?"),
        node("a", "q", "assistant", "So"),
        node("b", "a", "assistant", "far."),
        node("c", "a", "assistant", "what."),
    )

    assert links(conversation) == {"q": None, "a": "q", "b": "a", "c": "a"}


# --- calls ----------------------------------------------------------------------------------------


def test_a_call_and_its_results_are_paired_by_their_places() -> None:
    output = {"content_type": "execution_output", "text": "42"}
    conversation = one(
        node("q", None, "user", "6 * 7?"),
        node("s", "q", "assistant", "I count."),
        node("c", "s", "assistant", CODE, recipient="python"),
        node("r", "c", "tool", output, name="python"),
        node("r2", "r", "tool", output | {"text": "done"}, name="python"),
        node("a", "r2", "assistant", "42."),
    )

    _, call, result, answer = (message.wire for message in conversation.messages)
    (called,) = call["tool_calls"]
    assert call["content"] == "I count."
    assert called["function"] == {"name": "python", "arguments": '{"code":"print(6 * 7)"}'}
    assert result == {
        "role": "tool",
        "tool_call_id": called["id"],
        "name": "python",
        "content": "42\n\ndone",
    }
    assert answer == {"role": "assistant", "content": "42."}


def test_arguments_that_are_json_stay_as_they_are() -> None:
    arguments = {"content_type": "code", "language": "json", "text": '{"city": "Oslo"}'}
    conversation = one(
        node("q", None, "user", "Rain?"),
        node("c", "q", "assistant", arguments, recipient="weather"),
    )

    (called,) = conversation.messages[1].wire["tool_calls"]
    assert called["function"] == {"name": "weather", "arguments": '{"city": "Oslo"}'}
    assert conversation.messages[1].wire["content"] is None


def test_a_result_that_says_nothing_is_still_one() -> None:
    empty = {"content_type": "execution_output", "text": ""}
    conversation = one(
        node("q", None, "user", "Go."),
        node("c", "q", "assistant", CODE, recipient="python"),
        node("r", "c", "tool", empty, name="python"),
    )

    assert said(conversation)[2] == ("tool", "")


def test_each_branch_below_a_call_has_a_call_of_its_own() -> None:
    output = {"content_type": "execution_output", "text": "42"}
    conversation = one(
        node("q", None, "user", "6 * 7?"),
        node("c", "q", "assistant", CODE, recipient="python"),
        node("r", "c", "tool", output),
        node("s", "c", "tool", output | {"text": "43"}),
    )

    wires = {message.key: message.wire for message in conversation.messages}
    first, second = links(conversation)["r"], links(conversation)["s"]
    assert first != second
    for parent, result in ((first, "r"), (second, "s")):
        assert wires[str(parent)]["tool_calls"][0]["id"] == wires[result]["tool_call_id"]
        assert links(conversation)[str(parent)] == "q"


# --- contents -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"content_type": "text", "parts": ["a", "", "b"]}, "a\nb"),
        ({"content_type": "code", "text": "x = 1"}, "x = 1"),
        ({"content_type": "tether_quote", "title": "T", "url": "u", "text": "q"}, "T\nu\nq"),
        ({"content_type": "tether_browsing_display", "result": "R", "summary": None}, "R"),
        ({"content_type": "system_error", "name": "E", "text": "broke"}, "broke"),
        (
            {
                "content_type": "multimodal_text",
                "parts": [
                    {"content_type": "image_asset_pointer", "asset_pointer": "file-service://f1"},
                    "What is this?",
                    {"content_type": "audio_transcription", "text": "spoken"},
                ],
            },
            "[image file-service://f1]\nWhat is this?\nspoken",
        ),
    ],
)
def test_every_kind_of_content_is_read(content: dict[str, Any], text: str) -> None:
    assert said(one(node("q", None, "user", content))) == [("user", text)]


def test_content_without_text_is_told_by_its_kind() -> None:
    found = read(
        node("q", None, "user", "Why?"), node("x", "q", "assistant", {"content_type": "hologram"})
    )

    assert len(found.conversations[0].messages) == 1
    assert "'hologram'" in found.problems[0].text


def test_a_time_that_is_missing_stays_missing() -> None:
    conversation = one(
        node("q", None, "user", "Why?", create_time=None), node("a", "q", "assistant", "So.")
    )

    assert [m.created_at for m in conversation.messages] == [
        None,
        datetime(2024, 5, 1, 17, 37, 11, 250000, tzinfo=UTC),
    ]


def test_an_answer_that_was_broken_off_says_so() -> None:
    conversation = one(
        node("q", None, "user", "Why?"),
        node("a", "q", "assistant", "Well", status="in_progress",
             metadata={"finish_details": {"type": "interrupted"}}),
    )  # fmt: skip

    assert conversation.messages[1].finish_reason == "interrupted"


# --- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        (5, "it is not an object but 5"),
        ({"id": "x", "parent": "q", "message": "hello"}, "its message is 'hello'"),
        ({"id": "x", "parent": "q", "message": {"content": {}}}, "its author is None"),
        (node("x", "q", "alien", "Hi"), "its author is 'alien'"),
        (node("x", "q", "assistant", "Hi", content="Hi"), "its content is 'Hi'"),
        (node("x", "q", "assistant", "Hi", content={"parts": [7]}), "a part of it is 7"),
    ],
)
def test_a_damaged_node_is_left_out_by_name_and_its_children_stay(damaged: Any, why: str) -> None:
    value = export(
        node("q", None, "user", "Why?"), node("x", "q"), node("a", "x", "assistant", "So.")
    )
    value["mapping"]["x"] = damaged

    found = parse(json.dumps([value]))

    assert links(found.conversations[0]) == {"q": None, "a": "q"}
    assert [problem.text for problem in found.problems] == [f"The node 'x' was left out: {why}."]


def test_an_export_of_which_no_conversation_is_readable_says_what_it_is() -> None:
    value = {"title": "T", "conversation_id": "c", "default_model_slug": "m"}

    with pytest.raises(UnknownFormatError, match=r"looks like ChatGPT.*no `mapping`.*export it"):
        parse(json.dumps([value]))


def test_conversations_without_an_id_are_known_by_where_they_start() -> None:
    nodes = [node("q", None, "user", "Why?"), node("a", "q", "assistant", "So.")]

    short, long = (one(*some, conversation_id=None) for some in (nodes[:1], nodes))
    other = one(node("q", None, "user", "How?"), conversation_id=None)

    assert short.identity == long.identity != other.identity
