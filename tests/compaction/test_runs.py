"""The life of a run: queue, failure, back-off, cancel, retry."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from compaction.branches.snapshot import snapshot_of
from compaction.errors import CompactionError
from compaction.models import CompactionProfile, CompactionRun, CompactionState, SessionSummary
from compaction.runs import lifecycle, queue
from compaction.runs.worker import check_branch, execute_run
from tests.compaction.support import compact, say, state
from tests.factories import SessionFactory, profile, talk

pytestmark = pytest.mark.django_db
FAILING = [{"when": {"purpose": "summary"}, "reply": {"text": ""}}]


@pytest.fixture
def session(owner, model_server, queued):
    profile(message_limit=10, keep_last_n=2)
    return SessionFactory(owner=owner, wires=talk(6, marker=1))


def request(session, **changes) -> CompactionRun:
    arguments = {"trigger": "proactive", "reason": "message_limit", "background": True} | changes
    return lifecycle.request_run(lifecycle.RunRequest(
        session=session, branch=session.branch, profile=snapshot_of(session).profile_row,
        **arguments,
    ))  # fmt: skip


def backoff(session) -> float:
    return (state(session).backoff_until - timezone.now()).total_seconds()


def test_a_background_run_is_queued_when_the_transaction_commits(
    session, queued, django_capture_on_commit_callbacks
):
    with django_capture_on_commit_callbacks(execute=True):
        run = request(session)
        assert queued == []
    assert queued == [("compaction.tasks.run_compaction", str(run.pk))]


def test_an_inline_run_is_not_queued(session, queued, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True):
        request(session, background=False)
    assert queued == []


def test_a_rolled_back_request_queues_nothing(session, queued, django_capture_on_commit_callbacks):
    with (
        django_capture_on_commit_callbacks(execute=True),
        pytest.raises(ZeroDivisionError),
        transaction.atomic(),
    ):
        request(session)
        raise ZeroDivisionError
    assert queued == []
    assert not CompactionRun.objects.exists()


def test_a_second_automatic_request_gets_the_waiting_run_inside_a_transaction(session):
    first = request(session)
    with transaction.atomic():
        assert request(session) == first
        # On PostgreSQL a failed INSERT would have broken the transaction.
        assert CompactionRun.objects.count() == 1


def test_requests_by_hand_are_all_kept(session):
    request(session)
    request(session, trigger="manual")
    request(session, trigger="manual")
    assert CompactionRun.objects.count() == 3


def test_a_run_that_is_claimed_between_insert_and_look_up_makes_room(session, monkeypatch):
    first = request(session)
    real = lifecycle._insert
    tries = []

    def insert(columns):
        tries.append(1)
        try:
            return real(columns)
        finally:
            lifecycle.claim(first.pk, uuid.uuid4())

    monkeypatch.setattr(lifecycle, "_insert", insert)
    second = request(session)
    assert second != first
    assert second.status == "queued"
    assert len(tries) == 2


def test_a_queue_that_is_down_fails_nobody_and_leaves_the_row(
    session, monkeypatch, django_capture_on_commit_callbacks
):
    def down(*args):
        raise ConnectionError("no broker")

    monkeypatch.setattr(queue, "_put", down)
    with django_capture_on_commit_callbacks(execute=True):
        run = request(session)
    assert run.status == "queued"


def test_a_claimed_run_cannot_be_claimed_again(session):
    run = request(session)
    assert lifecycle.claim(run.pk, uuid.uuid4()) is not None
    assert lifecycle.claim(run.pk, uuid.uuid4()) is None


def test_a_failure_says_why_and_stores_nothing(session, model_server):
    model_server.script = FAILING
    run = compact(session)
    assert (run.status, run.error_code) == ("failed", "bad_answer")
    assert "empty" in run.error
    assert run.finished_at is not None
    assert [step.outcome for step in run.steps.all()] == ["error", "error"]
    assert not SessionSummary.objects.exists()


def test_automatic_runs_wait_after_a_failure(session, model_server, settings):
    model_server.script = FAILING
    assert execute_run(request(session).pk).status == "failed"
    assert state(session).failures == 1
    assert 50 < backoff(session) <= 60
    assert check_branch(session) is None


def test_each_failure_doubles_the_wait_up_to_an_hour(session, model_server):
    model_server.script = FAILING
    waits = []
    for _ in range(8):
        execute_run(request(session).pk)
        waits.append(round(backoff(session) / 60))
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_run_by_hand_does_not_wait(session, model_server):
    model_server.script = FAILING
    execute_run(request(session).pk)
    model_server.script = [{"when": {}, "reply": {"text": "fine"}}]
    assert compact(session).status == "succeeded"


def test_a_failure_by_hand_makes_no_automatic_run_wait(session, model_server):
    model_server.script = FAILING
    compact(session)
    assert state(session).failures == 0
    assert check_branch(session) is not None


def test_a_success_ends_the_waiting(session, model_server):
    model_server.script = FAILING
    execute_run(request(session).pk)
    model_server.script = [{"when": {}, "reply": {"text": "fine"}}]
    compact(session)
    assert (state(session).failures, state(session).backoff_until) == (0, None)


def test_when_the_wait_is_over_a_trigger_counts_again(session, model_server):
    model_server.script = FAILING
    execute_run(request(session).pk)
    past = timezone.now() - timedelta(seconds=1)
    CompactionState.objects.update(backoff_until=past)
    assert check_branch(session) is not None


def test_a_waiting_run_can_be_cancelled(session):
    run = lifecycle.cancel_run(request(session))
    assert (run.status, run.error_code) == ("cancelled", "cancelled")
    assert execute_run(run.pk).status == "cancelled"


def test_a_working_run_stops_before_its_next_call(session, model_server, monkeypatch):
    run = request(session, trigger="manual")
    from compaction.summaries.summarizer import ModelSummarizer

    real = ModelSummarizer.summarize

    def cancelled(self, asked):
        lifecycle.cancel_run(CompactionRun.objects.get(pk=run.pk))
        return real(self, asked)

    monkeypatch.setattr(ModelSummarizer, "summarize", cancelled)
    assert execute_run(run.pk).status == "cancelled"
    assert not SessionSummary.objects.exists()
    assert state(session).cursor == 0
    assert not state(session).is_consolidating
    assert state(session).failures == 0


def test_a_finished_run_cannot_be_cancelled(session):
    run = compact(session)
    with pytest.raises(CompactionError, match="ended already"):
        lifecycle.cancel_run(run)
    assert CompactionRun.objects.get().status == "succeeded"


def test_a_failed_run_can_be_run_again(session, model_server):
    model_server.script = FAILING
    failed = compact(session, instructions="dates", keep_last_n=4)
    model_server.script = [{"when": {}, "reply": {"text": "fine"}}]
    again = lifecycle.retry_run(failed)
    assert (again.status, again.instructions, again.keep_last_n) == ("queued", "dates", 4)
    assert execute_run(again.pk).status == "succeeded"


def test_a_run_that_succeeded_is_not_run_again(session):
    with pytest.raises(CompactionError):
        lifecycle.retry_run(compact(session))


def test_a_worker_that_lost_its_run_cannot_end_it(session):
    run = lifecycle.claim(request(session).pk, uuid.uuid4())
    CompactionRun.objects.filter(pk=run.pk).update(worker=uuid.uuid4())
    run.worker = uuid.uuid4()
    lifecycle.finish(run, "failed", code="late", sentence="late")
    assert CompactionRun.objects.get().status == "running"


def test_a_turn_names_its_run(session):
    assert say(session).context.run_id == str(CompactionRun.objects.get().pk)


def test_a_run_again_uses_the_profile_as_it_is_now(owner, queued):
    wrong = profile(message_limit=40)
    session = SessionFactory(owner=owner)
    run = CompactionRun.objects.create(
        session=session, branch=session.branch, trigger="manual", reason="manual",
        mode="background", profile=wrong, status="failed",
    )  # fmt: skip
    mended = profile(message_limit=41)
    assert lifecycle.retry_run(run).profile == mended
    CompactionProfile.objects.filter(pk=mended.pk).update(is_current=False)
    assert lifecycle.retry_run(run).profile == wrong
