"""What stands beside a summary: clauses for later passes, its lines' sources, its quality.

Written in the transaction that stores the summary. Ids of messages come as the database gives them
(convert.read_items) and go back in the same form, so that a clause of an earlier pass and a message
of this one are told to be the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from itertools import islice
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import F
from django.db.models.functions import Length

from chatapp.compiled import CompiledInsert
from chatapp.models import Message
from compaction.engine.fidelity.measure import LostFact, Quality
from compaction.engine.provenance import Origin, SourcedLine, Unit, UnitKind
from compaction.engine.types import Outcome
from compaction.models import (
    CompactionStep,
    SessionSummary,
    SummaryLine,
    SummaryQuality,
    SummaryUnits,
)

REJECTED = CompactionStep.Outcome.REJECTED
ROWS_AT_ONCE = 1000
SUMMARIES_AT_ONCE = 50
_insert_lines = CompiledInsert(SummaryLine, batch_size=ROWS_AT_ONCE)
_insert_units, _insert_quality = CompiledInsert(SummaryUnits), CompiledInsert(SummaryQuality)
# What of a Quality has a column of its own, or a table; the rest are its `figures`.
_OWN_PLACE = frozenset(
    {"version", "score", "yardstick", "cumulative", "named_weight", "lost", "facts"}
)


# --- storing --------------------------------------------------------------------------------------


def store_fidelity(
    summary: SessionSummary, outcome: Outcome, *, there: Mapping[Any, UUID] | None = None
) -> None:
    """Store clauses, lines and quality of a summary that was just written, as far as there are any.

    Call it in the transaction that stores the summary. A source that is no message of the session
    any more becomes a line without a source. `there` are messages that were just read
    (Kept.messages), with their sessions: they go with those alone.
    """
    quality, known = outcome.quality, _known_messages(summary, outcome, there or {})
    if outcome.units or quality is not None:
        row = SummaryUnits(
            summary=summary,
            units=[_unit_row(unit, known) for unit in outcome.units],
            named_weight=_named_weight(summary, quality),
        )
        _insert_units([row])
    _store_quality(summary, outcome, known)


def store_quality(summary: SessionSummary, outcome: Outcome) -> None:
    """Store lines and quality alone: of a text whose clauses no later pass chooses from."""
    _store_quality(summary, outcome, _known_messages(summary, outcome, {}))


def _store_quality(summary: SessionSummary, outcome: Outcome, known: Mapping[Any, UUID]) -> None:
    quality = outcome.quality
    _insert_lines(list(_line_rows(summary, outcome.lines, known)))
    if quality is not None:
        rejected = sum(step.outcome == REJECTED for step in outcome.steps)
        columns = _quality_columns(quality) | {"ignored": _ignored_before(summary)}
        row = SummaryQuality(summary=summary, rejected=rejected, **columns)
        _insert_quality([row])


def _ignored_before(summary: SessionSummary) -> list[str]:
    """Return the facts that somebody ignored in the version of which this one takes the place."""
    if summary.supersedes_id is None:
        return []
    ignored = SummaryQuality.objects.filter(pk=summary.supersedes_id)
    return ignored.values_list("ignored", flat=True).first() or []


def _known_messages(
    summary: SessionSummary, outcome: Outcome, just_read: Mapping[Any, UUID]
) -> Mapping[Any, UUID]:
    """Return the ids of the messages that are named, each by the form in which it was read.

    Those that the summary was linked to just now are there, and those that were just read of its
    session; the others are looked up.
    """
    sources = (source.message for line in outcome.lines for source in line.sources)
    named = {*sources, *(unit.message for unit in outcome.units)} - {None}
    ids = {read: _id(read) for read in named}
    linked = {item.id for item in outcome.items}
    linked |= {read for read, session in just_read.items() if session == summary.session_id}
    older = {pk for read, pk in ids.items() if read not in linked}
    there = Message.objects.filter(pk__in=older, session=summary.session_id)
    gone = older - set(there.values_list("pk", flat=True)) if older else set()
    return {read: pk for read, pk in ids.items() if pk not in gone}


# A summary names the same messages many times: in its lines, its clauses and its lost facts.
@lru_cache(maxsize=4096)
def _id(read: Any) -> UUID:
    found: UUID = Message._meta.pk.to_python(read)
    return found


def _unit_row(unit: Unit, known: Mapping[Any, UUID]) -> list[Any]:
    message = known.get(unit.message)
    return [
        unit.text,
        unit.kind.value,
        unit.speaker,
        unit.position,
        None if message is None else str(message),
        unit.start,
        unit.end,
        list(unit.entities),
        round(unit.worth, 4),
        unit.note,
    ]


def _named_weight(summary: SessionSummary, quality: Quality | None) -> float:
    """Return what all that was named weighs; a pass that was not measured adds nothing."""
    return named_before(summary.previous) if quality is None else quality.named_weight


def _line_rows(
    summary: SessionSummary, lines: Iterable[SourcedLine], known: Mapping[Any, UUID]
) -> Iterator[SummaryLine]:
    for number, line in enumerate(lines, start=1):
        place = {"summary": summary, "number": number, "start": line.start, "end": line.end}
        sources = [source for source in line.sources if source.message in known]
        if not sources:
            yield SummaryLine(origin=Origin.NONE.value, **place)
        for source in sources:
            yield SummaryLine(
                origin=line.origin.value,
                message_id=known[source.message],
                message_start=source.start,
                message_end=source.end,
                **place,
            )


def _quality_columns(quality: Quality) -> dict[str, Any]:
    # As they are: a deep copy of some hundred facts takes longer than the rest of the storing.
    names = [one.name for one in fields(quality) if one.name not in _OWN_PLACE]
    return {
        "version": quality.version,
        "score": quality.score,
        "yardstick": quality.yardstick,
        "cumulative": quality.cumulative,
        "unsupported_count": len(quality.unsupported),
        "figures": {name: getattr(quality, name) for name in names},
        "lost": [_lost_row(fact) for fact in quality.lost],
        "facts": [list(fact) for fact in quality.facts],
    }


def _lost_row(fact: LostFact) -> dict[str, Any]:
    message = None if fact.message is None else str(_id(fact.message))
    told = {one.name: getattr(fact, one.name) for one in fields(fact)}
    return told | {"message": message}


# --- reading for the next pass --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What summaries keep for the next pass: their clauses, and what all weighs that was named up
    to the end of the last one; 0 where nobody counted it. `invented` is what they name and nobody
    wrote.

    `messages` are those that the clauses come from, as the database gives their ids, with their
    sessions.
    """

    units: tuple[Unit, ...] = ()
    named_weight: float = 0.0
    invented: tuple[str, ...] = ()
    messages: Mapping[Any, UUID] = field(default_factory=dict)


def kept_before(summaries: Sequence[SessionSummary]) -> Kept:
    """Return what summaries keep, in their order; nothing of old ones. Two queries, or none.

    Clauses stand where their messages stand now: positions may have been renumbered since.
    """
    if not summaries:
        return Kept()
    invented = F("summary__quality__figures__unsupported")
    units = SummaryUnits.objects.annotate(invented=invented)
    found = units.in_bulk([row.pk for row in summaries])
    rows = [found[row.pk] for row in summaries if row.pk in found]
    stored = [unit for row in rows for unit in row.units if len(unit) == _COLUMNS]
    places = _places_of({unit[_MESSAGE] for unit in stored} - {None})
    last = found.get(summaries[-1].pk)
    return Kept(
        units=tuple(_unit(unit, places) for unit in stored),
        named_weight=float(last.named_weight or 0.0) if last is not None else 0.0,
        invented=tuple(text for row in rows for text in row.invented or ()),
        messages={place.read: place.session for place in places.values()},
    )


def named_before(summary: SessionSummary | None) -> float:
    """Return what all weighs that was named up to a summary's end; 0 where nobody counted it."""
    if summary is None:
        return 0.0
    rows = SummaryUnits.objects.filter(pk=summary.pk)
    return float(rows.values_list("named_weight", flat=True).first() or 0.0)


_COLUMNS, _MESSAGE = 10, 4
# In `derived` of a snapshot that a summary is made for: Kept.messages of those that it continues.
KEPT_MESSAGES = "kept_messages"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a message stands, its id as the database gives it, and its session's."""

    position: int
    read: Any
    session: UUID


def _places_of(messages: Iterable[str]) -> dict[str, _Place]:
    """Return where those of the messages stand that there are, by their ids as they are stored."""
    if not messages:
        return {}
    as_read = Message._meta.pk.get_db_prep_value
    rows = Message.objects.filter(pk__in=messages).values_list("pk", "position", "session")
    return {
        str(pk): _Place(position, as_read(pk, connection), session)
        for pk, position, session in rows
    }


def _unit(row: Sequence[Any], places: Mapping[str, _Place]) -> Unit:
    text, kind, speaker, position, message, start, end, entities, worth, note = row
    place = None if message is None else places.get(message)
    return Unit(
        text=text,
        kind=_KINDS.get(kind, UnitKind.FACT),
        speaker=speaker,
        position=position if place is None else place.position,
        message=None if place is None else place.read,
        start=0 if place is None else start,
        end=0 if place is None else end,
        entities=tuple(entities),
        worth=worth,
        note=note,
    )


_KINDS = {kind.value: kind for kind in UnitKind}


# --- replays --------------------------------------------------------------------------------------


def copy_fidelity(copies: Mapping[UUID, UUID], ids: Mapping[UUID, UUID]) -> None:
    """Give copies of summaries ({old id: new id}) what the old ones have, for a replayed branch.

    `ids` leads from each message to the one that repeats it. A piece of a message whose text became
    shorter stays a piece of the older message: there its offsets still reproduce it.
    """
    left = iter(copies.items())
    while part := dict(islice(left, SUMMARIES_AT_ONCE)):
        _copy_part(part, ids)


def _copy_part(copies: Mapping[UUID, UUID], ids: Mapping[UUID, UUID]) -> None:
    lines = list(SummaryLine.objects.filter(summary__in=copies).order_by("pk"))
    units = list(SummaryUnits.objects.filter(summary__in=copies))
    qualities = list(SummaryQuality.objects.filter(summary__in=copies))
    named = {line.message_id for line in lines if line.message_id is not None}
    named |= {UUID(row[_MESSAGE]) for kept in units for row in kept.units if row[_MESSAGE]}
    same = _unchanged(named, ids)
    for line in lines:
        line.pk, line.summary_id = None, copies[line.summary_id]
        if line.message_id is not None:
            line.message_id = same.get(line.message_id, line.message_id)
    for kept in units:
        kept.summary_id = copies[kept.summary_id]
        kept.units = [_pointed(row, same) for row in kept.units]
    for quality in qualities:
        quality.summary_id = copies[quality.summary_id]
        quality.lost = [
            fact | {"message": _mapped(fact.get("message"), ids)} for fact in quality.lost
        ]
    SummaryLine.objects.bulk_create(lines, ROWS_AT_ONCE)
    SummaryUnits.objects.bulk_create(units)
    SummaryQuality.objects.bulk_create(qualities)


def _unchanged(named: Iterable[UUID], ids: Mapping[UUID, UUID]) -> dict[UUID, UUID]:
    """Return the replayed messages whose text has the length that it had: {old id: new id}.

    A replay only shortens texts.
    """
    moved = {old: ids[old] for old in named if old in ids}
    rows = Message.objects.filter(pk__in=[*moved, *moved.values()]).order_by()
    sizes = dict(rows.annotate(size=Length("content")).values_list("pk", "size"))
    return {old: new for old, new in moved.items() if sizes.get(old) == sizes.get(new)}


def _pointed(row: Sequence[Any], ids: Mapping[UUID, UUID]) -> list[Any]:
    return [*row[:_MESSAGE], _mapped(row[_MESSAGE], ids), *row[_MESSAGE + 1 :]]


def _mapped(message: str | None, ids: Mapping[UUID, UUID]) -> str | None:
    if not message:
        return None
    old = UUID(message)
    return str(ids.get(old, old))
