"""Which cuts are legal: a call and its results are never parted
(docs/architecture.md#a-call-and-its-results-stay-together).

Results may stand further down than right behind their call, and ids may repeat: a result belongs to
the nearest earlier unanswered call, whatever ids repeat.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from chatapp.messages.pairing import pair
from compaction.engine.types import Group, Item


class MoreItemsNeeded(Exception):  # noqa: N818 - it is a question, not a fault
    """These items cannot tell where the cut falls: others decide that have not been read yet.

    With `all_of_them` there is no use in reading on by and by. `more` is about how many it takes,
    where that can be told; 0 where it cannot.
    """

    def __init__(self, *, all_of_them: bool = False, more: int = 0) -> None:
        super().__init__("The items that were read do not decide where the cut falls.")
        self.all_of_them = all_of_them
        self.more = more


def answered_calls(items: Sequence[Item]) -> dict[int, int]:
    """Return {index of a tool item: index of the item whose call it answers}; no orphans."""
    places = (
        (item.tool_call_id if item.role == "tool" else None, [call.id for call in item.tool_calls])
        for item in items
    )
    return {result: caller for result, (caller, _) in pair(places).items()}


def legal_cuts(items: Sequence[Item], *, answered: Mapping[int, int] | None = None) -> list[int]:
    """Return every i from 1 to n-1 where items[:i] and items[i:] may be parted, ascending.

    `answered` are the calls that results answer, where somebody has paired them already.
    """
    # reach[i] is the last index that belongs with item i.
    reach = list(range(len(items)))
    for tool, caller in (answered_calls(items) if answered is None else answered).items():
        reach[caller] = max(reach[caller], tool)
    cuts: list[int] = []
    furthest = -1
    for index in range(1, len(items)):
        furthest = max(furthest, reach[index - 1])
        if furthest < index and not items[index - 1].tool_calls and items[index].role != "tool":
            cuts.append(index)
    return cuts


@dataclass(frozen=True, slots=True, kw_only=True)
class LegalCuts:
    """The legal cuts of items that may be only the end of a list, or only its beginning; not both.

    A result without a call may answer one that stands before the items, and a call without a result
    may be answered behind them. What was not read can only make a cut illegal, and none from
    `lowest` to `highest`: a cut that is found there is the one of the whole list.
    """

    places: Sequence[int]
    lowest: int
    highest: int
    is_end: bool
    is_beginning: bool

    @classmethod
    def of(cls, items: Sequence[Item], *, earlier: bool = False, later: bool = False) -> LegalCuts:
        """Return the cuts of items that others precede (`earlier`) or follow (`later`)."""
        answered = answered_calls(items)
        lowest, highest = 0, len(items)
        if earlier:
            orphans = (i for i, item in enumerate(items) if item.role == "tool")
            lowest = 1 + max((i for i in orphans if i not in answered), default=0)
        if later:
            results = Counter(answered.values())
            waiting = (i for i, item in enumerate(items) if results[i] < len(item.tool_calls))
            highest = next(waiting, len(items) - 1)
        return cls(
            places=legal_cuts(items, answered=answered),
            lowest=lowest,
            highest=highest,
            is_end=earlier,
            is_beginning=later,
        )

    def last(self, goal: int) -> int:
        """Return the last cut up to a place, 0 for none. Raises MoreItemsNeeded."""
        at = bisect_right(self.places, goal)
        if not at and self.is_end:
            raise MoreItemsNeeded
        return self.settled(self.places[at - 1]) if at else 0

    def first(self, after: int, through: int) -> int:
        """Return the first cut behind a place and up to another, 0 for none.

        Raises MoreItemsNeeded.
        """
        at = bisect_right(self.places, after)
        if at < len(self.places) and self.places[at] <= through:
            return self.settled(self.places[at])
        if self.is_beginning and through > self.highest:
            raise MoreItemsNeeded
        return 0

    def settled(self, cut: int) -> int:
        """Return a cut that is legal in the whole list, too. Raises MoreItemsNeeded."""
        if not self.lowest <= cut <= self.highest:
            raise MoreItemsNeeded
        return cut


def groups(items: Sequence[Item]) -> list[Group]:
    """Return the items in stretches that may not be parted, in order."""
    bounds = [0, *legal_cuts(items), len(items)]
    return [Group(items=tuple(items[start:end])) for start, end in pairwise(bounds) if start < end]


def split_point(items: Sequence[Item], min_messages: int) -> int | None:
    """Return where to halve the items, or None when no legal place is left.

    The legal place nearest to the middle, both sides at least `min_messages` long where that can
    be; ties go to the lower index.
    """
    count = len(items)
    if count < 2:
        return None
    middle = count // 2
    smallest = min(min_messages, middle)
    legal = legal_cuts(items)
    preferred = [cut for cut in legal if smallest <= cut <= count - smallest]
    for cuts in (preferred, legal):
        if cuts:
            return min(cuts, key=lambda cut: (abs(cut - middle), cut))
    return None


def open_call(items: Sequence[Item], *, earlier: bool = False) -> int:
    """Return where the calls begin that nobody has answered yet; the end when there are none.

    Raises MoreItemsNeeded where the items, which others precede, are results alone.
    """
    start = len(items)
    while start > 0 and items[start - 1].role == "tool":
        start -= 1
    if start == 0 and earlier:
        raise MoreItemsNeeded
    if start == 0 or not items[start - 1].tool_calls:
        return len(items)
    answered = [caller for caller in answered_calls(items).values() if caller == start - 1]
    return start - 1 if len(answered) < len(items[start - 1].tool_calls) else len(items)
