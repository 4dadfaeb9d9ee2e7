"""Summaries: what was made of which messages, and the way back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar
from uuid import UUID

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.safestring import SafeString

from chatapp.admin import cells
from chatapp.admin.filters import CreatedSince, Day, one_row
from chatapp.admin.page_forms import PageForm
from chatapp.admin.parts import Link, Panel, Section, Table
from chatapp.admin.wide_list import WideList
from chatapp.models import Session
from compaction.admin.acting import for_each, may_run, queued
from compaction.admin.filters import Ratio, Reason, SummaryStatus, Trigger
from compaction.admin.summary.compare import compare_page, pair_of
from compaction.admin.summary.forms import (
    RESTORE,
    RESUMMARISE,
    may_restore,
    refuse_draft,
    taken_back,
)
from compaction.admin.summary.notices import notices_on
from compaction.admin.summary.ratio_bar import ratio_panel
from compaction.admin.summary.shown import SummaryCells
from compaction.admin.summary.versions import default_comparison, version_tables
from compaction.admin.tables import source_table
from compaction.models import CompactionRun, CompactionStep, SessionSummary
from compaction.runs.resummarize import resummarize
from compaction.summaries.restore import restore_summary


@admin.register(SessionSummary)
class SessionSummaryAdmin(SummaryCells, WideList):
    """One stored result of a compaction; it may be made again or taken back, never edited."""

    list_display = (
        "short_id",
        "created_at",
        "in_session",
        "standing",
        "why",
        "sources",
        "token_change",
        "ratio",
    )
    list_select_related = ("session",)
    list_filter = (
        one_row(Session, "session"),
        CreatedSince,
        Day,
        SummaryStatus,
        "is_digest",
        Trigger,
        Reason,
        Ratio,
        "truncated",
        "kind",
    )
    sortable_by = ("created_at", "ratio")
    search_help_text = (
        "The beginning of an id, a session's title or its owner. "
        "“text: …” searches the summaries' text, which is slow on large tables."
    )
    list_only = (
        "status",
        "reason",
        "message_count",
        "tokens_before",
        "tokens_after",
        "compression_ratio",
        "truncated",
        "is_digest",
        "created_at",
        "session__title",
    )
    text_paths = ("summary_text",)
    actions = ("resummarise", "restore")
    page_forms: ClassVar[Mapping[str, PageForm]] = {"resummarise": RESUMMARISE, "restore": RESTORE}
    sections = (
        Section(
            title=None,
            fields=("id", "in_session", "branch", "standing", "kind", "created_at", "from_run"),
        ),
        Section(
            title="Why",
            fields=("why", "started_by", "profile", "instructions_text"),
            optional={"instructions_text": "instructions"},
        ),
        Section(
            title="Size",
            fields=(
                "sources",
                "token_change",
                "ratio",
                "was_truncated",
                "summary_size",
                "cost_shown",
                "took",
            ),
        ),
        Section(title="Text", fields=("text", "files"), optional={"abridged_text": "abridged"}),
        Section(
            title="Covers",
            fields=("range", "first_message", "last_message", "times"),
        ),
        Section(
            title="Line of versions",
            fields=("continues", "replaces"),
            optional={"continues": "previous_id", "replaces": "supersedes_id"},
        ),
        Section(
            title="How it was made",
            fields=(
                "model",
                "temperature",
                "target_tokens",
                "keep_last_n",
                "prompt_version",
                "prompt_text",
                "abridged_text",
                "metadata_json",
            ),
            optional={"abridged_text": "abridged"},
        ),
    )

    class Media:
        css = {"all": ["compaction/summary.css"]}

    # --- actions ----------------------------------------------------------------------------------

    def has_run_permission(self, request: HttpRequest) -> bool:
        """Whether the operator may start runs."""
        return may_run(request)

    def has_restore_permission(self, request: HttpRequest) -> bool:
        """Whether the operator may take summaries back: permission `change session summary`."""
        return may_restore(request)

    @admin.action(description="Re-summarise", permissions=["run"])
    def resummarise(self, request: HttpRequest, queryset: QuerySet[SessionSummary]) -> None:
        """Queue a new version of every selected summary."""

        def redo(summary: SessionSummary) -> SafeString:
            refuse_draft(summary)
            run = resummarize(summary, background=True, requested_by=request.user)
            return queued(run, summary)

        for_each(request, self.chosen(request, queryset, "session", "branch"), redo)

    @admin.action(description="Restore the messages", permissions=["restore"])
    def restore(self, request: HttpRequest, queryset: QuerySet[SessionSummary]) -> None:
        """Take every selected summary back, the newest first: others were built on older ones."""

        def take_back(summary: SessionSummary) -> SafeString:
            refuse_draft(summary)
            return taken_back(restore_summary(summary))

        rows = self.chosen(request, queryset, "branch")
        rows.sort(key=lambda summary: summary.covers_through, reverse=True)
        for_each(request, rows, take_back)

    # --- page -------------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        """Add the page that shows two versions side by side."""
        view = self.admin_site.admin_view(self.compare_view)
        address = "<uuid:object_id>/compare/<uuid:other_id>/"
        own = path(address, view, name="compaction_sessionsummary_compare")
        return [own, *super().get_urls()]

    def compare_view(self, request: HttpRequest, object_id: UUID, other_id: UUID) -> HttpResponse:
        """Show two summaries of one session side by side."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        pair = pair_of(object_id, other_id)
        if pair is None:
            raise Http404("There are no two such summaries of one session.")
        return compare_page(request, pair, self.admin_site.each_context(request))

    def links_for(self, request: HttpRequest, obj: SessionSummary) -> list[Link]:
        """Return the ways to session, run and steps, and the comparison that is asked for most."""
        links = [Link(label="Session", url=cells.change_url(Session, obj.session_id))]
        if obj.run_id:
            url = cells.list_url(CompactionStep, run__id__exact=obj.run_id)
            links += [
                Link(label="Run and its tree", url=cells.change_url(CompactionRun, obj.run_id)),
                Link(label="Steps", url=url),
            ]
        offered = default_comparison(obj)
        return [*links, offered] if offered else links

    def notices_for(self, request: HttpRequest, obj: SessionSummary) -> list[SafeString | str]:
        """Say what a fallback digest and a draft are."""
        return notices_on(obj, may_redo=may_run(request))

    def panels_for(self, request: HttpRequest, obj: SessionSummary) -> list[Panel]:
        """Return how much smaller it made the request."""
        return [ratio_panel(obj)]

    def tables_for(self, request: HttpRequest, obj: SessionSummary) -> list[Table]:
        """Return earlier and later versions, the line of continuation, and the sources."""
        return [*version_tables(obj), source_table(obj)]
