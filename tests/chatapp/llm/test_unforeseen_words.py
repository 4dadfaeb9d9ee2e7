"""Refusals in words that nobody has collected: what is alike in them is enough to be understood.

Numbers, names and orders are drawn by the printed seed; the sentences are built, not quoted.
"""

from __future__ import annotations

import random

import pytest

from chatapp.llm.errors import ErrorKind, from_body
from tests.chatapp.llm.errors_as_sent import Row, names
from tests.facts import seed

OVERFLOW = ErrorKind.CONTEXT_OVERFLOW

# {a} is what was sent, {b} the most; {t} names what is counted.
COMPARISONS = (
    "Prompt has {a} {t}, but the configured context size is {b} {t}",
    "your conversation holds {a} {t}; this deployment can only handle {b}",
    "cannot put {a} prompt {t} into a window of {b}",
    "Value error, prompt has {a} {t}, max is {b}",
    "{t} in the request: {a}, allowed: {b}",
    "sequence of {a} > {b}",
    "the request takes {a} {t}, which is over the {b} limit",
    "input_tokens {a} + max_tokens 64 > max_seq_len {b}",
)
NO_COMPARISONS = (
    "The model llama-{b} does not exist",
    "request {a} failed in the context of deployment {b}",
    "prompt file has {a} bytes, the limit is {b} bytes",
    "the thinking budget of {a} tokens is over the maximum of {b}",
    "caching needs a minimum of {a} tokens, the prompt has {b}",
    "image of {a}x{a} pixels in the prompt, maximum {b}",
    "seed {a} is out of range for at most {b}",
    "error {a}: cannot reach host in 2 seconds, limit {b} tokens",
    "prompt-caching-2024-07-31 is not supported for maker-3-large-20240229",
    "the context-1m-2025-08-07 beta is not supported by maker-4-20250514",
    "unexpected token < at position {a}, line {b}",
    "budget_tokens {b} in the prompt must be over {a}",
    "token id {a} is over the limit of {b}",
)


def _number(chance: random.Random, value: int) -> str:
    return chance.choice((str(value), f"{value:,}"))


def _filled(template: str, chance: random.Random) -> str:
    most = chance.randrange(1_000, 900_000)
    sent = most + chance.randrange(1, most)
    values = {
        "a": _number(chance, sent),
        "b": _number(chance, most),
        "t": chance.choice(("tokens", "Tokens", "prompt tokens")),
    }
    return template.format(**values)


@pytest.mark.parametrize("template", COMPARISONS)
def test_more_tokens_than_a_number_that_is_the_most_are_too_many_in_any_words(template):
    chance = random.Random(f"{seed()} {template}")
    for _ in range(5):
        text = _filled(template, chance)
        error = from_body({"error": {"message": text}}, status=chance.choice((400, 413, 422)))
        assert error.kind is OVERFLOW, text


@pytest.mark.parametrize("template", NO_COMPARISONS)
def test_two_numbers_alone_are_no_overflow(template):
    chance = random.Random(f"{seed()} {template}")
    for _ in range(5):
        text = _filled(template, chance)
        assert from_body({"error": {"message": text}}, status=400).kind is not OVERFLOW, text


@pytest.mark.parametrize(
    "text",
    [
        "The session token has exceeded its lifetime",
        "refresh token too long",
        "令牌已超过有效期，请重新登录",
        "user prompt: image is too large for the model",
    ],
)
def test_tokens_of_other_kinds_and_pictures_that_are_too_much_are_no_overflow(text):
    assert from_body({"error": {"message": text}}, status=400).kind is not OVERFLOW


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Token budget exceeded: the prompt has 9,000 tokens, the context 8,192.", OVERFLOW),
        ("This request would exceed the context budget.", OVERFLOW),
        ("max_tokens exceeds the thinking budget", ErrorKind.OUTPUT_LIMIT),
        ("The thinking budget exceeds the maximum of 24576.", ErrorKind.REJECTED),
        ("Budget has been exceeded! Current cost: 10, max budget: 5", ErrorKind.QUOTA),
        ("This key is over budget.", ErrorKind.QUOTA),
    ],
)
def test_a_budget_is_an_accounts_where_it_is_no_models_or_requests(text, kind):
    assert from_body({"error": {"message": text}}, status=400).kind is kind


def test_a_rate_of_long_requests_is_a_rate():
    text = "This would exceed your rate limit of {} input tokens per minute for long context {}."
    text = text.format("1,000,000", "requests")
    assert from_body({"error": {"message": text}}, status=429).kind is ErrorKind.RATE_LIMITED


@pytest.mark.parametrize(
    "text",
    [
        "La requête dépasse la longueur de contexte du modèle.",
        "Die Eingabe überschreitet die maximale Kontextlänge.",
        "El mensaje supera la longitud máxima del contexto.",
        "O texto excede o tamanho do contexto.",
        "Il contesto supera la lunghezza consentita.",
        "Длина контекста превышает допустимую.",
        "入力がモデルの最大コンテキスト長を超えています。",
        "토큰 수가 한도를 초과했습니다.",
        "Prompt 超长",
        "请求的 token 数超出模型上限",
        "输入内容过长，请缩短后重试",
    ],
)
def test_a_length_and_an_excess_are_understood_in_other_languages(text):
    assert from_body({"error": {"message": text}}, status=400).kind is OVERFLOW


@pytest.mark.parametrize(
    "text", ["请求过于频繁，超出速率限制", "トークンの rate limit を超えました"]
)
def test_a_rate_is_no_length_in_other_languages_either(text):
    assert from_body({"error": {"message": text}}, status=400).kind is ErrorKind.RATE_LIMITED


def test_a_gateways_wrapping_is_looked_into_under_any_name_that_says_error():
    chance = random.Random(seed())
    inner = {"message": "Input is too long for requested model."}
    for key in ("external_model_error", "upstreamError", "provider_error", "original_error"):
        body = {"message": "Bad gateway answer", key: inner}
        status = chance.choice((400, 424))
        assert from_body(body, status=status).kind is OVERFLOW, key


@pytest.mark.parametrize(
    "body",
    [
        {"fault": {"faultstring": "{}"}},
        {"errorMessage": "{}"},
        {"status": "error", "description": "{}"},
        {"err": "{}"},
        {"errors": ["{}"]},
        {"title": "Bad Request", "errorDetail": {"cause": "{}"}},
    ],
)
def test_a_body_of_a_form_that_nobody_knows_is_read_by_its_names(body):
    def filled(value):
        if isinstance(value, dict):
            return {key: filled(one) for key, one in value.items()}
        if isinstance(value, list):
            return [filled(one) for one in value]
        return value.replace("{}", "prompt is too long: 9000 tokens > 8192 maximum")

    error = from_body(filled(body), status=400)
    assert (error.kind, error.observed, error.allowed) == (OVERFLOW, 9000, 8192)


def test_what_such_a_body_quotes_is_not_judged():
    quoted = "prompt is too long: 9000 tokens > 8192 maximum"
    for body in ({"content": quoted}, {"request": {"prompt": quoted}}, {"messages": [quoted]}):
        assert from_body(body, status=400).kind is ErrorKind.REJECTED


OTHERS = [
    Row("account", "Long context requests need extra usage", OVERFLOW, status=403),
    Row("account", "The long context beta is not available to you", OVERFLOW, status=429),
    Row("proxy", "Budget has been exceeded!", ErrorKind.QUOTA, type="budget_exceeded"),
    Row("proxy", "User over budget", ErrorKind.QUOTA, status=429, code="ExceededBudget"),
    Row("router", "Key limit exceeded (total limit)", ErrorKind.QUOTA, status=403),
    Row("filter", "Content Exists Risk", ErrorKind.CONTENT_FILTER),
    Row("filter", "内容可能包含敏感信息", ErrorKind.CONTENT_FILTER),
    Row("filter", "Blocked by a guardrail", ErrorKind.CONTENT_FILTER, status=403),
    Row("length", "max_tokens is above what this model writes", ErrorKind.OUTPUT_LIMIT),
    Row("length", "max_completion_tokens must be no more than 4096", ErrorKind.OUTPUT_LIMIT,
        None, 4096),
    Row("length", "The maximum tokens you requested exceeds the model limit of 8192.",
        ErrorKind.OUTPUT_LIMIT, None, 8192),
    Row("list", "List should have at most 100 items after validation, not 101",
        ErrorKind.TOO_MANY_MESSAGES, None, 100, param="messages"),
    Row("text", "String should have at most 1000 characters", ErrorKind.MESSAGE_TOO_LONG, None,
        1000, param="messages.0.content.0.text"),
    Row("pairs", "tool call result does not follow tool call", ErrorKind.BROKEN_PAIRS),
    Row("pairs", "Message has tool role, but there was no previous call", ErrorKind.BROKEN_PAIRS),
    Row("arguments", "[json.exception.parse_error.101] parse error at line 1, column 30",
        ErrorKind.ARGUMENTS_REFUSED, status=500),
    Row("ids", "Duplicate tool call id: c1", ErrorKind.IDS_REFUSED),
    Row("tools", "Tool 'search' not found in provided tools", ErrorKind.TOOLS_REFUSED),
    Row("tools", "No endpoints found that support tool use", ErrorKind.TOOLS_REFUSED, status=404),
    Row("tools", '"auto" tool choice requires a parser', ErrorKind.TOOLS_REFUSED),
    Row("images", "No endpoints found that support image input", ErrorKind.PARTS_REFUSED,
        status=404),
    Row("texts", "invalid type: sequence, expected a string", ErrorKind.PARTS_REFUSED),
    Row("template", "Value is not callable: null at row 49, column 79", ErrorKind.REJECTED,
        status=500),
    Row("order", "No user query found in messages.", ErrorKind.ROLE_ORDER, status=500),
    Row("system", "developer instruction is not enabled for this model", ErrorKind.SYSTEM_ORDER),
    Row("system", "messages[0].role does not support 'system' with this model",
        ErrorKind.SYSTEM_ORDER),
    Row("thoughts", "messages.1.content.0.type: Expected `thinking`", ErrorKind.THOUGHTS_REFUSED),
    Row("thoughts", "property 'reasoning' is unsupported", ErrorKind.THOUGHTS_REFUSED),
    Row("parameter", "Unknown parameter: 'reasoning.effort'", ErrorKind.PARAMETER_REFUSED,
        code="unknown_parameter", param="reasoning.effort"),
    Row("parameter", "Argument not supported: reasoningEffort", ErrorKind.PARAMETER_REFUSED),
    Row("parameter", "参数 temperature 不支持", ErrorKind.PARAMETER_REFUSED),
    Row("parameter", "temperature and top_p cannot both be specified",
        ErrorKind.PARAMETER_REFUSED),
    Row("full", "The context window is full; please compact", OVERFLOW),
    Row("full", "This conversation has reached its maximum length.", OVERFLOW),
    Row("above", "the prompt's length is above the model's limit", OVERFLOW),
    Row("pictures", "At most 5 image(s) may be provided in one request.", ErrorKind.BODY_TOO_LARGE),
    Row("pictures", "vision tokens exceed the budget", ErrorKind.BODY_TOO_LARGE,
        code="media_budget_exceeded"),
    Row("nothing", "invalid message content type: <nil>", ErrorKind.PARTS_REFUSED),
    Row("nothing", "messages.1.content: none is not an allowed value", ErrorKind.PARTS_REFUSED),
    Row("filter", "rejected as a result of our safety system", ErrorKind.CONTENT_FILTER),
    Row("order", "A model turn cannot be followed by a model turn", ErrorKind.ROLE_ORDER),
    Row("calls", "This model only supports single tool-calls at once!", ErrorKind.TOOLS_REFUSED),
    Row("passing", "request failed: socket hang up", ErrorKind.UNAVAILABLE),
    Row("key", "API key not valid. Please pass a valid API key.", ErrorKind.AUTHENTICATION),
    Row("key", "invalid token (request id: x)", ErrorKind.AUTHENTICATION),
    Row("no key", "invalid token in the JSON body", ErrorKind.REJECTED),
    Row("no key", "invalid token '<' at position 3", ErrorKind.REJECTED),
    Row("passing", "The service is at capacity, please try again later", ErrorKind.UNAVAILABLE),
    Row("passing", "No instances available (overloaded)", ErrorKind.UNAVAILABLE, status=404),
    Row("passing", "Upstream error: connection reset by peer", ErrorKind.UNAVAILABLE),
    Row("passing", "系统繁忙，请稍后再试", ErrorKind.UNAVAILABLE),
    Row("lasting", "Shorten the name and try again.", ErrorKind.REJECTED),
    Row("account", "Access denied", ErrorKind.QUOTA, code="Arrearage"),
    Row("account", "已达到本月用量上限", ErrorKind.QUOTA, status=429),
    Row("path", "Unknown request URL: POST /v1/responses.", ErrorKind.WRONG_WIRE, status=404),
]  # fmt: skip


@pytest.mark.parametrize("row", OTHERS, ids=names)
def test_each_kind_is_told_by_what_all_of_its_wordings_share(row):
    error = row.error()
    assert error.kind is row.kind
    if row.allowed:
        assert error.allowed == row.allowed
