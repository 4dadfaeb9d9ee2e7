"""What of a conversation a request still holds: the share of what its messages name exactly.

Identifiers, markers (codes in capitals, as tickets have them), numbers with dates, and paths with
addresses. Each counts once, however often it is named. A request that holds a thing in another
spelling does not count as holding it: the figure compares profiles, it is no measure of a summary.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from compaction.engine.fidelity.entities import (
    DATE,
    IDENTIFIER,
    MAIL,
    NUMBER,
    PATH,
    URL,
    Entity,
    find_entities,
)
from compaction.engine.fidelity.spellings import is_small_count
from compaction.engine.types import Item

IDENTIFIERS, MARKERS, NUMBERS, PATHS = "identifiers", "markers", "numbers", "paths"
KINDS = (IDENTIFIERS, MARKERS, NUMBERS, PATHS)
_KIND_OF = {
    IDENTIFIER: IDENTIFIERS,
    NUMBER: NUMBERS,
    DATE: NUMBERS,
    PATH: PATHS,
    URL: PATHS,
    MAIL: PATHS,
}
_MARKER = re.compile(r"[A-Z]{2}[A-Z0-9#:_-]{1,80}")
# Of one text so many characters are read, at its head and at its end; outputs of tools have less
# to say for their length.
HEAD, END = 20_000, 5_000
OUTPUT_HEAD, OUTPUT_END = 4_000, 1_000
ARGUMENT_CHARACTERS = 2_000
# Things of one conversation that are told apart; those beyond are not looked for. Each takes one of
# so many slots, a power of two.
MOST_NAMED = 100_000
SLOTS = 1 << 17
_DIGEST = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Survival:
    """How many things of a kind were named, and how many of them the request still holds."""

    named: int
    held: int

    @property
    def share(self) -> float | None:
        """The part that is held; None where nothing was named."""
        return self.held / self.named if self.named else None


class Named:
    """What a conversation names, each thing once, gathered text by text.

    It is a hash table of a fixed size, with digests of 64 bits in place of the things: of 100,000
    things two have the same digest once in some billion conversations.
    """

    def __init__(self) -> None:
        self._digests = array("Q", bytes(8 * SLOTS))
        self._kinds = bytearray(SLOTS)
        self._named = dict.fromkeys(KINDS, 0)
        self._count = 0

    def add(self, items: Iterable[Item]) -> None:
        """Take in what messages name, in their texts and in their calls."""
        for item in items:
            for text in _read_of(item):
                if self._count >= MOST_NAMED:
                    return
                for one in find_entities(text):
                    kind = kind_of(one)
                    if kind:
                        self._add(one.key, kind)

    def _add(self, key: str, kind: str) -> None:
        slot = self._slot(key)
        if not self._digests[slot] and self._count < MOST_NAMED:
            self._digests[slot], self._kinds[slot] = _digest(key), KINDS.index(kind)
            self._named[kind] += 1
            self._count += 1

    def _slot(self, key: str) -> int:
        """Return the slot of a thing, or the empty one that it would take."""
        digest, digests = _digest(key), self._digests
        slot = digest % SLOTS
        while digests[slot] and digests[slot] != digest:
            slot = (slot + 1) % SLOTS
        return slot

    def survival(self, texts: Iterable[str]) -> dict[str, Survival]:
        """Return for each kind what of it stands in the texts of a request."""
        slots = {self._slot(one.key) for text in texts for one in find_entities(text)}
        held = dict.fromkeys(KINDS, 0)
        for slot in slots:
            if self._digests[slot]:
                held[KINDS[self._kinds[slot]]] += 1
        return {kind: Survival(named=self._named[kind], held=held[kind]) for kind in KINDS}


def _digest(key: str) -> int:
    """Return what stands for a thing; 0 marks an empty slot."""
    return hash(key) & _DIGEST or 1


def kind_of(entity: Entity) -> str:
    """Return the kind that an entity counts as; empty for names and small numbers."""
    if entity.kind == NUMBER and is_small_count(entity.key):
        return ""
    if entity.kind == IDENTIFIER and _MARKER.fullmatch(entity.text):
        return MARKERS if any(map(str.isdigit, entity.text)) else IDENTIFIERS
    return _KIND_OF.get(entity.kind, "")


def joined_survival(parts: Iterable[Mapping[str, Survival]]) -> dict[str, Survival]:
    """Return the sums of several conversations."""
    found = {kind: Survival(named=0, held=0) for kind in KINDS}
    for part in parts:
        for kind, one in part.items():
            known = found[kind]
            found[kind] = Survival(named=known.named + one.named, held=known.held + one.held)
    return found


def _read_of(item: Item) -> Iterator[str]:
    head, end = (OUTPUT_HEAD, OUTPUT_END) if item.role == "tool" else (HEAD, END)
    if len(item.text) <= head + end:
        yield item.text
    else:
        yield item.text[:head]
        yield item.text[-end:]
    for call in item.tool_calls:
        yield call.arguments[:ARGUMENT_CHARACTERS]
