"""Incidents: what did not go as planned in turns of all sessions."""

from __future__ import annotations

from datetime import timedelta

from django.contrib import admin
from django.db.models.functions import Left
from django.http import HttpRequest

from chatapp import incidents
from chatapp.admin.timeline import timeline_url
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.columns import IN_SESSION, SHORT_ID, column, preview
from chatapp.admin.toolkit.lists import CREATED_SINCE, Day, by_value, one_row
from chatapp.admin.toolkit.model_admin import WideList
from chatapp.admin.toolkit.page_parts import Link, Section
from chatapp.models import Incident, Session


def _listed(numbers: list[tuple[str, str]]) -> str:
    return "; ".join(f"{name}: {value}" for name, value in numbers) or "—"


def _codes() -> list[tuple[str, str]]:
    return sorted(incidents.CODE_WORDS.items(), key=lambda each: each[1])


@admin.register(Incident)
class IncidentAdmin(WideList):
    """One thing that happened to a turn: a retry, a changed request, a warning, an error."""

    list_display = ("created_at", "kind_shown", "what", "text_start", "in_session")
    list_select_related = ("session",)
    list_filter = (
        one_row(Session, "session"),
        CREATED_SINCE,
        Day,
        "kind",
        by_value("what happened", "code", _codes),
    )
    list_only = ("kind",)
    list_previews = {"text_begin": Left("text", html.PREVIEW_CHARS)}
    sections = (
        Section(
            title=None,
            fields=(
                "created_at",
                "kind_shown",
                "what",
                "text_shown",
                "means",
                "in_session",
                "branch",
            ),
        ),
        Section(
            title="Details",
            fields=("numbers", "server_said", "details_json"),
            optional={"numbers": "details", "server_said": "details", "details_json": "details"},
        ),
        Section(title="For programs", fields=("short_id", "code")),
    )

    kind_shown = column(
        "Kind",
        lambda incident: str(html.badge(incident.get_kind_display(), incidents.tone_of(incident))),
    )
    short_id = SHORT_ID
    what = column("What happened", "code", incidents.code_words)
    text_start = preview("In words", "text_begin")
    text_shown = column("In words", "text", html.told_text, is_text=True)
    means = column("What it means", incidents.meaning_of)
    in_session = IN_SESSION

    numbers = column(
        "Numbers",
        "details",
        lambda details: _listed(incidents.numbers_of(details)),
        instead=lambda details: _listed(incidents.numbers_of(details, words=False)),
    )
    server_said = column(
        "The server said", lambda row: incidents.said_in(row.details), html.stored_text
    )
    details_json = column("As stored", "details", html.stored_json)

    def links_for(self, request: HttpRequest, obj: Incident) -> list[Link]:
        """Return the ways to the session, and to its timeline from this moment back."""
        behind = (obj.created_at + timedelta(microseconds=1)).isoformat()
        return [
            Link.to("Session", Session, obj.session_id),
            Link(label="In the timeline", url=timeline_url(obj.session_id, before=behind)),
        ]
