"""Whether a branch's compaction is due, what one run would summarise, and what stays verbatim."""

from __future__ import annotations

import math
from dataclasses import replace

from chatapp.context.assembly import text_tokens
from compaction.branches.snapshot import Situation
from compaction.engine.policy.cuts import keep_last, keep_recent_tokens
from compaction.engine.policy.groups import groups
from compaction.engine.policy.triggers import decide
from compaction.engine.policy.window import (
    HARD_LIMIT,
    archive_limit,
    batch_size,
    first_batch,
    keep_tail,
)
from compaction.engine.rendering import as_sent_text
from compaction.engine.types import Decision, Item, Plan


def plan_of(
    situation: Situation,
    *,
    keep_last_n: int | None = None,
    whole: bool = False,
    at_most: int | None = None,
) -> Plan:
    """Return what to summarise and what to keep; `keep_last_n` overrides the profile's cut.

    What the model has not answered yet is kept on top of that: the open question, or the tool
    results at the end with their calls. Earlier steps of a long turn may be summarised; its
    question is sent verbatim all the same (see sending.kept_of). With `whole`, unseen results
    are summarised too, because nothing else makes the request smaller.

    With `at_most` only about so many of the oldest go (batch_of).
    """
    if keep_last_n is not None:
        return _keep_by_count(situation, keep_last_n, whole=whole)
    plan = _by_profile(situation, whole=whole)
    return plan if at_most is None else first_batch(plan, at_most)


def decision_of(situation: Situation) -> Decision | None:
    """Return why a compaction is due, or None."""
    return decide(situation.profile, situation.facts)


def due_before_request(situation: Situation) -> Decision | None:
    """Return why a request would be preceded by a compaction; None where it goes out as it is."""
    return unless_prevented(situation, decision_of(situation))


def due_before_next_turn(situation: Situation) -> Decision | None:
    """Return why a turn with one more message would compact first, as far as that can be told.

    The message's own tokens are not known yet: a long one may trip a limit that is near.
    """
    facts = replace(situation.facts, messages=situation.facts.messages + 1)
    return unless_prevented(situation, decide(situation.profile, facts))


def unless_prevented(situation: Situation, decision: Decision | None) -> Decision | None:
    """Return the decision, or None where no request waits for it.

    That is what runs in the background, what another run works on, and what cannot be done. The
    hard limit does not wait for a back-off after failures to end, and where messages would
    fall out, for none.
    """
    state = situation.state
    if decision is None or decision.mode != "inline" or state.is_consolidating:
        return None
    bypasses = decision.reason == HARD_LIMIT and (state.failures or situation.hides_messages)
    if situation.backs_off and not bypasses:
        return None
    return decision if plan_of(situation).summarise else None


def batch_of(situation: Situation, *, only_what_falls_out: bool = False) -> int:
    """Return how many of the oldest messages an automatic run takes.

    A profile may limit that, and less goes after failures. What is archived because a request
    would leave it out is no more than that, and enough to be smaller than it was.
    """
    profile, facts = situation.profile, situation.facts
    if only_what_falls_out:
        least = max(profile.minimum_batch, facts.spoken - profile.context_size)
        return archive_limit(profile, least)
    waiting = len(plan_of(situation).summarise)
    return batch_size(profile, waiting=waiting, failures=situation.state.failures)


def _by_profile(situation: Situation, *, whole: bool) -> Plan:
    profile = situation.profile
    if profile.cut == "tail_size":
        # The tail counts every message, the open question among them.
        plan = keep_tail(situation.items, profile.tail_keep_size)
        return _keep_seen(situation.items, plan, unseen=not whole)
    if profile.cut == "recent_tokens":
        items, question = _before_question(situation.items)
        wanted = min(profile.keep_recent_tokens, _largest_tail(situation))
        plan = keep_recent_tokens(items, wanted - sum(item.tokens for item in question))
        return _with_question(items, plan, question, whole=whole)
    return _keep_by_count(situation, profile.keep_last_n, whole=whole)


def _keep_by_count(situation: Situation, count: int, *, whole: bool) -> Plan:
    items, question = _before_question(situation.items)
    return _with_question(items, keep_last(items, count), question, whole=whole)


def _with_question(items: list[Item], plan: Plan, question: list[Item], *, whole: bool) -> Plan:
    plan = _keep_seen(items, plan, unseen=not (whole or question))
    return Plan(summarise=plan.summarise, keep=(*plan.keep, *question))


def _keep_seen(items: list[Item], plan: Plan, *, unseen: bool) -> Plan:
    """Return the plan with what the model has not seen kept, where `unseen` asks for it."""
    count = _unseen_results(items) if unseen else 0
    if len(plan.keep) >= count:
        return plan
    cut = len(items) - count
    return Plan(summarise=tuple(items[:cut]), keep=tuple(items[cut:]))


def _largest_tail(situation: Situation) -> int:
    """Tokens a tail may have at all: what the window leaves beside the fixed parts (B11)."""
    facts, profile, model = situation.facts, situation.profile, situation.model
    if facts.usable is None:
        return profile.keep_recent_tokens
    summary = profile.target_summary_tokens + text_tokens(model, as_sent_text(""))
    usable = math.floor(facts.usable / model.scale)
    return max(0, usable - situation.fixed_tokens - min(summary, usable // 4))


def _before_question(items: list[Item]) -> tuple[list[Item], list[Item]]:
    """Return the items up to the unanswered question, and the question (B08)."""
    index = len(items)
    while index > 0 and items[index - 1].role == "user":
        index -= 1
    return items[:index], items[index:]


def _unseen_results(items: list[Item]) -> int:
    """Return how many items at the end the model has not answered: question, call and results.

    A question further up is sent verbatim in any case; one right before them saves nothing.
    """
    if not items or items[-1].role != "tool":
        return 0
    start = len(items) - len(groups(items)[-1].items)
    while start > 0 and items[start - 1].role == "user":
        start -= 1
    return len(items) - start
