"""One worker's turn at a bulk job: session by session, under the job's lease, for a short while.

What is not done when the time is over waits in the queue behind what others wait for. A worker that
dies leaves a lease that expires; the sweep gives the job to another one, which goes on with the
session that was begun: summaries that were made already are not made again.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Coalesce, Now
from django.utils import timezone

from chatapp.database import beating, database_now
from chatapp.formatting import short_id
from compaction.conf import compaction_settings
from compaction.errors import CompactionError
from compaction.models import BulkItem, BulkJob, CompactionRun, SessionSummary
from compaction.runs import queue, redo
from compaction.runs.redo import Redo, SessionResult
from compaction.summaries.activating import Newer, activate_version

Status, ItemStatus = BulkJob.Status, BulkItem.Status
# A worker puts a job back after this long: others wait, too, and the queue kills what takes long.
SLICE_SECONDS = 60
BEAT_SECONDS = 15
# What was given to the queue so long ago is given to it again.
REDELIVERED_AFTER = timedelta(minutes=10)
SWEEP_BATCH = 100
# A summariser that is down, or a budget that is used up, fails every session: then somebody looks.
MOST_FAILURES_IN_A_ROW = 5
_STATUSES = {
    redo.SUCCEEDED: ItemStatus.DONE,
    redo.PLANNED: ItemStatus.PLANNED,
    redo.BUSY: ItemStatus.BUSY,
    redo.FAILED: ItemStatus.FAILED,
}
# What a job is when none of its sessions is left to take.
_THEN = {
    Status.PLANNING: Status.PLANNED,
    Status.RUNNING: Status.DONE,
    Status.ROLLING_BACK: Status.ROLLED_BACK,
}
logger = logging.getLogger(__name__)


def work_at_bulk(job_id: UUID, *, is_stopping: Callable[[], bool] = lambda: False) -> str:
    """Work at a job for a while; return its status, "gone" where it is not to be had.

    A second delivery finds the lease taken: never do two work at one job.
    """
    job = _claim(job_id)
    if job is None:
        return "gone"
    try:
        with _keeping_lease(job):
            is_done = _Turn(job, is_stopping).take()
    finally:
        held(job).update(worker=None, lease_expires_at=None)
    if not is_done:
        _leave(job)
    return str(BulkJob.objects.values_list("status", flat=True).get(pk=job_id))


def _claim(job_id: UUID) -> BulkJob | None:
    worker = uuid.uuid4()
    is_free = Q(worker__isnull=True) | Q(lease_expires_at__lt=Now())
    rows = BulkJob.objects.filter(is_free, pk=job_id, status__in=BulkJob.WORKED_AT)
    if not rows.update(worker=worker, lease_expires_at=_lease_end()):
        return None
    jobs = BulkJob.objects.select_related("profile", "requested_by", "rolled_back_by")
    return jobs.filter(pk=job_id, worker=worker).first()


def held(job: BulkJob) -> QuerySet[BulkJob]:
    """Return the job's row, if it is still worked at under the lease that `job` was read with."""
    return BulkJob.objects.filter(pk=job.pk, worker=job.worker)


def _lease_end() -> Any:
    """Return when a job is free whose worker falls silent now: after the branch that it was at.

    Before, its successor would find that session busy, and leave it out of the job for good.
    """
    return Now() + timedelta(seconds=compaction_settings.lease_seconds + BEAT_SECONDS)


def _leave(job: BulkJob) -> None:
    """Have another task go on, if the job is still to be worked at."""
    with transaction.atomic():
        rows = BulkJob.objects.filter(pk=job.pk, worker=None, status__in=BulkJob.WORKED_AT)
        if rows.update(queued_at=database_now()):
            queue.enqueue_bulk(job.pk)


def left_of(job: BulkJob) -> QuerySet[BulkItem]:
    """Return the sessions that a job in its present state still has to take, in their order."""
    items = BulkItem.objects.filter(job=job).order_by("pk")
    if job.status == Status.PLANNING:
        return items.filter(status=ItemStatus.WAITING)
    if job.status == Status.RUNNING:
        return items.filter(status=ItemStatus.PLANNED)
    # Also what was begun when the job was paused or cancelled.
    taken_back = (ItemStatus.BACK, ItemStatus.KEPT, ItemStatus.NOTHING)
    return items.filter(begun_at__isnull=False).exclude(status__in=taken_back)


class _Turn:
    """The sessions that one worker takes of a job in one state."""

    def __init__(self, job: BulkJob, is_stopping: Callable[[], bool]) -> None:
        self._job, self._is_stopping = job, is_stopping
        self._ends = time.monotonic() + SLICE_SECONDS
        self._failed_in_a_row = 0

    def take(self) -> bool:
        """Take sessions until none is left (True), or the time is over or the job taken away."""
        job, left = self._job, left_of(self._job)
        while self._may_go_on():
            item = left.first()
            if item is None:
                ended = {} if job.status == Status.PLANNING else {"finished_at": database_now()}
                then = _THEN[Status(job.status)]
                held(job).filter(status=job.status).update(status=then, **ended)
                return True
            self._take_one(item)
        return False

    def _may_go_on(self) -> bool:
        """Whether the job is still this worker's, in the state it was claimed in, and time is left.

        A person may have paused or cancelled it; that is looked for before each summary.
        """
        is_ours = held(self._job).filter(status=self._job.status).exists()
        return is_ours and not self._is_stopping() and time.monotonic() < self._ends

    def _take_one(self, item: BulkItem) -> None:
        if self._job.status == Status.PLANNING:
            _note_plan(item, self._redo(is_plan=True).take(item.session_id))
        elif self._job.status == Status.RUNNING:
            begun = {"begun_at": Coalesce("begun_at", timezone.now()), "ended_at": None}
            BulkItem.objects.filter(pk=item.pk).update(**begun)
            self._note_result(item, self._redo(is_plan=False).take(item.session_id))
        else:
            _put_back(item, self._job)

    def _redo(self, *, is_plan: bool) -> Redo:
        return Redo(
            profile=self._job.profile,
            force=self._job.force,
            dry_run=is_plan,
            before=self._job.created_at,
            requested_by=self._job.requested_by,
            may_go_on=(lambda: True) if is_plan else self._may_go_on,
        )

    def _note_result(self, item: BulkItem, made: SessionResult) -> None:
        """Add what was made; a session that was broken off between two summaries waits again."""
        status: str = _STATUSES.get(made.status, ItemStatus.NOTHING)
        stopped = made.status in (redo.SUCCEEDED, redo.NOTHING) and not self._may_go_on()
        if stopped and self._redo(is_plan=True).take(item.session_id).summaries:
            status = item.status
        elif status == ItemStatus.NOTHING and item.begun_at is not None:
            # Its worker died right behind the last summary: the session is done.
            status = ItemStatus.DONE
        BulkItem.objects.filter(pk=item.pk).update(
            status=status,
            summaries=F("summaries") + made.summaries,
            tokens=F("tokens") + made.tokens,
            calls=F("calls") + made.calls,
            cost=F("cost") + made.cost,
            error=made.error,
            ended_at=timezone.now(),
        )
        self._failed_in_a_row = self._failed_in_a_row + 1 if status == ItemStatus.FAILED else 0
        if self._failed_in_a_row >= MOST_FAILURES_IN_A_ROW:
            note = (
                f"Paused: {self._failed_in_a_row} sessions failed one after the other. The last "
                f"one said: {made.error}"
            )
            held(self._job).filter(status=Status.RUNNING).update(status=Status.PAUSED, note=note)


def _note_plan(item: BulkItem, made: SessionResult) -> None:
    BulkItem.objects.filter(pk=item.pk).update(
        status=_STATUSES.get(made.status, ItemStatus.NOTHING),
        planned_summaries=made.summaries,
        planned_tokens=made.tokens,
        planned_calls=made.calls,
        planned_cost=made.cost,
        error=made.error,
    )


def versions_made(item: BulkItem, job: BulkJob) -> QuerySet[SessionSummary]:
    """Return the versions that a job made of a session, also where its worker died behind one."""
    if item.begun_at is None:
        return SessionSummary.objects.none()
    return SessionSummary.objects.filter(
        session=item.session_id,
        supersedes__isnull=False,
        trigger=CompactionRun.Trigger.RESUMMARIZE,
        run__mode="inline",
        run__requested_by=job.requested_by_id,
        created_at__gte=item.begun_at,
        **({"created_at__lte": item.ended_at} if item.ended_at else {}),
    )


def _put_back(item: BulkItem, job: BulkJob) -> None:
    """Have the versions of one session count again that counted before, the newest first.

    What somebody changed since stays as it is; the item says why.
    """
    put, problems = 0, []
    made = versions_made(item, job).select_related("session", "branch", "supersedes")
    for version in made.order_by("-covers_through", "-created_at"):
        try:
            put_version_back(version, by=job.rolled_back_by)
            put += 1
        except CompactionError as problem:
            problems.append(str(problem))
    status = ItemStatus.KEPT if problems else ItemStatus.BACK if put else ItemStatus.NOTHING
    BulkItem.objects.filter(pk=item.pk).update(status=status, error=" ".join(problems))


def put_version_back(version: SessionSummary, *, by: Any = None) -> None:
    """Have the version that `version` superseded count again in its place.

    Raises CompactionError where `version` counts no more, or superseded nothing that could.
    """
    old = version.supersedes
    if old is None:
        raise CompactionError(f"{version} superseded no other version.")
    for row, status in ((version, "active"), (old, "superseded")):
        row.refresh_from_db(fields=["status"])
        if row.status != status:
            raise CompactionError(
                f"Summary {short_id(row.pk)} is {row.status} by now, so nothing was changed."
            )
    # Versions are put back from the newest on: what newer ones took in has been put back before.
    activate_version(old, newer=Newer.KEEP, replacing=version, by=by)


# --- signs of life, and what the sweep does -------------------------------------------------------


def _keeping_lease(job: BulkJob) -> AbstractContextManager[None]:
    """Renew the job's lease until the block ends: one summary may take longer than it lasts."""
    return beating(
        lambda: bool(held(job).update(lease_expires_at=_lease_end())),
        seconds=BEAT_SECONDS,
        who=f"Bulk job {job.pk}",
    )


def deliver_lost_bulk() -> int:
    """Give to the queue again what a dead worker left, and what the queue may have lost."""
    jobs = BulkJob.objects.filter(status__in=BulkJob.WORKED_AT)
    dead = Q(worker__isnull=False, lease_expires_at__lt=Now())
    lost = Q(worker__isnull=True, queued_at__lt=database_now() - REDELIVERED_AFTER)
    found = jobs.filter(dead | lost)
    delivered = 0
    for job_id in list(found.order_by("queued_at").values_list("pk", flat=True)[:SWEEP_BATCH]):
        with transaction.atomic():
            freed = {"worker": None, "lease_expires_at": None}
            if found.filter(pk=job_id).update(queued_at=database_now(), **freed):
                queue.enqueue_bulk(job_id)
                delivered += 1
    return delivered


def waiting_bulk() -> int:
    """Return how many jobs wait for a worker."""
    return BulkJob.objects.filter(status__in=BulkJob.WORKED_AT, worker__isnull=True).count()
