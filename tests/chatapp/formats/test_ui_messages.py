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


# --- messages to models ---------------------------------------------------------------------------


def to_model(role: str, *parts: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": list(parts), **more}


def asked(call_id: str = "c1", **more: Any) -> dict[str, Any]:
    return {"type": "tool-call", "toolCallId": call_id, "toolName": "look", **more}


def returned(call_id: str = "c1", **more: Any) -> dict[str, Any]:
    return {"type": "tool-result", "toolCallId": call_id, "toolName": "look", **more}


def result(content: Any, call_id: str = "c1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content, "name": "look"}


@pytest.mark.parametrize("key", ["input", "args"])
@pytest.mark.parametrize("as_lines", [True, False])
def test_calls_and_results_in_messages_of_their_own_belong_together(key, as_lines):
    values = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        to_model(
            "assistant",
            {"type": "reasoning", "text": "Two rooms."},
            text("I look."),
            asked("c1", **{key: {"room": 4}}),
            asked("c2", **{key: {"room": 5}}),
        ),
        to_model(
            "tool",
            returned("c1", output={"type": "text", "value": "free"}),
            returned("c2", output={"type": "json", "value": {"eur": 90}}),
        ),
        {"role": "assistant", "content": "Room 4."},
    ]
    content = "\n".join(map(json.dumps, values)) if as_lines else json.dumps(values)
    parsed = parse(content)
    (conversation,) = parsed.conversations
    assert (parsed.format, parsed.problems) == ("ui_messages", ())
    assert conversation.system_prompt == "Be brief."
    calls = [
        {
            "id": f"c{n}",
            "type": "function",
            "function": {"name": "look", "arguments": json.dumps({"room": n + 3})},
        }
        for n in (1, 2)
    ]
    found = [
        {**wire, "tool_calls": [_spaced(call) for call in wire["tool_calls"]]}
        if "tool_calls" in wire
        else wire
        for wire in wires(conversation)
    ]
    assert found == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "I look.", "tool_calls": calls},
        result("free", "c1"),
        result('{"eur":90}', "c2"),
        {"role": "assistant", "content": "Room 4."},
    ]
    assert conversation.messages[1].reasoning == "Two rooms."


def _spaced(call: dict[str, Any]) -> dict[str, Any]:
    arguments = json.dumps(json.loads(call["function"]["arguments"]))
    return {**call, "function": {**call["function"], "arguments": arguments}}


@pytest.mark.parametrize(
    ("told", "content", "has_failed"),
    [
        ({"output": {"type": "text", "value": "free"}}, "free", False),
        ({"output": {"type": "error-text", "value": "no room"}}, "no room", True),
        ({"output": {"type": "error-json", "value": {"code": 7}}}, '{"code":7}', True),
        ({"output": {"type": "execution-denied", "reason": "not now"}}, "not now", True),
        ({"output": {"type": "content", "value": [text("a"), text("b")]}}, "a\nb", False),
        ({"output": {"type": "hotel", "value": 4}}, '{"type":"hotel","value":4}', False),
        ({"output": "free"}, "free", False),
        ({"result": {"eur": 90}}, '{"eur":90}', False),
        ({"result": {"type": "text", "value": "raw"}}, '{"type":"text","value":"raw"}', False),
        ({"result": "no room", "isError": True}, "no room", True),
    ],
)
def test_an_output_is_read_in_each_form(told, content, has_failed):
    values = [HI_TO_MODEL, to_model("assistant", asked()), to_model("tool", returned(**told))]
    conversation = one(values)
    assert wires(conversation)[-1] == result(content)
    assert conversation.messages[-1].metadata.get("is_error", False) is has_failed


HI_TO_MODEL = to_model("user", text("Hi"))
PIXEL = "iVBORw0KGgo="


def test_pictures_and_files_of_a_message_to_a_model_are_parts():
    values = [
        to_model(
            "user",
            text("What is it?"),
            {"type": "image", "image": PIXEL, "mediaType": "image/webp"},
            {"type": "file", "data": "QQ==", "mediaType": "application/pdf", "filename": "a.pdf"},
        ),
        to_model("assistant", asked(input={})),
        to_model(
            "tool",
            returned(
                output={
                    "type": "content",
                    "value": [{"type": "media", "data": PIXEL, "mediaType": "image/png"}],
                }
            ),
        ),
    ]
    user, _, tool = wires(one(values))
    assert user["content"] == [
        text("What is it?"),
        {"type": "image_url", "image_url": {"url": f"data:image/webp;base64,{PIXEL}"}},
        {
            "type": "file",
            "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QQ=="},
        },
    ]
    assert tool["content"] == [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    ]


def test_parts_that_nobody_knows_are_told():
    values = [
        HI_TO_MODEL,
        to_model("assistant", asked(), {"type": "tool-approval-request", "approvalId": "a"}),
        to_model("tool", {"type": "tool-approval-response", "approvalId": "a"}, returned(result=1)),
    ]
    parsed = read(values)
    assert [problem.text for problem in parsed.problems] == [
        "Left out: parts of the kind 'tool-approval-request' (1).",
        "Left out: parts of the kind 'tool-approval-response' (1).",
    ]
    assert [wire["role"] for wire in wires(parsed.conversations[0])] == [
        "user",
        "assistant",
        "tool",
    ]


def test_messages_of_openai_with_pictures_stay_openais():
    picture = {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}
    file = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:;base64,QQ=="}}
    assert read([to_model("user", text("Hi"), picture, file)]).format == "openai_chat"
