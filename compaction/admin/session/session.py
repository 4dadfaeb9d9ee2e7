"""The session's page with what this app knows of it, in the place of chatapp's own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from chatapp.admin import cells
from chatapp.admin.message_panel import messages_panel
from chatapp.admin.page_forms import PageForm
from chatapp.admin.parts import Link, Panel, Table
from chatapp.admin.path_page import place_url
from chatapp.admin.session import SessionAdmin
from chatapp.context.assembly import Context
from chatapp.models import Session
from compaction import vocabulary
from compaction.admin.acting import REFUSALS, for_each, may_run
from compaction.admin.session.fate import fates_of, summary_link
from compaction.admin.session.forms import SESSION_FORMS, compact, redo
from compaction.admin.session.meter import meter_panel
from compaction.admin.session.standing import Standing, situation_for
from compaction.admin.session.state_panel import state_panel
from compaction.admin.session.strip import strip_panel
from compaction.admin.tables import run_table, summary_table
from compaction.admin.timeline.sources import TIMELINE_SOURCES
from compaction.branches.snapshot import snapshot_of
from compaction.engine.rendering import as_sent_text
from compaction.models import CompactionRun, CompactionState, SessionSummary

ROWS_SHOWN = 10

admin.site.unregister(Session)


@admin.register(Session)
class CompactedSessionAdmin(SessionAdmin):
    """Meter, strip, messages with their fates; last runs and summaries; what may be done."""

    actions = ("compact_now", "resummarise")
    page_forms: ClassVar[Mapping[str, PageForm]] = SESSION_FORMS
    refusals = REFUSALS
    timeline_sources = TIMELINE_SOURCES

    class Media:
        css = {"all": ["compaction/session.css", "compaction/ladder.css"]}

    def has_run_permission(self, request: HttpRequest) -> bool:
        """Whether the operator may start runs."""
        return may_run(request)

    @admin.action(description="Compact now", permissions=["run"])
    def compact_now(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        """Queue a run by hand for every selected session."""
        for_each(
            request, self.chosen(request, queryset, "active_branch"), partial(compact, request)
        )

    @admin.action(description="Re-summarise", permissions=["run"])
    def resummarise(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        """Queue a new version of the newest active summary of every selected session.

        One a session: a branch has one worker at a time, and a second run would find it busy.
        """
        sessions = self.chosen(request, queryset, "active_branch")
        for_each(request, sessions, partial(redo, request))

    # --- page -------------------------------------------------------------------------------------

    def links_for(self, request: HttpRequest, obj: Session) -> list[Link]:
        """Add the ways to runs, summaries and states."""
        return [
            *super().links_for(request, obj),
            Link(label="Runs", url=cells.list_url(CompactionRun, session__id__exact=obj.pk)),
            Link(label="Summaries", url=cells.list_url(SessionSummary, session__id__exact=obj.pk)),
            Link(
                label="States",
                url=cells.list_url(CompactionState, branch__session__id__exact=obj.pk),
            ),
        ]

    def panels_for(self, request: HttpRequest, obj: Session) -> list[Panel]:
        """Return meter, state, strip, timeline, messages; a sentence where that cannot be told."""
        try:
            standing = Standing(snapshot=situation_for(request, obj))
            panels = [meter_panel(standing), state_panel(standing.snapshot), strip_panel(standing)]
        except REFUSALS as refusal:
            sentence = format_html('<p class="panel-more">{}</p>', refusal)
            return [Panel(title="Compaction", body=sentence), *super().panels_for(request, obj)]
        ways: tuple[Link, ...] = ()
        if standing.cursor:
            ways = (Link(label="At the cursor", url=place_url(obj.pk, standing.cursor)),)
        shown = messages_panel(request, obj, partial(fates_of, standing), ways=ways)
        return [*panels, self.timeline_panel(obj), shown]

    def tables_for(self, request: HttpRequest, obj: Session) -> list[Table]:
        """Add the newest runs and summaries."""
        of_session: dict[str, Any] = {"session__id__exact": obj.pk}
        runs = CompactionRun.objects.filter(session=obj).order_by("-created_at", "-id")
        summaries = SessionSummary.objects.filter(session=obj).order_by("-created_at", "-id")
        return [
            run_table(
                "Newest runs",
                runs[:ROWS_SHOWN],
                more=Link(label="All runs", url=cells.list_url(CompactionRun, **of_session)),
            ),
            summary_table(
                "Newest summaries",
                summaries[:ROWS_SHOWN],
                more=Link(label="All summaries", url=cells.list_url(SessionSummary, **of_session)),
            ),
            *super().tables_for(request, obj),
        ]

    # --- the next request -------------------------------------------------------------------------

    def origins_of(self, session: Session, context: Context) -> Mapping[int, SafeString | str]:
        """Add which messages are summaries; one message may hold several, and the prompt."""
        snapshot = snapshot_of(session)
        texts = [as_sent_text(text) for text in snapshot.summary_texts]
        if snapshot.summaries:
            links = [summary_link(row) for row in snapshot.summaries]
        else:
            links = [
                cells.link(f"imported placeholder {row.place}", place_url(session.pk, row.position))
                for row in snapshot.old_placeholders
            ]
        found = dict(super().origins_of(session, context))
        for index, message in enumerate(context.messages):
            if message["role"] != "system":
                break
            held = [
                link
                for text, link in zip(texts, links, strict=True)
                if text in str(message.get("content"))
            ]
            if held and index not in found:
                prompt = session.system_prompt
                merged = prompt and str(message.get("content")).startswith(prompt)
                begin = "System prompt and text of " if merged else "Text of "
                said = [(begin, held[0]), *((" and ", link) for link in held[1:])]
                found[index] = format_html_join("", "{}{}", said)
        return found

    def notes_on(self, context: Context) -> list[str]:
        """Say whether a compaction would come first."""
        reason = context.facts.get("compacts_first")
        if not reason:
            return []
        return [
            f"A compaction would come first ({vocabulary.reason_words(reason)}): what a turn sends "
            "is then smaller than what stands here."
        ]
