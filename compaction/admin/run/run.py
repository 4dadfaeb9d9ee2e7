"""Runs: every attempt, why it ended as it did, and what can be done about it."""

from __future__ import annotations

from dataclasses import replace

from django.contrib import admin
from django.db.models import QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin import cells
from chatapp.admin.filters import CreatedSince, Day, one_row
from chatapp.admin.parts import Link, Panel, Section, Table
from chatapp.admin.wide_list import WideList
from chatapp.models import Session
from compaction import vocabulary
from compaction.admin import badges
from compaction.admin.acting import for_each, may_run, queued
from compaction.admin.filters import Reason, RunStatus, Trigger
from compaction.admin.ladder.panel import ladder_panels
from compaction.admin.run.cancelled import cancelled
from compaction.admin.run.explained import explained_panel, offers_retry
from compaction.admin.run.sums import has_result, sums_of
from compaction.admin.run.tree import tree_panel
from compaction.admin.run.waiting import waiting_panel
from compaction.admin.tables import step_table, summary_table
from compaction.models import CompactionRun, CompactionStep
from compaction.runs.lifecycle import retry_run

SUMMARIES_SHOWN = 20
# The list has room for so much of an error; the run's page has all of it.
ERROR_CHARS = 60
# What only a result has: without one it would be false or a dash.
OF_RESULTS = ("token_change", "ratio_shown", "chunk_count", "was_truncated")


@admin.register(CompactionRun)
class CompactionRunAdmin(WideList):
    """One attempt to compact a branch: it may be cancelled or run again."""

    list_display = (
        "short_id",
        "created_at",
        "in_session",
        "standing",
        "why",
        "model_calls",
        "token_change",
        "took",
        "paid",
        "error_start",
    )
    list_select_related = ("session",)
    list_filter = (
        one_row(Session, "session"),
        CreatedSince,
        Day,
        RunStatus,
        Trigger,
        Reason,
        "mode",
        "truncated",
    )
    list_only = (
        "status",
        "error_code",
        "reason",
        "model_calls",
        "tokens_before",
        "tokens_after",
        "cost",
        "started_at",
        "waits_until",
        "finished_at",
        "created_at",
        "session__title",
    )
    list_previews = {"error_begin": Left("error", ERROR_CHARS)}
    actions = ("retry", "cancel")
    detail_actions = ("retry", "cancel")
    sections = (
        Section(
            title=None,
            fields=("id", "in_session", "branch", "standing", "error_code"),
            optional={"error_code": "error_code"},
        ),
        Section(
            title="Why",
            fields=(
                "why",
                "started_by",
                "mode",
                "requested_by",
                "profile",
                "kept_verbatim",
                "replaces",
                "instructions_text",
            ),
            optional={
                "requested_by": "requested_by_id",
                "replaces": "replaces_id",
                "instructions_text": "instructions",
            },
        ),
        Section(
            title="Work",
            fields=(
                "model_calls",
                "token_change",
                "tokens_in",
                "tokens_out",
                "ratio_shown",
                "chunk_count",
                "depth",
                "was_truncated",
                "spent_shown",
                "cost_shown",
            ),
        ),
        Section(
            title="Times",
            fields=(
                "created_at",
                "waits_until",
                "started_at",
                "finished_at",
                "took",
                "restarts",
                "worker",
            ),
            optional={"waits_until": "waits_until"},
        ),
    )

    class Media:
        css = {"all": ["compaction/run.css", "compaction/ladder.css"]}

    # --- actions ----------------------------------------------------------------------------------

    def has_run_permission(self, request: HttpRequest) -> bool:
        """Whether the operator may start runs."""
        return may_run(request)

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Whether the operator may cancel runs: permission `change compaction run`."""
        return bool(request.user.has_perm("compaction.change_compactionrun"))

    @admin.action(description="Run again", permissions=["run"])
    def retry(self, request: HttpRequest, queryset: QuerySet[CompactionRun]) -> None:
        """Queue a new run for every selected one that came to nothing."""

        def again(run: CompactionRun) -> SafeString:
            return queued(retry_run(run, requested_by=request.user), run)

        rows = self.chosen(request, queryset, "session", "branch", "profile", "replaces")
        for_each(request, rows, again)

    @admin.action(description="Cancel", permissions=["cancel"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[CompactionRun]) -> None:
        """Cancel every selected run that has not ended."""

        for_each(request, self.chosen(request, queryset), cancelled)

    def buttons_for(self, request: HttpRequest, obj: CompactionRun) -> list[str]:
        """An unfinished run can be cancelled; the explanation of a failed one has "Run again"."""
        if not obj.is_finished:
            return ["cancel"]
        return [] if has_result(obj) or offers_retry(obj) else ["retry"]

    # --- cells ------------------------------------------------------------------------------------

    @admin.display(description="Id")
    def short_id(self, run: CompactionRun) -> str:
        """Return the id's beginning."""
        return formatting.short_id(run.pk)

    @admin.display(description="Session")
    def in_session(self, run: CompactionRun) -> str:
        """Return a link to the session."""
        return cells.session_link(run.session)

    @admin.display(description="Status")
    def standing(self, run: CompactionRun) -> str:
        """Return how it stands; Interrupted is told apart from Failed."""
        return badges.run_status(run)

    @admin.display(description="Reason")
    def why(self, run: CompactionRun) -> str:
        """Return the exact rule in words."""
        return vocabulary.reason_words(run.reason)

    @admin.display(description="Started by")
    def started_by(self, run: CompactionRun) -> str:
        """Return who or what started it: document 002's trigger in words."""
        return vocabulary.trigger_words(run.trigger)

    @admin.display(description="Tokens before → after")
    def token_change(self, run: CompactionRun) -> str:
        """Return the next request's size before and after."""
        return formatting.before_after(run.tokens_before, run.tokens_after)

    @admin.display(description="Truncated")
    def was_truncated(self, run: CompactionRun) -> str:
        """Return whether text had to be left out."""
        return badges.truncated_words(run.truncated)

    @admin.display(description="Took")
    def took(self, run: CompactionRun) -> str:
        """Return how long it worked."""
        return vocabulary.seconds(run)

    @admin.display(description="Error")
    def error_start(self, run: CompactionRun) -> str:
        """Return the beginning of the error's sentence."""
        begin = getattr(run, "error_begin", "")
        return cells.preview(begin, cut_at=ERROR_CHARS)

    @admin.display(description="Instructions")
    def instructions_text(self, run: CompactionRun) -> str:
        """Return what the operator asked for."""
        return cells.stored_text(run.instructions)

    @admin.display(description="Cost")
    def paid(self, run: CompactionRun) -> str:
        """Return the cost of a result; what failed runs cost stands on their pages."""
        return formatting.money(run.cost)

    @admin.display(description="Messages kept verbatim")
    def kept_verbatim(self, run: CompactionRun) -> str:
        """Return how many of the newest were asked to stay; otherwise the profile says."""
        return (
            "as the profile says" if run.keep_last_n is None else formatting.number(run.keep_last_n)
        )

    @admin.display(description="Input tokens")
    def tokens_in(self, run: CompactionRun) -> str:
        """Return the summary's input; without a result, what its steps were given."""
        return formatting.number(sums_of(run).input_tokens)

    @admin.display(description="Output tokens")
    def tokens_out(self, run: CompactionRun) -> str:
        """Return the summary's size; without a result, what came back to its steps."""
        return formatting.number(sums_of(run).output_tokens)

    @admin.display(description="Max depth")
    def depth(self, run: CompactionRun) -> str:
        """Return how often an input was halved at most."""
        return formatting.number(sums_of(run).max_depth)

    @admin.display(description="Cost")
    def cost_shown(self, run: CompactionRun) -> str:
        """Return what its calls cost."""
        return formatting.money(sums_of(run).cost)

    @admin.display(description="Tokens spent")
    def spent_shown(self, run: CompactionRun) -> str:
        """Return the tokens in and out of all its model calls: what a budget of an hour limits."""
        return f"{run.spent_tokens:,} in and out of a model"

    @admin.display(description="Ratio")
    def ratio_shown(self, run: CompactionRun) -> str:
        """Return the summary's size as a part of its input."""
        return formatting.percent(run.ratio)

    # --- page -------------------------------------------------------------------------------------

    def get_sections(self, request: HttpRequest, obj: CompactionRun) -> tuple[Section, ...]:
        """Leave out what a run without a result cannot have."""
        if obj is None or has_result(obj):
            return self.sections
        return tuple(
            replace(each, fields=tuple(name for name in each.fields if name not in OF_RESULTS))
            for each in self.sections
        )

    def links_for(self, request: HttpRequest, obj: CompactionRun) -> list[Link]:
        """Return the ways to the session and to all steps."""
        return [
            Link(label="Session", url=cells.change_url(Session, obj.session_id)),
            Link(label="Steps", url=cells.list_url(CompactionStep, run__id__exact=obj.pk)),
        ]

    def panels_for(self, request: HttpRequest, obj: CompactionRun) -> list[Panel]:
        """Return what a run waits for or ended with, its recovery, and the tree of its steps."""
        said = (waiting_panel(request, obj), explained_panel(request, obj))
        found = (*said, *ladder_panels(obj), tree_panel(obj))
        return [panel for panel in found if panel is not None]

    def tables_for(self, request: HttpRequest, obj: CompactionRun) -> list[Table]:
        """Return the summary it made and its steps."""
        made = summary_table("Summary", obj.summaries.order_by("created_at")[:SUMMARIES_SHOWN])
        return [*([made] if made.rows else []), step_table(obj)]
