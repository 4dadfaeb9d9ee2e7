"""Refusals as people reported them of forty servers and gateways, and the change that comes first.

They were drawn afresh: one half was looked at while the wordings were tuned, the other one counted.
"""

from __future__ import annotations

from typing import Any

import pytest

from chatapp.llm.adaptations import adaptation_for
from chatapp.llm.errors import from_body
from chatapp.llm.requests import ModelRequest

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
MESSAGES: list[Any] = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": [{"type": "text", "text": "q"}]},
    {"role": "assistant", "content": None, "reasoning_content": "t", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "r"},
    {"role": "user", "content": "q2"},
]
TOOLS: list[Any] = [{"type": "function", "function": {"name": "f"}}]
ARGUMENTS: dict[str, Any] = {
    "model": "m", "messages": MESSAGES, "max_tokens": 100, "temperature": 0.3,
    "reasoning_effort": "low", "tools": TOOLS, "stream_options": {"include_usage": True},
}  # fmt: skip


def plain(message: str, **more: Any) -> dict[str, Any]:
    return {"message": message, **more}


def said(message: str, **more: Any) -> dict[str, Any]:
    return {"error": plain(message, **more)}


OF_TEMPLATES = {"gptoss both", "llama keys of tools", "llama jinja alternate"}
# name: (body, what may be changed first)
REPORTED: dict[str, tuple[Any, set[str]]] = {
    "kimi": (
        plain(
            "thinking is enabled but reasoning_content is missing in assistant tool call "
            "message at index 32",
            code=20015,
            data=None,
        ),
        {"with_thoughts"},
    ),
    "bedrock null temperature": (
        plain(
            "Malformed input request: #: subject must not be valid against schema "
            '{"required":["messages"]}#/temperature: expected type: Number, found: Null, '
            "please reformat your input and try again."
        ),
        {"drop:temperature"},
    ),
    "vllm pydantic tools": (
        plain(
            "[{'type': 'extra_forbidden', 'loc': ('body', 'tool_choice'), 'msg': 'Extra inputs "
            "are not permitted', 'input': 'auto'}, {'type': 'extra_forbidden', 'loc': ('body', "
            "'tools'), 'msg': 'Extra inputs are not permitted', 'input': [{'type': "
            "'function'}]}]",
            object="error",
            type="BadRequestError",
            code=400,
        ),
        {"drop:tool_choice", "drop:tools", "tools_as_text"},
    ),
    "bedrock extraneous": (
        plain(
            "Malformed input request: #: extraneous key [stream_options] is not permitted, "
            "please reformat your input and try again."
        ),
        {"drop:stream_options"},
    ),
    "copilot schema": (
        said(
            "invalid request body, failed to validate schema: (1) Reason: got array, want "
            "string, Location: /properties/messages/items/properties/content/oneOf/0/type. (2) "
            "Reason: missing property 'type', Location: "
            "/properties/messages/items/properties/content/oneOf/1/items/properties"
            "/image_url/required.",
            code="invalid_request_body",
        ),
        {"plain_text"},
    ),
    "litellm unsupported list": (
        said(
            "litellm.UnsupportedParamsError: openai does not support parameters: "
            "['reasoning_effort'], for model=o4-mini. To drop these, set "
            "`litellm.drop_params=True`"
        ),
        {"drop:reasoning_effort"},
    ),
    "gptoss both": (
        said(
            "Cannot pass both content and thinking in an assistant message with tool calls! "
            "Put the analysis message in one or the other, but not both. at row 290, column "
            "178:\n  {%- if message.content and message.thinking %}",
            code=500,
        ),
        {"without_thoughts"},
    ),
    "vllm pydantic message": (
        plain(
            "[{'type': 'string_type', 'loc': ('body', 'messages', 2, 'typed-dict', 'content', "
            "'str'), 'msg': 'Input should be a valid string', 'input': None}, {'type': "
            "'iterable_type', 'loc': ('body', 'messages', 2, 'typed-dict', 'content', "
            "'generator[typed-dict]'), 'msg': 'Input should be iterable', 'input': None}, "
            "{'type': 'extra_forbidden', 'loc': ('body', 'messages', 2, 'typed-dict', "
            "'tool_calls'), 'msg': 'Extra inputs are not permitted', 'input': [{'id': 'x'}]}]",
            object="error",
            type="BadRequestError",
            code=400,
        ),
        {"text_beside_calls", "tools_as_text"},
    ),
    "ollama": (
        said(
            "registry.ollama.ai/library/codellama:latest does not support tools", type="api_error"
        ),
        {"drop:tools", "tools_as_text"},
    ),
    "openrouter mistral": (
        plain(
            "Provider returned error",
            code=400,
            metadata={
                "raw": (
                    '{"object": "error", "message": "Unexpected role \'tool\' after role '
                    '\'user\'", "type": "invalid_request_message_order", "code": "3230"}'
                ),
                "provider_name": "Mistral",
            },
        ),
        {"alternating_roles", "tools_as_text"},
    ),
    "responses no call": (
        said(
            "No tool call found for function call output with call_id "
            "call_uelfkqtHfJDC4Btqeoozq82e.",
            type="invalid_request_error",
            param="input",
            code=None,
        ),
        {"tools_as_text"},
    ),
    "required incompatible": (
        said("tool_choice 'required' is incompatible with thinking enabled"),
        {"drop:reasoning_effort", "drop:tool_choice"},
    ),
    "newapi temperature thinking": (
        said(
            "`temperature` may only be set to 1 when thinking is enabled. Please consult our "
            "documentation at (request id: 20260330)",
            type="<nil>",
            param="",
            code=None,
        ),
        {"drop:temperature"},
    ),
    "function tools with effort": (
        said(
            "Function tools with reasoning_effort are not supported for gpt-5.6-sol in "
            "/v1/chat/completions. To use function tools, use /v1/responses or set "
            "reasoning_effort to 'none'."
        ),
        {"api:responses", "drop:reasoning_effort"},
    ),
    "llama keys of tools": (
        said(
            "Unknown method: keys at row 57, column 46:\n {%- for json_key in "
            'param_fields.keys() | reject("in", handled_keys) %}'
        ),
        {"drop:tools", "tools_as_text"},
    ),
    "anthropic non-empty": (
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "messages: text content blocks must be non-empty",
            },
        },
        {"plain_text", "text_beside_calls"},
    ),
    "databricks tools": (
        plain(
            'parameter "tools" is not supported when in Chat completion', error_code="BAD_REQUEST"
        ),
        {"drop:tools", "tools_as_text"},
    ),
    "bedrock toolspec": (
        plain(
            "2 validation errors detected: Value '' at "
            "'toolConfig.tools.1.member.toolSpec.name' failed to satisfy constraint: Member "
            "must satisfy regular expression pattern: [a-zA-Z0-9_-]+; Value '' at "
            "'toolConfig.tools.1.member.toolSpec.description' failed to satisfy constraint: "
            "Member must have length greater than or equal to 1"
        ),
        {"drop:tools", "tools_as_text"},
    ),
    "sambanova": (
        said(
            "Unable to tokenize message with status code 400 for model DeepSeek-V3.1: Invalid "
            "'content' type. Expected one of: ['str'], got list."
        ),
        {"plain_text"},
    ),
    "vllm auto": (
        plain(
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to '
            "be set",
            object="error",
            type="BadRequestError",
            code=400,
        ),
        {"drop:tool_choice", "drop:tools", "tools_as_text"},
    ),
    "cerebras": (
        plain(
            "messages.2.assistant.reasoning_content: property "
            "'messages.2.assistant.reasoning_content' is unsupported",
            type="invalid_request_error",
            param="validation_error",
            code="wrong_api_format",
        ),
        {"without_thoughts"},
    ),
    "llama jinja alternate": (
        said(
            "\n------------\nWhile executing CallExpression at line 189, column 32 in "
            "source:\n...== 0) %} {{- raise_exception('After the optional system message, "
            "con...\n ^\nError: Jinja Exception: After the optional system message, "
            "conversation roles must alternate user and assistant roles except for tool calls "
            "and results.",
            type="server_error",
            code=500,
        ),
        {"alternating_roles"},
    ),
    "azure max tokens": (
        said(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
            "'max_completion_tokens' instead.",
            type="invalid_request_error",
            param="max_tokens",
            code="unsupported_parameter",
        ),
        {"rename:max_tokens:max_completion_tokens"},
    ),
    "deepseek back": (
        said(
            "The `reasoning_content` in the thinking mode must be passed back to the API.",
            type="invalid_request_error",
        ),
        {"with_thoughts"},
    ),
    "deepseek missing": (
        said(
            "Missing `reasoning_content` field in the assistant message at message index 2. "
            "For more information, please refer to "
            "https://api-docs.deepseek.com/guides/thinking_mode#tool-calls"
        ),
        {"with_thoughts"},
    ),
    "bedrock empty result": (
        said(
            "The content field at messages.3.content.0.toolResult cannot be empty when status "
            "value is error."
        ),
        {"text_beside_calls", "tools_as_text"},
    ),
    "groq thoughts": (
        said(
            "'messages.2' : for 'role:assistant' the following must be satisfied[('messages.2' "
            ": property 'reasoning_content' is unsupported)]",
            type="invalid_request_error",
        ),
        {"without_thoughts"},
    ),
    "groq reasoning": (
        said(
            "'messages.2' : for 'role:assistant' the following must be satisfied[('messages.2' "
            ": property 'reasoning' is unsupported, did you mean 'role'?)]",
            type="invalid_request_error",
        ),
        {"without_thoughts"},
    ),
    "param holds words": (
        said(
            "Param Incorrect",
            code="400",
            param="The reasoning_content in the thinking mode must be passed back.",
            type="",
        ),
        {"with_thoughts"},
    ),
    "bedrock same turn": (
        said(
            "BedrockException - messages.2.content: Conversation blocks and tool result blocks "
            "cannot be provided in the same turn."
        ),
        {"tools_as_text"},
    ),
    "lemonade system first": (
        said(
            "Unable to generate parser for this template. Automatic parser generation failed: "
            "\n------------\nWhile executing CallExpression at line 85, column 32 in "
            "source:\n...first %} {{- raise_exception('System message must be at the "
            "beginnin...\nError: Jinja Exception: System message must be at the beginning.",
            type="invalid_request_error",
            code=400,
        ),
        {"one_system_message"},
    ),
    "anthropic first block": (
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": (
                    "messages.5.content.0: If an assistant message contains any thinking "
                    "blocks, the first block must be `thinking` or `redacted_thinking`. Found "
                    "`text`."
                ),
            },
        },
        {"without_thoughts"},
    ),
    "databricks one system": (
        plain(
            "INVALID_PARAMETER_VALUE: Gemini models only support one system prompt.",
            error_code="BAD_REQUEST",
        ),
        {"one_system_message"},
    ),
    "vllm system role": (
        plain(
            "System role not supported",
            object="error",
            type="BadRequestError",
            param=None,
            code=400,
        ),
        {"system_as_user"},
    ),
    "dashscope": (
        said(
            "<400> InternalError.Algo.InvalidParameter: An assistant message with "
            '"tool_calls" must be followed by tool messages responding to each '
            '"tool_call_id". The following tool_call_ids did not have response messages: '
            "message[15].role"
        ),
        {"tools_as_text"},
    ),
    "mistral last": (
        plain(
            "Expected last role User or Tool (or Assistant with prefix True) for serving but "
            "got assistant",
            object="error",
            type="invalid_request_error",
        ),
        {"alternating_roles"},
    ),
    "anthropic both": (
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": (
                    "Error from provider (Anthropic): `temperature` and `top_p` cannot both be "
                    "specified for this model. Please use only one."
                ),
            },
        },
        {"drop:temperature"},
    ),
    "lmstudio no user": (
        said(
            "Unable to generate parser for this template. Automatic parser generation failed: "
            "While executing CallExpression at line 79, column 24 in source: "
            "...multi_step_tool %} {{- raise_exception('No user query found in messages.') "
            "}}... Error: Jinja Exception: No user query found in messages.",
            type="invalid_request_error",
            code=400,
        ),
        {"alternating_roles"},
    ),
    "gemini parts": (
        [
            {
                "error": {
                    "message": (
                        "Please ensure that the number of function response parts is equal to the "
                        "number of function call parts of the function call turn."
                    ),
                    "code": 400,
                    "status": "INVALID_ARGUMENT",
                },
            }
        ],
        {"tools_as_text"},
    ),
    "groq string": (
        said(
            "'messages.0' : for 'role:system' the following must be "
            "satisfied[('messages.0.content' : value must be a string)]",
            type="invalid_request_error",
        ),
        {"plain_text"},
    ),
}


@pytest.mark.parametrize("name", REPORTED)
def test_what_helps_is_changed_first(name):
    body, wanted = REPORTED[name]
    status = 500 if name in OF_TEMPLATES else 400
    request = ModelRequest(messages=tuple(MESSAGES), tools=tuple(TOOLS))
    change = adaptation_for(from_body(body, status=status), request, ARGUMENTS, frozenset())
    assert change is not None
    assert change.code in wanted


def test_a_refusal_of_what_nobody_sent_ends_with_the_tools():
    """A server fills `tool_choice` in by itself."""
    error = from_body({"error": {"message": "Unsupported parameter: 'tool_choice'"}}, status=400)
    request = ModelRequest(messages=tuple(MESSAGES), tools=tuple(TOOLS))
    done: list[str] = []
    while (change := adaptation_for(error, request, ARGUMENTS, done)) is not None:
        done.append(change.code)
    assert done == ["tools_as_text", "drop:tools"]
