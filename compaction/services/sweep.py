"""The sweep: finds leases that ran out and runs that never started, and starts them again."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from compaction import queue
from compaction.conf import compaction_settings
from compaction.models import CompactionRun, CompactionState
from compaction.services import runs
from compaction.services.leases import interrupt_run_of

Status = CompactionRun.Status
REQUEUE_BATCH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a sweep found."""

    expired_leases: int = 0
    restarted_runs: int = 0
    requeued_runs: int = 0

    def as_dict(self) -> dict[str, int]:
        """Return the counts by name."""
        return asdict(self)


def sweep_runs() -> Swept:
    """Free expired leases, start dead workers' runs again, queue again what the queue lost."""
    now = timezone.now()
    dead = list(dead_runs(now))
    expired = free_expired(CompactionState.objects.all())
    return Swept(
        expired_leases=expired,
        restarted_runs=sum(restart_run(run) for run in dead),
        requeued_runs=_requeue(now),
    )


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
    queued = CompactionRun.objects.filter(status=Status.QUEUED)
    missing = queued.count() - queue.waiting_tasks()
    if missing <= 0:
        return 0
    waiting = queued.filter(created_at__lt=long_ago).order_by("created_at")
    ids = list(waiting.values_list("pk", flat=True)[: min(missing, REQUEUE_BATCH)])
    for run_id in ids:
        queue.enqueue_run(run_id)
    return len(ids)
