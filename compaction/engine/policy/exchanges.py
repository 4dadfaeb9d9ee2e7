"""Exchanges: what lies between legal cuts from one answer to the next.

An exchange is the messages that came in, the answer to them, and the results of the calls that the
answer asked for. It is never parted, and neither is a group
(docs/architecture.md#a-call-and-its-results-stay-together). What follows the last answer has none
yet: it belongs to the last exchange until it is answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from compaction.engine.policy.groups import LegalCuts, MoreItemsNeeded
from compaction.engine.types import Item


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryExchange:
    """The items of one exchange, in order."""

    items: tuple[Item, ...]

    @property
    def chars(self) -> int:
        """Its size: the characters of all its messages, counted when they were stored."""
        return size_of(self.items)

    @property
    def is_answered(self) -> bool:
        """Whether there is an answer in it; only the last one may lack it."""
        return any(item.role == "assistant" for item in self.items)


def size_of(items: Sequence[Item]) -> int:
    """Return the characters that items have together."""
    return sum(item.chars for item in items)


def exchanges(items: Sequence[Item]) -> list[HistoryExchange]:
    """Return the exchanges of a whole list, oldest first; together they are the list."""
    bounds = [len(items), *exchange_starts(items)]
    found = [HistoryExchange(items=tuple(items[start:end])) for end, start in pairwise(bounds)]
    return [one for one in reversed(found) if one.items]


def exchange_starts(items: Sequence[Item], *, earlier: bool = False) -> Iterator[int]:
    """Yield where exchanges begin, the newest first, down to 0.

    Raises MoreItemsNeeded where items that stand before these (`earlier`) would decide, and in
    place of the 0: the exchange at the beginning may have begun before it.
    """
    cuts = LegalCuts.of(items, earlier=earlier)
    is_answered, end = False, len(items)
    for before, cut in reversed(list(pairwise([0, *cuts.places]))):
        is_answered = is_answered or _has_answer(items[cut:end])
        end = cut
        if not is_answered:
            continue
        if earlier and cut < cuts.lowest:
            raise MoreItemsNeeded
        # The group that ends here holds an answer: the exchange is complete, another one begins.
        if _has_answer(items[before:cut]):
            yield cut
        elif earlier and before < cuts.lowest:
            raise MoreItemsNeeded
    if earlier:
        raise MoreItemsNeeded
    yield 0


def _has_answer(items: Sequence[Item]) -> bool:
    return any(item.role == "assistant" for item in items)
