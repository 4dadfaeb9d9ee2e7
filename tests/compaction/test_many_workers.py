"""Many processes, one truth: fencing, heartbeats, the reaper, stopping, cancelling."""

from __future__ import annotations

import gc
import os
import signal
import threading
import uuid
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db import connections
from django.utils import timezone

from chatapp.models import Message
from compaction import tasks
from compaction.branches.leases import Lease, ensure_state
from compaction.errors import BranchBusyError, LostRaceError
from compaction.models import (
    CompactionRun,
    CompactionState,
    CompactionStep,
    RunTotals,
    SessionSummary,
    WorkerHeartbeat,
)
from compaction.runs import heartbeat, lifecycle, queue
from compaction.runs.scheduling import check_branch
from compaction.runs.sweep import sweep_runs
from compaction.runs.worker import execute_run
from compaction.summaries.summarizer import ModelSummarizer
from tests.compaction.support import compact, state
from tests.factories import SessionFactory, profile, talk

pytestmark = pytest.mark.django_db
threaded = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session(owner, model_server, queued):
    profile(message_limit=10, keep_last_n=2)
    return SessionFactory(owner=owner, wires=talk(6, marker=1))


@pytest.fixture
def meanwhile(monkeypatch):
    """meanwhile(do) has `do` happen while the summariser works."""

    def set_up(do) -> None:
        real = ModelSummarizer.summarize

        def summarize(self, request):
            answer = real(self, request)
            do()
            return answer

        monkeypatch.setattr(ModelSummarizer, "summarize", summarize)

    return set_up


def taken_over(session) -> None:
    """Let the lease run out and have another worker take the branch."""
    CompactionState.objects.filter(pk=session.active_branch_id).update(
        lease_expires_at=timezone.now() - timedelta(seconds=1)
    )
    Lease.acquire_or_steal(session.active_branch_id, uuid.uuid4())


# --- fencing -------------------------------------------------------------------------------------


def test_a_worker_whose_lease_was_taken_over_writes_nothing(session, meanwhile):
    meanwhile(lambda: taken_over(session))
    run = execute_run(check_branch(session).pk)
    assert (run.status, run.error_code) == ("failed", "interrupted")
    assert not SessionSummary.objects.exists()
    assert not CompactionStep.objects.exists()
    assert (run.model_calls, run.spent_tokens) == (0, 0)
    after = state(session)
    assert (after.cursor, after.failures, after.backoff_until) == (0, 0, None)
    # The lease is the other worker's, still.
    assert after.is_consolidating


def test_a_run_that_was_interrupted_is_told_once(
    session, meanwhile, django_capture_on_commit_callbacks
):
    meanwhile(lambda: taken_over(session))
    run = check_branch(session)
    with django_capture_on_commit_callbacks(execute=True):
        execute_run(run.pk)
    totals = RunTotals.objects.get()
    assert (totals.status, totals.reason, totals.runs) == ("failed", "message_limit", 1)


def test_a_lease_that_ran_out_and_that_nobody_took_is_no_licence_to_store(session, meanwhile):
    def expire():
        CompactionState.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1))
        CompactionState.objects.update(lease_owner=None)

    meanwhile(expire)
    run = execute_run(check_branch(session).pk)
    assert (run.status, run.error_code) == ("failed", "lost_race")
    assert not SessionSummary.objects.exists()


@threaded
def test_of_many_workers_one_gets_the_lease(session):
    ensure_state(session.branch)
    start, outcomes = threading.Barrier(6), []

    def take():
        try:
            start.wait()
            outcomes.append(Lease.acquire_or_steal(session.branch.pk, uuid.uuid4()).owner)
        except BranchBusyError:
            outcomes.append(None)
        finally:
            connections.close_all()

    workers = [threading.Thread(target=take) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
    winners = [owner for owner in outcomes if owner]
    assert len(outcomes) == 6
    assert winners == [state(session).lease_owner]


def test_a_lease_that_was_lost_cannot_be_renewed(session):
    lease = Lease.acquire_or_steal(ensure_state(session.branch).pk, uuid.uuid4())
    taken_over(session)
    with pytest.raises(LostRaceError):
        lease.renew()


# --- heartbeats ----------------------------------------------------------------------------------


@threaded
def test_a_long_call_outlives_the_lease_because_the_worker_lives(session, settings, meanwhile):
    settings.COMPACTION = settings.COMPACTION | {"LEASE_SECONDS": 1, "HEARTBEAT_SECONDS": 0.2}
    seen = []

    def long_call():
        threading.Event().wait(1.6)
        row = WorkerHeartbeat.objects.get()
        seen.append((row.run_id, state(session).is_consolidating))

    meanwhile(long_call)
    run = check_branch(session)
    assert execute_run(run.pk).status == "succeeded"
    assert seen == [(run.pk, True)]
    row = WorkerHeartbeat.objects.get()
    assert (row.pid, row.run) == (os.getpid(), None)
    assert row.beat_at > row.started_at


@threaded
def test_no_heartbeat_thread_outlives_its_run(session):
    execute_run(check_branch(session).pk)
    assert [one for one in threading.enumerate() if one.name == "heartbeat"] == []


def test_the_sweep_gives_a_sign_of_life_and_forgets_the_silent(session):
    old = timezone.now() - timedelta(days=2)
    WorkerHeartbeat.objects.create(pk=uuid.uuid4(), kind="queue", host="gone", pid=1, beat_at=old)
    assert sweep_runs().silent_workers == 1
    row = WorkerHeartbeat.objects.get()
    assert (row.pid, row.kind) == (os.getpid(), "web")


def test_a_worker_of_the_queue_says_so(monkeypatch):
    monkeypatch.setattr(queue._Worker, "pid", os.getpid())
    heartbeat.beat()
    assert WorkerHeartbeat.objects.get().kind == "queue"


# --- stopping ------------------------------------------------------------------------------------


def test_a_worker_that_is_to_stop_leaves_the_run_between_two_calls(
    session, meanwhile, monkeypatch, queued, model_server, django_capture_on_commit_callbacks
):
    too_long = {"error": {"code": "context_length_exceeded", "message": "too long"}}
    model_server.script = [
        {
            "when": {"purpose": "summary", "est_tokens_gt": 700},
            "reply": {"error": {"status": 400, "body": too_long}},
        },
        *model_server.script,
    ]
    stopping = []
    monkeypatch.setattr(queue, "is_stopping", lambda: bool(stopping))
    meanwhile(lambda: stopping.append(True))
    run = check_branch(session)
    with django_capture_on_commit_callbacks(execute=True):
        run = execute_run(run.pk)
    assert (run.status, run.error_code) == ("failed", "stopped")
    # One was too large, the first half was summarised.
    assert run.steps.count() == 2
    assert not SessionSummary.objects.exists()
    after = state(session)
    assert (after.lease_owner, after.failures) == (None, 0)
    successor = CompactionRun.objects.exclude(pk=run.pk).get()
    assert (successor.status, successor.restarts, successor.reason) == ("queued", 0, run.reason)
    assert (queue.RUN_TASK, str(successor.pk)) in queued
    stopping.clear()
    monkeypatch.undo()
    assert execute_run(successor.pk).status == "succeeded"


def test_a_worker_that_is_to_stop_takes_up_nothing(
    session, monkeypatch, queued, django_capture_on_commit_callbacks
):
    run = check_branch(session)
    monkeypatch.setattr(queue, "is_stopping", lambda: True)
    with django_capture_on_commit_callbacks(execute=True):
        assert tasks.run_compaction(str(run.pk)) == "left to another worker"
    run.refresh_from_db()
    assert run.status == "queued"
    assert queued == [(queue.RUN_TASK, str(run.pk))]


def test_a_summary_that_is_finished_is_stored_although_the_worker_is_to_stop(
    session, meanwhile, monkeypatch
):
    stopping = []
    monkeypatch.setattr(queue, "is_stopping", lambda: bool(stopping))
    meanwhile(lambda: stopping.append(True))
    assert execute_run(check_branch(session).pk).status == "succeeded"


def test_only_a_worker_can_be_stopping(monkeypatch):
    monkeypatch.setattr(queue._Worker, "is_told_to_stop", True)
    assert queue.is_stopping() is False
    monkeypatch.setattr(queue._Worker, "pid", os.getpid())
    assert queue.is_stopping() is True


def test_a_stopping_cluster_is_known_by_its_status(monkeypatch):
    from django_q.status import Stat, Status

    def clusters(**changes):
        one = Status(pid=1, cluster_id=uuid.uuid4())
        one.status, one.workers = "Stopping", [os.getpid()]
        vars(one).update(changes)
        monkeypatch.setattr(Stat, "get_all", staticmethod(lambda: [one]))

    monkeypatch.setattr(queue._Worker, "pid", os.getpid())
    clusters()
    assert queue.is_stopping() is True
    clusters(status="Working")
    assert queue.is_stopping() is False
    clusters(workers=[1])
    assert queue.is_stopping() is False
    clusters(host="another machine")
    assert queue.is_stopping() is False


def test_a_broker_that_is_gone_stops_nobody(monkeypatch):
    from django_q.status import Stat

    def gone():
        raise ConnectionError("no Redis")

    monkeypatch.setattr(queue._Worker, "pid", os.getpid())
    monkeypatch.setattr(Stat, "get_all", staticmethod(gone))
    assert queue.is_stopping() is False


@pytest.fixture
def later(monkeypatch):
    """What is to happen later: a real timer would end the process of the tests."""
    started = []

    def timer(*what):
        return SimpleNamespace(start=lambda: started.append(what))

    monkeypatch.setattr(queue.threading, "Timer", timer)
    monkeypatch.setattr(queue._Worker, "is_busy", False)
    monkeypatch.setattr(queue._Worker, "is_told_to_stop", False)
    return started


def test_an_idle_worker_that_hears_sigterm_ends(later):
    with pytest.raises(SystemExit):
        queue._told_to_stop(signal.SIGTERM, None)
    assert later == []


def test_a_busy_worker_that_hears_sigterm_may_finish_its_call(later, settings):
    settings.CHATAPP = settings.CHATAPP | {"MODEL_TIMEOUT_SECONDS": 100}
    queue._take_up()
    for _ in range(2):
        queue._told_to_stop(signal.SIGTERM, None)
    assert queue._Worker.is_told_to_stop
    # One that hangs is ended after its longest call and some more.
    assert later == [(160, os._exit, [1])]


def test_a_worker_does_not_search_for_garbage_in_what_starting_made(monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *told: None)
    monkeypatch.setattr(queue._Worker, "pid", queue._Worker.pid)
    before = gc.get_freeze_count()
    try:
        queue._begin()
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()


def test_a_worker_that_was_told_to_stop_ends_when_its_task_has_ended(later):
    queue._take_up()
    queue._lay_down()
    assert later == []
    queue._take_up()
    queue._told_to_stop(signal.SIGTERM, None)
    queue._lay_down()
    assert later[1:] == [(queue.LAST_RESULT_SECONDS, os._exit, [0])]


# --- cancelling ----------------------------------------------------------------------------------


def test_a_cancelled_queued_run_never_begins(session, model_server):
    run = lifecycle.cancel_run(check_branch(session))
    assert run.status == "cancelled"
    assert execute_run(run.pk).status == "cancelled"
    assert model_server.of("summary") == []


def test_a_cancelled_running_run_stops_after_its_call_and_stores_nothing(session, meanwhile):
    run = check_branch(session)
    meanwhile(lambda: lifecycle.cancel_run(CompactionRun.objects.get(pk=run.pk)))
    ended = execute_run(run.pk)
    assert (ended.status, ended.error_code) == ("cancelled", "cancelled")
    assert not SessionSummary.objects.exists()
    assert not Message.objects.filter(kind="placeholder").exists()
    assert (state(session).cursor, state(session).lease_owner) == (0, None)
    # What the call cost is known all the same.
    assert ended.model_calls == 1
    assert ended.spent_tokens > 0


def test_after_a_cancel_the_next_message_does_not_start_it_again_at_once(session):
    lifecycle.cancel_run(check_branch(session))
    assert check_branch(session) is None
    CompactionState.objects.update(backoff_until=timezone.now())
    assert check_branch(session) is not None


def test_cancelling_a_run_by_hand_holds_nothing_off(session):
    run = lifecycle.request_run(lifecycle.RunRequest(
        session=session, branch=session.branch, trigger="manual", reason="manual",
        profile=profile(message_limit=10, keep_last_n=2), background=True,
    ))  # fmt: skip
    lifecycle.cancel_run(run)
    assert check_branch(session) is not None


def test_a_waiting_run_can_be_cancelled(session):
    run = check_branch(session)
    CompactionRun.objects.filter(pk=run.pk).update(
        waits_until=timezone.now() + timedelta(minutes=5), error_code="breaker_open"
    )
    cancelled = lifecycle.cancel_run(CompactionRun.objects.get(pk=run.pk))
    assert (cancelled.status, cancelled.waits_until) == ("cancelled", None)


# --- the reaper ----------------------------------------------------------------------------------


def test_a_dead_workers_run_is_started_again_by_one_of_two_sweeps(session):
    run = lifecycle.claim(check_branch(session).pk, uuid.uuid4())
    long_ago = timezone.now() - timedelta(hours=1)
    CompactionRun.objects.update(started_at=long_ago)
    CompactionState.objects.update(lease_owner=run.worker, lease_expires_at=long_ago)
    assert [sweep_runs().restarted_runs for _ in range(2)] == [1, 0]
    run.refresh_from_db()
    assert (run.status, run.error_code) == ("failed", "interrupted")
    assert CompactionRun.objects.filter(status="queued", restarts=1).count() == 1
    assert state(session).lease_owner is None


def test_a_run_whose_waiting_is_over_is_delivered_by_one_of_two_sweeps(
    session, queued, django_capture_on_commit_callbacks
):
    run = check_branch(session)
    CompactionRun.objects.update(
        waits_until=timezone.now() + timedelta(seconds=60), error_code="breaker_open"
    )
    with django_capture_on_commit_callbacks(execute=True):
        assert sweep_runs().requeued_runs == 0
        CompactionRun.objects.update(waits_until=timezone.now() - timedelta(seconds=1))
        assert [sweep_runs().requeued_runs for _ in range(2)] == [1, 0]
    assert queued == [(queue.RUN_TASK, str(run.pk))]


def test_a_branch_whose_model_is_gone_is_left_alone(session, use_models, settings):
    CompactionState.objects.update(next_check_at=timezone.now() - timedelta(seconds=1))
    check_branch(session)
    CompactionRun.objects.all().delete()
    CompactionState.objects.update(next_check_at=timezone.now() - timedelta(seconds=1))
    session.model = "gone"
    session.save()
    assert sweep_runs().due_branches == 0
    assert state_row(session).next_check_at is None


def state_row(session) -> CompactionState:
    return CompactionState.objects.get(pk=session.active_branch_id)


def test_one_line_is_logged_for_each_decision_and_no_word_of_the_conversation(
    session, caplog, django_capture_on_commit_callbacks
):
    with (
        caplog.at_level("INFO", logger="compaction.events"),
        django_capture_on_commit_callbacks(execute=True),
    ):
        compact(session)
        execute_run(check_branch(SessionFactory(owner=session.owner, wires=talk(6))).pk)
    names = [record.event for record in caplog.records if record.name == "compaction.events"]
    assert {"run_requested", "run_started", "trigger_due"} <= set(names)
    assert not any("lorem" in record.getMessage() for record in caplog.records)
