"""Which candidates go in: greedily the most uncovered worth per token, in linear time.

The usual way, maximal marginal relevance, compares every candidate with every chosen one. Here
each candidate's similarity to what is chosen is kept as the worth of its terms that are not
covered yet. That only falls, so a heap with lazy updates finds the best candidate, and a limit
on updates per candidate bounds the whole by a multiple of the number of candidates.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from compaction.engine.extractive.candidates import Candidate
from compaction.engine.extractive.headings import Heading, SummaryLine
from compaction.engine.extractive.terms import extract_terms

MAX_UPDATES = 8
LINE_OVERHEAD_TOKENS = 12.0
"""Added to a candidate's size when it is ranked: many tiny lines read badly."""
COVERED_SHARE = 0.95
"""A candidate of whose worth this share is already said is left out."""
MIN_LINE_TOKENS = 4
MAX_MISSES = 30
"""So many candidates in a row that do not fit, and the basket counts as full."""
SMALLEST_GAIN = 0.01
"""Less than this is noise, such as the hundredth line of a log that says the same."""
LAST_ORDER = 1 << 40


class Rank(IntEnum):
    """How dear a chosen line is: when the whole turns out too large, the highest go first."""

    ESSENTIAL = 0
    IDENTIFIER = 1
    ACTION = 2
    SENTENCE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A line that goes in; `order` is its place under its heading."""

    line: SummaryLine
    order: int
    rank: Rank


@dataclass(slots=True, kw_only=True)
class Selection:
    """The lines chosen so far, with their cost, and the terms they cover."""

    budget: int
    count: Callable[[SummaryLine | Heading], int]
    choices: list[Choice] = field(default_factory=list)
    spent: int = 0
    carried_spent: int = 0
    covered: set[str] = field(default_factory=set)
    spent_on: dict[Heading, int] = field(default_factory=dict)
    _costs: dict[SummaryLine | Heading, int] = field(default_factory=dict)
    _taken: set[int] = field(default_factory=set)

    @property
    def left(self) -> int:
        """Tokens of the budget nobody has claimed."""
        return self.budget - self.spent

    def add(
        self,
        candidate: Candidate,
        *,
        line: SummaryLine | None = None,
        limit: int | None = None,
        rank: Rank = Rank.SENTENCE,
    ) -> bool:
        """Whether the candidate went in: it is new and fits what is left (or `limit`)."""
        if candidate.order in self._taken:
            return False
        line = line or candidate.line
        cost = self.price(line)
        if cost > self.left or (limit is not None and cost > limit):
            return False
        self._taken.add(candidate.order)
        self.choices.append(Choice(line=line, order=candidate.order, rank=rank))
        self.covered.update(candidate.terms.weights)
        self._pay(line, cost)
        return True

    def add_line(self, line: SummaryLine, *, order: int, rank: Rank) -> None:
        """Take a line that is no candidate's own; such lines stand after all others, by `order`."""
        self._pay(line, self.price(line))
        self.choices.append(Choice(line=line, order=LAST_ORDER + order, rank=rank))
        terms = extract_terms(line.text)
        self.covered.update(one.casefold() for one in (*terms.codes, *terms.identifiers))

    def _pay(self, line: SummaryLine, cost: int) -> None:
        self.spent += cost
        self.spent_on[line.heading] = self.spent_on.get(line.heading, 0) + cost
        if line.from_previous:
            self.carried_spent += cost

    def price(self, line: SummaryLine) -> int:
        """What a line would add: its own tokens, and its heading's when it is the first there."""
        return self.cost(line) + (0 if line.heading in self.spent_on else self.cost(line.heading))

    def cost(self, part: SummaryLine | Heading) -> int:
        """The tokens of a line or of a heading, counted once however often it is asked."""
        if part not in self._costs:
            self._costs[part] = self.count(part)
        return self._costs[part]


def estimated_tokens(text: str) -> float:
    """A cheap stand-in for counting, good enough to rank by: exact counts are for the chosen."""
    if text.isascii():
        return len(text) / 4
    wide = sum(character > "\u2e7f" for character in text)
    return wide + (len(text) - wide) / 4


def gain(candidate: Candidate, covered: set[str]) -> float:
    """What choosing the candidate now would add, per token; 0 when it would repeat."""
    size = estimated_tokens(candidate.line.text) + LINE_OVERHEAD_TOKENS
    return candidate.score * new_worth(candidate, covered) / size


def new_worth(candidate: Candidate, covered: set[str]) -> float:
    """The weight of what the candidate says and no chosen line does; 0 when it would repeat."""
    weights = candidate.terms.weights
    new = total = 0.0
    for term, weight in weights.items():
        total += weight
        if term not in covered:
            new += weight
    if new <= total * (1 - COVERED_SHARE):
        return 0.0
    return new


def fill(selection: Selection, candidates: Iterable[Candidate], *, carried_limit: int) -> None:
    """Add candidates while they fit; carried ones take more than their limit only of leftovers."""
    deferred = _fill(selection, candidates, carried_limit)
    if deferred:
        _fill(selection, deferred, selection.budget)


def _fill(
    selection: Selection, candidates: Iterable[Candidate], carried_limit: int
) -> list[Candidate]:
    heap = [(-gain(one, selection.covered), one.order, 0, one) for one in candidates]
    heapq.heapify(heap)
    deferred: list[Candidate] = []
    misses = 0
    while heap and selection.left >= MIN_LINE_TOKENS and misses < MAX_MISSES:
        _, order, updates, candidate = heapq.heappop(heap)
        current = gain(candidate, selection.covered)
        if current < SMALLEST_GAIN:
            continue
        if updates < MAX_UPDATES and heap and current < -heap[0][0]:
            heapq.heappush(heap, (-current, order, updates + 1, candidate))
            continue
        if estimated_tokens(candidate.line.text) > 3 * selection.left:
            continue
        limit = carried_limit - selection.carried_spent if candidate.line.from_previous else None
        if selection.add(candidate, limit=limit):
            misses = 0
        elif limit is not None:
            deferred.append(candidate)
        else:
            misses += 1
    return deferred
