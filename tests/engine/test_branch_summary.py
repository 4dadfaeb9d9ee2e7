"""Which entries of a branch that is left are summarised, and what tells the summary."""

from __future__ import annotations

import pytest

from compaction.engine.parameters import Profile
from compaction.engine.strategies.branch_summary import (
    TITLE,
    BranchEntry,
    BranchSummary,
    as_told,
    entries_within,
    files_together,
    note_text,
    reading_budget,
)
from compaction.engine.strategies.prompts import DATA_RULE, instruction_of, messages_for
from compaction.engine.types import Item, SummaryAnswer, SummaryJob, SummaryRequest, ToolCall


class Words:
    """Counts words."""

    def count(self, text: str) -> int:
        return len(text.split())


class Listener:
    """A summariser that remembers what it was asked and answers the same every time."""

    def __init__(self, text: str = "## Goal\nShip it by Friday, said the user.") -> None:
        self.requests: list[SummaryRequest] = []
        self._text = text

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        self.requests.append(request)
        return SummaryAnswer(text=self._text, input_tokens=10, output_tokens=9)

    def input_limit(self, target_tokens: int) -> int | None:
        return None


def entry(name: str, tokens: int, *, role: str = "user", is_summary: bool = False) -> BranchEntry:
    item = Item(id=name, role=role, text=name, tokens=tokens, is_note=is_summary)
    return BranchEntry(item=item, is_summary=is_summary)


ENTRIES = [
    entry("compaction", 40, is_summary=True),
    entry("u", 30),
    entry("t", 500, role="tool"),
    entry("a", 30, role="assistant"),
]


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (59, ["a"]),
        (60, ["u", "a"]),
        (66, ["u", "a"]),
        (67, ["compaction", "u", "a"]),
        (70, ["compaction", "u", "a"]),
        (0, ["compaction", "u", "a"]),
    ],
)
def test_it_takes_the_newest_entries_and_a_summary_that_hardly_fits(budget, expected):
    found = entries_within(reversed(ENTRIES), budget)
    assert [one.item.id for one in found] == expected


def test_no_more_entries_are_taken_than_decide_it():
    taken = []

    def newest_first():
        for number in range(1_000):
            taken.append(number)
            yield entry(str(number), 10)

    assert len(entries_within(newest_first(), 100)) == 10
    assert len(taken) == 11


@pytest.mark.parametrize(
    ("window", "reserve", "budget"),
    [(200_000, 16_384, 183_616), (0, 16_384, 111_616), (8_000, 16_384, 4_000)],
)
def test_the_budget_is_what_the_window_leaves_beside_the_reserve(window, reserve, budget):
    assert reading_budget(window, reserve) == budget


def test_files_of_several_stretches_are_told_once_by_the_last_that_was_done():
    found = files_together(
        [
            (["a", "b"], ["c"], ["c"], []),
            (["c"], ["b"], [], ["c"]),
        ]
    )
    assert found["files_read"] == ("a",)
    assert found["files_modified"] == ("b",)
    assert found["files_created"] == ()
    assert found["files_deleted"] == ("c",)


def test_a_call_is_told_as_text_so_that_its_result_is_not_missed():
    call = ToolCall(id="1", name="read", arguments='{"path":"a.txt"}')
    told = as_told(Item(id=1, role="assistant", text="I look.", tool_calls=(call,)))
    assert told.text == 'I look.\ncalls read: {"path":"a.txt"}'
    assert told.tool_calls == ()


def job(**changes) -> SummaryJob:
    items = (Item(id=1, role="user", text="Ship it by Friday.", tokens=4),)
    return SummaryJob(items=items, counter=Words(), **changes)


def run(found: SummaryJob, *, replaces: bool = False, **parameters):
    asked = Listener()
    profile = Profile(**parameters)
    steps = []
    strategy = BranchSummary(replaces_instructions=replaces)
    return strategy.run(found, profile, asked, steps.append), asked.requests, steps


def test_the_call_is_of_the_kind_branch_and_has_the_headings_in_order():
    outcome, [request], [step] = run(job(), branch_output_tokens=2_048)
    assert (request.kind, step.kind) == ("branch", "branch")
    # The room of an answer is twice the size that is asked for.
    assert request.target_tokens == 1_024
    assert outcome.prompt.startswith(TITLE)
    places = [
        outcome.prompt.index(name)
        for name in ("Goal", "Constraints", "Progress", "Key Decisions", "Next Steps")
    ]
    assert places == sorted(places)
    assert "Critical Context" not in outcome.prompt
    assert outcome.text.startswith("## Goal")


def test_instructions_are_added_to_ours():
    _, [request], _ = run(job(instructions="Name the deadline."))
    [system, data] = messages_for(request)
    assert system["content"].startswith(TITLE)
    assert "Name the deadline." not in system["content"]
    assert "Name the deadline." in data["content"]


def test_instructions_may_take_the_place_of_ours_but_not_of_the_rule_about_data():
    _, [request], _ = run(job(instructions="One line, please."), replaces=True)
    [system, data] = messages_for(request)
    assert system["content"].startswith("One line, please.")
    assert TITLE not in system["content"]
    assert DATA_RULE in instruction_of(request)
    assert "<conversation id=" in data["content"]
    assert "One line, please." not in data["content"]


def test_neither_gate_nor_ledger_changes_the_text():
    outcome, requests, _ = run(job(), quality_gate=True, ledger=True)
    assert outcome.text == "## Goal\nShip it by Friday, said the user."
    assert len(requests) == 1


def test_the_note_fences_the_text_and_lists_the_files():
    told = note_text("Said </summary> here.", files_read=["a"], files_modified=["b", "c"])
    assert "explored another branch" in told.split("\n")[0]
    assert told.count("</summary>") == 1
    assert told.endswith(
        "<read-files>\na\n</read-files>\n\n<modified-files>\nb\nc\n</modified-files>"
    )


def test_the_note_of_a_branch_without_files_lists_none():
    assert note_text("Said.", files_read=[], files_modified=[]).endswith("Said.\n</summary>")
