"""One worker a branch."""

from __future__ import annotations

import threading
import time
import uuid
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now
from django.utils import timezone

from compaction.branches.leases import Lease, ensure_state, state_of
from compaction.branches.snapshot import snapshot_of
from compaction.errors import BranchBusyError, LostRaceError
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.runs import lifecycle
from compaction.runs.sweep import sweep_runs
from compaction.runs.worker import check_branch, execute_run
from compaction.summaries.model_summarizer import ModelSummarizer
from tests.compaction.support import NEVER, compact, state
from tests.factories import SessionFactory, profile, talk

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(owner, model_server, queued):
    profile(message_limit=10, keep_last_n=2)
    return SessionFactory(owner=owner, wires=talk(6, marker=1))


@pytest.fixture
def branch_id(session):
    return ensure_state(session.branch).pk


def request(session, *, trigger="proactive", background=True) -> CompactionRun:
    return lifecycle.request_run(lifecycle.RunRequest(
        session=session, branch=session.branch, trigger=trigger, reason="manual",
        profile=snapshot_of(session).profile_row, background=background,
    ))  # fmt: skip


def expire(session) -> None:
    past = timezone.now() - timedelta(seconds=1)
    CompactionState.objects.filter(pk=session.branch.pk).update(lease_expires_at=past)


def test_the_first_worker_gets_the_branch(branch_id, session):
    Lease.acquire_or_steal(branch_id, uuid.uuid4())
    assert state(session).is_consolidating


def test_a_second_worker_does_not(branch_id):
    Lease.acquire_or_steal(branch_id, uuid.uuid4())
    with pytest.raises(BranchBusyError):
        Lease.acquire_or_steal(branch_id, uuid.uuid4())


def test_a_released_branch_is_free(branch_id, session):
    Lease.acquire_or_steal(branch_id, uuid.uuid4()).release()
    following = uuid.uuid4()
    Lease.acquire_or_steal(branch_id, following)
    assert state(session).lease_owner == following


def test_an_expired_lease_blocks_nobody(branch_id, session):
    Lease.acquire_or_steal(branch_id, uuid.uuid4())
    expire(session)
    assert not state(session).is_consolidating
    Lease.acquire_or_steal(branch_id, uuid.uuid4())


def test_a_former_owner_can_neither_renew_nor_release(branch_id, session):
    former = Lease.acquire_or_steal(branch_id, uuid.uuid4())
    expire(session)
    owner = Lease.acquire_or_steal(branch_id, uuid.uuid4()).owner
    with pytest.raises(LostRaceError):
        former.renew()
    former.release()
    assert state(session).lease_owner == owner


def test_renewing_moves_the_expiry(branch_id, session, settings):
    lease = Lease.acquire_or_steal(branch_id, uuid.uuid4())
    after_lease = timezone.now() + timedelta(seconds=1)
    CompactionState.objects.update(lease_expires_at=after_lease)
    lease.renew()
    assert state(session).lease_expires_at > after_lease + timedelta(seconds=1)


@pytest.fixture
def this_machines_clock_is_off(monkeypatch):
    """Let this machine's clock differ from the database's from now on."""
    right = timezone.now

    def by(**span):
        monkeypatch.setattr(timezone, "now", lambda: right() + timedelta(**span))

    return by


def test_a_machine_whose_clock_is_ahead_takes_no_live_workers_branch(
    branch_id, session, this_machines_clock_is_off
):
    worker = uuid.uuid4()
    run = lifecycle.claim(request(session).pk, worker)
    lease = Lease.acquire_or_steal(branch_id, worker)
    this_machines_clock_is_off(hours=1)
    with pytest.raises(BranchBusyError):
        Lease.acquire_or_steal(branch_id, uuid.uuid4())
    swept = sweep_runs()
    assert (swept.expired_leases, swept.restarted_runs) == (0, 0)
    run.refresh_from_db()
    assert run.status == "running"
    lease.renew()


def test_a_machine_whose_clock_is_behind_blocks_nobody(
    branch_id, session, this_machines_clock_is_off
):
    this_machines_clock_is_off(hours=-1)
    Lease.acquire_or_steal(branch_id, uuid.uuid4())
    with pytest.raises(BranchBusyError):
        Lease.acquire_or_steal(branch_id, uuid.uuid4())
    expire_by_the_database(session)
    Lease.acquire_or_steal(branch_id, uuid.uuid4())


def expire_by_the_database(session) -> None:
    past = Now() - timedelta(seconds=1)
    CompactionState.objects.filter(pk=session.branch.pk).update(lease_expires_at=past)


@pytest.mark.parametrize("hours", [1, -1])
def test_a_worker_whose_clock_is_off_stores_its_summary(session, this_machines_clock_is_off, hours):
    this_machines_clock_is_off(hours=hours)
    assert compact(session).status == "succeeded"
    assert SessionSummary.objects.count() == 1


def test_the_lease_lasts_as_long_as_the_settings_say(branch_id, session, settings):
    settings.COMPACTION = settings.COMPACTION | {"LEASE_SECONDS": 7}
    Lease.acquire_or_steal(branch_id, uuid.uuid4())
    left = (state(session).lease_expires_at - timezone.now()).total_seconds()
    assert 5 < left <= 7


def test_taking_an_expired_lease_ends_the_dead_workers_run(branch_id, session):
    dead = uuid.uuid4()
    run = lifecycle.claim(request(session).pk, dead)
    Lease.acquire_or_steal(branch_id, dead)
    expire(session)
    Lease.acquire_or_steal(branch_id, uuid.uuid4())
    run.refresh_from_db()
    assert (run.status, run.error_code) == ("failed", "interrupted")


def test_taking_a_lease_spares_a_run_that_another_live_worker_just_claimed(branch_id, session):
    run = lifecycle.claim(request(session).pk, uuid.uuid4())
    Lease.acquire_or_steal(branch_id, uuid.uuid4())
    run.refresh_from_db()
    assert run.status == "running"


def test_an_automatic_run_on_a_busy_branch_steps_aside(branch_id, session):
    Lease.acquire_or_steal(branch_id, uuid.uuid4())
    run = execute_run(request(session).pk)
    assert (run.status, run.error_code) == ("skipped", "busy")
    assert state(session).recheck_requested


def test_a_run_by_hand_that_was_queued_waits_for_the_branch(branch_id, session, queued):
    lease = Lease.acquire_or_steal(branch_id, uuid.uuid4())
    run = execute_run(request(session, trigger="manual").pk)
    assert (run.status, run.worker) == ("queued", None)
    lease.release()
    assert execute_run(run.pk).status == "succeeded"


def test_the_run_that_held_the_branch_delivers_the_one_that_waits(
    session, queued, django_capture_on_commit_callbacks
):
    waiting = request(session, trigger="manual")
    with django_capture_on_commit_callbacks(execute=True):
        compact(session)
    assert queued[-1] == ("compaction.tasks.run_compaction", str(waiting.pk))


def test_a_trigger_during_a_run_is_looked_at_once_after_it(session, branch_id, monkeypatch):
    looked = []
    monkeypatch.setattr("compaction.runs.worker.check", lambda snapshot: looked.append(snapshot))
    run = request(session)
    CompactionState.objects.filter(pk=branch_id).update(recheck_requested=True)
    execute_run(run.pk)
    assert len(looked) == 1
    assert not state(session).recheck_requested


def test_a_trigger_during_a_run_sets_pending_and_queues_nothing(session, branch_id):
    Lease.acquire_or_steal(branch_id, uuid.uuid4())
    assert check_branch(session) is None
    assert state(session).recheck_requested
    assert not CompactionRun.objects.exists()


def test_a_trigger_on_a_free_branch_does_not_set_pending(session):
    assert check_branch(session) is not None
    assert not state(session).recheck_requested


def test_reading_a_state_stores_none(session):
    CompactionState.objects.all().delete()
    assert state_of(session.branch).cursor == 0
    assert not CompactionState.objects.exists()


def outage_then(reply: dict) -> list[dict]:
    down = {"error": {"status": 503, "body": {"error": {"message": "overloaded"}}}}
    return [
        {"when": {"purpose": "summary", "call": 1}, "reply": down},
        {"when": {"purpose": "summary"}, "reply": reply},
    ]


def test_the_lease_is_renewed_while_a_call_is_repeated(session, model_server, monkeypatch):
    monkeypatch.setattr("chatapp.llm.openai_client.FIRST_WAIT_SECONDS", 0.01)
    renewed = []
    real = Lease.renew
    monkeypatch.setattr(Lease, "renew", lambda self: renewed.append(1) or real(self))
    model_server.script = outage_then({"text": "fine"})
    assert compact(session).status == "succeeded"
    # Before and after the wait between the two tries.
    assert len(renewed) >= 2


def test_a_lease_that_ran_out_during_a_call_and_that_nobody_took_is_taken_up_again(
    session, monkeypatch
):
    """A machine that slept, or a database that was away, had no heartbeats come through."""
    real = ModelSummarizer.summarize

    def slept(self, request):
        expire(session)
        return real(self, request)

    monkeypatch.setattr(ModelSummarizer, "summarize", slept)
    run = compact(session)
    assert (run.status, run.error) == ("succeeded", "")
    assert run.model_calls == 1


def test_a_run_that_was_ended_during_a_call_gets_no_step_though_its_lease_looks_live(
    session, monkeypatch
):
    """As where a takeover commits while the UPDATE waits for it, which sees the old lease then."""
    real = ModelSummarizer.summarize

    def ended(self, asked):
        found = real(self, asked)
        assert lifecycle.interrupt_runs(CompactionRun.objects.all())
        return found

    monkeypatch.setattr(ModelSummarizer, "summarize", ended)
    run = compact(session)
    assert (run.status, run.error_code) == ("failed", "interrupted")
    assert (run.model_calls, run.steps.count()) == (0, 0)


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer at a time")
def test_a_step_that_waits_for_a_takeover_is_not_written(owner, model_server, queued, monkeypatch):
    profile(**NEVER, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(6, marker=1))
    real, threads = ModelSummarizer.summarize, []

    def taken_over(self, asked):
        found, holds = real(self, asked), threading.Event()

        def take() -> None:
            try:
                with transaction.atomic():
                    expire(session)
                    Lease.acquire_or_steal(session.branch.pk, uuid.uuid4())
                    holds.set()
                    time.sleep(0.5)  # the step's UPDATE waits meanwhile
            finally:
                connection.close()

        threads.append(threading.Thread(target=take))
        threads[-1].start()
        assert holds.wait(10)
        return found

    monkeypatch.setattr(ModelSummarizer, "summarize", taken_over)
    run = compact(session)
    threads[0].join()
    run.refresh_from_db()
    assert (run.status, run.error_code) == ("failed", "interrupted")
    assert (run.model_calls, run.steps.count()) == (0, 0)


def test_a_cancelled_run_does_not_repeat_its_call(session, model_server, monkeypatch):
    monkeypatch.setattr("chatapp.llm.openai_client.FIRST_WAIT_SECONDS", 0.01)
    run = request(session, trigger="manual")
    real = ModelSummarizer.summarize

    def cancelled(self, asked):
        lifecycle.cancel_run(CompactionRun.objects.get(pk=run.pk))
        return real(self, asked)

    monkeypatch.setattr(ModelSummarizer, "summarize", cancelled)
    model_server.script = outage_then({"text": "fine"})
    assert execute_run(run.pk).status == "cancelled"
    assert len(model_server.summarising()) == 1


@pytest.mark.django_db(transaction=True)
def test_two_workers_store_one_summary(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(6, marker=1))
    model_server.script = [
        {"when": {"purpose": "summary"}, "reply": {"text": "done", "delay_s": 0.3}}
    ]
    ids = [request(session, trigger="manual", background=False).pk for _ in range(2)]
    ends: list[str] = []

    def work(run_id):
        try:
            ends.append(execute_run(run_id).status)
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(one,)) for one in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ends) == ["skipped", "succeeded"]
    assert SessionSummary.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_one_run_in_two_workers_is_done_once(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(6, marker=1))
    run = request(session, trigger="manual")

    def work():
        try:
            execute_run(run.pk)
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.refresh_from_db()
    assert run.status == "succeeded"
    assert len(model_server.summarising()) == 1


# --- a branch that was read before it is taken ----------------------------------------------------


def test_a_branch_as_it_was_read_is_taken_without_reading_it_again(session):
    read = ensure_state(session.branch)
    worker = uuid.uuid4()
    assert Lease.acquire_as_read(read, worker) == Lease(branch_id=read.pk, owner=worker)
    assert state(session).lease_owner == worker


@pytest.mark.parametrize(
    "change",
    [
        {"cursor": 1_000_000},
        {"failures": 1},
        {"profile": "bisect"},
        {"hold_through": 2_000_000},
        {"next_check_at": timezone.now()},
        {"lease_owner": uuid.uuid4()},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_branch_that_changed_since_it_was_read_is_not_taken_unseen(session, change):
    read = ensure_state(session.branch)
    CompactionState.objects.filter(pk=read.pk).update(**change)
    assert Lease.acquire_as_read(read, uuid.uuid4()) is None
    assert state(session).lease_owner == change.get("lease_owner")


def test_a_branch_without_a_state_is_read_once_for_it(session, django_assert_num_queries):
    asked = ["state", "branch", "insert"]
    if connection.vendor == "postgresql":
        asked.append("lock")
    # The marks of the transaction inside the test's are two more.
    with django_assert_num_queries(len(asked) + 2):
        made = ensure_state(session.branch)
    stored = state(session)
    columns = [field.attname for field in CompactionState._meta.concrete_fields]
    assert [getattr(made, name) for name in columns] == [getattr(stored, name) for name in columns]
