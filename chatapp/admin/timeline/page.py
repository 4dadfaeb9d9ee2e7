"""The timeline as a page of its own, and its newest entries on the session's page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin import cells
from chatapp.admin.parts import Link, Panel
from chatapp.admin.request_page import RequestPage
from chatapp.admin.timeline.entries import Place, Source, TimelinePage, place_of, read_timeline
from chatapp.admin.timeline.sources import Incidents, Replays
from chatapp.models import Incident, Session

PANEL_ENTRIES = 8
TITLE = "Timeline"


class TimelineOfSession(RequestPage):
    """Adds <page>/timeline/ to a session's page, a panel with its newest entries, and warnings."""

    timeline_sources: ClassVar[Sequence[Source]] = (Incidents(), Replays())
    """The tables that the timeline is merged from."""

    def get_urls(self) -> list[URLPattern]:
        """Add the address of the page."""
        view = self.admin_site.admin_view(self.timeline_view)
        own = path("<path:object_id>/timeline/", view, name="chatapp_session_timeline")
        return [own, *super().get_urls()]

    def notices_for(self, request: HttpRequest, obj: Session) -> list[SafeString | str]:
        """Return the session's warnings, oldest first; each is stored once a session."""
        return [
            format_html(
                '<b>Warning:</b> {} <a href="{}">Details</a>',
                row.text,
                cells.change_url(Incident, row.pk),
            )
            for row in warnings_of(obj)
        ]

    def timeline_panel(self, session: Session) -> Panel:
        """Return the newest entries and the way to all."""
        found = read_timeline(session, self.timeline_sources, most=PANEL_ENTRIES)
        body = render_to_string(
            "admin/chatapp/timeline_panel.html",
            {"entries": found.entries, "all": timeline_url(session), "more": found.older},
        )
        return Panel(title=TITLE, body=body)

    def timeline_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show a page of entries: those before `?before=`, after `?after=`, or the newest."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        session = self.get_object(request, object_id)
        if session is None:
            raise Http404
        found = self._page(request, session)
        return TemplateResponse(
            request,
            "admin/chatapp/timeline.html",
            {
                **self.admin_site.each_context(request),
                "title": TITLE,
                "opts": self.opts,
                "media": self.media,
                "session": session,
                "session_name": formatting.shortened(str(session)),
                "entries": found.entries,
                "ways": _ways(session, found),
            },
        )

    def _page(self, request: HttpRequest, session: Session) -> TimelinePage:
        before, after = (
            place_of(request.GET.get(name, ""), self.timeline_sources)
            for name in ("before", "after")
        )
        if before is None and after is not None:
            found = read_timeline(session, self.timeline_sources, after=after)
            if found.entries:
                return found
        return read_timeline(session, self.timeline_sources, before=before)


def warnings_of(session: Session) -> QuerySet[Incident]:
    """Return a session's warnings: one a code, found by the index that keeps them so few."""
    rows = Incident.objects.filter(session=session, kind=Incident.Kind.WARNING)
    return rows.only("text").order_by("code")


def timeline_url(session: Any, **place: Place | str) -> str:
    """Return the address of a session's timeline, or of a page of it; takes a session or its id."""
    url = reverse("admin:chatapp_session_timeline", args=[getattr(session, "pk", session)])
    query = {name: str(value) for name, value in place.items()}
    return f"{url}?{urlencode(query)}" if query else url


def _ways(session: Session, page: TimelinePage) -> list[Link]:
    """Return the ways to other pages, newest first as the entries are."""
    ways = []
    if page.newer is not None or not page.entries:
        ways.append(Link(label="« Newest", url=timeline_url(session)))
    if page.newer is not None:
        ways.append(Link(label="‹ Newer", url=timeline_url(session, after=page.newer)))
    if page.older is not None:
        ways.append(Link(label="Older ›", url=timeline_url(session, before=page.older)))
    return ways
