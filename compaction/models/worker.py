"""Workers: every process that compacts, with the last sign of life it gave."""

from __future__ import annotations

from django.db import models
from django.utils import timezone


class WorkerHeartbeat(models.Model):
    """One process that compacts. It writes `beat_at` while it works (services/heartbeats.py).

    A lease says who may write; a heartbeat says who lives, so that an operator sees which machine
    fell silent, and `/readyz` whether a queue cluster runs at all.
    """

    class Kind(models.TextChoices):
        """What kind of process it is."""

        QUEUE = "queue", "Queue"
        WEB = "web", "Web"
        COMMAND = "command", "Command"

    id = models.UUIDField(primary_key=True, editable=False)
    kind = models.CharField(max_length=7, choices=Kind.choices)
    host = models.CharField(max_length=100)
    pid = models.PositiveIntegerField()
    run = models.ForeignKey(
        "compaction.CompactionRun",
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        help_text="What it works on; empty while it is idle.",
    )
    started_at = models.DateTimeField(default=timezone.now, editable=False)
    beat_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "compaction_workers"
        ordering = ["-beat_at"]
        indexes = [
            # /readyz: the newest sign of life of a kind. The sweep reads all of the few rows.
            models.Index(fields=["kind", "-beat_at"], name="worker_beat"),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} process {self.pid} on {self.host}"
