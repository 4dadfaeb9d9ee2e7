"""Own instructions, and summaries that are asked for at the end of the chat's own request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chatapp.models import Session
from compaction.engine.strategies.prompts import DATA_RULE
from compaction.models import CompactionStep, SessionSummary
from tests.compaction.support import NEVER, compact, say
from tests.factories import SessionFactory, call, profile, result, store, talk, user
from tests.facts import code

pytestmark = pytest.mark.django_db

PROMPT = "Tell in five sentences what was agreed upon.\nName every file."
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Reads a file.",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        },
    }
]
PLAIN = NEVER | {"keep_last_n": 2, "ledger": False, "quality_gate": False, "prompt": PROMPT}
CONVERSATION = PLAIN | {"summariser_input": "conversation"}
SECRET = "sk-proj-" + "Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8Qr9St0Uv"


def summary_call(server: Any) -> dict[str, Any]:
    """Return the body of the last request that the own prompt stands in."""
    return [one for one in server.calls if PROMPT in one.text][-1].body


@pytest.fixture
def session(owner, model_server, queued) -> Session:
    model_server.script = [
        {"when": {"contains": PROMPT}, "reply": {"text": "They agreed on tea at four."}},
        {"when": {}, "reply": {"text": "ok"}},
    ]
    wires = [
        *talk(4),
        user("what does it say?"),
        call("read_file", "c1", json.dumps({"path": "/srv/tea.txt"})),
        result("c1", "tea is at four"),
        {"role": "assistant", "content": "Tea is at four."},
        *talk(1),
    ]
    return SessionFactory(owner=owner, wires=wires, system_prompt="You help.", tools=TOOLS)


def test_an_own_prompt_takes_the_place_of_the_built_in_one(session, model_server):
    profile(**PLAIN)
    assert compact(session).status == "succeeded"
    system, data = summary_call(model_server)["messages"]
    assert system["role"] == "system"
    assert system["content"].startswith(f"{PROMPT}\n\n{DATA_RULE}")
    assert "headings" not in system["content"]
    assert "<conversation" in data["content"]
    assert SessionSummary.objects.get().summary_prompt == PROMPT


def test_a_prompt_of_blanks_is_the_built_in_one(session, model_server):
    model_server.script = []
    profile(**PLAIN | {"prompt": " \n\t"})
    model_server.script = [{"when": {"purpose": "summary"}, "reply": {"text": "Tea at four."}}]
    assert compact(session).status == "succeeded"


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_the_conversation_is_sent_as_the_chat_sent_it(session, model_server, api):
    profile(**CONVERSATION)
    Session.objects.filter(pk=session.pk).update(api=api)
    session.refresh_from_db()
    say(session, "and the milk?")
    chat = model_server.calls[-1].body
    assert compact(session).status == "succeeded"
    body = summary_call(model_server)
    key = "messages" if api == "chat" else "input"
    *prefix, last = body[key]
    # All but what is kept: the newest exchange.
    assert len(prefix) >= len(chat[key]) - 2
    as_bytes = json.dumps(chat[key][: len(prefix)]).encode()
    assert json.dumps(prefix).encode() == as_bytes
    assert json.dumps(body["tools"]).encode() == json.dumps(chat["tools"]).encode()
    assert list(body)[:2] == list(chat)[:2]
    assert body["tool_choice"] == "none"
    assert "tool_choice" not in chat
    assert last["role"] == "user"
    assert PROMPT in json.dumps(last, ensure_ascii=False).replace("\\n", "\n")
    assert "call no tool" in json.dumps(last)


def test_it_goes_on_from_a_summary_as_the_chat_does(session, model_server):
    profile(**CONVERSATION, rendering="node")
    assert compact(session).status == "succeeded"
    store(session, talk(3))
    say(session, "go on")
    chat = model_server.calls[-1].body["messages"]
    assert compact(session).status == "succeeded"
    *prefix, _ = summary_call(model_server)["messages"]
    assert "They agreed on tea at four." in prefix[1]["content"]
    assert prefix == chat[: len(prefix)]


def test_its_messages_are_exactly_those_that_are_linked(session, model_server):
    profile(**CONVERSATION)
    assert compact(session).status == "succeeded"
    linked = SessionSummary.objects.get().links.count()
    assert len(summary_call(model_server)["messages"]) == 1 + linked + 1


def test_an_answer_that_calls_a_tool_is_a_failure(session, model_server):
    profile(**CONVERSATION)
    tool = {"id": "x", "name": "read_file", "arguments": {"path": "/srv/tea.txt"}}
    model_server.script = [{"when": {}, "reply": {"tool_calls": [tool]}}]
    run = compact(session)
    assert (run.status, run.error_code) == ("failed", "bad_answer")
    assert "asked for a tool" in run.error
    assert not SessionSummary.objects.exists()


def test_without_an_own_prompt_there_is_a_built_in_one(session, model_server):
    profile(**CONVERSATION | {"prompt": ""})
    model_server.script = [
        {"when": {"contains": "Summarise the conversation above"}, "reply": {"text": "Tea."}}
    ]
    assert compact(session).status == "succeeded"
    step = CompactionStep.objects.get()
    assert step.model
    assert SessionSummary.objects.get().summary_text == "Tea."


def test_what_is_too_large_is_halved_with_transcripts(session, model_server):
    profile(**CONVERSATION | {"bisect_min_messages": 2})
    overflow = {"error": {"status": 400, "body": {"error": {"code": "context_length_exceeded"}}}}
    model_server.script = [
        {"when": {"contains": "call no tool"}, "reply": overflow},
        {"when": {"purpose": "merge"}, "reply": {"text": "Both halves."}},
        {"when": {}, "reply": {"text": "One half."}},
    ]
    run = compact(session)
    assert (run.status, run.chunk_count) == ("succeeded", 3)
    assert SessionSummary.objects.get().summary_text == "Both halves."


def test_a_secret_that_the_answer_repeats_is_not_stored(session, model_server):
    profile(**CONVERSATION)
    model_server.script = [{"when": {}, "reply": {"text": f"The key is {SECRET}, for tea."}}]
    assert compact(session).status == "succeeded"
    assert SECRET not in SessionSummary.objects.get().summary_text
    assert not CompactionStep.objects.filter(output__contains=SECRET).exists()


def test_a_new_version_of_a_summary_is_made_of_a_transcript(session, model_server):
    from compaction.runs.resummarize import resummarize

    profile(**CONVERSATION)
    compact(session)
    model_server.script = [{"when": {}, "reply": {"text": "Tea, said once more."}}]
    assert resummarize(SessionSummary.objects.get()).status == "succeeded"
    assert "<conversation" in model_server.calls[-1].text


def test_messages_that_the_chat_does_not_send_are_read_in_a_transcript(owner, model_server, queued):
    profile(**CONVERSATION | {"history_limit": 4})
    model_server.script = [{"when": {}, "reply": {"text": "They agreed on tea at four."}}]
    wires = [
        line
        for number in range(8)
        for line in (user(f"{code(number)}?"), {"role": "assistant", "content": "yes " * 30})
    ]
    session = SessionFactory(owner=owner, wires=wires, tools=TOOLS)
    assert compact(session).status == "succeeded"
    read = json.dumps(summary_call(model_server)["messages"])
    linked = SessionSummary.objects.get().links.values_list("message__content", flat=True)
    asked = [content.rstrip("?") for content in linked if content.endswith("?")]
    assert asked
    assert [name for name in asked if name not in read] == []


def test_a_server_without_tool_choice_is_asked_without_it(session, model_server):
    profile(**CONVERSATION)
    refusal = {
        "message": "Unsupported parameter: 'tool_choice' is not supported with this model.",
        "type": "invalid_request_error",
        "param": "tool_choice",
        "code": "unsupported_parameter",
    }
    refused = {"error": {"status": 400, "body": {"error": refusal}}}
    model_server.script = [
        {"when": {"call": 1}, "reply": refused},
        {"when": {}, "reply": {"text": "They agreed on tea at four."}},
    ]
    assert compact(session).status == "succeeded"
    body = summary_call(model_server)
    assert "tool_choice" not in body
    assert body["tools"] == TOOLS


def test_the_embedded_model_chooses_sentences_of_a_transcript(owner, use_models, queued):
    backend = "chatapp.llm.embedded.EmbeddedModel"
    window = {"CONTEXT_WINDOW": 8192, "MAX_OUTPUT": 512}
    use_models({"embedded": {"BACKEND": backend, "NAME": "embedded"} | window})
    profile(**CONVERSATION)
    session = SessionFactory(owner=owner, wires=talk(6), model="embedded")
    run = compact(session)
    assert (run.status, run.error) == ("succeeded", "")


def test_a_chat_whose_summaries_call_tools_goes_on(session, model_server):
    profile(**CONVERSATION | {"message_limit": 4})
    tool = {"id": "x", "name": "read_file", "arguments": {"path": "/srv/tea.txt"}}
    model_server.script = [
        {"when": {"contains": "call no tool"}, "reply": {"tool_calls": [tool]}},
        {"when": {}, "reply": {"text": "Here you are."}},
    ]
    assert say(session, "and the milk?").answer.content == "Here you are."
    assert not SessionSummary.objects.exists()
