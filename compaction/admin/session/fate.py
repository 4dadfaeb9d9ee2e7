"""What becomes of each message in the next request, in words with a sign."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin import cells
from chatapp.admin.message_panel import KEPT, RULE, Fate
from chatapp.models import Message
from compaction.admin.session.standing import Standing
from compaction.models import SessionSummary, SessionSummaryMessage
from compaction.selectors import summaries_of

PINNED = Fate(sign="◆", name="pinned", words="Pinned: sent verbatim")
_COLUMNS = ("status", "covers_through", "created_at", "branch", "archived")


def fates_of(standing: Standing, rows: list[Message]) -> dict[Any, Fate]:
    """Return the fates of some rows of the branch's path by their ids; a fixed number of reads."""
    covering = _covering(standing, rows)
    marked = _marked(rows)
    found = {}
    for row in rows:
        if row.kind == Message.Kind.PLACEHOLDER:
            found[row.pk] = _of_placeholder(standing, row, marked.get(_marked_id(row)))
        else:
            found[row.pk] = _of_message(standing, row, covering.get(row.pk))
    return found


def _covering(standing: Standing, rows: list[Message]) -> dict[Any, SessionSummary]:
    """Return the summary that counts and received each message, the newest where several did."""
    keys = [row.pk for row in rows if row.position <= standing.cursor]
    if not keys:
        return {}
    links = SessionSummaryMessage.objects.filter(
        message__in=keys, summary__status=SessionSummary.Status.ACTIVE
    ).values_list("message", "summary")
    pairs = list(links)
    # A fork sees only what was summarised before it, and what it summarised itself.
    counting = summaries_of(standing.branch).filter(
        pk__in={summary for _, summary in pairs}, covers_through__lte=standing.cursor
    )
    order = {row.pk: (number, row) for number, row in enumerate(counting.only(*_COLUMNS))}
    found: dict[Any, tuple[int, SessionSummary]] = {}
    for message, summary in pairs:
        if summary in order and (message not in found or order[summary][0] < found[message][0]):
            found[message] = order[summary]
    return {message: summary for message, (_, summary) in found.items()}


def _marked(rows: list[Message]) -> Mapping[UUID | None, SessionSummary]:
    """Return the summaries that the placeholders among the rows mark, by id."""
    ids = {found for row in rows if (found := _marked_id(row)) is not None}
    return SessionSummary.objects.only(*_COLUMNS).in_bulk(ids) if ids else {}


def _marked_id(row: Any) -> UUID | None:
    """Return the id that a placeholder names; None for old ones, and for messages."""
    if row.kind != Message.Kind.PLACEHOLDER or not row.marks:
        return None
    try:
        return UUID(str(row.marks))
    except ValueError:
        return None


def _of_placeholder(standing: Standing, row: Message, summary: SessionSummary | None) -> Fate:
    words: SafeString | str
    if summary is not None:
        active = summary.status == SessionSummary.Status.ACTIVE
        status = "" if active else f" ({summary.get_status_display().lower()})"
        words = format_html("Placeholder of {}{}", summary_link(summary), status)
    elif row.pk in {old.pk for old in standing.snapshot.old_placeholders}:
        words = "Imported placeholder: its text is sent as a summary"
    else:
        words = "Placeholder without a summary row: not sent"
    return Fate(sign="▣", name="placeholder", words=words)


def _of_message(standing: Standing, row: Message, summary: SessionSummary | None) -> Fate:
    if row.is_rule:
        return RULE
    if row.position > standing.cursor:
        if row.position >= standing.sent_from:
            return PINNED if row.pinned else KEPT
        if row.pinned and standing.snapshot.profile.context_size:
            return PINNED
        return Fate(sign="○", name="left-out", words=f"Not sent ({standing.limit_words})")
    by = _covering_link(summary) if summary else "an imported placeholder, without a summary row"
    if row.pinned:
        words = format_html("Pinned: sent verbatim although covered by {}", by)
        return Fate(sign="◆", name="pinned", words=words)
    if standing.question is not None and row.pk == standing.question.pk:
        words = format_html("Open question: sent verbatim although covered by {}", by)
        return Fate(sign="◆", name="pinned", words=words)
    return Fate(sign="▤", name="covered", words=format_html("Covered by {}", by))


def _covering_link(summary: SessionSummary) -> SafeString:
    link = summary_link(summary)
    return format_html("{} (an archive)", link) if summary.archived else link


def summary_link(summary: SessionSummary) -> SafeString:
    """Return a link to a summary by its short name."""
    url = cells.change_url(SessionSummary, summary.pk)
    return cells.link(f"summary {formatting.short_id(summary.pk)}", url)
