"""Messages of chat widgets: their parts, their older form, and what is told."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from chatapp.formats import Conversation, ParsedFile, parse


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def message(role: str, *parts: Any, **more: Any) -> dict[str, Any]:
    return {"id": "1", "role": role, "parts": list(parts), **more}


HI = message("user", text("Hi"))
HELLO = message("assistant", {"type": "step-start"}, text("Hello"))


def read(value: Any) -> ParsedFile:
    return parse(json.dumps(value))


def one(value: Any) -> Conversation:
    (conversation,) = read(value).conversations
    return conversation


def wires(conversation: Conversation) -> list[dict[str, Any]]:
    return [found.wire for found in conversation.messages]


@pytest.mark.parametrize(
    "content",
    [
        json.dumps([HI, HELLO]),
        json.dumps({"id": "chat-1", "messages": [HI, HELLO]}),
        json.dumps([{"id": "chat-1", "messages": [HI, HELLO]}]),
        json.dumps([[HI, HELLO]]),
        "\n".join(map(json.dumps, [HI, HELLO])),
        "\n".join(map(json.dumps, [{"messages": [HI, HELLO]}])),
        json.dumps({"messages": [HI, {"role": "assistant", "content": "Hello"}]}),
    ],
)
def test_every_container_gives_the_same_messages(content: str) -> None:
    parsed = parse(content)

    (conversation,) = parsed.conversations
    assert parsed.format == "ui_messages"
    assert parsed.problems == ()
    assert wires(conversation) == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
    ]


def call(name: str, output: Any = "free", **more: Any) -> dict[str, Any]:
    return {
        "type": f"tool-{name}",
        "toolCallId": f"c-{name}",
        "state": "output-available",
        "input": {"room": 4},
        "output": output,
        **more,
    }


def test_calls_results_and_steps_become_messages_in_order() -> None:
    answer = message(
        "assistant",
        {"type": "step-start"},
        {"type": "reasoning", "text": "Two rooms.", "state": "done"},
        text("I look."),
        call("look"),
        call("price", {"eur": 90}),
        {"type": "step-start"},
        text("It is free."),
    )
    conversation = one([HI, answer])

    _, asked, first, second, said = wires(conversation)
    assert conversation.messages[1].reasoning == "Two rooms."
    assert asked["content"] == "I look."
    assert [c["function"]["name"] for c in asked["tool_calls"]] == ["look", "price"]
    assert asked["tool_calls"][0]["function"]["arguments"] == '{"room":4}'
    assert first == {
        "role": "tool",
        "tool_call_id": "c-look",
        "content": "free",
        "name": "look",
    }
    assert second["content"] == '{"eur":90}'
    assert said == {"role": "assistant", "content": "It is free."}


@pytest.mark.parametrize(
    ("part", "content"),
    [
        ({"type": "dynamic-tool", "toolName": "look", "toolCallId": "c", "output": "x"}, "x"),
        (
            {
                "type": "tool-invocation",
                "toolInvocation": {
                    "state": "result",
                    "toolCallId": "c",
                    "toolName": "look",
                    "args": {},
                    "result": "x",
                },
            },
            "x",
        ),
        ({"type": "tool-look", "toolCallId": "c", "errorText": "gone"}, "gone"),
        ({"type": "tool-look", "toolCallId": "c", "state": "input-available", "input": {}}, None),
    ],
)
def test_each_form_of_a_call_is_read(part: Any, content: str | None) -> None:
    _, asked, *results = one([HI, message("assistant", part)]).messages

    assert asked.wire["tool_calls"][0]["function"]["name"] == "look"
    assert [m.wire["content"] for m in results] == ([] if content is None else [content])
    assert all(m.metadata.get("is_error", False) == ("errorText" in part) for m in results)


def test_calls_of_messages_from_before_there_were_parts_are_read() -> None:
    call = {"state": "result", "toolCallId": "c", "toolName": "look", "args": {"a": 1}}
    asked = {"role": "user", "content": "go"}
    answer = {"role": "assistant", "content": "done"}
    answer["toolInvocations"] = [call | {"result": "found"}]
    for file in ([asked, answer], {"messages": [asked, answer]}):
        first, second, third, said = one(file).messages
        assert first.wire == asked
        assert second.wire["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"a":1}'}
        assert (third.wire["content"], said.wire["content"]) == ("found", "done")


@pytest.mark.parametrize(
    ("part", "wire"),
    [
        (
            {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,QQ=="},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}},
        ),
        (
            {"type": "file", "mediaType": "image/png", "url": "https://x.org/a.png"},
            {"type": "image_url", "image_url": {"url": "https://x.org/a.png"}},
        ),
        (
            {
                "type": "file",
                "mediaType": "application/pdf",
                "filename": "a.pdf",
                "url": "data:application/pdf;base64,QQ==",
            },
            {
                "type": "file",
                "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QQ=="},
            },
        ),
        (
            {"type": "file", "mimeType": "application/pdf", "filename": "a.pdf", "data": "QQ=="},
            {
                "type": "file",
                "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QQ=="},
            },
        ),
    ],
)
def test_files_become_parts(part: Any, wire: Any) -> None:
    asked = message("user", part, text("What?"))

    assert wires(one([asked]))[0]["content"] == [wire, text("What?")]


def test_attachments_of_the_older_form_are_kept() -> None:
    attached = [{"name": "a.png", "contentType": "image/png", "url": "https://x.org/a.png"}]
    (wire,) = wires(one([{**HI, "experimental_attachments": attached}]))

    assert wire["content"][1]["image_url"] == {"url": "https://x.org/a.png"}


def test_a_chats_own_values_are_kept() -> None:
    chat = {
        "id": "chat-1",
        "title": "Rooms",
        "createdAt": "2026-03-01T10:00:00Z",
        "system": "Be kind.",
        "messages": [{**HI, "createdAt": "2026-03-01T10:00:01Z"}, HELLO],
    }
    conversation = one(chat)

    assert conversation.identity == "ui_messages:chat-1"
    assert conversation.title == "Rooms"
    assert conversation.system_prompt == "Be kind."
    assert conversation.messages[0].created_at == datetime(2026, 3, 1, 10, 0, 1, tzinfo=UTC)


def test_a_system_message_is_the_prompt() -> None:
    conversation = one([message("system", text("Be kind.")), HI])

    assert conversation.system_prompt == "Be kind."
    assert len(conversation.messages) == 1


def test_what_is_left_out_is_told() -> None:
    parsed = read(
        [
            HI,
            message("data", text("x")),
            message("assistant", {"type": "data-weather", "data": {}}, text("Hello")),
            message("user"),
        ]
    )

    told = [problem.text for problem in parsed.problems]
    assert len(wires(parsed.conversations[0])) == 2
    assert told == [
        "Left out: parts of the kind 'data-weather' (1).",
        "Message 2 was left out: its role is 'data'.",
        "Message 4 was left out: it says nothing that can be read.",
    ]
