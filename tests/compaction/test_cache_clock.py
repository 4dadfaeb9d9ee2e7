"""The clock of the prompt cache: noted after a turn, looked at in time, gone without a trace."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from chatapp.context.backend import TurnOutcome, context_backend
from chatapp.models import Branch, Session
from chatapp.transcript import fork, switch
from compaction import tasks
from compaction.backend import CompactionBackend
from compaction.branches.leases import Lease, ensure_state
from compaction.branches.snapshot import snapshot_of
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.runs.scheduling import check_branch
from compaction.runs.status import branch_facts
from compaction.runs.sweep import look_at_clocks, sweep_runs
from compaction.runs.worker import execute_run
from tests.compaction.support import NEVER, say, state
from tests.factories import SessionFactory, profile, talk
from tests.facts import code

pytestmark = pytest.mark.django_db

LIMIT = "trigger_on_history_size_chars_when_cache_expiring"
CLOCK = NEVER | {
    LIMIT: 1_000,
    "cache_ttl_ms": 300_000,
    "buffer_time_before_cache_expiration_ms": 30_000,
    "keep_last_n": 2,
}
# Of the 300 s: the buffer, and 30 s in which a queue may not look.
DUE_SECONDS = 240


@pytest.fixture
def queue_is_quiet(monkeypatch, queued):
    """Nothing waits in the broker; what is queued is a row, which the tests execute."""
    monkeypatch.setattr("compaction.runs.queue.waiting_tasks", lambda: 0)
    return queued


@pytest.fixture
def clocked(owner, model_server, queue_is_quiet):
    """A session of enough characters that has just had a turn."""
    profile(**CLOCK)
    session = SessionFactory(owner=owner, wires=talk(6, marker=1))
    say(session, f"{code(900)} and now?")
    return Session.objects.get(pk=session.pk)


def holds_chars(session: Session, chars: int) -> None:
    Branch.objects.filter(pk=session.active_branch_id).update(char_total=chars)


def pass_time(seconds: float) -> None:
    """Let so much time pass for every clock that runs."""
    for row in CompactionState.objects.exclude(cache_expires_at=None):
        for column in ("cache_expires_at", "next_check_at"):
            if (moment := getattr(row, column)) is not None:
                setattr(row, column, moment - timedelta(seconds=seconds))
        row.save(update_fields=["cache_expires_at", "next_check_at"])


def runs() -> list[tuple[str, str]]:
    return list(CompactionRun.objects.order_by("created_at").values_list("reason", "status"))


def test_a_turn_notes_when_its_prompt_expires_and_when_to_look(clocked):
    now, row = timezone.now(), state(clocked)
    left = (row.cache_expires_at - now).total_seconds()
    assert 290 < left <= 300
    assert row.cache_expires_at - row.next_check_at == timedelta(seconds=60)


def test_the_time_runs_from_the_request_and_not_from_its_answer(clocked):
    before = state(clocked).cache_expires_at
    known = replace(context_backend.preview(clocked), origin=snapshot_of(clocked))
    answer = clocked.branch.messages.order_by("-position").first()
    outcome = TurnOutcome(answer=answer, context=known, sent=time.monotonic() - 50)
    CompactionBackend().turn_finished(clocked, outcome)
    moved = (state(clocked).cache_expires_at - before).total_seconds()
    assert -50 <= moved < -40


def test_a_turn_costs_one_statement_more_and_none_without_a_clock(
    clocked, django_assert_num_queries, django_assert_max_num_queries
):
    say(clocked)
    with django_assert_max_num_queries(1_000) as with_clock:
        say(clocked)
    profile(**CLOCK | {"cache_ttl_ms": 0})
    # What the clock had said is put away, once.
    say(clocked)
    assert state(clocked).cache_expires_at is None
    with django_assert_num_queries(len(with_clock) - 1):
        say(clocked)


def test_it_fires_once_when_the_time_has_come(clocked):
    pass_time(DUE_SECONDS - 5)
    assert look_at_clocks() == 0
    pass_time(5)
    assert look_at_clocks() == 1
    assert look_at_clocks() == 0
    (run,) = CompactionRun.objects.all()
    assert (run.reason, run.mode, run.status) == ("cache_expiring", "background", "queued")
    assert execute_run(run.pk).status == "succeeded"
    assert code(1) in SessionSummary.objects.get().summary_text
    row = state(clocked)
    assert (row.cache_expires_at, row.lease_owner) == (None, None)
    pass_time(1_000)
    CompactionState.objects.update(next_check_at=timezone.now() - timedelta(seconds=1))
    sweep_runs()
    assert (look_at_clocks(), len(runs())) == (0, 1)


@pytest.mark.parametrize("late", [60, 3_600])
def test_what_is_overdue_is_done_at_once(clocked, late):
    pass_time(DUE_SECONDS + late)
    assert look_at_clocks() == 1


def test_the_sweep_looks_too_where_nobody_else_did(clocked):
    pass_time(DUE_SECONDS)
    assert sweep_runs().due_branches == 1
    assert look_at_clocks() == 0
    assert runs() == [("cache_expiring", "queued")]


def test_a_newer_request_moves_the_time(clocked):
    pass_time(DUE_SECONDS - 1)
    say(clocked, f"{code(901)} one more thing")
    pass_time(DUE_SECONDS - 1)
    assert look_at_clocks() == 0
    pass_time(5)
    assert look_at_clocks() == 1


def test_no_run_is_made_while_a_turn_is_under_way(clocked):
    pass_time(DUE_SECONDS)
    until = timezone.now() + timedelta(seconds=50)
    Session.objects.filter(pk=clocked.pk).update(turn_expires_at=until)
    assert look_at_clocks() == 0
    assert state(clocked).cache_expires_at is None
    assert runs() == []


def test_a_run_whose_time_a_request_moved_is_skipped(clocked):
    pass_time(DUE_SECONDS)
    assert look_at_clocks() == 1
    say(clocked, f"{code(902)} just in time")
    run = CompactionRun.objects.get()
    assert execute_run(run.pk).error_code == "not_due"
    # The new time counts.
    pass_time(DUE_SECONDS)
    assert look_at_clocks() == 1


def test_a_request_that_comes_late_starts_no_run_by_the_old_time(clocked):
    pass_time(DUE_SECONDS + 100)
    say(clocked, f"{code(903)} nobody had looked")
    assert runs() == []
    assert state(clocked).cache_expires_at > timezone.now()


def test_too_few_characters_are_left_alone_without_a_look(clocked):
    holds_chars(clocked, 0)
    say(clocked, "short")
    row = state(clocked)
    assert row.cache_expires_at is not None
    holds_chars(clocked, 999)
    check_branch(clocked)
    assert state(clocked).next_check_at is None
    holds_chars(clocked, 1_000)
    check_branch(clocked)
    assert state(clocked).next_check_at == row.cache_expires_at - timedelta(seconds=60)


def test_what_gains_too_little_waits_for_more(clocked):
    profile(**CLOCK | {"keep_last_n": 12, "minimum_gain": 0.9})
    pass_time(DUE_SECONDS)
    assert look_at_clocks() == 0
    assert state(clocked).cache_expires_at is None
    assert runs() == []


@pytest.mark.parametrize("changes", [{"cache_ttl_ms": 0}, {"enabled": False}, {LIMIT: 0}])
def test_a_profile_without_a_clock_leaves_no_trace(clocked, changes):
    profile(**CLOCK | changes)
    pass_time(DUE_SECONDS)
    assert look_at_clocks() == 0
    row = state(clocked)
    assert (row.cache_expires_at, row.next_check_at) == (None, None)
    assert runs() == []


def test_a_branch_that_is_not_active_leaves_no_trace(clocked):
    old = clocked.branch
    switch(clocked, fork(clocked, at=old.messages.order_by("position")[3]))
    pass_time(DUE_SECONDS)
    assert look_at_clocks() == 0
    row = CompactionState.objects.get(pk=old.pk)
    assert (row.cache_expires_at, row.next_check_at) == (None, None)
    assert runs() == []


def test_a_deleted_session_leaves_no_trace(clocked):
    pass_time(DUE_SECONDS)
    clocked.delete()
    assert look_at_clocks() == 0
    assert tasks.look_at_caches() == 0


def test_a_session_that_is_deleted_while_its_run_waits_ends_quietly(clocked):
    pass_time(DUE_SECONDS)
    look_at_clocks()
    run = CompactionRun.objects.get()
    clocked.delete()
    assert tasks.run_compaction(str(run.pk)) == "gone"


def test_a_clock_that_was_set_back_starts_nothing(clocked):
    pass_time(-3_600)
    CompactionState.objects.update(next_check_at=timezone.now() - timedelta(seconds=1))
    assert look_at_clocks() == 0
    row = state(clocked)
    assert (row.cache_expires_at, row.next_check_at) == (None, None)
    assert look_at_clocks() == 0


def test_a_branch_that_somebody_holds_is_looked_at_afterwards(clocked):
    pass_time(DUE_SECONDS)
    lease = Lease.acquire_or_steal(clocked.active_branch_id, clocked.pk)
    assert look_at_clocks() == 0
    row = state(clocked)
    assert row.recheck_requested
    assert row.cache_expires_at is not None
    lease.release()
    CompactionState.objects.update(next_check_at=timezone.now())
    assert look_at_clocks() == 1


def test_a_failed_run_backs_off_and_is_tried_again(clocked, model_server):
    model_server.script = [{"when": {"purpose": "summary"}, "reply": {"text": ""}}]
    pass_time(DUE_SECONDS)
    look_at_clocks()
    assert execute_run(CompactionRun.objects.get().pk).status == "failed"
    row = state(clocked)
    assert row.next_check_at == row.backoff_until
    assert look_at_clocks() == 0
    past = timezone.now() - timedelta(seconds=1)
    CompactionState.objects.update(next_check_at=past, backoff_until=past)
    assert look_at_clocks() == 1


def test_a_stopped_answer_moves_the_time_and_a_refused_request_does_not(clocked):
    pass_time(100)
    before = state(clocked).cache_expires_at
    known = replace(context_backend.preview(clocked), origin=snapshot_of(clocked))
    refused = TurnOutcome(answer=None, context=known, error="no", sent=time.monotonic())
    CompactionBackend().turn_finished(clocked, refused)
    assert state(clocked).cache_expires_at == before
    CompactionBackend().turn_finished(clocked, replace(refused, is_stopped=True))
    assert state(clocked).cache_expires_at - before > timedelta(seconds=90)


def test_the_api_tells_the_seconds_left(clocked, api):
    pass_time(100)
    clock = branch_facts(snapshot_of(clocked))["cache"]
    assert 130 < clock["fires_in_seconds"] <= 140
    assert clock["expires_in_seconds"] == clock["fires_in_seconds"] + 60
    told = api.get(f"/api/v1/sessions/{clocked.pk}/compaction/").json()
    assert told["cache"]["expires_in_seconds"] in range(180, 201)
    (rule,) = told["triggers"]
    assert (rule["reason"], rule["limit"], rule["left"]) == ("cache_expiring", 1_000, 0)
    assert "about to expire" in rule["waits_for"]
    assert told["due"] is None


def test_without_a_request_there_are_no_seconds(owner, model_server):
    profile(**CLOCK)
    session = SessionFactory(owner=owner, wires=talk(2))
    ensure_state(session.branch)
    assert branch_facts(snapshot_of(session))["cache"] is None


def test_the_sessions_page_tells_the_seconds_left(clocked, admin_client):
    pass_time(100)
    page = admin_client.get(f"/admin/chatapp/session/{clocked.pk}/change/").content.decode()
    assert "Prompt cache" in page
    assert "a run is due in 1" in page
    pass_time(500)
    page = admin_client.get(f"/admin/chatapp/session/{clocked.pk}/change/").content.decode()
    assert "has forgotten" in page
