"""Totals of ended runs that only ever grow: what a monitoring system reads."""

from __future__ import annotations

from django.db import models


class RunTotals(models.Model):
    """How many runs ended in one way for one reason, with their seconds and saved tokens.

    Added to when a run ends (services/ending.py), so that a scrape reads a few rows however many
    runs there are. The runs themselves stay the truth.
    """

    status = models.CharField(max_length=9)
    reason = models.CharField(max_length=40)
    mode = models.CharField(max_length=10)
    runs = models.PositiveBigIntegerField(default=0)
    seconds = models.FloatField(default=0.0)
    tokens_saved = models.BigIntegerField(default=0)

    class Meta:
        db_table = "compaction_run_totals"
        verbose_name_plural = "run totals"
        constraints = [
            # Two processes that end the first runs of a kind at once add to one row.
            models.UniqueConstraint(fields=["status", "reason", "mode"], name="run_totals_kind"),
        ]

    def __str__(self) -> str:
        return f"{self.status}, {self.reason}, {self.mode}: {self.runs:,}"
