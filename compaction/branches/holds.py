"""The hold of a branch: what a person took back from a summary is left alone by the rules.

It stands in the branch's state: through which position, who holds it, since when, until when. Who
restores a summary sets it, and it ends when somebody lifts it, when its time is over, and with the
compaction that summarises what it held: one by hand, or one that the window forces.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from chatapp.audit import record
from chatapp.database import database_now
from chatapp.formatting import when
from chatapp.models import Branch
from compaction.engine.parameters import Profile
from compaction.engine.policy.holds import HoldEnd, HoldLength, under_hold
from compaction.events import event
from compaction.models import CompactionRun, CompactionState

RELEASED: Mapping[str, Any] = {
    "hold_through": None,
    "hold_end": "",
    "held_by": None,
    "held_at": None,
    "held_until": None,
}
"""The columns of a state that is not held."""

# Codes of the audit log.
LIFTED, BROKEN = "hold_lifted", "hold_broken"
# Without a name: it would outlast its person. Who held it stands with the restore.
BROKEN_WORDS = (
    "The window broke the hold: the next request no longer fitted, so what was held is summarised. "
    "It can be restored again."
)


def hold_columns(through: Any, length: HoldLength | None, *, by: Any) -> dict[str, Any]:
    """Return the columns that hold a branch up to a position; none for no length.

    `by` is the user who holds it, None where nobody is known. The time runs from now.
    """
    if length is None:
        return {}
    now = database_now()
    return {
        "hold_through": through,
        "hold_end": length.end.value,
        "held_by_id": getattr(by, "pk", None),
        "held_at": now,
        "held_until": now + length.lasts if length.lasts is not None else None,
    }


def inherited(parent: CompactionState | None, branch: Branch, *, cursor: int) -> dict[str, Any]:
    """Return the columns of the hold that a new fork takes over with its parent's messages.

    As far as they are the fork's own: what stands behind the fork position is not.
    """
    if parent is None or not parent.is_held or branch.fork_position is None:
        return {}
    through = min(parent.hold_through or 0, branch.fork_position)
    return copied(parent) | {"hold_through": through} if through > cursor else {}


def copied(state: CompactionState) -> dict[str, Any]:
    """Return the columns of a state's hold, for a branch that takes its place."""
    return {
        "hold_through": state.hold_through,
        "hold_end": state.hold_end,
        "held_by_id": state.held_by_id,
        "held_at": state.held_at,
        "held_until": state.held_until,
    }


def in_force(profile: Profile, state: CompactionState) -> Profile:
    """Return the parameters that count for a branch: while it is held, not all of its limits."""
    return under_hold(profile, state.hold_end) if state.is_held else profile


def end_of(state: CompactionState) -> str | None:
    """Return what ends the branch's hold (HoldEnd); None where it is not held."""
    return state.hold_end if state.is_held else None


def note_end_of_hold(state: CompactionState, run: CompactionRun) -> None:
    """Say that a run summarises what was held; call it where the cursor moves over it.

    That is a person's decision where somebody asked for the run by hand. Otherwise the window has
    forced it, which is an event and a row of the session's timeline.
    """
    if not state.is_held:
        return
    if is_by_hand(run):
        by = run.requested_by
        text = "A compaction by hand summarises what was held: the hold is lifted."
        record(run.session_id, LIFTED, text, by=by, branch=run.branch_id)
        event("hold_lifted", session=run.session_id, branch=run.branch_id, run=run)
        return
    run.broke_hold = True
    record(run.session_id, BROKEN, BROKEN_WORDS, branch=run.branch_id)
    event("hold_broken", session=run.session_id, branch=run.branch_id, run=run, reason=run.reason)


def is_by_hand(run: CompactionRun) -> bool:
    """Whether a person asked for the run; an automatic one that is run again stays automatic."""
    if run.trigger == CompactionRun.Trigger.PROACTIVE:
        return False
    return run.trigger == CompactionRun.Trigger.MANUAL or run.requested_by_id is not None


def until_words(state: CompactionState) -> str:
    """Return until when a held branch is held."""
    if state.hold_end == HoldEnd.TIME:
        return f"until {when(state.held_until)}"
    if state.hold_end == HoldEnd.WINDOW:
        return "until the window's rule is due"
    return "until somebody lifts it"


def held_since(state: CompactionState, created_at: datetime) -> bool:
    """Whether the branch was held later than something was asked for."""
    return state.is_held and state.held_at is not None and state.held_at > created_at
