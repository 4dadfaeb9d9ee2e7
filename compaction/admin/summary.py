"""Summaries: what was made of which messages, and the way back."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp.admin import cells
from chatapp.admin.base import ReadOnlyAdmin
from chatapp.admin.filters import CreatedSince, one_row
from chatapp.admin.parts import Link, Section, Table
from chatapp.models import Session
from compaction.admin import words
from compaction.admin.acting import for_each, may_run, queued
from compaction.admin.filters import Ratio, Reason, Trigger
from compaction.admin.tables import source_table, summary_table, when
from compaction.models import CompactionStep, SessionSummary
from compaction.services.restore import restore_summary
from compaction.services.resummarize import resummarize

Status = SessionSummary.Status
ROWS_SHOWN = 20


@admin.register(SessionSummary)
class SessionSummaryAdmin(ReadOnlyAdmin):
    """One stored result of a compaction; it may be made again or taken back, never edited."""

    list_display = (
        "short_id",
        "in_session",
        "standing",
        "why",
        "sources",
        "token_change",
        "ratio",
        "was_truncated",
        "started_by",
        "model",
        "created_at",
    )
    list_select_related = ("session",)
    list_filter = (
        one_row(Session, "session"),
        CreatedSince,
        "status",
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
        "trigger",
        "message_count",
        "tokens_before",
        "tokens_after",
        "compression_ratio",
        "truncated",
        "model",
        "created_at",
        "session__title",
    )
    text_paths = ("summary_text",)
    actions = ("resummarise", "restore")
    detail_actions = ("resummarise", "restore")
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
            fields=("sources", "token_change", "ratio", "was_truncated", "summary_size", "cost"),
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
                "target_summary_tokens",
                "keep_last_n",
                "prompt_version",
                "prompt_text",
                "abridged_text",
                "metadata_json",
            ),
            optional={"abridged_text": "abridged"},
        ),
    )

    # --- actions ----------------------------------------------------------------------------------

    def has_run_permission(self, request: HttpRequest) -> bool:
        """Whether the operator may start runs."""
        return may_run(request)

    def has_restore_permission(self, request: HttpRequest) -> bool:
        """Whether the operator may take summaries back: permission `change session summary`."""
        return bool(request.user.has_perm("compaction.change_sessionsummary"))

    @admin.action(description="Re-summarise", permissions=["run"])
    def resummarise(self, request: HttpRequest, queryset: QuerySet[SessionSummary]) -> None:
        """Queue a new version of every selected summary."""

        def redo(summary: SessionSummary) -> SafeString:
            run = resummarize(summary, background=True, requested_by=request.user)
            return queued(run, summary)

        for_each(request, self.chosen(request, queryset, "session", "branch"), redo)

    @admin.action(description="Restore the messages", permissions=["restore"])
    def restore(self, request: HttpRequest, queryset: QuerySet[SessionSummary]) -> None:
        """Take every selected summary back, the newest first: others were built on older ones."""

        def take_back(summary: SessionSummary) -> SafeString:
            restored = restore_summary(summary)
            return format_html(
                "{} no longer covers its {} messages: they are sent verbatim again.",
                cells.row_link(restored.summaries[0]),
                cells.number(summary.message_count),
            )

        rows = self.chosen(request, queryset, "branch")
        rows.sort(key=lambda summary: summary.covers_through, reverse=True)
        for_each(request, rows, take_back)

    def buttons_for(self, request: HttpRequest, obj: SessionSummary) -> list[str]:
        """Only an active summary can be made again or taken back."""
        return list(self.detail_actions) if obj.status == Status.ACTIVE else []

    # --- cells ------------------------------------------------------------------------------------

    @admin.display(description="Id")
    def short_id(self, summary: SessionSummary) -> str:
        """Return the id's beginning."""
        return cells.short_id(summary.pk)

    @admin.display(description="Session")
    def in_session(self, summary: SessionSummary) -> str:
        """Return a link to the session."""
        return cells.session_link(summary.session)

    @admin.display(description="Status")
    def standing(self, summary: SessionSummary) -> str:
        """Return whether it counts."""
        return words.summary_status(summary)

    @admin.display(description="Reason")
    def why(self, summary: SessionSummary) -> str:
        """Return the exact rule in words."""
        return words.reason_words(summary.reason)

    @admin.display(description="Trigger")
    def started_by(self, summary: SessionSummary) -> str:
        """Return document 002's trigger in words."""
        return words.trigger_words(summary.trigger)

    @admin.display(description="Messages")
    def sources(self, summary: SessionSummary) -> str:
        """Return how many messages the summariser received."""
        return cells.number(summary.message_count)

    @admin.display(description="Tokens before → after")
    def token_change(self, summary: SessionSummary) -> str:
        """Return the next request's size before and after."""
        return words.before_after(summary.tokens_before, summary.tokens_after)

    @admin.display(description="Ratio", ordering="compression_ratio")
    def ratio(self, summary: SessionSummary) -> str:
        """Return the summary's size as a part of its input."""
        return words.percent(summary.compression_ratio)

    @admin.display(description="Truncated")
    def was_truncated(self, summary: SessionSummary) -> str:
        """Return whether text had to be left out of it."""
        return words.truncated_words(summary.truncated)

    @admin.display(description="Summary")
    def summary_size(self, summary: SessionSummary) -> str:
        """Return tokens of the text and of what it was made from."""
        return f"{summary.summary_tokens:,} tokens, from about {summary.approx_tokens:,}"

    @admin.display(description="Run")
    def from_run(self, summary: SessionSummary) -> str:
        """Return a link to the run that made it."""
        return cells.row_link(summary.run)

    @admin.display(description="Text")
    def text(self, summary: SessionSummary) -> str:
        """Return the text that is sent."""
        return cells.stored_text(summary.summary_text)

    @admin.display(description="Files")
    def files(self, summary: SessionSummary) -> str:
        """Return the files that tool calls read and modified."""
        lines = [f"read      {name}" for name in summary.files_read]
        lines += [f"modified  {name}" for name in summary.files_modified]
        return cells.stored_text("\n".join(lines))

    @admin.display(description="Positions")
    def range(self, summary: SessionSummary) -> str:
        """Return the positions from and through."""
        return f"{cells.place(summary.covers_from)} – {cells.place(summary.covers_through)}"

    @admin.display(description="Written")
    def times(self, summary: SessionSummary) -> str:
        """Return when the first and the last message were written."""
        first, last = summary.first_message_created_at, summary.last_message_created_at
        return f"{when(first)} – {when(last)}"

    @admin.display(description="Continues")
    def continues(self, summary: SessionSummary) -> str:
        """Return the summary whose text was an input of this one."""
        return cells.row_link(summary.previous)

    @admin.display(description="Replaces")
    def replaces(self, summary: SessionSummary) -> str:
        """Return the older version."""
        return cells.row_link(summary.supersedes)

    @admin.display(description="Instructions")
    def instructions_text(self, summary: SessionSummary) -> str:
        """Return what the operator asked for."""
        return cells.stored_text(summary.instructions)

    @admin.display(description="Prompt")
    def prompt_text(self, summary: SessionSummary) -> str:
        """Return what the summariser was asked."""
        return cells.stored_text(summary.summary_prompt)

    @admin.display(description="Abridged history")
    def abridged_text(self, summary: SessionSummary) -> str:
        """Return the abridged history."""
        return cells.stored_text(summary.abridged)

    @admin.display(description="Metadata")
    def metadata_json(self, summary: SessionSummary) -> str:
        """Return document 002's metadata."""
        return cells.stored_json(summary.metadata)

    # --- page -------------------------------------------------------------------------------------

    def links_for(self, request: HttpRequest, obj: SessionSummary) -> list[Link]:
        """Return the ways to the session and to the model calls."""
        links = [Link(label="Session", url=cells.change_url(Session, obj.session_id))]
        if obj.run_id:
            url = cells.list_url(CompactionStep, run__id__exact=obj.run_id)
            links.append(Link(label="Steps", url=url))
        return links

    def tables_for(self, request: HttpRequest, obj: SessionSummary) -> list[Table]:
        """Return newer versions, summaries that continue this one, and the sources."""
        related = (
            ("Newer versions", obj.newer_versions.order_by("created_at")),
            ("Continued by", obj.updates.order_by("created_at")),
        )
        tables = [summary_table(title, rows[:ROWS_SHOWN]) for title, rows in related]
        return [*(table for table in tables if table.rows), source_table(obj)]
