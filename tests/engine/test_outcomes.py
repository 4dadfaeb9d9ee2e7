"""The limits of what counts as a summary, and what a strategy may say that it made."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compaction.engine.provenance import Unit, UnitKind
from compaction.engine.strategies.acceptance import (
    does_not_shrink,
    fault_of_outcome,
    implausible,
    is_cut_off,
    problem_of,
    refusal_of,
)
from compaction.engine.types import Item, Outcome, SummaryAnswer, SummaryRequest, ToolCall
from tests.fakes.summarizers import plain, shaped

REQUEST = SummaryRequest(
    kind="chunk",
    items=(
        Item(
            id=1, role="tool", text="The order PX-4471.", tool_name="look_up_2",
            tool_calls=(ToolCall(id="c", name="read_file", arguments='{"path": "etc/hosts_2"}'),),
        ),
    ),
    previous="The account DE-8812.",
    instructions="Name ticket TT-3333.",
)  # fmt: skip


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["Error: upstream ", "Please share the conversation "])
def test_only_a_short_text_is_taken_for_an_error_or_a_question(start):
    assert problem_of(SummaryAnswer(text=start.ljust(399, "x"))) != ""
    assert problem_of(SummaryAnswer(text=start.ljust(400, "x"))) == ""


def test_every_name_of_an_output_limit_is_known():
    names = ("length", "max_tokens", "model_length", "incomplete")
    assert all(is_cut_off(SummaryAnswer(text="half", finish_reason=one)) for one in names)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (SummaryAnswer(text="half", finish_reason="length"), "cut off at the output limit"),
        (SummaryAnswer(text=" "), "empty"),
        (SummaryAnswer(text="User: a\nAssistant: b"), "went on with the dialogue"),
    ],
)
def test_a_strategy_is_told_why_an_answer_does_not_count(answer, words):
    assert words in refusal_of(answer, REQUEST)


def test_a_strategy_is_told_nothing_of_an_answer_that_counts():
    assert refusal_of(SummaryAnswer(text="The order PX-4471 is late."), REQUEST) == ""


def test_what_does_not_shrink_is_told_with_both_sizes():
    assert does_not_shrink(10, 10) == (
        "The summary (10 tokens) is not smaller than what it replaces (10 tokens)."
    )


@pytest.mark.parametrize(
    ("lines", "is_echo"),
    [
        # Half of the lines, but not one alone.
        (["User: a", "Assistant: b", "c", "d"], True),
        (["User: a", "Assistant: b", "c", "d", "e"], False),
        (["User: a"], False),
        (["[1] user: a", "[2] tool b", "", "  "], True),
    ],
)
def test_half_of_the_lines_are_a_dialogue(lines, is_echo):
    assert bool(implausible("\n".join(lines), REQUEST)) is is_echo


# Each has sixteen characters without its full stop.
A, B, C, D = ("this has sixteen", "that has sixteen", "here has sixteen", "what has sixteen")


@pytest.mark.parametrize(
    ("sentences", "repeats"),
    [
        # A quarter is too much, a fifth is not; capital letters make no difference.
        ([A, B, C, A], True),
        ([A, B, C, A.upper()], True),
        ([A, B, C, D, A], False),
        # 17 of 82 characters are more than a fifth.
        ([f"{A}s", B, C, D, f"{A}s"], True),
        ([A, B, C, A, B, C], True),
        # Three are too few to tell, and so are those that are shorter.
        ([A, B, A], False),
        (["this is fifteen", "that is fifteen", "this is fifteen"] * 2, False),
    ],
)
def test_a_fifth_of_the_sentences_may_stand_there_twice(sentences, repeats):
    text = "".join(f"{one}.\n" for one in sentences)
    assert ("repeated itself" in implausible(text, REQUEST)) is repeats


def test_a_text_is_far_too_long_at_twenty_thousand_characters():
    text = "never mind " * 2000
    assert implausible(text[:19_999], REQUEST) == ""
    assert "repeated itself" in implausible(text[:20_000], REQUEST)


@pytest.mark.parametrize(
    ("text", "invented"),
    [
        # More than half of three or more.
        ("PX-4471, QQ-1111 and RR-2222.", "QQ-1111 for example (2 in all)"),
        ("PX-4471, DE-8812, QQ-1111 and RR-2222.", ""),
        ("QQ-1111 and RR-2222.", ""),
        # Each counts once.
        ("PX-4471, DE-8812, QQ-1111, QQ-1111 and QQ-1111.", ""),
        # Names of tools, their arguments and the instructions were written by somebody, too.
        ("look_up_2, read_file, etc/hosts_2, tt-3333 and de-8812.", ""),
    ],
)
def test_most_of_what_is_named_was_written_by_somebody(text, invented):
    found = implausible(text, REQUEST)
    assert (invented in found) if invented else (found == "")


def test_what_earlier_passes_kept_was_written_by_somebody():
    """A merge's texts are shorter than the clauses that a summariser without a model chooses of."""
    text = "Orders QQ-1111, RR-2222 and SS-3333 are late."
    kept = Unit(text=text, kind=UnitKind.FACT, speaker="user", position=1)
    merge = SummaryRequest(kind="merge", texts=("Two orders.", "One order."))
    assert "QQ-1111 for example (3 in all)" in implausible(text, merge)
    assert implausible(text, replace(merge, units=(kept,))) == ""


# --- outcomes -------------------------------------------------------------------------------------


def outcome(items, **changes) -> Outcome:
    made = Outcome(
        text="s", items=tuple(items), chunk_count=1, max_depth=0, truncated=False,
        input_tokens=10, output_tokens=1,
    )  # fmt: skip
    return replace(made, **changes)


def test_an_outcome_over_all_items_is_sound():
    items = plain(4)
    assert fault_of_outcome(outcome(items), items, whole=False) == ""
    assert fault_of_outcome(outcome(items), items, whole=True) == ""


def test_it_may_have_read_the_oldest_ones_where_no_group_is_parted():
    items = shaped("ua1taua")
    assert fault_of_outcome(outcome(items[:4]), items, whole=False) == ""
    assert "left out messages" in fault_of_outcome(outcome(items[:3]), items, whole=False)
    assert "left out messages" in fault_of_outcome(outcome(items[:4]), items, whole=True)


@pytest.mark.parametrize(
    "read", [[], plain(4)[1:], plain(4)[::-1], plain(5)], ids=["none", "gap", "order", "more"]
)
def test_it_read_what_it_was_given(read):
    fault = fault_of_outcome(outcome(read), plain(4), whole=False)
    assert fault == "says that it read other messages than it was given"


def test_something_else_is_no_outcome():
    assert "something else" in fault_of_outcome("text", plain(2), whole=False)


@pytest.mark.parametrize(
    "changes", [{"metadata": {"a": object()}}, {"files_read": (b"a",)}, {"files_modified": (b"a",)}]
)
def test_what_it_wants_stored_can_be_stored(changes):
    fault = fault_of_outcome(outcome(plain(2), **changes), plain(2), whole=False)
    assert "cannot be stored as JSON" in fault
