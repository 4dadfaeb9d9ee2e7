"""Rungs: what a turn tried, one after another, when its request was refused as too large."""

from __future__ import annotations

from django.db import models
from django.utils import timezone


class RecoveryRung(models.Model):
    """One step of the ladder (engine/recovery.py). The rungs of one turn share `recovery`.

    `error` is what the server had said; `observed` and `allowed` are the numbers in it. Tokens are
    those of the request before and after. `replay` is the branch with shortened tool results.
    """

    class Move(models.TextChoices):
        """What was tried."""

        COMPACT = "compact", "Compaction"
        TRUNCATE = "truncate", "Tool results cut"
        HALVE = "halve", "Fewer messages sent"
        GIVE_UP = "give_up", "Nothing left to try"

    class Outcome(models.TextChoices):
        """Whether the request became smaller."""

        SMALLER = "smaller", "Smaller"
        NO_HELP = "no_help", "No help"
        FAILED = "failed", "Failed"

    recovery = models.UUIDField(editable=False)
    order = models.PositiveSmallIntegerField()
    session = models.ForeignKey("chatapp.Session", on_delete=models.CASCADE, related_name="rungs")
    branch = models.ForeignKey("chatapp.Branch", on_delete=models.CASCADE, related_name="rungs")
    run = models.ForeignKey(
        "compaction.CompactionRun",
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="rungs",
    )
    replay = models.ForeignKey(
        "chatapp.Branch", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    move = models.CharField(max_length=8, choices=Move.choices)
    outcome = models.CharField(max_length=7, choices=Outcome.choices)
    text = models.TextField(blank=True)
    error_kind = models.CharField(max_length=40)
    error = models.TextField(blank=True)
    observed = models.BigIntegerField(null=True, blank=True)
    allowed = models.BigIntegerField(null=True, blank=True)
    tokens_before = models.BigIntegerField(default=0)
    tokens_after = models.BigIntegerField(default=0)
    groups = models.PositiveIntegerField(null=True, blank=True)
    results_cut = models.PositiveIntegerField(default=0)
    characters_cut = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "compaction_rungs"
        constraints = [
            # The ladder of one turn, in the order in which it was climbed.
            models.UniqueConstraint(fields=["recovery", "order"], name="rung_order"),
        ]
        indexes = [
            # A session's timeline, newest first.
            models.Index(fields=["session", "-created_at", "-id"], name="rung_of_session"),
        ]

    def __str__(self) -> str:
        return f"{self.get_move_display()} ({self.outcome})"
