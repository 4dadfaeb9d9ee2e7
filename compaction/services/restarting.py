"""Going on after a worker died: its run is marked, and another one does the work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID, uuid4

from django.db import transaction
from django.utils import timezone

from compaction.conf import compaction_settings
from compaction.events import event
from compaction.models import CompactionRun, CompactionState
from compaction.services import runs
from compaction.services.backoff import note_failure
from compaction.services.leases import Lease, interrupt_run_of, lock_state

Status = CompactionRun.Status


@contextmanager
def held(branch_id: UUID) -> Iterator[Lease]:
    """Hold a branch for something else than a run; raise BranchBusyError while one works on it.

    Who had it before and is dead has a run that would not go on otherwise.
    """
    lease = take_over(branch_id, uuid4())
    try:
        yield lease
    finally:
        lease.release()


def take_over(branch_id: UUID, owner: UUID) -> Lease:
    """Take a branch's lease; raise BranchBusyError while another one holds it.

    A dead holder's run is marked and followed in one: half of it would be found by nobody.
    """
    with transaction.atomic():
        lease = Lease.take(branch_id, owner)
        if lease.former is not None:
            _restart_run_of(lease.former, branch_id)
    return lease


def restart_run(run: CompactionRun) -> bool:
    """Mark a dead run as interrupted and queue its successor; return whether there is one.

    A run whose workers keep dying is given up; then automatic runs of the branch back off.
    """
    with transaction.atomic():
        lock_state(run.branch_id)
        if run.worker is None or not interrupt_run_of(run.worker):
            return False
        run.refresh_from_db()
        if run.mode == "inline" and run.trigger == CompactionRun.Trigger.OVERFLOW_RETRY:
            # The request that it was to make smaller died with it.
            CompactionState.objects.filter(pk=run.branch_id).update(look_again_at=timezone.now())
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
        error_code="interrupted",
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
    again = runs.retry_run(run, requested_by=run.requested_by, restarts=run.restarts + 1)
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
