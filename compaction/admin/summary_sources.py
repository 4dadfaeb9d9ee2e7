"""From a line of a summary to the words it comes from, and from a message to where it went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from django.db.models import F, QuerySet
from django.db.models.functions import Greatest, Least, Substr
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.page_parts import Panel
from chatapp.admin.toolkit.permissions import TEXTS_HIDDEN, may_see_texts
from chatapp.models import Message
from compaction import vocabulary
from compaction.admin.actions import may_view
from compaction.admin.lists import summary_status
from compaction.engine.provenance import Origin
from compaction.models import SessionSummary, SessionSummaryMessage, SummaryLine

TITLE = "Sources"
FATE_TITLE = "In summaries"
NO_LINES = "Where its lines come from is not known: it was made before that was stored."
OF_PERSON = "Its lines have no sources yet: a person wrote them, and a worker looks for them."
ROWS_SHOWN = 1000
FATES_SHOWN = 20
_BULLETS = " \t-*•"
# Characters around a marked piece, and the most of one that is shown.
AROUND, LONGEST = 80, 2000
_COLUMNS = (
    "number",
    "start",
    "end",
    "origin",
    "message_start",
    "message_end",
    "message__position",
    "message__role",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPiece:
    """A piece of a message, with what stands around it; `said` tells where there are no words."""

    where: SafeString | str
    before: str = ""
    marked: str = ""
    after: str = ""
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownLine:
    """A line of a summary with its sources; number 0 is text between lines."""

    number: int
    text: str
    tone: str = ""
    origin: str = ""
    pieces: list[ShownPiece] = field(default_factory=list)


# --- a summary's page -----------------------------------------------------------------------------


def sources_panel(request: HttpRequest, summary: SessionSummary) -> Panel:
    """Return the summary's text line by line, and beside it the words that each comes from."""
    if not may_see_texts(request):
        return Panel.saying(TITLE, TEXTS_HIDDEN)
    rows: list[Any] = list(_rows_of(summary)[: ROWS_SHOWN + 1])
    if not rows:
        return Panel.saying(TITLE, OF_PERSON if summary.is_edited else NO_LINES)
    lines = _lines(rows[:ROWS_SHOWN], summary.summary_text)
    note = ""
    if len(rows) > ROWS_SHOWN:
        note = f"The first {ROWS_SHOWN:,} sources are shown; the API returns all of them."
    shown = [line for _, _, line in lines]
    body = render_to_string(
        "admin/compaction/sources.html",
        {
            "blocks": list(_blocks(lines, summary.summary_text)),
            "lines": shown,
            "counted": _counted(shown),
            "note": note,
        },
    )
    return Panel(title=TITLE, body=body)


def _rows_of(summary: SessionSummary) -> QuerySet[SummaryLine]:
    """Return one row a source, with the piece of the message cut out by the database."""
    first = Greatest(F("message_start") - AROUND, 0)
    length = Least(F("message_end") + AROUND - first, LONGEST + 2 * AROUND)
    return (
        SummaryLine.objects.filter(summary=summary)
        .select_related("message")
        .only(*_COLUMNS)
        .annotate(piece=Substr("message__content", first + 1, length))
        .order_by("number", "pk")
    )


def _lines(rows: Iterable[Any], text: str) -> list[tuple[int, int, ShownLine]]:
    """Return every line with its start and end, in order."""
    by_number: dict[int, list[Any]] = defaultdict(list)
    for row in rows:
        by_number[row.number].append(row)
    found = []
    for number, parts in sorted(by_number.items()):
        first = parts[0]
        sourced = [row for row in parts if row.message_id is not None]
        origin = first.origin if sourced else Origin.NONE
        line = ShownLine(
            number=number,
            text=text[first.start : first.end].strip(),
            tone=str(origin),
            origin=vocabulary.ORIGINS.get(origin, str(origin)),
            pieces=[_piece(row) for row in sourced],
        )
        found.append((first.start, first.end, line))
    return found


def _piece(row: Any) -> ShownPiece:
    message = row.message
    place = f"position {formatting.place(message.position)} ({message.get_role_display().lower()})"
    where = html.row_link(message, place)
    start, end = row.message_start, row.message_end
    piece = row.piece or ""
    if not end:
        # The message as a whole is meant, or a call of it, which has no place in its text.
        said = "The message as a whole." if piece else "A tool call of this message."
        more = "…" if len(piece) >= AROUND else ""
        return ShownPiece(where=where, before=piece + more, said=said)
    lead = min(start, AROUND)
    marked = piece[lead : lead + min(end - start, LONGEST)]
    after = piece[lead + len(marked) :]
    return ShownPiece(
        where=where,
        before=("…" if start > AROUND else "") + piece[:lead],
        marked=marked,
        after=after + ("…" if len(after) >= AROUND else ""),
    )


def _blocks(lines: Iterable[tuple[int, int, ShownLine]], text: str) -> Iterator[ShownLine]:
    """Return the whole text in order: lines, and what stands between them, its headings."""
    at = 0
    for start, end, line in sorted(lines, key=lambda found: found[:2]):
        yield from _between(text[at:start])
        yield line
        at = max(at, end)
    yield from _between(text[at:])


def _between(text: str) -> Iterator[ShownLine]:
    for part in text.splitlines():
        # The dash of a list stands before its line, which needs none.
        if part.strip(_BULLETS):
            yield ShownLine(number=0, text=part.strip())


def _counted(lines: list[ShownLine]) -> str:
    """Return how many lines there are, and how many without a source."""
    bare = sum(line.tone == Origin.NONE for line in lines)
    said = formatting.plural(len(lines), "line")
    return f"{said}, {bare:,} without a source." if bare else f"{said}, all with a source."


# --- a message's page -----------------------------------------------------------------------------


def fate_panel(request: HttpRequest, message: Message) -> Panel | None:
    """Return which lines of which summaries a message went into; None where none covers it."""
    if not may_view(request, SessionSummary):
        return None
    numbers: dict[Any, list[int]] = defaultdict(list)
    rows = SummaryLine.objects.filter(message=message).order_by("number")
    for summary_id, number in rows.values_list("summary", "number")[:ROWS_SHOWN]:
        if number not in numbers[summary_id]:
            numbers[summary_id].append(number)
    links = SessionSummaryMessage.objects.filter(message=message).order_by("-pk")
    keys = {*numbers, *links.values_list("summary", flat=True)[:ROWS_SHOWN]}
    if not keys:
        return None
    # What tells a summary without lines of this message from one that was never measured.
    summaries = (
        SessionSummary.objects.filter(pk__in=keys)
        .select_related("quality")
        .only("status", "reason", "is_digest", "created_at", "quality__version")
        .order_by("-created_at", "-pk")[:FATES_SHOWN]
    )
    said = [(_fate(row, numbers.get(row.pk, [])),) for row in summaries]
    body = format_html('<ul class="panel-list">{}</ul>', format_html_join("", "<li>{}</li>", said))
    return Panel(title=FATE_TITLE, body=body)


def _fate(summary: SessionSummary, numbers: list[int]) -> SafeString:
    """Return the sentence for one summary."""
    page = html.change_url(SessionSummary, summary.pk)
    link = html.link(f"summary {formatting.short_id(summary.pk)}", page)
    status = summary_status(summary)
    if numbers:
        parts = ((html.link(number, f"{page}#line-{number}"),) for number in numbers)
        lines = format_html_join(", ", "{}", parts)
        noun = "line" if len(numbers) == 1 else "lines"
        return format_html("Went into {} {} of {} {}", noun, lines, link, status)
    if summary.status == SessionSummary.Status.DRAFT:
        return format_html("Read for {}, in no line {}", link, status)
    if summary.is_edited:
        return format_html("Covered by {} {} {}", link, status, "Its lines have no sources.")
    if getattr(summary, "quality", None) is None:
        return format_html(
            "Covered by {} {} {}", link, status, "It was made before lines knew their messages."
        )
    return format_html("Covered by {}, in no line {}", link, status)
