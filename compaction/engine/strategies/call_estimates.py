"""How many calls halving takes, told before the first one."""

from __future__ import annotations

from collections.abc import Sequence

from compaction.engine.parameters import Profile
from compaction.engine.policy.groups import split_point
from compaction.engine.types import Item

# How much larger than the summariser's room an input must be before its call is saved.
CLEARLY_TOO_LARGE = 1.25


def is_clearly_too_large(tokens: int, limit: int) -> bool:
    """Whether a call is sure to be refused, by more than two ways of counting can differ."""
    return tokens > limit * CLEARLY_TOO_LARGE


def estimate_calls(
    items: Sequence[Item],
    limit: int | None,
    profile: Profile,
    *,
    previous_tokens: int = 0,
    depth: int = 0,
) -> int:
    """Return the number of calls for items when one call takes at most `limit` tokens.

    It follows BisectSummary: a refused call, the two halves, their merge; `previous_tokens` is the
    summary that the first part takes in. None means no limit. Merges are taken to fit.
    """
    tokens = previous_tokens + sum(item.tokens for item in items)
    if limit is None or tokens <= limit:
        return 1
    saves = profile.planned_split and profile.bisect_enabled
    refused = 0 if saves and is_clearly_too_large(tokens, limit) else 1
    may_halve = (
        profile.bisect_enabled
        and depth < profile.bisect_max_depth
        and len(items) > profile.bisect_min_messages
    )
    cut = split_point(items, profile.bisect_min_messages) if may_halve else None
    if cut is None:
        return refused
    left = estimate_calls(
        items[:cut], limit, profile, previous_tokens=previous_tokens, depth=depth + 1
    )
    return refused + left + estimate_calls(items[cut:], limit, profile, depth=depth + 1) + 1
