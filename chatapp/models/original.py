"""The whole of a tool result that was too long for the transcript."""

from __future__ import annotations

from django.db import models


class MessageOriginal(models.Model):
    """What a message said before the guard at storing cut it; export and pages show it whole.

    It is written once, together with its message, and never sent to a model.
    """

    message = models.OneToOneField(
        "chatapp.Message", on_delete=models.CASCADE, primary_key=True, related_name="original"
    )
    content = models.TextField()
    parts = models.JSONField(null=True, blank=True)

    class Meta:
        db_table = "message_originals"

    def __str__(self) -> str:
        return f"Whole text of message {self.message_id}"
