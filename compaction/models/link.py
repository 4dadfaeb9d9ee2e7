"""Which messages a summary was made from."""

from __future__ import annotations

from django.db import models


class SessionSummaryMessage(models.Model):
    """One message that the summariser received for one summary."""

    summary = models.ForeignKey(
        "compaction.SessionSummary", on_delete=models.CASCADE, related_name="links"
    )
    message = models.ForeignKey(
        "chatapp.Message", on_delete=models.CASCADE, related_name="summary_links"
    )

    class Meta:
        db_table = "session_summary_messages"
        verbose_name = "summary source"
        constraints = [
            # A message is a source once; also the index that reads a summary's sources.
            models.UniqueConstraint(fields=["summary", "message"], name="link_once"),
        ]

    def __str__(self) -> str:
        return f"{self.message_id} in {self.summary_id}"
