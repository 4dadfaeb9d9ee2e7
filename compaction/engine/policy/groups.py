"""Which cuts are legal: a call and its results are never parted
(docs/architecture.md#a-call-and-its-results-stay-together).

Results may stand further down than right behind their call, and ids may repeat: a result belongs to
the nearest earlier unanswered call, whatever ids repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from compaction.engine.types import Group, Item


def answered_calls(items: Sequence[Item]) -> dict[int, int]:
    """Return {index of a tool item: index of the item whose call it answers}; no orphans."""
    open_calls: list[tuple[str, int]] = []
    found: dict[int, int] = {}
    for index, item in enumerate(items):
        if item.role == "tool":
            for at in range(len(open_calls) - 1, -1, -1):
                if open_calls[at][0] == item.tool_call_id:
                    found[index] = open_calls.pop(at)[1]
                    break
        open_calls += [(call.id, index) for call in item.tool_calls]
    return found


def legal_cuts(items: Sequence[Item]) -> list[int]:
    """Return every i from 1 to n-1 where items[:i] and items[i:] may be parted, ascending."""
    # reach[i] is the last index that belongs with item i.
    reach = list(range(len(items)))
    for tool, caller in answered_calls(items).items():
        reach[caller] = max(reach[caller], tool)
    cuts: list[int] = []
    furthest = -1
    for index in range(1, len(items)):
        furthest = max(furthest, reach[index - 1])
        if furthest < index and not items[index - 1].tool_calls and items[index].role != "tool":
            cuts.append(index)
    return cuts


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


def open_call(items: Sequence[Item]) -> int:
    """Return where the calls begin that nobody has answered yet; the end when there are none."""
    start = len(items)
    while start > 0 and items[start - 1].role == "tool":
        start -= 1
    if start == 0 or not items[start - 1].tool_calls:
        return len(items)
    answered = [caller for caller in answered_calls(items).values() if caller == start - 1]
    return start - 1 if len(answered) < len(items[start - 1].tool_calls) else len(items)
