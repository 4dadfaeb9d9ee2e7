"""Branches: the lines of a session's tree."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin import cells
from chatapp.admin.base import ReadOnlyAdmin
from chatapp.admin.filters import CreatedSince, one_row
from chatapp.admin.message import messages_url
from chatapp.admin.parts import Link, Section
from chatapp.models import Branch, Message, Session

REPLAYS_SHOWN = 10


@admin.register(Branch)
class BranchAdmin(ReadOnlyAdmin):
    """A parent up to a fork, then messages of its own; sums count the whole path."""

    list_display = ("name", "in_session", "kind", "forked_at", "messages", "tokens", "created_at")
    list_select_related = ("session",)
    list_filter = (one_row(Session, "session"), CreatedSince, "kind")
    list_only = (
        "kind",
        "fork_position",
        "message_count",
        "token_total",
        "created_at",
        "session__title",
    )
    sections = (
        Section(
            title=None,
            fields=("id", "in_session", "kind", "parent", "forked_at", "replaces", "replayed_as"),
            optional={"replaces": "replaces_id"},
        ),
        Section(title="Size", fields=("messages", "tokens", "head")),
        Section(title="Times", fields=("created_at",)),
    )

    @admin.display(description="Branch")
    def name(self, branch: Branch) -> str:
        """Return kind and id."""
        return str(branch)

    @admin.display(description="Session")
    def in_session(self, branch: Branch) -> str:
        """Return a link to the session."""
        return cells.session_link(branch.session)

    @admin.display(description="Forked at")
    def forked_at(self, branch: Branch) -> str:
        """Return where it leaves its parent."""
        return formatting.place(branch.fork_position)

    @admin.display(description="Replayed as")
    def replayed_as(self, branch: Branch) -> SafeString | str:
        """Return links to the branches that repeat it with shortened tool results."""
        rows = branch.replays.only("kind", "replaces").order_by("created_at")[:REPLAYS_SHOWN]
        return format_html_join(", ", "{}", ((cells.row_link(row),) for row in rows)) or "—"

    @admin.display(description="Last position")
    def head(self, branch: Branch) -> str:
        """Return where its newest message stands."""
        return formatting.place(branch.head_position)

    @admin.display(description="Messages")
    def messages(self, branch: Branch) -> str:
        """Return the messages along the path; a stored sum."""
        return formatting.number(branch.message_count)

    @admin.display(description="Tokens")
    def tokens(self, branch: Branch) -> str:
        """Return the tokens along the path; a stored sum."""
        return formatting.number(branch.token_total)

    def links_for(self, request: HttpRequest, obj: Branch) -> list[Link]:
        """Return the ways to its own messages, its placeholders and its children."""
        placeholders = cells.list_url(
            Message, branch__id__exact=obj.pk, kind__exact=Message.Kind.PLACEHOLDER
        )
        return [
            Link(label="Own messages in order", url=messages_url(obj.pk)),
            Link(label="Placeholders", url=placeholders),
            Link(label="Session", url=cells.change_url(Session, obj.session_id)),
        ]
