"""Memories of an owner: lines, what became of them, and the work that a summariser does at them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone

from chatapp.ids import new_id, short_id
from compaction.engine.types import MAX_BOT_CHARS


class MemoryLines(models.QuerySet["Memory"]):
    """Memories as they are asked for."""

    def in_force(self, owner_id: Any, bots: Iterable[str]) -> MemoryLines:
        """Return the owner's accepted lines for these bots, the newest first."""
        rows = self.filter(owner_id=owner_id, bot__in=set(bots), accepted_at__isnull=False)
        return rows.order_by("-position", "-id")


class Memory(models.Model):
    """One line that an owner wants remembered; `bot` says for whom, "" for all.

    Only accepted lines are sent, counted and rewritten: what a summariser proposed waits for a yes.
    `position` orders them: the microseconds of the moment at which a line was stored or accepted.
    Lines that were rewritten stand in places of those that they were made from. `tokens` are those
    of the line as it is sent, counted once. `source` is the message that it comes from.
    """

    class Origin(models.TextChoices):
        """Who wrote the line."""

        HAND = "hand", "By hand"
        PROPOSED = "proposed", "Proposed by a summariser"
        REWRITTEN = "rewritten", "Rewritten by a summariser"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="memories",
        # memory_of_owner begins with it.
        db_index=False,
    )
    bot = models.CharField(max_length=MAX_BOT_CHARS, blank=True, default="")
    text = models.TextField()
    tokens = models.PositiveIntegerField(default=0)
    position = models.BigIntegerField()
    origin = models.CharField(max_length=9, choices=Origin.choices, default=Origin.HAND)
    source = models.ForeignKey(
        "chatapp.Message", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    accepted_at = models.DateTimeField(null=True, blank=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = MemoryLines.as_manager()

    class Meta:
        db_table = "memories"
        verbose_name = "memory"
        verbose_name_plural = "memories"
        indexes = [
            # Every request of a profile with a budget: the newest lines in force of a bot or two.
            models.Index(
                fields=["owner", "bot", "-position"],
                condition=models.Q(accepted_at__isnull=False),
                name="memory_in_force",
            ),
            # GET memories/: one owner's lines, the newest first.
            models.Index(fields=["owner", "-position", "-id"], name="memory_of_owner"),
            # The admin's list of all lines, the newest first.
            models.Index(fields=["-created_at", "-id"], name="memory_newest"),
        ]

    def __str__(self) -> str:
        return f"Memory {short_id(self.id)}"


class MemoryKey(models.Model):
    """A line that there was once, by a digest of its words: it is not proposed again.

    It stays when the line goes, so that what was refused is not asked about twice.
    """

    id = models.BigAutoField(primary_key=True)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="+",
        # memory_key_once begins with it.
        db_index=False,
    )
    bot = models.CharField(max_length=MAX_BOT_CHARS, blank=True, default="")
    digest = models.CharField(max_length=64)

    class Meta:
        db_table = "memory_keys"
        constraints = [
            # Of two workers that propose the same line one stores it; also finds it.
            models.UniqueConstraint(fields=["owner", "bot", "digest"], name="memory_key_once"),
        ]

    def __str__(self) -> str:
        return f"Key {self.digest[:8]}"


class MemoryRun(models.Model):
    """One attempt of a summariser to rewrite an owner's lines, or to propose some.

    Claimed by one worker with a conditional UPDATE; its claim expires, so that a killed worker
    blocks nobody (compaction/memories/runs.py). A proposal reads what the `summary` was made from.
    """

    class Kind(models.TextChoices):
        """What it is to do."""

        COMPRESS = "compress", "Rewrite"
        EXTRACT = "extract", "Propose"

    class Status(models.TextChoices):
        """How far it is."""

        QUEUED = "queued", "Queued"
        RUNNING = "running", "Running"
        SUCCEEDED = "succeeded", "Succeeded"
        SKIPPED = "skipped", "Skipped"
        FAILED = "failed", "Failed"

    UNDER_WAY = (Status.QUEUED, Status.RUNNING)

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="memory_runs",
        # memory_run_of_owner begins with it.
        db_index=False,
    )
    bot = models.CharField(max_length=MAX_BOT_CHARS, blank=True, default="")
    kind = models.CharField(max_length=8, choices=Kind.choices)
    status = models.CharField(max_length=9, choices=Status.choices, default=Status.QUEUED)
    session = models.ForeignKey(
        "chatapp.Session", on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )
    summary = models.ForeignKey(
        "compaction.SessionSummary",
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="memory_runs",
    )
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    worker = models.UUIDField(null=True, blank=True, editable=False)
    lease_expires_at = models.DateTimeField(null=True, blank=True, editable=False)
    attempts = models.PositiveSmallIntegerField(default=0, editable=False)
    waits_until = models.DateTimeField(null=True, blank=True, editable=False)
    error_code = models.CharField(max_length=40, blank=True, default="")
    error = models.TextField(blank=True, default="")
    model = models.CharField(max_length=100, blank=True, default="")
    lines_before = models.PositiveIntegerField(default=0)
    lines_after = models.PositiveIntegerField(default=0)
    model_calls = models.PositiveIntegerField(default=0)
    spent_tokens = models.BigIntegerField(default=0)
    cost = models.FloatField(default=0.0)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    # When it was given to the queue, the last time.
    queued_at = models.DateTimeField(default=timezone.now, editable=False)
    started_at = models.DateTimeField(null=True, blank=True, editable=False)
    finished_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        db_table = "memory_runs"
        constraints = [
            # One rewriting of an owner's lines for a bot waits or works; finds it, too.
            models.UniqueConstraint(
                fields=["owner", "bot"],
                condition=models.Q(kind="compress", status__in=["queued", "running"]),
                name="memory_run_under_way",
            ),
            # What a summary was made from is read once.
            models.UniqueConstraint(
                fields=["summary"],
                condition=models.Q(kind="extract", summary__isnull=False),
                name="memory_run_of_summary",
            ),
        ]
        indexes = [
            # GET memories/runs/, and the back-off: one owner's runs, the newest first.
            models.Index(fields=["owner", "-created_at", "-id"], name="memory_run_of_owner"),
            # The admin's list of all runs, the newest first.
            models.Index(fields=["-created_at", "-id"], name="memory_run_newest"),
            # The sweep: what waits or works, few rows of many.
            models.Index(
                fields=["status", "queued_at"],
                condition=models.Q(status__in=["queued", "running"]),
                name="memory_run_waiting",
            ),
            # The budget of an owner: what the hour's runs spent.
            models.Index(
                fields=["owner", "started_at"],
                condition=models.Q(spent_tokens__gt=0),
                name="memory_run_spent",
            ),
        ]

    def __str__(self) -> str:
        return f"Memory run {short_id(self.id)} ({self.status})"


class MemoryVersion(models.Model):
    """The lines that a rewriting took away (`before`) and put in their place (`after`).

    Each is an object with everything that its row held, so that taking it back gives back every
    byte (compaction/memories/versions.py).
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="memory_versions",
        # memory_version_of_owner begins with it.
        db_index=False,
    )
    bot = models.CharField(max_length=MAX_BOT_CHARS, blank=True, default="")
    run = models.ForeignKey(
        MemoryRun, on_delete=models.SET_NULL, null=True, blank=True, related_name="versions"
    )
    before = models.JSONField(default=list)
    after = models.JSONField(default=list)
    lines_before = models.PositiveIntegerField(default=0)
    lines_after = models.PositiveIntegerField(default=0)
    kept_lines = models.PositiveIntegerField(default=0)
    model = models.CharField(max_length=100, blank=True, default="")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    undone_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        db_table = "memory_versions"
        indexes = [
            # GET memories/versions/, and which rewriting was the last one of an owner.
            models.Index(fields=["owner", "-created_at", "-id"], name="memory_version_of_owner"),
            # The admin's list of all rewritings, the newest first.
            models.Index(fields=["-created_at", "-id"], name="memory_version_newest"),
        ]

    def __str__(self) -> str:
        return f"Memory version {short_id(self.id)}"
