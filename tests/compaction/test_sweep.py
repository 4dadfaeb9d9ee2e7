"""The sweep: dead workers and lost runs."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.utils import timezone

from compaction.branches.leases import Lease, ensure_state
from compaction.branches.snapshot import snapshot_of
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.runs import lifecycle
from compaction.runs.sweep import Swept, sweep_runs
from compaction.runs.worker import execute_run
from tests.compaction.support import compact, state
from tests.factories import SessionFactory, profile, talk

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)


@pytest.fixture
def waiting(monkeypatch) -> list[int]:
    """How many tasks the queue holds: change waiting[0]."""
    count = [0]
    monkeypatch.setattr("compaction.runs.queue.waiting_tasks", lambda: count[0])
    return count


@pytest.fixture
def session(owner, model_server, queued, waiting):
    profile(message_limit=10, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(6, marker=1))
    ensure_state(session.branch)
    return session


@pytest.fixture
def sweep(django_capture_on_commit_callbacks):
    def run():
        with django_capture_on_commit_callbacks(execute=True):
            return sweep_runs()

    return run


def request(session, **changes) -> CompactionRun:
    arguments = {"trigger": "manual", "reason": "manual", "background": True} | changes
    return lifecycle.request_run(lifecycle.RunRequest(
        session=session, branch=session.branch, profile=snapshot_of(session).profile_row,
        **arguments,
    ))  # fmt: skip


def killed(session, *, leased: bool = True, **changes) -> CompactionRun:
    """A run whose worker was killed long ago, with or without the lease it had taken."""
    worker = uuid.uuid4()
    run = lifecycle.claim(request(session, **changes).pk, worker)
    CompactionRun.objects.filter(pk=run.pk).update(started_at=timezone.now() - DAY)
    if leased:
        Lease.acquire_or_steal(session.branch.pk, worker)
        CompactionState.objects.update(lease_expires_at=timezone.now() - DAY)
    return run


def test_a_quiet_system_has_nothing_to_sweep(session, sweep):
    assert sweep() == Swept()


def test_a_killed_workers_run_is_started_again(session, sweep, queued):
    dead = killed(session)
    assert sweep().restarted_runs == 1
    dead.refresh_from_db()
    assert (dead.status, dead.error_code) == ("failed", "interrupted")
    again = CompactionRun.objects.get(status="queued")
    assert again.restarts == 1
    assert queued[-1] == ("compaction.tasks.run_compaction", str(again.pk))
    assert execute_run(again.pk).status == "succeeded"
    assert SessionSummary.objects.count() == 1


def test_an_expired_lease_is_freed(session, sweep):
    killed(session)
    assert sweep().expired_leases == 1
    assert state(session).lease_owner is None


def test_a_worker_killed_before_it_took_the_lease_is_found_too(session, sweep):
    dead = killed(session, leased=False)
    assert sweep().restarted_runs == 1
    dead.refresh_from_db()
    assert dead.error_code == "interrupted"


def test_it_is_found_even_while_another_worker_holds_the_branch(session, sweep):
    dead = killed(session, leased=False)
    Lease.acquire_or_steal(session.branch.pk, uuid.uuid4())
    sweep()
    dead.refresh_from_db()
    assert dead.error_code == "interrupted"


def test_a_working_run_is_left_alone(session, sweep):
    worker = uuid.uuid4()
    run = lifecycle.claim(request(session).pk, worker)
    CompactionRun.objects.filter(pk=run.pk).update(started_at=timezone.now() - DAY)
    Lease.acquire_or_steal(session.branch.pk, worker)
    assert sweep() == Swept()
    run.refresh_from_db()
    assert run.status == "running"


def test_a_run_that_was_claimed_a_moment_ago_is_left_alone(session, sweep):
    run = lifecycle.claim(request(session).pk, uuid.uuid4())
    sweep()
    run.refresh_from_db()
    assert run.status == "running"


def test_sweeping_twice_restarts_once(session, sweep, waiting):
    killed(session)
    sweep()
    waiting[0] = 1
    assert sweep().restarted_runs == 0
    assert CompactionRun.objects.count() == 2


def test_a_run_that_keeps_killing_its_worker_is_given_up(session, sweep, settings):
    settings.COMPACTION = settings.COMPACTION | {"MAX_RUN_ATTEMPTS": 3}
    killed(session, restarts=2, trigger="proactive")
    assert sweep().restarted_runs == 0
    assert not CompactionRun.objects.filter(status="queued").exists()
    assert snapshot_of(session).backs_off


def test_the_restarted_run_keeps_what_was_asked(session, sweep):
    killed(session, instructions="dates", keep_last_n=4)
    sweep()
    again = CompactionRun.objects.get(status="queued")
    assert (again.instructions, again.keep_last_n, again.trigger) == ("dates", 4, "manual")


def old(run: CompactionRun) -> CompactionRun:
    CompactionRun.objects.filter(pk=run.pk).update(created_at=timezone.now() - DAY)
    return run


def test_a_run_that_the_queue_lost_is_delivered_again(session, sweep, queued):
    run = old(request(session))
    assert sweep().requeued_runs == 1
    assert queued[-1] == ("compaction.tasks.run_compaction", str(run.pk))
    assert CompactionRun.objects.count() == 1


def test_a_run_that_still_waits_in_the_queue_is_not(session, sweep, waiting):
    old(request(session))
    waiting[0] = 1
    assert sweep().requeued_runs == 0


def test_a_young_run_is_not_delivered_again(session, sweep):
    request(session)
    assert sweep().requeued_runs == 0


def test_a_busy_queue_does_not_hide_a_lost_run(session, sweep, waiting):
    for _ in range(3):
        old(request(session))
    waiting[0] = 2
    assert sweep().requeued_runs == 1


def test_a_finished_run_is_never_swept(session, sweep):
    compact(session)
    CompactionRun.objects.update(created_at=timezone.now() - DAY, started_at=timezone.now() - DAY)
    assert sweep() == Swept()
