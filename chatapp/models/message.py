"""A message: one stored row of a conversation."""

from __future__ import annotations

import uuid
from decimal import Decimal
from typing import Any

from django.db import models
from django.utils import timezone

from chatapp.wire import to_wire

# Positions go in steps, so that a row can be put between two.
POSITION_STEP = 1_000_000


class Message(models.Model):
    """One row: written once by transcript.py, its text never changed (DESIGN.md, rule 1).

    `content` is the text (NULL where the client sent null); `parts` is set when the client sent a
    list, with its texts taken out into `content` (see chatapp.wire). `tokens` is counted once;
    `tokens_through` sums it along the path. `client_key` is an Idempotency-Key.
    """

    class Role(models.TextChoices):
        """Who speaks."""

        SYSTEM = "system", "System"
        USER = "user", "User"
        ASSISTANT = "assistant", "Assistant"
        TOOL = "tool", "Tool"

    class Kind(models.TextChoices):
        """What the row is: part of the conversation, or the mark of a summary."""

        MESSAGE = "message", "Message"
        PLACEHOLDER = "placeholder", "Placeholder"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    session = models.ForeignKey(
        "chatapp.Session", on_delete=models.CASCADE, related_name="messages"
    )
    branch = models.ForeignKey("chatapp.Branch", on_delete=models.CASCADE, related_name="messages")
    position = models.BigIntegerField()
    role = models.CharField(max_length=9, choices=Role.choices)
    kind = models.CharField(max_length=11, choices=Kind.choices, default=Kind.MESSAGE)
    content = models.TextField(null=True, blank=True)
    parts = models.JSONField(null=True, blank=True)
    tool_calls = models.JSONField(null=True, blank=True)
    tool_call_id = models.TextField(blank=True, default="")
    tool_name = models.TextField(blank=True, default="")
    reasoning = models.TextField(blank=True, default="")
    summary = models.TextField(blank=True, default="")
    metadata = models.JSONField(default=dict, blank=True)
    tokens = models.PositiveIntegerField(default=0)
    tokens_through = models.BigIntegerField(default=0)
    usage = models.JSONField(null=True, blank=True)
    finish_reason = models.CharField(max_length=40, blank=True, default="")
    response_id = models.CharField(max_length=200, blank=True, default="")
    pinned = models.BooleanField(default=False)
    client_key = models.CharField(max_length=200, null=True, blank=True, editable=False)
    client_index = models.PositiveSmallIntegerField(default=0, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "messages"
        constraints = [
            # One place, one row; also the index that reads a branch in order.
            models.UniqueConstraint(fields=["branch", "position"], name="message_place"),
            # A request sent twice under one Idempotency-Key is stored once.
            models.UniqueConstraint(
                fields=["session", "client_key", "client_index"],
                condition=models.Q(client_key__isnull=False),
                name="message_sent_once",
            ),
        ]
        indexes = [
            # Pinned messages before the cursor, read with every request: few rows of many.
            models.Index(
                fields=["branch", "position"],
                condition=models.Q(pinned=True),
                name="message_pinned",
            ),
            # Placeholders of a branch, newest first: old data without summary rows.
            models.Index(
                fields=["branch", "-position"],
                condition=models.Q(kind="placeholder"),
                name="message_placeholder",
            ),
            # The admin's list of all messages, newest first.
            models.Index(fields=["-created_at", "-id"], name="message_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.role} {self.sequence_id}"

    @property
    def sequence_id(self) -> Decimal:
        """The position in steps: 3.500000 stands between the third and the fourth message."""
        return (Decimal(self.position) / POSITION_STEP).quantize(Decimal("0.000001"))

    @property
    def place(self) -> str:
        """The sequence id for people: 3, or 3.5 for what was put between."""
        return f"{self.sequence_id.normalize():f}"

    @property
    def is_rule(self) -> bool:
        """Whether this is a system message that opened the conversation: always sent, first."""
        return self.pinned and self.role == self.Role.SYSTEM

    def wire(self) -> dict[str, Any]:
        """Return the message as an OpenAI chat message."""
        return to_wire(self)
