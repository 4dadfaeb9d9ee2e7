"""The sweep: dead workers, lost tasks, and idle branches whose time has come."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import Error
from django.db.models import Case, Exists, F, OuterRef, Q, QuerySet, When
from django.db.models.functions import Coalesce, Now

from chatapp.database import database_now
from chatapp.imports import deliver_lost, forget_old, waiting_imports
from chatapp.late_answers import store_late_answers
from chatapp.llm.registry import UnknownModelError
from chatapp.models import Session
from compaction.conf import compaction_settings
from compaction.engine.policy.reasons import RunCode
from compaction.errors import CompactionError
from compaction.events import event
from compaction.memories import runs as memory_runs
from compaction.models import CompactionRun, CompactionState
from compaction.runs import queue
from compaction.runs.bulk_work import deliver_lost_bulk, waiting_bulk
from compaction.runs.heartbeat import beat, forget_silent
from compaction.runs.lifecycle import NO_ERROR
from compaction.runs.scheduling import check_branch
from compaction.runs.takeover import restart_run
from compaction.selectors import ready_q

Status = CompactionRun.Status
REQUEUE_BATCH = 100
IDLE_BATCH = 200
# A branch that could not be looked at, or whose sweep was killed, is tried again then.
LATER = timedelta(minutes=10)
# The same, where a prompt cache is about to expire.
SOON = timedelta(minutes=1)
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a sweep found."""

    expired_leases: int = 0
    restarted_runs: int = 0
    requeued_runs: int = 0
    due_branches: int = 0
    silent_workers: int = 0
    requeued_imports: int = 0
    forgotten_imports: int = 0
    requeued_memory_runs: int = 0
    requeued_bulk_jobs: int = 0
    stored_answers: int = 0

    def as_dict(self) -> dict[str, int]:
        """Return the counts by name."""
        return asdict(self)


def sweep_runs() -> Swept:
    """Look after everything that nobody else will: dead workers, lost tasks, times that came.

    Expired leases are freed, dead workers' runs start again, what the queue lost or what waited
    until now is delivered, and idle branches are looked at whose time has come.
    """
    beat()
    now = database_now()
    dead = list(dead_runs(now))
    expired = free_expired(CompactionState.objects.all())
    swept = Swept(
        expired_leases=expired,
        restarted_runs=sum(_is_restarted(run) for run in dead),
        requeued_runs=_deliver_waiting(now) + _requeue(now),
        due_branches=_look_at_idle(now),
        silent_workers=forget_silent(),
        requeued_imports=deliver_lost(),
        forgotten_imports=forget_old(),
        requeued_memory_runs=memory_runs.deliver_lost(),
        requeued_bulk_jobs=deliver_lost_bulk(),
        stored_answers=store_late_answers(),
    )
    if any(swept.as_dict().values()):
        event("swept", reason="", **swept.as_dict())
    return swept


def free_expired(states: QuerySet[CompactionState]) -> int:
    """Free the leases among these states that ran out; return how many.

    Who held one may have died behind its run's end, before it looked for what is due next: where
    nobody is to look at the branch, the sweep does. A run that still works has a successor.
    """
    working = CompactionRun.objects.filter(
        branch=OuterRef("pk"), worker=OuterRef("lease_owner"), status=Status.RUNNING
    )
    soon = Coalesce("next_check_at", Now())
    return states.filter(lease_owner__isnull=False, lease_expires_at__lt=Now()).update(
        lease_owner=None,
        lease_expires_at=None,
        next_check_at=Case(When(Exists(working), then=F("next_check_at")), default=soon),
    )


def restart_branch(branch_id: UUID) -> int:
    """Free a branch whose worker fell silent and start its runs again; return how many.

    What the sweep does, for one branch and at once. CompactionError where its lease has not run
    out, or nobody holds it.
    """
    if not free_expired(CompactionState.objects.filter(pk=branch_id)):
        raise CompactionError("Its lease has not run out, or somebody freed it: nothing to do.")
    return sum(_is_restarted(run) for run in dead_runs(database_now()).filter(branch=branch_id))


def dead_runs(now: datetime) -> QuerySet[CompactionRun]:
    """Return the runs that say "running" while their worker holds no lease any more.

    A live worker takes the lease right after it claimed the run, and keeps it to the run's end.
    """
    held = CompactionState.objects.filter(
        branch=OuterRef("branch"), lease_owner=OuterRef("worker"), lease_expires_at__gte=Now()
    )
    return CompactionRun.objects.select_related("session", "branch", "profile", "replaces").filter(
        ~Exists(held),
        status=Status.RUNNING,
        started_at__lt=now - timedelta(seconds=compaction_settings.lease_seconds),
    )


def _is_restarted(run: CompactionRun) -> bool:
    """Restart one dead run. What goes wrong keeps nobody else waiting; the next sweep tries again.

    Its session may be deleted at this very moment, which the database may answer with a deadlock.
    """
    try:
        return restart_run(run)
    except Error:
        logger.exception("Run %s could not be started again.", run.pk)
        return False


def _requeue(now: datetime) -> int:
    """Deliver again what waited long and is missing in the queue; return how many.

    The queue holds fewer tasks than runs wait when some were lost. The oldest are delivered; where
    one of them was not lost, its second delivery finds it claimed.
    """
    long_ago = now - timedelta(seconds=compaction_settings.queued_run_seconds)
    queued = CompactionRun.objects.filter(status=Status.QUEUED)
    others = waiting_imports() + memory_runs.waiting_memory_runs() + waiting_bulk()
    missing = queued.filter(ready_q(now)).count() + others - queue.waiting_tasks()
    if missing <= 0:
        return 0
    lost = Q(waits_until__isnull=True, created_at__lt=long_ago) | Q(waits_until__lt=long_ago)
    waiting = queued.filter(lost).order_by("created_at")
    ids = list(waiting.values_list("pk", flat=True)[: min(missing, REQUEUE_BATCH)])
    for run_id in ids:
        queue.enqueue_run(run_id)
    return len(ids)


def _deliver_waiting(now: datetime) -> int:
    """Deliver the runs whose waiting is over; return how many.

    What they waited for is told no more. `waits_until` stays: their time in the queue counts from
    then.
    """
    over = CompactionRun.objects.filter(status=Status.QUEUED, waits_until__lte=now)
    over = over.exclude(error_code="")
    delivered = 0
    for run_id in list(over.order_by("waits_until").values_list("pk", flat=True)[:REQUEUE_BATCH]):
        # Of two sweeps one does it; a task that is lost now is found as any other.
        if over.filter(pk=run_id).update(**NO_ERROR):
            queue.enqueue_run(run_id)
            delivered += 1
    return delivered


def _look_at_idle(now: datetime) -> int:
    """Check the branches whose time has come without a message; return how many got a run.

    Only the branch that a session is on: nobody waits for the others, and who goes back to one has
    it looked at.
    """
    return _look_at(CompactionState.objects.filter(next_check_at__lte=now), now)


def look_at_clocks() -> int:
    """Check the branches whose prompt cache is about to expire; return how many got a run.

    The sweep would do so, too, but not in time: this is asked for twice a minute. Of two that look
    at once, one does.
    """
    now = database_now()
    clocks = CompactionState.objects.filter(next_check_at__lte=now, cache_expires_at__isnull=False)
    return _look_at(clocks, now)


def _look_at(states: QuerySet[CompactionState], now: datetime) -> int:
    due = states.order_by("next_check_at")
    found = 0
    for state in due.select_related("branch__session")[:IDLE_BATCH]:
        session = state.branch.session
        changes: dict[str, datetime | None] = {"next_check_at": None, "cache_expires_at": None}
        if is_active := session.active_branch_id == state.pk:
            # Should this process be killed now, another one looks; a look moves the time by itself.
            changes = {"next_check_at": now + (SOON if state.cache_expires_at else LATER)}
        if due.filter(pk=state.pk).update(**changes) and is_active:
            found += _is_due(session, state)
    return found


def _is_due(session: Session, state: CompactionState) -> bool:
    """Check one branch. What is wrong with it is logged and keeps nobody else waiting."""
    try:
        return check_branch(session, state.branch) is not None
    except UnknownModelError as unknown:
        event("branch_left_alone", session=session, branch=state.branch, code=RunCode.UNKNOWN_MODEL)
        logger.warning("Session %s is not looked at: %s", session.pk, unknown)
        CompactionState.objects.filter(pk=state.pk).update(next_check_at=None)
    except Exception:
        # A fault of ours, or the database's: the next branch may be well, and this one later.
        event(
            "branch_left_alone", session=session, branch=state.branch, code=RunCode.INTERNAL_ERROR
        )
        logger.exception("Session %s could not be looked at.", session.pk)
    return False
