"""What happens between two looks: somebody else was quicker, died, or put a message in between."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.db import OperationalError
from django.utils import timezone

from chatapp.models import Message
from chatapp.transcript import insert_between
from chatapp.transcript.writing import NewMessage
from compaction.branches.leases import Lease, ensure_state
from compaction.branches.snapshot import snapshot_of
from compaction.errors import BranchBusyError
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.runs import lifecycle
from compaction.runs import sweep as sweeping
from compaction.runs import worker as compacting
from compaction.runs.scheduling import check_branch
from compaction.runs.sweep import sweep_runs
from compaction.runs.worker import execute_run
from compaction.summaries.drafts import publish_draft
from compaction.summaries.restore import restore_summary
from compaction.summaries.summarizer import ModelSummarizer
from tests.compaction.support import NEVER, compact, say, state
from tests.compaction.test_window import failing, window
from tests.compaction.test_window_in_trouble import fill, unknown
from tests.factories import SessionFactory, profile, store, talk, user

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(owner, model_server, queued):
    window()
    return SessionFactory(owner=owner)


def test_a_request_tries_again_when_a_worker_just_had_the_branch(
    session, model_server, monkeypatch
):
    fill(session, 0, 250)
    real, first = Lease.acquire_or_steal.__func__, []

    def take(cls, branch_id, owner):
        if not first:
            first.append(owner)
            raise BranchBusyError("Another run is compacting this branch.")
        return real(cls, branch_id, owner)

    # Nor is the branch as it was read, then.
    monkeypatch.setattr(Lease, "acquire_as_read", classmethod(lambda cls, state, owner: None))
    monkeypatch.setattr(Lease, "acquire_or_steal", classmethod(take))
    say(session, "and now?")
    assert first
    assert unknown(model_server, 250) == []


def test_a_request_tries_again_when_a_worker_claimed_its_run(session, model_server, monkeypatch):
    fill(session, 0, 250)
    check_branch(session)
    real, first = lifecycle.claim, []

    def claim(run_id, worker):
        if not first:
            # The queue's worker is quicker, and stops a moment later.
            first.append(run_id)
            CompactionRun.objects.filter(pk=run_id).update(
                status="running", worker=uuid.uuid4(), started_at=timezone.now()
            )
            return None
        return real(run_id, worker)

    monkeypatch.setattr(compacting.lifecycle, "claim", claim)
    say(session, "and now?")
    assert first
    assert unknown(model_server, 250) == []


def test_a_message_put_before_the_cursor_during_a_run_stays_counted(
    owner, model_server, queued, monkeypatch
):
    profile(keep_last_n=2, **NEVER)
    session = SessionFactory(owner=owner, wires=talk(10, marker=1))
    compact(session)
    store(session, talk(6, marker=20))
    real = ModelSummarizer.summarize

    def meanwhile(self, request):
        insert_between(session.branch, after=2_000_000, draft=NewMessage(wire=user("put between")))
        return real(self, request)

    monkeypatch.setattr(ModelSummarizer, "summarize", meanwhile)
    assert compact(session).status == "succeeded"
    after = state(session)
    before_cursor = Message.objects.filter(kind="message", position__lte=after.cursor)
    assert after.covered_messages == before_cursor.count()


@pytest.mark.parametrize("how", ["restore", "publish"])
def test_a_dead_workers_run_by_hand_goes_on_whoever_took_its_branch(
    owner, model_server, queued, how
):
    row = profile(keep_last_n=2, **NEVER)
    session = SessionFactory(owner=owner, wires=talk(10, marker=1))
    compact(session)
    summary = SessionSummary.objects.get()
    store(session, talk(6, marker=20))
    run = lifecycle.request_run(lifecycle.RunRequest(
        session=session, branch=session.branch, trigger="manual", reason="manual",
        profile=row, background=True,
    ))  # fmt: skip
    worker = uuid.uuid4()
    lifecycle.claim(run.pk, worker)
    Lease.acquire_or_steal(session.branch.pk, worker)
    CompactionState.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1))
    if how == "restore":
        restore_summary(summary)
    else:
        SessionSummary.objects.create(
            session=session, branch=session.branch, status="draft", summary_text="x",
            covers_from=1, covers_through=session.branch.head_position, message_count=1,
        )  # fmt: skip
        publish_draft(snapshot_of(session))
    successor = CompactionRun.objects.get(status="queued")
    assert (successor.trigger, successor.restarts) == ("manual", 1)


def test_a_run_that_cannot_be_started_again_keeps_nobody_else_waiting(session, owner, monkeypatch):
    other = SessionFactory(owner=owner)
    for one in (session, other):
        fill(one, 0, 60)
    lifecycle.claim(check_branch(session).pk, uuid.uuid4())
    CompactionRun.objects.update(started_at=timezone.now() - timedelta(hours=1))
    ensure_state(other.branch)
    CompactionState.objects.filter(pk=other.branch.pk).update(next_check_at=timezone.now())

    def deadlock(run):
        raise OperationalError("deadlock detected")

    monkeypatch.setattr(sweeping, "restart_run", deadlock)
    swept = sweep_runs()
    assert (swept.restarted_runs, swept.due_branches) == (0, 1)


@pytest.mark.parametrize("turns", [1, 3])
def test_messages_of_nearly_nothing_are_archived_in_the_end(session, model_server, settings, turns):
    """Four of them are no larger than the fallback digest's own words: the next one takes more."""
    settings.COMPACTION = settings.COMPACTION | {"INLINE_SECONDS": 10}
    failing(model_server)
    pair = [user("k"), {"role": "assistant", "content": "y"}]
    store(session, pair * 100)
    for number in range(turns):
        say(session, f"question {number}")
    # The answer came on top.
    assert snapshot_of(session).facts.countable <= 75 + 1
    assert SessionSummary.objects.filter(is_digest=True).exists()
    assert CompactionRun.objects.count() < 40


def test_a_summariser_that_always_fails_is_not_asked_for_every_batch_of_a_backlog(
    session, model_server
):
    failing(model_server)
    fill(session, 0, 400)
    say(session, "still there?")
    # Six attempts of two calls each; then what has to go is stored as a digest without asking
    # again.
    assert len(model_server.of("summary")) == 12
    assert unknown(model_server, 400) == []


def test_what_cannot_get_smaller_is_not_tried_for_ever(owner, model_server, queued):
    """A window without smaller batches and digests: one attempt, and the request goes out."""
    window(smaller_after_failures=0, digest_after_failures=0)
    session = SessionFactory(owner=owner)
    failing(model_server)
    fill(session, 0, 90)
    say(session, "still there?")
    assert CompactionRun.objects.filter(status="failed").count() == 1


def test_a_second_worker_publishes_no_draft_twice(owner, model_server, use_models, queued):
    use_models(model_server.models(CONTEXT_WINDOW=2400, MAX_OUTPUT=200))
    session = SessionFactory(owner=owner, wires=talk(20, marker=1))
    profile(**(NEVER | {"prepare_ratio": 0.7, "keep_last_n": 4, "publish_when_needed": True}))
    execute_run(check_branch(session).pk)
    first, second = snapshot_of(session), snapshot_of(session)
    assert publish_draft(first) is not None
    assert publish_draft(second) is None
    assert Message.objects.filter(kind="placeholder").count() == 1
