"""How much of a history one call reads (`head_chars_limit`), and what becomes of more than that.

Halved, all of it is read. Dropped, its beginning is not, in the established way: the history is cut
into segments of a third of the limit, and of four and more the last two or three are kept, so that
what is kept begins at the same place for a while and a server's prompt cache holds. The way has its
corners (a larger history may keep less), which is why it is there for comparison only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compaction.engine.abridged import truncate_middle
from compaction.engine.parameters import Profile
from compaction.engine.policy.exchanges import exchanges
from compaction.engine.types import Item

SEGMENTS_A_LIMIT = 3
LEAST_SEGMENTS_TO_DROP = 4
DROP = "drop"


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


def count_dropped(items: Sequence[Item], profile: Profile) -> int:
    """Return how many of the oldest items nobody reads; 0 unless the profile has them dropped.

    Whole exchanges are dropped, so no call is parted from its results.
    """
    if not _drops(profile):
        return 0
    found = exchanges(items)
    first = first_kept([one.chars for one in found], profile.head_chars_limit)
    return sum(len(one.items) for one in found[:first])


def within_limit(items: Sequence[Item], profile: Profile) -> tuple[Item, ...]:
    """Return the items that are left as one call reads them, where a profile drops the others.

    What is still longer than the limit has its longest texts cut in the middle, to one length that
    makes them fit. Secrets are hidden before: half of one would not be known.
    """
    limit, items = profile.head_chars_limit, tuple(items)
    if not _drops(profile) or (size := sum(map(_read_chars, items))) <= limit:
        return items
    left = limit - (size - sum(len(item.text) for item in items))
    longest, rest = 0, sorted(len(item.text) for item in items)
    for number, size in enumerate(rest):
        # Each of those that are left may have as much as this one, or an equal share.
        longest = max(0, left) // (len(rest) - number)
        if size > longest:
            break
        left -= size
    return tuple(_cut(item, longest) if len(item.text) > longest else item for item in items)


def _drops(profile: Profile) -> bool:
    return profile.head_overflow == DROP and profile.head_chars_limit > 0


def _read_chars(item: Item) -> int:
    """Return the characters that a call reads of an item, which may be fewer than are stored."""
    return len(item.text) + sum(len(call.name) + len(call.arguments) for call in item.tool_calls)


def _cut(item: Item, longest: int) -> Item:
    text = truncate_middle(item.text, longest)
    cut = len(item.text) - len(text)
    tokens = -(-item.tokens * (item.chars - cut) // max(1, item.chars))
    return replace(item, text=text, chars=item.chars - cut, tokens=tokens)


def must_be_halved(items: Sequence[Item], profile: Profile, cut: int | None) -> bool:
    """Whether a call may not read so many items at once, and a cut divides them.

    A single exchange that is longer than the limit is read all the same: nothing is lost.
    """
    return 0 < profile.head_chars_limit < sum(map(_read_chars, items)) and cut is not None
