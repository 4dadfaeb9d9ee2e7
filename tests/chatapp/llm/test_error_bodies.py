"""What is read of an error body: every shape of one, and never what it quotes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatapp.llm.errors import ErrorKind, from_body

TOO_LONG = "maximum context length is 4096 tokens"
SPEAKS = "Why do I get: prompt is too long: 213462 tokens > 200000 maximum? context_length_exceeded"


@pytest.mark.parametrize(
    "body",
    [
        {"error": TOO_LONG},
        {"error": TOO_LONG, "error_type": "validation"},
        TOO_LONG,
        json.dumps({"error": {"message": TOO_LONG}}),
        {"object": "error", "message": TOO_LONG, "code": 400},
        {"message": TOO_LONG, "code": 400, "type": None},
        {"Message": TOO_LONG},
        {"detail": TOO_LONG},
        {"detail": [{"loc": ["body"], "msg": TOO_LONG, "type": "value_error"}]},
        {"message": {"detail": [{"msg": TOO_LONG}]}, "type": "invalid_request_error"},
        [{"error": {"code": 400, "message": TOO_LONG}}],
        {"errors": [{"message": TOO_LONG}]},
        {"error": {"message": f"litellm.BadRequestError: Error code: 400 - {{'error': "
                   f"{{'message': '{TOO_LONG}'}}}}"}},
    ],
)  # fmt: skip
def test_every_shape_of_an_error_body_is_read(body):
    error = from_body(body, status=400)
    assert (error.kind, error.allowed) == (ErrorKind.CONTEXT_OVERFLOW, 4096)


def test_an_error_that_a_router_passes_on_is_read():
    raw = json.dumps({"error": {"message": TOO_LONG, "type": "invalid_request_error"}})
    body = {
        "error": {
            "message": "Provider returned error",
            "code": 400,
            "metadata": {"raw": raw, "provider_name": "Some"},
        }
    }
    assert from_body(body, status=400).allowed == 4096


def test_llama_cpps_numeric_fields_count_more_than_its_text():
    body = {
        "error": {
            "code": 400,
            "message": "request (1 tokens) exceeds the available context size (2 tokens)",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": 8123,
            "n_ctx": 8000,
        }
    }
    error = from_body(body, status=400)
    assert (error.observed, error.allowed) == (8123, 8000)


@pytest.mark.parametrize(
    ("sent", "window", "kind"),
    [
        (8123, 8000, ErrorKind.CONTEXT_OVERFLOW),
        (8000, 8000, ErrorKind.CONTEXT_OVERFLOW),
        (7999, 8000, ErrorKind.REJECTED),
        (8123, 0, ErrorKind.REJECTED),
    ],
)
def test_the_numeric_fields_are_enough_by_themselves(sent, window, kind):
    body = {"error": {"message": "No.", "n_prompt_tokens": sent, "n_ctx": window}}
    assert from_body(body, status=400).kind is kind


@pytest.mark.parametrize(
    "body", [[], {}, {"error": None}, {"error": {}}, 7, "null", {"input": "x"}]
)
def test_a_body_that_says_nothing_is_a_refusal_with_the_status(body):
    error = from_body(body, status=400, fallback="HTTP 400")
    assert (error.kind, error.status) == (ErrorKind.REJECTED, 400)


def test_where_nothing_is_said_people_get_the_fallback():
    assert from_body({}, status=400, fallback="HTTP 400").detail == "HTTP 400"


def test_the_fallback_is_not_judged():
    assert from_body({}, status=400, fallback=SPEAKS).kind is ErrorKind.REJECTED


@pytest.mark.parametrize(
    "body",
    [
        {"detail": [{"loc": ["body", "x"], "msg": "Field required", "input": {"content": SPEAKS}}]},
        {"error": {"message": "Bad role.", "input": SPEAKS, "messages": [{"content": SPEAKS}]}},
        {"error": {"message": "Bad tool call.", "failed_generation": SPEAKS}},
        {"error": {"message": f"Invalid: {{'input': '{SPEAKS}'}}"}},
        {"error": {"message": json.dumps([{"msg": "Field required", "input": SPEAKS}])}},
        {"error": {"message": f"1 error: messages [type=x, input_value='{SPEAKS}', input_type=a]"}},
        {"error": {"message": f"Errors: [{{'msg': 'Bad', 'input': '{SPEAKS} and so on, cut off"}},
        {"message": {"role": "assistant", "content": SPEAKS}},
    ],
)
def test_what_the_error_quotes_of_the_conversation_is_not_judged(body):
    error = from_body(body, status=422)
    assert (error.kind, error.observed, error.allowed) == (ErrorKind.REJECTED, None, None)
    assert "213462" not in error.detail


def test_a_code_is_kept_as_the_server_wrote_it():
    body = {"error": {"message": "x", "type": "invalid_request_error", "code": "Some_Code"}}
    assert from_body(body, status=400).code == "Some_Code"
    assert from_body({"error": {"message": "x", "type": "T"}}, status=400).code == "T"
    assert (
        from_body({"error": {"message": "x", "code": 400, "type": "T"}}, status=400).code == "400"
    )


@pytest.mark.parametrize(
    ("written", "allowed"),
    [
        ("128000", 128000),
        ("128,000", 128000),
        ("128 000", 128000),
        ("128_000", 128000),
        ("128\u2009000", 128000),
        ("128\u202f000", 128000),
        ("128\u00a0000", 128000),
        ("1,048,576", 1048576),
        ("128k", 128000),
    ],
)
def test_numbers_are_read_with_every_separator_of_thousands(written, allowed):
    error = from_body(f"maximum context length is {written} tokens", status=400)
    assert error.allowed == allowed


@pytest.mark.parametrize(
    ("message", "observed", "allowed"),
    [
        ("Token limit exceeded: requested 150,000, max 128,000", 150000, 128000),
        ("prompt is too long: 210 000 tokens > 200 000 maximum", 210000, 200000),
        ("exceed context limit: 190,000 + 20,000 > 200,000", 210000, 200000),
        ("the context window is exceeded, see error 4711", None, None),
    ],
)
def test_what_was_sent_and_what_is_allowed_are_told_apart(message, observed, allowed):
    error = from_body(message, status=400)
    assert error.kind is ErrorKind.CONTEXT_OVERFLOW
    assert (error.observed, error.allowed) == (observed, allowed)


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        ("Rate limit reached. Please try again in 6.5s.", 6.5),
        ("Rate limit reached. Please try again in 7m12.5s.", 432.5),
        ("Rate limit reached. Please try again in 120ms.", 0.12),
        ("Rate limit reached. Retry after 30 seconds.", 30),
        ("Rate limit reached. Try again in 2 minutes.", 120),
        ("Rate limit reached. Please try again.", None),
        ({"error": {"code": 429, "details": [{"retryDelay": "37s"}], "message": "Quota"}}, 37),
    ],
)
def test_a_wait_that_stands_in_the_text_is_read(body, seconds):
    assert from_body(body, status=429).retry_after == seconds


def test_the_wait_of_the_header_counts_more():
    assert from_body("Try again in 6s.", status=429, retry_after=2.0).retry_after == 2.0


def test_a_very_deep_body_is_survived():
    body: dict = {"message": "deepest"}
    for _ in range(200):
        body = {"error": body}
    assert from_body(body, status=400).kind is ErrorKind.REJECTED
    assert from_body("[{" * 50_000, status=400).kind is ErrorKind.REJECTED


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "message", "code", "type", "details", "param", "n_ctx", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(body=JSON, status=st.sampled_from([None, 200, 400, 413, 429, 500]))
def test_no_body_is_too_strange_to_be_judged(body, status):
    error = from_body(body, status=status)
    assert error.kind in ErrorKind
    assert error.status == status
