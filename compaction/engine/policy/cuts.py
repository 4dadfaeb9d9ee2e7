"""Where the cut falls: what is summarised and what stays verbatim.

What the model has not answered yet is kept on top of what a profile keeps: the open question, or
the tool results at the end with their calls. Earlier steps of a long turn may be summarised; its
question is sent verbatim all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from compaction.engine.parameters import Profile
from compaction.engine.policy.groups import groups, legal_cuts, open_call
from compaction.engine.policy.window import keep_tail
from compaction.engine.protocols import PlanFacts
from compaction.engine.types import Item, Plan


def cut_last_n(items: Sequence[Item], profile: Profile, facts: PlanFacts) -> Plan:
    """Keep the last N messages: the profile's number, or the one that was asked for."""
    count = profile.keep_last_n if facts.keep_last_n is None else facts.keep_last_n
    before, question = _before_question(items)
    return _with_question(before, keep_last(before, count), question, whole=facts.whole)


def cut_recent_tokens(items: Sequence[Item], profile: Profile, facts: PlanFacts) -> Plan:
    """Keep the most recent tokens, as far as the window has room for them."""
    before, question = _before_question(items)
    wanted = min(profile.keep_recent_tokens, facts.room())
    plan = keep_recent_tokens(before, wanted - sum(item.tokens for item in question))
    return _with_question(before, plan, question, whole=facts.whole)


def cut_tail_size(items: Sequence[Item], profile: Profile, facts: PlanFacts) -> Plan:
    """Keep the tail of the sliding window, which counts every message, the open question too."""
    plan = keep_tail(items, profile.tail_keep_size)
    return _keep_seen(items, plan, unseen=not facts.whole)


def keep_last(items: Sequence[Item], count: int) -> Plan:
    """Keep the last `count` items, and more where the cut would part a group.

    An empty `summarise` means that nothing is left to do.
    """
    return _cut_at(items, max(0, len(items) - max(0, count)))


def keep_recent_tokens(items: Sequence[Item], tokens: int) -> Plan:
    """Keep the newest whole items that have at most `tokens` together.

    The same counter measured the items and decides here, so Chinese text is not kept four times
    too long. A group that crosses the budget is summarised whole, unless it is the last one and its
    newest item fits.
    """
    start, kept = len(items), 0
    while start > 0 and kept + items[start - 1].tokens <= tokens:
        start -= 1
        kept += items[start].tokens
    if start == 0:
        return Plan(summarise=(), keep=tuple(items))
    later = [cut for cut in legal_cuts(items) if cut >= start]
    return _cut_at(items, later[0] if later else start)


def legal_plan(items: Sequence[Item], plan: Plan, *, whole: bool) -> Plan:
    """Return a plan that parts no group, whatever cut it comes from: the kept part only grows.

    What the model has not answered is kept, too: open calls, the question at the end and, unless
    the `whole` is asked for, tool results. A plan of our own cuts is returned as it is. Raises
    ValueError where the two parts are not the items, in order.
    """
    start = len(plan.summarise)
    if (*plan.summarise, *plan.keep) != tuple(items):
        raise ValueError("it does not divide the messages into older ones and newer ones")
    if start and start == len(items) and items[-1].role == "user":
        start -= 1
    found = plan
    if start < len(plan.summarise) or not _is_plainly_legal(items, start):
        found = _cut_at(items, start)
    seen = _keep_seen(items, found, unseen=not whole)
    # Before what was not seen may stand a call that nobody ever answered: it stays with that.
    return found if seen is found else _cut_at(items, len(seen.summarise))


def _is_plainly_legal(items: Sequence[Item], start: int) -> bool:
    """Whether a cut can be told to be legal without looking for pairs in all that is before it."""
    if start == 0:
        return True
    # At the very end stands perhaps one of several results: the others may still come.
    behind = items[start:] or items[-1:]
    return not items[start - 1].tool_calls and all(item.role != "tool" for item in behind)


def _cut_at(items: Sequence[Item], start: int) -> Plan:
    """Cut at `start`, or before it where it is not legal: the kept part only ever grows."""
    # A call at the end still waits for results: they must find it in the kept part.
    start = min(start, open_call(items))
    if start < len(items):
        start = max(cut for cut in [0, *legal_cuts(items)] if cut <= start)
    return Plan(summarise=tuple(items[:start]), keep=tuple(items[start:]))


def _with_question(
    items: Sequence[Item], plan: Plan, question: Sequence[Item], *, whole: bool
) -> Plan:
    plan = _keep_seen(items, plan, unseen=not (whole or question))
    return Plan(summarise=plan.summarise, keep=(*plan.keep, *question))


def _keep_seen(items: Sequence[Item], plan: Plan, *, unseen: bool) -> Plan:
    """Return the plan with what the model has not seen kept, where `unseen` asks for it."""
    count = _unseen_results(items) if unseen else 0
    if len(plan.keep) >= count:
        return plan
    cut = len(items) - count
    return Plan(summarise=tuple(items[:cut]), keep=tuple(items[cut:]))


def _before_question(items: Sequence[Item]) -> tuple[Sequence[Item], Sequence[Item]]:
    """Return the items up to the unanswered question, and the question."""
    index = len(items)
    while index > 0 and items[index - 1].role == "user":
        index -= 1
    return items[:index], items[index:]


def _unseen_results(items: Sequence[Item]) -> int:
    """Return how many items at the end the model has not answered: question, call and results.

    A question further up is sent verbatim in any case; one right before them saves nothing.
    """
    if not items or items[-1].role != "tool":
        return 0
    start = len(items) - len(groups(items)[-1].items)
    while start > 0 and items[start - 1].role == "user":
        start -= 1
    return len(items) - start
