"""Tables that several pages show: runs, summaries, sources, steps."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import QuerySet
from django.db.models.functions import Left
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin import cells
from chatapp.admin.parts import Link, Table
from compaction import vocabulary
from compaction.admin import badges
from compaction.models import (
    CompactionRun,
    CompactionStep,
    SessionSummary,
    SessionSummaryMessage,
)

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


def run_table(title: str, runs: Iterable[CompactionRun], *, more: Link | None = None) -> Table:
    """Return a table of runs."""
    return Table(
        title=title,
        columns=("Run", "Status", "Reason", "Model calls", "Tokens", "Created", "Error"),
        rows=[
            (
                cells.row_link(run, formatting.short_id(run.pk)),
                badges.run_status(run),
                vocabulary.reason_words(run.reason),
                run.model_calls,
                formatting.before_after(run.tokens_before, run.tokens_after),
                formatting.when(run.created_at),
                run.error,
            )
            for run in runs
        ],
        more=more,
    )


def summary_table(
    title: str, summaries: QuerySet[SessionSummary], *, more: Link | None = None
) -> Table:
    """Return a table of summaries, without their texts."""
    return Table(
        title=title,
        columns=("Summary", "Status", "Reason", "Messages", "Covers through", "Tokens", "Ratio"),
        rows=[
            (
                cells.row_link(summary, formatting.short_id(summary.pk)),
                badges.summary_status(summary),
                vocabulary.reason_words(summary.reason),
                formatting.number(summary.message_count),
                formatting.place(summary.covers_through),
                formatting.before_after(summary.tokens_before, summary.tokens_after),
                formatting.percent(summary.compression_ratio),
            )
            for summary in summaries.defer(*LONG_SUMMARY)
        ],
        more=more,
    )


def source_table(summary: SessionSummary) -> Table:
    """Return the first messages that the summariser received, and the way to the others."""
    links = (
        SessionSummaryMessage.objects.filter(summary=summary)
        .select_related("message")
        .annotate(start=Left("message__content", cells.PREVIEW_CHARS))
        .only("message__position", "message__role", "message__tokens")
        .order_by("message__position", "message_id")[: SOURCES_SHOWN + 1]
    )
    rows = list(links)
    more = None
    if len(rows) > SOURCES_SHOWN:
        url = cells.list_url(SessionSummaryMessage, summary__id__exact=summary.pk)
        more = Link(label="All source messages", url=url)
    return Table(
        title="Source messages",
        columns=("Position", "Role", "Tokens", "Text"),
        note=f"Exactly what the summariser received: {summary.message_count:,} messages."
        + (f" The first {SOURCES_SHOWN} of them:" if more else ""),
        rows=[
            (
                cells.row_link(row.message, formatting.place(row.message.position)),
                row.message.get_role_display(),
                formatting.number(row.message.tokens),
                cells.preview(getattr(row, "start", None)),
            )
            for row in rows[:SOURCES_SHOWN]
        ],
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
        more = Link(label="All steps", url=cells.list_url(CompactionStep, run__id__exact=run.pk))
    return Table(
        title="Steps",
        columns=("Step", "Depth", "Messages", "Tokens in", "out", "Outcome", "Time", "Error"),
        note="Every step in order; a halved input stands one level deeper.",
        rows=[
            (
                cells.row_link(step, indented(step)),
                step.depth,
                message_range(step),
                formatting.number(step.input_tokens),
                formatting.number(step.output_tokens),
                outcome(step),
                vocabulary.step_seconds(step),
                step.error,
            )
            for step in rows[:STEPS_SHOWN]
        ],
        empty="There is no step yet.",
        more=more,
    )


def indented(step: CompactionStep) -> SafeString:
    """Return order and kind, moved in by depth with a class (no inline style: CSP)."""
    depth = min(step.depth, DEEPEST_INDENT)
    return format_html('<span class="step step-{}">{}. {}</span>', depth, step.order, step.kind)


def message_range(step: CompactionStep) -> SafeString | str:
    """Return the first and last message of a step, by position; a merge has read two texts."""
    if step.kind == vocabulary.MERGE:
        return f"{step.message_count:,} texts"
    if step.first_message is None or step.last_message is None:
        return f"{step.message_count:,}"
    return format_html(
        "{} – {} ({})",
        cells.row_link(step.first_message, formatting.place(step.first_message.position)),
        cells.row_link(step.last_message, formatting.place(step.last_message.position)),
        formatting.number(step.message_count),
    )


def outcome(step: CompactionStep) -> SafeString:
    """Return how a step ended; a text shortened without a call is told apart."""
    if vocabulary.is_forced(step):
        return cells.badge("Shortened", "busy")
    tones = {"ok": "good", "overflow": "busy"}
    return cells.badge(step.get_outcome_display(), tones.get(step.outcome, "bad"))
