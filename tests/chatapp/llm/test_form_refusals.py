"""Refusals about the form of a request: what is meant, and what is changed, in which order."""

from __future__ import annotations

import pytest

from chatapp.incidents import CHANGE_WORDS
from chatapp.llm.adaptations import adaptation_for, adapted, is_of_model, with_parameters
from chatapp.llm.capabilities import Capabilities, InvalidCapabilityError, capabilities_of
from chatapp.llm.errors import ErrorKind, Reaction, from_body
from chatapp.llm.registry import ModelConfig
from chatapp.llm.requests import ModelRequest
from chatapp.llm.wires import arguments_of

PARAMETER = ErrorKind.PARAMETER_REFUSED
MODEL = ModelConfig(
    alias="m", backend="b", name="m", context_window=8000, base_url="http://127.0.0.1:1/v1"
)
CALLS = [
    {"role": "user", "content": "q"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "found"},
    {"role": "user", "content": "and?"},
]

# (kind, status, text, fields of the error)
WORDINGS = [
    (PARAMETER, 400, "Unsupported value: 'temperature' does not support 0.2 with this model. Only "
     "the default (1) value is supported.", {"code": "unsupported_value", "param": "temperature"}),
    (PARAMETER, 400, "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
     "'max_completion_tokens' instead.", {"code": "unsupported_parameter", "param": "max_tokens"}),
    (PARAMETER, 400, "`temperature` is deprecated for this model.", {}),
    (PARAMETER, 422, "body.stream_options: Extra inputs are not permitted", {}),
    (PARAMETER, 400, "Unrecognized request argument supplied: max_completion_tokens", {}),
    (PARAMETER, 400, "unknown field: stream_options", {}),
    (PARAMETER, 400, "litellm.UnsupportedParamsError: o3 models don't support temperature=0.2. "
     "Only temperature=1 is supported.", {}),
    (PARAMETER, 400, "invalid temperature: only 1 is allowed for this model", {}),
    (ErrorKind.WRONG_WIRE, 404, "This model is only supported in v1/responses and not in "
     "v1/chat/completions.", {"param": "model"}),
    (ErrorKind.WRONG_WIRE, 404, "This is not a chat model and thus not supported in the "
     "v1/chat/completions endpoint. Did you mean to use v1/completions?", {}),
    (ErrorKind.WRONG_WIRE, 400, "The Responses API is not supported by this deployment.", {}),
    (ErrorKind.WRONG_WIRE, 404, "Invalid URL (POST /v1/responses)", {}),
    (ErrorKind.WRONG_WIRE, 400, "model gpt-x is not accessible via the /chat/completions endpoint",
     {"code": "unsupported_api_for_model"}),
    (ErrorKind.ROLE_ORDER, 500, "While executing CallExpression at line 189: Error: Jinja "
     "Exception: After the optional system message, conversation roles must alternate user and "
     "assistant roles except for tool calls and results.", {"type": "server_error"}),
    (ErrorKind.ROLE_ORDER, 400, "Conversation roles must alternate user/assistant/user/assistant",
     {}),
    (ErrorKind.ROLE_ORDER, 400, "Expected last role User or Tool (or Assistant with prefix True) "
     "for serving but got assistant", {}),
    (ErrorKind.ROLE_ORDER, 400, "deepseek-reasoner does not support successive user or assistant "
     "messages (messages[1] and messages[2] in your input).", {}),
    (ErrorKind.ROLE_ORDER, 400, "The first message must use the user role", {}),
    (ErrorKind.ROLE_ORDER, 400, "This model does not support assistant message prefill. The "
     "conversation must end with a user message.", {}),
    (ErrorKind.ROLE_ORDER, 400, "messages: roles must alternate between \"user\" and "
     "\"assistant\", but found multiple \"user\" roles in a row", {}),
    (ErrorKind.SYSTEM_ORDER, 400, "System message must be at the beginning.", {}),
    (ErrorKind.SYSTEM_ORDER, 500, "Jinja Exception: System role not supported", {}),
    (ErrorKind.SYSTEM_ORDER, 400, "Only one system message is allowed", {}),
    (ErrorKind.ARGUMENTS_REFUSED, 400, "Failed to parse tool call arguments as JSON: Unterminated "
     "string starting at: line 1 column 30 (char 29)", {"type": "BadRequestError"}),
    (ErrorKind.ARGUMENTS_REFUSED, 400, "Expecting value: line 1 column 1 (char 0)", {}),
    (ErrorKind.ARGUMENTS_REFUSED, 400, "messages.1.content.0.tool_use.input: Input should be a "
     "valid dictionary", {}),
    (ErrorKind.ARGUMENTS_REFUSED, 500, "Can only get item pairs from a mapping.", {}),
    (ErrorKind.ARGUMENTS_REFUSED, 400, "Invalid value for function arguments: must be valid JSON",
     {}),
    (ErrorKind.IDS_REFUSED, 400, "Tool call id was call_abcdef but must be a-z, A-Z, 0-9, with a "
     "length of 9.", {}),
    (ErrorKind.IDS_REFUSED, 400, "messages.3.content.0.tool_use.id: String should match pattern "
     "'^[a-zA-Z0-9_-]+$'", {}),
    (ErrorKind.IDS_REFUSED, 400, "Invalid 'messages[1].tool_calls[0].id': string too long. "
     "Expected a string with maximum length 40, but got a string with length 62 instead.",
     {"code": "string_above_max_length", "param": "messages[1].tool_calls[0].id"}),
    (ErrorKind.TOOLS_REFUSED, 400, "litellm.UnsupportedParamsError: Anthropic doesn't support "
     "tool calling without `tools=` param specified.", {}),
    (ErrorKind.TOOLS_REFUSED, 400, "registry.ollama.ai/library/gemma2:latest does not support "
     "tools", {}),
    (ErrorKind.TOOLS_REFUSED, 400, "The toolConfig field must be defined when using toolUse and "
     "toolResult content blocks.", {}),
    (ErrorKind.TOOLS_REFUSED, 400, "Function call is missing a thought_signature in functionCall "
     "parts. This is required for tools to work correctly.", {"type": "INVALID_ARGUMENT"}),
    (ErrorKind.TOOLS_REFUSED, 400, "Function calling is not enabled for this model", {}),
    (ErrorKind.THOUGHTS_REFUSED, 400, "messages.1.content.0: Invalid `signature` in `thinking` "
     "block", {}),
    (ErrorKind.THOUGHTS_REFUSED, 400, "`thinking` or `redacted_thinking` blocks in the latest "
     "assistant message cannot be modified.", {}),
    (ErrorKind.THOUGHTS_REFUSED, 400, "reasoning_content must not be sent back", {}),
    (ErrorKind.PARTS_REFUSED, 400, "Invalid value: 'thinking'. Supported values are: 'text' and "
     "'refusal'.", {"code": "invalid_value", "param": "messages[1].content[0].type"}),
    (ErrorKind.PARTS_REFUSED, 400, "This model does not support images", {}),
    (ErrorKind.PARTS_REFUSED, 400, "At most 0 image(s) may be provided in one request.", {}),
    (ErrorKind.REJECTED, 500, "Jinja Exception: something about this conversation", {}),
    (ErrorKind.REJECTED, 400, "messages: text content blocks must contain non-whitespace text", {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "status", "text", "fields"),
    [pytest.param(*row, id=f"{row[0].value}: {row[2][:60]}") for row in WORDINGS],
)
def test_what_a_refusal_is_about_is_read_from_its_words(kind, status, text, fields):
    error = from_body({"error": {"message": text, **fields}}, status=status)
    assert error.kind is kind
    assert error.reaction is Reaction.ADAPT


@pytest.mark.parametrize(
    ("kind", "status", "text"),
    [
        (ErrorKind.CONTEXT_OVERFLOW, 400, "This model's maximum context length is 4097 tokens."),
        (ErrorKind.OUTPUT_LIMIT, 400, "max_tokens is too large: 100000. This model supports at "
         "most 4096 completion tokens, whereas you provided 100000."),
        (ErrorKind.UNAVAILABLE, 500, "Internal server error"),
        (ErrorKind.UNAVAILABLE, 503, "The tools service is not available"),
        (ErrorKind.RATE_LIMITED, 429, "temperature is not supported, also slow down"),
        (ErrorKind.AUTHENTICATION, 401, "Unknown parameter temperature"),
        (ErrorKind.BROKEN_PAIRS, 400, "An assistant message with 'tool_calls' must be followed by "
         "tool messages responding to each 'tool_call_id'."),
    ],
)  # fmt: skip
def test_what_is_about_something_else_stays_that(kind, status, text):
    assert from_body({"error": {"message": text}}, status=status).kind is kind


def steps(text: str, *, status: int = 400, messages=CALLS, **fields) -> list[str]:
    """Return the codes that are tried one after the other, while the server says the same."""
    error = from_body({"error": {"message": text, **fields}}, status=status)
    request = ModelRequest(messages=messages, max_output=100, temperature=0.2, stream=True)
    found: list[str] = []
    while (
        change := adaptation_for(error, request, arguments_of(MODEL, request), found)
    ) is not None:
        assert change.text
        found.append(change.code)
        request = adapted(request, MODEL, found)
    return found


def test_a_parameter_is_renamed_once_then_left_out():
    said = "Unsupported parameter: 'max_tokens' is not supported with this model."
    assert steps(said, param="max_tokens") == ["rename:max_tokens:max_completion_tokens"]
    both = "Unknown parameter: 'max_tokens' and 'max_completion_tokens'."
    assert steps(both) == ["rename:max_tokens:max_completion_tokens", "drop:max_completion_tokens"]


def test_a_parameter_that_was_not_sent_is_no_reason_to_send_again():
    assert steps("Unknown parameter: 'top_p'.", param="top_p") == []


def test_a_key_or_a_model_that_is_gone_changes_nothing():
    assert steps("The model `m` does not exist.", status=404) == []
    assert steps("Incorrect API key provided.", status=401) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Conversation roles must alternate user/assistant",
         ["alternating_roles", "tools_as_text", "flat"]),
        ("Tool call id must be a-z, A-Z, 0-9, with a length of 9.",
         ["strict_ids", "tools_as_text", "flat"]),
        ("m does not support tools", ["tools_as_text", "drop:tools", "flat"]),
        ("Invalid `signature` in `thinking` block", ["without_thoughts", "tools_as_text", "flat"]),
        ("This model does not support images", ["plain_text", "flat"]),
        ("Something is wrong with it", ["flat"]),
        ("This model is only supported in v1/responses and not in v1/chat/completions.",
         ["api:responses"]),
    ],
)  # fmt: skip
def test_the_next_step_is_tried_until_the_last_one(text, expected):
    assert steps(text) == expected


def test_every_change_has_words_and_a_place_where_it_is_remembered():
    codes = {code for row in WORDINGS for code in steps(row[2], status=row[1], **row[3])}
    assert {code.partition(":")[0] for code in codes} <= set(CHANGE_WORDS)
    assert {code for code in codes if is_of_model(code)} >= {
        "drop:temperature", "api:responses", "strict_ids", "alternating_roles",
    }  # fmt: skip
    assert not is_of_model("flat")
    assert not is_of_model("tools_as_text")


def test_parameters_are_renamed_before_they_are_left_out():
    arguments = {"max_tokens": 5, "temperature": 1}
    codes = {"drop:temperature", "rename:max_tokens:max_completion_tokens"}
    assert with_parameters(dict(arguments), codes) == {"max_completion_tokens": 5}
    assert with_parameters(dict(arguments), {*codes, "drop:max_completion_tokens"}) == {}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-4o", set()),
        ("openai/gpt-5-mini", {"drop:temperature", "rename:max_tokens:max_completion_tokens"}),
        ("o3-mini", {"drop:temperature", "rename:max_tokens:max_completion_tokens"}),
        ("mistralai/Mistral-Small-3.2", {"alternating_roles", "strict_ids"}),
        ("google/gemma-3-27b-it", {"alternating_roles"}),
        ("olmo3", set()),
    ],
)
def test_what_a_family_wants_is_known_before_it_is_asked(name, expected):
    assert set(capabilities_of(name).codes()) == expected


def test_what_the_entry_says_counts_more_than_the_family():
    said = {"temperature": True, "max_tokens": "max_tokens", "API": "responses"}
    assert set(capabilities_of("gpt-5", said).codes()) == {
        "rename:max_completion_tokens:max_tokens", "api:responses",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"temprature": False}, "temperature"),
        ({"max_tokens": "tokens"}, "max_completion_tokens"),
        ({"tools": "no"}, "True, False"),
    ],
)
def test_a_capability_that_does_not_exist_is_refused_with_those_that_do(said, words):
    with pytest.raises(InvalidCapabilityError, match=words):
        capabilities_of("m", said)


def test_nothing_said_means_nothing_changed():
    assert list(Capabilities().codes()) == []
