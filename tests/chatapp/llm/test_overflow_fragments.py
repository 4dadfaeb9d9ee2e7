"""Too large in the words that other classifiers know, and under statuses and without words.

Words that test_overflow_servers.py does not have: those that other programs look for,
and variants of the overflow cases.
"""

from __future__ import annotations

import pytest

from chatapp.llm.errors import ErrorKind, Reaction, from_body
from tests.chatapp.llm.errors_as_sent import Row, meaning, names

OVERFLOW = ErrorKind.CONTEXT_OVERFLOW

FRAGMENTS = [
    Row("LiteLLM", "exceeds the model's maximum context length of 32,768 tokens", allowed=32768),
    Row("LiteLLM", "exceeds maximum context length (32768)", allowed=32768),
    Row("LM Studio", "greater than the context length"),
    Row("Mistral", "too large for model with 32768 maximum context length", allowed=32768),
    Row("z.ai", "model_context_window_exceeded"),
    Row("Ollama", "prompt too long; exceeded context length"),
    Row(
        "vLLM",
        "requested 1000 output tokens; prompt contains at least 7500 input tokens, for a total of "
        "at least 8500 tokens: maximum context length is 8192",
        OVERFLOW,
        8500,
        8192,
    ),
    Row("generic", "context length exceeded"),
    Row("generic", "too many tokens"),
    Row("generic", "token limit exceeded"),
    Row("OpenClaw", "request exceeds model context window"),
    Row("OpenClaw", "Request size exceeds model context window"),
    Row("OpenClaw", "request size exceeds the context length"),
    Row("OpenClaw", "model token limit exceeded"),
    Row("OpenClaw", "Context overflow: prompt too large for the model"),
    Row("Vertex", "invalid_argument: the maximum number of tokens is 32000", allowed=32000),
    Row("Vertex", "The input exceeds the maximum number of tokens"),
    Row("OpenClaw", "exceed context limit"),
    Row("OpenClaw", "exceeds the model's maximum context"),
    Row("OpenClaw", "max_tokens would exceed the context"),
    Row("OpenClaw", "the input length would exceed the context"),
    Row("OpenClaw", "context_window_exceeded"),
    Row("Cohere", "total tokens exceeds the model's maximum limit of 128000", allowed=128000),
    Row("Bedrock", "input is too long for the model"),
    Row("OpenClaw", "Context window exceeded: too many tokens per request."),
    Row("OpenClaw", "Context window exceeded: requested 12000 tokens", OVERFLOW, 12000),
    Row("Cerebras", "400 status code (no body)", status=None),
    Row("Cerebras", "413 (no body)", status=None),
    Row("code only", "Something went wrong.", code="context_length_exceeded"),
    Row("type only", "", type="exceed_context_size_error"),
    Row("newer LM Studio", "Context size has been exceeded."),
    Row(
        "newer vLLM",
        "You passed 32769 input tokens and requested 10 output tokens. However, the model's "
        "context length is only 32768 tokens.",
        OVERFLOW,
        32779,
        32768,
    ),
    Row(
        "vLLM engine",
        "The engine prompt length 40000 exceeds the max_model_len 32768.",
        OVERFLOW,
        40000,
        32768,
    ),
    Row(
        "Vertex",
        "The input token count is 1049000 but model only supports up to 1048576.",
        OVERFLOW,
        1049000,
        1048576,
    ),
    Row("TGI", "`inputs` must have less than 4095 tokens. Given: 5000", OVERFLOW, 5000, 4095),
    Row("llama.cpp's library", "n_tokens (5000) > n_ctx (4096)", OVERFLOW, 5000, 4096),
    Row("Chinese proxy", "当前输入token数量超过模型最大长度限制"),
    Row("any", "message is too long for the model"),
    Row("Cohere", "too many tokens: total number of tokens in the prompt cannot exceed 4081 - "
        "received 5000.", OVERFLOW, 5000, 4081),
]  # fmt: skip

REFERENCE = [  # what a plain search for words gets wrong, with the right answers
    Row("1.4", "context_length_exceeded"),
    Row("1.4", "This model's maximum context length is 128000 tokens", allowed=128000),
    Row(
        "1.4",
        "maximum context length is 8192 tokens. However, you requested 9001 tokens",
        OVERFLOW,
        9001,
        8192,
    ),
    Row("1.4", '{"error":{"message":"Token limit exceeded"}}'),
    Row("1.4", "Token limit exceeded: requested 150000, max 128000", OVERFLOW, 150000, 128000),
    Row("1.4", "maximum context length is 128,000 tokens", allowed=128000),
    Row("1.4", "Another text altogether.", code="context_length_exceeded"),
    Row("1.4", "prompt is too long: 210000 tokens > 200000 maximum", OVERFLOW, 210000, 200000),
    Row(
        "1.4",
        "input token count (1200000) exceeds the maximum number of tokens",
        OVERFLOW,
        1200000,
    ),
    Row("1.4", "Your request exceeded model token limit: 262144", allowed=262144),
]

VARIANTS = [  # of the case in which a server's words are not recognised
    Row(
        "B24",
        "maximum context length is 8000 tokens",
        allowed=8000,
        code="context_length_exceeded",
    ),
    Row(
        "B24",
        "maximum context length is 8000 tokens; requested 0 output tokens and the prompt contains "
        "at least 8001 input tokens",
        OVERFLOW,
        8001,
        8000,
    ),
    Row(
        "B24",
        "request (8123 tokens) exceeds the available context size (8000 tokens)",
        OVERFLOW,
        8123,
        8000,
        type="exceed_context_size_error",
    ),
    Row("B24", "ContextWindowExceededError: Context Window exceeded for given call"),
    Row("B24", "prompt is too long: 8123 tokens > 8000 maximum", OVERFLOW, 8123, 8000),
    Row("B24", "Input is too long for requested model"),
    Row(
        "B24",
        "input token count (8123) exceeds the maximum number of tokens allowed (8000)",
        OVERFLOW,
        8123,
        8000,
    ),
    Row("B24", "Your input exceeds the context window of this model"),
    Row("B24", "tokens to keep from the initial prompt is greater than the context length"),
    Row("B33", "input length and max_tokens exceed context limit"),
]


@pytest.mark.parametrize("row", [*FRAGMENTS, *REFERENCE, *VARIANTS], ids=names)
def test_a_request_that_is_too_large_is_an_overflow_in_every_servers_words(row):
    error = row.error()
    assert meaning(error) == (row.kind, row.observed, row.allowed)
    assert error.reaction is Reaction.RECOVERY


@pytest.mark.parametrize("status", [200, 400, 413, 422, 500, None])
def test_overflow_is_found_under_every_status_that_servers_use(status):
    row = Row("any", "maximum context length is 4096 tokens", status=status)
    assert meaning(row.error()) == (OVERFLOW, None, 4096)


@pytest.mark.parametrize("status", [400, 413])
@pytest.mark.parametrize("body", [None, "", " \n"])
def test_a_refusal_without_any_body_is_an_overflow(status, body):
    assert from_body(body, status=status, fallback=f"HTTP {status}").kind is OVERFLOW


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, ErrorKind.AUTHENTICATION),
        (404, ErrorKind.REJECTED),
        (429, ErrorKind.RATE_LIMITED),
        (500, ErrorKind.UNAVAILABLE),
        (200, ErrorKind.REJECTED),
    ],
)
def test_no_other_status_without_a_body_is_one(status, kind):
    assert from_body("", status=status).kind is kind
