"""Breakers: models whose summarising calls keep failing are left alone for a while."""

from __future__ import annotations

from django.db import models
from django.utils import timezone


class ModelBreaker(models.Model):
    """One row a model alias whose calls have failed (services/breaker.py).

    Closed while `opened_at` is empty. Open, runs wait until `retry_at`; then one of them, `probe`,
    makes a call, and its outcome closes the breaker or opens it for longer.
    """

    model = models.CharField(max_length=100, primary_key=True)
    failures = models.PositiveIntegerField(default=0, help_text="Failed calls in a row.")
    opened_at = models.DateTimeField(null=True, blank=True)
    retry_at = models.DateTimeField(null=True, blank=True)
    probe = models.UUIDField(
        null=True, blank=True, editable=False, help_text="The worker whose call decides."
    )
    last_error = models.TextField(blank=True)
    changed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "compaction_breakers"
        ordering = ["model"]

    def __str__(self) -> str:
        return f"{self.model} ({self.state})"

    @property
    def state(self) -> str:
        """`closed`, `open`, or `probing` while one call tries again."""
        if self.opened_at is None:
            return "closed"
        return "probing" if self.probe is not None else "open"
