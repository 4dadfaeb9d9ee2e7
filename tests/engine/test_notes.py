"""Notes: sent as a user's messages, they ask nothing: no rule takes one for a question."""

from __future__ import annotations

import pytest

from compaction.engine.parameters import Profile
from compaction.engine.policy.cuts import cut_last_n, legal_plan
from compaction.engine.policy.groups import legal_cuts
from compaction.engine.protocols import PlanFacts
from compaction.engine.strategies.iterative import turn_start
from compaction.engine.strategies.prompts import blocks
from compaction.engine.types import Item, Plan, ToolCall


def items_of(*kinds: str) -> list[Item]:
    """One item a letter: u question, n note, a answer, c call, t result."""
    made = {
        "u": {"role": "user"},
        "n": {"role": "user", "is_note": True},
        "a": {"role": "assistant"},
        "c": {"role": "assistant", "tool_calls": (ToolCall(id="call", name="read"),)},
        "t": {"role": "tool", "tool_call_id": "call"},
    }
    return [
        Item(id=number, position=number + 1, text=kind, tokens=10, **made[kind])
        for number, kind in enumerate(kinds)
    ]


def kept(letters: str, *, keep: int = 0) -> str:
    """What stays verbatim where the last `keep` messages are to be kept."""
    facts = PlanFacts(room=lambda: 1_000_000, keep_last_n=keep)
    plan = cut_last_n(items_of(*letters), Profile(), facts)
    return "".join(item.text for item in plan.keep)


@pytest.mark.parametrize(
    ("letters", "stays"),
    [
        # A note is no question: nothing waits for an answer.
        ("uan", ""),
        ("uanu", "u"),
        # A note behind the question is context that the answer needs, too.
        ("uaun", "un"),
        ("uaunn", "unn"),
        ("uanct", "ct"),
        ("uauct", "uct"),
        ("uaunct", "unct"),
    ],
)
def test_it_keeps_the_open_question_and_takes_no_note_for_one(letters, stays):
    assert kept(letters) == stays


def test_a_plug_ins_plan_keeps_the_question_before_a_note():
    items = items_of(*"uaun")
    facts = PlanFacts(room=lambda: 0)
    found = legal_plan(items, Plan(summarise=tuple(items), keep=()), facts)
    assert [item.text for item in found.keep] == ["u", "n"]


def test_a_note_may_be_a_cut():
    assert legal_cuts(items_of(*"uanua")) == [1, 2, 3, 4]


def test_a_summariser_is_told_that_a_note_is_one():
    assert next(blocks(items_of("n"))) == "[1] note: n"


@pytest.mark.parametrize(
    ("letters", "start"),
    [
        # The newest thing that a user or a note said begins the turn that the cut parts.
        ("uanct", 2),
        ("uauctnct", 5),
        ("nctct", 0),
        # Between a call and its result none does.
        ("uacnt", 0),
        ("nacnt", 0),
    ],
)
def test_a_note_begins_the_turn_that_a_cut_parts(letters, start):
    assert turn_start(items_of(*letters), parts_turn=True) == start
    assert turn_start(items_of(*letters), parts_turn=False) == len(letters)
