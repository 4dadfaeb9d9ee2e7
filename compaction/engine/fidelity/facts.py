"""What is named, each thing once: of messages in covered.py, of a summary here."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compaction.engine.fidelity.entities import (
    KIND_WEIGHTS,
    NAME,
    NUMBER,
    Entity,
    find_entities,
    key_of,
    small_words,
)
from compaction.engine.fidelity.spellings import SCALE_AFTER, Sought, sought_of
from compaction.engine.types import Item

USER_FACTOR = 2.0
MOST_NAMED_BY_SUMMARY = 1_000

# Gone before anything is looked for: references to messages, numbers of lists, hidden values.
_MARKS = re.compile(
    r"\[#?\d{1,6}(?:[-–,; .]{1,2}#?\d{1,6}){0,20}\]|\((?:asked in )?#\d{1,6}(?:\.\d{1,6})?\)"
    r"|^\s{0,20}\d{1,3}[.)](?=\s)"
    r"|\[REDACTED:[^\]\n]{0,40}\]|\[(?:read|run|modified)\]",
    re.MULTILINE,
)
_HEADING = re.compile(
    r"^\s{0,8}(?:#{1,6}\s.*|\*\*[^*\n]{1,60}\*\*:?\s*|[-*]?\s?\**[^\n:.,;]{1,40}:\**(?=\s))",
    re.MULTILINE,
)
_COUNTS = re.compile(
    # It begins with a digit whatever follows: so the search passes quickly over the rest.
    r"\d(?<!\w\d)\d{0,2} (?:more|other|further|messages?|turns?|lines?|items?|files?|times|"
    r"calls?|steps?|points?)\b"
)


def _with_scale(one: Entity, text: str) -> Entity:
    """Return the number with the word that multiplies it: 3.4 is not 3.4 billion."""
    scale = SCALE_AFTER.match(text, one.end)
    if not scale:
        return one
    written = text[one.start : scale.end()]
    return Entity(NUMBER, written, key_of(written), one.start, scale.end())


@dataclass(slots=True)
class Fact:
    """An entity, once: where it was named first, the most that its speakers count, how often."""

    kind: str
    key: str
    text: str
    item: Item | None
    start: int
    end: int
    factor: float
    times: int = 1
    _sought: Sought | None = None

    @property
    def sought(self) -> Sought:
        """What is looked for in each text that is measured."""
        if self._sought is None:
            self._sought = sought_of(self.kind, self.key)
        return self._sought

    @property
    def weight(self) -> float:
        """What it counts in the measure."""
        return KIND_WEIGHTS[self.kind] * self.factor

    @property
    def is_users(self) -> bool:
        """Whether the user named it."""
        return self.factor == USER_FACTOR


def without_marks(text: str) -> str:
    """Return a summary without what is of the summary alone: references, numbers of its lists."""
    return _MARKS.sub(" ", text)


def facts_of_summary(text: str, factors: Mapping[str, float] | None = None) -> dict[str, Fact]:
    """Return what a summary names, each once; headings and labels name nothing."""
    return facts_named(without_marks(text), factors)


def facts_named(text: str, factors: Mapping[str, float] | None = None) -> dict[str, Fact]:
    """Return the same of a summary without its marks."""
    headings = _Spans([match.span() for match in _HEADING.finditer(text)])
    counts = {match.start() for match in _COUNTS.finditer(text)}
    facts: dict[str, Fact] = {}
    for one in find_entities(text, small=small_words((" ".join(set(text.split())),))):
        if one.kind == NAME and one.start in headings:
            continue
        if one.kind == NUMBER and one.start in counts:
            continue
        if one.kind == NUMBER:
            one = _with_scale(one, text)
        factor = (factors or {}).get(one.key, 1.0)
        facts.setdefault(
            one.key, Fact(one.kind, one.key, one.text, None, one.start, one.end, factor)
        )
        if len(facts) >= MOST_NAMED_BY_SUMMARY:
            break
    return facts


class _Spans:
    """Parts of a text, in order and apart from each other."""

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        self._spans = spans

    def __contains__(self, place: int) -> bool:
        index = bisect_right(self._spans, place, key=lambda span: span[0])
        return index > 0 and place < self._spans[index - 1][1]
