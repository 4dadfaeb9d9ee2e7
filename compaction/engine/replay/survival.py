"""What of a conversation a request still holds: the share of what its messages name exactly.

Identifiers, markers (codes in capitals, as tickets have them), numbers with dates, and paths with
addresses. Each counts once, however often it is named. A request that holds a thing in another
spelling does not count as holding it: the figure compares profiles, it is no measure of a summary.
"""

from __future__ import annotations

import re
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
# Things of one conversation that are told apart; those beyond are not looked for.
MOST_NAMED = 100_000


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
    """What a conversation names, each thing once, gathered text by text."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}

    @property
    def keys(self) -> Mapping[str, str]:
        """The kind of each thing, by the form in which it is compared."""
        return self._kinds

    def add(self, items: Iterable[Item]) -> None:
        """Take in what messages name, in their texts and in their calls."""
        for item in items:
            for text in _read_of(item):
                if len(self._kinds) >= MOST_NAMED:
                    return
                for one in find_entities(text):
                    kind = kind_of(one)
                    if kind:
                        self._kinds.setdefault(one.key, kind)

    def survival(self, texts: Iterable[str]) -> dict[str, Survival]:
        """Return for each kind what of it stands in the texts of a request."""
        held: set[str] = set()
        for text in texts:
            held.update(one.key for one in find_entities(text) if one.key in self._kinds)
        counts = {kind: [0, 0] for kind in KINDS}
        for key, kind in self._kinds.items():
            counts[kind][0] += 1
            counts[kind][1] += key in held
        return {kind: Survival(named=named, held=kept) for kind, (named, kept) in counts.items()}


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
