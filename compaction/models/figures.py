"""What happened on a day, and how much there was at its end: the front page reads nothing else."""

from __future__ import annotations

from django.db import models


class DailyFigures(models.Model):
    """One day of UTC, rolled up by services/figures.py; a row can always be worked out again.

    Runs count on the day they were requested, under the status they have now; `unfinished` are
    queued or running, so a day with such runs is rolled up again. `ratios` counts the day's
    summaries by compression ratio in steps of ratios.RATIO_STEP. `sessions` to `tokens_sent` are
    totals at `refreshed_at`: tokens of all sessions' active branches, and what the next request of
    each would send of them.
    """

    day = models.DateField(primary_key=True)
    succeeded = models.PositiveIntegerField(default=0)
    skipped = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    cancelled = models.PositiveIntegerField(default=0)
    unfinished = models.PositiveIntegerField(default=0)
    tokens_saved = models.BigIntegerField(default=0)
    model_calls = models.PositiveIntegerField(default=0)
    cost = models.FloatField(default=0.0)
    ratios = models.JSONField(default=list)
    sessions = models.PositiveIntegerField(default=0)
    messages = models.PositiveBigIntegerField(default=0)
    tokens_stored = models.BigIntegerField(default=0)
    tokens_sent = models.BigIntegerField(default=0)
    refreshed_at = models.DateTimeField()

    class Meta:
        db_table = "compaction_daily_figures"
        verbose_name_plural = "daily figures"
        ordering = ["-day"]

    def __str__(self) -> str:
        return self.day.isoformat()
