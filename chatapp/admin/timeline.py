"""A session's timeline: its sources, its page, and its newest entries on the session's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from chatapp import formatting, incidents
from chatapp.admin.answer_page import given_links, left_out_sentence, left_out_words
from chatapp.admin.request_page import RequestPage
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.extension import admin_extensions
from chatapp.admin.toolkit.page_parts import Link, Panel
from chatapp.admin.toolkit.permissions import TEXTS_HIDDEN, may_see_texts, name_for
from chatapp.admin.toolkit.timeline import (
    CompiledSource,
    Replays,
    TimelineEntry,
    TimelinePage,
    TimelinePlace,
    TimelineSource,
    place_of,
    read_timeline,
)
from chatapp.audit import AuditEntry, name_of
from chatapp.compiled import compiled_read
from chatapp.messages.wire import LEFT_OUT
from chatapp.models import AnswerRequest, Branch, Incident, Message, Session

PANEL_ENTRIES = 8
TITLE = "Timeline"


class Incidents(CompiledSource):
    """Retries, changed requests, warnings and errors."""

    key = "incident"

    def rows(self, session: Session) -> QuerySet[Incident]:
        """Return the session's incidents."""
        return Incident.objects.filter(session=session.pk)

    def entries(
        self, session: Session, rows: Sequence[Incident], *, texts: bool
    ) -> Mapping[Any, TimelineEntry]:
        """Return an entry a row; nothing more is read."""
        return {row.pk: self._entry(row, texts=texts) for row in rows}

    def _entry(self, incident: Incident, *, texts: bool) -> TimelineEntry:
        links = [Link.to("Details", Incident, incident.pk)]
        if incident.branch_id:
            links.append(Link.to("Branch", Branch, incident.branch_id))
        return TimelineEntry(
            at=incident.created_at,
            title=incidents.code_words(incident.code),
            label=str(incident.get_kind_display()),
            tone=incidents.tone_of(incident),
            reason=html.told_text(incident.text) if texts else "",
            said=incidents.said_in(incident.details) if texts else "",
            numbers=incidents.numbers_of(incident.details, words=texts),
            means=incidents.meaning_of(incident),
            links=links,
        )


class AuditEntries(CompiledSource):
    """What people did to the session."""

    key = "audit"

    def rows(self, session: Session) -> QuerySet[AuditEntry]:
        """Return the session's entries with who did it."""
        return AuditEntry.objects.filter(session=session.pk).select_related("actor")

    def entries(
        self, session: Session, rows: Sequence[AuditEntry], *, texts: bool
    ) -> Mapping[Any, TimelineEntry]:
        """Return an entry a row; nothing more is read."""
        return {row.pk: self._entry(row) for row in rows}

    def _entry(self, row: AuditEntry) -> TimelineEntry:
        by = name_of(row.actor)
        return TimelineEntry(
            at=row.created_at,
            title=row.title,
            label="By a rule" if row.is_by_rule else "By a person" if by else "Audit log",
            tone="busy",
            reason=row.text,
            numbers=[("By", by)] if by else [],
            links=[Link.to("Branch", Branch, row.branch_id)] if row.branch_id else [],
        )


class IncompleteAnswers(CompiledSource):
    """Answers that were given without a part of the conversation."""

    key = "incomplete"

    def rows(self, session: Session) -> QuerySet[AnswerRequest]:
        """Return the records of the session's answers that went without messages."""
        rows = AnswerRequest.objects.filter(session=session.pk, left_out__isnull=False)
        told = [f"message__{name}" for name in ("metadata", "position", "branch", "role", "kind")]
        return rows.select_related("message").only("created_at", "left_out", "session", *told)

    def entries(
        self, session: Session, rows: Sequence[AnswerRequest], *, texts: bool
    ) -> Mapping[Any, TimelineEntry]:
        """Return an entry a row; nothing more is read."""
        # What counts what was left out is the record of an answer, never a text.
        found = ((row, row.message) for row in rows if row.message is not None)
        return {row.pk: self._entry(row, answer, texts=texts) for row, answer in found}

    def _entry(self, row: AnswerRequest, answer: Message, *, texts: bool) -> TimelineEntry:
        told = answer.metadata.get(LEFT_OUT) or {}
        return TimelineEntry(
            at=row.created_at,
            title=f"Answer {answer.place}: {left_out_words(row.left_out or 0)}",
            label="Incomplete",
            tone="busy",
            reason=left_out_sentence(told) if told else "",
            means="What was left out is stored as it was; only this answer's request lacked it.",
            links=[
                *(given_links(answer, is_recorded=True) if texts else []),
                Link.to("Answer", Message, answer.pk),
                Link.to("Branch", Branch, answer.branch_id),
            ],
        )


_OURS: Sequence[TimelineSource] = (Incidents(), IncompleteAnswers(), Replays(), AuditEntries())


def timeline_sources() -> list[TimelineSource]:
    """Return the tables that a timeline is merged from: ours, and those of other apps."""
    found = {each.key: each for each in _OURS}
    for extension in admin_extensions():
        found |= {each.key: each for each in extension.timeline_sources}
    return list(found.values())


class TimelineOfSession(RequestPage):
    """Adds <page>/timeline/ to a session's page, a panel with its newest entries, and warnings."""

    def get_urls(self) -> list[URLPattern]:
        """Add the address of the page."""
        view = self.admin_site.admin_view(self.timeline_view)
        own = path("<path:object_id>/timeline/", view, name="chatapp_session_timeline")
        return [own, *super().get_urls()]

    def notices_for(self, request: HttpRequest, obj: Session) -> list[SafeString | str]:
        """Return the session's warnings, oldest first; each is stored once a session."""
        texts = may_see_texts(request)
        return [
            format_html(
                '<b>Warning:</b> {} <a href="{}">Details</a>',
                row.text if texts else f"{incidents.code_words(row.code)}.",
                html.change_url(Incident, row.pk),
            )
            for row in warnings_of(session=obj.pk)
        ]

    def timeline_panel(self, request: HttpRequest, session: Session) -> Panel:
        """Return the newest entries and the way to all."""
        texts = may_see_texts(request)
        found = read_timeline(session, timeline_sources(), most=PANEL_ENTRIES, texts=texts)
        body = render_to_string(
            "admin/chatapp/timeline_panel.html",
            {"entries": found.entries, "all": timeline_url(session), "more": found.older},
        )
        return Panel(title=TITLE, body=body)

    def timeline_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show a page of entries: those before `?before=`, after `?after=`, or the newest."""
        session = self.viewed_row(request, object_id)
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
                "session_name": formatting.shortened(name_for(request, session)),
                "texts_hidden": "" if may_see_texts(request) else TEXTS_HIDDEN,
                "entries": found.entries,
                "ways": _ways(session, found),
            },
        )

    def _page(self, request: HttpRequest, session: Session) -> TimelinePage:
        texts = may_see_texts(request)
        before, after = (
            place_of(request.GET.get(name, ""), timeline_sources()) for name in ("before", "after")
        )
        if before is None and after is not None:
            found = read_timeline(session, timeline_sources(), after=after, texts=texts)
            if found.entries:
                return found
        return read_timeline(session, timeline_sources(), before=before, texts=texts)


@compiled_read
def warnings_of(*, session: UUID) -> QuerySet[Incident]:
    """Return a session's warnings: one a code, found by the index that keeps them so few."""
    rows = Incident.objects.filter(session=session, kind=Incident.Kind.WARNING)
    return rows.only("text", "code").order_by("code")


def timeline_url(session: Any, **place: TimelinePlace | str) -> str:
    """Return the address of a session's timeline, or of a page of it; takes a session or its id."""
    url = html.keyed_url("admin:chatapp_session_timeline", getattr(session, "pk", session))
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
