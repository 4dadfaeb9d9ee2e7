"""Re-summarising the sessions of a filter: started, paused, cancelled, rolled back by a person.

Each is one conditional UPDATE of the job's row, so that of two clicks one counts, and whoever works
at the job finds out before the next summary. The work itself: compaction/runs/bulk_work.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction
from django.db.models import Count, F, QuerySet, Sum, UUIDField, Value

from chatapp.database import database_now
from chatapp.models import Session
from compaction.errors import CompactionError
from compaction.models import BulkItem, BulkJob, CompactionProfile
from compaction.runs import queue
from compaction.runs.redo import sessions_with_summaries

Status, ItemStatus = BulkJob.Status, BulkItem.Status
# What a job may be told in which state, and what it is then.
STARTABLE = (Status.PLANNED, Status.PAUSED)
CANCELLABLE = (Status.PLANNING, Status.PLANNED, Status.RUNNING, Status.PAUSED)
REVERSIBLE = (Status.DONE, Status.CANCELLED, Status.PAUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkSums:
    """How far a job is: sessions by what became of them, and what they take and took."""

    sessions: dict[str, int]
    planned_summaries: int
    planned_tokens: int
    planned_calls: int
    planned_cost: float
    summaries: int
    tokens: int
    calls: int
    cost: float

    @property
    def total(self) -> int:
        """All sessions of the job."""
        return sum(self.sessions.values())

    def of(self, *statuses: str) -> int:
        """Return how many sessions have one of these statuses."""
        return sum(self.sessions.get(status, 0) for status in statuses)


def make_bulk(
    sessions: QuerySet[Session],
    *,
    chosen_by: str = "",
    profile: CompactionProfile | None = None,
    force: bool = False,
    requested_by: Any = None,
) -> BulkJob:
    """Store a job over those of the sessions that have a summary, and have its price worked out.

    Raises CompactionError where none has. The sessions are those of this moment, written in one
    statement: none travels through Python.
    """
    with transaction.atomic():
        job = BulkJob.objects.create(
            chosen_by=chosen_by,
            profile=profile,
            force=force,
            requested_by=requested_by,
            queued_at=database_now(),
        )
        if not _write_items(job, sessions):
            raise CompactionError("None of these sessions has a summary that could be made again.")
        queue.enqueue_bulk(job.pk)
    return job


def _write_items(job: BulkJob, sessions: QuerySet[Session]) -> int:
    chosen = sessions_with_summaries().filter(pk__in=sessions.order_by().values("pk"))
    rows = chosen.order_by("-updated_at", "-pk").values_list(
        Value(job.pk, output_field=UUIDField()), "pk"
    )
    select, parameters = rows.query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO compaction_bulk_items (job_id, session_id) " + select, parameters
        )
        return int(cursor.rowcount)


def sums_of_job(job: BulkJob) -> BulkSums:
    """Return how far a job is, by its items; one query."""
    added = (
        "planned_summaries", "planned_tokens", "planned_calls", "planned_cost",
        "summaries", "tokens", "calls", "cost",
    )  # fmt: skip
    rows: Any = list(
        BulkItem.objects.filter(job=job)
        .order_by()
        .values("status")
        .annotate(count=Count("pk"), **{f"sum_{name}": Sum(name) for name in added})
    )
    sums = {name: sum(row[f"sum_{name}"] or 0 for row in rows) for name in added}
    return BulkSums(sessions={row["status"]: row["count"] for row in rows}, **sums)


# --- what a person does ---------------------------------------------------------------------------


def start_bulk(job: BulkJob) -> None:
    """Have a priced or paused job worked at; raises CompactionError in any other state."""
    began = {"started_at": F("started_at") if job.started_at else database_now()}
    _change(job, STARTABLE, Status.RUNNING, **began, finished_at=None, note="")


def pause_bulk(job: BulkJob) -> None:
    """Have nobody work at a running job until it is started again.

    The summary that is being made is finished first.
    """
    _change(job, (Status.RUNNING,), Status.PAUSED)


def cancel_bulk(job: BulkJob) -> None:
    """End a job; what was made stays, each session whole, and can be rolled back."""
    _change(job, CANCELLABLE, Status.CANCELLED, finished_at=database_now())


def roll_back_bulk(job: BulkJob, *, by: Any = None) -> None:
    """Have the versions count again that counted before the job; raises CompactionError elsewhere.

    `by` is the person whose act that is, in the audit logs of the sessions, too.

    Nobody works at the job any more when it begins: the state says so, and the lease.
    """
    if job.started_at is None:
        raise CompactionError("Nothing was made yet, so there is nothing to put back.")
    whose = {"rolled_back_by": getattr(by, "pk", None)}
    _change(job, REVERSIBLE, Status.ROLLING_BACK, finished_at=None, **whose)


def _change(job: BulkJob, allowed: Sequence[str], status: str, **columns: Any) -> None:
    """Change a job's state in one statement, and give it to the queue where it is to be worked at.

    Raises CompactionError where it has another state by now.
    """
    with transaction.atomic():
        rows = BulkJob.objects.filter(pk=job.pk, status__in=allowed)
        if not rows.update(status=status, queued_at=database_now(), **columns):
            job.refresh_from_db()
            raise CompactionError(
                f"That is not possible now: {job.get_status_display().lower()}. Nothing was "
                "changed."
            )
        job.refresh_from_db()
        if job.is_worked_at:
            queue.enqueue_bulk(job.pk)
