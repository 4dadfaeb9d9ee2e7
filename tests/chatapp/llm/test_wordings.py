"""Single wordings: each alone, so that none hides behind another."""

from __future__ import annotations

import pytest

from chatapp.llm.errors import ErrorKind, from_body
from tests.chatapp.llm.errors_as_sent import Row, meaning, names

OVERFLOW = ErrorKind.CONTEXT_OVERFLOW
RATE = ErrorKind.RATE_LIMITED
OVER_RATE = ErrorKind.REQUEST_OVER_RATE
QUOTA = ErrorKind.QUOTA
FILTER = ErrorKind.CONTENT_FILTER
DOWN = ErrorKind.UNAVAILABLE
REJECTED = ErrorKind.REJECTED

# Fragments of servers' words, and of those that other programs look for.
FRAGMENTS = [
    "maximum context length is",
    "exceed the configured limit of tokens",
    "exceeds the context window",
    "prompt is too long",
    "exceed context limit",
    "input token count exceeds the maximum",
    "prompt too large for model with",
    "reduce the length of the messages",
    "longer than the model's context length",
    "exceeds the model's maximum context length of",
    "input exceeds the maximum allowed length",
    "inputs tokens + max_new_tokens must be",
    "maximum allowed input length",
    "maximum prompt length is",
    "Input is too long",
    "prompt tokens exceed model maximum",
    "prompt is too long to fit into the model",
    "max_tokens must be at least 1, got -1",
    "max_tokens must be at least 1, got 0.",
    "exceeds the available context size",
    "exceed context window of",
    "exceeded max context length",
    "input length exceeds the context length",
    "tokens to keep from the initial prompt",
    "when context the overflows",
    "exceeded model token limit",
    "context window exceeds limit",
    "must be less than max_seq_len",
    "Range of input length should be",
    "exceeds the limit of 128000",
    "Context overflow: see the log",
    "the total cannot exceed 4081 tokens: tokens in the prompt cannot exceed 4081",
    "input length is too large",
    "prompt_too_long",
]

CODES = {
    OVERFLOW: ["context_exceeded", "context_window_limit_exceeded"],
    RATE: ["rate_limit_error", "ThrottlingException", "too_many_requests", "RESOURCE_EXHAUSTED"],
    QUOTA: ["insufficient_balance", "billing_hard_limit_reached", "payment_required"],
    FILTER: [
        "content_filter",
        "content_policy_violation",
        "ResponsibleAIPolicyViolation",
        "data_inspection_failed",
        "prohibited_content",
        "moderation_blocked",
    ],
    ErrorKind.AUTHENTICATION: ["authentication_error", "permission_denied", "invalid_api_key"],
    ErrorKind.STATE_LOST: ["invalid_encrypted_content", "previous_response_not_found"],
    ErrorKind.TOO_MANY_MESSAGES: ["array_above_max_length", "too_many_messages"],
    ErrorKind.MESSAGE_TOO_LONG: ["string_above_max_length"],
    ErrorKind.BODY_TOO_LARGE: ["payload_too_large", "body_too_large", "request_entity_too_large"],
}
WORDINGS = {
    OVERFLOW: FRAGMENTS,
    RATE: [
        "TPM reached",
        "Throttled.",
        "Slow down!",
        "resource exhausted? resource_exhausted",
        "40 requests per minute",
        "频率限制，上下文超",
        "超过速率限制，上下文超",
        "并发超限，上下文超",
        "限流，上下文超",
    ],
    QUOTA: [
        "Insufficient credits",
        "Payment required",
        "Check your billing",
        "Quota has been exceeded",
        "Usage limit reached",
        "You exceeded your current quota",
        "余额不足，上下文超",
        "欠费，上下文超",
        "配额不足，上下文超",
        "Your credit balance is low",
    ],
    FILTER: [
        "Against our content policy",
        "The content filter",
        "It has inappropriate content",
        "Your input was flagged",
        "This model requires moderation",
    ],
    ErrorKind.STATE_LOST: [
        "The encrypted content could not be verified",
        "previous_response_id is not supported",
        "unknown field previous_response_id",
        "unrecognized: previous_response_id",
        "unexpected previous_response_id",
        "invalid previous_response_id",
        "previous_response_id: not permitted",
        "previous_response_id is unavailable",
        "this server does not support previous_response_id",
    ],
    ErrorKind.BROKEN_PAIRS: [
        "tool_call_id call_1 not found",
        "tool_call_ids without results",
        "tool_use ids were found without tool_result blocks",
        "tool_calls must be followed by tool messages",
        "insufficient tool messages",
        "Unexpected role 'tool' after role 'user'",
        "Unexpected tool call id x",
        "function call turn comes immediately after a user turn",
        "Not the same number of function calls and responses",
        "Expected toolResult blocks at messages.2",
    ],
    ErrorKind.PARTS_REFUSED: [
        "input_text is not supported",
        "invalid type input_text",
        "Unknown part type: x",
        "content type x is not supported",
        "messages[0].content must be a string",
        "messages[0].content: invalid type: sequence",
    ],
    ErrorKind.OUTPUT_LIMIT: [
        "It writes at most 4096 output tokens",
        "max_tokens: too high",
        "the maximum allowed number of output tokens",
        "Range of max_tokens",
    ],
    ErrorKind.TOO_MANY_MESSAGES: ["Too many messages", "Array too long"],
    ErrorKind.MESSAGE_TOO_LONG: ["String too long"],
    ErrorKind.BODY_TOO_LARGE: [
        "Request body too large",
        "Exceeds the maximum number of bytes",
        "It exceeds upload limit",
    ],
}


@pytest.mark.parametrize(
    ("kind", "code"), [(kind, code) for kind, codes in CODES.items() for code in codes]
)
def test_every_code_is_enough_by_itself(kind, code):
    assert from_body({"error": {"message": "", "code": code}}, status=400).kind is kind


@pytest.mark.parametrize(
    ("kind", "message"), [(kind, text) for kind, texts in WORDINGS.items() for text in texts]
)
def test_every_wording_is_enough_by_itself(kind, message):
    assert from_body({"error": {"message": message}}, status=400).kind is kind


@pytest.mark.parametrize(
    ("kind", "message", "name"),
    [
        (DOWN, "", "overloaded_error"),
        (DOWN, "", "service_unavailable_error"),
        (DOWN, "", "server_error"),
        (DOWN, "", "internal_error"),
        (DOWN, "", "api_error"),
        (DOWN, "We are overloaded", None),
        (DOWN, "The service is unavailable", None),
        (DOWN, "The model is temporarily unavailable", None),
        (DOWN, "Bad gateway", None),
        (DOWN, "Internal server error", None),
        (DOWN, "upstream connect error", None),
        (ErrorKind.TIMEOUT, "", "timeout_error"),
    ],
)
def test_an_outage_that_is_told_inside_an_answer_is_one(kind, message, name):
    body = {"error": {"message": message, "type": name}}
    assert from_body(body, status=200).kind is kind


STRUCTURE_FIRST = [
    Row("code", "Requests per minute: 3", OVERFLOW, code="context_length_exceeded"),
    Row("code", "Too many tokens", FILTER, code="content_filter"),
    Row("status", "maximum context length is 4096 tokens", ErrorKind.AUTHENTICATION, status=401),
    Row("status", "maximum context length is 4096 tokens", QUOTA, status=402),
]

EXCLUDED = [
    Row(
        "pi",
        "Model context window too small: it must be greater than 16000 tokens",
        REJECTED,
    ),
    Row("pi", "The context window must be larger than the minimum of 16000 tokens", REJECTED),
    Row(
        "Vertex",
        "Cache too small: minimum token count is 4096, more than the 1000 tokens given",
        REJECTED,
    ),
    Row(
        "daily",
        "Tokens per day: Limit 1000, Requested 2000",
        OVER_RATE,
        2000,
        1000,
        status=429,
    ),
    Row("TPM", "TPM: Limit 1000, Requested 2000", OVER_RATE, 2000, 1000, status=413),
    Row("requests", "Requests per min: Limit 3, Requested 4", RATE, status=429),
    Row("no access", "Tokens per min: Limit 0, Requested 4", RATE, status=429),
]


@pytest.mark.parametrize("row", [*STRUCTURE_FIRST, *EXCLUDED], ids=names)
def test_structure_and_exclusions_come_before_the_text(row):
    assert meaning(row.error()) == (row.kind, row.observed, row.allowed)


@pytest.mark.parametrize(
    ("kind", "message", "observed", "allowed"),
    [
        (OVERFLOW, "Input is too long. Max length is 8000 tokens.", None, 8000),
        (OVERFLOW, "exceeded the model token limit of 8000", None, 8000),
        (OVERFLOW, "context window exceeded (9000 input tokens > 8000)", 9000, 8000),
        (OVERFLOW, "the prompt is too large: 9000 tokens", 9000, None),
        (OVERFLOW, "prompt too long: a total of 9000 tokens", 9000, None),
        (OVERFLOW, "maximum context length is 8000, the prompt has 9000 tokens", 9000, 8000),
        (ErrorKind.OUTPUT_LIMIT, "max_tokens is too large: 9000", 9000, None),
        (ErrorKind.OUTPUT_LIMIT, "max_tokens must be 4096 at the maximum of 4096", None, 4096),
        (ErrorKind.TOO_MANY_MESSAGES, "Too many messages: got 90, at most 50", 90, 50),
        (ErrorKind.TOO_MANY_MESSAGES, "Too many messages: it has 90, limit of 50", 90, 50),
        (ErrorKind.BODY_TOO_LARGE, "Request body too large: got 9 MB", 9_000_000, None),
        (ErrorKind.BODY_TOO_LARGE, "Payload too large, limit: 2 MiB", None, 2_097_152),
    ],
)
def test_numbers_are_found_in_other_orders_of_words(kind, message, observed, allowed):
    error = from_body(message, status=400)
    assert meaning(error) == (kind, observed, allowed)
