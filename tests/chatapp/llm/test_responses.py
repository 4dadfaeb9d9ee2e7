"""Answers and errors of the Responses wire, from a real server on loopback through the SDK."""

from __future__ import annotations

import pytest

from chatapp.llm import openai_client, responses_wire
from chatapp.llm.embedded import EmbeddedModel
from chatapp.llm.errors import ErrorKind, ModelError
from chatapp.llm.registry import EMBEDDED_BACKEND, ModelConfig
from chatapp.llm.requests import ModelRequest
from chatapp.llm.responses_wire import usage_of
from chatapp.llm.tokens import context_tokens
from tests.chatapp.llm.responses_server import HELLO, Asker
from tests.fakes.model_server import ModelServer

READ = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"a": 1}'}}
LIST = {"id": "c2", "type": "function", "function": {"name": "list", "arguments": "{}"}}
OVERFLOW = {"code": "context_length_exceeded", "message": ""}
USAGE = {
    "prompt_tokens": 90,
    "completion_tokens": 10,
    "total_tokens": 100,
    "prompt_tokens_details": {"cached_tokens": 64},
    "completion_tokens_details": {"reasoning_tokens": 4},
}
SAID = {"type": "message", "content": [{"type": "output_text", "text": "part"}]}
both_ways = pytest.mark.parametrize("stream", [False, True])


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(openai_client, "FIRST_WAIT_SECONDS", 0.01)


@pytest.fixture
def ask(use_models) -> Asker:
    return Asker(use_models)


@both_ways
def test_an_answer_comes_with_its_text_id_model_and_reason(ask, stream):
    reply = ask({"text": "hi"}, stream=stream)
    assert (reply.text, reply.finish_reason) == ("hi", "stop")
    assert (reply.response_id, reply.model) == ("resp_1", "scripted")
    assert (reply.usage, reply.tool_calls, reply.reasoning_items) == (None, (), ())


@both_ways
def test_usage_is_reported_in_chat_form(ask, stream):
    reply = ask({"text": "hi", "usage": USAGE}, stream=stream)
    assert reply.usage == USAGE
    assert context_tokens(reply.usage) == 100


def test_a_missing_total_is_summed():
    assert usage_of({"input_tokens": 7, "output_tokens": 3}) == {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "total_tokens": 10,
    }


@pytest.mark.parametrize("usage", [None, {}, "none", []])
def test_no_usage_is_none(usage):
    assert usage_of(usage) is None


@both_ways
def test_calls_come_in_chat_form_under_the_ids_that_results_name(ask, stream):
    reply = ask({"text": "I look.", "tool_calls": [READ, LIST]}, stream=stream)
    assert reply.tool_calls == (READ, LIST)
    assert (reply.text, reply.finish_reason) == ("I look.", "tool_calls")


@both_ways
def test_a_refusal_is_no_text(ask, stream):
    reply = ask({"refusal": "I cannot."}, stream=stream)
    assert (reply.text, reply.refusal, reply.finish_reason) == (None, "I cannot.", "stop")


@both_ways
def test_reasoning_is_kept_apart_and_can_be_sent_back(ask, stream):
    reply = ask({"text": "hi", "reasoning": "Hm.", "encrypted": "gAAA"}, stream=stream)
    assert (reply.text, reply.reasoning) == ("hi", "Hm.")
    (item,) = reply.reasoning_items
    assert (item["id"], item["encrypted_content"]) == ("rs_1", "gAAA")
    answer = {"role": "assistant", "content": "hi", "reasoning_items": list(reply.reasoning_items)}
    ask({"text": "again"}, stream=stream, messages=[HELLO, answer, HELLO])
    sent = ask.server.calls[0].body["input"]
    assert [item["type"] for item in sent] == ["message", "reasoning", "message", "message"]
    assert sent[1]["encrypted_content"] == "gAAA"


def test_the_chat_wire_sends_no_reasoning_items(ask):
    answer = {"role": "assistant", "content": "hi", "reasoning_items": [{"type": "reasoning"}]}
    ask({"text": "again"}, api="chat", messages=[HELLO, answer, HELLO])
    assert ask.server.calls[0].body["messages"] == [
        HELLO,
        {"role": "assistant", "content": "hi"},
        HELLO,
    ]


@both_ways
@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_an_answer_that_was_cut_says_why(ask, stream, reason):
    reply = ask({"text": "half", "finish_reason": reason}, stream=stream)
    assert (reply.text, reply.finish_reason) == ("half", reason)


@both_ways
def test_a_failed_response_is_an_overflow_although_it_only_has_a_code(ask, stream):
    error = ask({"failed": OVERFLOW}, stream=stream)
    assert error.kind is ErrorKind.CONTEXT_OVERFLOW
    assert (error.status, error.code) == (200, "context_length_exceeded")
    assert len(ask.server.calls) == 1


@both_ways
def test_a_response_that_failed_without_a_reason_is_told_as_such(ask, stream):
    error = ask(*[{"failed": None}] * 4, stream=stream)
    assert error.detail == "The response failed; the server does not say why."
    assert error.kind is ErrorKind.BROKEN_ANSWER


@both_ways
def test_a_response_that_failed_without_a_reason_is_asked_for_again(ask, stream):
    assert ask({"failed": None}, {"text": "whole"}, stream=stream).text == "whole"


REFUSED = {
    "invalid_prompt": ErrorKind.REJECTED,
    "empty_image_file": ErrorKind.REJECTED,
    "Invalid schema for function 'look': None is not of type 'object'.": ErrorKind.REJECTED,
    "image_parse_error": ErrorKind.REJECTED,
    "failed_to_download_image": ErrorKind.REJECTED,
    "unsupported_image_media_type": ErrorKind.REJECTED,
}


@both_ways
@pytest.mark.parametrize(("said", "kind"), REFUSED.items())
def test_a_response_that_failed_before_it_began_is_refused_and_not_asked_for_again(
    ask, stream, said, kind
):
    failed = {"message": said} if " " in said else {"code": said, "message": "It was refused."}
    error = ask(*[{"failed": failed}] * 4, stream=stream)
    assert error.kind is kind
    assert len(ask.server.calls) == 1


@pytest.mark.parametrize("said", REFUSED)
def test_a_response_that_failed_behind_its_beginning_is_a_broken_answer(said):
    failed = {"status": "failed", "error": {"code": "x", "message": said}, "output": [SAID]}
    with pytest.raises(ModelError) as raised:
        responses_wire.reply_of(failed)
    assert raised.value.kind is ErrorKind.BROKEN_ANSWER


def test_what_a_cancelled_response_had_said_is_no_whole_answer():
    for output in ([], [SAID]):
        with pytest.raises(ModelError) as raised:
            responses_wire.reply_of({"status": "cancelled", "output": output})
        assert raised.value.kind is ErrorKind.BROKEN_ANSWER


@both_ways
def test_an_error_status_is_read_as_on_the_chat_wire(ask, stream):
    body = {"error": {"message": "Your input exceeds the context window.", "code": None}}
    error = ask({"error": {"status": 400, "body": body}}, stream=stream)
    assert error.is_overflow
    assert ask.server.calls[0].api == "responses"


def test_an_outage_is_tried_again(ask):
    down = {"error": {"status": 503, "body": {"error": {"message": "busy"}}}}
    assert ask(down, {"text": "at last"}).text == "at last"
    assert len(ask.server.calls) == 2


@both_ways
def test_a_lost_answer_is_refused_with_the_servers_code(ask, stream):
    body = {"error": {"message": "Not found.", "code": "previous_response_not_found"}}
    script = [
        {
            "when": {"has_previous_response": True, "api": "responses"},
            "reply": {"error": {"status": 400, "body": body}},
        },
        {"when": {}, "reply": {"text": "whole"}},
    ]
    going_on = {"previous_response_id": "resp_0", "messages_on_server": 1, "stores": True}
    with ModelServer(script) as ask.server:
        ask._use_models(ask.server.models())
        error = ask.ask(deadline=5, stream=stream, messages=[HELLO, HELLO], **going_on)
        assert error.code == "previous_response_not_found"
        reply = ask.ask(deadline=5, stream=stream, messages=[HELLO, HELLO])
    assert reply.text == "whole"
    assert [len(call.messages) for call in ask.server.calls] == [1, 2]


@both_ways
@pytest.mark.parametrize("raw", ["", "nonsense", "[]", "{}", '{"output": null}', '{"output": {}}'])
def test_an_answer_that_cannot_be_read_is_told_as_such(ask, raw, stream):
    assert ask({"raw": raw}, stream=stream).kind is ErrorKind.BAD_ANSWER


@both_ways
def test_an_error_under_status_200_is_read(ask, stream):
    assert ask({"raw": {"error": OVERFLOW}}, stream=stream).is_overflow


@both_ways
def test_an_answer_in_one_piece_is_understood_whether_asked_for_or_not(ask, stream):
    message = {
        "type": "message",
        "role": "assistant",
        "content": [
            {"type": "output_text", "text": "a"},
            {"type": "output_text", "text": "b"},
        ],
    }
    call = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": {"a": 1}}
    later = {"type": "message", "content": [{"type": "output_text", "text": "c"}]}
    raw = {"id": "r", "output": [{"type": "web_search_call", "id": "w"}, message, call, later]}
    reply = ask({"raw": raw}, stream=stream)
    assert reply.text == "ab\n\nc"
    assert [c["function"] for c in reply.tool_calls] == [READ["function"]]
    assert reply.finish_reason == "tool_calls"


def test_a_call_without_any_id_is_given_one(ask):
    calls = [{"type": "function_call", "name": name, "arguments": ""} for name in ("a", "b")]
    reply = ask({"raw": {"output": calls}})
    ids = [call["id"] for call in reply.tool_calls]
    assert all(ids)
    assert len(set(ids)) == 2


def test_reasoning_in_the_open_is_preferred_to_its_summary(ask):
    item = {
        "type": "reasoning",
        "id": "rs",
        "summary": [{"type": "summary_text", "text": "short"}],
        "content": [{"type": "reasoning_text", "text": "long"}],
    }
    reply = ask({"raw": {"output": [item]}})
    assert (reply.reasoning, reply.text) == ("long", None)


def test_parts_of_a_reasoning_summary_are_parted(ask):
    summary = [{"type": "summary_text", "text": text} for text in ("one", "two")]
    reply = ask({"raw": {"output": [{"type": "reasoning", "id": "rs", "summary": summary}]}})
    assert reply.reasoning == "one\n\ntwo"


def test_a_server_that_does_not_answer_is_a_timeout_within_the_time_of_the_turn(ask):
    error = ask({"text": "late", "delay_s": 30}, deadline=0.5)
    assert error.kind is ErrorKind.TIMEOUT


def test_a_stream_that_never_ends_is_cut_at_the_time_of_the_turn(ask):
    reply = {"chunks": ["x"] * 100, "chunk_delay_s": 0.1}
    error = ask(reply, stream=True, deadline=2)
    assert error.kind is ErrorKind.TIMEOUT
    # Some of them came, and not all of what would take ten seconds.
    assert set(error.partial.text) == {"x"}
    assert len(error.partial.text) < 100


def test_the_model_without_a_server_answers_on_this_wire_too():
    config = ModelConfig(
        alias="e", backend=EMBEDDED_BACKEND, name="embedded", context_window=8000, encoding=""
    )
    facts = {"role": "user", "content": "The budget for Lisbon is 900 euros."}
    question = {"role": "user", "content": "What is the budget for Lisbon?"}
    request = ModelRequest(messages=[facts, question], api="responses", stores=True)
    assert "900 euros" in EmbeddedModel(config).complete(request).text
