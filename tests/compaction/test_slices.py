"""A long history goes in slices: an automatic run reads what some calls take, and no more."""

from __future__ import annotations

import pytest

from chatapp.models import Session
from compaction.branches.snapshot import snapshot_of
from compaction.engine.policy.reasons import Reason
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.runs import lifecycle, strategy
from compaction.runs.scheduling import assign_profile
from compaction.runs.worker import compact_branch, execute_run
from tests.bench.conversations import fresh, grow, stored
from tests.bench.instant import models
from tests.deep_forks import counted_reads

pytestmark = pytest.mark.django_db(transaction=True)
WINDOW, REPEATED = 4_000, 120
# What a run looks at beside its slice: margins, rules, links, units, and the newest messages.
BESIDE = 900
# Totals are counted in one of several rows, and one that is not there yet is made.
FEW = 20


@pytest.fixture(autouse=True)
def small_window(settings, queued):
    """Have one call take some dozen messages, and runs wait until they are executed here."""
    small = {name: model | {"CONTEXT_WINDOW": WINDOW} for name, model in models().items()}
    settings.CHATAPP = settings.CHATAPP | {"MODELS": small}


def with_history(count: int) -> Session:
    session = grow(stored(REPEATED), count)
    assign_profile(session, "bisect")
    return fresh(session)


def execute_rest(session: Session) -> CompactionRun:
    snapshot = snapshot_of(session)
    request = lifecycle.RunRequest(
        session=session,
        branch=snapshot.branch,
        trigger=CompactionRun.Trigger.PROACTIVE,
        reason=Reason.REST,
        profile=snapshot.profile_row,
        background=True,
    )
    run = execute_run(lifecycle.request_run(request).pk)
    assert run.status == CompactionRun.Status.SUCCEEDED, run.error
    return run


def test_a_run_by_a_rule_reads_one_slice_however_much_waits():
    sizes, rows = [], []
    for count in (600, 1_200):
        session = with_history(count)
        with counted_reads() as reads:
            run = execute_rest(session)
        summary = SessionSummary.objects.get(run=run)
        state = CompactionState.objects.get(pk=session.branch.pk)
        assert 0 < state.covered_tokens <= strategy.CALLS_AT_ONCE * WINDOW
        assert state.covered_messages == summary.message_count < count / 2
        assert summary.links.count() == summary.message_count
        sizes.append(summary.message_count)
        rows.append(reads.rows)
    assert sizes[0] == sizes[1]
    assert abs(rows[0] - rows[1]) <= FEW
    assert max(rows) <= BESIDE


def test_slices_go_on_where_the_last_one_ended_until_all_is_summarised():
    session = with_history(300)
    reached = [0]
    while reached[-1] < 300 - 60:
        execute_rest(fresh(session))
        reached.append(CompactionState.objects.get(pk=session.branch.pk).covered_messages)
        assert reached[-1] > reached[-2]
    assert len(reached) > 2


def test_what_a_person_asks_for_is_summarised_whole():
    session = with_history(300)
    run = compact_branch(
        session=session, trigger="manual", reason="manual", keep_last_n=0, seconds=600
    )
    assert run.status == CompactionRun.Status.SUCCEEDED, run.error
    assert CompactionState.objects.get(pk=session.branch.pk).covered_messages == 300


def test_a_history_that_some_calls_take_is_no_slice(settings):
    large = {name: model | {"CONTEXT_WINDOW": 1_000_000} for name, model in models().items()}
    settings.CHATAPP = settings.CHATAPP | {"MODELS": large}
    session = with_history(600)
    execute_rest(session)
    assert CompactionState.objects.get(pk=session.branch.pk).covered_messages > 600 - 60
