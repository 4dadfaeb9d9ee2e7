"""Where the cut falls: what is summarised and what stays verbatim."""

from __future__ import annotations

from collections.abc import Sequence

from compaction.engine.policy.groups import legal_cuts, open_call
from compaction.engine.types import Item, Plan


def keep_last(items: Sequence[Item], count: int) -> Plan:
    """Keep the last `count` items, and more where the cut would part a group (B01).

    An empty `summarise` means that nothing is left to do.
    """
    return _cut_at(items, max(0, len(items) - max(0, count)))


def keep_recent_tokens(items: Sequence[Item], tokens: int) -> Plan:
    """Keep the newest whole items that have at most `tokens` together (document 000's tail).

    The same counter measured the items and decides here, so Chinese text is not kept four times
    too long (B27). A group that crosses the budget is summarised whole, unless it is the last one
    and its newest item fits.
    """
    start, kept = len(items), 0
    while start > 0 and kept + items[start - 1].tokens <= tokens:
        start -= 1
        kept += items[start].tokens
    if start == 0:
        return Plan(summarise=(), keep=tuple(items))
    later = [cut for cut in legal_cuts(items) if cut >= start]
    return _cut_at(items, later[0] if later else start)


def _cut_at(items: Sequence[Item], start: int) -> Plan:
    """Cut at `start`, or before it where it is not legal: the kept part only ever grows."""
    # A call at the end still waits for results: they must find it in the kept part.
    start = min(start, open_call(items))
    if start < len(items):
        start = max(cut for cut in [0, *legal_cuts(items)] if cut <= start)
    return Plan(summarise=tuple(items[:start]), keep=tuple(items[start:]))
