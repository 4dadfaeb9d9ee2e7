"""On a real cluster: a run starts before the prompt cache expires, whenever the queue looks."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.utils import timezone
from django_q.models import Schedule

from chatapp.models import Session
from compaction.branches.leases import ensure_state
from compaction.branches.snapshot import snapshot_of
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.runs import queue
from compaction.runs.scheduling import schedule_next_check
from tests.factories import SessionFactory, UserFactory, profile, talk
from tests.queue.test_cluster import cluster, server, wait_until, workers_of

__all__ = ["cluster", "server"]
pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
TRIES = 20
# Due times that lie in every part of the half minute in which a cluster does not look.
EVERY_SECONDS = 1.7
LEAD_SECONDS = 60


@pytest.fixture
def sessions(transactional_db, server) -> list[Session]:
    profile(
        message_limit=0,
        max_context_tokens=0,
        keep_last_n=2,
        trigger_on_history_size_chars_when_cache_expiring=1_000,
        cache_ttl_ms=300_000,
        buffer_time_before_cache_expiration_ms=30_000,
    )
    owner = UserFactory()
    return [SessionFactory(owner=owner, wires=talk(6, marker=10 * n)) for n in range(TRIES + 2)]


def requested(session: Session, *, due_in: float) -> datetime:
    """Move the time of a session's last request, so that its run is due then; return its end."""
    expires = timezone.now() + timedelta(seconds=due_in + LEAD_SECONDS)
    state = ensure_state(session.branch)
    state.cache_expires_at = expires
    schedule_next_check(snapshot_of(session, state=state))
    return expires


def of(session: Session) -> list[CompactionRun]:
    return list(CompactionRun.objects.filter(session=session))


def test_in_twenty_of_twenty_tries_the_run_starts_before_the_cache_expires(sessions, cluster):
    wait_until(lambda: bool(workers_of(cluster.pid)))
    *tried, moved, left = sessions
    ends = {s.pk: requested(s, due_in=2 + EVERY_SECONDS * n) for n, s in enumerate(tried)}
    # A request came: its own time counts, and that is not now. The other branch has another's.
    requested(moved, due_in=1)
    requested(moved, due_in=240)
    requested(left, due_in=1)
    left.delete()
    queue.ensure_clock_schedules()
    looks = Schedule.objects.values_list("next_run", flat=True)
    assert abs((max(looks) - min(looks)).total_seconds() - 30) < 1

    done = CompactionRun.objects.filter(status="succeeded")
    wait_until(lambda: done.count() >= TRIES, seconds=150)
    for session in tried:
        (run,) = of(session)
        assert run.reason == "cache_expiring"
        due = ends[session.pk] - timedelta(seconds=LEAD_SECONDS)
        assert due <= run.started_at < ends[session.pk]
    assert of(moved) == []
    assert SessionSummary.objects.count() == TRIES
    # Each has fired once, and no timer is left but that of the newer request.
    assert CompactionRun.objects.count() == TRIES
    wait_until(lambda: CompactionState.objects.exclude(cache_expires_at=None).count() == 1)
