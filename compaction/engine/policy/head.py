"""How much of a history one call reads (`head_chars_limit`), and what becomes of more than that.

Halved, all of it is read. Dropped, its beginning is not, in the established way: the history is cut
into segments of a third of the limit, and of four and more the last two or three are kept, so that
what is kept begins at the same place for a while and a server's prompt cache holds. The way has its
corners (a larger history may keep less), which is why it is there for comparison only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from compaction.engine.abridged import truncate_middle
from compaction.engine.parameters import Profile
from compaction.engine.policy.exchanges import exchanges, size_of
from compaction.engine.types import Item, Outcome

SEGMENTS_A_LIMIT = 3
LEAST_SEGMENTS_TO_DROP = 4
DROP = "drop"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryHead:
    """What a summariser reads of a history: how many items were dropped before, and the rest."""

    dropped: int
    items: tuple[Item, ...]


def first_kept(sizes: Sequence[int], limit: int) -> int:
    """Return the index of the first exchange that is kept, by the sizes of all."""
    starts, current = [0], 0
    for index, size in enumerate(sizes):
        # In whole numbers: a third of a limit is none.
        if SEGMENTS_A_LIMIT * (current + size) > limit:
            starts.append(index)
            current = 0
        current += size
    if len(starts) < LEAST_SEGMENTS_TO_DROP:
        return 0
    # Only every second segment moves the beginning.
    return starts[2 * ((len(starts) - 2) // 2)]


def read_head(items: Sequence[Item], profile: Profile) -> HistoryHead:
    """Return what is read of the items: all, unless the profile has their beginning dropped.

    Whole exchanges are dropped, so no call is parted from its results. What is still longer than
    the limit is shortened in its longest texts: the limit holds.
    """
    limit = profile.head_chars_limit
    if profile.head_overflow != DROP or limit <= 0:
        return HistoryHead(dropped=0, items=tuple(items))
    found = exchanges(items)
    first = first_kept([one.chars for one in found], limit)
    kept = tuple(item for one in found[first:] for item in one.items)
    return HistoryHead(dropped=len(items) - len(kept), items=_within(kept, limit))


def with_dropped(outcome: Outcome, head: HistoryHead, items: Sequence[Item]) -> Outcome:
    """Return an outcome that stands for what was dropped unread, too, and says that it was cut.

    The messages would be sent verbatim for ever otherwise.
    """
    whole = tuple(items[: head.dropped + len(outcome.items)])
    if head.items == whole[head.dropped :] and not head.dropped:
        return outcome
    metadata = dict(outcome.metadata) | {"dropped_messages": head.dropped}
    return replace(outcome, items=whole, truncated=True, metadata=metadata)


def _within(items: tuple[Item, ...], limit: int) -> tuple[Item, ...]:
    """Return the items, their longest texts cut in the middle to one length that makes them fit."""
    left = limit - (size_of(items) - sum(len(item.text) for item in items))
    longest, rest = 0, sorted(len(item.text) for item in items)
    if size_of(items) <= limit or not rest:
        return items
    for number, size in enumerate(rest):
        # Each of those that are left may have as much as this one, or an equal share.
        longest = max(0, left) // (len(rest) - number)
        if size > longest:
            break
        left -= size
    return tuple(_cut(item, longest) if len(item.text) > longest else item for item in items)


def _cut(item: Item, longest: int) -> Item:
    text = truncate_middle(item.text, longest)
    cut = len(item.text) - len(text)
    tokens = -(-item.tokens * (item.chars - cut) // max(1, item.chars))
    return replace(item, text=text, chars=item.chars - cut, tokens=tokens)


def must_be_halved(items: Sequence[Item], profile: Profile, cut: int | None) -> bool:
    """Whether a call may not read so many items at once, and a cut divides them.

    A single exchange that is longer than the limit is read all the same: nothing is lost.
    """
    read = sum(
        len(item.text) + sum(len(call.arguments) for call in item.tool_calls) for item in items
    )
    return 0 < profile.head_chars_limit < read and cut is not None
