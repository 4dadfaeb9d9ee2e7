"""Errors as the SDK raises them: bodies that a server on loopback sends, streamed and not."""

from __future__ import annotations

import json
import time
from email.utils import formatdate

import pytest

from chatapp.llm import openai_client
from chatapp.llm.errors import ErrorKind, ModelError
from chatapp.llm.openai_client import OpenAIModel
from chatapp.llm.registry import all_models
from chatapp.llm.requests import ModelRequest, Reply
from tests.fakes.model_server import ModelServer

LLAMA = {
    "error": {
        "code": 400,
        "message": "request (8123 tokens) exceeds the available context size (8000 tokens)",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 8123,
        "n_ctx": 8000,
    }
}
VLLM = {
    "object": "error",
    "message": "This model's maximum context length is 8192 tokens. However, you requested 9216 "
    "tokens (5120 in the messages, 4096 in the completion).",
    "type": "BadRequestError",
    "param": None,
    "code": 400,
}
ANTHROPIC = {
    "type": "error",
    "error": {
        "type": "invalid_request_error",
        "message": "prompt is too long: 213462 tokens > 200000 maximum",
    },
}
LM_STUDIO = {
    "error": "Trying to keep the first 5000 tokens when context the overflows. However, the model "
    "is loaded with context length of only 4096 tokens, which is not enough."
}
GEMINI = [
    {
        "error": {
            "code": 400,
            "message": "The input token count (1200000) exceeds the maximum number of tokens "
            "allowed (1048576).",
            "status": "INVALID_ARGUMENT",
        }
    }
]
TGI = {
    "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: "
    "4000 `inputs` tokens and 512 `max_new_tokens`",
    "error_type": "validation",
}
GROQ = {
    "error": {
        "message": "Request too large for model on tokens per minute (TPM): Limit 6000, Requested "
        "9000, please reduce your message size and try again.",
        "type": "tokens",
        "code": "rate_limit_exceeded",
    }
}
OUTPUT = {
    "error": {
        "message": "max_tokens is too large: 100000. This model supports at most 4096 completion "
        "tokens, whereas you provided 100000.",
        "type": "invalid_request_error",
        "param": "max_tokens",
        "code": "invalid_value",
    }
}
LONG = {
    "error": {
        "message": "Invalid 'messages[3].content': string too long. Expected a string with maximum "
        "length 1048576, but got a string with length 2000000 instead.",
        "type": "invalid_request_error",
        "param": "messages[3].content",
        "code": "string_above_max_length",
    }
}
QUOTING = {
    "detail": [
        {
            "type": "missing",
            "loc": ["body", "messages", 0, "role"],
            "msg": "Field required",
            "input": {"content": "prompt is too long: 213462 tokens > 200000 maximum"},
        }
    ]
}
NGINX = "<html><head><title>413 Request Entity Too Large</title></head></html>"
OVERFLOW = ErrorKind.CONTEXT_OVERFLOW


def as_error(body, *, status: int = 400, **headers: str) -> dict:
    return {"error": {"status": status, "body": body, "headers": headers}}


@pytest.fixture
def ask(use_models, monkeypatch):
    """ask(reply, …, stream=True) plays the replies in order; returns (outcome, number of calls)."""
    monkeypatch.setattr(openai_client, "FIRST_WAIT_SECONDS", 0.01)

    def run(*replies: dict, stream: bool = False, seconds: float | None = 20, **model):
        script = [
            {"when": {"call": number}, "reply": reply} for number, reply in enumerate(replies, 1)
        ]
        with ModelServer(script) as server:
            use_models(server.models(**model))
            request = ModelRequest(
                messages=({"role": "user", "content": "hello"},),
                stream=stream,
                deadline=None if seconds is None else time.monotonic() + seconds,
            )
            outcome: Reply | ModelError
            try:
                outcome = OpenAIModel(all_models()["default"]).complete(request)
            except ModelError as error:
                outcome = error
            return outcome, len(server.calls)

    return run


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("status", "body", "kind", "observed", "allowed"),
    [
        pytest.param(400, LLAMA, OVERFLOW, 8123, 8000, id="llama.cpp"),
        pytest.param(500, LLAMA, OVERFLOW, 8123, 8000, id="llama.cpp, before"),
        pytest.param(400, VLLM, OVERFLOW, 9216, 8192, id="vLLM"),
        pytest.param(400, ANTHROPIC, OVERFLOW, 213462, 200000, id="Anthropic"),
        pytest.param(400, LM_STUDIO, OVERFLOW, 5000, 4096, id="LM Studio"),
        pytest.param(400, GEMINI, OVERFLOW, 1200000, 1048576, id="Gemini"),
        pytest.param(422, TGI, OVERFLOW, 4512, 4096, id="TGI"),
        pytest.param(400, None, OVERFLOW, None, None, id="Cerebras, 400"),
        pytest.param(413, None, OVERFLOW, None, None, id="Cerebras, 413"),
        pytest.param(400, "null", ErrorKind.REJECTED, None, None, id="null"),
        pytest.param(413, GROQ, ErrorKind.REQUEST_OVER_RATE, 9000, 6000, id="Groq"),
        pytest.param(400, OUTPUT, ErrorKind.OUTPUT_LIMIT, 100000, 4096, id="output"),
        pytest.param(400, LONG, ErrorKind.MESSAGE_TOO_LONG, 2000000, 1048576, id="one message"),
        pytest.param(413, NGINX, ErrorKind.BODY_TOO_LARGE, None, None, id="nginx"),
        pytest.param(422, QUOTING, ErrorKind.REJECTED, None, None, id="quotes the request"),
    ],
)
def test_a_refusal_keeps_its_meaning_and_numbers_and_is_not_repeated(
    ask, stream, status, body, kind, observed, allowed
):
    error, calls = ask(as_error(body, status=status), stream=stream)
    assert (error.kind, error.observed, error.allowed) == (kind, observed, allowed)
    assert (error.status, calls) == (status, 1)


def test_the_index_of_a_message_arrives(ask):
    assert ask(as_error(LONG))[0].message_index == 3


def test_what_a_refusal_quotes_is_not_told(ask):
    assert "213462" not in str(ask(as_error(QUOTING, status=422))[0])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("body", [LLAMA, LM_STUDIO, ANTHROPIC])
def test_an_error_under_status_200_is_read(ask, stream, body):
    error, calls = ask({"raw": body}, stream=stream)
    assert (error.kind, calls) == (OVERFLOW, 1)


@pytest.mark.parametrize(
    ("sent", "kind", "allowed"),
    [
        (LM_STUDIO["error"], OVERFLOW, 4096),
        (LLAMA["error"], OVERFLOW, 8000),
        ({"code": "context_length_exceeded", "message": ""}, OVERFLOW, None),
        ({"code": "insufficient_quota", "message": "Nothing left."}, ErrorKind.QUOTA, None),
        ({"code": "content_filter", "message": "Filtered."}, ErrorKind.CONTENT_FILTER, None),
        ({"type": "overloaded_error", "message": "Overloaded"}, ErrorKind.UNAVAILABLE, None),
        ({"code": 429, "message": "Provider returned error"}, ErrorKind.RATE_LIMITED, None),
    ],
)
def test_an_error_inside_a_stream_is_read(ask, sent, kind, allowed):
    reply = {"chunks": ["part ", "two"], "fail_after": 1, "stream_error": sent}
    error, calls = ask(reply, stream=True)
    assert (error.kind, error.allowed, error.partial.text, calls) == (kind, allowed, "part ", 1)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "reply",
    [
        {"text": "", "finish_reason": "length", "usage": {"prompt_tokens": 7_960}},
        {"text": "", "finish_reason": "model_context_window_exceeded"},
        {"text": "", "finish_reason": "model_length", "usage": {"prompt_tokens": 10}},
    ],
)
def test_an_answer_of_nothing_that_hides_an_overflow_is_one(ask, stream, reply):
    error, calls = ask(reply, stream=stream, CONTEXT_WINDOW=8_000)
    assert (error.kind, calls) == (OVERFLOW, 1)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_was_cut_is_kept(ask, stream):
    cut = {"text": "part", "finish_reason": "length", "usage": {"prompt_tokens": 7_999}}
    reply, _ = ask(cut, stream=stream, CONTEXT_WINDOW=8_000)
    assert (reply.text, reply.finish_reason) == ("part", "length")


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(as_error({"error": {"message": "Rate limit"}}, status=429), id="rate"),
        pytest.param(as_error({"error": {"type": "overloaded_error"}}, status=529), id="overload"),
        pytest.param(as_error("<html>Bad Gateway</html>", status=502), id="gateway"),
        pytest.param({"raw": {"error": {"code": 503, "message": "x"}}}, id="under status 200"),
    ],
)
def test_what_may_pass_is_waited_for(ask, failure):
    reply, calls = ask(failure, failure, {"text": "at last"})
    assert (reply.text, calls) == ("at last", 3)


@pytest.mark.parametrize(
    "failure",
    [
        as_error({"error": {"code": "insufficient_quota"}}, status=429),
        as_error({"error": {"message": "Insufficient Balance"}}, status=402),
        as_error({"error": {"message": "no"}}, status=403),
        as_error({"error": {"code": "content_filter"}}),
        as_error(GROQ, status=413),
        as_error(GROQ, status=429),
    ],
)
def test_what_waiting_cannot_help_is_not_waited_for(ask, failure):
    assert ask(failure, {"text": "never"})[1] == 1


@pytest.mark.parametrize(
    "failure",
    [
        as_error({"error": {"message": "slow"}}, status=429, **{"Retry-After": "0.2"}),
        as_error({"error": {"message": "slow"}}, status=429, **{"retry-after-ms": "200"}),
        as_error({"error": {"message": "Try again in 200ms."}}, status=429),
    ],
)
def test_a_server_is_never_asked_earlier_than_it_says(ask, failure):
    started = time.monotonic()
    reply, _ = ask(failure, {"text": "at last"})
    assert reply.text == "at last"
    assert time.monotonic() - started >= 0.2


def test_a_date_to_come_back_at_is_understood(ask):
    header = formatdate(time.time() + 500, usegmt=True)
    failure = as_error({"error": {"message": "slow"}}, status=429, **{"Retry-After": header})
    error, calls = ask(failure, {"text": "never"}, seconds=5)
    assert calls == 1
    assert 490 < error.retry_after <= 500


@pytest.mark.parametrize("value", ["soon", "nan", "inf", ""])
def test_a_wait_that_cannot_be_read_is_ours_to_choose(ask, value):
    failure = as_error({"error": {"message": "slow"}}, status=429, **{"Retry-After": value})
    reply, calls = ask(failure, {"text": "at last"})
    assert (reply.text, calls) == ("at last", 2)


def test_without_a_deadline_a_long_wait_is_told_and_not_begun(ask):
    failure = as_error({"error": {"message": "slow"}}, status=429, **{"Retry-After": "61"})
    started = time.monotonic()
    error, calls = ask(failure, {"text": "never"}, seconds=None)
    assert (error.kind, error.retry_after, calls) == (ErrorKind.RATE_LIMITED, 61.0, 1)
    assert time.monotonic() - started < 10


def test_waits_grow_and_differ(monkeypatch):
    monkeypatch.setattr(openai_client, "FIRST_WAIT_SECONDS", 0.5)
    error = ModelError(ErrorKind.UNAVAILABLE)
    for attempt, longest in ((1, 0.5), (2, 1.0), (3, 2.0), (9, 20.0)):
        waits = [openai_client._wait_before(attempt, error) for _ in range(50)]
        assert longest / 2 <= min(waits) < max(waits) <= longest


def test_a_body_whose_json_is_cut_off_is_read_as_text(ask):
    error, _ = ask(as_error(json.dumps(VLLM)[:-1]))
    assert (error.kind, error.allowed) == (OVERFLOW, 8192)
