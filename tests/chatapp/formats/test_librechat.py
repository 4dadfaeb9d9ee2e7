"""LibreChat's and Chatbot UI's exports: nested, flat, in one line, with parts."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from chatapp.formats import (
    Conversation,
    ParsedFile,
    UnknownFormatError,
    chatbot_ui,
    parse,
    visible_line,
)
from chatapp.formats.reading import read_document

from .conftest import ParseFile, ParseOne, ReadFile

NO_PARENT = "00000000-0000-0000-0000-000000000000"


def message(key: str, parent: Any, text: str = "", **more: Any) -> dict[str, Any]:
    by_user = not key.startswith("a")
    return {
        "messageId": key,
        "parentMessageId": parent,
        "isCreatedByUser": by_user,
        "sender": "Somebody",
        "text": text,
    } | more


def export(*messages: Any, **more: Any) -> str:
    about = {"conversationId": "c1", "title": "T", "exportAt": "13:18:04 GMT-0400"}
    return json.dumps(about | {"messages": list(messages)} | more)


def one(*messages: Any, **more: Any) -> Conversation:
    parsed = parse(export(*messages, **more))
    assert parsed.problems == ()
    (conversation,) = parsed.conversations
    return conversation


def links(conversation: Conversation) -> dict[str, str | None]:
    return {message.key: message.parent for message in conversation.messages}


def ends(conversation: Conversation) -> int:
    messages = conversation.messages
    return len({m.key for m in messages} - {m.parent for m in messages})


@pytest.mark.parametrize(
    ("path", "messages", "branches", "roots"),
    [
        ("librechat/librechat_tree_nested.json", 9, 3, 1),
        ("librechat/librechat_flat_branches.json", 5, 3, 2),
        ("librechat/librechat_linear.json", 2, 1, 1),
    ],
)
def test_real_exports_have_these_messages_and_branches(
    only: ParseOne, path: str, messages: int, branches: int, roots: int
) -> None:
    conversation = only(path)

    assert conversation.format == "librechat"
    assert len(conversation.messages) == messages
    assert ends(conversation) == branches
    assert sum(m.parent is None for m in conversation.messages) == roots


def test_title_model_prompt_and_times_of_the_real_tree_are_kept(only: ParseOne) -> None:
    conversation = only("librechat/librechat_tree_nested.json")
    first, second, *later = conversation.messages

    assert conversation.title == "Troubleshooting Python Virtual Environment Activation Issue"
    assert conversation.model == "gpt-4-turbo"
    assert conversation.system_prompt == "You are an expert software engineer."
    assert first.created_at == datetime(2024, 5, 1, 16, 35, 11, 530000, tzinfo=UTC)
    assert second.metadata == {"model": "gpt-4-turbo"}
    assert {message.created_at for message in later} == {None}


def test_the_newest_sibling_is_shown(only: ParseOne) -> None:
    line = visible_line(only("librechat/librechat_tree_nested.json"))

    assert [message.key[:8] for message in line] == ["9501f99d", "4c395510", "d3e12088", "1f062c99"]


def test_who_speaks_is_told_by_is_created_by_user_and_not_by_the_sender() -> None:
    conversation = one(
        message("q", None, "Why?", sender="GPT-4"), message("a", "q", "So.", sender="User")
    )

    assert [m.wire["role"] for m in conversation.messages] == ["user", "assistant"]


@pytest.mark.parametrize("none", [NO_PARENT, None, ""])
def test_a_root_names_no_parent(none: Any) -> None:
    assert links(one(message("q", none, "Why?"), message("r", none, "How?"))) == {
        "q": None,
        "r": None,
    }


def test_messages_that_know_no_parents_follow_each_other() -> None:
    messages = [message("q", None, "Why?"), message("a", None, "So."), message("r", None, "Oh.")]
    for each in messages:
        del each["parentMessageId"]

    assert links(one(*messages)) == {"q": None, "a": "q", "r": "a"}


def test_a_flat_export_may_name_parents_that_come_later() -> None:
    conversation = one(message("a", "q", "So."), message("q", None, "Why?"))

    assert links(conversation) == {"q": None, "a": "q"}


def test_children_of_an_empty_message_hang_under_what_is_above_it() -> None:
    conversation = one(
        message("q", None, "Why?"),
        message("a", "q", "  "),
        message("r", "a", "Hello?"),
        message("s", "a", "Anybody?"),
    )

    assert links(conversation) == {"q": None, "r": "q", "s": "q"}


def test_an_unfinished_answer_is_a_branch_that_says_so() -> None:
    conversation = one(
        message("q", None, "Why?"),
        message("a1", "q", "We", unfinished=True),
        message("a2", "q", "So.", unfinished=False, finish_reason="stop"),
    )

    assert [m.finish_reason for m in conversation.messages] == ["", "interrupted", "stop"]
    assert conversation.leaf == "a2"


def test_an_error_in_the_place_of_an_answer_is_left_out_and_told() -> None:
    found = parse(export(message("q", None, "Why?"), message("a", "q", "No credit.", error=True)))

    assert len(found.conversations[0].messages) == 1
    assert "error notices" in found.problems[0].text


def test_parts_of_newer_versions_are_read() -> None:
    call = {"id": "t1", "name": "look", "args": '{"room":4}', "output": "free"}
    parts = [
        {"type": "think", "think": "A guest."},
        {"type": "text", "text": {"value": "I look."}},
        {"type": "tool_call", "tool_call": call},
        {"type": "text", "text": "It is free."},
        {"type": "agent_update", "agent_update": {}},
    ]
    conversation = one(
        message("q", None, content=[{"type": "text", "text": "A room?"}]),
        message("a", "q", content=parts, model="m1"),
        message("r", "a", "Thanks."),
    )

    _, asked, result, answer, _ = conversation.messages
    assert asked.reasoning == "A guest."
    assert asked.wire["content"] == "I look."
    assert asked.wire["tool_calls"] == [
        {"id": "t1", "type": "function", "function": {"name": "look", "arguments": '{"room":4}'}}
    ]
    assert result.wire["tool_call_id"] == "t1"
    assert result.wire["content"] == "free"
    assert answer.wire == {"role": "assistant", "content": "It is free."}
    assert answer.metadata == {"model": "m1"}
    assert links(conversation) == {
        "q": None, "a": "q", "a:2": "a", "a:3": "a:2", "r": "a:3",
    }  # fmt: skip


def test_files_and_parts_that_have_no_place_are_named() -> None:
    found = parse(
        export(
            message("q", None, "See.", files=[{"filename": "plan.pdf"}]),
            message("a", "q", content=[
                {"type": "image_file", "image_file": {"filename": "x.png"}}, {"type": "video"}
            ]),
        )
    )  # fmt: skip

    assert [m.wire["content"] for m in found.conversations[0].messages] == [
        "See.\n[file plan.pdf]",
        "[image x.png]",
    ]
    assert "'video'" in found.problems[0].text


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        (7, "it is not an object but 7"),
        ({"messageId": "x", "parentMessageId": "q", "text": "Hi"}, "whether the user sent it"),
        (
            message("ax", "q", content=[{"type": "tool_call", "tool_call": {"id": "t"}}]),
            "a tool call has no name",
        ),
    ],
)
def test_a_damaged_message_is_left_out_by_name(damaged: Any, why: str) -> None:
    found = parse(export(message("q", None, "Why?"), damaged, message("a", "q", "So.")))

    assert links(found.conversations[0]) == {"q": None, "a": "q"}
    (problem,) = found.problems
    assert "was left out" in problem.text
    assert why in problem.text


def test_a_repeated_id_does_not_swallow_a_message() -> None:
    conversation = one(message("q", None, "Why?"), message("q", None, "How?"))

    assert [m.wire["content"] for m in conversation.messages] == ["Why?", "How?"]


def test_an_older_key_of_the_messages_is_known() -> None:
    value = json.loads(export(message("q", None, "Why?")))
    value["messagesTree"] = value.pop("messages")

    assert parse(json.dumps(value)).format == "librechat"


def test_an_export_without_readable_messages_says_what_it_is() -> None:
    with pytest.raises(UnknownFormatError, match="looks like LibreChat exports"):
        parse(export())


# --- Chatbot UI -----------------------------------------------------------------------------------


def chatbot(*conversations: Any) -> ParsedFile:
    value = {"version": 4, "history": list(conversations), "folders": [], "prompts": []}
    return parse(json.dumps(value))


def talk(**more: Any) -> dict[str, Any]:
    return {
        "id": "t1",
        "name": "N",
        "messages": [{"role": "user", "content": "Hi"}],
        "model": {"id": "m1", "name": "M"},
        "prompt": "Be brief.",
        "temperature": 0.5,
    } | more


def test_the_real_export_has_these_messages(parsed: ParseFile) -> None:
    found = parsed("librechat/chatbotui_v4_export.json")

    assert found.format == "chatbot_ui"
    assert found.problems == ()
    assert [len(one.messages) for one in found.conversations] == [4, 2]
    assert [ends(one) for one in found.conversations] == [1, 1]
    first = found.conversations[0]
    assert first.title == "Hello what are you able to do?"
    assert first.model == "gpt-4-1106-preview"
    assert first.system_prompt.startswith("You are ChatGPT")


def test_an_id_may_be_a_number_or_missing() -> None:
    found = chatbot(talk(id=7), talk(id=None), talk(id=None))

    first, second, third = (one.identity for one in found.conversations)
    assert first == "chatbot_ui:7"
    assert second != third


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        ("x", "Conversation 2 of the history was left out: it is not an object but 'x'."),
        ({"id": "x"}, "Conversation 2 of the history was left out: it has no list of messages."),
        (
            talk(id="t2", messages=[5, {"role": "user", "content": "Hi"}]),
            "Message 1 of conversation 2 was left out: it is not an object but 5.",
        ),
        (
            talk(id="t2", messages=[{"role": "alien"}, {"role": "user", "content": "Hi"}]),
            "Message 1 of conversation 2 was left out: its role is 'alien'.",
        ),
        (
            talk(
                id="t2",
                messages=[{"role": "user", "content": " "}, {"role": "user", "content": "Hi"}],
            ),
            "Message 1 of conversation 2 was left out: it has no text.",
        ),
    ],
)
def test_what_is_damaged_in_a_history_is_named(damaged: Any, why: str) -> None:
    found = chatbot(talk(), damaged, talk(id="t3"))

    assert why in [problem.text for problem in found.problems]
    assert {"chatbot_ui:t1", "chatbot_ui:t3"} <= {one.identity for one in found.conversations}


@pytest.mark.parametrize(
    "value",
    [
        {"history": [{"name": "N", "messages": [{"role": "user", "content": "Hi"}]}]},
        {"history": [{"role": "user", "content": "Hi"}], "version": 1},
        {"history": "none", "version": 4},
    ],
)
def test_other_histories_are_not_taken_for_an_export(value: Any) -> None:
    document = read_document(json.dumps(value))

    assert not chatbot_ui.recognises(document)


def test_a_real_trajectory_with_a_history_is_not_taken_for_an_export(real_file: ReadFile) -> None:
    content = real_file("swe_agent/sweagent_marshmallow_1867_function_calling.traj.json")

    assert not chatbot_ui.recognises(read_document(content.decode()))
