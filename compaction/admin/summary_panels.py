"""What a summary's page shows beside its fields: how much smaller it made things, its versions."""

from __future__ import annotations

from typing import Any

from django.db.models import Q
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.columns import Cells, table_of
from chatapp.admin.toolkit.page_parts import Link, Panel, Table
from chatapp.admin.toolkit.svg import drawing, element
from compaction import vocabulary
from compaction.admin.lists import LONG_SUMMARY, SUMMARY_CELLS
from compaction.engine.policy.reasons import reason_label
from compaction.models import CompactionRun, SessionSummary

WIDTH, LABEL_WIDTH, BAR_HEIGHT, ROW, PAIR_GAP = 400, 110, 16, 22, 10
NUMBER_WIDTH = 60

VERSIONS_SHOWN = 40


def ratio_panel(summary: SessionSummary) -> Panel:
    """Return bars for what was read and for the next request, each before and after."""
    sent = _as_sent(summary)
    pairs = [
        ("Messages read", summary.approx_tokens, "Summary as sent", sent),
        ("Request before", summary.tokens_before, "Request after", summary.tokens_after),
    ]
    body = format_html(
        '<div class="ratio"><p>{}</p><p>{}</p><div class="ratio-frame">{}</div>'
        '<p class="help">{}</p></div>',
        f"Of what was read, {became(summary.approx_tokens, sent)}, as it is sent.",
        f"Of the whole next request, {_of_request(summary)}.{_larger(summary)}",
        bars(pairs),
        made_by(summary),
    )
    return Panel(title="How much smaller", body=body)


def _as_sent(summary: SessionSummary) -> int:
    """Return what a summary costs in a request: the text in its frame, as its ratio counts it."""
    return round(summary.compression_ratio * summary.approx_tokens) or summary.summary_tokens


def became(before: int, after: int) -> str:
    """Return the sentence: 14,500 tokens became 1,900: 13 %."""
    percent = 100 * after / before if before else 0.0
    share = f": {percent:.{0 if percent >= 1 else 1}f} %" if percent else ""
    return f"{before:,} tokens became {after:,}{share}"


def _of_request(summary: SessionSummary) -> str:
    """Return what became of a request; of a draft's, what would."""
    said = became(summary.tokens_before, summary.tokens_after)
    is_draft = summary.status == SessionSummary.Status.DRAFT
    return said.replace("became", "would become") if is_draft else said


def _larger(summary: SessionSummary) -> str:
    """Return what is to be said of a request that became no smaller; empty where it did."""
    if not 0 < summary.tokens_before <= summary.tokens_after:
        return ""
    said = " It is no smaller: a summary is sent in a frame, which the messages had not."
    if summary.trigger == CompactionRun.Trigger.MANUAL:
        said += " A rule would have stored nothing; a person asked for it, and can restore it."
    return said


def made_by(summary: SessionSummary) -> str:
    """Return why and how it was made, as one sentence."""
    why = f"{reason_label(summary.reason)} ({vocabulary.trigger_words(summary.trigger)})"
    by = f"made by {summary.model or 'an unknown model'}"
    if summary.is_edited:
        by = f"written by {person_of(summary)}"
    parts = [f"{why}; {by}"]
    if summary.prompt_version:
        parts.append(f"prompts of {summary.prompt_version}")
    if summary.run is not None:
        parts.append(vocabulary.seconds(summary.run))
    parts.append(f"cost {formatting.money(summary.cost)}" if summary.cost else "no price")
    return ", ".join(parts) + "."


def person_of(summary: SessionSummary) -> str:
    """Return who wrote an edited text, by name."""
    return "a person" if summary.author is None else summary.author.get_username()


def bars(pairs: list[tuple[str, int, str, int]]) -> SafeString:
    """Return the drawing: (label, tokens) before over (label, tokens) after, all on one scale."""
    most = max([1, *(max(before, after) for _, before, _, after in pairs)])
    room = WIDTH - LABEL_WIDTH - NUMBER_WIDTH
    shapes, y = [], 0
    for old, before, new, after in pairs:
        for label, tokens, cls in ((old, before, "before"), (new, after, "after")):
            width = max(room * tokens / most, 1.0)
            shapes += [
                element("text", label, x=0, y=y + 13, cls="ratio-label"),
                element(
                    "rect", cls=f"ratio-{cls}", x=LABEL_WIDTH, y=y, width=width, height=BAR_HEIGHT
                ),
                element(
                    "text", f"{tokens:,}", x=LABEL_WIDTH + width + 6, y=y + 13, cls="ratio-number"
                ),
            ]
            y += ROW
        y += PAIR_GAP
    label = "; ".join(
        f"{old} {before:,} tokens, {new} {after:,} tokens" for old, before, new, after in pairs
    )
    return drawing(*shapes, width=WIDTH, height=y - PAIR_GAP, label=label, cls="ratio-bars")


def compare_url(first: Any, second: Any) -> str:
    """Return the address of the page that shows two summaries side by side, by their ids."""
    return reverse("admin:compaction_sessionsummary_compare", args=[first, second])


def default_comparison(summary: SessionSummary) -> Link | None:
    """Return the comparison with the version it replaces, else with the summary it continues."""
    if summary.supersedes_id:
        url = compare_url(summary.supersedes_id, summary.pk)
        return Link(label="Compare with the version it replaces", url=url)
    if summary.previous_id:
        url = compare_url(summary.previous_id, summary.pk)
        return Link(label="Compare with the previous summary", url=url)
    return None


def version_tables(summary: SessionSummary) -> list[Table]:
    """Return versions of the same messages, and the line of continuation; tables without rows not.

    One query: all of them belong to one session, whose index finds them.
    """
    same = Q(branch=summary.branch_id, covers_through=summary.covers_through)
    versions = same | Q(pk=summary.supersedes_id) | Q(supersedes=summary.pk)
    line = Q(pk=summary.previous_id) | Q(previous=summary.pk)
    rows = (
        SessionSummary.objects.filter(versions | line, session=summary.session_id)
        .exclude(pk=summary.pk)
        .select_related("author")
        .defer(*LONG_SUMMARY)
        .order_by("-created_at", "-id")[:VERSIONS_SHOWN]
    )
    in_line: list[SessionSummary] = []
    same_messages: list[SessionSummary] = []
    for row in rows:
        is_in_line = row.pk == summary.previous_id or row.previous_id == summary.pk
        (in_line if is_in_line else same_messages).append(row)
    return [
        _table(title, note, summary, found)
        for title, note, found in (
            ("Other versions", "Summaries of the same messages, newest first.", same_messages),
            (
                "Line of continuation",
                "The summary that was an input of this one, and those that took this one in.",
                in_line,
            ),
        )
        if found
    ]


def _table(title: str, note: str, summary: SessionSummary, rows: list[SessionSummary]) -> Table:
    cells: Cells = {
        "Summary": SUMMARY_CELLS["Summary"],
        "Relation": lambda row: _relation(summary, row),
        "Status": SUMMARY_CELLS["Status"],
        "Model": lambda row: person_of(row) if row.is_edited else row.model or "—",
        "Tokens": lambda row: formatting.number(row.summary_tokens),
        "Ratio": SUMMARY_CELLS["Ratio"],
        "Created": lambda row: html.moment(row.created_at),
        "Compare": lambda row: _compare_link(summary, row),
    }
    return table_of(title, rows, cells, note=note)


def _relation(summary: SessionSummary, row: SessionSummary) -> str:
    if row.pk == summary.supersedes_id:
        return "replaced by this one"
    if row.supersedes_id == summary.pk:
        return "replaces this one"
    if row.pk == summary.previous_id:
        return "continued by this one"
    if row.previous_id == summary.pk:
        return "continues this one"
    return "earlier version" if row.created_at < summary.created_at else "later version"


def _compare_link(summary: SessionSummary, row: SessionSummary) -> SafeString:
    older, newer = sorted((summary, row), key=lambda each: each.created_at)
    return html.link("side by side", compare_url(older.pk, newer.pk))
