"""The state of a branch: worked out where none is stored, put right where it cannot be."""

from __future__ import annotations

import uuid
from datetime import timedelta
from operator import attrgetter

import pytest
from django.utils import timezone

from chatapp import transcript
from chatapp.models import Branch
from compaction.branches import leases
from compaction.branches.leases import Lease, after_lease, ensure_state, held, lock_state, state_of
from compaction.errors import BranchBusyError
from compaction.models import CompactionState, SessionSummary
from compaction.runs.scheduling import assign_profile
from tests.compaction.support import NEVER, compact, state, stored
from tests.factories import SessionFactory, profile, talk

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    return SessionFactory(owner=owner, wires=talk(6, marker=1))


@pytest.fixture
def put_right(caplog):
    """The decisions to put a cursor right, so far."""
    caplog.set_level("INFO", logger="compaction.events")
    return lambda: [r for r in caplog.records if getattr(r, "event", "") == "cursor_put_right"]


def test_a_fork_s_state_starts_where_the_summaries_reach_with_the_parents_profile(session):
    profile("other", **NEVER, keep_last_n=2)
    assign_profile(session, "other")
    compact(session)
    fork = transcript.fork(session, at=stored(session)[-1])
    CompactionState.objects.filter(pk=fork.pk).delete()
    found = state_of(fork)
    covered = stored(session)[:10]
    assert found._state.adding
    assert (found.cursor, found.profile) == (covered[-1].position, "other")
    assert found.covered_messages == 10
    assert found.covered_tokens == sum(row.tokens for row in covered)
    assert found.covered_chars == sum(row.chars for row in covered)


def test_ensuring_a_state_stores_it_under_the_sessions_lock(session, monkeypatch):
    CompactionState.objects.all().delete()
    locked = []
    monkeypatch.setattr(leases, "lock_some_branches", locked.append)
    assert not ensure_state(session.branch)._state.adding
    assert locked == [session.pk]
    assert state(session).cursor == 0
    # It is there now: nobody has to wait for another.
    ensure_state(session.branch)
    assert locked == [session.pk]


@pytest.mark.parametrize("cursor", [-1, 10**12])
def test_a_cursor_that_cannot_be_is_put_right_by_who_stores(session, put_right, cursor):
    compact(session)
    before = state(session)
    CompactionState.objects.update(
        cursor=cursor, covered_messages=999, covered_tokens=999, covered_chars=999
    )
    found = state_of(session.branch)
    columns = attrgetter("cursor", "covered_messages", "covered_tokens", "covered_chars")
    right = columns(before)
    assert columns(found) == right
    # Reading stores nothing and tells nobody.
    assert state(session).covered_messages == 999
    assert put_right() == []
    ensure_state(session.branch)
    now = state(session)
    assert columns(now) == right
    (told,) = put_right()
    assert (told.stored, told.cursor) == (cursor, before.cursor)
    ensure_state(session.branch)
    assert len(put_right()) == 1


def test_a_cursor_before_all_messages_is_right(session):
    compact(session)
    CompactionState.objects.update(cursor=0)
    assert state_of(session.branch).cursor == 0


def test_a_cursor_at_the_last_message_is_right(session):
    newest = Branch.objects.get(pk=session.branch.pk).head_position
    ensure_state(session.branch)
    CompactionState.objects.update(cursor=newest, covered_messages=12)
    assert state_of(session.branch).cursor == newest


def test_summaries_that_reach_behind_the_branch_count_as_none(session):
    compact(session)
    reach = SessionSummary.objects.get().covers_through
    Branch.objects.filter(pk=session.branch.pk).update(head_position=reach - 1)
    found = state_of(session.branch)
    assert (found.cursor, found.covered_messages, found.covered_tokens) == (0, 0, 0)


def test_summaries_that_reach_to_the_end_of_the_branch_count(session):
    compact(session)
    reach = SessionSummary.objects.get().covers_through
    Branch.objects.filter(pk=session.branch.pk).update(head_position=reach)
    CompactionState.objects.update(cursor=reach + 1)
    assert state_of(session.branch).cursor == reach


def test_who_holds_a_branch_frees_it_though_it_fails(session):
    branch_id = ensure_state(session.branch).pk
    with pytest.raises(RuntimeError), held(branch_id) as lease:
        assert state(session).lease_owner == lease.owner
        with pytest.raises(BranchBusyError), held(branch_id):
            pass
        raise RuntimeError
    assert state(session).lease_owner is None
    assert state(session).lease_expires_at is None


def test_a_theft_is_told_and_a_free_branch_is_none(session):
    branch_id = ensure_state(session.branch).pk
    told = []

    def hear(lease, **_):
        told.append(lease)

    leases.lease_stolen.connect(hear)
    try:
        dead = Lease.acquire_or_steal(branch_id, uuid.uuid4())
        assert told == []
        past = timezone.now() - timedelta(seconds=1)
        CompactionState.objects.update(lease_expires_at=past)
        lease = Lease.acquire_or_steal(branch_id, uuid.uuid4())
    finally:
        leases.lease_stolen.disconnect(hear)
    assert told == [lease]
    assert lease.former == dead.owner


def test_the_sweep_looks_when_a_lease_taken_now_would_be_over(settings):
    settings.COMPACTION = settings.COMPACTION | {"LEASE_SECONDS": 90}
    left = (after_lease() - timezone.now()).total_seconds()
    assert 85 < left <= 90


def test_locking_a_state_reads_it(session, django_assert_num_queries):
    branch_id = ensure_state(session.branch).pk
    with django_assert_num_queries(1):
        lock_state(branch_id)
