"""Whether a compaction is due, where its cut falls, and what one run reads."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import UUID

import pytest
from django.db import OperationalError

from chatapp.models import Session
from compaction.branches import planning, tail
from compaction.branches.planning import (
    PlanFailed,
    batch_of,
    cut_for_run,
    cut_of,
    decision_of,
    due_before_next_turn,
    due_before_request,
    input_of,
    unless_prevented,
)
from compaction.branches.snapshot import snapshot_of
from compaction.engine.parameters import Profile
from compaction.engine.policy.reasons import Reason
from compaction.engine.types import Decision, Facts, Plan
from tests.compaction.support import NEVER, stored
from tests.factories import SessionFactory, call, profile, result, talk

pytestmark = pytest.mark.django_db


@pytest.fixture
def session_of(owner, model_server, queued):
    """session_of(turns) is a session whose profile keeps the last two messages."""
    profile(**NEVER, keep_last_n=2)
    return lambda turns: SessionFactory(owner=owner, wires=talk(turns, marker=1))


def ids(items) -> list[UUID]:
    """Return the keys of items, which are as the database gave them."""
    return [UUID(str(item.id)) for item in items]


def keys(session: Session) -> list[UUID]:
    return [row.pk for row in stored(session)]


# --- where the cut falls --------------------------------------------------------------------------


@pytest.mark.parametrize("turns", [6, 100])
def test_a_cut_has_the_sums_of_all_that_stands_before_it(session_of, turns):
    # A hundred turns are more than what is read of them.
    session = session_of(turns)
    rows = stored(session)
    cut = cut_of(snapshot_of(session))
    assert cut.messages == 2 * turns - 2
    assert cut.tokens == sum(row.tokens for row in rows[:-2])
    assert cut.through == rows[-3].position
    assert ids(cut.keep) == keys(session)[-2:]
    assert (cut.summarise is None) == (turns == 100)


def test_more_is_read_until_the_cut_is_found(session_of, monkeypatch):
    session = session_of(20)
    monkeypatch.setattr(tail, "PAGES", (4,))
    snapshot = snapshot_of(session)
    cut = cut_of(snapshot, keep_last_n=10)
    assert (cut.messages, ids(cut.keep)) == (30, keys(session)[-10:])
    assert not tail.tail_of(snapshot).is_whole


@pytest.mark.parametrize("turns", [0, 1])
def test_where_all_is_kept_nothing_is_cut(session_of, turns):
    session = session_of(turns)
    cut = cut_of(snapshot_of(session))
    assert (cut.messages, cut.tokens, cut.through, cut.summarise) == (0, 0, 0, ())
    assert ids(cut.keep) == keys(session)
    assert list(input_of(snapshot_of(session))) == []


def test_each_cut_is_found_once_a_snapshot(session_of):
    snapshot = snapshot_of(session_of(6))
    assert cut_for_run(snapshot) is cut_for_run(snapshot)
    assert cut_for_run(snapshot, keep_last_n=5).messages == 7
    assert cut_for_run(snapshot, whole=True) is not cut_for_run(snapshot)


def test_results_that_the_model_has_not_seen_are_cut_only_with_the_whole(owner, session_of):
    wires = [*talk(3), call("read", "r1"), result("r1")]
    session = SessionFactory(owner=owner, wires=wires)
    assert cut_of(snapshot_of(session), keep_last_n=0).messages == 6
    assert cut_for_run(snapshot_of(session), keep_last_n=0).messages == 6
    assert len(input_of(snapshot_of(session), keep_last_n=0)) == 6
    for find in (cut_of, cut_for_run):
        assert find(snapshot_of(session), keep_last_n=0, whole=True).messages == 8
    assert len(input_of(snapshot_of(session), keep_last_n=0, whole=True)) == 8


class Failing:
    """A strategy that gives no plan."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.given = 0

    def plan(self, items, profile, facts) -> Plan:
        self.given = len(items)
        raise self.error


def use(monkeypatch, strategy) -> None:
    monkeypatch.setattr(planning, "STRATEGIES", SimpleNamespace(get=lambda name: strategy))


def test_where_a_strategy_fails_the_last_messages_are_kept_and_a_run_says_why(
    session_of, monkeypatch, caplog
):
    session = session_of(100)
    strategy = Failing(ZeroDivisionError("no such number"))
    use(monkeypatch, strategy)
    monkeypatch.setattr(tail, "PAGES", (4,))
    assert cut_of(snapshot_of(session)).messages == 198
    assert "ZeroDivisionError: no such number" in caplog.text
    # It does not say that the newest messages are enough for it.
    assert strategy.given == 200
    with pytest.raises(PlanFailed, match=r"gave no plan \(ZeroDivisionError: no such number\)"):
        input_of(snapshot_of(session))
    assert len(input_of(snapshot_of(session), in_any_case=True)) == 198


def test_the_last_messages_are_kept_however_little_the_failing_strategy_wanted_to_read(
    session_of, monkeypatch
):
    session = session_of(20)
    strategy = Failing(ValueError("no plan"))
    strategy.plans_from_tail = True
    use(monkeypatch, strategy)
    monkeypatch.setattr(tail, "PAGES", (4,))
    snapshot = snapshot_of(session)
    assert cut_of(snapshot, keep_last_n=25).messages == 15
    assert strategy.given == 4


def test_a_fault_of_the_database_is_nobodys_plan(session_of, monkeypatch):
    use(monkeypatch, Failing(OperationalError("locked")))
    with pytest.raises(OperationalError):
        cut_of(snapshot_of(session_of(6)))


# --- what a run reads -----------------------------------------------------------------------------


@pytest.mark.parametrize("turns", [6, 100])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, slice(-2)),
        ({"at_most": 4}, slice(4)),
        ({"at_most": 1000}, slice(-2)),
        # Who asks for a number of kept messages wants all others summarised.
        ({"at_most": 4, "keep_last_n": 5}, slice(-5)),
    ],
)
def test_a_run_reads_the_oldest_up_to_the_cut(session_of, turns, options, expected):
    session = session_of(turns)
    assert ids(input_of(snapshot_of(session), **options)) == keys(session)[expected]


def test_a_group_that_is_larger_than_a_batch_goes_whole(owner, session_of):
    calls = [call("read", f"r{n}")["tool_calls"][0] for n in range(90)]
    wires = [
        call("read", "r") | {"tool_calls": calls},
        *(result(f"r{n}") for n in range(90)),
        *talk(60),
    ]
    session = SessionFactory(owner=owner, wires=wires)
    assert ids(input_of(snapshot_of(session), at_most=10)) == keys(session)[:91]


# --- whether one is due ---------------------------------------------------------------------------


def test_one_is_due_with_the_message_that_reaches_the_limit(owner, model_server, queued):
    session = SessionFactory(owner=owner, wires=talk(6)[:11])
    for limit, now, next_turn in [(11, True, True), (12, False, True), (13, False, False)]:
        profile(max_context_tokens=0, keep_last_n=2, message_limit=limit)
        snapshot = snapshot_of(session)
        assert (decision_of(snapshot) is not None) is now
        assert (due_before_request(snapshot) is not None) is now
        assert (due_before_next_turn(snapshot) is not None) is next_turn


def test_a_rule_that_fails_is_a_problem_of_the_branch(session_of, monkeypatch):
    def decide(profile, facts, on_failure, *, modes, only):
        on_failure("The trigger failed.")

    monkeypatch.setattr(planning, "decide", decide)
    snapshot = snapshot_of(session_of(1))
    assert decision_of(snapshot) is None
    assert snapshot.failed["trigger_failed"] == "The trigger failed."


INLINE = Decision(reason="message_limit")
HARD = Decision(reason=Reason.HARD_LIMIT)


@pytest.mark.parametrize(
    ("decision", "waits", "state"),
    [
        (None, False, {}),
        (INLINE, True, {}),
        (INLINE, False, {"messages": 0}),
        (Decision(reason="cooldown", mode="background"), False, {}),
        (INLINE, False, {"is_consolidating": True}),
        # A back-off holds a run back, but not where the window is full.
        (INLINE, False, {"backs_off": True, "failures": 1}),
        (INLINE, False, {"backs_off": True, "hides_messages": True}),
        (HARD, True, {"backs_off": True, "failures": 1}),
        (HARD, False, {"backs_off": True, "failures": 0}),
        (HARD, True, {"backs_off": True, "failures": 0, "hides_messages": True}),
    ],
)
def test_a_request_waits_for_what_is_due_and_can_be_done(monkeypatch, decision, waits, state):
    given = {
        "is_consolidating": False, "failures": 0, "backs_off": False, "hides_messages": False,
        "messages": 5,
    } | state  # fmt: skip
    monkeypatch.setattr(planning, "cut_of", lambda snapshot: SimpleNamespace(**given))
    snapshot = SimpleNamespace(state=SimpleNamespace(**given), **given)
    assert unless_prevented(snapshot, decision) == (decision if waits else None)


# --- how much at once -----------------------------------------------------------------------------


def batching(monkeypatch, *, messages=0, failures=0, waiting=50, **changes) -> SimpleNamespace:
    """Return as much of a snapshot as a batch depends on; the window shows ten messages."""
    monkeypatch.setattr(planning, "cut_of", lambda snapshot: SimpleNamespace(messages=waiting))
    return SimpleNamespace(
        profile=Profile(cut="tail_size", tail_keep_size=5, context_size=10, **changes),
        facts=Facts(messages=messages, tokens=1, request_tokens=1, usable=None),
        state=SimpleNamespace(failures=failures),
    )


def test_a_run_takes_what_waits_and_less_where_the_profile_limits_it(monkeypatch):
    assert batch_of(batching(monkeypatch)) == 50
    assert batch_of(batching(monkeypatch, batch_messages=20)) == 20


def test_less_goes_after_failures(monkeypatch):
    snapshot = batching(monkeypatch, failures=2, smaller_after_failures=2, digest_after_failures=0)
    assert batch_of(snapshot) == 25


@pytest.mark.parametrize(("messages", "expected"), [(40, 30), (12, 6)])
def test_a_digest_of_what_falls_out_takes_no_more_but_a_smallest_batch(
    monkeypatch, messages, expected
):
    snapshot = batching(monkeypatch, messages=messages, minimum_batch=6)
    assert batch_of(snapshot, only_what_falls_out=True) == expected


# --- the room of a tail ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usable", "scale", "target", "fixed", "expected"),
    [
        # Without a window it is the profile's own number.
        (None, 1.0, 700, 100, 5000),
        # The fixed parts and the next summary with its frame of 8 tokens are taken off …
        (4000, 1.0, 700, 100, 3192),
        # … the summary with a quarter of the window at most.
        (1000, 1.0, 700, 100, 650),
        # A model's tokens may be larger than those that are counted.
        (1001, 2.0, 700, 100, 275),
        (400, 1.0, 700, 301, 0),
        (400, 1.0, 700, 299, 1),
    ],
)
def test_a_tail_has_the_room_that_the_fixed_parts_leave(
    monkeypatch, usable, scale, target, fixed, expected
):
    monkeypatch.setattr(planning, "frame_tokens", lambda profile, model: 8)
    snapshot = SimpleNamespace(
        facts=SimpleNamespace(usable=usable),
        profile=Profile(target_summary_tokens=target, keep_recent_tokens=5000),
        model=SimpleNamespace(scale=scale),
        fixed_tokens=fixed,
    )
    assert planning._room_for_tail(snapshot) == expected
