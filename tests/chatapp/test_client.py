"""The openai SDK against a real server on loopback: answers, errors, retries, pieces of calls."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType

import pytest

from chatapp.llm import openai_client
from chatapp.llm.errors import ErrorKind, ModelError
from chatapp.llm.openai_client import OpenAIModel
from chatapp.llm.registry import all_models
from chatapp.llm.requests import ModelRequest, Reply, ignore_event
from chatapp.llm.tokens import context_tokens
from tests.factories import call, result, talk, user
from tests.fakes.model_server import ModelServer

OVERFLOW = {
    "status": 400,
    "body": {
        "error": {
            "message": "This model's maximum context length is 4096 tokens.",
            "type": "invalid_request_error",
            "code": "context_length_exceeded",
        }
    },
}
HTML_502 = {
    "status": 502,
    "body": "<html>Bad Gateway</html>",
    "headers": {"Content-Type": "text/html"},
}
SLOW_DOWN = {
    "status": 429,
    "headers": {"Retry-After": "0.05"},
    "body": {"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}},
}
HELLO = ({"role": "user", "content": "hello"},)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(openai_client, "FIRST_WAIT_SECONDS", 0.01)


@pytest.fixture
def ask(use_models):
    """Ask a server that plays the script once; returns (reply or error, server, events)."""
    servers = []

    def run(*replies: dict, stream: bool = False, deadline: float = 20, **models):
        script = [
            {"when": {"call": number}, "reply": reply} for number, reply in enumerate(replies, 1)
        ]
        server = ModelServer(script).__enter__()
        servers.append(server)
        settings = {k: models.pop(k) for k in list(models) if k == "MODEL_TIMEOUT_SECONDS"}
        use_models(server.models(**models), **settings)
        events: list[tuple[str, dict]] = []
        request = ModelRequest(
            messages=HELLO, stream=stream, deadline=time.monotonic() + deadline, max_output=50
        )
        outcome: Reply | ModelError
        try:
            outcome = OpenAIModel(all_models()["default"]).complete(
                request, lambda name, payload: events.append((name, payload))
            )
        except ModelError as error:
            outcome = error
        return outcome, server, events

    yield run
    for server in servers:
        server.__exit__()


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_comes_with_its_text_usage_and_reason(ask, stream):
    usage = {
        "prompt_tokens": 90,
        "completion_tokens": 10,
        "total_tokens": 100,
        "prompt_tokens_details": {"cached_tokens": 64},
    }
    reply, _, _ = ask({"text": "hi", "usage": usage}, stream=stream)
    assert (reply.text, reply.finish_reason) == ("hi", "stop")
    assert reply.usage["prompt_tokens_details"]["cached_tokens"] == 64
    assert context_tokens(reply.usage) == 100


@pytest.mark.parametrize("stream", [False, True])
def test_a_server_that_reports_no_usage_is_fine(ask, stream):
    reply, _, _ = ask({"text": "hi"}, stream=stream)
    assert (reply.text, reply.usage) == ("hi", None)


def test_cached_tokens_are_priced_as_a_part_of_the_prompt(ask):
    usage = {
        "prompt_tokens": 1_000_000,
        "completion_tokens": 0,
        "prompt_tokens_details": {"cached_tokens": 400_000},
    }
    prices = {"INPUT": 10.0, "CACHED": 1.0, "OUTPUT": 100.0}
    reply, _, _ = ask({"text": "hi", "usage": usage}, PRICES=prices)
    assert all_models()["default"].cost(reply.usage) == pytest.approx(6.0 + 0.4)


@pytest.mark.parametrize("stream", [False, True])
def test_an_overflow_is_asked_once_and_told_as_such(ask, stream):
    error, server, _ = ask({"error": OVERFLOW}, stream=stream)
    assert error.is_overflow
    assert error.code == "context_length_exceeded"
    assert len(server.calls) == 1


def test_a_rate_limit_is_waited_for_as_long_as_the_server_says(ask):
    started = time.monotonic()
    reply, server, _ = ask({"error": SLOW_DOWN}, {"error": SLOW_DOWN}, {"text": "at last"})
    assert reply.text == "at last"
    assert len(server.calls) == 3
    assert time.monotonic() - started >= 0.1


def test_a_wait_that_is_longer_than_the_turn_is_not_begun(ask):
    slow = SLOW_DOWN | {"headers": {"Retry-After": "50"}}
    started = time.monotonic()
    error, server, _ = ask({"error": slow}, {"text": "never"}, deadline=5)
    assert error.kind is ErrorKind.RATE_LIMITED
    assert (len(server.calls), error.retry_after) == (1, 50.0)
    assert time.monotonic() - started < 4


def test_a_wait_ends_when_the_turn_is_cancelled(use_models):
    slow = SLOW_DOWN | {"headers": {"Retry-After": "50"}}
    asked_at = time.monotonic()
    with ModelServer([{"when": {}, "reply": {"error": slow}}]) as server:
        use_models(server.models())
        request = ModelRequest(
            messages=HELLO, cancelled=lambda: bool(server.calls) and time.monotonic() > asked_at + 1
        )
        with pytest.raises(ModelError):
            OpenAIModel(all_models()["default"]).complete(request)
    assert time.monotonic() - asked_at < 10


@pytest.mark.parametrize(
    "failure", [HTML_502, {"status": 500, "body": {"error": {"message": "x"}}}]
)
def test_an_outage_is_tried_again(ask, failure):
    reply, server, _ = ask({"error": failure}, {"text": "back"})
    assert (reply.text, len(server.calls)) == ("back", 2)


def test_an_outage_that_lasts_ends_after_four_requests(ask):
    error, server, _ = ask(*[{"error": HTML_502}] * 9)
    assert (error.kind, error.status) == (ErrorKind.UNAVAILABLE, 502)
    assert len(server.calls) == openai_client.MAX_ATTEMPTS == 4


def test_the_sdk_adds_no_requests_of_its_own(ask, monkeypatch):
    monkeypatch.setattr(openai_client, "MAX_ATTEMPTS", 1)
    _, server, _ = ask(*[{"error": HTML_502}] * 9)
    assert len(server.calls) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_not_tried_again(ask, status):
    error, server, _ = ask({"error": {"status": status, "body": {"error": {"message": "no"}}}})
    assert error.kind is ErrorKind.AUTHENTICATION
    assert len(server.calls) == 1


def test_an_exhausted_quota_is_not_waited_for(ask):
    body = {"error": {"message": "quota", "code": "insufficient_quota"}}
    error, server, _ = ask({"error": {"status": 429, "body": body}})
    assert (error.kind, len(server.calls)) == (ErrorKind.QUOTA, 1)


def test_a_server_that_does_not_answer_is_a_timeout_within_the_time_of_the_turn(ask):
    error, _, _ = ask({"text": "late", "delay_s": 30}, deadline=0.5)
    assert error.kind is ErrorKind.TIMEOUT


def test_a_stream_that_never_ends_is_cut_at_the_time_of_the_turn(ask):
    pieces = {"chunks": ["x "] * 100, "chunk_delay_s": 0.1}
    error, _, _ = ask(pieces, stream=True, deadline=2)
    assert error.kind is ErrorKind.TIMEOUT
    # Some of them came, and not all of what would take ten seconds.
    assert 0 < len(error.partial.text) < 200
    assert set(error.partial.text.split()) == {"x"}


def test_a_server_that_is_not_there_is_an_outage(use_models):
    with ModelServer() as server:
        models = server.models()
    use_models(models)
    with pytest.raises(ModelError) as caught:
        OpenAIModel(all_models()["default"]).complete(ModelRequest(messages=HELLO))
    assert caught.value.kind is ErrorKind.UNAVAILABLE


def test_no_key_is_a_sentence_and_no_traceback(use_models):
    with ModelServer() as server:
        use_models(server.models(API_KEY="", BASE_URL=""))
        with pytest.raises(ModelError) as caught:
            OpenAIModel(all_models()["default"]).complete(ModelRequest(messages=HELLO))
    assert caught.value.kind is ErrorKind.NOT_CONFIGURED


def test_an_error_inside_a_stream_has_the_text_that_came_before(ask):
    error, server, _ = ask(
        {
            "chunks": ["part ", "two"],
            "fail_after": 1,
            "stream_error": {"code": "context_length_exceeded", "message": ""},
        },
        stream=True,
    )
    assert error.is_overflow
    assert error.partial.text == "part "
    assert len(server.calls) == 1


def test_a_stream_that_breaks_off_is_no_whole_answer(ask):
    error, server, _ = ask({"chunks": ["part ", "two"], "fail_after": 1}, stream=True)
    assert error.kind is ErrorKind.BROKEN_ANSWER
    assert (error.partial.text, error.partial.finish_reason) == ("part ", "interrupted")
    assert len(server.calls) == 1


def test_a_stream_that_breaks_off_before_anything_came_is_tried_again(ask):
    reply, server, _ = ask({"chunks": ["x"], "fail_after": 0}, {"text": "whole"}, stream=True)
    assert (reply.text, len(server.calls)) == ("whole", 2)


@pytest.mark.parametrize("stream", [False, True])
def test_an_error_under_status_200_is_read(ask, stream):
    error, server, _ = ask({"raw": {"error": OVERFLOW["body"]["error"]}}, stream=stream)
    assert error.is_overflow
    assert len(server.calls) == 1


@pytest.mark.parametrize(
    "raw",
    [{}, {"choices": []}, {"choices": ["x"]}, {"choices": [{"message": 5}]}, "not json", "[]"],
)
def test_an_answer_that_cannot_be_read_is_told_as_such(ask, raw):
    error, server, _ = ask({"raw": raw})
    assert error.kind is ErrorKind.BAD_ANSWER
    assert len(server.calls) == 1


def test_a_server_that_does_not_stream_is_understood(ask):
    answer = {"choices": [{"message": {"role": "assistant", "content": "whole"}}]}
    reply, _, _ = ask({"raw": answer}, stream=True)
    assert reply.text == "whole"


def test_pieces_of_a_stream_are_told_as_they_come(ask):
    _, _, events = ask({"chunks": ["one ", "two"]}, stream=True)
    assert events == [("delta", {"text": "one "}), ("delta", {"text": "two"})]


def piece(arguments: str, **call) -> dict:
    function = {"name": call.pop("name", None), "arguments": arguments}
    return {"tool_calls": [{**call, "function": function}]}


def calls_of(reply: Reply) -> list[tuple[str, str]]:
    return [(c["function"]["name"], c["function"]["arguments"]) for c in reply.tool_calls]


TWO_CALLS = [("read", '{"p":1}'), ("list", '{"d":2}')]


@pytest.mark.parametrize(
    "deltas",
    [
        pytest.param(
            [
                piece('{"p"', index=0, id="a", name="read"),
                piece(":1}", index=0),
                piece('{"d"', index=1, id="b", name="list"),
                piece(":2}", index=1),
            ],
            id="as OpenAI sends them",
        ),
        pytest.param(
            [
                piece('{"p"', index=0, id="a", name="read"),
                piece('{"d"', index=1, id="b", name="list"),
                piece(":1}", index=0, id="", name=""),
                piece(":2}", index=1, id="", name=""),
            ],
            id="interleaved, empty ids and names",
        ),
        pytest.param(
            [
                piece('{"p"', id="a", name="read"),
                piece(":1}", id="", name=""),
                piece('{"d"', id="b", name="list"),
                piece(":2}", id="", name=""),
            ],
            id="no index, empty ids",
        ),
        pytest.param(
            [
                piece('{"p"', id="a", name="read"),
                piece('{"d"', id="b", name="list"),
                piece(":1}", id="a"),
                piece(":2}", id="b"),
            ],
            id="no index, repeated ids",
        ),
        pytest.param(
            [
                piece('{"p":1}', index=0, id="a", name="read"),
                piece('{"d":2}', index=0, id="b", name="list"),
            ],
            id="every call numbered 0",
        ),
    ],
)
def test_pieces_of_calls_find_each_other(ask, deltas):
    reply, _, _ = ask({"deltas": deltas, "finish_reason": "tool_calls"}, stream=True)
    assert calls_of(reply) == TWO_CALLS
    assert [c["id"] for c in reply.tool_calls] == ["a", "b"]


def test_a_call_that_never_gets_an_id_is_given_one(ask):
    deltas = [piece("{}", index=0, id="", name="f"), piece("{}", index=1, id="", name="g")]
    reply, _, _ = ask({"deltas": deltas, "finish_reason": "tool_calls"}, stream=True)
    ids = [call["id"] for call in reply.tool_calls]
    assert all(ids)
    assert len(set(ids)) == 2


def test_calls_of_a_whole_answer_stay_apart_although_all_are_numbered_0(ask):
    calls = [
        {"id": "a", "index": 0, "function": {"name": "read", "arguments": '{"p":1}'}},
        {"id": "b", "index": 0, "function": {"name": "list", "arguments": '{"d":2}'}},
    ]
    reply, _, _ = ask({"tool_calls": calls})
    assert calls_of(reply) == TWO_CALLS


def test_arguments_that_are_no_json_stay_text(ask):
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{broken"}}
    reply, _, _ = ask({"tool_calls": [call]})
    assert calls_of(reply) == [("f", "{broken")]


def test_usage_comes_in_a_last_piece_without_choices(ask):
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    reply, server, _ = ask({"chunks": ["x"], "usage": usage}, stream=True)
    assert reply.usage["total_tokens"] == 4
    assert server.calls[0].body["stream_options"] == {"include_usage": True}


def test_reasoning_is_kept_apart_from_the_text(ask):
    reply, _, _ = ask({"text": "yes", "reasoning": "because"})
    assert (reply.text, reply.reasoning) == ("yes", "because")


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (None, None),
        ({}, None),
        ({"prompt_tokens": 0, "completion_tokens": 0}, None),
        ({"total_tokens": 7}, 7),
        ({"prompt_tokens": 90, "completion_tokens": 10, "total_tokens": 164}, 100),
        ({"prompt_tokens": "many"}, None),
    ],
)
def test_what_the_context_held_is_prompt_and_answer_and_nothing_on_top(usage, tokens):
    assert context_tokens(usage) == tokens


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("stream", [False, True])
def test_what_the_sdk_does_for_a_request_does_not_grow_with_its_messages(use_models, api, stream):
    """It would look for values to convert in each part of each message: a second for 600 items."""
    with ModelServer([{"when": {}, "reply": {"text": "ok"}}]) as server:
        use_models(server.models())
        model = OpenAIModel(all_models()["default"])

        def calls_in_the_sdk(turns: int) -> int:
            asked = [*talk(turns), user("again"), call("f", "c1"), result("c1"), *HELLO]
            deadline = time.monotonic() + 20
            request = ModelRequest(messages=tuple(asked), api=api, stream=stream, deadline=deadline)
            counted: Counter[str] = Counter()

            def note(frame: FrameType, event: str, _: object) -> None:
                if event == "call":
                    counted[Path(frame.f_code.co_filename).parent.name] += 1

            sys.setprofile(note)
            try:
                model.complete(request, ignore_event)
            finally:
                sys.setprofile(None)
            assert len(server.calls[-1].messages) == len(asked)
            return counted["_utils"]

        calls_in_the_sdk(1)
        assert calls_in_the_sdk(60) == calls_in_the_sdk(2)
