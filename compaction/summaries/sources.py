"""From the lines of a summary to the words they come from, and from a message to its lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Greatest, Least, Substr

from chatapp.models import Message
from compaction.engine.fidelity.entities import key_of
from compaction.models import SessionSummary, SessionSummaryMessage, SummaryLine, SummaryQuality

# Of a piece so much is read; a clause is shorter.
PIECE_CHARS = 2000
# A message is read for one summary, and for each new version of it; most of its lines in those.
FATES, FATE_LINES = 50, 1000
Status = SessionSummary.Status
COUNTED = (Status.ACTIVE, Status.SUPERSEDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceText:
    """A piece of a message: which message, and the words between the two offsets.

    Both offsets are 0, and the words empty, where the message as a whole is meant or a call of it.
    """

    message: UUID
    sequence_id: Any
    role: str
    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LineWithSources:
    """One line of a summary, its offsets in the summary's text, and what it comes from."""

    number: int
    start: int
    end: int
    text: str
    origin: str
    sources: Sequence[SourceText]


def line_numbers(summary: SessionSummary) -> QuerySet[SummaryLine, Any]:
    """Return the lines of a summary, each once, without their sources: number, offsets, origin."""
    rows = SummaryLine.objects.filter(summary=summary)
    return rows.values("number", "start", "end", "origin").distinct().order_by("number")


def with_sources(summary: SessionSummary, lines: Sequence[dict[str, Any]]) -> list[LineWithSources]:
    """Return some of a summary's `line_numbers` with text and sources, in one query."""
    pieces: dict[int, list[SourceText]] = defaultdict(list)
    for row in _sourced(summary, [line["number"] for line in lines]):
        pieces[row.number].append(_piece(row))
    return [
        LineWithSources(
            text=summary.summary_text[line["start"] : line["end"]],
            sources=pieces[line["number"]],
            **line,
        )
        for line in lines
    ]


def _sourced(summary: SessionSummary, numbers: Sequence[int]) -> QuerySet[Any]:
    """Return one row a source; the piece is cut out by the database, so that no message travels."""
    length = Least(Greatest(F("message_end") - F("message_start"), 0), PIECE_CHARS)
    rows = SummaryLine.objects.filter(summary=summary, number__in=numbers, message__isnull=False)
    return (
        rows.select_related("message")
        .only("number", "message_start", "message_end", "message__position", "message__role")
        .annotate(piece=Substr("message__content", F("message_start") + 1, length))
        .order_by("number", "pk")
    )


def _piece(row: Any) -> SourceText:
    return SourceText(
        message=row.message_id,
        sequence_id=row.message.sequence_id,
        role=row.message.role,
        start=row.message_start,
        end=row.message_end,
        text=(row.piece or "") if row.message_end else "",
    )


# --- what became of a message ---------------------------------------------------------------------


class Fate(StrEnum):
    """What became of a message in the summaries that are sent, or were."""

    IN_LINES = "in_lines"
    IN_NO_LINE = "in_no_line"
    UNKNOWN = "unknown"
    NOT_COVERED = "not_covered"


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryFate:
    """One summary that read a message or has lines of it; `lines` are their numbers.

    `traced` is False for a summary that was made before lines knew their sources.
    """

    summary: UUID
    status: str
    created_at: Any
    traced: bool
    lines: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFate:
    """What became of a message; its summaries are listed newest first."""

    message: UUID
    fate: Fate
    summaries: Sequence[SummaryFate]


def fate_of(message: Message) -> MessageFate:
    """Return which lines of which active or superseded summaries a message went into.

    The active ones say what its fate is, the superseded ones where there is no active one.
    """
    numbers: dict[UUID, list[int]] = defaultdict(list)
    lines = SummaryLine.objects.filter(message=message, summary__status__in=COUNTED)
    pairs = lines.values_list("summary", "number").distinct().order_by("summary_id", "number")
    for summary, number in pairs[:FATE_LINES]:
        numbers[summary].append(number)
    links = SessionSummaryMessage.objects.filter(message=message).values("summary")
    rows = (
        SessionSummary.objects.filter(Q(pk__in=links) | Q(pk__in=list(numbers)))
        .filter(status__in=COUNTED)
        .annotate(traced=Exists(SummaryLine.objects.filter(summary=OuterRef("pk"))))
        .order_by("-created_at", "-pk")
    )
    found = [
        SummaryFate(
            summary=pk, status=status, created_at=made, traced=traced, lines=numbers.get(pk, [])
        )
        for pk, status, made, traced in rows.values_list("pk", "status", "created_at", "traced")[
            :FATES
        ]
    ]
    return MessageFate(message=message.pk, fate=_fate(found), summaries=found)


def _fate(found: Sequence[SummaryFate]) -> Fate:
    counting = [one for one in found if one.status == Status.ACTIVE] or found
    if not counting:
        return Fate.NOT_COVERED
    if any(one.lines for one in counting):
        return Fate.IN_LINES
    return Fate.IN_NO_LINE if any(one.traced for one in counting) else Fate.UNKNOWN


# --- what was lost --------------------------------------------------------------------------------


def lost_facts(quality: SummaryQuality) -> list[dict[str, Any]]:
    """Return the facts that a summary lost, best first, each with its key, but ignored ones."""
    ignored = set(quality.ignored)
    keyed = ({"key": key_of(str(fact.get("text", "")))} | fact for fact in quality.lost)
    return [fact for fact in keyed if fact["key"] not in ignored]
