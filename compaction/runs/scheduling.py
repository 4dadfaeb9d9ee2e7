"""Whether a run is due: looked at after every stored message, after runs, and when time has passed.

Nothing here compacts. What is due is queued as a run, or noted for whoever works on the branch; and
when time alone may make it due, the branch's state says when to look again. After failures, after a
cancel and past a budget automatic runs of a branch wait.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models.functions import Now
from django.utils import timezone

from chatapp.models import Branch, Session
from compaction.branches.leases import ensure_state, soon
from compaction.branches.planning import cut_of, decision_of
from compaction.branches.snapshot import Situation, situation_of
from compaction.engine.policy.reasons import Reason
from compaction.engine.policy.window import ages
from compaction.engine.types import Decision
from compaction.events import event
from compaction.models import CompactionRun, CompactionState
from compaction.runs import lifecycle
from compaction.summaries.drafts import has_draft

# Rules that are no limit: too few messages are not worth a run.
_UNHURRIED = frozenset({Reason.AHEAD, Reason.MAXIMUM_AGE})
# Part of the window that a run ahead of need has to work on.
AHEAD_LEAST_SHARE = 0.1


def check_branch(session: Session, branch: Branch | None = None) -> CompactionRun | None:
    """Queue a run for a branch whose trigger is due; return it, or None.

    While another worker holds the branch only `pending` is set; after failures nothing happens
    until the back-off is over, and where all is kept verbatim there is nothing to do.
    """
    return check(situation_of(session, state=ensure_state(branch or session.branch)))


def check(situation: Situation) -> CompactionRun | None:
    """Do the same for a branch whose situation was just read."""
    decision = None if situation.backs_off else decision_of(situation)
    # While a run waits for the queue, further messages do not look for its cut again.
    run = lifecycle.waiting_run(situation.branch) if decision else None
    if decision is not None and run is None:
        if situation.state.lease_owner is not None and _ask_holder(situation):
            return None
        run = _queue(situation, decision)
    look_again_later(situation)
    return run


def _queue(situation: Situation, decision: Decision) -> CompactionRun | None:
    if not is_worth_a_run(situation, decision):
        return None
    event(
        "trigger_due",
        session=situation.session,
        branch=situation.branch,
        reason=decision.reason,
        messages=situation.facts.messages,
        tokens=situation.facts.tokens,
        waiting=situation.waiting,
    )
    return lifecycle.request_run(
        session=situation.session,
        branch=situation.branch,
        trigger=CompactionRun.Trigger.PROACTIVE,
        reason=decision.reason,
        profile=situation.profile_row,
        background=True,
    )


def _ask_holder(situation: Situation) -> bool:
    """Ask whoever holds the branch to look again after releasing it; whether there is somebody.

    One UPDATE asks and tells. A lease that is taken just now makes the run that we queue step
    aside, and that asks, too. Should the holder be no run, or die, the sweep looks.
    """
    held = CompactionState.objects.filter(
        pk=situation.state.pk, lease_owner__isnull=False, lease_expires_at__gt=Now()
    )
    is_held = bool(held.update(pending=True, look_again_at=soon()))
    if is_held:
        event("asked_again", session=situation.session, branch=situation.branch)
    return is_held


def is_worth_a_run(situation: Situation, decision: Decision) -> bool:
    """Whether there is something to summarise, and enough of it where nothing presses."""
    keeps_drafts = situation.profile.publish_when_needed
    if decision.reason == Reason.AHEAD and keeps_drafts and has_draft(situation):
        return False
    least = situation.profile.minimum_batch if decision.reason in _UNHURRIED else 1
    cut = cut_of(situation)
    if cut.messages < least:
        return False
    if decision.reason != Reason.AHEAD:
        return True
    # A tail that alone is near the limit would be followed by a run every few messages.
    return cut.tokens >= AHEAD_LEAST_SHARE * situation.model.context_window


def look_again_later(situation: Situation) -> None:
    """Note when the sweep should look at the branch, if no message comes before."""
    when = _time_to_look(situation)
    if when != situation.state.look_again_at:
        CompactionState.objects.filter(pk=situation.state.pk).update(look_again_at=when)


def _time_to_look(situation: Situation) -> datetime | None:
    """Return when a back-off ends or the waiting messages are old enough; None: never by itself."""
    state, profile = situation.state, situation.profile
    if not profile.enabled:
        return None
    if situation.backs_off:
        return state.backoff_until
    since = situation.waiting_since if ages(profile, situation.facts.spoken) else None
    if since is None:
        return None
    due = since + timedelta(seconds=profile.compression_cooldown_sec)
    # What is due now is queued, noted, or waits for more messages.
    return due if due > timezone.now() else None
