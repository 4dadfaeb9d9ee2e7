"""The recovery."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.engine.recovery import (
    HALVINGS,
    RecoveryAction,
    RecoveryInput,
    RecoveryLimits,
    RecoveryPolicy,
    speaks_of_failed_compaction,
)

NO_HALVING = RecoveryLimits(halve=False)
PLAIN = RecoveryInput()


@dataclass
class Turn:
    """A turn whose answers are written down: how the model and the compactions behave."""

    overflows: int
    frees: list[int] = field(default_factory=list)
    cuts: int = 0
    recovery_input: RecoveryInput = PLAIN
    rules: RecoveryLimits = NO_HALVING
    calls: int = 1
    compactions: int = 0
    truncations: int = 0
    sent_groups: list[int] = field(default_factory=list)

    def run(self) -> str:
        """Climb until the model answers or nothing is left."""
        ladder = RecoveryPolicy(rules=self.rules)
        while self.calls <= self.overflows:
            tried = self._recover(ladder)
            if tried is None:
                return "context_overflow"
            ladder = tried
            self.calls += 1
        return "success"

    def _recover(self, ladder: RecoveryPolicy) -> RecoveryPolicy | None:
        while True:
            action = ladder.next(self.recovery_input)
            if action is RecoveryAction.GIVE_UP:
                return None
            if action is RecoveryAction.HALVE:
                groups = ladder.halved(self.recovery_input)
                self.sent_groups.append(groups)
                return ladder.after_halving(groups)
            if action is RecoveryAction.COMPACT:
                freed = self.frees[self.compactions] if self.compactions < len(self.frees) else 0
                self.compactions += 1
                ladder = ladder.after_compaction(freed)
                if freed > 0:
                    return ladder
            else:
                self.truncations += 1
                ladder = ladder.after_truncation()
                if self.cuts:
                    return ladder


OVERSIZED = RecoveryInput(oversized=True)


@pytest.mark.parametrize(
    ("turn", "calls", "compactions", "outcome"),
    [
        pytest.param(Turn(1, frees=[900]), 2, 1, "success", id="overflow, compacted"),
        pytest.param(Turn(1, frees=[0]), 1, 1, "context_overflow", id="compaction is no use"),
        pytest.param(
            Turn(1, frees=[0], cuts=5, recovery_input=OVERSIZED),
            2,
            1,
            "success",
            id="results cut instead",
        ),
        pytest.param(Turn(9, frees=[9, 9, 9]), 4, 3, "context_overflow", id="three are no help"),
        pytest.param(Turn(2, frees=[9, 9]), 3, 2, "success", id="the second one helps"),
        pytest.param(
            Turn(1, frees=[9], recovery_input=RecoveryInput(compaction_failed=True)),
            1,
            0,
            "context_overflow",
            id="the error is a failed compaction",
        ),
        # OpenClaw counts the useless one too and ends after four calls.
        pytest.param(
            Turn(9, frees=[0, 9, 9, 9], cuts=5, recovery_input=OVERSIZED),
            5,
            4,
            "context_overflow",
            id="no use, results cut, three are no help",
        ),
        pytest.param(
            Turn(1, cuts=5, recovery_input=RecoveryInput(oversized=True, compaction_failed=True)),
            2,
            0,
            "success",
            id="a failed compaction leaves the cutting",
        ),
        pytest.param(
            Turn(9, frees=[0, 0], cuts=0, recovery_input=OVERSIZED),
            1,
            2,
            "context_overflow",
            id="cut nothing",
        ),
    ],
)
def test_the_table_of_b3(turn, calls, compactions, outcome):
    assert turn.run() == outcome
    assert (turn.calls, turn.compactions) == (calls, compactions)


def test_tool_results_are_cut_once_a_turn():
    turn = Turn(9, frees=[9, 9, 9], cuts=5, recovery_input=OVERSIZED)
    turn.run()
    assert turn.truncations == 1
    assert turn.calls == 5


@pytest.mark.parametrize(
    ("groups", "sent"),
    [
        (57, [20, 10, 5, 2, 1]),
        (21, [20, 10, 5, 2, 1]),
        (20, [10, 5, 2, 1]),
        (7, [5, 2, 1]),
        (2, [1]),
        (1, []),
        (0, []),
    ],
)
def test_halving_reaches_every_step_below_what_was_sent(groups, sent):
    turn = Turn(
        99, recovery_input=RecoveryInput(groups=groups), rules=RecoveryLimits(max_compactions=0)
    )
    assert turn.run() == "context_overflow"
    assert turn.sent_groups == sent


def test_without_halving_less_is_sent_only_while_a_run_is_to_summarise_more():
    rules = RecoveryLimits(max_compactions=1, truncate=False, halve=False)
    waits = RecoveryInput(groups=57, unfinished=True)
    turn = Turn(99, frees=[9], recovery_input=waits, rules=rules)
    assert turn.run() == "context_overflow"
    assert (turn.compactions, turn.sent_groups) == (1, [20, 10, 5, 2, 1])
    finished = Turn(99, frees=[9], recovery_input=RecoveryInput(groups=57), rules=rules)
    assert finished.run() == "context_overflow"
    assert (finished.compactions, finished.sent_groups) == (1, [])


def test_the_whole_ladder_is_three_compactions_one_cut_and_five_halvings():
    rules = RecoveryLimits()
    turn = Turn(
        99,
        frees=[9, 9, 9],
        cuts=5,
        recovery_input=RecoveryInput(oversized=True, groups=80),
        rules=rules,
    )
    assert turn.run() == "context_overflow"
    assert turn.calls == 10


def test_a_request_that_was_halved_is_not_compacted_afterwards():
    ladder = RecoveryPolicy().after_halving(20)
    assert ladder.next(RecoveryInput(oversized=True, groups=20)) is RecoveryAction.HALVE


def test_a_useless_compaction_is_tried_again_when_results_have_been_cut():
    ladder = RecoveryPolicy().after_compaction(0)
    assert ladder.next(OVERSIZED) is RecoveryAction.TRUNCATE
    assert ladder.after_truncation().next(OVERSIZED) is RecoveryAction.COMPACT
    assert ladder.after_truncation().after_compaction(0).next(OVERSIZED) is RecoveryAction.GIVE_UP


@given(
    overflows=st.integers(0, 40),
    frees=st.lists(st.integers(0, 3), max_size=12),
    cuts=st.integers(0, 2),
    oversized=st.booleans(),
    groups=st.integers(0, 100),
    most=st.integers(0, 5),
)
def test_a_turn_ends_within_its_bound_whatever_happens(
    overflows, frees, cuts, oversized, groups, most
):
    rules = RecoveryLimits(max_compactions=most)
    recovery_input = RecoveryInput(oversized=oversized, groups=groups)
    turn = Turn(overflows, frees=frees, cuts=cuts, recovery_input=recovery_input, rules=rules)
    turn.run()
    assert turn.calls <= 1 + most + 1 + len(HALVINGS)
    assert turn.compactions <= most + 2
    assert turn.truncations <= 1
    assert turn.sent_groups == sorted(turn.sent_groups, reverse=True)
    assert len(set(turn.sent_groups)) == len(turn.sent_groups)


@pytest.mark.parametrize(
    ("error", "says_so"),
    [
        ("Summarization failed: prompt is too long", True),
        ("Auto-compaction could not finish: context overflow", True),
        ("prompt is too long: 213462 tokens > 200000 maximum", False),
    ],
)
def test_an_error_that_is_a_failed_compaction_is_known(error, says_so):
    assert speaks_of_failed_compaction(error) is says_so


# --- what the cut keeps first ---------------------------------------------------------------------


def test_where_keeping_the_cut_frees_nothing_the_question_alone_is_kept_and_nothing_is_counted():
    first = RecoveryPolicy(rules=RecoveryLimits(max_compactions=1), keeps_cut=True)
    assert first.next(RecoveryInput()) is RecoveryAction.COMPACT
    second = first.after_compaction(0)
    assert (second.keeps_cut, second.compactions) == (False, 0)
    assert second.next(RecoveryInput()) is RecoveryAction.COMPACT
    assert second.after_compaction(0).compaction_is_useless
    assert second.after_compaction(5).next(RecoveryInput()) is RecoveryAction.GIVE_UP


def test_where_keeping_the_cut_frees_something_it_is_the_one_that_counts():
    first = RecoveryPolicy(rules=RecoveryLimits(max_compactions=1, halve=False), keeps_cut=True)
    freed = first.after_compaction(5)
    assert (freed.keeps_cut, freed.compactions) == (False, 1)
    assert freed.next(RecoveryInput(groups=40)) is RecoveryAction.GIVE_UP
