"""Too large in every server's words, with the numbers it names.

Collected from the servers; other lists are in test_overflow_fragments.py.
"""

from __future__ import annotations

import pytest

from chatapp.llm.errors import ErrorKind, Reaction
from tests.chatapp.llm.errors_as_sent import Row, meaning, names

OVERFLOW = ErrorKind.CONTEXT_OVERFLOW
INVALID = "invalid_request_error"

SERVERS = [
    Row(
        "OpenAI chat",
        "This model's maximum context length is 128000 tokens. However, your messages resulted in "
        "130512 tokens. Please reduce the length of the messages.",
        OVERFLOW,
        130512,
        128000,
        code="context_length_exceeded",
        type=INVALID,
    ),
    Row(
        "OpenAI GPT-5",
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in "
        "300017 tokens.",
        OVERFLOW,
        300017,
        272000,
        code="context_length_exceeded",
    ),
    Row(
        "OpenAI GPT-5", "Input tokens exceed the configured limit of 272000 tokens.", allowed=272000
    ),
    Row(
        "OpenAI Responses",
        "Your input exceeds the context window of this model. Please adjust your input.",
        code="context_length_exceeded",
    ),
    Row("OpenAI Responses stream", "", status=200, code="context_length_exceeded"),
    Row(
        "Azure OpenAI",
        "This model's maximum context length is 8192 tokens, however you requested 9001 tokens "
        "(5001 in your prompt; 4000 for the completion).",
        OVERFLOW,
        9001,
        8192,
        code="context_length_exceeded",
    ),
    Row(
        "Anthropic",
        "prompt is too long: 213462 tokens > 200000 maximum",
        OVERFLOW,
        213462,
        200000,
        type=INVALID,
    ),
    Row(
        "Anthropic",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease "
        "input length or `max_tokens` and try again",
        OVERFLOW,
        210000,
        200000,
        type=INVALID,
    ),
    Row(
        "Gemini",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        OVERFLOW,
        1200000,
        1048576,
        type="INVALID_ARGUMENT",
    ),
    Row(
        "Mistral",
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum "
        "context length",
        OVERFLOW,
        40000,
        32768,
        type=INVALID,
    ),
    Row(
        "Groq",
        "Please reduce the length of the messages or completion.",
        code="context_length_exceeded",
        type=INVALID,
    ),
    Row("Groq without a code", "Please reduce the length of the messages or completion."),
    Row(
        "Together",
        "The input (40000 tokens) is longer than the model's context length (32768 tokens).",
        OVERFLOW,
        40000,
        32768,
        type="BadRequestError",
    ),
    Row(
        "SGLang total",
        "Requested token count exceeds the model's maximum context length of 32768 tokens. You "
        "requested a total of 41000 tokens: 40000 tokens from the input messages and 1000 tokens "
        "for the completion.",
        OVERFLOW,
        41000,
        32768,
        type="BadRequestError",
    ),
    Row(
        "SGLang KV",
        "Input length (40000 tokens) exceeds the maximum allowed length (32768 tokens). Use a "
        "shorter input or enable --allow-auto-truncate.",
        OVERFLOW,
        40000,
        32768,
    ),
    Row(
        "TGI",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 "
        "`inputs` tokens and 512 `max_new_tokens`",
        OVERFLOW,
        4512,
        4096,
        status=422,
        type="validation",
    ),
    Row(
        "Fireworks",
        "The prompt is too long: 140000, model maximum context length: 131072",
        OVERFLOW,
        140000,
        131072,
        type=INVALID,
    ),
    Row(
        "OpenRouter",
        "This endpoint's maximum context length is 131072 tokens. However, you requested about "
        "200000 tokens (190000 of text input, 10000 in the output). Please reduce the length.",
        OVERFLOW,
        200000,
        131072,
        code=400,
    ),
    Row(
        "OpenRouter Poolside",
        "Prompt (140000 tokens) exceeds the maximum allowed input length of 131072 tokens",
        OVERFLOW,
        140000,
        131072,
    ),
    Row(
        "DeepSeek",
        "This model's maximum context length is 65536 tokens. However, you requested 70000 tokens "
        "(66000 in the messages, 4000 in the completion).",
        OVERFLOW,
        70000,
        65536,
        code=INVALID,
        type=INVALID,
    ),
    Row(
        "xAI",
        "This model's maximum prompt length is 131072 but the request contains 150000 tokens.",
        OVERFLOW,
        150000,
        131072,
    ),
    Row("Bedrock", "Input is too long for requested model.", type="ValidationException"),
    Row(
        "Bedrock Mantle",
        "prompt tokens (215000) exceed model maximum (200000)",
        OVERFLOW,
        215000,
        200000,
    ),
    Row(
        "vLLM",
        "This model's maximum context length is 8192 tokens. However, you requested 9216 tokens "
        "(5120 in the messages, 4096 in the completion).",
        OVERFLOW,
        9216,
        8192,
        code=400,
        type="BadRequestError",
    ),
    Row(
        "vLLM room",
        "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context "
        "length is 8192 tokens and your request has 5000 input tokens (4096 > 8192 - 5000).",
        OVERFLOW,
        9096,
        8192,
        code=400,
        type="BadRequestError",
    ),
    Row(
        "vLLM engine",
        "The decoder prompt (length 5000) is too long to fit into the model. Make sure that "
        "`max_model_len` is no smaller than the number of text tokens plus multimodal tokens.",
        OVERFLOW,
        5000,
    ),
    Row("vLLM disguised", "max_tokens must be at least 1, got -512.", code=400),
    Row(
        "llama.cpp text",
        "request (8123 tokens) exceeds the available context size (8000 tokens), try increasing it",
        OVERFLOW,
        8123,
        8000,
        type="exceed_context_size_error",
    ),
    Row(
        "llama.cpp before",
        "the request exceeds the available context size, try increasing it",
        status=500,
        type="server_error",
    ),
    Row("llama.cpp under 200", "the request exceeds the available context size", status=200),
    Row(
        "llama-cpp-python",
        "Requested tokens (5000) exceed context window of 4096",
        OVERFLOW,
        5000,
        4096,
    ),
    Row("Ollama", "prompt too long; exceeded max context length by 42 tokens"),
    Row("Ollama embeddings", "the input length exceeds the context length"),
    Row(
        "LM Studio",
        "The number of tokens to keep from the initial prompt is greater than the context length "
        "(n_keep: 5000>= n_ctx: 4096). Try to load the model with a larger context length.",
        OVERFLOW,
        5000,
        4096,
    ),
    Row(
        "LM Studio in a stream",
        "Trying to keep the first 5000 tokens when context the overflows. However, the model is "
        "loaded with context length of only 4096 tokens, which is not enough.",
        OVERFLOW,
        5000,
        4096,
        status=200,
    ),
    Row(
        "LiteLLM",
        "litellm.BadRequestError: litellm.ContextWindowExceededError: the upstream said no",
        code=400,
    ),
    Row(
        "Kimi",
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)",
        OVERFLOW,
        300000,
        262144,
    ),
    Row("MiniMax", "invalid params, context window exceeds limit (2013)"),
    Row(
        "Copilot code",
        "Something about the prompt.",
        code="model_max_prompt_tokens_exceeded",
    ),
    Row(
        "Copilot",
        "prompt token count of 135000 exceeds the limit of 128000",
        OVERFLOW,
        135000,
        128000,
    ),
    Row(
        "SiliconFlow",
        "length of prompt_tokens (98790) must be less than max_seq_len (98304).",
        OVERFLOW,
        98790,
        98304,
    ),
    Row("DashScope", "Range of input length should be [1, 30720]", allowed=30720),
    Row("Chinese proxy", "上下文长度超过限制"),
    Row("Chinese proxy", "上下文过长，请新建会话"),
    Row("Chinese proxy", "上下文超出模型限制"),
    Row("Chinese proxy", "上下文长度超"),
    Row("Chinese proxy", "超出最大上下文"),
    Row("Chinese proxy", "请压缩上下文后重试"),
]


@pytest.mark.parametrize("row", SERVERS, ids=names)
def test_a_request_that_is_too_large_is_an_overflow_in_every_servers_words(row):
    error = row.error()
    assert meaning(error) == (row.kind, row.observed, row.allowed)
    assert error.reaction is Reaction.RECOVERY
