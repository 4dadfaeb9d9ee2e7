"""A branch: one line of a session's tree of messages."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone


class Branch(models.Model):
    """A parent branch up to `fork_position`, then its own messages.

    A replay repeats the messages of the branch it `replaces` from a point on, at the same
    positions, with tool results shortened; the old branch stays as it was.
    `message_count` and `token_total` are sums along the whole path, the parent's part included, so
    that a trigger reads two numbers however old the session is. Placeholders count in neither.
    """

    class Kind(models.TextChoices):
        """Why the branch exists."""

        ROOT = "root", "Root"
        FORK = "fork", "Fork"
        REPLAY = "replay", "Replay"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    session = models.ForeignKey(
        "chatapp.Session", on_delete=models.CASCADE, related_name="branches"
    )
    parent = models.ForeignKey(
        "self", on_delete=models.CASCADE, null=True, blank=True, related_name="children"
    )
    fork_position = models.BigIntegerField(null=True, blank=True)
    kind = models.CharField(max_length=6, choices=Kind.choices, default=Kind.ROOT)
    replaces = models.ForeignKey(
        "self", on_delete=models.CASCADE, null=True, blank=True, related_name="replays"
    )
    head_position = models.BigIntegerField(default=0)
    message_count = models.PositiveIntegerField(default=0)
    token_total = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "branches"
        verbose_name_plural = "branches"
        indexes = [
            # GET sessions/{id}/branches/: the branches of one session, oldest first.
            models.Index(fields=["session", "created_at"], name="branch_of_session"),
            # The admin's lists of branches and of their states, newest first.
            models.Index(fields=["-created_at", "-id"], name="branch_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {str(self.id)[:8]}"
