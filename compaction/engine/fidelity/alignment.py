"""From a line of a summary to the pieces of messages it comes from.

A line is `exact` where it is a unit's own text, `cited` where the model named a message that has a
term in common with it, `matched` where a unit shares what it names or its rare words, else `none`.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from compaction.engine.extractive.changes import without_note
from compaction.engine.extractive.headings import SEPARATOR, title_of
from compaction.engine.extractive.pieces import Pieces, without_open_end
from compaction.engine.extractive.selection import Candidate
from compaction.engine.extractive.sentences import fold, without_bullet
from compaction.engine.extractive.terms import pairs_of, words_of
from compaction.engine.fidelity.entities import find_entities
from compaction.engine.provenance import Origin, SourcedLine, SourcePiece, Unit

FEWEST_RARE_WORDS = 3
"""A line that names nothing is matched by so many words in common."""
COMMON_SHARE = 0.05
"""Of the units, at most, that may have a word which still says where a line comes from."""
MOST_SOURCES = 4
MOST_PARTS = 40

# Never directly behind a word: `array[12]` is code.
_CITATION = re.compile(
    r"(?:\s|(?<![\w)\]])|(?<=\]))\[#?(\d{1,7}(?:\.\d{1,6})?"
    r"(?:\s?[,;–-]\s?#?\d{1,7}(?:\.\d{1,6})?){0,7})\]"
)
_IDENTIFYING = re.compile(r"\d|@|/")
_NUMBER = re.compile(r"\d{1,7}(?:\.\d{1,6})?")
_LABEL = re.compile(r"\[[^\W\d_][\w .'’-]{0,40}\] (?=\S)")
_LINE = re.compile(r"[^\n]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cited:
    """A text without its citations, and the message numbers that each line of it cited."""

    text: str
    numbers: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


def take_citations(text: str, known: frozenset[str]) -> Cited:
    """Return a text without the citations of messages that are `known` by their numbers.

    A bracket with any other number is part of the text and stays.
    """
    numbers: dict[int, tuple[str, ...]] = {}
    lines: list[str] = []
    for line in text.split("\n"):
        found: list[str] = []

        def take(match: re.Match[str], found: list[str] = found) -> str:
            named = _NUMBER.findall(match[1])
            if not named or any(number not in known for number in named):
                return match[0]
            found.extend(named)
            return ""

        without = _CITATION.sub(take, line)
        if found and not without.strip():
            continue  # nothing but citations: no line is left of it
        if found:
            numbers[len(lines)] = tuple(dict.fromkeys(found))
        lines.append(without)
    return Cited(text="\n".join(lines), numbers=numbers)


def trace(
    text: str,
    candidates: Sequence[Candidate],
    *,
    cited: Mapping[int, tuple[int, ...]] | None = None,
) -> tuple[SourcedLine, ...]:
    """Return every line of a summary that is no heading, with its sources.

    `candidates` are all clauses of the covered messages that are known; `cited` are the positions
    of the messages that the model named, by the line's index in the text.
    """
    finder = Finder(candidates, text)
    lines = []
    for index, match in enumerate(_LINE.finditer(text)):
        line = match[0].strip()
        if not line or title_of(line) or not any(map(str.isalnum, line)):
            continue
        number = text.count("\n", 0, match.start()) if cited else index
        origin, sources = finder.find(line, (cited or {}).get(number, ()))
        start = match.start() + len(match[0]) - len(match[0].lstrip())
        lines.append(
            SourcedLine(
                start=start,
                end=match.start() + len(match[0].rstrip()),
                origin=origin,
                sources=sources,
            )
        )
    return tuple(lines)


class Finder:
    """Finds where lines come from.

    Units are found by their text at once; by their terms only when a line is no unit's own.
    """

    def __init__(self, candidates: Sequence[Candidate], text: str = "") -> None:
        """Look among candidates; of the lines of `text` alone, where there is one."""
        self._text = text
        self._candidates = [one for one in candidates if one.unit.message is not None]
        self._by_text = {one.unit.text: one.unit for one in self._candidates}
        # A line has no comma at its end.
        self._by_line = {
            line.text: line
            for one in self._candidates
            if (line := without_open_end(one.unit)) is not one.unit
        }
        self._pieces = Pieces(one.unit for one in self._candidates)
        self._by_term: defaultdict[str, list[int]] = defaultdict(list)
        self._at: dict[int, list[int]] = {}

    def nearest(self, line: str) -> Unit | None:
        """Return the clause that a line says again, or that it has most in common with."""
        text = _bare(line)
        if (unit := self._unit_of(text)) is not None:
            return unit
        self._prepare()
        index = self._best_index(_terms(text))
        return None if index is None else self._candidates[index].unit

    def find(self, line: str, positions: Sequence[int]) -> tuple[Origin, tuple[SourcePiece, ...]]:
        """Return how a line is known to come from messages, and from which pieces."""
        text = _bare(line)
        unit = self._unit_of(text)
        if unit is not None and unit.source is not None:
            return Origin.EXACT, (unit.source,)
        if pieces := self._pieces.of(text):
            first, last = pieces[0], pieces[-1]
            if not text.endswith(last.text):
                last = without_open_end(last)
            piece = SourcePiece(message=first.message, start=first.start, end=last.end)
            return Origin.EXACT, (piece,)
        if SEPARATOR in text and (sources := tuple(self._parts(text))):
            return Origin.EXACT, sources
        self._prepare()
        terms = _terms(text)
        if positions and (sources := tuple(self._cited(terms, positions))):
            return Origin.CITED, sources
        best = self._best(terms)
        return (Origin.MATCHED, best) if best else (Origin.NONE, ())

    def _unit_of(self, text: str) -> Unit | None:
        """Return the unit that a line is, its last sign apart."""
        by_text = self._by_text
        return by_text.get(text) or by_text.get(f"{text}.") or self._by_line.get(text)

    def _parts(self, text: str) -> Iterator[SourcePiece]:
        """Yield the sources of identifiers that share a line; nothing where one part is none."""
        parts = text.split(SEPARATOR)
        if len(parts) > MOST_PARTS or not all(map(_IDENTIFYING.search, parts)):
            return
        found = []
        for part in parts:
            unit = next((one.unit for one in self._candidates if part in one.unit.text), None)
            if unit is None or unit.source is None:
                return
            found.append((unit, part))
        for unit, part in found:
            start = unit.start + unit.text.index(part)
            is_verbatim = unit.end - unit.start == len(unit.text)
            end = start + len(part)
            piece = SourcePiece(message=unit.message, start=start, end=end)
            yield (
                piece
                if is_verbatim
                else SourcePiece(message=unit.message, start=unit.start, end=unit.end)
            )

    def _prepare(self) -> None:
        if self._at:
            return
        # Summaries have few of the terms of a conversation.
        lines = filter(str.strip, self._text.splitlines())
        wanted = {term for line in lines for term in _terms(_bare(line))}
        for index, one in enumerate(self._candidates):
            self._at.setdefault(one.unit.position, []).append(index)
            for term in one.terms.keys() & wanted if self._text else one.terms:
                self._by_term[term].append(index)

    def _rarity(self, term: str) -> float:
        return math.log(1 + (len(self._candidates) + 1) / len(self._by_term[term]))

    def _cited(self, terms: frozenset[str], positions: Sequence[int]) -> Iterator[SourcePiece]:
        """Yield the best piece of each cited message that has a term in common with the line."""
        for position in positions[:MOST_SOURCES]:
            found = [(self._shared(index, terms), -index) for index in self._at.get(position, ())]
            score, index = max(found, default=(0.0, 0))
            if score > 0 and (source := self._candidates[-index].unit.source):
                yield source

    def _shared(self, index: int, terms: frozenset[str]) -> float:
        # Rounded once: the order of a set is another in each process, and must break no tie.
        return math.fsum(map(self._rarity, self._candidates[index].terms.keys() & terms))

    def _best(self, terms: frozenset[str]) -> tuple[SourcePiece, ...]:
        index = self._best_index(terms)
        source = None if index is None else self._candidates[index].unit.source
        return (source,) if source else ()

    def _best_index(self, terms: frozenset[str]) -> int | None:
        common = max(3, int(COMMON_SHARE * len(self._candidates)))
        rarities: defaultdict[int, list[float]] = defaultdict(list)
        words: dict[int, int] = {}
        for term in terms:
            found = self._by_term.get(term, ())
            if not found or len(found) > common:
                continue
            rarity = self._rarity(term)
            for index in found:
                rarities[index].append(rarity)
                is_named = term in self._candidates[index].unit.entities
                sure = FEWEST_RARE_WORDS if is_named else 1
                words[index] = words.get(index, 0) + sure
        enough = [index for index in rarities if words[index] >= FEWEST_RARE_WORDS]
        return max(enough, key=lambda index: (math.fsum(rarities[index]), -index), default=None)


def _bare(line: str) -> str:
    """Return a line's own text: without bullet, speaker, reference and note."""
    text = without_bullet(fold(line))
    text = _LABEL.sub("", text, count=1)
    text = _CITATION.sub("", text).strip()
    return without_note(text)[0]


def _terms(text: str) -> frozenset[str]:
    keys = (entity.key for entity in find_entities(text))
    return frozenset((*words_of(text), *pairs_of(text), *keys))
