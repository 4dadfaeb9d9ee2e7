"""Open WebUI's chats: rows and single ones, siblings of several models, output and HTML."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from chatapp.formats import Conversation, ParsedFile, UnknownFormatError, parse, visible_line
from chatapp.formats.open_webui import without_rendered

from .conftest import ParseFile, ParseOne


def message(key: str, parent: str | None, content: Any = "", **more: Any) -> dict[str, Any]:
    role = "assistant" if key.startswith("a") else "user"
    return {
        "id": key,
        "parentId": parent,
        "childrenIds": [],
        "role": role,
        "content": content,
        "timestamp": 1_744_577_557,
    } | more


def chat(*messages: dict[str, Any], current: str | None = None, **more: Any) -> dict[str, Any]:
    found = {one["id"]: one for one in messages}
    for one in messages:
        if one["parentId"] in found:
            found[one["parentId"]]["childrenIds"].append(one["id"])
    history = {"messages": found, "currentId": current or messages[-1]["id"]}
    return {"id": "c1", "title": "T", "models": ["m1"], "history": history} | more


def read(*messages: dict[str, Any], **more: Any) -> ParsedFile:
    return parse(json.dumps(chat(*messages, **more)))


def one(*messages: dict[str, Any], **more: Any) -> Conversation:
    parsed = read(*messages, **more)
    assert parsed.problems == ()
    (conversation,) = parsed.conversations
    return conversation


def links(conversation: Conversation) -> dict[str, str | None]:
    return {message.key: message.parent for message in conversation.messages}


def contents(conversation: Conversation) -> list[Any]:
    return [message.wire["content"] for message in conversation.messages]


THOUGHT = {"type": "reasoning", "content": [{"type": "output_text", "text": "Hm."}]}
CALL = {"type": "function_call", "call_id": "k1", "name": "look", "arguments": '{"room":4}'}
RESULT = {
    "type": "function_call_output",
    "call_id": "k1",
    "output": [{"type": "input_text", "text": "free"}],
}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Ok."}]}
HTML = '<details type="{}" done="true"><summary>Thought</summary>&gt; Hm.</details>\n'


# --- the real files -------------------------------------------------------------------------------


def test_the_real_list_holds_three_chats_of_two_messages_each(parsed: ParseFile) -> None:
    found = parsed("openwebui/openwebui_export_list.json")

    assert found.format == "open_webui"
    assert found.problems == ()
    # A message with a call is stored as Chat Completions have it: call, result, answer.
    of_nodes = [{m.key.partition(":")[0] for m in one.messages} for one in found.conversations]
    assert [len(nodes) for nodes in of_nodes] == [2, 2, 2]
    assert [len(one.messages) for one in found.conversations] == [2, 4, 2]
    assert [len(visible_line(one)) for one in found.conversations] == [2, 4, 2]


def test_thoughts_and_calls_of_the_real_list_come_from_the_output(parsed: ParseFile) -> None:
    thinking, calling, _ = parsed("openwebui/openwebui_export_list.json").conversations

    assert thinking.messages[1].reasoning == "15 * 17 = 15 * 10 + 15 * 7 = 150 + 105 = 255"
    assert thinking.messages[1].wire["content"] == "255"
    _, call, result, answer = (m.wire for m in calling.messages)
    assert call["tool_calls"][0]["function"] == {
        "name": "get_weather",
        "arguments": '{"city":"Paris"}',
    }
    assert result["content"] == "Paris: 18C, rain"
    assert result["tool_call_id"] == call["tool_calls"][0]["id"] == "call_1"
    assert answer["content"] == "The weather in Paris is 18C with rain."


def test_the_real_single_chat_has_two_messages_with_seconds_and_milliseconds(
    only: ParseOne,
) -> None:
    conversation = only("openwebui/openwebui_single_chat.json")

    assert len(conversation.messages) == len(visible_line(conversation)) == 2
    assert conversation.title == "🧠 Goldwater Rule Ethics"
    assert conversation.model == "deepseek/deepseek-chat:free"
    assert conversation.created_at == datetime(2025, 4, 13, 20, 52, 37, 127000, tzinfo=UTC)
    assert conversation.messages[0].created_at == datetime(2025, 4, 13, 20, 52, 37, tzinfo=UTC)
    usage = conversation.messages[1].usage
    assert usage is not None
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (26, 310)


# --- the tree -------------------------------------------------------------------------------------


def test_answers_of_several_models_are_branches() -> None:
    conversation = one(
        message("q", None, "Why?", models=["m1", "m2"]),
        message("a1", "q", "So.", model="m1", modelIdx=0),
        message("a2", "q", "Thus.", model="m2", modelIdx=1),
        current="a1",
    )

    assert links(conversation) == {"q": None, "a1": "q", "a2": "q"}
    assert [m.metadata for m in conversation.messages[1:]] == [{"model": "m1"}, {"model": "m2"}]
    assert conversation.leaf == "a1"


def test_the_flat_list_beside_the_history_may_be_out_of_date() -> None:
    conversation = one(
        message("q", None, "Why?"),
        message("a", "q", "So."),
        messages=[message("q", None, "Something old")],
    )

    assert contents(conversation) == ["Why?", "So."]


def test_a_chat_with_nothing_but_the_flat_list_is_read() -> None:
    value = {"title": "T", "messages": [message("q", None, "Why?"), message("a", "q", "So.")]}

    (conversation,) = parse(json.dumps(value)).conversations

    assert links(conversation) == {"q": None, "a": "q"}


def test_what_hung_under_a_deleted_message_begins_a_line_of_its_own() -> None:
    found = read(message("q", None, "Why?"), message("a", "gone", "So."), message("r", "a", "Oh."))

    assert links(found.conversations[0]) == {"q": None, "a": None, "r": "a"}
    assert "parent is not in the file" in found.problems[0].text
    assert "'a'" in found.problems[0].text


@pytest.mark.parametrize("native", ["", None])
def test_a_chat_without_an_id_is_known_by_where_it_starts(native: str | None) -> None:
    start = message("q", None, "Why?")
    grown = (start, message("a", "q", "So."))

    first, second = one(start, id=native), one(*grown, id=native)

    assert first.identity == second.identity
    assert first.identity != one(message("q", None, "How?"), id=native).identity


@pytest.mark.parametrize("place", [{"params": {"system": "Be brief."}}, {"system": "Be brief."}])
def test_the_system_prompt_is_found(place: dict[str, Any]) -> None:
    assert one(message("q", None, "Why?"), **place).system_prompt == "Be brief."


def test_a_row_is_named_by_its_own_id_and_title() -> None:
    row = {
        "id": "row",
        "title": "Row",
        "created_at": 1_700_000_000,
        "chat": chat(message("q", None, "Hi")),
    }

    (conversation,) = parse(json.dumps(row)).conversations

    assert conversation.identity == "open_webui:row"
    assert conversation.title == "Row"
    assert conversation.created_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


# --- output and HTML ------------------------------------------------------------------------------


def test_the_output_counts_and_not_the_html() -> None:
    html = HTML.format("reasoning") + HTML.format("tool_calls") + "Ok."
    conversation = one(
        message("q", None, "A room?"),
        message("a", "q", html, output=[THOUGHT, CALL, RESULT, SAID]),
        message("r", "a", "Thanks."),
    )

    _, call, result, answer, _ = conversation.messages
    assert call.reasoning == "Hm."
    assert call.wire["tool_calls"][0]["id"] == "k1"
    assert result.wire["content"] == "free"
    assert answer.wire["content"] == "Ok."
    assert links(conversation) == {
        "q": None, "a": "q", "a:2": "a", "a:3": "a:2", "r": "a:3",
    }  # fmt: skip


def test_a_text_that_the_output_lacks_is_taken_from_the_content() -> None:
    conversation = one(
        message("q", None, "Why?"),
        message("a", "q", HTML.format("reasoning") + "So.", output=[THOUGHT]),
        message("b", "a", "A room?"),
        message("a2", "b", HTML.format("tool_calls") + "It is free.", output=[CALL, RESULT]),
    )

    assert contents(conversation) == ["Why?", "So.", "A room?", None, "free", "It is free."]
    assert conversation.messages[1].reasoning == "Hm."


@pytest.mark.parametrize("kind", ["reasoning", "tool_calls", "code_interpreter"])
def test_html_without_an_output_is_left_out_and_told(kind: str) -> None:
    found = read(message("q", None, "Why?"), message("a", "q", HTML.format(kind) + "So."))

    assert contents(found.conversations[0]) == ["Why?", "So."]
    assert found.conversations[0].messages[1].reasoning == ""
    assert kind in found.problems[0].text


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        (
            "a <details><summary>b</summary>c</details>",
            "a <details><summary>b</summary>c</details>",
        ),
        ('<details open type="x">c</details>', '<details open type="x">c</details>'),
        ('a<details type="reasoning">b', "a"),
        ('a\n<details id="1" type="reasoning">&quot;</details>\nb', "a\n\nb"),
        (' <details type="reasoning"> ', ""),
        ("  plain  ", "  plain  "),
    ],
)
def test_only_what_the_program_drew_is_taken_out(text: str, rest: str) -> None:
    assert without_rendered(text, []) == rest


def test_an_answer_of_nothing_but_html_is_passed_over() -> None:
    found = read(
        message("q", None, "Why?"),
        message("a", "q", HTML.format("reasoning")),
        message("r", "a", "Hello?"),
    )

    assert links(found.conversations[0]) == {"q": None, "r": "q"}


def test_images_of_a_question_become_parts_and_other_files_are_named() -> None:
    files = [
        {"type": "image", "url": "data:image/png;base64,AA=="},
        {"type": "image", "url": "3f2a"},
        {"type": "file", "name": "plan.pdf", "url": "9c"},
    ]
    conversation = one(message("q", None, "See.", files=files))

    assert contents(conversation) == [
        [
            {"type": "text", "text": "See.\n[image 3f2a]\n[file plan.pdf]"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
        ]
    ]


def test_an_answer_that_is_not_done_says_so() -> None:
    conversation = one(message("q", None, "Why?"), message("a", "q", "We", done=False))

    assert conversation.messages[1].finish_reason == "interrupted"


def test_an_error_in_the_place_of_an_answer_is_told() -> None:
    found = read(message("q", None, "Why?"), message("a", "q", "", error={"content": "No credit."}))

    assert contents(found.conversations[0]) == ["Why?"]
    assert "error notices" in found.problems[0].text


# --- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        ("hello", "it is not an object but 'hello'"),
        (message("x", "q", "Hi", role="alien"), "its role is 'alien'"),
        (message("x", "q", 5), "its content is neither text nor a list of blocks"),
        (message("x", "q", role=["user"]), "its role is ['user']"),
    ],
)
def test_a_damaged_message_is_left_out_by_name_and_its_children_stay(
    damaged: Any, why: str
) -> None:
    value = chat(message("q", None, "Why?"), message("x", "q"), message("a", "x", "So."))
    value["history"]["messages"]["x"] = damaged

    found = parse(json.dumps(value))

    assert links(found.conversations[0]) == {"q": None, "a": "q"}
    assert [problem.text for problem in found.problems] == [f"The message 'x' was left out: {why}."]


def test_a_damaged_item_of_an_output_does_not_cost_the_answer() -> None:
    nameless = {"type": "function_call", "call_id": "k", "arguments": "{}"}
    found = read(message("q", None, "Why?"), message("a", "q", "Ok.", output=[5, nameless, SAID]))

    assert contents(found.conversations[0]) == ["Why?", "Ok."]
    assert len(found.problems) == 2


def test_a_chat_without_readable_messages_says_what_it_is() -> None:
    value = {"title": "T", "history": {"messages": {}, "currentId": None}}

    with pytest.raises(UnknownFormatError, match="looks like Open WebUI chats"):
        parse(json.dumps(value))
