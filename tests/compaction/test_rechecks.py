"""Whatever ends too early or fails once is looked at again, and costs nobody a turn."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.db import OperationalError
from django.utils import timezone

from chatapp.context.backend import context_backend, notify
from chatapp.models import Message
from compaction import backend
from compaction.branches.leases import Lease, ensure_state, held
from compaction.branches.snapshot import snapshot_of
from compaction.engine.policy.reasons import Reason
from compaction.errors import RunGoneError
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.runs import before_request, lifecycle
from compaction.runs import worker as compacting
from compaction.runs.scheduling import check_branch
from compaction.runs.sweep import sweep_runs
from compaction.runs.worker import execute_run
from compaction.summaries.restore import restore_summary
from tests.compaction.support import compact, say
from tests.compaction.test_window import window
from tests.factories import SessionFactory, profile, store, talk

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(owner, model_server, queued):
    profile(message_limit=10, keep_last_n=2)
    return SessionFactory(owner=owner, wires=talk(6, marker=1))


def locked(*given, **named):
    raise OperationalError("database is locked")


def sweep_later() -> None:
    """Let an hour pass, and sweep."""
    past = timezone.now() - timedelta(hours=1)
    CompactionState.objects.filter(lease_owner__isnull=False).update(lease_expires_at=past)
    CompactionState.objects.filter(next_check_at__isnull=False).update(next_check_at=past)
    CompactionRun.objects.filter(status="running").update(started_at=past)
    sweep_runs()


def is_queued() -> bool:
    return CompactionRun.objects.filter(status="queued").exists()


def test_a_message_whose_look_failed_once(session, monkeypatch):
    newest = store(session, talk(1))[-1]
    ensure_state(session.branch)
    with monkeypatch.context() as patch:
        patch.setattr(backend, "check_branch", locked)
        notify(context_backend.message_stored, session, newest)
    sweep_later()
    assert is_queued()


def test_a_run_that_stepped_aside_for_what_is_no_run(session):
    run = check_branch(session)
    with held(session.branch.pk):
        execute_run(run.pk)
    run.refresh_from_db()
    assert (run.status, run.error_code) == ("skipped", "busy")
    sweep_later()
    assert is_queued()


@pytest.mark.parametrize(
    ("turns", "place", "name"),
    [
        (45, Lease, "release"),
        (45, compacting, "check"),
        (45, Lease, "acquire_or_steal"),
        (27, before_request, "check"),
    ],
    ids=["release", "look again", "take over", "look before"],
)
def test_a_database_that_fails_around_a_compaction_costs_no_turn(
    owner, model_server, queued, monkeypatch, turns, place, name
):
    window()
    session = SessionFactory(owner=owner, wires=talk(turns, marker=1))
    monkeypatch.setattr(place, name, locked)
    phases = []
    say(
        session, emit=lambda name, told: phases.append(told["phase"]) if name == "compaction" else 0
    )
    assert len(model_server.of("chat")) == 1
    assert phases.count("started") == phases.count("finished")


@pytest.fixture
def emergency(owner, model_server, queued) -> CompactionRun:
    """A run that a request began because no model could be called."""
    window()
    session = SessionFactory(owner=owner, wires=talk(28, marker=1))
    ensure_state(session.branch)
    return lifecycle.request_run(lifecycle.RunRequest(
        session=session, branch=session.branch, trigger="proactive", reason=Reason.ARCHIVE,
        profile=snapshot_of(session).profile_row, background=False,
    ))  # fmt: skip


def test_an_archives_run_that_is_run_again_asks_the_summariser(emergency):
    lifecycle.cancel_run(emergency)
    CompactionState.objects.update(backoff_until=None)
    assert execute_run(lifecycle.retry_run(emergency).pk).status == "succeeded"
    assert not SessionSummary.objects.get().is_digest


def test_so_does_the_one_that_follows_a_dead_web_workers(emergency):
    worker = uuid.uuid4()
    lifecycle.claim(emergency.pk, worker)
    Lease.acquire_or_steal(emergency.branch_id, worker)
    sweep_later()
    execute_run(CompactionRun.objects.get(status="queued").pk)
    assert not SessionSummary.objects.get().is_digest


def test_no_other_run_follows_an_overflow_whose_request_died(session):
    run = lifecycle.request_run(lifecycle.RunRequest(
        session=session, branch=session.branch, trigger="overflow_retry", reason="overflow",
        profile=profile(message_limit=100), background=False, keep_last_n=0,
    ))  # fmt: skip
    worker = uuid.uuid4()
    lifecycle.claim(run.pk, worker)
    Lease.acquire_or_steal(ensure_state(session.branch).pk, worker)
    sweep_later()
    run.refresh_from_db()
    assert (run.status, run.error_code) == ("failed", "interrupted")
    assert not is_queued()


def test_a_draft_whose_summary_was_taken_back_holds_nothing_up(owner, model_server, queued):
    rules = {"publish_when_needed": True, "prepare_ratio": 0.1, "minimum_batch": 1}
    rules |= {"restore_hold": "0"}
    profile(message_limit=0, max_context_tokens=0, keep_last_n=4, **rules)
    session = SessionFactory(owner=owner, wires=talk(40, words=200, marker=1))
    compact(session)
    store(session, talk(40, words=200, marker=200))
    execute_run(check_branch(session).pk)
    assert SessionSummary.objects.filter(status="draft").exists()
    restore_summary(SessionSummary.objects.get(status="active"))
    assert not SessionSummary.objects.filter(status="draft").exists()
    assert check_branch(session) is not None


def test_a_session_that_is_deleted_while_its_run_begins(session, monkeypatch):
    run = check_branch(session)
    real = compacting.ensure_state

    def deleted(branch):
        type(session).objects.filter(pk=session.pk).delete()
        return real(branch)

    monkeypatch.setattr(compacting, "ensure_state", deleted)
    CompactionState.objects.all().delete()
    with pytest.raises(RunGoneError):
        execute_run(run.pk)


def test_a_session_that_is_deleted_between_claim_and_read(session, monkeypatch):
    run = check_branch(session)
    real = lifecycle._claimed_runs.first

    def deleted(**named):
        type(session).objects.filter(pk=session.pk).delete()
        return real(**named)

    monkeypatch.setattr(lifecycle._claimed_runs, "first", deleted)
    with pytest.raises(RunGoneError):
        execute_run(run.pk)


def test_a_message_that_came_while_a_summary_was_written_makes_the_next_run_due(
    session, model_server, monkeypatch
):
    """The branch is not as it was read for the run: it is read again before it is released."""
    store(session, talk(4, marker=50))
    run = check_branch(session)
    real = lifecycle.succeed

    def busy(*given, **named):
        real(*given, **named)
        store(session, talk(14, marker=100))

    monkeypatch.setattr(lifecycle, "succeed", busy)
    assert execute_run(run.pk).status == "succeeded"
    assert is_queued()
    assert CompactionState.objects.get(pk=session.branch.pk).lease_owner is None


def test_a_run_that_is_queued_for_what_is_left_and_the_release_are_one(
    session, monkeypatch, caplog, django_capture_on_commit_callbacks
):
    """A release that fails queues nothing by itself and logs nothing, and the next look does."""
    window(compression_window_size=4, tail_keep_size=2, batch_messages=6, minimum_batch=1)
    store(session, talk(14, marker=50))
    run = check_branch(session)
    real, refused = Lease.release_if, []

    def once(lease, condition, changes):
        if not refused:
            refused.append(CompactionRun.objects.filter(status="queued").count())
            return False
        return real(lease, condition, changes)

    monkeypatch.setattr(Lease, "release_if", once)
    with (
        caplog.at_level("INFO", logger="compaction.events"),
        django_capture_on_commit_callbacks(execute=True),
    ):
        assert execute_run(run.pk).status == "succeeded"
    # Queued in the transaction that was rolled back, and again by the look behind the release.
    assert refused == [1]
    (waiting,) = CompactionRun.objects.filter(status="queued")
    logged = [one for one in caplog.records if one.name == "compaction.events"]
    assert [one.run for one in logged if one.event == "run_requested"] == [str(waiting.pk)]
    assert len([one for one in logged if one.event == "trigger_due"]) == 1
    assert CompactionState.objects.get(pk=session.branch.pk).lease_owner is None


def test_a_run_that_ended_before_it_is_noted_that_it_waits(session, monkeypatch):
    """A quick worker notes when what its run has left is old enough, and that stays."""
    sizes = {"compression_window_size": 6, "tail_keep_size": 2, "minimum_batch": 3}
    window(batch_messages=6, compression_cooldown_sec=900, **sizes)
    ensure_state(session.branch)
    CompactionState.objects.update(next_check_at=timezone.now() + timedelta(minutes=5))
    with monkeypatch.context() as patch:
        patch.setattr(lifecycle.queue, "enqueue_run", execute_run)
        assert check_branch(session) is not None
    (run,) = CompactionRun.objects.all()
    assert run.status == "succeeded"
    when = CompactionState.objects.get(pk=session.branch.pk).next_check_at
    assert when is not None
    assert when > timezone.now() + timedelta(minutes=10)


def test_a_worker_that_died_between_the_end_of_its_run_and_its_look(session):
    """While its run waited in the queue, nobody noted when what waits is old enough."""
    window(tail_keep_size=2, minimum_batch=3, compression_cooldown_sec=900)
    ensure_state(session.branch)
    past = timezone.now() - timedelta(hours=1)
    Message.objects.update(created_at=past)
    CompactionState.objects.update(
        lease_owner=uuid.uuid4(), lease_expires_at=past, next_check_at=None
    )
    sweep_runs()
    sweep_later()
    assert is_queued()


def test_a_branch_that_was_taken_with_its_state_and_could_not_be_read(session, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(OperationalError):
        patch.setattr(compacting, "snapshot_of", locked)
        compact(session)
    assert CompactionState.objects.get(pk=session.branch.pk).lease_owner is None
    assert compact(session).status == "succeeded"


@pytest.mark.parametrize("name", ["state_of_run", "snapshot_of"])
def test_a_branch_that_could_not_be_read_with_the_claim_is_read_again(session, monkeypatch, name):
    run = check_branch(session)
    real, first = getattr(compacting, name), [locked]

    def once(*given, **named):
        return (first.pop() if first else real)(*given, **named)

    monkeypatch.setattr(compacting, name, once)
    assert execute_run(run.pk).status == "succeeded"
    assert first == []
