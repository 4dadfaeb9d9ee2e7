"""What was counted and tried: totals of runs, figures by day, and what turns tried after refusals.

The front page, /metrics and a session's timeline tell of these rows; here they stand as stored.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import F, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.columns import IN_SESSION, column
from chatapp.admin.toolkit.lists import one_row
from chatapp.admin.toolkit.model_admin import ReadOnlyAdmin, WideList
from chatapp.admin.toolkit.page_parts import Link, Section
from chatapp.formatting import when
from chatapp.models import Session
from compaction.engine.policy.reasons import reason_label
from compaction.models import CompactionRun, DailyFigures, RecoveryStep, RunTotals
from compaction.statistics.totals import summed_rows

_TONES = {
    RecoveryStep.Outcome.SMALLER: "good",
    RecoveryStep.Outcome.NO_HELP: "busy",
    RecoveryStep.Outcome.FAILED: "bad",
}


class CountedRows(ReadOnlyAdmin):
    """Rows that nobody searches: there are few, or their order finds them."""

    sortable_by = ()
    id_paths = ()

    def get_search_fields(self, request: HttpRequest) -> tuple[str, ...]:
        """Offer no search."""
        return ()

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Return all rows, whatever an address asks for."""
        return queryset, False


@admin.register(RunTotals)
class RunTotalsAdmin(CountedRows):
    """How many runs ended in one way for one reason: what /metrics reads."""

    list_display = ("status", "reason_shown", "mode", "runs_shown", "seconds_shown", "saved_shown")
    list_filter = ("status", "mode")
    ordering = ()
    list_only = ("status", "mode")
    sections = (
        Section(title=None, fields=("status", "reason_shown", "mode")),
        Section(title="Counted", fields=("runs_shown", "seconds_shown", "saved_shown")),
    )

    reason_shown = column("Reason", "reason", reason_label)
    runs_shown = column("Runs", "all_runs", formatting.number, reads=())
    seconds_shown = column("Seconds", "all_seconds", formatting.duration, reads=())
    saved_shown = column("Tokens saved", "all_tokens_saved", formatting.number, reads=())

    def get_queryset(self, request: HttpRequest) -> QuerySet[RunTotals]:
        """Return one row of each kind with the sums of all that share its counts, largest first."""
        return summed_rows(super().get_queryset(request)).order_by(F("all_runs").desc(), "pk")

    def links_for(self, request: HttpRequest, obj: RunTotals) -> list[Link]:
        """Return the way to the runs that were counted."""
        return [Link.to_list("Runs", CompactionRun, status=obj.status, reason=obj.reason)]


@admin.register(DailyFigures)
class DailyFiguresAdmin(CountedRows, WideList):
    """One day of UTC, rolled up: what the front page draws."""

    list_display = (
        "day",
        "succeeded",
        "skipped",
        "failed",
        "saved_shown",
        "cost_shown",
        "sessions_shown",
        "sent_shown",
        "refreshed_shown",
    )
    list_display_links = ("day",)
    ordering = ("-day",)
    sections = (
        Section(title=None, fields=("day", "refreshed_shown")),
        Section(
            title="Runs",
            fields=("succeeded", "skipped", "failed", "cancelled", "unfinished"),
        ),
        Section(title="What they did", fields=("saved_shown", "model_calls", "cost_shown")),
        Section(
            title="As of the last look",
            fields=("sessions_shown", "messages_shown", "stored_shown", "sent_shown"),
        ),
        Section(title="As stored", fields=("ratios_json", "scores_json")),
    )

    saved_shown = column("Tokens saved", "tokens_saved", formatting.number)
    cost_shown = column("Cost", "cost", formatting.money)
    sessions_shown = column("Sessions", "sessions", formatting.number)
    messages_shown = column("Messages", "messages", formatting.number)
    stored_shown = column("Tokens stored", "tokens_stored", formatting.number)
    sent_shown = column("Tokens sent", "tokens_sent", formatting.number)
    refreshed_shown = column("Worked out", "refreshed_at", when)
    ratios_json = column("Summaries by ratio", "ratios", html.stored_json)
    scores_json = column("Scores", "scores", html.stored_json)

    def links_for(self, request: HttpRequest, obj: DailyFigures) -> list[Link]:
        """Return the way to the runs of the day."""
        return [Link.to_list("Runs of this day", CompactionRun, day=obj.day.isoformat())]


@admin.register(RecoveryStep)
class RecoveryStepAdmin(WideList):
    """One thing that a turn tried after a refusal as too large."""

    list_display = (
        "number",
        "in_session",
        "action_shown",
        "outcome_shown",
        "change",
        "text_start",
        "created_at",
    )
    list_select_related = ("session",)
    list_filter = (one_row(Session, "session"), "action", "outcome")
    # Keys count up, and there is an index for no other order of all of them.
    ordering = ("-id",)
    sortable_by = ()
    id_paths = ("session",)
    list_only = ("action", "outcome", "tokens_before", "tokens_after", "text")
    sections = (
        Section(
            title=None,
            fields=("in_session", "branch", "action_shown", "outcome_shown", "text_shown"),
        ),
        Section(
            title="The refusal",
            fields=("error_kind", "error_shown", "observed", "allowed"),
            optional={"observed": "observed", "allowed": "allowed"},
        ),
        Section(
            title="What changed",
            fields=("change", "groups", "results_cut", "characters_cut", "run", "replay"),
            optional={"groups": "groups", "run": "run_id", "replay": "replay_id"},
        ),
        Section(title="When", fields=("created_at", "turn", "order")),
    )

    number = column("No.", "pk", str)
    in_session = IN_SESSION
    action_shown = column("Tried", lambda step: str(step.get_action_display()))
    change = column(
        "Request, tokens before → after",
        lambda step: formatting.before_after(step.tokens_before, step.tokens_after),
    )
    text_start = column("In words", "text", html.told_text, is_text=True)
    text_shown = column("In words", "text", html.told_text, is_text=True)
    error_shown = column("The server said", "error", html.stored_text)
    turn = column("Turn", "recovery", html.short_id)

    @admin.display(description="Outcome")
    def outcome_shown(self, step: RecoveryStep) -> SafeString:
        """Return whether the request became smaller, as a badge."""
        tone = _TONES.get(RecoveryStep.Outcome(step.outcome), "")
        return html.badge(step.get_outcome_display(), tone)

    def links_for(self, request: HttpRequest, obj: Any) -> list[Link]:
        """Return the ways to the session and to all of its steps."""
        return [
            Link.to("Session", Session, obj.session_id),
            Link.to_list(
                "All steps of the session", RecoveryStep, session__id__exact=obj.session_id
            ),
        ]
