"""Limits of a contract, outages and refusals of an account: what waiting helps, and what nothing.

Requests above a limit per minute, rate limits, accounts without credit, and what looks like an
overflow and must not match.
"""

from __future__ import annotations

import pytest

from chatapp.llm.errors import ErrorKind, Reaction, from_body
from tests.chatapp.llm.errors_as_sent import Row, meaning, names

RATE = ErrorKind.RATE_LIMITED
OVER_RATE = ErrorKind.REQUEST_OVER_RATE
QUOTA = ErrorKind.QUOTA
AUTH = ErrorKind.AUTHENTICATION
FILTER = ErrorKind.CONTENT_FILTER
DOWN = ErrorKind.UNAVAILABLE
REJECTED = ErrorKind.REJECTED
GROQ_TPM = (
    "Request too large for model `llama-3.3-70b-versatile` in organization `org_1` service tier "
    "`on_demand` on tokens per minute (TPM): Limit {limit}, Requested {requested}, please reduce "
    "your message size and try again."
)

ONE_REQUEST_OVER_THE_RATE = [
    Row(
        "OpenAI",
        "Request too large for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, "
        "Requested 52000. The input or output tokens must be reduced in order to run successfully.",
        OVER_RATE,
        52000,
        30000,
        status=429,
        code="rate_limit_exceeded",
        type="tokens",
    ),
    Row(
        "Groq",
        GROQ_TPM.format(limit=6000, requested=9000),
        OVER_RATE,
        9000,
        6000,
        status=413,
        code="rate_limit_exceeded",
        type="tokens",
    ),
    Row(
        "Groq",
        GROQ_TPM.format(limit="12,000", requested="31,071"),
        OVER_RATE,
        31071,
        12000,
        status=413,
        code="rate_limit_exceeded",
    ),
]

RATES = [
    Row(
        "Groq that fits",
        GROQ_TPM.format(limit=6000, requested=5000),
        RATE,
        status=413,
        code="rate_limit_exceeded",
    ),
    Row(
        "Groq, exactly the limit",
        GROQ_TPM.format(limit=6000, requested=6000),
        RATE,
        status=413,
        code="rate_limit_exceeded",
    ),
    Row(
        "OpenAI",
        "Rate limit reached for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, "
        "Used 29000, Requested 2000. Please try again in 2s.",
        RATE,
        status=429,
        code="rate_limit_exceeded",
    ),
    Row(
        "OpenAI requests",
        "Rate limit reached for gpt-4o on requests per min (RPM): Limit 3, Used 3, Requested 1. "
        "Please try again in 20s.",
        RATE,
        status=429,
        code="rate_limit_exceeded",
    ),
    Row(
        "Groq TPM without numbers",
        "Request too large on tokens per minute (TPM), please reduce your message size.",
        RATE,
        status=413,
        code="rate_limit_exceeded",
    ),
    Row(
        "Anthropic",
        "This request would exceed your organization's rate limit of 40,000 input tokens per "
        "minute. Please reduce the prompt length or the maximum tokens requested, or try again "
        "later.",
        RATE,
        status=429,
        type="rate_limit_error",
    ),
    Row(
        "Bedrock",
        "Too many tokens, please wait before trying again.",
        RATE,
        status=429,
        type="ThrottlingException",
    ),
    Row("Bedrock under 400", "Too many tokens, please wait before trying again.", RATE),
    Row("Bedrock as text", "Throttling error: Too many tokens, please wait.", RATE, status=None),
    Row(
        "Gemini",
        "Quota exceeded for metric: input_token_count, limit: 250000, model: gemini-2.5-pro",
        RATE,
        status=429,
        type="RESOURCE_EXHAUSTED",
    ),
    Row(
        "Gemini speaks of billing",
        "You exceeded your current quota, please check your plan and billing details.",
        RATE,
        status=429,
        type="RESOURCE_EXHAUSTED",
    ),
    Row("Groq TPD", "Rate limit reached on tokens per day (TPD): Limit 100000, Used 99907, "
        "Requested 3000. Please try again in 41m51s.", RATE, status=429),
    Row("C3", "rate limit exceeded", RATE),
    Row("C3", "429 Too Many Requests: request exceeds rate limit", RATE, status=None),
    Row(
        "C3",
        "request reached organization TPD rate limit, current: 1506556, limit: 1500000",
        RATE,
    ),
    Row("C3", "Too many tokens per day", RATE),
    Row("C1", "too many requests", RATE),
    Row("any", "Daily token limit exceeded.", RATE),
    Row("Chinese proxy", "请求过于频繁，输入超过限制", RATE),
    Row("1.4", "rate_limit_exceeded", RATE),
    Row("1.4", "Rate limit exceeded: 30000 tokens per minute", RATE),
    Row("inside a stream", "slow down", RATE, status=200, code="rate_limit_exceeded"),
    Row("inside a stream", "Provider returned error", RATE, status=200, code=429),
    Row("never 429", "prompt is too long: 213462 tokens > 200000 maximum", RATE, status=429),
]  # fmt: skip

OUTAGES = [
    Row("Anthropic", "Overloaded", DOWN, status=529, type="overloaded_error"),
    Row("Anthropic in a stream", "Overloaded", DOWN, status=200, type="overloaded_error"),
    Row("OpenAI in a stream", "The server had an error", DOWN, status=200, type="server_error"),
    Row("C1", "Service unavailable: too many tokens in flight", DOWN, status=None),
    Row("a proxy", "<html><title>502 Bad Gateway</title></html>", DOWN, status=502),
    Row("inside a stream", "Upstream failed", DOWN, status=200, code=502),
]

REPORTED = [
    Row(
        "OpenRouter",
        "This request requires more credits, or fewer max_tokens. You requested up to 65536 "
        "tokens, but can only afford 3000.",
        QUOTA,
        status=402,
        code=402,
    ),
    Row("under 400", "You requested up to 65536 tokens, but can only afford 3000.", QUOTA),
    Row("C3", "402 Payment Required: request token limit exceeded", QUOTA, status=None),
    Row("C4", "402 request token limit exceeded", QUOTA, status=None),
    Row(
        "OpenAI",
        "You exceeded your current quota, please check your plan and billing details.",
        QUOTA,
        status=429,
        code="insufficient_quota",
        type="insufficient_quota",
    ),
    Row(
        "without a code",
        "You exceeded your current quota, please check your plan and billing details.",
        QUOTA,
        status=429,
    ),
    Row(
        "Anthropic",
        "Your credit balance is too low to access the Anthropic API.",
        QUOTA,
        type="invalid_request_error",
    ),
    Row("DeepSeek", "Insufficient Balance", QUOTA, status=402),
    Row("any", "You have exceeded your token quota.", QUOTA),
    Row("any", "Monthly token limit exceeded.", QUOTA),
    Row("Chinese proxy", "用户额度不足，上下文超", QUOTA),
    Row("OpenAI", "Incorrect API key provided: sk-1.", AUTH, status=401, code="invalid_api_key"),
    Row("under 400", "API key not valid.", AUTH, code="invalid_api_key"),
    Row("any", "Your account may not use this model.", AUTH, status=403),
    Row("any", "exceeded token", AUTH, status=401),
    Row(
        "Azure",
        "The response was filtered due to the prompt triggering Azure OpenAI's content management "
        "policy.",
        FILTER,
        code="content_filter",
        param="prompt",
    ),
    Row("OpenRouter", "Your chosen model requires moderation and your input was flagged", FILTER,
        status=403),
    Row("DashScope", "Input data may contain inappropriate content.", FILTER,
        code="data_inspection_failed"),
    Row("C3", "Model context window too small (minimum is 128k tokens)", REJECTED),
    Row("C3", "Reasoning is mandatory for this endpoint; the context limit was exceeded", REJECTED),
    Row("C3", "Let's investigate the context overflow bug", REJECTED),
    Row(
        "Vertex cache",
        "The cached content is of 1000 tokens. The minimum token count to start caching is 4096.",
        REJECTED,
        type="INVALID_ARGUMENT",
    ),
    Row("OpenAI", "The model `gpt-9` does not exist.", REJECTED, status=404),
    Row("OpenAI", "Invalid type for 'messages[0].content'.", REJECTED),
    Row("OpenAI tools", "The number of tools exceeds the limit of 128", REJECTED),
    Row("any", "temperature exceeds maximum allowed value", REJECTED),
    Row("any", "schema is too long", REJECTED),
    Row("any", "Current token count exceeds your organization quota", QUOTA),
    Row("any", "Your access token has exceeded its lifetime", REJECTED),
    Row("any", "Session token is too long", REJECTED),
    Row("any", "JWT token exceeds maximum allowed length", REJECTED),
    Row("any", "The token has exceeded its lifetime", REJECTED),
    Row("any", "token validation failed: token exceeds max age", REJECTED),
    Row("any", "The license token exceeded its limit of 3 machines", REJECTED),
    Row("any", "Refresh token limit exceeded", REJECTED),
    Row(
        "any", "The model `x` does not exist. Maximum context length unknown", REJECTED, status=404,
        code="model_not_found",
    ),
    Row("Anthropic", "`max_tokens` must be greater than `thinking.budget_tokens`.", REJECTED),
]  # fmt: skip

ALL = [
    (ONE_REQUEST_OVER_THE_RATE, Reaction.RECOVERY),
    (RATES, Reaction.WAIT),
    (OUTAGES, Reaction.WAIT),
    (REPORTED, None),
]


@pytest.mark.parametrize(
    ("row", "reaction"),
    [pytest.param(row, reaction, id=names(row)) for rows, reaction in ALL for row in rows],
)
def test_what_only_looks_like_an_overflow_has_a_kind_and_a_reaction_of_its_own(row, reaction):
    error = row.error()
    assert meaning(error) == (row.kind, row.observed, row.allowed)
    # A refusal of unknown meaning may be about the form of what was said.
    unknown = Reaction.ADAPT if row.kind is ErrorKind.REJECTED else Reaction.REPORT
    assert error.reaction is (reaction or unknown)


@pytest.mark.parametrize("status", [500, 502, 503, 504, 529, 408])
def test_an_outage_is_told_apart(status):
    assert from_body("<html>Something</html>", status=status).kind is DOWN
