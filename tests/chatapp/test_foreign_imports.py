"""Files of other interfaces through sessions/import/: what is stored, and what is refused."""

from __future__ import annotations

import json

import pytest

from chatapp.models import Message, Session
from tests.chatapp.test_api_sessions import problem

pytestmark = pytest.mark.django_db

IMPORT = "/api/v1/sessions/import/"
HI = {"role": "user", "content": "Hi"}


@pytest.fixture(autouse=True)
def no_queue(queued):
    """Imports may queue work; it is not done here."""


def send(api, value):
    text = value if isinstance(value, str) else json.dumps(value)
    return api.post(IMPORT, text.encode(), content_type="application/octet-stream")


LOGS = {
    "anthropic": {
        "system": [{"type": "text", "text": "Never promise refunds."}],
        "messages": [
            HI,
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "A guest.", "signature": "c2ln"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "t1", "name": "look", "input": {"room": 4}},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "free"}],
            },
        ],
    },
    "gemini": {
        "systemInstruction": {"parts": [{"text": "Never promise refunds."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "Hi"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "A guest.", "thought": True},
                    {"text": "I look."},
                    {"functionCall": {"id": "t1", "name": "look", "args": {"room": 4}}},
                ],
            },
            {
                "role": "user",
                "parts": [{"functionResponse": {"name": "look", "response": {"result": "free"}}}],
            },
        ],
    },
    "openai_responses": {
        "model": "m",
        "instructions": "Never promise refunds.",
        "input": [
            HI,
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "A guest."}]},
            {"role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
            {
                "type": "function_call",
                "call_id": "t1",
                "name": "look",
                "arguments": '{"room":4}',
            },
            {"type": "function_call_output", "call_id": "t1", "output": "free"},
        ],
    },
    "ui_messages": {
        "system": "Never promise refunds.",
        "messages": [
            {"id": "1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]},
            {
                "id": "2",
                "role": "assistant",
                "parts": [
                    {"type": "reasoning", "text": "A guest."},
                    {"type": "text", "text": "I look."},
                    {
                        "type": "tool-look",
                        "toolCallId": "t1",
                        "input": {"room": 4},
                        "output": "free",
                    },
                ],
            },
        ],
    },
}


@pytest.mark.parametrize("name", LOGS)
def test_prompt_thoughts_calls_and_results_are_stored_as_what_they_are(api, name):
    answer = send(api, LOGS[name])

    assert answer.status_code == 201
    assert answer.json()["problems"] == []
    (item,) = answer.json()["sessions"]
    assert item["format"] == name
    session = Session.objects.get(pk=item["session"])
    assert session.system_prompt == "Never promise refunds."
    asked, said, found = Message.objects.filter(session=session).order_by("position")
    assert (asked.role, asked.content) == ("user", "Hi")
    assert (said.content, said.reasoning, said.parts) == ("I look.", "A guest.", None)
    assert said.tool_calls[0]["function"] == {"name": "look", "arguments": '{"room":4}'}
    assert (found.role, found.tool_call_id, found.content) == ("tool", "t1", "free")


@pytest.mark.parametrize("name", LOGS)
def test_importing_twice_adds_nothing(api, name):
    send(api, LOGS[name])
    (item,) = send(api, LOGS[name]).json()["sessions"]

    assert (item["created"], item["messages_added"]) == (False, 0)


def test_a_log_that_has_grown_adds_what_is_new(api):
    first = {
        "request": {"system": "Be kind.", "messages": [HI]},
        "response": {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": "Hello"}],
            "stop_reason": "end_turn",
        },
    }
    said = {"role": "assistant", "content": [{"type": "text", "text": "Hello"}]}
    second = {"request": {"system": "Be kind.", "messages": [HI, said, {**HI, "content": "And?"}]}}
    send(api, json.dumps(first) + "\n")
    (item,) = send(api, f"{json.dumps(first)}\n{json.dumps(second)}\n").json()["sessions"]

    assert (item["created"], item["messages_added"]) == (False, 1)


@pytest.mark.parametrize(
    ("value", "looks_like"),
    [
        ([{"role": "user", "body": "Hi"}], "OpenAI chat"),
        ([{"id": "1", "role": "robot", "parts": [{"type": "text", "text": "Hi"}]}], "parts"),
        ({"system": "x", "messages": [{"role": "user"}]}, "Anthropic"),
        ({"contents": [{"role": "user", "parts": [{"orb": 1}]}]}, "Gemini"),
        ({"messages": []}, "OpenAI chat"),
        ([{"sender": "human", "text": "Hi"}], "keys sender, text"),
        ({"conversations": [{"from": "human", "value": "Hi"}]}, "a ShareGPT data set"),
    ],
)
def test_nothing_readable_is_refused_with_what_it_seems_to_be(api, value, looks_like):
    found = problem(send(api, value), 422)

    assert found["code"] == "unknown_format"
    assert looks_like in found["detail"].split("These formats can be read")[0]
    assert "These formats can be read" in found["detail"]
    assert not Session.objects.exists()


def test_nothing_storable_is_refused_too(api, settings):
    settings.CHATAPP = settings.CHATAPP | {"MAX_MESSAGE_CHARS": 10}
    found = problem(send(api, [{"role": "user", "content": "x" * 11}]), 422)

    assert "MAX_MESSAGE_CHARS" in found["detail"]
    assert not Session.objects.exists()


def test_a_conversation_without_a_message_makes_no_session_beside_others(api):
    answer = send(api, [{"messages": [HI]}, {"messages": [{"role": "user"}]}])

    assert len(answer.json()["sessions"]) == 1
    told = [found["text"] for found in answer.json()["problems"]]
    assert any("without a readable message" in text for text in told)
    assert Session.objects.count() == 1


def test_a_summary_that_the_server_made_is_a_placeholder(api):
    mark = {"type": "compaction", "content": "The guest said hello."}
    answer = {"role": "assistant", "content": [mark, {"type": "text", "text": "Hello"}]}
    (item,) = send(api, {"system": "x", "messages": [HI, answer]}).json()["sessions"]

    rows = Message.objects.filter(session=item["session"]).order_by("position")
    assert [row.kind for row in rows] == ["message", "placeholder", "message"]
    assert rows[1].summary == "The guest said hello."


def test_signatures_stay_in_the_metadata_and_out_of_the_wire(api):
    (item,) = send(api, LOGS["anthropic"]).json()["sessions"]

    said = Message.objects.get(session=item["session"], role="assistant")
    assert said.metadata["signed_thinking"] == [{"type": "thinking", "signature": "c2ln"}]
    assert "c2ln" not in json.dumps(said.wire())
