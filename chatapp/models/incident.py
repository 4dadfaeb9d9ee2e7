"""What did not go as planned in a turn: retries, refusals, warnings."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone


class Incident(models.Model):
    """One thing that happened to a session's turn; the row is for operators and never changes.

    `code` is for programs (an ErrorKind's value, or the name of what was done), `text` a sentence.
    `details` holds numbers and the server's own words, never the conversation.
    """

    class Kind(models.TextChoices):
        """What sort of thing it was."""

        RETRY = "retry", "Retry"
        CHANGE = "change", "Request changed"
        WARNING = "warning", "Warning"
        ERROR = "error", "Error"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    session = models.ForeignKey(
        "chatapp.Session", on_delete=models.CASCADE, related_name="incidents"
    )
    branch = models.ForeignKey(
        "chatapp.Branch", on_delete=models.CASCADE, null=True, blank=True, related_name="incidents"
    )
    kind = models.CharField(max_length=7, choices=Kind.choices)
    code = models.CharField(max_length=40)
    text = models.TextField()
    details = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "session_incidents"
        constraints = [
            # A warning is given once a session, however many turns would repeat it.
            models.UniqueConstraint(
                fields=["session", "code"],
                condition=models.Q(kind="warning"),
                name="incident_warned_once",
            ),
        ]
        indexes = [
            # A session's timeline, newest first.
            models.Index(fields=["session", "-created_at", "-id"], name="incident_of_session"),
            # The admin's list of all incidents, newest first.
            models.Index(fields=["-created_at", "-id"], name="incident_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()}: {self.code}"
