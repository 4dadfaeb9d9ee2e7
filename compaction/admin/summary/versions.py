"""Earlier and later versions of a summary, and those it continues or that continue it."""

from __future__ import annotations

from typing import Any

from django.db.models import Q
from django.urls import reverse
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin import cells
from chatapp.admin.parts import Link, Table
from chatapp.formatting import when
from compaction.admin import badges
from compaction.admin.tables import LONG_SUMMARY
from compaction.models import SessionSummary

VERSIONS_SHOWN = 40


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
    """Return versions of the same stretch, and the line of continuation; tables without rows not.

    One query: all of them belong to one session, whose index finds them.
    """
    same = Q(branch=summary.branch_id, covers_through=summary.covers_through)
    versions = same | Q(pk=summary.supersedes_id) | Q(supersedes=summary.pk)
    line = Q(pk=summary.previous_id) | Q(previous=summary.pk)
    rows = (
        SessionSummary.objects.filter(versions | line, session=summary.session_id)
        .exclude(pk=summary.pk)
        .defer(*LONG_SUMMARY)
        .order_by("-created_at", "-id")[:VERSIONS_SHOWN]
    )
    in_line: list[SessionSummary] = []
    of_stretch: list[SessionSummary] = []
    for row in rows:
        is_in_line = row.pk == summary.previous_id or row.previous_id == summary.pk
        (in_line if is_in_line else of_stretch).append(row)
    return [
        _table(title, note, summary, found)
        for title, note, found in (
            ("Other versions", "Summaries of the same messages, newest first.", of_stretch),
            (
                "Line of continuation",
                "The summary that was an input of this one, and those that took this one in.",
                in_line,
            ),
        )
        if found
    ]


def _table(title: str, note: str, summary: SessionSummary, rows: list[SessionSummary]) -> Table:
    return Table(
        title=title,
        note=note,
        columns=("Summary", "Relation", "Status", "Model", "Tokens", "Ratio", "Created", "Compare"),
        rows=[
            (
                cells.row_link(row, formatting.short_id(row.pk)),
                _relation(summary, row),
                badges.summary_status(row),
                row.model or "—",
                formatting.number(row.summary_tokens),
                formatting.percent(row.compression_ratio),
                when(row.created_at),
                _compare_link(summary, row),
            )
            for row in rows
        ],
    )


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
    return cells.link("side by side", compare_url(older.pk, newer.pk))
