"""Summary sources: which messages the summariser received."""

from __future__ import annotations

from django.contrib import admin
from django.db.models.functions import Left

from chatapp import formatting
from chatapp.admin import cells
from chatapp.admin.base import ReadOnlyAdmin
from chatapp.admin.filters import one_row
from chatapp.admin.parts import Section
from chatapp.models import Message
from compaction.models import SessionSummary, SessionSummaryMessage


@admin.register(SessionSummaryMessage)
class SummarySourceAdmin(ReadOnlyAdmin):
    """One message that went into one summary."""

    list_display = ("short_id", "of_summary", "of_message", "role", "text_start", "token_count")
    list_select_related = ("summary", "message")
    list_filter = (one_row(SessionSummary, "summary"), one_row(Message, "message"))
    # The key counts up, and a summary's links are written in order.
    ordering = ("-id",)
    sortable_by = ("short_id",)
    list_only = (
        "summary__status",
        "message__position",
        "message__role",
        "message__tokens",
    )
    list_previews = {"content_start": Left("message__content", cells.PREVIEW_CHARS)}
    id_paths = ("summary", "message")
    session_path = "summary__session"
    search_help_text = (
        "The beginning of a summary's or message's id, a session's title or its owner."
    )
    sections = (
        Section(
            title=None, fields=("in_session", "of_summary", "of_message", "role", "token_count")
        ),
    )

    @admin.display(description="No.", ordering="id")
    def short_id(self, link: SessionSummaryMessage) -> str:
        """Return the link's number."""
        return str(link.pk)

    @admin.display(description="Session")
    def in_session(self, link: SessionSummaryMessage) -> str:
        """Return a link to the session."""
        return cells.session_link(link.summary.session)

    @admin.display(description="Summary")
    def of_summary(self, link: SessionSummaryMessage) -> str:
        """Return a link to the summary; a draft has read the message, and does not cover it."""
        name = formatting.short_id(link.summary_id)
        if link.summary.status == SessionSummary.Status.DRAFT:
            name += " (draft: not sent yet)"
        return cells.row_link(link.summary, name)

    @admin.display(description="Message")
    def of_message(self, link: SessionSummaryMessage) -> str:
        """Return a link to the message."""
        return cells.row_link(link.message, f"Position {formatting.place(link.message.position)}")

    @admin.display(description="Role")
    def role(self, link: SessionSummaryMessage) -> str:
        """Return who speaks."""
        return str(link.message.get_role_display())

    @admin.display(description="Text")
    def text_start(self, link: SessionSummaryMessage) -> str:
        """Return the beginning of the text, cut by the database."""
        return cells.preview(getattr(link, "content_start", None))

    @admin.display(description="Tokens")
    def token_count(self, link: SessionSummaryMessage) -> str:
        """Return the message's tokens."""
        return formatting.number(link.message.tokens)
