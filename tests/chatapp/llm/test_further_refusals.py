"""Refusals of one more set of servers: which part of the request is meant, and what is changed.

The bodies have the shapes that people reported; each stands for a kind of wording, and the change
that must come first is what such a server wants.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from chatapp.llm.adaptations import STREAM_OFF, STREAM_ON, adaptation_for, adapted, is_of_model
from chatapp.llm.errors import ErrorKind, from_body
from chatapp.llm.registry import ModelConfig
from chatapp.llm.requests import ModelRequest
from chatapp.models import Incident, LearnedLimits
from chatapp.turns.service import Turn, run_turn
from tests.factories import SessionFactory, store, user

MESSAGES: list[Any] = [{"role": "user", "content": "q"}]
ARGUMENTS: dict[str, Any] = {
    "model": "m", "messages": MESSAGES, "max_tokens": 100, "temperature": 0.3,
    "reasoning_effort": "low", "tools": [{"type": "function", "function": {"name": "f"}}],
    "stream_options": {"include_usage": True},
}  # fmt: skip
MISSING = {"type": "missing", "loc": ["body", "messages", 5, "content"], "msg": "Field required"}

# name: (status, body, kind, the first change)
REFUSED: dict[str, tuple[int, Any, ErrorKind, str]] = {
    "a type of an id": (
        400, "messages.2.content.0.tool_result.tool_use_id: Input should be a valid string",
        ErrorKind.BROKEN_PAIRS, "tools_as_text",
    ),
    "a content that is missing, wrapped twice": (
        400,
        {"error": {"message": "Provider returned error", "code": 422,
                   "metadata": {"raw": json.dumps({"detail": [MISSING]})}}},
        ErrorKind.PARTS_REFUSED, "text_beside_calls",
    ),
    "null far behind its place": (
        400,
        {"error": {"message": "Invalid type for 'messages[1].content': expected one of a string "
                   "or array of objects, but got null instead.", "param": "messages[1].content"}},
        ErrorKind.PARTS_REFUSED, "text_beside_calls",
    ),
    "a field in a part of a message": (
        400, "messages.65.content.1.tool_use.text: Extra inputs are not permitted",
        ErrorKind.THOUGHTS_REFUSED, "without_thoughts",
    ),
    "a field of a message, quoted with words about size": (
        400, "Extra inputs are not permitted, field: 'messages[8].reasoning', value: 'The prompt "
        "is too long for temperature'",
        ErrorKind.THOUGHTS_REFUSED, "without_thoughts",
    ),
    "thinking under a name that nobody sent": (
        400, "The model returned the following errors: reasoning: Extra inputs are not permitted",
        ErrorKind.PARAMETER_REFUSED, "drop:reasoning_effort",
    ),
    "an id that is not there": (
        400, "Tool call id has to be defined in serving mode.",
        ErrorKind.IDS_REFUSED, "strict_ids",
    ),
    "no role of tools": (
        400, {"message": "Unexpected role RoleEnum.tool"}, ErrorKind.TOOLS_REFUSED, "tools_as_text",
    ),
    "roles without one of tools": (
        400,
        {"error": {"message": "Invalid value: 'tool'. Supported values are: 'system', 'user'.",
                   "param": "messages[3].role"}},
        ErrorKind.TOOLS_REFUSED, "tools_as_text",
    ),
    "no tools, as a parameter of a template": (
        500, {"error": {"code": 500, "message": "Unsupported param: tools"}},
        ErrorKind.TOOLS_REFUSED, "tools_as_text",
    ),
    "a template under 424": (
        424, {"error": "Template error: Conversation roles must alternate user/assistant"},
        ErrorKind.ROLE_ORDER, "alternating_roles",
    ),
    "an odd number of messages": (
        400, {"error": {"message": "the length of messages must be an odd number"}},
        ErrorKind.ROLE_ORDER, "alternating_roles",
    ),
    "an even place, under 200": (
        200, {"error_code": 336006, "error_msg": "the role of message with even index in the "
              "messages must be assistant"},
        ErrorKind.ROLE_ORDER, "alternating_roles",
    ),
    "another role expected": (
        422, "messages[2].role: invalid role sequence, expected 'user' got 'assistant'",
        ErrorKind.ROLE_ORDER, "alternating_roles",
    ),
    "roles without a system": (
        400, "Error rendering prompt with jinja template: \"Only user, assistant and tool roles "
        "are supported, got system.\"",
        ErrorKind.SYSTEM_ORDER, "one_system_message",
    ),
    "two valid roles": (
        400, [{"error": {"code": 400, "message": "Please use a valid role: user, model."}}],
        ErrorKind.SYSTEM_ORDER, "one_system_message",
    ),
    "a type of content": (
        400, "invalid message content type: map[string]interface {}",
        ErrorKind.PARTS_REFUSED, "plain_text",
    ),
    "a content that is expected otherwise": (
        400, "Expected 'content' to be a string or an array", ErrorKind.PARTS_REFUSED, "plain_text",
    ),
    "a result that is no object": (
        400, "Invalid value at 'contents[3].parts[0].function_response.response' (Struct), \"ok\"",
        ErrorKind.ARGUMENTS_REFUSED, "tools_as_text",
    ),
    "a template that finds no content": (
        500, {"error": {"message": "'dict object' has no attribute 'content'", "code": 500}},
        ErrorKind.REJECTED, "flat",
    ),
    "an empty message, under 200": (
        200, {"base_resp": {"status_code": 2013, "status_msg": "invalid params, chat content is "
                            "empty (2013)"}},
        ErrorKind.REJECTED, "flat",
    ),
    "an account that did not pay, under 403": (
        403, {"error": {"code": "AccountOverdueError", "message": "Your account is overdue."}},
        ErrorKind.QUOTA, "",
    ),
    "a model that crashed, under 400": (
        400, {"error": "The model has crashed without additional information. (Exit code: 6)"},
        ErrorKind.UNAVAILABLE, "",
    ),
    "a prompt that was blocked, under 200": (
        200, {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}, ErrorKind.CONTENT_FILTER,
        "",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("status", "body", "kind", "first"), REFUSED.values(), ids=REFUSED)
def test_what_is_meant_is_understood_and_answered_first(status, body, kind, first):
    error = from_body(body, status=status)
    assert error.kind is kind
    found = adaptation_for(error, ModelRequest(messages=MESSAGES), ARGUMENTS, ())
    assert (found.code if found else "") == first


SAID = {
    ErrorKind.SYSTEM_ORDER: (
        "Only a single system message is allowed at index 0, found another at index 3",
        "The model does not accept system instructions; move them into the first user message",
    ),
    ErrorKind.ROLE_ORDER: (
        "Conversation cannot start with an assistant turn",
        "Found two user messages without an assistant message between them",
        "The conversation ends with an assistant message; add a user message",
    ),
    ErrorKind.BROKEN_PAIRS: ("Tool message at index 2 has no corresponding assistant tool call",),
    ErrorKind.PARTS_REFUSED: (
        "This model only accepts text input; images were provided",
        "Audio input is not available for this model",
        "Unsupported content part: file",
    ),
    ErrorKind.PARAMETER_REFUSED: (
        "This model requires temperature to be exactly 1",
        "Sampling parameters such as temperature are not configurable on reasoning models",
        "reasoning_effort must be one of: none, high",
        "stream_options.include_usage is not recognised by this server",
        "Parallel tool calls cannot be configured: parallel_tool_calls",
    ),
    ErrorKind.AUTHENTICATION: ("Invalid bearer token",),
}


@pytest.mark.parametrize(
    ("kind", "text"), [(kind, text) for kind, texts in SAID.items() for text in texts]
)
def test_a_kind_is_told_in_further_words(kind, text):
    for status in (400, 422):
        assert from_body({"error": {"message": text}}, status=status).kind is kind


@pytest.mark.parametrize("text", [
    "invalid request: message must be at least 1 token long or tool results must be specified.",
    "<400> InternalError.Algo.InvalidParameter: Role must be user or assistant and Content length "
    "must be greater than 0",
    "Invalid 'tools': array too long. Expected an array with maximum length 128, but got 214.",
    "The text field in the ContentBlock object at messages.11.content.0 is blank. Add text to the "
    "text field, and try again.",
])  # fmt: skip
def test_lengths_and_tokens_of_other_things_are_no_window(text):
    error = from_body({"error": {"message": text}}, status=400)
    assert not error.is_overflow
    assert not error.is_temporary


# --- how the answer is sent -----------------------------------------------------------------------

ONLY_IN_PIECES = (
    "parameter.enable_thinking must be set to false for non-streaming calls",
    "This model only support stream mode, please enable the stream parameter to access the model.",
    "Streaming is required for operations that may take longer than 10 minutes.",
    "Stream must be set to true",
    "non-streaming requests are not supported for this model",
)
ONLY_WHOLE = (
    "Your organization must be verified to stream this model.",
    "Unsupported value: 'stream' does not support true with this model.",
    "Streaming is not supported for this model.",
    "stream=true is not supported with tools",
)
ONE_WAY = [(text, False, STREAM_ON) for text in ONLY_IN_PIECES]
OTHER_WAY = [(text, True, STREAM_OFF) for text in ONLY_WHOLE]


@pytest.mark.parametrize(("text", "stream", "code"), [*ONE_WAY, *OTHER_WAY])
def test_a_server_that_answers_one_way_only_is_asked_that_way_once(text, stream, code):
    error = from_body({"error": {"message": text}}, status=400)
    request = ModelRequest(messages=MESSAGES, stream=stream)
    found = adaptation_for(error, request, ARGUMENTS, ())
    assert found is not None
    assert (error.kind, found.code) == (ErrorKind.PARAMETER_REFUSED, code)
    assert is_of_model(code)
    model = ModelConfig(alias="m", backend="b", name="m", context_window=8000)
    assert adapted(request, model, {code}).stream is not stream
    assert adaptation_for(error, request, ARGUMENTS, {code}) is None


AMONG = (
    ("parallel_tool_calls is not supported when streaming", "drop:parallel_tool_calls"),
    ("max_tokens is not supported with streaming; use max_completion_tokens",
     "rename:max_tokens:max_completion_tokens"),
    ("When streaming, temperature is not supported", "drop:temperature"),
    ("temperature is not supported for non-streaming requests", "drop:temperature"),
    ("Non-streaming requests with reasoning_effort are not allowed", "drop:reasoning_effort"),
)  # fmt: skip


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("text", "code"), AMONG)
def test_a_parameter_that_is_refused_with_streaming_is_left_out_and_the_way_stays(
    text, code, stream
):
    error = from_body({"error": {"message": text}}, status=400)
    request = ModelRequest(messages=MESSAGES, stream=stream)
    arguments = ARGUMENTS | {"parallel_tool_calls": True}
    for done in ((), {STREAM_ON}, {STREAM_OFF}):
        found = adaptation_for(error, request, arguments, done)
        assert found is not None
        assert (error.kind, found.code) == (ErrorKind.PARAMETER_REFUSED, code)


WANTED = (
    ("Streaming is required when max_tokens is larger than 21333",
     "rename:max_tokens:max_completion_tokens"),
    ("Stream must be set to true where temperature is given", "drop:temperature"),
)  # fmt: skip


@pytest.mark.parametrize(("text", "later"), WANTED)
def test_streaming_that_is_wanted_for_a_parameter_is_switched_on_first(text, later):
    error = from_body({"error": {"message": text}}, status=400)
    request = ModelRequest(messages=MESSAGES, stream=False)
    codes = [adaptation_for(error, request, ARGUMENTS, done) for done in ((), {STREAM_ON})]
    assert [one.code for one in codes if one] == [STREAM_ON, later]


def test_thinking_that_is_refused_with_streaming_is_left_out_where_the_way_did_not_help():
    error = from_body(
        {"error": {"message": "reasoning is not supported when streaming"}}, status=400
    )
    error.kind = ErrorKind.PARAMETER_REFUSED
    arguments = {"model": "m", "input": MESSAGES, "reasoning": {"effort": "low"}}
    request = ModelRequest(messages=MESSAGES, stream=True)
    codes = [adaptation_for(error, request, arguments, done) for done in ((), {STREAM_OFF})]
    assert [one.code for one in codes if one] == [STREAM_OFF, "drop:reasoning"]


PLACES = (
    "messages.0.name", "messages[3].role", "messages.2.content.0.cache_control",
    "messages.1.annotations", "body.messages.4.assistant.refusal", "messages.2.tool_calls.0.index",
    "messages.2.content.0.tool_use.id",
)  # fmt: skip
OF_THOUGHTS = (
    "messages.1.reasoning_content", "messages[8].reasoning", "messages.3.thinking_blocks",
    "messages.2.content.0.signature", "body.messages.4.assistant.reasoning_details",
    "messages.1.thought", "messages.2.content.1.thinking.encrypted_content",
    "messages.2.reasoningContent",
)  # fmt: skip


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize("place", [*PLACES, *OF_THOUGHTS])
def test_a_field_that_is_too_many_is_one_of_thoughts_only_where_its_name_is(place, status):
    kind = ErrorKind.THOUGHTS_REFUSED if place in OF_THOUGHTS else ErrorKind.REJECTED
    for text in (
        f"{place}: Extra inputs are not permitted",
        f"Extra inputs are not permitted, field: '{place}', value: 'thinking about it'",
    ):
        assert from_body({"error": {"message": text}}, status=status).kind is kind


def test_options_of_a_stream_are_a_parameter_of_their_own():
    text = "The 'stream_options' parameter is not supported."
    error = from_body({"error": {"message": text}}, status=400)
    found = adaptation_for(error, ModelRequest(messages=MESSAGES, stream=True), ARGUMENTS, ())
    assert found is not None
    assert found.code == "drop:stream_options"


@pytest.mark.django_db
@pytest.mark.parametrize("stream", [True, False])
def test_a_turn_gets_its_answer_the_other_way_and_the_model_is_known(
    owner, queued, model_server, stream
):
    text = (ONLY_WHOLE if stream else ONLY_IN_PIECES)[0]
    body = {"error": {"message": text, "code": "unsupported_value"}}
    refused = {"error": {"status": 400, "body": body}}
    model_server.script = [
        {"when": {"call": 1}, "reply": refused},
        {"when": {}, "reply": {"text": "seven hives"}},
    ]
    session = SessionFactory(owner=owner)
    for _ in range(2):
        store(session, [user("how many?")])
        assert run_turn(Turn(session=session, stream=stream)).answer.content == "seven hives"
    ways = [bool(call.body.get("stream")) for call in model_server.calls]
    assert ways == [stream, not stream, not stream]
    assert Incident.objects.get().code == "stream"
    assert set(LearnedLimits.objects.get().adaptations) == {STREAM_OFF if stream else STREAM_ON}
