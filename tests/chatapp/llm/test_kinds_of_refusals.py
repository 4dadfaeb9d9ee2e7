"""Kinds of refusals, each in several shapes: what they share is enough, whoever words them.

Numbers and names are drawn by the printed seed. Beside each kind stands what only looks like it.
"""

from __future__ import annotations

import random

import pytest

from chatapp.llm.adaptations import adaptation_for
from chatapp.llm.errors import ErrorKind, ModelError, from_body
from chatapp.llm.requests import ModelRequest
from tests.facts import seed

BUSY = ErrorKind.UNAVAILABLE
OVERFLOW = ErrorKind.CONTEXT_OVERFLOW

# {a} is more than {b}; {f} stands for a format, {n} for a small number.
SHAPES: dict[ErrorKind, tuple[str, ...]] = {
    BUSY: (
        "KV cache has only {b} tokens of capacity left, the request needs {a}",
        "tokens in flight ({a}) exceed the limit of {b}",
        "maximum of {b} in-flight tokens reached ({a})",
        "No free KV cache blocks for {a} tokens (limit {b})",
        "{n} running requests hold {a} of {b} cache tokens",
        "The request queue is full: {a} tokens wait, at most {b}",
        "Function {f}: DEGRADED function cannot be invoked",
    ),
    # What the model wrote: another answer may do.
    ErrorKind.BROKEN_ANSWER: (
        "Failed to call a function. See 'failed_generation' for more details.",
        "The model generated output that could not be parsed.",
        "Tool call validation failed: parameters for tool {f} did not match schema",
        "Failed to parse input at pos {n}: <tool_call>",
    ),
    ErrorKind.REGION_REFUSED: (
        "Country, region, or territory not supported",
        "User location is not supported for the API use.",
        "{f} is not available in your region.",
        "This model is not offered from your current country ({n})",
        "Your country is not supported by {f}",
        "Access from this region is blocked",
        "您所在的地区无法使用该模型",
    ),
    OVERFLOW: (
        "Prompt of {a} tokens does not fit into the KV cache, which has a capacity of {b} tokens",
        "Input prompt is too big compared to KV size.",
        "The sequence of {a} tokens is longer than the KV cache can hold ({b} tokens)",
        "context window exceeded: {a} tokens in use of {b}",
    ),
    ErrorKind.THOUGHTS_REFUSED: (
        "Cannot pass both content and thinking in an assistant message with tool calls",
        "Missing reasoning_content field in the assistant message at index {n}",
        "Assistant messages with tool calls need reasoning_content",
        '"{f}" does not support thinking',
        "{f} requires its reasoning details to be preserved in each request",
        "thinking is not supported by {f}",
    ),
    ErrorKind.PARTS_REFUSED: (
        "json: cannot unmarshal array into Go struct field Request.messages.content of type {f}",
        "Type mismatch of '/messages/{n}/content', 'string' not in 'array'",
        "messages.{n}.content: Expected string, received array",
        "/messages/{n}/content must be of type string",
        "{f} is not a multimodal model",
        "Invalid 'content': value did not match any expected variant",
        "You uploaded an unsupported image.",
        "Could not process image",
        "Failed to download image from https://{f}.example/a.png",
        "A maximum of {n} PDF pages may be provided.",
    ),
    ErrorKind.ARGUMENTS_REFUSED: (
        "cannot unmarshal array into Go value of type api.ToolCallFunctionArguments",
        "json: cannot unmarshal string into Go struct field messages.tool_calls.function.arguments",
    ),
    ErrorKind.SYSTEM_ORDER: (
        "messages[{n}].role: unknown variant `developer`, expected one of `system`, `user`",
        "messages[0].role: unknown variant `system`, expected `user` or `assistant`",
    ),
    ErrorKind.ROLE_ORDER: ("Assistant response prefill is incompatible with enable_thinking.",),
    ErrorKind.BROKEN_PAIRS: (
        "each tool_use must have a single result. Found multiple tool_result blocks",
        "duplicate tool_result for toolu_{n}",
    ),
    ErrorKind.CONTENT_FILTER: (
        "the input text may contain sensitive information",
        "output new_sensitive",
    ),
    ErrorKind.MESSAGE_TOO_LONG: ("#/messages/{n}/content: expected maxLength: {b}, actual: {a}",),
    ErrorKind.REJECTED: (
        "Model names are case-sensitive; '{f}' was not found",
        "unable to open model file {f}",
    ),
}


def _filled(template: str, chance: random.Random) -> str:
    most = chance.randrange(3_000, 400_000)
    values = {"b": most, "a": most + chance.randrange(1_000, 90_000), "n": chance.randrange(2, 99)}
    return template.format(**values, f=chance.choice(("hive-9b", "look_up", "keeper")))


@pytest.mark.parametrize(
    ("kind", "template"), [(kind, one) for kind, shapes in SHAPES.items() for one in shapes]
)
def test_a_kind_is_told_in_every_shape(kind, template):
    chance = random.Random(f"{seed()} {template}")
    for _ in range(3):
        text = _filled(template, chance)
        status = chance.choice((400, 422))
        for body in ({"error": {"message": text}}, {"error": text}, {"detail": text}):
            assert from_body(body, status=status).kind is kind, text


@pytest.mark.parametrize("code", ["tool_use_failed", "output_parse_failed"])
def test_a_code_tells_that_the_answer_was_spoiled(code):
    error = from_body({"error": {"message": "Oh.", "code": code}}, status=400)
    assert error.kind is ErrorKind.BROKEN_ANSWER


def _change(error: ModelError, **arguments: object) -> str:
    request = ModelRequest(messages=[{"role": "user", "content": "q"}])
    found = adaptation_for(error, request, {"model": "m", "messages": [], **arguments}, ())
    return found.code if found else ""


def test_names_in_an_object_that_is_no_error_are_read():
    text = "hive does not support parameters: {'parallel_tool_calls': False}, for model=x"
    error = from_body({"error": {"message": text}}, status=400)
    assert error.kind is ErrorKind.PARAMETER_REFUSED
    assert _change(error, parallel_tool_calls=False) == "drop:parallel_tool_calls"


def test_what_such_an_object_quotes_of_the_conversation_is_not_judged():
    quoted = {"messages": [{"role": "user", "content": "prompt is too long"}]}
    error = from_body({"error": {"message": f"invalid request {quoted}"}}, status=400)
    assert error.kind is ErrorKind.REJECTED
    assert "too long" not in error.detail


def test_a_message_that_is_too_long_tells_how_long_it_may_be():
    text = "#/messages/4/content: expected maxLength: 20000, actual: 31000"
    error = from_body({"message": text}, status=400)
    assert (error.kind, error.observed, error.allowed) == (
        ErrorKind.MESSAGE_TOO_LONG,
        31_000,
        20_000,
    )


def test_a_model_that_cannot_think_is_asked_without_effort():
    error = from_body({"error": '"hive" does not support thinking'}, status=400)
    request = ModelRequest(messages=[{"role": "user", "content": "q"}])
    done: list[str] = []
    for _ in range(2):
        change = adaptation_for(error, request, {"reasoning_effort": "high"}, done)
        assert change is not None
        done.append(change.code)
    assert done == ["without_thoughts", "drop:reasoning_effort"]


@pytest.mark.parametrize(
    "text",
    [
        "tools[0].function.parameters.properties.location: keyword 'format' is not supported",
        "Invalid schema for function 'weather': country is not allowed to be null",
        "Unsupported parameter: 'user_location' is not supported with this model.",
    ],
)
def test_a_place_in_the_request_is_no_region(text):
    error = from_body({"error": {"message": text}}, status=400)
    assert error.kind is not ErrorKind.REGION_REFUSED


@pytest.mark.parametrize("status", [403, 404, 451])
def test_a_region_is_told_from_a_key(status):
    body = {"error": {"code": "unsupported_country_region_territory", "message": "No."}}
    assert from_body(body, status=status).kind is ErrorKind.REGION_REFUSED


@pytest.mark.parametrize("status", [408, 409, 424, 425, 498, 499, 500, 502, 503, 520, 529])
@pytest.mark.parametrize("body", ["", {}, {"error": {}}, {"error": {"message": "Oh."}}])
def test_a_status_that_passes_is_waited_for(status, body):
    error = from_body(body, status=status)
    assert (error.kind, error.is_temporary) == (ErrorKind.UNAVAILABLE, True)


@pytest.mark.parametrize(
    "text",
    [
        "parameter.enable_thinking必须设置为false才能进行非流式调用",
        "该模型仅支持流式调用",
        "This model only supports streaming; set stream to true.",
    ],
)
def test_a_server_that_only_streams_is_asked_for_a_stream(text):
    error = from_body({"error": {"message": text}}, status=400)
    assert _change(error, stream=False) == "stream:on"
