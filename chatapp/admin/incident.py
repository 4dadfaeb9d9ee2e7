"""Incidents: what did not go as planned in turns of all sessions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest

from chatapp import incidents
from chatapp.admin import cells
from chatapp.admin.filters import CreatedSince, Day, one_row
from chatapp.admin.parts import Link, Section
from chatapp.admin.timeline.page import timeline_url
from chatapp.admin.wide_list import WideList
from chatapp.models import Incident, Session


class Code(admin.SimpleListFilter):
    """What happened; the codes are known, so the table is not read for them."""

    title = "what happened"
    parameter_name = "code"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        """Return the codes in words."""
        return sorted(incidents.CODE_WORDS.items(), key=lambda each: each[1])

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep one code's rows."""
        return queryset.filter(code=self.value()) if self.value() else queryset


@admin.register(Incident)
class IncidentAdmin(WideList):
    """One thing that happened to a turn: a retry, a changed request, a warning, an error."""

    list_display = ("created_at", "kind_shown", "what", "text_start", "in_session")
    list_select_related = ("session",)
    list_filter = (one_row(Session, "session"), CreatedSince, Day, "kind", Code)
    list_only = ("kind", "code", "created_at", "session__title")
    list_previews = {"text_begin": Left("text", cells.PREVIEW_CHARS)}
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
        Section(title="For programs", fields=("id", "code")),
    )

    @admin.display(description="Kind")
    def kind_shown(self, incident: Incident) -> str:
        """Return what sort of thing it was."""
        return str(cells.badge(incident.get_kind_display(), incidents.tone_of(incident)))

    @admin.display(description="What happened")
    def what(self, incident: Incident) -> str:
        """Return the code in words."""
        return incidents.code_words(incident.code)

    @admin.display(description="In words")
    def text_start(self, incident: Incident) -> str:
        """Return the beginning of the sentence."""
        return cells.preview(getattr(incident, "text_begin", None))

    @admin.display(description="In words")
    def text_shown(self, incident: Incident) -> str:
        """Return the whole sentence."""
        return incident.text

    @admin.display(description="What it means")
    def means(self, incident: Incident) -> str:
        """Return what followed from it."""
        return incidents.meaning_of(incident)

    @admin.display(description="Session")
    def in_session(self, incident: Incident) -> str:
        """Return a link to the session."""
        return cells.session_link(incident.session)

    @admin.display(description="Numbers")
    def numbers(self, incident: Incident) -> str:
        """Return the numbers by name."""
        found = incidents.numbers_of(incident.details)
        return "; ".join(f"{name}: {value}" for name, value in found) or "—"

    @admin.display(description="The server said")
    def server_said(self, incident: Incident) -> str:
        """Return the server's own words."""
        return cells.stored_text(incidents.said_in(incident.details))

    @admin.display(description="As stored")
    def details_json(self, incident: Incident) -> str:
        """Return everything that was noted."""
        return cells.stored_json(incident.details)

    def links_for(self, request: HttpRequest, obj: Incident) -> list[Link]:
        """Return the ways to the session, and to its timeline from this moment back."""
        behind = (obj.created_at + timedelta(microseconds=1)).isoformat()
        return [
            Link(label="Session", url=cells.change_url(Session, obj.session_id)),
            Link(label="In the timeline", url=timeline_url(obj.session_id, before=behind)),
        ]
