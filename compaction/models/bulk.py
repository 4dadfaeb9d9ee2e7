"""Re-summarising in bulk: one row a job, one a session of it."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from chatapp.ids import new_id, short_id


class BulkJob(models.Model):
    """The sessions of a filter whose summaries are made again, in background tasks.

    First it is priced (`planning`), then it waits for a person's start (`planned`). `paused` and
    `cancelled` jobs are worked at no more; `rolling_back` puts back the versions that counted
    before. `worker` and `lease_expires_at` are the right to work at it, taken by a conditional
    UPDATE and kept by heartbeats (compaction/runs/bulk_work.py). The sums are those of its items.
    """

    class Status(models.TextChoices):
        """How far it is."""

        PLANNING = "planning", "Working out the price"
        PLANNED = "planned", "Waiting for its start"
        RUNNING = "running", "Running"
        PAUSED = "paused", "Paused"
        DONE = "done", "Done"
        CANCELLED = "cancelled", "Cancelled"
        ROLLING_BACK = "rolling_back", "Rolling back"
        ROLLED_BACK = "rolled_back", "Rolled back"

    WORKED_AT = (Status.PLANNING, Status.RUNNING, Status.ROLLING_BACK)

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    status = models.CharField(max_length=12, choices=Status.choices, default=Status.PLANNING)
    # The filter of the list that chose the sessions, as its address said it.
    chosen_by = models.TextField(blank=True, default="")
    # NULL: each session's own.
    profile = models.ForeignKey(
        "compaction.CompactionProfile",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
    )
    force = models.BooleanField(default=False)
    # Why it paused by itself, as a sentence.
    note = models.TextField(blank=True, default="")
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    # Whose act the versions are that a roll-back activates.
    rolled_back_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    worker = models.UUIDField(null=True, blank=True, editable=False)
    lease_expires_at = models.DateTimeField(null=True, blank=True, editable=False)
    # When it was given to the queue, the last time.
    queued_at = models.DateTimeField(null=True, blank=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    started_at = models.DateTimeField(null=True, blank=True, editable=False)
    finished_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        db_table = "compaction_bulk_jobs"
        verbose_name = "bulk re-summarise"
        verbose_name_plural = "bulk re-summarises"
        indexes = [
            # The admin's list of all jobs, newest first.
            models.Index(fields=["-created_at", "-id"], name="bulk_job_newest"),
            # The sweep: the few jobs that a task should be working at.
            models.Index(
                fields=["queued_at"],
                condition=models.Q(status__in=["planning", "running", "rolling_back"]),
                name="bulk_job_worked_at",
            ),
        ]

    def __str__(self) -> str:
        return f"Bulk re-summarise {short_id(self.id)} ({self.get_status_display().lower()})"

    @property
    def is_worked_at(self) -> bool:
        """Whether a task works at it or waits for a worker."""
        return self.status in self.WORKED_AT

    @property
    def is_finishing(self) -> bool:
        """Whether a worker still ends what it had begun when the job was paused or cancelled."""
        expires = self.lease_expires_at
        return not self.is_worked_at and expires is not None and expires > timezone.now()


class BulkItem(models.Model):
    """One session of a job: what its summaries would take, and what came of them.

    `begun_at` and `ended_at` hold all that the job made of the session, also where its worker died
    before it could say so. All columns have defaults in the database: the items of a filter are
    written by one INSERT … SELECT.
    """

    class Status(models.TextChoices):
        """What became of it."""

        WAITING = "waiting", "Waiting"
        PLANNED = "planned", "Priced"
        DONE = "done", "Done"
        NOTHING = "nothing", "Nothing to do"
        BUSY = "busy", "Busy: left alone"
        FAILED = "failed", "Failed"
        BACK = "back", "Put back"
        KEPT = "kept", "Could not be put back"

    # Two indexes begin with it: it needs none of its own.
    job = models.ForeignKey(BulkJob, on_delete=models.CASCADE, db_index=False, related_name="items")
    session = models.ForeignKey(
        "chatapp.Session", on_delete=models.CASCADE, related_name="bulk_items"
    )
    status = models.CharField(
        max_length=7, choices=Status.choices, default=Status.WAITING, db_default=Status.WAITING
    )
    planned_summaries = models.PositiveIntegerField(default=0, db_default=0)
    planned_tokens = models.PositiveBigIntegerField(default=0, db_default=0)
    planned_calls = models.PositiveIntegerField(default=0, db_default=0)
    planned_cost = models.FloatField(default=0.0, db_default=0.0)
    summaries = models.PositiveIntegerField(default=0, db_default=0)
    tokens = models.PositiveBigIntegerField(default=0, db_default=0)
    calls = models.PositiveIntegerField(default=0, db_default=0)
    cost = models.FloatField(default=0.0, db_default=0.0)
    error = models.TextField(blank=True, default="", db_default="")
    begun_at = models.DateTimeField(null=True, blank=True, editable=False)
    ended_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        db_table = "compaction_bulk_items"
        verbose_name = "session of a bulk re-summarise"
        verbose_name_plural = "sessions of bulk re-summarises"
        constraints = [
            # A session is taken once, however often the filter was read.
            models.UniqueConstraint(fields=["job", "session"], name="bulk_item_once"),
        ]
        indexes = [
            # The next session of a job to work at, in the order they were written; its sums.
            models.Index(fields=["job", "status", "id"], name="bulk_item_next"),
        ]

    def __str__(self) -> str:
        return f"Session {short_id(self.session_id)} of {short_id(self.job_id)}"
