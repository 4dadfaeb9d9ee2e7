"""The whole texts of tool results that were stored cut: read here, exported, never sent."""

from __future__ import annotations

from django.contrib import admin
from django.db.models.functions import Left, Length
from django.http import HttpRequest

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.columns import column, preview
from chatapp.admin.toolkit.lists import one_row
from chatapp.admin.toolkit.model_admin import WideList
from chatapp.admin.toolkit.page_parts import Link, Section
from chatapp.admin.toolkit.permissions import nameless_link
from chatapp.models import Message, MessageOriginal, Session


@admin.register(MessageOriginal)
class MessageOriginalAdmin(WideList):
    """One tool result as it came in; its message holds what is sent of it."""

    list_display = ("short_id", "in_session", "position", "size", "text_start")
    list_select_related = ("message__session",)
    list_filter = (one_row(Session, "message__session"),)
    # The key alone has an index; in which order results were cut tells nothing.
    ordering = ("-pk",)
    sortable_by = ()
    list_only = ("message__session__title", "message__position")
    list_previews = {
        "content_start": Left("content", html.PREVIEW_CHARS),
        "content_length": Length("content"),
    }
    id_paths = ("message", "message__session")
    session_path = "message__session"
    text_paths = ("content",)
    search_help_text = (
        "The beginning or end of a message's or a session's id, a session's title or its owner. "
        "“text: …” searches the texts, which is slow on large tables."
    )
    sections = (
        Section(title=None, fields=("short_id", "in_session", "position")),
        Section(
            title="What came in", fields=("whole", "parts_json"), optional={"parts_json": "parts"}
        ),
    )

    short_id = column("Message", "message_id", html.short_id, reads=("message",))
    in_session = column(
        "Session", "message.session", html.session_link, reads=(), instead=nameless_link
    )
    position = column("Position", "message.position", formatting.place, reads=())
    size = column(
        "Characters",
        lambda row: getattr(row, "content_length", len(row.content)),
        formatting.number,
    )
    text_start = preview("Text", "content_start")
    whole = column("Text", "content", html.stored_text)
    parts_json = column("Parts", "parts", html.stored_json)

    def links_for(self, request: HttpRequest, obj: MessageOriginal) -> list[Link]:
        """Return the ways to the message as it is sent, and to its session."""
        return [
            Link.to("Message", Message, obj.message_id),
            Link.to("Session", Session, obj.message.session_id),
        ]
