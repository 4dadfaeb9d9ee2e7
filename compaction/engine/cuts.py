"""Where the cut falls: what is summarised and what stays verbatim."""

from __future__ import annotations

from collections.abc import Sequence

from compaction.engine.boundaries import answered_calls, legal_cuts
from compaction.engine.types import Item, Plan


def keep_last(items: Sequence[Item], count: int, *, at_most: int | None = None) -> Plan:
    """Keep the last `count` items, and more where the cut would part a group (B01).

    Nothing from index `at_most` on is summarised (a question that still waits for its answer).
    An empty `summarise` means that nothing is left to do.
    """
    return _cut_at(items, max(0, len(items) - max(0, count)), at_most)


def keep_recent_tokens(items: Sequence[Item], tokens: int, *, at_most: int | None = None) -> Plan:
    """Keep the newest items of at most `tokens` together (document 000's tail, by whole items).

    At least the newest item stays. The same counter measured the items and decides here, so
    Chinese text is not kept four times too long (B27).
    """
    start, kept = len(items), 0
    while start > 0 and (start == len(items) or kept + items[start - 1].tokens <= tokens):
        start -= 1
        kept += items[start].tokens
    # Between two legal cuts the later one keeps the budget, where there is one before the end.
    later = [cut for cut in legal_cuts(items) if cut >= start]
    limit = len(items) if at_most is None else at_most
    usable = [cut for cut in later if cut <= limit]
    return _cut_at(items, usable[0] if usable and start > 0 else start, at_most)


def _cut_at(items: Sequence[Item], start: int, at_most: int | None) -> Plan:
    if at_most is not None:
        start = min(start, at_most)
    if start < len(items):
        # Back to the nearest legal cut: never forward, the kept part would shrink below its size.
        legal = [0, *legal_cuts(items)]
        start = max(cut for cut in legal if cut <= start)
    else:
        # A call at the end still waits for results: they must find it in the kept part.
        start = min(start, _open_call(items))
    return Plan(summarise=tuple(items[:start]), keep=tuple(items[start:]))


def _open_call(items: Sequence[Item]) -> int:
    """Return where the calls begin that nobody has answered yet; the end when there are none."""
    start = len(items)
    while start > 0 and items[start - 1].role == "tool":
        start -= 1
    if start == 0 or not items[start - 1].tool_calls:
        return len(items)
    answered = [caller for caller in answered_calls(items).values() if caller == start - 1]
    return start - 1 if len(answered) < len(items[start - 1].tool_calls) else len(items)
