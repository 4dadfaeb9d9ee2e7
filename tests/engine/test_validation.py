"""Which answers count (docs/architecture.md#only-a-real-summary-counts)."""

from __future__ import annotations

import pytest

from compaction.engine.strategies.acceptance import (
    does_not_shrink,
    end_note,
    is_cut_off,
    problem_of,
    ran_out_of_room,
)
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


@pytest.mark.parametrize("text", ["." * 40_000, "…", "- - - -", "─" * 500, "." * 900 + "a" * 90])
def test_signs_without_letters_and_digits_do_not_count(text):
    assert "hardly a letter" in problem(text)


def test_a_table_counts():
    assert problem("| order | city |\n|-------|------|\n" + "| PX-1 | Rome |\n" * 40) == ""


@pytest.mark.parametrize("end", ["filtered", "refused", "broken"])
def test_an_end_that_is_none_never_counts(end):
    assert "stopped with WORD" in problem("A sentence.", finish_reason="WORD", end=end)


def test_an_end_with_tool_calls_is_no_summary_even_if_the_calls_are_gone():
    assert "tool" in problem("A sentence.", finish_reason="TOOL_USE", end="tool_calls")


def test_a_cut_in_any_spelling_is_one():
    cut = SummaryAnswer(text="A sentence.", finish_reason="MAX_TOKENS", end="cut")
    assert is_cut_off(cut)
    whole = SummaryAnswer(text="A sentence.", finish_reason="length", end="whole")
    assert not is_cut_off(whole)


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("The deposit is MK-0001.", False),
        ("定金是MK-0001。", False),
        ('He said: "no."', False),
        ("# Facts\n- MK-0001\n- MK-0002", False),
        ("Requests: the deposit is MK-0001 and the", True),
        ("# Facts\n- The deposit is paid.\n- The next pay", True),
        ("- one", True),
        ("", True),
    ],
)
def test_an_unknown_end_is_judged_by_the_text(text, cut):
    answer = SummaryAnswer(text=text, finish_reason="weird", end="unknown")
    assert is_cut_off(answer) is cut


def test_an_unknown_end_is_noted():
    answer = SummaryAnswer(text="All.", finish_reason="weird", end="unknown")
    assert "'weird'" in end_note(answer)
    assert "no word" in end_note(SummaryAnswer(text="All.", finish_reason="", end="unknown"))
    assert end_note(SummaryAnswer(text="All.", end="whole")) == ""


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"text": ""}, True),
        ({"text": "Half", "has_thoughts": True}, True),
        ({"text": "Half"}, False),
        ({"text": "", "had_whole_room": True}, False),
        ({"text": "", "end": "whole"}, False),
    ],
)
def test_thoughts_may_have_used_up_the_room(changes, expected):
    assert ran_out_of_room(SummaryAnswer(**{"end": "cut"} | changes)) is expected


@pytest.mark.parametrize(("before", "after"), [(10, 10), (10, 11), (0, 0)])
def test_what_is_not_smaller_is_refused_with_both_sizes(before, after):
    assert str(after) in does_not_shrink(before, after)


def test_what_is_smaller_may_replace():
    assert does_not_shrink(10, 9) == ""
