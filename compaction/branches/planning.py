"""Whether a branch's compaction is due, what one run would summarise, and what stays verbatim.

Decisions look at stored sums, and cuts at the newest messages: only a run reads what it summarises.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

from django.db import Error

from chatapp.models import Message
from chatapp.selectors import path_messages, without_pinned_system
from compaction.branches.carriers import frame_tokens
from compaction.branches.snapshot import BranchSnapshot
from compaction.branches.tail import Tail, oldest_items, tail_of
from compaction.engine.carrying import least_stretch
from compaction.engine.policy.cuts import cut_last_n, legal_plan
from compaction.engine.policy.exchanges import size_of
from compaction.engine.policy.groups import MoreItemsNeeded
from compaction.engine.policy.holds import RULES_UNDER_HOLD
from compaction.engine.policy.reasons import Reason, RunCode
from compaction.engine.policy.triggers import MODES, decide, waits_for_more
from compaction.engine.policy.window import batch_size, digest_limit, first_batch
from compaction.engine.protocols import PlanFacts, Strategy
from compaction.engine.registry import STRATEGIES
from compaction.engine.strategies.base import plans_from_tail, shown_of_kept
from compaction.engine.types import Decision, Facts, Gain, Item, Plan
from compaction.models import CompactionRun

# How many more messages than a batch takes are read at first: it ends between groups.
BATCH_MARGIN = 64

logger = logging.getLogger(__name__)


class PlanFailed(Exception):  # noqa: N818 - it is an outcome of a plug-in, not a fault of ours
    """A strategy or a cut gave no plan; the text says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCut:
    """Where the cut falls: how much would be summarised, up to which position, and what is kept.

    `through` is the position of the last message to summarise. `summarise` holds the messages where
    finding the cut took reading them all; otherwise it is None, and a run reads them.
    """

    messages: int
    tokens: int
    chars: int
    through: int
    keep: tuple[Item, ...]
    summarise: tuple[Item, ...] | None = None


def cut_of(
    snapshot: BranchSnapshot, *, keep_last_n: int | None = None, whole: bool = False
) -> PlannedCut:
    """Return where the cut falls; `keep_last_n` overrides the profile's cut.

    With `whole`, tool results that the model has not seen are summarised too. Where strategy or cut
    fail, the last messages are kept: a run is due, and says what is wrong (cut_for_run).
    """
    try:
        return cut_for_run(snapshot, keep_last_n=keep_last_n, whole=whole)
    except PlanFailed as failure:
        key = f"cut in any case:{keep_last_n}:{whole}"
        found: PlannedCut | None = snapshot.derived.get(key)
        if found is None:
            logger.warning("%s", failure)
            tail = tail_of(snapshot)
            tail.read_on(all_of_them=True)
            facts = _plan_facts(snapshot, keep_last_n, whole)
            found = _planned(tail, cut_last_n(tail.items, snapshot.profile, facts))
            snapshot.derived[key] = found
        return found


def cut_for_run(
    snapshot: BranchSnapshot, *, keep_last_n: int | None = None, whole: bool = False
) -> PlannedCut:
    """Return the same, but raise PlanFailed where strategy or cut fail.

    The newest messages are read until they decide; each cut is found once a snapshot.
    """
    key = f"cut:{keep_last_n}:{whole}"
    found: PlannedCut | str | None = snapshot.derived.get(key)
    if found is None:
        try:
            found = _found(snapshot, _plan_facts(snapshot, keep_last_n, whole))
        except PlanFailed as failure:
            # The sentence alone: a raised exception keeps the frames that it went through.
            found = str(failure)
        snapshot.derived[key] = found
    if isinstance(found, str):
        raise PlanFailed(found)
    return found


def _found(snapshot: BranchSnapshot, facts: PlanFacts) -> PlannedCut:
    strategy, tail = STRATEGIES.get(snapshot.profile.strategy), tail_of(snapshot)
    if not (tail.is_whole or plans_from_tail(strategy)):
        tail.read_on(all_of_them=True)
    while True:
        known = replace(facts, earlier=tail.earlier)
        try:
            return _planned(tail, _legal(snapshot, strategy, tail, known))
        except MoreItemsNeeded as need:
            tail.read_on(all_of_them=need.all_of_them, more=need.more)


def _legal(snapshot: BranchSnapshot, strategy: Strategy, tail: Tail, facts: PlanFacts) -> Plan:
    """Return a strategy's plan of what was read, with no group parted. Raises PlanFailed."""
    profile = snapshot.profile
    try:
        return legal_plan(tail.items, strategy.plan(tail.items, profile, facts), facts)
    except MoreItemsNeeded as need:
        if not tail.is_whole:
            raise
        error: Exception = need
    except Error:
        # The room for a tail is read from the database: a fault of that is nobody's plan.
        raise
    except Exception as failure:
        error = failure
    raise PlanFailed(
        f"The strategy {profile.strategy!r} with the cut {profile.cut!r} gave no plan "
        f"({type(error).__name__}: {error})."
    ) from error


def _planned(tail: Tail, plan: Plan) -> PlannedCut:
    """Return a plan of what was read with what stands before it."""
    if tail.is_whole:
        return PlannedCut(
            messages=len(plan.summarise),
            tokens=sum(item.tokens for item in plan.summarise),
            chars=size_of(plan.summarise),
            through=plan.summarise[-1].position if plan.summarise else 0,
            keep=plan.keep,
            summarise=plan.summarise,
        )
    last = plan.summarise[-1].position if plan.summarise else tail.items[0].position - 1
    return PlannedCut(
        messages=tail.earlier + len(plan.summarise),
        tokens=tail.tokens_before(plan.keep),
        chars=tail.chars_before(plan.keep),
        through=last,
        keep=plan.keep,
    )


def input_of(
    snapshot: BranchSnapshot,
    *,
    keep_last_n: int | None = None,
    whole: bool = False,
    at_most: int | None = None,
    tokens: int | None = None,
    in_any_case: bool = False,
) -> Sequence[Item]:
    """Return the messages that a run summarises, oldest first; none where all are kept.

    With `at_most` about so many of the oldest (batch_of), unless `keep_last_n` asks for all. With
    `tokens`, where all of a long history would be taken, about as many as have so many stored ones
    together: it is never read whole to be halved until it fits. With `in_any_case`, the last
    messages are kept where strategy or cut fail; otherwise PlanFailed is raised.
    """
    find = cut_of if in_any_case else cut_for_run
    cut = find(snapshot, keep_last_n=keep_last_n, whole=whole)
    if at_most is None or keep_last_n is not None:
        at_most = cut.messages
    if tokens is not None and at_most >= cut.messages and cut.tokens > tokens:
        at_most = _oldest_with(snapshot, tokens, through=cut.through)
    if cut.summarise is not None:
        return first_batch(cut.summarise, at_most)
    if cut.messages <= at_most:
        return oldest_items(snapshot, through=cut.through)
    read = at_most + BATCH_MARGIN
    while True:
        items = oldest_items(snapshot, through=cut.through, most=read)
        try:
            return first_batch(items, at_most, later=len(items) == read)
        except MoreItemsNeeded:
            # A long group, or a call that may be answered further on.
            read *= 4


def _oldest_with(snapshot: BranchSnapshot, tokens: int, *, through: int) -> int:
    """Return how many of the oldest waiting messages have at most so many tokens; at least one.

    Nothing behind them is looked at.
    """
    state = snapshot.state
    waiting = path_messages(snapshot.branch, after=state.cursor, through=through)
    larger = waiting.filter(tokens_through__gt=state.covered_tokens + tokens).order_by("position")
    first = larger.values_list("position", flat=True).first() or through
    within = path_messages(snapshot.branch, after=state.cursor, through=first - 1)
    return max(1, without_pinned_system(within).count())


def _plan_facts(snapshot: BranchSnapshot, keep_last_n: int | None, whole: bool) -> PlanFacts:
    room, model = partial(_room_for_tail, snapshot), snapshot.model
    window = math.floor(max(0, model.context_window) / model.scale)
    return PlanFacts(
        room=room,
        keep_last_n=keep_last_n,
        whole=whole,
        window=window,
        frame_tokens=model.message_frame_tokens,
    )


def decision_of(
    snapshot: BranchSnapshot, *, modes: Sequence[str] = MODES, by_limits_alone: bool = False
) -> Decision | None:
    """Return why a compaction is due, or None; a rule that fails is a problem of the branch.

    `by_limits_alone` looks for no cut: a rule whose limit is reached is due, whatever it gains.
    """
    facts = snapshot.facts if by_limits_alone else facts_with_gain(snapshot, snapshot.facts)
    note = partial(_note_failure, snapshot)
    return decide(snapshot.profile, facts, note, modes=modes, only=rules_of(snapshot))


def rules_of(snapshot: BranchSnapshot) -> Collection[str] | None:
    """Return the reasons of the rules that are in force; None for all.

    While a person holds the branch, only the window may end that.
    """
    return RULES_UNDER_HOLD if snapshot.state.is_held else None


def facts_with_gain(snapshot: BranchSnapshot, facts: Facts) -> Facts:
    """Return a branch's facts with the gain of a compaction, for rules that reach their limit."""
    return replace(facts, gain=partial(gain_of, snapshot))


def gain_of(snapshot: BranchSnapshot) -> Gain:
    """Return what a compaction would summarise now; the newest messages are read for it.

    Looked for once a snapshot. What is pinned is sent again, so it is no gain.
    """
    found: Gain | None = snapshot.derived.get("gain")
    if found is None:
        cut = cut_of(snapshot)
        rules = snapshot.rules_behind
        again = [
            pin
            for pin in snapshot.pins_behind
            if pin.role != Message.Role.SYSTEM and pin.position <= cut.through
        ]
        tokens = max(0, cut.tokens - sum(row.tokens for row in again))
        messages = cut.messages - len(again)
        framed = tokens + snapshot.model.message_frame_tokens * messages
        found = snapshot.derived["gain"] = Gain(
            messages=messages,
            tokens=tokens,
            request_tokens=math.floor(snapshot.model.scale * framed),
            chars=max(0, cut.chars - sum(row.chars for row in again)),
            fixed_messages=len(rules),
            fixed_tokens=sum(row.tokens for row in rules),
            fixed_chars=sum(row.chars for row in rules),
            least_tokens=least_tokens(snapshot),
        )
    return found


def least_tokens(snapshot: BranchSnapshot, reason: str = "") -> int:
    """Return the fewest tokens of messages that a run of that reason, or of any, summarises."""
    frame = frame_tokens(snapshot.profile, snapshot.model)
    return least_stretch(reason, frame=frame, is_first=not snapshot.state.cursor)


def _note_failure(snapshot: BranchSnapshot, sentence: str) -> None:
    snapshot.failed["trigger_failed"] = sentence


def due_before_request(snapshot: BranchSnapshot) -> Decision | None:
    """Return why a request would be preceded by a compaction; None where it goes out as it is."""
    return unless_prevented(snapshot, decision_of(snapshot, modes=("inline",)))


def due_before_next_turn(snapshot: BranchSnapshot) -> Decision | None:
    """Return why a turn with one more message would compact first, as far as that can be told.

    The message's own tokens are not known yet: a long one may trip a limit that is near.
    """
    facts = replace(snapshot.facts, messages=snapshot.facts.messages + 1)
    facts = facts_with_gain(snapshot, facts)
    only = rules_of(snapshot)
    return unless_prevented(snapshot, decide(snapshot.profile, facts, modes=("inline",), only=only))


def unless_prevented(snapshot: BranchSnapshot, decision: Decision | None) -> Decision | None:
    """Return the decision, or None where no request waits for it.

    That is what runs in the background, what another run works on, and what cannot be done or
    would gain nothing. The hard limit does not wait for a back-off after failures to end, and where
    messages would fall out, for none. Nor does the window, where the model had answered nothing of
    use: what it answers now is done without (`needs_summary`).
    """
    state = snapshot.state
    if decision is None or decision.mode != "inline" or state.is_consolidating:
        return None
    if decision.reason == Reason.PRECHECK and waits_for_more(snapshot.profile, snapshot.facts):
        return None
    if snapshot.backs_off and not _bypasses(snapshot, decision.reason):
        return None
    return decision if cut_of(snapshot).messages else None


def _bypasses(snapshot: BranchSnapshot, reason: str) -> bool:
    """Whether a rule does not wait for a back-off to end."""
    if reason == Reason.HARD_LIMIT:
        return bool(snapshot.state.failures or snapshot.hides_messages)
    if reason != Reason.WINDOW:
        return False
    failed = CompactionRun.objects.filter(
        branch=snapshot.branch,
        status=CompactionRun.Status.FAILED,
        trigger__in=CompactionRun.AUTOMATIC,
    )
    codes = failed.order_by("-created_at").values_list("error_code", flat=True)
    return codes.first() == RunCode.BAD_ANSWER


def batch_of(snapshot: BranchSnapshot, *, only_what_falls_out: bool = False) -> int:
    """Return how many of the oldest messages an automatic run takes.

    A profile may limit that, and less goes after failures. What is stored as a digest because a
    request would leave it out is no more than that, and enough to be smaller than it was.
    """
    profile, facts = snapshot.profile, snapshot.facts
    if only_what_falls_out:
        least = max(profile.minimum_batch, facts.countable - profile.context_size)
        return digest_limit(profile, least)
    waiting = cut_of(snapshot).messages
    return batch_size(profile, waiting=waiting, failures=snapshot.state.failures)


def needs_summary(snapshot: BranchSnapshot, run: CompactionRun) -> bool:
    """Whether the conversation cannot go on before a run of its history has stored something.

    Its next request was refused as too large, or would not leave the reserve free.
    """
    if run.trigger == CompactionRun.Trigger.OVERFLOW_RETRY:
        return True
    if run.replaces_id is not None or run.trigger == CompactionRun.Trigger.BRANCH:
        return False
    usable = snapshot.facts.usable
    return usable is not None and snapshot.request_tokens > usable


def kept_after(snapshot: BranchSnapshot, position: int) -> list[Item]:
    """Return the newest messages behind a position, as far as a summariser should see them."""
    return shown_of_kept(tail_of(snapshot).items, position)


def _room_for_tail(snapshot: BranchSnapshot) -> int:
    """Tokens a tail may have at all: what the window leaves beside the fixed parts."""
    facts, profile, model = snapshot.facts, snapshot.profile, snapshot.model
    if facts.usable is None:
        return profile.keep_recent_tokens
    summary = profile.target_summary_tokens + frame_tokens(profile, model)
    usable = math.floor(facts.usable / model.scale)
    return max(0, usable - snapshot.fixed_tokens - min(summary, usable // 4))
