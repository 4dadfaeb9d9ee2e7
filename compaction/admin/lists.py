"""What several pages list: filters, badges, and tables of runs, summaries, sources and steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.columns import Cells, column, table_of, text_cell
from chatapp.admin.toolkit.lists import Condition, by_condition, by_value
from chatapp.admin.toolkit.page_parts import Link, Table
from chatapp.database import database_now
from chatapp.formatting import clock
from compaction import vocabulary
from compaction.conf import compaction_settings
from compaction.engine.policy.reasons import Reason, reason_label
from compaction.engine.registry import TRIGGERS
from compaction.models import (
    CompactionRun,
    CompactionStep,
    SessionSummary,
    SessionSummaryMessage,
)
from compaction.statistics.ratios import RATIO_BINS, bin_q
from compaction.statistics.scores import needs_look_q
from compaction.vocabulary import (
    INTERRUPTED,
    SUMMARY_STATUSES,
    status_words,
    summary_words,
    waits,
)

# Groups of states, as the front page counts them.
FAILURES = "failures"
UNFINISHED = "unfinished"
# Queued runs that wait for something else than a worker.
WAITING = "waiting"
BACKING_OFF = "backing-off"
COMPACTING = "compacting"
# Summaries that an operator should look at.
LOOK = "look"
UNFINISHED_STATUSES = (CompactionRun.Status.QUEUED, CompactionRun.Status.RUNNING)

EDITED_BADGE = html.badge("Written by a person")
DIGEST_BADGE = html.badge("Fallback digest", "busy")
_TONES = {
    "queued": "busy",
    "running": "busy",
    "succeeded": "good",
    "failed": "bad",
    "active": "good",
}
SOURCES_SHOWN = 50
STEPS_SHOWN = 200
DEEPEST_INDENT = 8
STEP_COLUMNS = (
    "run",
    "parent",
    "order",
    "kind",
    "depth",
    "message_count",
    "input_tokens",
    "output_tokens",
    "outcome",
    "duration_ms",
    "error",
    "model",
    "first_message__position",
    "last_message__position",
)
LONG_SUMMARY = ("summary_text", "summary_prompt", "abridged", "metadata", "instructions")


def bin_value(index: int) -> str:
    """Return what the address says for one step of the distribution: 15-20, in per cent."""
    width = 100 // RATIO_BINS
    upper = str((index + 1) * width) if index < RATIO_BINS - 1 else ""
    return f"{index * width}-{upper}"


def bin_words(index: int) -> str:
    """Return one step of the distribution in words."""
    lower, upper = bin_value(index).split("-")
    return f"{lower} % to {upper} %" if upper else f"{lower} % and more"


def _status_words() -> list[tuple[str, str]]:
    choices = SessionSummary.Status.choices
    return [(value, SUMMARY_STATUSES.get(value, words)) for value, words in choices]


def _with_status(status: str) -> Condition:
    return lambda: Q(status=status)


FAILED, QUEUED = CompactionRun.Status.FAILED, CompactionRun.Status.QUEUED
BY_TRIGGER = by_value("started by", "trigger", lambda: CompactionRun.Trigger.choices)


def _reasons() -> list[tuple[str, str]]:
    """Return every reason with its words: ours, and those of plug-ins' triggers."""
    found = {str(trigger.reason): reason_label(trigger.reason) for trigger in TRIGGERS.all()}
    return list(({reason.value: reason.label for reason in Reason} | found).items())


BY_REASON = by_value("reason", "reason", _reasons)
BY_SUMMARY_STATUS = by_value("status", "status", _status_words, parameter="status__exact")
BY_RUN_STATUS = by_condition(
    "status",
    "status",
    {
        **{value: (words, _with_status(value)) for value, words in CompactionRun.Status.choices},
        # A failed run whose worker stopped is told apart.
        FAILED: (FAILED.label, lambda: Q(status=FAILED) & ~Q(error_code=INTERRUPTED)),
        INTERRUPTED: ("Interrupted", lambda: Q(status=FAILED, error_code=INTERRUPTED)),
        FAILURES: ("Failed or interrupted", _with_status(FAILED)),
        UNFINISHED: ("Queued or running", lambda: Q(status__in=UNFINISHED_STATUSES)),
        WAITING: (
            "Queued, and waits for a time",
            lambda: Q(status=QUEUED, waits_until__gt=database_now()),
        ),
    },
)
BY_ACTIVITY = by_condition(
    "activity",
    "activity",
    {
        COMPACTING: (
            "Compacting",
            lambda: Q(lease_owner__isnull=False, lease_expires_at__gt=database_now()),
        ),
        BACKING_OFF: ("Backs off", lambda: Q(backoff_until__gt=database_now())),
    },
)
"""What a branch is doing now: a worker holds it, or automatic runs wait after failures."""
BY_SCORE = by_condition(
    "score",
    "score",
    {
        LOOK: ("Low, sent, and not judged", needs_look_q),
        "low": ("Low", lambda: Q(quality__score__lt=compaction_settings.low_score)),
        "none": ("Not measured", lambda: Q(quality__isnull=True)),
        "good": ("Judged good", lambda: Q(quality__verdict="good")),
        "bad": ("Judged bad", lambda: Q(quality__verdict="bad")),
    },
)
"""How much a summary still knows, and what operators think of it."""


class Ratio(admin.SimpleListFilter):
    """The summary's size as a part of its input, in ranges of the index `summary_ratio`.

    A step of the distribution on the front page is shown only while it is in force.
    """

    title = "compression ratio"
    parameter_name = "ratio"
    bins = {bin_value(index): index for index in range(RATIO_BINS)}
    ranges = {"10": (0.0, 0.1), "25": (0.1, 0.25), "50": (0.25, 0.5), "more": (0.5, None)}

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        """Return the ranges."""
        wanted = request.GET.get(self.parameter_name, "")
        return [
            ("10", "Below 10 %"),
            ("25", "10 % to 25 %"),
            ("50", "25 % to 50 %"),
            ("more", "50 % and more"),
            *([(wanted, bin_words(self.bins[wanted]))] if wanted in self.bins else []),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep one range's rows: from its lower end up to, not including, its upper."""
        if self.value() in self.bins:
            return queryset.filter(bin_q(self.bins[str(self.value())]))
        if self.value() not in self.ranges:
            return queryset
        low, high = self.ranges[str(self.value())]
        kept = queryset.filter(compression_ratio__gte=low)
        return kept if high is None else kept.filter(compression_ratio__lt=high)


def truncated_words(truncated: bool) -> SafeString | str:
    """Return whether text had to be left out; a stock icon would show the good case in red."""
    return html.badge("Truncated", "bad") if truncated else "no"


def run_status(run: CompactionRun) -> SafeString:
    """Return how a run stands, as a badge; one that waits says until when."""
    if waits(run):
        until = clock(run.waits_until)
        return format_html("{} until {}", html.badge("Waiting", "busy"), until)
    return html.badge(status_words(run), status_tone(run))


def status_tone(run: CompactionRun) -> str:
    """Return the tone of a run's badge."""
    return _TONES.get(run.status, "")


def summary_status(summary: SessionSummary) -> SafeString:
    """Return whether a summary counts, and whether a person wrote it or it is a fallback digest."""
    badge = html.badge(summary_words(summary), _TONES.get(summary.status, ""))
    if summary.is_edited:
        return format_html("{} {}", badge, EDITED_BADGE)
    return format_html("{} {}", badge, DIGEST_BADGE) if summary.is_digest else badge


def token_change(row: CompactionRun | SessionSummary) -> str:
    """Return the next request's tokens before and after."""
    return formatting.before_after(row.tokens_before, row.tokens_after)


def from_cache(cached: int, prompt: int) -> str:
    """Return how much of a prompt of so many tokens its server had in a cache."""
    share = formatting.percent(cached / prompt if prompt else None)
    return f"{cached:,} of {prompt:,} prompt tokens ({share})"


def run_table(title: str, runs: Iterable[CompactionRun], *, more: Link | None = None) -> Table:
    """Return a table of runs."""
    return table_of(title, runs, RUN_CELLS, more=more)


def summary_table(
    title: str, summaries: Iterable[SessionSummary], *, more: Link | None = None
) -> Table:
    """Return a table of summaries, which shows none of what LONG_SUMMARY names."""
    return table_of(title, summaries, SUMMARY_CELLS, more=more)


def source_table(summary: SessionSummary) -> Table:
    """Return the first messages that the summariser received, and the way to the others."""
    links = (
        SessionSummaryMessage.objects.filter(summary=summary)
        .select_related("message")
        .annotate(start=Left("message__content", html.PREVIEW_CHARS))
        .only("message__position", "message__role", "message__tokens")
        .order_by("message__position", "message_id")[: SOURCES_SHOWN + 1]
    )
    rows = list(links)
    more = None
    if len(rows) > SOURCES_SHOWN:
        more = Link.to_list(
            "All source messages", SessionSummaryMessage, summary__id__exact=summary.pk
        )
    return table_of(
        "Source messages",
        rows[:SOURCES_SHOWN],
        SOURCE_CELLS,
        note="Exactly what the summariser received: "
        f"{formatting.plural(summary.message_count, 'message')}."
        + (f" The first {SOURCES_SHOWN} of them:" if more else ""),
        more=more,
    )


def shown_steps(run: CompactionRun) -> list[CompactionStep]:
    """Return a run's first steps in their order, one more than is shown, without their texts."""
    steps = run.steps.select_related("first_message", "last_message").only(*STEP_COLUMNS)
    return list(steps.order_by("order")[: STEPS_SHOWN + 1])


def step_table(run: CompactionRun) -> Table:
    """Return the run's steps in their order, indented by depth: the bisect tree."""
    rows = shown_steps(run)
    more = None
    if len(rows) > STEPS_SHOWN:
        more = Link.to_list("All steps", CompactionStep, run__id__exact=run.pk)
    return table_of(
        "Steps",
        rows[:STEPS_SHOWN],
        STEP_CELLS,
        note="Every step in order; a halved input stands one level deeper.",
        empty="There is no step yet.",
        more=more,
    )


def indented(step: CompactionStep) -> SafeString:
    """Return order and kind, moved in by depth with a class (no inline style: CSP)."""
    depth = min(step.depth, DEEPEST_INDENT)
    return format_html('<span class="step step-{}">{}. {}</span>', depth, step.order, step.kind)


def message_range(step: CompactionStep) -> SafeString | str:
    """Return the first and last message of a step, by position; a merge has read two texts."""
    if vocabulary.reads_texts(step):
        return f"{formatting.plural(step.message_count, 'text')}"
    if step.first_message is None or step.last_message is None:
        return f"{step.message_count:,}"
    return format_html(
        "{} – {} ({})",
        html.row_link(step.first_message, formatting.place(step.first_message.position)),
        html.row_link(step.last_message, formatting.place(step.last_message.position)),
        formatting.number(step.message_count),
    )


def outcome(step: CompactionStep) -> SafeString:
    """Return how a step ended; a text shortened without a call is told apart."""
    if vocabulary.is_forced(step):
        return html.badge("Shortened", "busy")
    tones = {"ok": "good", "overflow": "busy"}
    return html.badge(step.get_outcome_display(), tones.get(step.outcome, "bad"))


# --- columns --------------------------------------------------------------------------------------

REASON = column("Reason", "reason", reason_label)
STARTED_BY = column("Started by", "trigger", vocabulary.trigger_words)
TOKEN_CHANGE = column(
    "Request, tokens before → after", token_change, reads=("tokens_before", "tokens_after")
)
WAS_TRUNCATED = column("Truncated", "truncated", truncated_words)
COST = column("Cost", "cost", formatting.money)
INSTRUCTIONS = column("Instructions", "instructions", html.stored_text)

RUN_CELLS: Cells = {
    "Run": lambda run: html.row_link(run, formatting.short_id(run.pk)),
    "Status": run_status,
    "Reason": lambda run: reason_label(run.reason),
    "Model calls": lambda run: run.model_calls,
    "Tokens": token_change,
    "Created": lambda run: html.moment(run.created_at),
    "Error": text_cell(lambda run: run.error),
}
SUMMARY_CELLS: Cells = {
    "Summary": lambda summary: html.row_link(summary, formatting.short_id(summary.pk)),
    "Status": summary_status,
    "Reason": lambda summary: reason_label(summary.reason),
    "Messages": lambda summary: formatting.number(summary.message_count),
    "Covers through": lambda summary: formatting.place(summary.covers_through),
    "Tokens": token_change,
    "Ratio": lambda summary: formatting.percent(summary.compression_ratio),
}
SOURCE_CELLS: Cells = {
    "Position": lambda row: html.row_link(row.message, formatting.place(row.message.position)),
    "Role": lambda row: row.message.get_role_display(),
    "Tokens": lambda row: formatting.number(row.message.tokens),
    "Text": text_cell(lambda row: html.preview(getattr(row, "start", None))),
}
STEP_CELLS: Cells = {
    "Step": lambda step: html.row_link(step, indented(step)),
    "Depth": lambda step: step.depth,
    "Messages": message_range,
    "Tokens in": lambda step: formatting.number(step.input_tokens),
    "out": lambda step: formatting.number(step.output_tokens),
    "Outcome": outcome,
    "Time": vocabulary.step_seconds,
    "Error": text_cell(lambda step: step.error),
}
