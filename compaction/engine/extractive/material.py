"""Everything that a summary can be made of: clauses of messages, of earlier passes, of older texts.

Read once, for whoever chooses from it or looks for where a line comes from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakValueDictionary

from compaction.engine.extractive.changes import with_changes
from compaction.engine.extractive.composition import line_key
from compaction.engine.extractive.cues import is_question
from compaction.engine.extractive.headings import ParsedLine, SummarySection, parse_summary
from compaction.engine.extractive.pieces import Pieces, continues
from compaction.engine.extractive.selection import Candidate, weigh
from compaction.engine.extractive.sentences import encodable, fold
from compaction.engine.extractive.units import entities_of, people_of, speakers_of, units_of
from compaction.engine.fidelity.entities import Entity, find_entities
from compaction.engine.provenance import Unit, UnitKind
from compaction.engine.types import Item, SummaryRequest

CARRIED_WORTH = 1.5
"""A line of an older summary was already chosen once out of many."""
OF_A_SUMMARY = "summary"
"""Who says a line of an older summary that is no clause of a message."""


@dataclass(kw_only=True)
class _Gathered:
    """All clauses of messages and of what was summarised before them: texts, and kept units."""

    asked: list[tuple[str, tuple[str, ...], tuple[Unit, ...]]]
    before: tuple[list[Unit], tuple[Unit, ...]]
    units: list[Unit]

    @cached_property
    def candidates(self) -> list[Candidate]:
        """The units with their terms."""
        return weigh(self.units)


class ReadItems:
    """Messages as they are read for summaries: what they name, and their clauses, read once."""

    def __init__(self, items: tuple[Item, ...]) -> None:
        self.items = items
        self._gathered: list[_Gathered] = []

    def gathered(self, request: SummaryRequest) -> _Gathered:
        """Return what the messages offer together with what a request has from before."""
        asked = (request.previous, request.texts, request.units)
        for one in self._gathered:
            if asked in one.asked:
                return one
        # A text of which every line is a kept unit offers nothing: with it and without it, the
        # same was said, and what of it was taken back is looked for once.
        before = (_carried(request), request.units)
        for one in self._gathered:
            if one.before == before:
                one.asked.append(asked)
                return one
        units = _gathered_from(request, before[0], self.units)
        found = _Gathered(asked=[asked], before=before, units=units)
        self._gathered.append(found)
        return found

    @cached_property
    def entities(self) -> list[list[Entity]]:
        """What each message names."""
        return entities_of(self.items)

    @cached_property
    def units(self) -> list[Unit]:
        """The clauses of the messages in time order."""
        return units_of(self.items, self.entities)


# As long as somebody holds what was read of a tuple of messages, nobody reads it again: a summary,
# its lines' sources and its quality are all made from it.
_held: WeakValueDictionary[int, ReadItems] = WeakValueDictionary()


def read_of(items: tuple[Item, ...]) -> ReadItems:
    """Return what is read of messages: the same as before, as long as somebody holds that."""
    found = _held.get(id(items))
    if found is None or found.items is not items:
        found = _held[id(items)] = ReadItems(items)
    return found


class Material:
    """What a request offers. Each part is worked out when it is first asked for, and then kept."""

    def __init__(self, request: SummaryRequest) -> None:
        self.request = request
        self._read = read_of(request.items)

    @property
    def entities(self) -> list[list[Entity]]:
        """What each message names."""
        return self._read.entities

    @property
    def units(self) -> list[Unit]:
        """All clauses in time order, those left out that were taken back."""
        return self._read.gathered(self.request).units

    @property
    def candidates(self) -> list[Candidate]:
        """The units with their terms."""
        return self._read.gathered(self.request).candidates


def gather_units(request: SummaryRequest) -> list[Unit]:
    """Return everything that a request offers, in time order, what was taken back left out.

    These are the units kept by earlier passes, lines of earlier summaries that are none of them,
    and the clauses of the messages. What is said twice stands where it was said last.
    """
    return _gathered_from(request, _carried(request), units_of(request.items))


def _kept(request: SummaryRequest) -> list[Unit]:
    return _since_answered(request.units) if request.items else list(request.units)


def _carried(request: SummaryRequest) -> list[Unit]:
    """Return the lines of earlier summaries that are no kept units."""
    kept = _kept(request)
    known = {line_key(unit.text) for unit in kept}
    named = {key for unit in kept for key in unit.entities}
    texts = (request.previous, *request.texts)
    before = min((unit.position for unit in kept), default=0) - len(texts)
    carried: list[Unit] = []
    pieces = Pieces(request.units)
    for number, text in enumerate(texts):
        for line in parse_summary(text):
            unit = _unit_of_line(line, position=before + number)
            if kept and not unit.speaker:
                # Where clauses were kept, what is none of them is a model's prose, not the user's.
                unit = unit._replace(speaker=OF_A_SUMMARY, kind=UnitKind.FACT)
            # Of identifiers without their sentences, those that a kept unit has are known.
            is_part = line.section is SummarySection.IDENTIFIERS and bool(unit.entities)
            is_known = line_key(unit.text) in known or (is_part and named >= set(unit.entities))
            is_known = is_known or bool(pieces.of(unit.text))
            if not is_known and any(map(str.isalnum, unit.text)):
                carried.append(unit)
    return carried


def _gathered_from(
    request: SummaryRequest, carried: Sequence[Unit], said: Sequence[Unit]
) -> list[Unit]:
    """Return what was carried, kept and said, each once, without what was taken back."""
    units = [*carried, *_kept(request), *said]
    alone: list[Unit] = []
    seen: tuple[set[str], set[str]] = set(), set()
    for unit in reversed(units):
        key, said_before = line_key(unit.text), seen[unit.kind is UnitKind.ACTION]
        if key not in said_before:
            said_before.add(key)
            alone.append(unit)
    alone.reverse()
    return with_changes(alone, people=people_of(alone) | speakers_of(request.items))


def _since_answered(units: Sequence[Unit]) -> list[Unit]:
    """Return units with questions that were the last word as facts: they have been answered.

    Of a question in pieces, the last one says that it asks.
    """
    found: list[Unit] = []
    behind: Unit | None = None
    for unit in reversed(units):
        if unit.kind is not UnitKind.QUESTION:
            behind = None
        elif is_question(unit.text) or (behind is not None and continues(unit, behind)):
            behind = unit
            unit = unit._replace(kind=UnitKind.FACT)
        else:
            behind = None
        found.append(unit)
    return found[::-1]


def _unit_of_line(line: ParsedLine, *, position: int) -> Unit:
    """Return a line of a summary as a unit whose message nobody knows."""
    return Unit(
        text=fold(encodable(line.text)),
        kind=line.kind,
        speaker=line.label,
        position=position,
        entities=tuple(dict.fromkeys(one.key for one in find_entities(line.text))),
        worth=CARRIED_WORTH,
        note=line.note,
    )
