"""Whether a branch's compaction is due, what one run would summarise, and what stays verbatim."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from functools import partial

from django.db import Error

from compaction.branches.snapshot import BranchSnapshot, frame_tokens
from compaction.engine.policy.cuts import cut_last_n, legal_plan
from compaction.engine.policy.reasons import Reason
from compaction.engine.policy.triggers import decide
from compaction.engine.policy.window import batch_size, digest_limit, first_batch
from compaction.engine.protocols import PlanFacts
from compaction.engine.registry import STRATEGIES
from compaction.engine.types import Decision, Plan

logger = logging.getLogger(__name__)


class PlanFailed(Exception):  # noqa: N818 - it is an outcome of a plug-in, not a fault of ours
    """A strategy or a cut gave no plan; the text says which and why."""


def plan_of(
    snapshot: BranchSnapshot,
    *,
    keep_last_n: int | None = None,
    whole: bool = False,
    at_most: int | None = None,
) -> Plan:
    """Return what to summarise and what to keep; `keep_last_n` overrides the profile's cut.

    With `whole`, tool results that the model has not seen are summarised too. With `at_most` only
    about so many of the oldest go (batch_of). Where strategy or cut fail, the plan is that of the
    last messages: a run is due, and says what is wrong (plan_for_run).
    """
    try:
        return plan_for_run(snapshot, keep_last_n=keep_last_n, whole=whole, at_most=at_most)
    except PlanFailed as failure:
        logger.warning("%s", failure)
        facts = _plan_facts(snapshot, keep_last_n, whole)
        plan = cut_last_n(snapshot.items, snapshot.profile, facts)
        return _batch(plan, keep_last_n, at_most)


def plan_for_run(
    snapshot: BranchSnapshot,
    *,
    keep_last_n: int | None = None,
    whole: bool = False,
    at_most: int | None = None,
) -> Plan:
    """Return the same, but raise PlanFailed where strategy or cut fail."""
    profile = snapshot.profile
    facts = _plan_facts(snapshot, keep_last_n, whole)
    try:
        plan = STRATEGIES.get(profile.strategy).plan(snapshot.items, profile, facts)
        plan = legal_plan(snapshot.items, plan, whole=whole)
    except Error:
        # The room for a tail is read from the database: a fault of that is nobody's plan.
        raise
    except Exception as error:
        raise PlanFailed(
            f"The strategy {profile.strategy!r} with the cut {profile.cut!r} gave no plan "
            f"({type(error).__name__}: {error})."
        ) from error
    return _batch(plan, keep_last_n, at_most)


def _batch(plan: Plan, keep_last_n: int | None, at_most: int | None) -> Plan:
    if at_most is None or keep_last_n is not None:
        return plan
    return first_batch(plan, at_most)


def _plan_facts(snapshot: BranchSnapshot, keep_last_n: int | None, whole: bool) -> PlanFacts:
    room = partial(_room_for_tail, snapshot)
    return PlanFacts(room=room, keep_last_n=keep_last_n, whole=whole)


def decision_of(snapshot: BranchSnapshot) -> Decision | None:
    """Return why a compaction is due, or None; a rule that fails is a problem of the branch."""
    return decide(snapshot.profile, snapshot.facts, partial(_note_failure, snapshot))


def _note_failure(snapshot: BranchSnapshot, sentence: str) -> None:
    snapshot.failed["trigger_failed"] = sentence


def due_before_request(snapshot: BranchSnapshot) -> Decision | None:
    """Return why a request would be preceded by a compaction; None where it goes out as it is."""
    return unless_prevented(snapshot, decision_of(snapshot))


def due_before_next_turn(snapshot: BranchSnapshot) -> Decision | None:
    """Return why a turn with one more message would compact first, as far as that can be told.

    The message's own tokens are not known yet: a long one may trip a limit that is near.
    """
    facts = replace(snapshot.facts, messages=snapshot.facts.messages + 1)
    return unless_prevented(snapshot, decide(snapshot.profile, facts))


def unless_prevented(snapshot: BranchSnapshot, decision: Decision | None) -> Decision | None:
    """Return the decision, or None where no request waits for it.

    That is what runs in the background, what another run works on, and what cannot be done. The
    hard limit does not wait for a back-off after failures to end, and where messages would
    fall out, for none.
    """
    state = snapshot.state
    if decision is None or decision.mode != "inline" or state.is_consolidating:
        return None
    bypasses = decision.reason == Reason.HARD_LIMIT and (state.failures or snapshot.hides_messages)
    if snapshot.backs_off and not bypasses:
        return None
    return decision if plan_of(snapshot).summarise else None


def batch_of(snapshot: BranchSnapshot, *, only_what_falls_out: bool = False) -> int:
    """Return how many of the oldest messages an automatic run takes.

    A profile may limit that, and less goes after failures. What is stored as a digest because a
    request would leave it out is no more than that, and enough to be smaller than it was.
    """
    profile, facts = snapshot.profile, snapshot.facts
    if only_what_falls_out:
        least = max(profile.minimum_batch, facts.countable - profile.context_size)
        return digest_limit(profile, least)
    waiting = len(plan_of(snapshot).summarise)
    return batch_size(profile, waiting=waiting, failures=snapshot.state.failures)


def _room_for_tail(snapshot: BranchSnapshot) -> int:
    """Tokens a tail may have at all: what the window leaves beside the fixed parts."""
    facts, profile, model = snapshot.facts, snapshot.profile, snapshot.model
    if facts.usable is None:
        return profile.keep_recent_tokens
    summary = profile.target_summary_tokens + frame_tokens(profile, model)
    usable = math.floor(facts.usable / model.scale)
    return max(0, usable - snapshot.fixed_tokens - min(summary, usable // 4))
