"""The audit log: what people did to sessions, who, and when."""

from __future__ import annotations

from datetime import timedelta

from django.contrib import admin
from django.http import HttpRequest
from django.utils.safestring import SafeString

from chatapp.admin.timeline import timeline_url
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.columns import IN_SESSION, SHORT_ID, column
from chatapp.admin.toolkit.lists import CREATED_SINCE, Day, by_value, one_row
from chatapp.admin.toolkit.model_admin import WideList
from chatapp.admin.toolkit.page_parts import Link, Section
from chatapp.audit import AuditEntry, name_of, title_of
from chatapp.models import Session

# What is offered as a filter; an app that joins may store other actions besides.
COMMON = (
    "restored",
    "version_activated",
    "summary_edited",
    "hold_lifted",
    "hold_broken",
    "profile_changed",
    "instructions_changed",
    "pinned",
    "unpinned",
    "branch_switched",
)


def _actions() -> list[tuple[str, str]]:
    return [(action, title_of(action)) for action in COMMON]


def _who(entry: AuditEntry) -> SafeString | str:
    return name_of(entry.actor) or html.badge("A rule" if entry.is_by_rule else "Nobody", "")


@admin.register(AuditEntry)
class AuditEntryAdmin(WideList):
    """One thing that a person did to a session, or that ended such a thing."""

    list_display = ("created_at", "title_shown", "who", "text_shown", "in_session")
    list_select_related = ("session", "actor")
    list_filter = (
        one_row(Session, "session"),
        CREATED_SINCE,
        Day,
        by_value("what was done", "action", _actions),
    )
    list_only = ("action", "text", "actor__username")
    sections = (
        Section(
            title=None,
            fields=("created_at", "title_shown", "who", "text_shown", "in_session", "branch"),
        ),
        Section(title="For programs", fields=("short_id", "action")),
    )

    short_id = SHORT_ID
    title_shown = column("What was done", "title", str, reads=("action",))
    who = column("By", _who, reads=("action", "actor__username"))
    # Ids and numbers alone: no words of a conversation (chatapp/audit.py).
    text_shown = column("In words", "text", str)
    in_session = IN_SESSION

    def links_for(self, request: HttpRequest, obj: AuditEntry) -> list[Link]:
        """Return the ways to the session, and to its timeline from this moment back."""
        behind = (obj.created_at + timedelta(microseconds=1)).isoformat()
        return [
            Link.to("Session", Session, obj.session_id),
            Link(label="In the timeline", url=timeline_url(obj.session_id, before=behind)),
        ]
