"""What a model server taught about itself, by its errors and its usage reports."""

from __future__ import annotations

from django.db import models
from django.utils import timezone


class Lesson(models.Model):
    """One model of one server: its real window, its longest answer, its way of counting.

    `tokens_per_count` is how many of the server's tokens one of ours is. What is NULL was never
    taught. Deleting the row forgets the lesson.
    """

    server = models.CharField(
        max_length=300, blank=True, help_text="Address of the model server; empty: OpenAI's own."
    )
    name = models.CharField(max_length=200, help_text="The model's name on that server.")
    context_window = models.PositiveIntegerField(null=True, blank=True)
    # The window in the settings when that was taught: a changed setting counts more.
    configured_window = models.PositiveIntegerField(null=True, blank=True)
    max_output = models.PositiveIntegerField(null=True, blank=True)
    tokens_per_count = models.FloatField(null=True, blank=True)
    updated_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "model_lessons"
        constraints = [
            # Read before every request; two turns that learn at once write one row.
            models.UniqueConstraint(fields=["server", "name"], name="lesson_of_model"),
        ]

    def __str__(self) -> str:
        return f"{self.name} at {self.server or 'OpenAI'}"
