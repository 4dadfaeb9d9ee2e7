"""Requests that are refused for another reason than their tokens, each with a cure of its own.

Answers that are too long, too many messages, a text or a body that is too long, broken tool pairs,
lost state.
"""

from __future__ import annotations

import pytest

from chatapp.llm.errors import ErrorKind, Reaction, from_body
from tests.chatapp.llm.errors_as_sent import Row, meaning, names

OUTPUT = ErrorKind.OUTPUT_LIMIT
BODY = ErrorKind.BODY_TOO_LARGE
LONG = ErrorKind.MESSAGE_TOO_LONG
PAIRS = ErrorKind.BROKEN_PAIRS
LOST = ErrorKind.STATE_LOST
PARTS = ErrorKind.PARTS_REFUSED
REJECTED = ErrorKind.REJECTED

OUTPUTS = [
    Row(
        "OpenAI",
        "max_tokens is too large: 100000. This model supports at most 4096 completion tokens, "
        "whereas you provided 100000.",
        OUTPUT,
        100000,
        4096,
        code="invalid_value",
        param="max_tokens",
    ),
    Row(
        "Anthropic",
        "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for "
        "claude-3-5-haiku",
        OUTPUT,
        100000,
        8192,
        type="invalid_request_error",
    ),
    Row(
        "OpenAI Responses",
        "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got "
        "1 instead.",
        OUTPUT,
        1,
        code="integer_below_min_value",
        param="max_output_tokens",
    ),
    Row(
        "DeepSeek",
        "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
        OUTPUT,
        None,
        8192,
    ),
    Row("any", "Requested max_tokens exceeds the model output limit", OUTPUT),
    Row("DashScope", "Range of max_tokens should be [1, 8192]", OUTPUT, None, 8192),
    Row("Groq", "`max_tokens` must be less than or equal to `32768`, the maximum value for "
        "`max_tokens` is less than the `context_window` for this model", OUTPUT, None, 32768),
]  # fmt: skip

ENTRIES = [
    Row(
        "OpenAI",
        "Invalid 'messages': array too long. Expected an array with maximum length 2048, but got "
        "an array with length 2050 instead.",
        ErrorKind.TOO_MANY_MESSAGES,
        2050,
        2048,
        code="array_above_max_length",
        param="messages",
    ),
    Row(
        "OpenAI without a place",
        "Array too long.",
        ErrorKind.TOO_MANY_MESSAGES,
        code="array_above_max_length",
    ),
    Row(
        "OpenAI tools",
        "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an "
        "array with length 200 instead.",
        REJECTED,
        code="array_above_max_length",
        param="tools",
    ),
    Row(
        "OpenAI",
        "Invalid 'messages[3].content': string too long. Expected a string with maximum length "
        "1048576, but got a string with length 2000000 instead.",
        LONG,
        2000000,
        1048576,
        code="string_above_max_length",
        param="messages[3].content",
    ),
    Row(
        "OpenAI Responses",
        "Invalid 'input[12].output': string too long. Expected a string with maximum length "
        "10485760, but got a string with length 12000000 instead.",
        LONG,
        12000000,
        10485760,
        code="string_above_max_length",
        param="input[12].output",
    ),
    Row(
        "OpenAI user",
        "Invalid 'user': string too long. Expected a string with maximum length 64, but got a "
        "string with length 90 instead.",
        REJECTED,
        code="string_above_max_length",
        param="user",
    ),
    Row(
        "OpenAI call id",
        "Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum "
        "length 40, but got a string with length 52 instead.",
        ErrorKind.IDS_REFUSED,
        code="string_above_max_length",
        param="messages[2].tool_calls[0].id",
    ),
]

BODIES = [
    Row(
        "Anthropic",
        "Request exceeds the maximum size",
        BODY,
        status=413,
        type="request_too_large",
    ),
    Row("as text", "request_too_large", BODY),
    Row(
        "Gemini",
        "Request payload size exceeds the limit: 20971520 bytes.",
        BODY,
        None,
        20971520,
        type="INVALID_ARGUMENT",
    ),
    Row("Bedrock", "The total text bytes are more than the model takes", BODY),
    Row("C4", "413 Request Entity Too Large", BODY, status=None),
    Row("C3", "request size exceeds upload limit", BODY),
    Row(
        "Anthropic image",
        "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6000000 bytes > "
        "5242880 bytes",
        BODY,
        6000000,
        5242880,
        type="invalid_request_error",
    ),
    Row("Anthropic image", "At least one image dimension exceeds the maximum of 2000 pixels", BODY),
]

PAIRINGS = [
    Row(
        "OpenAI",
        "An assistant message with 'tool_calls' must be followed by tool messages responding to "
        "each 'tool_call_id'. The following tool_call_ids did not have response messages: call_1",
        PAIRS,
        type="invalid_request_error",
    ),
    Row(
        "OpenAI",
        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message "
        "with 'tool_calls'.",
        PAIRS,
        param="messages.[2].role",
    ),
    Row(
        "Anthropic",
        "messages.4: `tool_use` ids were found without `tool_result` blocks immediately after: "
        "toolu_1. Each `tool_use` block must have a corresponding `tool_result` block.",
        PAIRS,
    ),
    Row(
        "Anthropic",
        "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1.",
        PAIRS,
    ),
    Row("OpenAI Responses", "No tool output found for function call call_1.", PAIRS, param="input"),
    Row(
        "OpenAI Responses",
        "No tool call found for function call output with call_id call_1.",
        PAIRS,
    ),
    Row(
        "Gemini",
        "Please ensure that the number of function response parts is equal to the number of "
        "function call parts of the function call turn.",
        PAIRS,
    ),
]

STATES = [
    Row(
        "OpenAI",
        "Previous response with id 'resp_1' not found.",
        LOST,
        code="previous_response_not_found",
        param="previous_response_id",
    ),
    Row("without a code", "Previous response with id 'resp_1' not found.", LOST, status=404),
    Row(
        "OpenAI",
        "The encrypted content gAAA could not be verified.",
        LOST,
        code="invalid_encrypted_content",
    ),
    Row("a proxy", "Unsupported parameter: previous_response_id", LOST),
    Row(
        "another proxy",
        "Bad parameter.",
        LOST,
        code="unsupported_parameter",
        param="previous_response_id",
    ),
    Row("code as text", "previous_response_not_found", LOST),
    Row(
        "OpenAI",
        "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.",
        LOST,
        status=404,
    ),
    Row(
        "OpenAI",
        "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
        LOST,
    ),
]

PART_TYPES = [
    Row(
        "OpenAI Responses",
        "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'.",
        PARTS,
        code="invalid_value",
        param="input[1].content[0]",
    ),
    Row("a proxy", "Unsupported content type: image_url", PARTS),
    Row(
        "DeepSeek",
        "Failed to deserialize the JSON body into the target type: messages[0]: unknown variant "
        "`image_url`, expected `text`",
        PARTS,
    ),
]

ALL = [
    (OUTPUTS, Reaction.LOWER_OUTPUT),
    (BODIES, Reaction.DROP_IMAGES),
    (PAIRINGS, Reaction.ADAPT),
    (STATES, Reaction.GO_STATELESS),
    (PART_TYPES, Reaction.ADAPT),
]


@pytest.mark.parametrize(
    ("row", "reaction"),
    [pytest.param(row, reaction, id=names(row)) for rows, reaction in ALL for row in rows],
)
def test_what_only_looks_like_an_overflow_has_a_kind_and_a_reaction_of_its_own(row, reaction):
    error = row.error()
    assert meaning(error) == (row.kind, row.observed, row.allowed)
    assert error.reaction is reaction


@pytest.mark.parametrize("row", ENTRIES, ids=names)
def test_a_list_or_a_text_that_is_too_long_counts_only_where_the_conversation_is_meant(row):
    assert meaning(row.error()) == (row.kind, row.observed, row.allowed)


@pytest.mark.parametrize(
    ("param", "message", "index"),
    [
        ("messages[3].content", "Too long.", 3),
        ("messages[10].content[0].text", "Too long.", 10),
        ("input[12].output", "Too long.", 12),
        ("messages.7.content", "Too long.", 7),
        (None, "Invalid 'messages[5].content': string too long.", 5),
        (None, "string too long", None),
    ],
)
def test_the_message_that_is_too_long_is_named_where_the_error_names_it(param, message, index):
    row = Row("OpenAI", message, code="string_above_max_length", param=param)
    assert (row.error().kind, row.error().message_index) == (LONG, index)


def test_a_proxys_page_under_413_is_about_bytes():
    page = (
        "<html>\r\n<head><title>413 Request Entity Too Large</title></head>\r\n<body>\r\n"
        "<center><h1>413 Request Entity Too Large</h1></center>\r\n<hr><center>nginx</center>"
    )
    error = from_body(page, status=413)
    assert error.kind is BODY
    assert "<" not in error.detail
