"""A session: one conversation of one owner."""

from __future__ import annotations

import uuid
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone


class Session(models.Model):
    """One conversation. Its messages form a tree of branches; `active_branch` is the line in use.

    `turn_owner` and `turn_expires_at` are the turn's lease: one turn at a time per session, taken
    by a conditional UPDATE (see turns.py). `import_key` names the conversation that was imported.
    `stateless` remembers that its server does not keep answers, so the whole history is sent,
    `plain_text` that it takes texts only. Both are set by a refusal and can be taken back.
    """

    class Api(models.TextChoices):
        """Which wire format talks to the model."""

        CHAT = "chat", "Chat Completions"
        RESPONSES = "responses", "Responses"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="chat_sessions"
    )
    title = models.CharField(max_length=200, blank=True)
    model = models.CharField(
        max_length=100, default="default", help_text="Alias from the CHATAPP MODELS setting."
    )
    api = models.CharField(max_length=10, choices=Api.choices, default=Api.CHAT)
    stateless = models.BooleanField(default=False)
    plain_text = models.BooleanField(default=False)
    system_prompt = models.TextField(blank=True)
    tools = models.JSONField(default=list, blank=True)
    active_branch = models.ForeignKey(
        "chatapp.Branch", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    metadata = models.JSONField(default=dict, blank=True)
    import_key = models.CharField(max_length=100, null=True, blank=True, editable=False)
    turn_owner = models.UUIDField(null=True, blank=True, editable=False)
    turn_expires_at = models.DateTimeField(null=True, blank=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "sessions"
        constraints = [
            # Importing one conversation twice gives one session (formats.records.Conversation).
            models.UniqueConstraint(fields=["owner", "import_key"], name="session_import_once"),
        ]
        indexes = [
            # GET sessions/: one owner's sessions, newest first.
            models.Index(fields=["owner", "-created_at", "-id"], name="session_owner_newest"),
            # The admin's list of all sessions, newest first.
            models.Index(fields=["-created_at", "-id"], name="session_newest"),
        ]

    def __str__(self) -> str:
        return self.title or f"Session {str(self.id)[:8]}"

    @property
    def branch(self) -> Any:
        """The active branch; every stored session has one (transcript.create_session)."""
        if self.active_branch is None:
            raise ValueError(f"Session {self.id} has no active branch; it was not created whole.")
        return self.active_branch
