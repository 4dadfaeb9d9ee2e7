"""The sweep: finds leases that ran out and runs that never started, and starts them again."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta

from django.utils import timezone

from compaction import queue
from compaction.conf import compaction_settings
from compaction.models import CompactionRun, CompactionState
from compaction.services import runs
from compaction.services.leases import interrupt_runs

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
    """Free expired leases, start their runs again, and queue again what nobody claimed."""
    now = timezone.now()
    expired = list(
        CompactionState.objects.filter(lease_owner__isnull=False, lease_expires_at__lt=now)
    )
    restarted = sum(_free(state) for state in expired)
    return Swept(
        expired_leases=len(expired), restarted_runs=restarted, requeued_runs=_requeue()
    )


def _free(state: CompactionState) -> int:
    """Free one expired lease and restart the run that held it; return 1 if there was one."""
    held = list(
        CompactionRun.objects.select_related("session", "branch", "profile", "replaces").filter(
            branch_id=state.pk, status=Status.RUNNING, worker=state.lease_owner
        )
    )
    freed = CompactionState.objects.filter(
        pk=state.pk, lease_owner=state.lease_owner, lease_expires_at__lt=timezone.now()
    ).update(lease_owner=None, lease_expires_at=None)
    if not freed:
        return 0
    interrupt_runs(state.pk)
    for run in held:
        run.refresh_from_db()
        if run.restarts + 1 < compaction_settings.max_run_attempts and run.is_finished:
            runs.retry_run(run, requested_by=run.requested_by, restarts=run.restarts + 1)
    return len(held)


def _requeue() -> int:
    """Queue lost runs again; mark running ones without a lease as interrupted; return the former.

    A run counts as lost when it waited long although the queue holds nothing.
    """
    now = timezone.now()
    stale = CompactionRun.objects.filter(
        status=Status.RUNNING,
        started_at__lt=now - timedelta(seconds=compaction_settings.lease_seconds),
        branch__compaction_state__lease_owner__isnull=True,
    )
    for branch_id in set(stale.values_list("branch_id", flat=True)):
        interrupt_runs(branch_id)
    if queue.waiting_tasks():
        return 0
    long_ago = now - timedelta(seconds=compaction_settings.queued_run_seconds)
    waiting = CompactionRun.objects.filter(status=Status.QUEUED, created_at__lt=long_ago)
    ids = list(waiting.values_list("pk", flat=True)[:REQUEUE_BATCH])
    for run_id in ids:
        queue.enqueue_run(run_id)
    return len(ids)
