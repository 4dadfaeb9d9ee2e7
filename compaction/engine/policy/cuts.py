"""Where the cut falls: what is summarised and what stays verbatim.

What the model has not answered yet is kept on top of what a profile keeps: the open question, or
the tool results at the end with their calls. Earlier steps of a long turn may be summarised; its
question is sent verbatim all the same.

All of them read from the end: given only the newest items, they find the cut that they would find
in the whole list, or raise MoreItemsNeeded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import update_wrapper

from compaction.engine.parameters import Profile
from compaction.engine.policy.exchanges import exchange_starts, size_of
from compaction.engine.policy.groups import LegalCuts, MoreItemsNeeded, open_call
from compaction.engine.policy.window import keep_tail
from compaction.engine.protocols import Cut, PlanFacts
from compaction.engine.types import Item, Plan

# Items that are read beyond an estimate: a cut looks a little further back than the tokens reach.
MARGIN = 24


class TailCut:
    """A cut that can tell from the newest items alone, or that says that it needs more of them.

    It decorates a function: `facts.earlier` then says how many items stand before those that it is
    given, and it raises MoreItemsNeeded where these would decide.
    """

    plans_from_tail = True

    def __init__(self, cut: Cut) -> None:
        update_wrapper(self, cut)
        self._cut = cut

    def __call__(self, items: Sequence[Item], profile: Profile, facts: PlanFacts) -> Plan:
        """Return the plan; what stands before the items is summarised, too."""
        return self._cut(items, profile, facts)


@TailCut
def cut_last_n(items: Sequence[Item], profile: Profile, facts: PlanFacts) -> Plan:
    """Keep the last N messages: the profile's number, or the one that was asked for."""
    count = profile.keep_last_n if facts.keep_last_n is None else facts.keep_last_n
    before, question = _before_question(items, facts)
    plan = keep_last(before, count, earlier=facts.earlier)
    return _with_question(before, plan, question, facts)


@TailCut
def cut_recent_tokens(items: Sequence[Item], profile: Profile, facts: PlanFacts) -> Plan:
    """Keep the most recent tokens, as far as the window has room for them."""
    before, question = _before_question(items, facts)
    wanted = min(_recent_tokens(profile, facts), facts.room())
    tokens = wanted - sum(item.tokens for item in question)
    plan = keep_recent_tokens(before, tokens, earlier=facts.earlier)
    plan = _within_room(before, plan, question, facts)
    return _with_question(before, plan, question, facts)


@TailCut
def cut_checkpoint(items: Sequence[Item], profile: Profile, facts: PlanFacts) -> Plan:
    """Keep no fewer than the most recent tokens: the message that reaches the number stays whole.

    The open question counts. Where that is more than the window has room for, no more than that is
    kept.
    """
    before, question = _before_question(items, facts)
    tokens = _recent_tokens(profile, facts) - sum(item.tokens for item in question)
    if _is_more_than_room(before, tokens, question, facts):
        plan = Plan(summarise=(), keep=tuple(before))
    else:
        plan = keep_no_fewer_tokens(
            before, tokens, earlier=facts.earlier, is_followed=bool(question)
        )
    plan = _within_room(before, plan, question, facts)
    return _with_question(before, plan, question, facts)


def _within_room(
    items: Sequence[Item], plan: Plan, question: Sequence[Item], facts: PlanFacts
) -> Plan:
    """Return the plan, or one that keeps no more than the window has room for, frames included."""
    if _fits(plan.keep, question, facts):
        return plan
    frame = facts.frame_tokens
    room = facts.room() - sum(item.tokens + frame for item in question)
    return keep_recent_tokens(items, room, earlier=facts.earlier, frame=frame)


def _fits(items: Sequence[Item], question: Sequence[Item], facts: PlanFacts) -> bool:
    framed = sum(item.tokens + facts.frame_tokens for item in (*items, *question))
    return framed <= facts.room()


def _is_more_than_room(
    items: Sequence[Item], tokens: int, question: Sequence[Item], facts: PlanFacts
) -> bool:
    """Whether the newest `tokens` begin before the items, and these are too many for the window.

    Then it does not matter where they begin, and nobody reads on for that. Before a question it
    does while nothing is legal among the items: all of them may be summarised. Raises
    MoreItemsNeeded.
    """
    if not facts.earlier or sum(item.tokens for item in items) >= tokens:
        return False
    if _fits(items, question, facts):
        return False
    return not question or LegalCuts.of(items, earlier=True).first(0, len(items) - 1) > 0


def _recent_tokens(profile: Profile, facts: PlanFacts) -> int:
    """Return the tokens to keep: of a small window no more than the profile's share of it."""
    share = math.floor(profile.keep_recent_share * facts.window)
    return min(profile.keep_recent_tokens, share) if share else profile.keep_recent_tokens


@TailCut
def cut_tail_size(items: Sequence[Item], profile: Profile, facts: PlanFacts) -> Plan:
    """Keep the tail of the sliding window, which counts every message, the open question too."""
    plan = keep_tail(items, profile.tail_keep_size, earlier=facts.earlier)
    return _keep_seen(items, plan, facts, unseen=not facts.whole)


@TailCut
def cut_tail_chars(items: Sequence[Item], profile: Profile, facts: PlanFacts) -> Plan:
    """Keep the newest exchanges of fewer characters than the profile's number; at least one.

    The open question is kept beside them and does not count: it is no exchange before its answer.
    """
    before, question = _before_question(items, facts)
    limit = profile.history_tail_size_chars_to_exclude
    plan = keep_exchanges(before, limit, earlier=facts.earlier)
    return _with_question(before, plan, question, facts)


def keep_last(items: Sequence[Item], count: int, *, earlier: int = 0) -> Plan:
    """Keep the last `count` items, and more where the cut would part a group.

    An empty `summarise` means that nothing is left to do. `earlier` is how many items stand before
    these. Raises MoreItemsNeeded.
    """
    return _cut_at(items, max(0, len(items) - max(0, count)), earlier=earlier)


def keep_recent_tokens(
    items: Sequence[Item], tokens: int, *, earlier: int = 0, frame: int = 0
) -> Plan:
    """Keep the newest whole items that have at most `tokens` together, each with so many more.

    The same counter measured the items and decides here, so Chinese text is not kept four times
    too long. A group that crosses the budget is summarised whole, unless it is the last one
    and its newest item fits.

    `earlier` is how many items stand before these. Raises MoreItemsNeeded.
    """
    start, kept = len(items), 0
    while start > 0 and kept + items[start - 1].tokens + frame <= tokens:
        start -= 1
        kept += items[start].tokens + frame
    if start == 0:
        if earlier:
            raise MoreItemsNeeded(more=_items_for(tokens - kept, kept, len(items)))
        return Plan(summarise=(), keep=tuple(items))
    later = LegalCuts.of(items, earlier=earlier > 0).first(start - 1, len(items))
    return _cut_at(items, later or start, earlier=earlier)


def keep_no_fewer_tokens(
    items: Sequence[Item], tokens: int, *, earlier: int = 0, is_followed: bool = False
) -> Plan:
    """Keep the newest items that have `tokens` together, and where that parts a group, fewer.

    The cut is the first legal one at or behind the item that reaches the number: a group that
    crosses it is summarised whole, unless nothing legal follows; then it is kept whole. Items that
    have fewer tokens altogether are all kept.

    `earlier` is how many items stand before these; `is_followed` says that a question stands behind
    them. Raises MoreItemsNeeded.
    """
    start, kept = len(items), 0
    while start > 0 and kept < tokens:
        start -= 1
        kept += items[start].tokens
    if start == 0:
        if earlier:
            raise MoreItemsNeeded(more=_items_for(tokens - kept, kept, len(items)))
        return Plan(summarise=(), keep=tuple(items))
    later = LegalCuts.of(items, earlier=earlier > 0).first(start - 1, len(items) - 1)
    return _cut_at(items, later or (len(items) if is_followed else start), earlier=earlier)


def keep_exchanges(items: Sequence[Item], chars: int, *, earlier: int = 0) -> Plan:
    """Keep the newest exchanges that have fewer than `chars` characters, at least the newest one.

    The first exchange with which there would be as many is summarised, and with it everything
    before it: what is kept has no gaps. A single exchange is kept, however long it is.

    `earlier` is how many items stand before these. Raises MoreItemsNeeded.
    """
    start, kept = len(items), 0
    try:
        for begin in exchange_starts(items, earlier=earlier > 0):
            size = size_of(items[begin:start])
            if start < len(items) and kept + size >= chars:
                break
            start, kept = begin, kept + size
    except MoreItemsNeeded:
        # Where all that was read is too little, it tells about how much more it takes.
        if start < len(items) and kept + size_of(items[:start]) < chars:
            missing, count = chars - kept, len(items) - start
            raise MoreItemsNeeded(more=_items_for(missing, kept, count)) from None
        raise
    return _cut_at(items, start, earlier=earlier)


def _items_for(missing: int, size: int, count: int) -> int:
    """Return about how many more items have what is missing, if they are as long as these."""
    return MARGIN + math.ceil(max(0, missing) * count / max(1, size))


def legal_plan(items: Sequence[Item], plan: Plan, facts: PlanFacts) -> Plan:
    """Return a plan that parts no group, whatever cut it comes from: the kept part only grows.

    What the model has not answered is kept, too: open calls, the question at the end and, unless
    the `whole` is asked for, tool results. A plan of our own cuts is returned as it is. Raises
    ValueError where the two parts are not the items, in order, and MoreItemsNeeded.
    """
    start = len(plan.summarise)
    if (*plan.summarise, *plan.keep) != tuple(items):
        raise ValueError("it does not divide the messages into older ones and newer ones")
    if start == 0 and facts.earlier:
        raise MoreItemsNeeded
    if start == len(items):
        start = _question_before(items, len(items))
    found = plan
    if start < len(plan.summarise) or not _is_plainly_legal(items, start):
        found = _cut_at(items, start, earlier=facts.earlier)
    seen = _keep_seen(items, found, facts, unseen=not facts.whole)
    # Before what was not seen may stand a call that nobody ever answered: it stays with that.
    return found if seen is found else _cut_at(items, len(seen.summarise), earlier=facts.earlier)


def _is_plainly_legal(items: Sequence[Item], start: int) -> bool:
    """Whether a cut can be told to be legal without looking for pairs in all that is before it."""
    if start == 0:
        return True
    # At the very end stands perhaps one of several results: the others may still come.
    behind = items[start:] or items[-1:]
    return not items[start - 1].tool_calls and all(item.role != "tool" for item in behind)


def _cut_at(items: Sequence[Item], start: int, *, earlier: int) -> Plan:
    """Cut at `start`, or before it where it is not legal: the kept part only ever grows."""
    # A call at the end still waits for results: they must find it in the kept part.
    start = min(start, open_call(items, earlier=earlier > 0))
    if start < len(items):
        start = LegalCuts.of(items, earlier=earlier > 0).last(start)
    return Plan(summarise=tuple(items[:start]), keep=tuple(items[start:]))


def _with_question(
    items: Sequence[Item], plan: Plan, question: Sequence[Item], facts: PlanFacts
) -> Plan:
    plan = _keep_seen(items, plan, facts, unseen=not (facts.whole or question))
    return Plan(summarise=plan.summarise, keep=(*plan.keep, *question))


def _keep_seen(items: Sequence[Item], plan: Plan, facts: PlanFacts, *, unseen: bool) -> Plan:
    """Return the plan with what the model has not seen kept, where `unseen` asks for it."""
    count = _unseen_results(items, is_end=facts.earlier > 0) if unseen else 0
    if len(plan.keep) >= count:
        return plan
    cut = len(items) - count
    return Plan(summarise=tuple(items[:cut]), keep=tuple(items[cut:]))


def _before_question(
    items: Sequence[Item], facts: PlanFacts
) -> tuple[Sequence[Item], Sequence[Item]]:
    """Return the items up to the unanswered question, and the question.

    That is the newest message of a user alone: those before it that nobody answered, a tool's
    output that was posted as a user's for example, are summarised like all others.
    """
    index = _question_before(items, len(items), is_end=facts.earlier > 0)
    return items[:index], items[index:]


def _question_before(items: Sequence[Item], end: int, *, is_end: bool = False) -> int:
    """Return where the question right before `end` stands; `end` where nobody asks there.

    Notes behind it are kept with it. Raises MoreItemsNeeded where the items, which others precede
    (`is_end`), are notes alone.
    """
    index = end
    while index > 0 and items[index - 1].is_note:
        index -= 1
    if index == 0 and is_end:
        raise MoreItemsNeeded
    return index - 1 if index and items[index - 1].is_question else end


def _unseen_results(items: Sequence[Item], *, is_end: bool) -> int:
    """Return how many items at the end the model has not answered: question, call and results.

    A question further up is sent verbatim in any case; one right before them saves nothing.
    """
    if not items or items[-1].role != "tool":
        return 0
    start = LegalCuts.of(items, earlier=is_end).last(len(items) - 1)
    return len(items) - _question_before(items, start, is_end=is_end)
