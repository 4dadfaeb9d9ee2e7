"""What an operator looks after: incidents of sessions, and what servers taught about models."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from chatapp.ids import new_id


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

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    session = models.ForeignKey(
        "chatapp.Session",
        on_delete=models.CASCADE,
        related_name="incidents",
        # incident_of_session begins with it.
        db_index=False,
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
            # The newest turns that ended because their request was too large.
            models.Index(
                fields=["-created_at", "branch"],
                condition=models.Q(code="context_overflow", kind="error"),
                name="incident_overflow",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()}: {self.code}"


class LearnedLimits(models.Model):
    """One model of one server: its real window, its longest answer, its way of counting.

    `tokens_per_count` is how many of the server's tokens one of ours is. What is NULL was never
    taught. Deleting the row forgets what was learned.
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
    # {code of a change: {"at": ISO 8601, …}}: what the server's refusals that are not about size
    # taught its requests (chatapp/llm/adaptations.py). They count for the entry of CHATAPP's
    # MODELS that they were taught for; a changed entry is asked anew.
    adaptations = models.JSONField(default=dict, db_default={}, blank=True)
    configured_entry = models.CharField(max_length=64, blank=True, default="", db_default="")
    updated_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "learned_limits"
        verbose_name = verbose_name_plural = "learned limits"
        constraints = [
            # Read before every request; two turns that learn at once write one row.
            models.UniqueConstraint(fields=["server", "name"], name="limits_of_model"),
        ]

    def __str__(self) -> str:
        return f"{self.name} at {self.server or 'OpenAI'}"
