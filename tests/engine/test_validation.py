"""Which answers count (docs/architecture.md#only-a-real-summary-counts)."""

from __future__ import annotations

import pytest

from compaction.engine.strategies.acceptance import does_not_shrink, is_cut_off, problem_of
from compaction.engine.types import SummaryAnswer


def problem(text: str, **changes) -> str:
    return problem_of(SummaryAnswer(text=text, **changes))


@pytest.mark.parametrize(
    "text",
    [
        "The user wants a refund of 30 EUR for order A-17.",
        "Decisions: errors are logged as JSON.",
        "# Requests\nError: the build failed with exit status 2, reported by the user. "
        + "x" * 400,
        "用户要求退款三十元。",
        "Please note that the user asked for the report by Friday.",
    ],
)
def test_a_summary_counts(text):
    assert problem(text) == ""


@pytest.mark.parametrize("text", ["", "   ", "\n\t\n"])
def test_an_empty_answer_does_not_count(text):
    assert "empty" in problem(text)


def test_a_tool_call_does_not_count_even_with_a_text():
    assert "tool" in problem("I will look it up.", has_tool_calls=True)


@pytest.mark.parametrize(
    "text",
    [
        "Error: upstream connect error or disconnect/reset before headers",
        '{"error": {"message": "overloaded"}}',
        "<!DOCTYPE html><html><body>502 Bad Gateway</body></html>",
        "Internal Server Error",
        "Traceback (most recent call last):",
    ],
)
def test_the_text_of_an_error_does_not_count(text):
    assert "error" in problem(text)


@pytest.mark.parametrize(
    "text",
    [
        "Please provide the conversation you would like me to summarize.",
        "I'm sorry, but I don't see any conversation here.",
        "Could you share the transcript?",
    ],
)
def test_asking_for_the_conversation_does_not_count(text):
    assert "asked for the conversation" in problem(text)


@pytest.mark.parametrize("reason", ["content_filter", "error", "failed", "aborted"])
def test_an_answer_that_was_stopped_does_not_count(reason):
    assert reason in problem("The user", finish_reason=reason)


@pytest.mark.parametrize(
    ("reason", "cut"),
    [("length", True), ("max_tokens", True), ("incomplete", True), ("stop", False), ("", False)],
)
def test_an_answer_at_the_output_limit_is_cut_off(reason, cut):
    assert is_cut_off(SummaryAnswer(text="half", finish_reason=reason)) is cut


@pytest.mark.parametrize(("before", "after"), [(10, 10), (10, 11), (0, 0)])
def test_what_is_not_smaller_is_refused_with_both_sizes(before, after):
    assert str(after) in does_not_shrink(before, after)


def test_what_is_smaller_may_replace():
    assert does_not_shrink(10, 9) == ""
