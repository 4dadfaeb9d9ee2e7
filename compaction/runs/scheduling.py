"""Whether a run is due: looked at after every stored message, after runs, and when time has passed.

Nothing here compacts. What is due is queued as a run, or noted for whoever works on the branch; and
when time alone may make it due, the branch's state says when to look again. After failures, after a
cancel and past a budget automatic runs of a branch wait.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Exists
from django.db.models.functions import Now

from chatapp.audit import record
from chatapp.database import database_now
from chatapp.incidents import Kind, note
from chatapp.models import Branch, Message, Session
from compaction.branches.cache_clock import fires_at
from compaction.branches.leases import after_lease, ensure_state
from compaction.branches.planning import cut_of, decision_of, least_tokens
from compaction.branches.reading import current_snapshot
from compaction.branches.snapshot import BranchSnapshot
from compaction.engine.policy.reasons import Reason
from compaction.engine.policy.window import ages
from compaction.engine.types import Decision
from compaction.events import event
from compaction.models import CompactionRun, CompactionState
from compaction.profiles import find_profile
from compaction.runs import lifecycle
from compaction.summaries.drafts import has_draft

logger = logging.getLogger(__name__)
# Rules that are no limit: too few messages are not worth a run.
_UNHURRIED = frozenset({Reason.AHEAD, Reason.MAXIMUM_AGE})
# Part of the window that a run ahead of need has to work on.
AHEAD_LEAST_SHARE = 0.1
# Half of what a sweep looks at: the other half is left for branches whose time comes by itself.
LATER_LOOKS_A_MINUTE = 100
LONGEST_WAIT = timedelta(days=1)


def check_branch(session: Session, branch: Branch | None = None) -> CompactionRun | None:
    """Queue a run for a branch whose trigger is due; return it, or None.

    While another worker holds the branch only a recheck is requested; after failures nothing
    happens until the back-off is over, and where all is kept verbatim there is nothing to do.
    """
    snapshot = current_snapshot(session, branch)
    run = check(snapshot)
    return lifecycle.waiting_run(snapshot.branch) if snapshot.derived.get(_WAITS) else run


# In `derived`: that a run for what is due waits for the queue already.
_WAITS = "waits"


def check(snapshot: BranchSnapshot) -> CompactionRun | None:
    """Do the same for a branch whose snapshot was just read; return the run if it is a new one."""
    plainly = None if snapshot.backs_off else decision_of(snapshot, by_limits_alone=True)
    # While a run waits for the queue, further messages do not look for its cut again.
    waits = snapshot.derived[_WAITS] = plainly is not None and _has_waiting_run(snapshot)
    run = None
    if plainly is not None and not waits:
        if snapshot.state.lease_owner is not None and _ask_holder(snapshot):
            note_problems(snapshot)
            return None
        decision = decision_of(snapshot)
        run = _queue(snapshot, decision) if decision is not None else None
    note_problems(snapshot)
    schedule_next_check(snapshot, waits=waits or run is not None)
    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """Whether a branch has a run that waits, and what its state says of its next check then."""

    has_run: bool
    columns: dict[str, Any]


def queue_due(snapshot: BranchSnapshot, decision: Decision | None) -> Queued:
    """Queue the run of a rule that is due on a branch which is about to be released.

    The columns are for the UPDATE that releases it.
    """
    run = _queue(snapshot, decision) if decision is not None else None
    note_problems(snapshot)
    has_run = run is not None
    return Queued(has_run=has_run, columns=_next_columns(snapshot, waits=has_run))


def _has_waiting_run(snapshot: BranchSnapshot) -> bool:
    """Whether a run waits for the branch: one that was claimed since reads what came before."""
    known = snapshot.state.has_waiting_run
    return lifecycle.waiting_run(snapshot.branch) is not None if known is None else known


def note_problems(snapshot: BranchSnapshot) -> None:
    """Store what is wrong with the profile or a plug-in as incidents, each once a session."""
    for code, sentence in snapshot.problems.items():
        note(snapshot.session, Kind.WARNING, code, sentence)
        logger.warning("Session %s: %s", snapshot.session.pk, sentence)


def _queue(snapshot: BranchSnapshot, decision: Decision) -> CompactionRun | None:
    if not is_worth_a_run(snapshot, decision):
        return None
    # A release that is rolled back queues nothing, and the next look finds the same rule due.
    facts, waiting = snapshot.facts, snapshot.waiting
    transaction.on_commit(
        lambda: event(
            "trigger_due",
            session=snapshot.session,
            branch=snapshot.branch,
            reason=decision.reason,
            messages=facts.messages,
            tokens=facts.tokens,
            waiting=waiting,
        ),
        robust=True,
    )
    return lifecycle.request_run(
        lifecycle.RunRequest(
            session=snapshot.session,
            branch=snapshot.branch,
            trigger=CompactionRun.Trigger.PROACTIVE,
            reason=decision.reason,
            profile=snapshot.profile_row,
            background=True,
        )
    )


def _ask_holder(snapshot: BranchSnapshot) -> bool:
    """Ask whoever holds the branch to look again after releasing it; whether there is somebody.

    One UPDATE asks and tells. A lease that is taken just now makes the run that we queue step
    aside, and that asks, too. Should the holder be no run, or die, the sweep looks.
    """
    held = CompactionState.objects.filter(
        pk=snapshot.state.pk, lease_owner__isnull=False, lease_expires_at__gt=Now()
    )
    is_held = bool(
        held.update(
            recheck_requested=True,
            next_check_at=after_lease(),
            cache_expires_at=snapshot.state.cache_expires_at,
        )
    )
    if is_held:
        event("asked_again", session=snapshot.session, branch=snapshot.branch)
    return is_held


def is_worth_a_run(snapshot: BranchSnapshot, decision: Decision) -> bool:
    """Whether there is something to summarise, and enough of it where nothing presses."""
    keeps_drafts = snapshot.profile.publish_when_needed
    if decision.reason == Reason.AHEAD and keeps_drafts and has_draft(snapshot):
        return False
    least = snapshot.profile.minimum_batch if decision.reason in _UNHURRIED else 1
    cut = cut_of(snapshot)
    if cut.messages < least or cut.tokens < least_tokens(snapshot, decision.reason):
        return False
    if decision.reason != Reason.AHEAD:
        return True
    # A tail that alone is near the limit would be followed by a run every few messages.
    return cut.tokens >= AHEAD_LEAST_SHARE * snapshot.model.context_window


def schedule_next_check(snapshot: BranchSnapshot, *, waits: bool = False) -> None:
    """Note when the sweep should look at the branch, if no message comes before.

    With that, in one UPDATE, what the state says of the prompt cache. A clock that has fired is
    put away: it fires once, unless its run still `waits` for the queue or for a back-off's end.
    A run that was claimed since may have ended by now, and noted when to look again: what is noted
    in the place of that counts the age of what waits, too.
    """
    state, columns = snapshot.state, _next_columns(snapshot, waits=waits)
    stored = {
        "next_check_at": state.next_check_at,
        "cache_expires_at": state.stored_cache_expires_at,
    }
    if columns == stored:
        return
    rows = CompactionState.objects.filter(pk=state.pk)
    waiting = Exists(lifecycle.waiting_runs.build(branch=state.pk))
    if waits and rows.filter(waiting).update(**columns):
        return
    rows.update(**(_next_columns(snapshot, waits=False) if waits else columns))


def columns_if_idle(snapshot: BranchSnapshot) -> dict[str, Any] | None:
    """Return what the state of a branch where no rule is due says of its next check; else None."""
    if not snapshot.backs_off and decision_of(snapshot, by_limits_alone=True) is not None:
        return None
    note_problems(snapshot)
    return _next_columns(snapshot, waits=False)


def _next_columns(snapshot: BranchSnapshot, *, waits: bool) -> dict[str, Any]:
    state, fires = snapshot.state, fires_at(snapshot.state, snapshot.profile)
    has_fired = fires is not None and fires <= database_now()
    if fires is None or (has_fired and not waits and not snapshot.backs_off):
        state.cache_expires_at = None
    when = _next_check(snapshot, None if has_fired else fires, waits=waits)
    return {"next_check_at": when, "cache_expires_at": state.cache_expires_at}


def _next_check(
    snapshot: BranchSnapshot, fires: datetime | None, *, waits: bool = False
) -> datetime | None:
    """Return when time alone may make a run due; None: never by itself.

    That is when a person's hold or a back-off ends, when the waiting messages are old enough, or
    when the clock of the prompt cache fires over enough characters. How old they are is not asked
    while a run `waits`: whatever comes of it, its end looks again.
    """
    state, profile = snapshot.state, snapshot.profile
    if not profile.enabled:
        return None
    if state.is_held:
        # Until then no rule counts that time could make due.
        return state.held_until
    if snapshot.backs_off:
        return state.backoff_until
    least = profile.trigger_on_history_size_chars_when_cache_expiring
    times = [fires] if fires is not None and snapshot.facts.chars >= least else []
    is_asked = not waits and ages(profile, snapshot.facts.countable)
    since = snapshot.waiting_since if is_asked else None
    if since is not None:
        due = since + timedelta(seconds=profile.compression_cooldown_sec)
        # What is due now is queued, noted, or waits for more messages.
        times += [due] if due > database_now() else []
    return min(times, default=None)


def check_later(branches: Sequence[Branch]) -> None:
    """Have the sweep look at branches that were stored together, behind those that wait already.

    It looks at so many a minute that other branches, whose time comes meanwhile, are in time.
    """
    marked = Message.objects.filter(branch__in=branches, kind=Message.Kind.PLACEHOLDER)
    for branch_id in set(marked.values_list("branch", flat=True)):
        # Where a summary of old reaches has to be worked out.
        ensure_state(next(branch for branch in branches if branch.pk == branch_id))
    CompactionState.objects.bulk_create(
        [CompactionState(branch=branch) for branch in branches], ignore_conflicts=True
    )
    now = database_now()
    waiting = CompactionState.objects.filter(next_check_at__lte=now + LONGEST_WAIT).count()
    when = now + timedelta(minutes=waiting // LATER_LOOKS_A_MINUTE)
    CompactionState.objects.filter(branch__in=branches).update(next_check_at=when)


def assign_profile(session: Session, name: str, *, by: Any = None) -> None:
    """Give a session a profile of its own by name; an empty name goes back to the default.

    All of its branches get it; later ones take it from their parents. `by` is the person who says
    so: their act stands in the session's audit log.
    """
    if name:
        find_profile(name)
    for branch in Branch.objects.filter(session=session):
        state = CompactionState.objects.filter(pk=ensure_state(branch).pk)
        # What gained nothing by one profile may gain something by another.
        state.update(profile=name, next_check_at=database_now(), gainless_total=0)
    if by is not None:
        told = f"profile {name}" if name else "the default profile"
        record(session, "profile_changed", f"The session uses {told} from then on.", by=by)
