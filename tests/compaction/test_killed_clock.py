"""The prompt cache's clock, and processes that are killed or look at once: it fires, and once."""

from __future__ import annotations

import threading
from datetime import timedelta
from uuid import UUID

import pytest
from django.db import connections
from django.utils import timezone

from chatapp.models import Message, Session
from compaction.branches.leases import ensure_state
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.runs.sweep import look_at_clocks
from compaction.runs.worker import execute_run
from tests.compaction.support import NEVER, say, state
from tests.compaction.test_killed_anywhere import every_death
from tests.factories import SessionFactory, profile, talk

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
LOOKERS = 4


@pytest.fixture
def begin(owner, model_server, queued):
    """begin() is a session whose prompt expires in half a minute."""
    profile(
        **NEVER,
        keep_last_n=2,
        trigger_on_history_size_chars_when_cache_expiring=1_000,
        cache_ttl_ms=300_000,
        buffer_time_before_cache_expiration_ms=30_000,
    )

    def new() -> Session:
        session = SessionFactory(owner=owner, wires=talk(6, marker=1))
        ensure_state(session.branch)
        return session

    return new


def is_due(session: Session) -> bool:
    """Have the clock fire now."""
    now = timezone.now()
    return bool(
        CompactionState.objects.filter(pk=session.active_branch_id).update(
            cache_expires_at=now + timedelta(seconds=30), next_check_at=now
        )
    )


def fired_once(session: Session) -> None:
    """One summary was made by the clock, of all but the two kept, and no timer is left."""
    (summary,) = SessionSummary.objects.filter(session=session)
    assert (summary.reason, summary.status) == ("cache_expiring", "active")
    assert state(session).cache_expires_at is None
    assert Message.objects.filter(summary_links__summary=summary).count() == 10


def test_a_look_and_its_run_that_die_anywhere_are_done_by_others(begin, queued):
    def work(session, _):
        if look_at_clocks():
            execute_run(UUID(queued.pop()[1]))

    for session, _ in every_death(queued, begin, is_due, work, every=3):
        fired_once(session)


def test_a_turn_that_dies_anywhere_leaves_a_clock_to_the_next_one(begin, queued):
    for session, _ in every_death(queued, begin, is_due, lambda s, _: say(s), every=3):
        # Either the old time came, or the turn had noted its own.
        assert SessionSummary.objects.count() <= 1
        say(session, "once more")
        assert state(session).cache_expires_at > timezone.now() + timedelta(seconds=200)


def test_of_many_that_look_at_once_one_fires(begin, queued):
    sessions = [begin() for _ in range(3)]
    assert all(map(is_due, sessions))
    together = threading.Barrier(LOOKERS)
    found: list[int] = []

    def look() -> None:
        try:
            together.wait(20)
            found.append(look_at_clocks())
        finally:
            connections.close_all()

    threads = [threading.Thread(target=look) for _ in range(LOOKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sum(found) == len(sessions)
    assert CompactionRun.objects.count() == len(sessions)
    assert len(queued) == len(sessions)
