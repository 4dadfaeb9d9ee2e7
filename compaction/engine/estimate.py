"""How many calls a summary will take, worked out without calling anybody."""

from __future__ import annotations

from collections.abc import Sequence

from compaction.engine.boundaries import split_point
from compaction.engine.profile import Profile
from compaction.engine.types import Item


def estimate_calls(
    items: Sequence[Item], limit: int | None, profile: Profile, depth: int = 0
) -> int:
    """Return the number of calls for items when one call takes at most `limit` tokens.

    It follows BisectSummary: a refused call, the two halves, their merge. None means no limit.
    """
    if limit is None or sum(item.tokens for item in items) <= limit:
        return 1
    refused = 0 if profile.planned_split else 1
    may_halve = (
        profile.bisect_enabled
        and depth < profile.bisect_max_depth
        and len(items) > profile.bisect_min_messages
    )
    cut = split_point(items, profile.bisect_min_messages) if may_halve else None
    if cut is None:
        return refused
    return (
        refused
        + estimate_calls(items[:cut], limit, profile, depth + 1)
        + estimate_calls(items[cut:], limit, profile, depth + 1)
        + 1
    )
