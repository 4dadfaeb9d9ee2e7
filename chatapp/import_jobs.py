"""The rows of imports: a file that is read, the pieces of it that wait, the sessions it became."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models.functions import Now
from django.dispatch import Signal
from django.utils import timezone

from chatapp.ids import new_id, short_id
from chatapp.spooled_files import SpooledFile

import_waiting = Signal()
"""Sent with `job`, an ImportJob, in the transaction that has it wait for a worker."""

# Of a file that waits, in one row: what a database writes and reads in one go.
PIECE_BYTES = 1_000_000
MAX_NAME_CHARS = 200


class ImportJob(models.Model):
    """One file on its way into sessions, for one owner; the row stays when it is done.

    `worker` and `lease_expires_at` are the right to work at it, taken by a conditional UPDATE and
    kept by heartbeats (chatapp/imports.py): a worker that dies leaves a lease that expires.
    `conversations_done` counts in the order of the file; a later worker goes on behind it.
    `attempts` are the workers that took the job since something of it was stored the last time.
    """

    class Status(models.TextChoices):
        """How far it is."""

        QUEUED = "queued", "Queued"
        WORKING = "working", "Working"
        DONE = "done", "Done"
        FAILED = "failed", "Failed"
        CANCELLED = "cancelled", "Cancelled"

    UNDER_WAY = (Status.QUEUED, Status.WORKING)

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="imports"
    )
    name = models.CharField(max_length=MAX_NAME_CHARS, blank=True)
    model = models.CharField(max_length=100, default="default")
    size = models.PositiveBigIntegerField(default=0)
    status = models.CharField(max_length=9, choices=Status.choices, default=Status.QUEUED)
    format = models.CharField(max_length=40, blank=True, default="")
    lines_total = models.PositiveIntegerField(null=True, blank=True)
    conversations_total = models.PositiveIntegerField(null=True, blank=True)
    conversations_done = models.PositiveIntegerField(default=0)
    sessions_made = models.PositiveIntegerField(default=0)
    messages_added = models.PositiveBigIntegerField(default=0)
    # [{"line": …, "text": …}], the first ones; the others are counted.
    problems = models.JSONField(default=list, blank=True)
    problems_left_out = models.PositiveIntegerField(default=0)
    error_code = models.CharField(max_length=40, blank=True, default="")
    error = models.TextField(blank=True, default="")
    worker = models.UUIDField(null=True, blank=True, editable=False)
    lease_expires_at = models.DateTimeField(null=True, blank=True, editable=False)
    attempts = models.PositiveSmallIntegerField(default=0, editable=False)
    seconds = models.FloatField(default=0.0)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    # When it was given to the queue, the last time.
    queued_at = models.DateTimeField(null=True, blank=True, editable=False)
    started_at = models.DateTimeField(null=True, blank=True, editable=False)
    finished_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        app_label = "chatapp"
        db_table = "import_jobs"
        verbose_name = "import"
        indexes = [
            # GET imports/: one owner's imports, newest first.
            models.Index(fields=["owner", "-created_at", "-id"], name="import_owner_newest"),
            # The admin's list of all imports, newest first.
            models.Index(fields=["-created_at", "-id"], name="import_newest"),
            # How many an owner has under way; what the sweep delivers again: few rows of many.
            models.Index(
                fields=["owner"],
                condition=models.Q(status__in=["queued", "working"]),
                name="import_under_way",
            ),
            # The sweep forgets imports that ended long ago.
            models.Index(fields=["finished_at"], name="import_finished"),
        ]

    def __str__(self) -> str:
        return self.name or f"Import {short_id(self.id)}"

    @property
    def is_under_way(self) -> bool:
        """Whether it waits for a worker, or one works at it."""
        return self.status in self.UNDER_WAY


class ImportPiece(models.Model):
    """A part of a file that waits for a worker; the pieces go when the job has ended."""

    job = models.ForeignKey(ImportJob, on_delete=models.CASCADE, related_name="pieces")
    number = models.PositiveIntegerField()
    content = models.BinaryField()

    class Meta:
        app_label = "chatapp"
        db_table = "import_pieces"
        constraints = [
            # The pieces of a file, in order.
            models.UniqueConstraint(fields=["job", "number"], name="import_piece_place"),
        ]

    def __str__(self) -> str:
        return f"Piece {self.number} of {self.job_id}"


class ImportedSession(models.Model):
    """What a conversation of the file became; `number` is its place in the file, from 0."""

    job = models.ForeignKey(ImportJob, on_delete=models.CASCADE, related_name="results")
    number = models.PositiveIntegerField()
    session = models.ForeignKey("chatapp.Session", on_delete=models.CASCADE, related_name="imports")
    messages_added = models.PositiveIntegerField(default=0)
    created = models.BooleanField(default=True)

    class Meta:
        app_label = "chatapp"
        db_table = "imported_sessions"
        constraints = [
            # GET imports/{id}/sessions/: in the order of the file, each once.
            models.UniqueConstraint(fields=["job", "number"], name="import_result_place"),
        ]

    def __str__(self) -> str:
        return f"Session {self.session_id} of {self.job_id}"


def keep_content(job: ImportJob, content: SpooledFile) -> None:
    """Store a file beside its job, for whichever worker comes."""
    for piece in _pieces_of(job, content):
        piece.save(force_insert=True)


def _pieces_of(job: ImportJob, content: SpooledFile) -> Iterator[ImportPiece]:
    for number, piece in enumerate(content.pieces(PIECE_BYTES)):
        yield ImportPiece(job=job, number=number, content=piece)


def content_of(job: ImportJob) -> SpooledFile:
    """Return the file that was stored beside a job; nothing where none is."""
    pieces = ImportPiece.objects.filter(job=job).order_by("number")
    contents: Iterable[Any] = pieces.values_list("content", flat=True).iterator(chunk_size=8)
    return SpooledFile(bytes(content) for content in contents)


def lost_jobs() -> models.QuerySet[ImportJob]:
    """Return the jobs whose worker fell silent: they say "working" and nobody holds their lease."""
    return ImportJob.objects.filter(status=ImportJob.Status.WORKING, lease_expires_at__lt=Now())
