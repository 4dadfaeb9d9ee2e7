"""Overflows without an error: read from the reason and the usage of an answer."""

from __future__ import annotations

import pytest

from chatapp.llm.errors import ErrorKind, exceeds_window, silent_overflow, truncates_silently
from chatapp.llm.requests import Reply

CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def answer(prompt: int | None, completion: int | None = 0, **fields) -> Reply:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion}
    return Reply(**{"finish_reason": "length", "usage": usage} | fields)


@pytest.mark.parametrize(
    ("prompt", "completion", "window", "overflow"),
    [
        (58 + 1_048_512, 0, 1_048_576, True),
        (100, 0, 200_000, False),
        (58 + 1_048_512, 4096, 1_048_576, False),
        (198_000, 0, 200_000, True),
        (197_999, 0, 200_000, False),
        (198_000, None, 200_000, True),
        (None, 0, 200_000, False),
        (198_000, 0, 0, False),
    ],
)
def test_an_answer_cut_at_once_by_a_full_window_is_an_overflow(
    prompt, completion, window, overflow
):
    assert (silent_overflow(answer(prompt, completion), window) is not None) is overflow


def test_it_says_how_much_was_sent_and_keeps_the_usage():
    reply = answer(198_000)
    error = silent_overflow(reply, 200_000)
    assert error is not None
    assert (error.kind, error.observed) == (ErrorKind.CONTEXT_OVERFLOW, 198_000)
    assert (error.code, error.partial) == ("length", reply)


@pytest.mark.parametrize("word", ["LENGTH", "MAX_TOKENS", "max_output_tokens", "incomplete"])
def test_the_end_is_read_in_any_spelling(word):
    assert silent_overflow(answer(198_000, 0, finish_reason=word), 200_000) is not None
    assert not exceeds_window(answer(201, text="yes", finish_reason=word), 200)


@pytest.mark.parametrize("word", ["STOP", "eos", "end_turn", "TOOL_CALLS", "tool_use"])
def test_a_finished_answer_is_one_in_any_spelling(word):
    assert exceeds_window(answer(201, text="yes", finish_reason=word), 200)


@pytest.mark.parametrize("reason", ["model_length", "model_context_window_exceeded"])
@pytest.mark.parametrize("usage", [None, {"prompt_tokens": 10, "completion_tokens": 0}])
def test_an_empty_answer_that_ended_at_the_window_is_an_overflow(reason, usage):
    error = silent_overflow(Reply(finish_reason=reason, usage=usage), 0)
    assert error is not None
    assert error.is_overflow


def test_an_empty_answer_to_a_prompt_larger_than_the_window_is_an_overflow():
    assert silent_overflow(answer(201, finish_reason="stop"), 200) is not None
    assert silent_overflow(answer(200, finish_reason="stop"), 200) is None


@pytest.mark.parametrize("reason", ["length", "model_length", "model_context_window_exceeded"])
@pytest.mark.parametrize("produced", [{"text": "part"}, {"tool_calls": (CALL,)}, {"refusal": "no"}])
def test_an_answer_with_something_in_it_is_never_thrown_away(reason, produced):
    assert silent_overflow(answer(200_000, 0, finish_reason=reason, **produced), 200_000) is None


def test_an_answer_that_was_all_reasoning_is_cut_and_no_overflow():
    assert silent_overflow(answer(199_000, 0, reasoning="Let me think"), 200_000) is None


@pytest.mark.parametrize(
    ("prompt", "window", "exceeds"),
    [(150 + 51, 200, True), (150 + 50, 200, False), (201, 0, False), (None, 200, False)],
)
def test_a_prompt_larger_than_the_window_is_noticed_on_a_finished_answer(prompt, window, exceeds):
    usage = {"prompt_tokens": prompt, "prompt_tokens_details": {"cached_tokens": 51}}
    assert exceeds_window(Reply(text="yes", usage=usage), window) is exceeds


def test_a_report_of_another_shape_or_an_unfinished_answer_says_nothing_about_the_window():
    assert not exceeds_window(Reply(text="yes", usage=None), 200)
    assert not exceeds_window(Reply(text="yes", usage={"prompt_tokens": "many"}), 200)
    assert not exceeds_window(answer(201, text="yes", finish_reason="length"), 200)


@pytest.mark.parametrize(
    ("reported", "counted", "truncated"),
    [
        (4096, 20_000, True),
        (2050, 20_000, True),
        (11_999, 20_000, True),
        (12_000, 20_000, False),
        (19_000, 20_000, False),
        (25_000, 20_000, False),
        (100, 1_100, True),
        (101, 1_100, False),
        (10, 900, False),
        (0, 20_000, False),
        (None, 20_000, False),
    ],
)
def test_a_server_that_reports_far_less_than_was_sent_left_something_out(
    reported, counted, truncated
):
    assert truncates_silently(reported, counted) is truncated
