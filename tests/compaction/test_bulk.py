"""Re-summarising all sessions of a filter: priced, paused, cancelled, resumed, rolled back."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.utils import timezone

from chatapp.context.backend import context_backend
from chatapp.models import Session
from compaction.engine.extractive.summarizer import ExtractiveSummarizer
from compaction.errors import CompactionError
from compaction.models import BulkItem, BulkJob, CompactionRun, CompactionState, SessionSummary
from compaction.runs import bulk_work, queue
from compaction.runs.bulk import (
    cancel_bulk,
    make_bulk,
    pause_bulk,
    roll_back_bulk,
    start_bulk,
    sums_of_job,
)
from compaction.runs.bulk_work import deliver_lost_bulk, put_version_back, work_at_bulk
from tests.compaction.support import compact
from tests.factories import SessionFactory, UserFactory, profile, talk

pytestmark = pytest.mark.django_db
Active, Superseded = SessionSummary.Status.ACTIVE, SessionSummary.Status.SUPERSEDED


@pytest.fixture
def sessions():
    """Three summarised sessions, and one without a summary."""
    profile(summariser="extractive", keep_last_n=2)
    made = [SessionFactory(wires=talk(6)) for _ in range(3)]
    for session in made:
        compact(session)
    SessionFactory(wires=talk(1))
    return made


def all_of(sessions):
    return Session.objects.filter(pk__in=[one.pk for one in sessions])


def planned(sessions, **options) -> BulkJob:
    job = make_bulk(Session.objects.all(), requested_by=UserFactory(), **options)
    work_at_bulk(job.pk)
    job.refresh_from_db()
    return job


def run(job) -> BulkJob:
    start_bulk(job)
    work_at_bulk(job.pk)
    job.refresh_from_db()
    return job


def active(session) -> SessionSummary:
    return SessionSummary.objects.get(session=session, status=Active)


def requests(sessions) -> list:
    return [context_backend.preview(Session.objects.get(pk=one.pk)).messages for one in sessions]


def test_the_price_is_worked_out_before_anything_is_made(sessions):
    job = planned(sessions)
    sums = sums_of_job(job)
    assert job.status == BulkJob.Status.PLANNED
    # The one without a summary is no part of it.
    assert sums.total == 3
    assert sums.planned_summaries == 3
    assert sums.planned_tokens == sum(active(one).approx_tokens for one in sessions)
    assert sums.summaries == 0
    assert not CompactionRun.objects.filter(trigger="resummarize").exists()


def test_all_sessions_of_a_filter_are_done_and_not_a_page_of_them(sessions):
    before = {one.pk: active(one).pk for one in sessions}
    job = run(planned(sessions))
    assert job.status == BulkJob.Status.DONE
    assert sums_of_job(job).sessions == {"done": 3}
    for session in sessions:
        assert active(session).supersedes_id == before[session.pk]


def test_rolled_back_each_request_is_byte_for_byte_the_one_before(sessions):
    before = requests(sessions)
    # What is written anew without a change would prove nothing.
    profile(summariser="extractive", keep_last_n=2, target_summary_tokens=60)
    job = run(planned(sessions))
    assert requests(sessions) != before
    roll_back_bulk(job)
    work_at_bulk(job.pk)
    job.refresh_from_db()
    assert job.status == BulkJob.Status.ROLLED_BACK
    assert sums_of_job(job).sessions == {"back": 3}
    assert requests(sessions) == before


def test_a_paused_job_goes_on_with_the_sessions_that_are_left(sessions, monkeypatch):
    job = planned(sessions)
    start_bulk(job)
    taken = []
    original = bulk_work.Redo.take

    def pause_after_the_first(self, session_id):
        taken.append(session_id)
        found = original(self, session_id)
        pause_bulk(BulkJob.objects.get(pk=job.pk)) if len(taken) == 1 else None
        return found

    monkeypatch.setattr(bulk_work.Redo, "take", pause_after_the_first)
    assert work_at_bulk(job.pk) == BulkJob.Status.PAUSED
    monkeypatch.undo()
    assert sums_of_job(job).of("done") == 1
    assert work_at_bulk(job.pk) == "gone"
    job.refresh_from_db()
    assert run(job).status == BulkJob.Status.DONE
    assert sums_of_job(job).sessions == {"done": 3}
    assert SessionSummary.objects.filter(status=Superseded).count() == 3


def test_a_cancelled_job_leaves_whole_sessions_and_can_be_rolled_back(sessions, monkeypatch):
    job = planned(sessions)
    start_bulk(job)
    original = bulk_work.Redo.take

    def cancel_after_it(self, session_id):
        found = original(self, session_id)
        if BulkJob.objects.get(pk=job.pk).status == BulkJob.Status.RUNNING:
            cancel_bulk(BulkJob.objects.get(pk=job.pk))
        return found

    monkeypatch.setattr(bulk_work.Redo, "take", cancel_after_it)
    work_at_bulk(job.pk)
    monkeypatch.undo()
    job.refresh_from_db()
    assert job.status == BulkJob.Status.CANCELLED
    assert SessionSummary.objects.filter(status=Active).count() == 3
    with pytest.raises(CompactionError, match="not possible now"):
        start_bulk(job)
    roll_back_bulk(job)
    work_at_bulk(job.pk)
    assert not SessionSummary.objects.filter(status=Active, supersedes__isnull=False).exists()


def test_two_slices_never_work_at_one_job(sessions):
    job = planned(sessions)
    start_bulk(job)
    held = {"worker": uuid.uuid4(), "lease_expires_at": timezone.now() + timedelta(minutes=1)}
    BulkJob.objects.filter(pk=job.pk).update(**held)
    assert work_at_bulk(job.pk) == "gone"
    assert sums_of_job(job).of("done") == 0


def test_what_a_killed_worker_had_made_is_not_made_again_and_is_rolled_back(
    sessions, monkeypatch, django_capture_on_commit_callbacks
):
    job = planned(sessions)
    start_bulk(job)

    class KilledError(BaseException):
        pass

    def killed(*args, **kwargs):
        raise KilledError

    monkeypatch.setattr(bulk_work._Turn, "_note_result", killed)
    with pytest.raises(KilledError):
        work_at_bulk(job.pk)
    monkeypatch.undo()
    # A process that is killed gives nothing back.
    dead = {"worker": uuid.uuid4(), "lease_expires_at": timezone.now() - timedelta(seconds=1)}
    BulkJob.objects.filter(pk=job.pk).update(**dead)
    delivered = []
    monkeypatch.setattr(queue, "enqueue_bulk", delivered.append)
    assert deliver_lost_bulk() == 1
    assert delivered == [job.pk]
    assert work_at_bulk(job.pk) == BulkJob.Status.DONE
    assert sums_of_job(job).sessions == {"done": 3}
    # Three sessions, three versions: the one behind which the worker died was made once.
    assert SessionSummary.objects.filter(supersedes__isnull=False).count() == 3
    job.refresh_from_db()
    roll_back_bulk(job)
    work_at_bulk(job.pk)
    assert not SessionSummary.objects.filter(status=Active, supersedes__isnull=False).exists()


def test_a_job_is_free_no_sooner_than_the_session_that_a_killed_worker_was_at(
    sessions, monkeypatch
):
    job = planned(sessions)
    start_bulk(job)
    ends = []

    def looks(self, request):
        # What a process leaves that is killed while the model writes.
        branch = CompactionState.objects.filter(lease_expires_at__isnull=False).get()
        job.refresh_from_db()
        ends.append((job.lease_expires_at, branch.lease_expires_at))
        return summarize(self, request)

    summarize = ExtractiveSummarizer.summarize
    monkeypatch.setattr(ExtractiveSummarizer, "summarize", looks)
    work_at_bulk(job.pk)
    assert len(ends) >= 3
    assert all(job_ends >= branch_ends for job_ends, branch_ends in ends)


def test_a_summariser_that_is_down_pauses_the_job(monkeypatch):
    profile(summariser="extractive", keep_last_n=2)
    for _ in range(7):
        compact(SessionFactory(wires=talk(6)))
    job = planned([])
    start_bulk(job)

    def fails(self, session_id):
        return bulk_work.SessionResult(
            session=str(session_id), status="failed", error="It is down."
        )

    monkeypatch.setattr(bulk_work.Redo, "take", fails)
    assert work_at_bulk(job.pk) == BulkJob.Status.PAUSED
    job.refresh_from_db()
    assert "5 sessions failed" in job.note
    assert "It is down." in job.note
    assert sums_of_job(job).sessions == {"failed": 5, "planned": 2}


def test_forced_it_makes_again_what_was_made_once_and_not_what_it_made_itself(sessions):
    run(planned(sessions))
    # Made with the same profile and prompts a moment ago: there is nothing to do.
    idle = planned(sessions)
    assert sums_of_job(idle).sessions == {"nothing": 3}
    job = run(planned(sessions, force=True))
    assert sums_of_job(job).sessions == {"done": 3}
    assert SessionSummary.objects.filter(supersedes__isnull=False).count() == 6


def test_nothing_is_started_where_no_session_has_a_summary():
    SessionFactory(wires=talk(2))
    with pytest.raises(CompactionError, match="None of these sessions"):
        make_bulk(Session.objects.all())
    assert not BulkJob.objects.exists()


def test_a_session_that_somebody_changed_since_stays_as_it_is(sessions):
    job = run(planned(sessions))
    first = active(sessions[0])
    SessionSummary.objects.filter(pk=first.pk).update(status=SessionSummary.Status.RESTORED)
    roll_back_bulk(job)
    work_at_bulk(job.pk)
    assert sums_of_job(job).sessions == {"kept": 1, "back": 2}
    kept = BulkItem.objects.get(job=job, status="kept")
    assert kept.session_id == sessions[0].pk
    assert "restored by now" in kept.error


def test_a_version_is_put_back_in_one_step_or_not_at_all(sessions):
    run(planned(sessions))
    version = active(sessions[0])
    old = version.supersedes
    SessionSummary.objects.filter(pk=old.pk).update(status=SessionSummary.Status.RESTORED)
    with pytest.raises(CompactionError):
        put_version_back(version)
    version.refresh_from_db()
    assert version.status == Active
