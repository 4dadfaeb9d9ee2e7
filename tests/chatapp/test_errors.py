"""What a server's error means (spec/rs_window_augment.md 1.4, spec/model_errors.md 3a, 3b)."""

from __future__ import annotations

import pytest

from chatapp.llm.errors import ErrorKind, ModelError, from_body


def kind_of(message: str, *, status: int | None = 400, code=None, kind=None) -> ErrorKind:
    error = {"message": message, "code": code, "type": kind}
    return from_body({"error": error}, status=status).kind


@pytest.mark.parametrize(
    "message",
    [
        "context_length_exceeded",
        "This model's maximum context length is 128000 tokens",
        "This model's maximum context length is 8192 tokens. However, you requested 9001 tokens",
        "Token limit exceeded",
        "Token limit exceeded: requested 150000, max 128000",
        "maximum context length is 128,000 tokens",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)",
        "Invalid request: Your request exceeded model token limit: 262144",
        "Your input exceeds the context window of this model.",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
        "Input tokens exceed the configured limit of 272000 tokens.",
        "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
        "Please reduce the length of the messages or completion.",
        "The input (40000 tokens) is longer than the model's context length (32768 tokens).",
        "Requested token count exceeds the model's maximum context length of 32768 tokens.",
        "Input length (40000) exceeds the maximum allowed length (32768).",
        "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens",
        "Prompt exceeds maximum allowed input length",
        "This model's maximum prompt length is 131072 but the request contains 150000 tokens.",
        "Input is too long for requested model.",
        "input tokens exceed model maximum",
        "The decoder prompt is too long to fit into the model",
        "max_tokens must be at least 1, got -512.",
        "the request exceeds the available context size, try increasing it",
        "Requested tokens (5000) exceed context window of 4096",
        "prompt too long; exceeded max context length by 42 tokens",
        "the input length exceeds the context length",
        "Cannot truncate prompt with n_keep; the number of tokens to keep from the initial prompt",
        "Reached context length of 4096 tokens when context the overflows",
        "litellm.ContextWindowExceededError: context_length_exceeded",
        "invalid params, context window exceeds limit",
        "the total tokens must be less than max_seq_len",
        "Range of input length should be [1, 30720]",
        "上下文长度超过限制",
        "上下文过长",
    ],
)
def test_a_request_that_is_too_large_is_an_overflow_in_every_servers_words(message):
    assert kind_of(message) is ErrorKind.CONTEXT_OVERFLOW


@pytest.mark.parametrize(
    "code",
    ["context_length_exceeded", "exceed_context_size_error", "model_max_prompt_tokens_exceeded"],
)
def test_the_code_alone_says_overflow_whatever_the_message(code):
    assert kind_of("Something went wrong.", code=code) is ErrorKind.CONTEXT_OVERFLOW
    assert kind_of("", code=None, kind=code) is ErrorKind.CONTEXT_OVERFLOW


@pytest.mark.parametrize("status", [200, 400, 413, 422, 500, None])
def test_overflow_is_found_under_every_status_that_servers_use(status):
    message = "maximum context length is 4096 tokens"
    assert kind_of(message, status=status) is ErrorKind.CONTEXT_OVERFLOW


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (429, "rate_limit_exceeded", "Rate limit exceeded: 30000 tokens per minute"),
        (
            429,
            "rate_limit_exceeded",
            "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 52000. "
            "The input or output tokens must be reduced in order to run successfully.",
        ),
        (
            413,
            "rate_limit_exceeded",
            "Request too large for model on tokens per minute (TPM): Limit 6000, Requested 9000, "
            "please reduce your message size and try again.",
        ),
        (
            429,
            None,
            "This request would exceed your rate limit of 40,000 input tokens per minute. "
            "Please reduce the prompt length or the maximum tokens requested.",
        ),
        (400, None, "Rate limit exceeded: 30000 tokens per minute"),
        (400, "ThrottlingException", "Too many tokens, please wait before trying again."),
        (429, "RESOURCE_EXHAUSTED", "Quota exceeded for metric: input_token_count, limit: 250000"),
        (429, "insufficient_quota", "You exceeded your current quota, please check your plan."),
        (200, "rate_limit_exceeded", "slow down"),
    ],
)
def test_a_rate_limit_is_never_an_overflow_although_it_speaks_of_tokens(status, code, message):
    assert kind_of(message, status=status, code=code) is ErrorKind.RATE_LIMITED


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (401, "invalid_api_key", "Incorrect API key provided."),
        (403, None, "Your account may not use this model."),
        (401, None, "exceeded token"),
    ],
)
def test_a_refused_key_is_told_apart(status, code, message):
    assert kind_of(message, status=status, code=code) is ErrorKind.AUTHENTICATION


@pytest.mark.parametrize("status", [500, 502, 503, 504, 529, 408])
def test_an_outage_is_told_apart(status):
    assert kind_of("<html>Bad Gateway</html>", status=status) is ErrorKind.UNAVAILABLE


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens is too large: 100000. This model supports at most 4096 completion tokens.",
        "messages with role 'tool' must be a response to a preceding message with 'tool_calls'.",
        "No tool output found for function call call_1.",
        "Invalid type for 'messages[0].content'.",
        "The model `gpt-9` does not exist.",
        "You requested up to 65536 tokens, but can only afford 3000: use fewer max_tokens.",
    ],
)
def test_a_request_that_is_wrong_in_another_way_is_only_refused(message):
    assert kind_of(message) is ErrorKind.REJECTED


@pytest.mark.parametrize(
    "body",
    [
        {"error": "maximum context length is 4096 tokens"},
        "maximum context length is 4096 tokens",
        {"object": "error", "message": "maximum context length is 4096 tokens", "code": 400},
        {"message": "maximum context length is 4096 tokens", "code": 400, "type": None},
        [{"error": {"code": 400, "message": "maximum context length is 4096 tokens"}}],
    ],
)
def test_every_shape_of_an_error_body_is_read(body):
    assert from_body(body, status=400).kind is ErrorKind.CONTEXT_OVERFLOW


@pytest.mark.parametrize("body", [None, "", [], {}, {"error": None}, {"error": {}}, 7])
def test_a_body_that_says_nothing_is_a_refusal_with_the_status(body):
    error = from_body(body, status=400, fallback="Error code: 400")
    assert (error.kind, error.status) == (ErrorKind.REJECTED, 400)


@pytest.mark.parametrize("kind", list(ErrorKind))
def test_every_kind_has_a_sentence_for_people(kind):
    assert ModelError(kind).sentence.endswith(".")


def test_an_errors_text_can_be_stored_whatever_a_server_sent():
    assert ModelError(ErrorKind.REJECTED, "a\x00b\ud83d").detail == "a\ufffdb\ufffd"


def test_only_what_may_pass_is_temporary():
    temporary = {kind for kind in ErrorKind if ModelError(kind).is_temporary}
    assert temporary == {ErrorKind.RATE_LIMITED, ErrorKind.UNAVAILABLE, ErrorKind.TIMEOUT}
