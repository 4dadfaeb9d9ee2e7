"""Taking a summary back."""

from __future__ import annotations

import uuid

import pytest

from chatapp import transcript
from chatapp.models import Message
from compaction.branches.leases import Lease, ensure_state
from compaction.errors import BranchBusyError, CompactionError
from compaction.models import CompactionState, SessionSummary
from compaction.summaries.restore import restore_summary
from tests.compaction.support import NEVER, compact, sent, state, stored, texts
from tests.factories import SessionFactory, profile, store, talk

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    return SessionFactory(owner=owner, wires=talk(6, marker=1))


@pytest.fixture
def two(session) -> list[SessionSummary]:
    compact(session)
    store(session, talk(3, marker=20))
    compact(session)
    return list(SessionSummary.objects.order_by("covers_through"))


def test_the_messages_are_sent_verbatim_again(session):
    before = sent(session)
    compact(session)
    restore_summary(SessionSummary.objects.get())
    assert sent(session) == before


def test_nothing_is_deleted(session):
    compact(session)
    rows = Message.objects.count()
    summary = SessionSummary.objects.get()
    restore_summary(summary)
    summary.refresh_from_db()
    assert summary.status == "restored"
    assert summary.summary_text
    assert summary.links.count() == 10
    assert Message.objects.count() == rows


def test_the_cursor_goes_back_to_the_summary_before(session, two):
    restored = restore_summary(two[1])
    assert restored.cursor == two[0].covers_through == state(session).cursor
    assert len(texts(sent(session), "system")) == 1
    covered = Message.objects.filter(kind="message", position__lte=restored.cursor)
    assert state(session).covered_messages == covered.count()


def test_a_summary_that_others_build_on_is_refused(session, two):
    with pytest.raises(CompactionError, match="1 newer summary"):
        restore_summary(two[0])
    assert SessionSummary.objects.filter(status="active").count() == 2


def test_cascade_takes_the_newer_ones_back_too(session, two):
    restored = restore_summary(two[0], cascade=True)
    assert restored.summaries == two
    assert state(session).cursor == 0
    assert texts(sent(session), "system") == []


def test_a_restored_summary_cannot_be_restored_again(session):
    compact(session)
    summary = SessionSummary.objects.get()
    restore_summary(summary)
    summary.refresh_from_db()
    with pytest.raises(CompactionError, match="restored"):
        restore_summary(summary)


def test_a_leased_branch_is_left_alone(session):
    compact(session)
    Lease.acquire_or_steal(session.branch.pk, uuid.uuid4())
    with pytest.raises(BranchBusyError):
        restore_summary(SessionSummary.objects.get())
    assert SessionSummary.objects.get().status == "active"


def test_the_lease_is_free_again_afterwards(session, two):
    with pytest.raises(CompactionError):
        restore_summary(two[0])
    assert not state(session).is_consolidating


def test_a_restored_stretch_can_be_compacted_again(session):
    compact(session)
    restore_summary(SessionSummary.objects.get())
    assert compact(session).status == "succeeded"
    assert SessionSummary.objects.filter(status="active").count() == 1


def test_a_fork_that_took_the_summary_over_sends_the_messages_again(session):
    compact(session)
    fork = transcript.fork(session, at=stored(session)[-1])
    assert ensure_state(fork).cursor > 0
    restore_summary(SessionSummary.objects.get())
    assert CompactionState.objects.get(pk=fork.pk).cursor == 0
    transcript.activate(session, fork)
    assert len(texts(sent(session), "user")) == 6


@pytest.fixture
def forked(session) -> SessionSummary:
    """A summary of the root that a fork's own summary continues; the fork is active."""
    compact(session)
    root = session.branch
    fork = transcript.fork(session, at=stored(session)[-1])
    transcript.activate(session, fork)
    store(session, talk(4, marker=40))
    compact(session)
    return SessionSummary.objects.get(branch=root)


def test_a_summary_that_a_fork_builds_on_is_refused(forked):
    with pytest.raises(CompactionError, match="1 newer summary was built on this one"):
        restore_summary(forked)
    assert SessionSummary.objects.filter(status="active").count() == 2


def test_cascade_takes_a_forks_summary_back_and_the_fork_sends_everything(session, forked):
    restored = restore_summary(forked, cascade=True)
    assert len(restored.summaries) == 2
    assert state(session).cursor == 0
    assert len(texts(sent(session), "user")) == 10


def test_a_fork_that_read_the_messages_itself_keeps_its_summary(session):
    root = session.branch
    fork = transcript.fork(session, at=stored(session)[-1])
    ensure_state(fork)
    compact(session)
    transcript.activate(session, fork)
    store(session, talk(4, marker=40))
    compact(session)
    own = SessionSummary.objects.get(branch=fork)
    restore_summary(SessionSummary.objects.get(branch=root))
    own.refresh_from_db()
    assert own.status == "active"
    assert state(session).cursor == own.covers_through
