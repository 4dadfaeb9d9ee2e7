"""Going on after a worker died: its run is marked, and another one does the work."""

from __future__ import annotations

from uuid import UUID

from django.db import transaction

from chatapp.database import database_now
from compaction.branches.leases import Lease, lock_state
from compaction.conf import compaction_settings
from compaction.engine.policy.reasons import RunCode
from compaction.events import event
from compaction.models import CompactionRun, CompactionState
from compaction.runs import lifecycle
from compaction.runs.lifecycle import note_failure

Status = CompactionRun.Status


def follow_stolen(lease: Lease) -> None:
    """Mark the run of a dead worker whose branch was taken over, and queue its successor."""
    if lease.former is None:
        return
    _tell_of(lease.former, lease.branch_id)
    lifecycle.interrupt_run_of(lease.former)
    _restart_run_of(lease.former, lease.branch_id)


def _tell_of(former: UUID, branch_id: UUID) -> None:
    # By the branch, which has an index: the worker has none.
    runs = CompactionRun.objects.filter(branch=branch_id, worker=former)
    run = runs.only("session", "reason").first()
    event(
        "lease_taken_over",
        session=run.session_id if run else None,
        branch=branch_id,
        run=run,
        reason=run.reason if run else "",
        former=former,
    )


def restart_run(run: CompactionRun) -> bool:
    """Mark a dead run as interrupted and queue its successor; return whether there is one.

    A run whose workers keep dying is given up; then automatic runs of the branch back off.
    """
    with transaction.atomic():
        lock_state(run.branch_id)
        if run.worker is None or not lifecycle.interrupt_run_of(run.worker):
            return False
        run.refresh_from_db()
        if run.mode == "inline" and run.trigger == CompactionRun.Trigger.OVERFLOW_RETRY:
            # The request that it was to make smaller died with it.
            CompactionState.objects.filter(pk=run.branch_id).update(next_check_at=database_now())
            return False
        return _go_on(run)


def _restart_run_of(worker: UUID, branch_id: UUID) -> None:
    """Queue the successor of a dead worker's run whose branch another run has taken over.

    An automatic one has none: the run that took the branch does its work. The branch is named
    because it has an index, which the worker has not.
    """
    dead = CompactionRun.objects.select_related("session", "branch", "profile", "replaces").filter(
        branch=branch_id,
        worker=worker,
        status=Status.FAILED,
        error_code=RunCode.INTERRUPTED,
        mode="background",
    )
    for run in dead.exclude(trigger=CompactionRun.Trigger.PROACTIVE):
        _go_on(run)


def _go_on(run: CompactionRun) -> bool:
    """Queue the successor of an interrupted run, unless its workers keep dying."""
    if run.restarts + 1 >= compaction_settings.max_run_attempts:
        event(
            "run_given_up",
            session=run.session_id,
            branch=run.branch_id,
            run=run,
            reason=run.reason,
        )
        note_failure(run)
        return False
    again = lifecycle.retry_run(run, requested_by=run.requested_by, restarts=run.restarts + 1)
    event(
        "run_restarted",
        session=run.session_id,
        branch=run.branch_id,
        run=run,
        reason=run.reason,
        successor=again.pk,
        restarts=again.restarts,
    )
    return True
