"""Runs: every attempt, what it waits for, why it ended as it did, and what can be done about it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from django.contrib import admin
from django.db.models import Max, QuerySet, Sum
from django.db.models.functions import Left
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.columns import IN_SESSION, SHORT_ID, column, person, preview
from chatapp.admin.toolkit.lists import CREATED_SINCE, Day, one_row
from chatapp.admin.toolkit.model_admin import WideList
from chatapp.admin.toolkit.page_parts import Link, Panel, Section, Table
from chatapp.admin.toolkit.permissions import TEXTS_HIDDEN, holds, may_run, may_see_texts
from chatapp.formatting import when
from chatapp.models import Session
from compaction import vocabulary
from compaction.admin import lists
from compaction.admin.actions import cancel_and_tell, for_each, queued
from compaction.admin.breakers import OPEN
from compaction.admin.lists import (
    BY_REASON,
    BY_RUN_STATUS,
    BY_TRIGGER,
    LONG_SUMMARY,
    step_table,
    summary_table,
)
from compaction.admin.recovery_drawing import recovery_panels
from compaction.admin.run_tree import tree_panel
from compaction.limits.circuit_breaker import BREAKER_OPEN
from compaction.models import CompactionRun, CompactionState, CompactionStep, ModelBreaker
from compaction.runs.lifecycle import retry_run
from compaction.vocabulary import explanation_of

SUMMARIES_SHOWN = 20
# The list has room for so much of an error; the run's page has all of it.
ERROR_CHARS = 60
# What only a result has: without one it would be false or a dash.
OF_RESULTS = ("token_change", "ratio_shown", "chunk_count", "was_truncated")

PLAIN_CHARS = 600
_NOTHING_LOST = "Nothing is lost: the messages are all still there."
_REMEDIES: dict[str, str] = {
    BREAKER_OPEN: "Mend the model's server or key. “Close the breaker” on its page lets the calls "
    "out again, and the next sweep gives this run to a worker.",
}
_REMEDY = "Nothing has to be done. If it is not wanted any more, cancel it."


@admin.register(CompactionRun)
class CompactionRunAdmin(WideList):
    """One attempt to compact a branch: it may be cancelled or run again."""

    list_display = (
        "short_id",
        "created_at",
        "in_session",
        "status_shown",
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
        CREATED_SINCE,
        Day,
        BY_RUN_STATUS,
        BY_TRIGGER,
        BY_REASON,
        "mode",
        "truncated",
    )
    list_only = (
        "status",
        "error_code",
        "started_at",
        "waits_until",
        "finished_at",
    )
    list_previews = {"error_begin": Left("error", ERROR_CHARS)}
    actions = ("retry", "cancel")
    detail_actions = ("retry", "cancel")
    sections = (
        Section(
            title=None,
            fields=("short_id", "in_session", "branch", "status_shown", "error_code"),
            optional={"error_code": "error_code"},
        ),
        Section(
            title="Why",
            fields=(
                "why",
                "started_by",
                "mode",
                "requested_by_shown",
                "profile",
                "kept_verbatim",
                "replaces",
                "switch_to",
                "new_label",
                "instructions_text",
                "carried_text",
                "replaces_instructions",
            ),
            optional={
                "switch_to": "switch_to_id",
                "new_label": "switch_label",
                "replaces_instructions": "replaces_instructions",
                "requested_by_shown": "requested_by_id",
                "replaces": "replaces_id",
                "instructions_text": "instructions",
                "carried_text": "carried_instructions",
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
                "from_cache",
                "cost_shown",
            ),
            optional={"from_cache": "prompt_tokens"},
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
                "worker_id",
            ),
            optional={"waits_until": "waits_until"},
        ),
    )

    class Media:
        css = {"all": ["compaction/run.css", "compaction/recovery.css"]}

    # --- actions ----------------------------------------------------------------------------------

    def has_run_permission(self, request: HttpRequest) -> bool:
        """Whether the operator may start runs."""
        return may_run(request)

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Whether the operator may cancel runs: permission `change compaction run`."""
        return holds(request, "compaction.change_compactionrun")

    @admin.action(description="Run again", permissions=["run"])
    def retry(self, request: HttpRequest, queryset: QuerySet[CompactionRun]) -> None:
        """Queue a new run for every selected one that came to nothing."""

        def again(run: CompactionRun) -> SafeString:
            return queued(retry_run(run, requested_by=request.user))

        rows = self.chosen(request, queryset, "session", "branch", "profile", "replaces")
        for_each(request, rows, again, names_rows=True)

    @admin.action(description="Cancel", permissions=["cancel"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[CompactionRun]) -> None:
        """Cancel every selected run that has not ended."""

        for_each(request, self.chosen(request, queryset), cancel_and_tell)

    def buttons_for(self, request: HttpRequest, obj: CompactionRun) -> list[str]:
        """An unfinished run can be cancelled; the explanation of a failed one has "Run again"."""
        if not obj.is_finished:
            return ["cancel"]
        return [] if has_result(obj) or offers_retry(obj) else ["retry"]

    # --- columns and fields ---------------------------------------------------------------------

    short_id = SHORT_ID
    in_session = IN_SESSION
    status_shown = column("Status", lists.run_status)
    why = lists.REASON
    started_by = lists.STARTED_BY
    token_change = lists.TOKEN_CHANGE
    was_truncated = lists.WAS_TRUNCATED
    took = column("Took", vocabulary.seconds)

    error_start = preview("Error", "error_begin", cut_at=ERROR_CHARS)
    instructions_text = lists.INSTRUCTIONS
    requested_by_shown = person("Requested by", "requested_by")
    carried_text = column("Carried on", "carried_instructions", html.stored_text)
    new_label = column("New name of the branch", "switch_label", html.stored_text)
    paid = lists.COST
    kept_verbatim = column(
        "Messages kept verbatim",
        lambda run: (
            "as the profile says" if run.keep_last_n is None else formatting.number(run.keep_last_n)
        ),
    )
    tokens_in = column("Input tokens", lambda run: formatting.number(sums_of(run).input_tokens))
    tokens_out = column("Output tokens", lambda run: formatting.number(sums_of(run).output_tokens))
    depth = column("Max depth", lambda run: formatting.number(sums_of(run).max_depth))
    cost_shown = column("Cost", lambda run: formatting.money(sums_of(run).cost))
    spent_shown = column("Tokens spent", lambda run: f"{run.spent_tokens:,} in and out of a model")
    from_cache = column(
        "From a prompt cache", lambda run: lists.from_cache(run.cached_tokens, run.prompt_tokens)
    )
    ratio_shown = column("Ratio", "ratio", formatting.percent)
    worker_id = column("Worker", "worker", html.short_id)

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
            Link.to("Session", Session, obj.session_id),
            Link.to_list("Steps", CompactionStep, run__id__exact=obj.pk),
        ]

    def live_words(self, request: HttpRequest, obj: CompactionRun) -> str:
        """Say how far a run is that has not ended."""
        if obj.is_finished:
            return ""
        calls = formatting.plural(obj.model_calls, "model call")
        return f"{vocabulary.status_words(obj)}: {calls} so far."

    def panels_for(self, request: HttpRequest, obj: CompactionRun) -> list[Panel]:
        """Return what it waits for or ended with, its recovery, and the tree of its steps."""
        said = (waiting_panel(request, obj), explained_panel(request, obj))
        found = (*said, *recovery_panels(request, obj), tree_panel(obj))
        return [panel for panel in found if panel is not None]

    def tables_for(self, request: HttpRequest, obj: CompactionRun) -> list[Table]:
        """Return the summary it made and its steps."""
        rows = obj.summaries.order_by("created_at").defer(*LONG_SUMMARY)
        made = summary_table("Summary", rows[:SUMMARIES_SHOWN])
        return [*([made] if made.rows else []), step_table(obj)]


def explained_panel(request: HttpRequest, run: CompactionRun) -> Panel | None:
    """Return the panel; None for a run that succeeded or has not ended."""
    words = explanation_of(run)
    if words is None:
        return None
    body = render_to_string(
        "admin/compaction/explained.html",
        {
            "run": run,
            "error": _sentence(run.error)
            if may_see_texts(request) or not run.error
            else TEXTS_HIDDEN,
            "words": words,
            "ways": [_way(name, run) for name in words.ways if name != "retry"],
            "may_retry": offers_retry(run) and may_run(request),
            "list_address": html.list_url(CompactionRun),
            "original": run,
        },
        request=request,
    )
    return Panel(title=words.title, body=body)


def offers_retry(run: CompactionRun) -> bool:
    """Whether the explanation has "Run again": then the page's head need not."""
    words = explanation_of(run)
    return words is not None and "retry" in words.ways


def _sentence(error: str) -> str:
    """Return the stored sentence; a server's long text gets a frame of its own."""
    return error if len(error) <= PLAIN_CHARS else html.stored_text(error)


def _way(name: str, run: CompactionRun) -> Link:
    if name == "profile":
        return Link.to(f"Profile {run.profile}", type(run.profile), run.profile_id)
    if name == "state":
        return Link.to("State of the branch", CompactionState, run.branch_id)
    if name == "session":
        return Link.to("Session", Session, run.session_id)
    return Link.to_list("Steps", CompactionStep, run__id__exact=run.pk)


def waiting_panel(request: HttpRequest, run: CompactionRun) -> Panel | None:
    """Return the panel; None for a run that does not wait for a time, or is not queued."""
    if run.status != CompactionRun.Status.QUEUED or run.waits_until is None:
        return None
    body = render_to_string(
        "admin/compaction/explained.html",
        {
            "run": run,
            "error": run.error if run.error and may_see_texts(request) else "It was put off.",
            "words": {
                "means": f"{_goes_on(run.waits_until)} {_NOTHING_LOST}",
                "remedy": _REMEDIES.get(run.error_code, _REMEDY),
            },
            "ways": _ways(run),
        },
        request=request,
    )
    return Panel(title="It waits", body=body)


def _goes_on(until: datetime) -> str:
    if until <= timezone.now():
        return "Its time has come: the next sweep, once a minute, gives it to a worker."
    return f"It goes on by itself after {when(until)}: the sweep, once a minute, sees to that."


def _ways(run: CompactionRun) -> list[Link]:
    ways = [
        Link.to("Session", Session, run.session_id),
        Link.to("State of the branch", CompactionState, run.branch_id),
    ]
    if run.error_code != BREAKER_OPEN:
        return ways
    return [Link.to_list("Open breakers", ModelBreaker, state=OPEN), *ways]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSums:
    """The figures of a run's calls."""

    input_tokens: int
    output_tokens: int
    max_depth: int
    cost: float


def has_result(run: CompactionRun) -> bool:
    """Whether the run's own columns were written."""
    return run.status == CompactionRun.Status.SUCCEEDED


def sums_of(run: CompactionRun) -> RunSums:
    """Return the figures of one run's page; for a run without a result, one query a row object."""
    if has_result(run):
        return RunSums(
            input_tokens=run.input_tokens,
            output_tokens=run.output_tokens,
            max_depth=run.max_depth,
            cost=run.cost,
        )
    found: RunSums | None = getattr(run, "_sums_of_steps", None)
    if found is None:
        found = _of_steps(run)
        run._sums_of_steps = found  # type: ignore[attr-defined]
    return found


def _of_steps(run: CompactionRun) -> RunSums:
    sums = run.steps.aggregate(
        tokens_in=Sum("input_tokens"),
        tokens_out=Sum("output_tokens"),
        deepest=Max("depth"),
        paid=Sum("cost"),
    )
    return RunSums(
        input_tokens=sums["tokens_in"] or 0,
        output_tokens=sums["tokens_out"] or 0,
        max_depth=sums["deepest"] or 0,
        cost=sums["paid"] or 0.0,
    )
