"""Which units go in: greedily the most that nothing chosen says yet, per token, in linear time.

The usual way, maximal marginal relevance, compares every unit with every chosen one. Here what a
unit adds is the worth of its terms that are not covered yet. That only falls, so a heap with lazy
updates finds the best one, and a limit on updates per unit bounds the whole.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.pleasantries import is_pleasantry
from compaction.engine.extractive.sentences import remembered
from compaction.engine.extractive.terms import LONGEST_REMEMBERED, rarity, terms_of
from compaction.engine.provenance import Unit

_WIDE = lazy_pattern("[\u2e80-\U0010ffff]")

MAX_UPDATES = 12
LINE_OVERHEAD_TOKENS = 10.0
"""Added to a unit's size when it is ranked: many tiny lines read badly."""
SAID_AGAIN = 0.2
"""Each term counts once; the second time, a fifth, so that a whole sentence beats its scraps."""
SAME_MESSAGE = 0.95
"""What a further unit of one message is worth: some of each message beats all of one."""
MAX_MISSES = 40
"""So many units in a row that do not fit, and the room counts as full."""
SMALLEST_GAIN = 0.05
"""Less than this is noise, such as "Nice." and the hundredth line of a log that says the same."""
COVERED_SHARE = 0.15
"""A unit of whose terms less than this is new is left out."""


@dataclass(slots=True, kw_only=True)
class Candidate:
    """A unit with its terms, weighed by how rare they are in this conversation."""

    unit: Unit
    order: int
    terms: dict[str, float]
    whole: float
    worth: float
    size: float


def telling(candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Return the candidates without a model's kindness, or all where nothing else was said."""
    told = [
        one
        for one in candidates
        if one.unit.speaker != "assistant" or not is_pleasantry(one.unit.text)
    ]
    return told or candidates


def weigh(units: Sequence[Unit]) -> list[Candidate]:
    """Return the units as candidates, with their terms."""
    read = [_read(unit.text, unit.entities, unit.note) for unit in units]
    rare = rarity([terms for terms, _ in read])
    candidates = []
    for order, (unit, (terms, size)) in enumerate(zip(units, read, strict=True)):
        weights = {term: weight * rare[term] for term, weight in terms.items()}
        candidates.append(
            Candidate(
                unit=unit,
                order=order,
                terms=weights,
                whole=sum(weights.values()),
                worth=unit.worth,
                size=size,
            )
        )
    return candidates


@remembered(longest=LONGEST_REMEMBERED)
def _read(text: str, entities: tuple[str, ...], note: str) -> tuple[Mapping[str, float], float]:
    """Return a unit's terms and its size; each pass over a conversation meets kept ones again."""
    terms = terms_of(text, (*entities, note) if note else entities)
    return terms, estimated_tokens(text) + LINE_OVERHEAD_TOKENS


def preferring(
    candidates: Sequence[Candidate], wanted: Iterable[str], worth: float
) -> Sequence[Candidate]:
    """Return the candidates with those worth more, by a factor, that have a `wanted` term."""
    wishes = set(wanted)
    if not wishes:
        return candidates
    return [
        one if wishes.isdisjoint(one.terms) else replace(one, worth=one.worth * worth)
        for one in candidates
    ]


@dataclass(slots=True, kw_only=True)
class Selection:
    """The units chosen so far, what they cost and what they cover.

    `cost` returns the tokens that a unit adds to the summary.
    """

    budget: int
    cost: Callable[[Unit], int]
    chosen: list[Candidate] = field(default_factory=list)
    spent: int = 0
    _covered: set[str] = field(default_factory=set)
    _of_message: dict[int, int] = field(default_factory=dict)
    _taken: set[int] = field(default_factory=set)
    # What candidates added when they were looked at last: they can only add less since.
    _most: dict[int, float] = field(default_factory=dict)

    def gain(self, candidate: Candidate) -> float:
        """What choosing the candidate now would add, per token; 0 when it would repeat."""
        # A loop, not a sum: this is called more often than all else.
        covered, terms = self._covered, candidate.terms
        new = 0.0
        if covered and not covered.isdisjoint(terms):
            for term, weight in terms.items():
                if term not in covered:
                    new += weight
        else:
            new = candidate.whole
        if new <= candidate.whole * COVERED_SHARE:
            return 0.0
        said = SAID_AGAIN * (candidate.whole - new)
        added = candidate.worth * (new + said) / candidate.size
        if added <= SMALLEST_GAIN:
            return 0.0
        return added * SAME_MESSAGE ** self._of_message.get(candidate.unit.position, 0)

    def add(self, candidate: Candidate, *, limit: int | None = None) -> bool:
        """Whether the candidate went in: it fits what is left, and `limit` where there is one."""
        if candidate.order in self._taken:
            return False
        cost = self.cost(candidate.unit)
        left = self.budget - self.spent
        if cost > (left if limit is None else min(left, limit)):
            return False
        self._taken.add(candidate.order)
        self.chosen.append(candidate)
        self.spent += cost
        self._covered.update(candidate.terms)
        position = candidate.unit.position
        self._of_message[position] = self._of_message.get(position, 0) + 1
        return True

    def has(self, candidate: Candidate) -> bool:
        """Whether the candidate was chosen."""
        return candidate.order in self._taken

    def cover(self, terms: Iterable[str]) -> None:
        """Take terms for said: something else in the summary says them."""
        self._covered.update(terms)

    def is_said(self, term: str) -> bool:
        """Whether something chosen has the term."""
        return term in self._covered

    def fill(
        self,
        candidates: Iterable[Candidate],
        *,
        upto: int | None = None,
        until: int | None = None,
    ) -> None:
        """Add the best candidates while they fit the budget, or `upto` tokens in all.

        It ends where `until` tokens in all are reached: the last one may go beyond.
        """
        budget, self.budget = (
            self.budget,
            min(self.budget, upto if upto is not None else self.budget),
        )
        heap = self._heap(candidates)
        misses = 0
        while heap and misses < MAX_MISSES and (until is None or self.spent < until):
            _, order, updates, candidate = heapq.heappop(heap)
            current = self._most[order] = self.gain(candidate)
            if current <= 0:
                continue
            if updates < MAX_UPDATES and heap and current < -heap[0][0]:
                heapq.heappush(heap, (-current, order, updates + 1, candidate))
                continue
            if self.add(candidate):
                misses = 0
            else:
                misses += 1
        self.budget = budget

    def _heap(self, candidates: Iterable[Candidate]) -> list[tuple[float, int, int, Candidate]]:
        """Return what can be added, the most first; what an earlier look says is not an update."""
        heap, most, taken = [], self._most, self._taken
        for one in candidates:
            order = one.order
            if order in taken:
                continue
            known = most.get(order)
            if known is None:
                known = most[order] = self.gain(one)
                updates = 0
            else:
                updates = -1
            if known > 0:
                heap.append((-known, order, updates, one))
        heapq.heapify(heap)
        return heap


def estimated_tokens(text: str) -> float:
    """A cheap stand-in for counting, good enough to rank by: exact counts are for the chosen."""
    if text.isascii():
        return len(text) / 4
    wide = len(_WIDE.findall(text))
    return wide + (len(text) - wide) / 4
