"""The sweep: dead workers, lost tasks, and idle branches whose time has come."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from chatapp.llm.models import UnknownModelError
from compaction import queue
from compaction.conf import compaction_settings
from compaction.events import event
from compaction.models import CompactionRun, CompactionState
from compaction.services import runs
from compaction.services.checking import check_branch
from compaction.services.heartbeats import beat, forget_silent
from compaction.services.leases import interrupt_run_of

Status = CompactionRun.Status
REQUEUE_BATCH = 100
IDLE_BATCH = 200
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a sweep found."""

    expired_leases: int = 0
    restarted_runs: int = 0
    requeued_runs: int = 0
    due_branches: int = 0
    silent_workers: int = 0

    def as_dict(self) -> dict[str, int]:
        """Return the counts by name."""
        return asdict(self)


def sweep_runs() -> Swept:
    """Look after everything that nobody else will: dead workers, lost tasks, times that came.

    Expired leases are freed, dead workers' runs start again, what the queue lost or what waited
    until now is delivered, and idle branches are looked at whose time has come.
    """
    beat()
    now = timezone.now()
    dead = list(dead_runs(now))
    expired = free_expired(CompactionState.objects.all())
    swept = Swept(
        expired_leases=expired,
        restarted_runs=sum(restart_run(run) for run in dead),
        requeued_runs=_deliver_waiting(now) + _requeue(now),
        due_branches=_look_at_idle(now),
        silent_workers=forget_silent(),
    )
    if any(swept.as_dict().values()):
        event("swept", reason="", **swept.as_dict())
    return swept


def free_expired(states: QuerySet[CompactionState]) -> int:
    """Free the leases among these states that ran out; return how many."""
    return states.filter(lease_owner__isnull=False, lease_expires_at__lt=timezone.now()).update(
        lease_owner=None, lease_expires_at=None
    )


def dead_runs(now: datetime) -> QuerySet[CompactionRun]:
    """Return the runs that say "running" while their worker holds no lease any more.

    A live worker takes the lease right after it claimed the run, and keeps it to the run's end.
    """
    held = CompactionState.objects.filter(
        branch=OuterRef("branch"), lease_owner=OuterRef("worker"), lease_expires_at__gte=now
    )
    return CompactionRun.objects.select_related("session", "branch", "profile", "replaces").filter(
        ~Exists(held),
        status=Status.RUNNING,
        started_at__lt=now - timedelta(seconds=compaction_settings.lease_seconds),
    )


def restart_run(run: CompactionRun) -> bool:
    """Mark a dead run as interrupted and queue its successor; return whether there is one.

    A run whose workers keep dying is given up; then automatic runs of the branch back off.
    """
    with transaction.atomic():
        if run.worker is None or not interrupt_run_of(run.worker):
            return False
        run.refresh_from_db()
        if run.restarts + 1 >= compaction_settings.max_run_attempts:
            runs.note_failure(run)
            return False
        runs.retry_run(run, requested_by=run.requested_by, restarts=run.restarts + 1)
    return True


def _requeue(now: datetime) -> int:
    """Deliver again what waited long and is missing in the queue; return how many.

    The queue holds fewer tasks than runs wait when some were lost. The oldest are delivered; where
    one of them was not lost, its second delivery finds it claimed.
    """
    long_ago = now - timedelta(seconds=compaction_settings.queued_run_seconds)
    queued = CompactionRun.objects.filter(status=Status.QUEUED, waits_until__isnull=True)
    missing = queued.count() - queue.waiting_tasks()
    if missing <= 0:
        return 0
    waiting = queued.filter(created_at__lt=long_ago).order_by("created_at")
    ids = list(waiting.values_list("pk", flat=True)[: min(missing, REQUEUE_BATCH)])
    for run_id in ids:
        queue.enqueue_run(run_id)
    return len(ids)


def _deliver_waiting(now: datetime) -> int:
    """Deliver the runs whose waiting is over; return how many."""
    over = CompactionRun.objects.filter(status=Status.QUEUED, waits_until__lte=now)
    delivered = 0
    for run_id in list(over.order_by("waits_until").values_list("pk", flat=True)[:REQUEUE_BATCH]):
        # Of two sweeps one does it; a task that is lost now is found as any other.
        if over.filter(pk=run_id).update(waits_until=None):
            queue.enqueue_run(run_id)
            delivered += 1
    return delivered


def _look_at_idle(now: datetime) -> int:
    """Check the branches whose time has come without a message; return how many got a run.

    Only the branch that a session is on: nobody waits for the others.
    """
    due = CompactionState.objects.filter(look_again_at__lte=now).order_by("look_again_at")
    found = 0
    for state in due.select_related("branch__session")[:IDLE_BATCH]:
        if not due.filter(pk=state.pk).update(look_again_at=None):
            continue
        session = state.branch.session
        if session.active_branch_id != state.pk:
            continue
        try:
            found += check_branch(session, state.branch) is not None
        except UnknownModelError as unknown:
            event("branch_left_alone", session=session, branch=state.branch, code="unknown_model")
            logger.warning("Session %s is not looked at: %s", session.pk, unknown)
    return found
