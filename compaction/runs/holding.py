"""What a person is told before and after a restore, and how they lift the hold that it sets.

What the next turn will do is worked out from the rules themselves: by a snapshot of the branch as
it is, or as it would be.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from django.db import transaction

from chatapp.audit import name_of, record
from chatapp.database import database_now
from chatapp.formatting import span_words
from chatapp.models import POSITION_STEP, Branch, Session
from compaction.branches.context_builder import foreseen
from compaction.branches.coverage import coverage_of
from compaction.branches.holds import LIFTED, RELEASED, until_words
from compaction.branches.leases import state_of
from compaction.branches.planning import due_before_next_turn
from compaction.branches.snapshot import BranchSnapshot, snapshot_of
from compaction.engine.policy.reasons import Reason
from compaction.events import event
from compaction.models import CompactionState, SessionSummary
from compaction.runs.scheduling import check_branch
from compaction.summaries.restore import hold_of_restore, refuse_branch_summary, taken_back_with


@dataclass(frozen=True, slots=True, kw_only=True)
class NextTurn:
    """What the next turn does with a branch, before its own message is known.

    `request_tokens` is the size of its request, `window` the model's, 0 where it is not known.
    `compacts` is the reason why it compacts first, `overflow` where only a refusal would make it;
    None where it does not.
    """

    window: int
    request_tokens: int
    compacts: str | None

    def as_dict(self) -> dict[str, Any]:
        """Return the facts by name."""
        return asdict(self)

    @property
    def is_too_large(self) -> bool:
        """Whether the request alone is larger than the window."""
        return 0 < self.window < self.request_tokens

    @property
    def waits_for_refusal(self) -> bool:
        """Whether no rule looks at the window, so that the server alone decides."""
        return self.compacts == Reason.OVERFLOW


def next_turn_of(snapshot: BranchSnapshot) -> NextTurn:
    """Return what the next turn does with a branch as it is in the snapshot."""
    decision = due_before_next_turn(snapshot) or foreseen(snapshot)
    tokens, window = snapshot.whole_facts.request_tokens, snapshot.model.context_window
    reason = decision.reason if decision is not None else None
    turn = NextTurn(window=window, request_tokens=tokens, compacts=reason)
    if reason is None and turn.is_too_large and snapshot.recovers:
        # No rule looks at the window; the server may.
        return replace(turn, compacts=Reason.OVERFLOW.value)
    return turn


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePreview:
    """What restoring a summary would do: how much is sent again, who holds it, what follows.

    `snapshot` is the branch as it would be: its state's hold says until when.
    """

    summaries: list[SessionSummary]
    messages: int
    tokens: int
    snapshot: BranchSnapshot
    next_turn: NextTurn

    @property
    def sentence(self) -> str:
        """What the next turn would do, with figures."""
        return restored_words(self.tokens, self.next_turn)

    @property
    def hold(self) -> str:
        """How long no rule would compact them; empty where nothing would hold them."""
        state = self.snapshot.state
        if not state.is_held:
            return ""
        if state.held_until and state.held_at:
            # It begins with the restore, not now.
            return f"for {span_words(state.held_until - state.held_at)}"
        return until_words(state)


def restored_words(tokens: int, turn: NextTurn) -> str:
    """Return what follows for restored messages of so many tokens, as a sentence."""
    if turn.window > 0:
        said = f"The window holds {turn.window:,} tokens, the restored messages take {tokens:,}"
    else:
        said = f"The restored messages take {tokens:,} tokens"
    if tokens <= turn.window and (turn.is_too_large or turn.compacts is not None):
        # They alone would fit: what makes it too much is the rest.
        said += f", the whole request {turn.request_tokens:,}"
    if turn.waits_for_refusal:
        return (
            f"{said}: the next turn would send them verbatim, and compact again if the model's "
            "server refuses that."
        )
    if turn.compacts is None:
        # Nothing would make it smaller.
        fails = ", and fail if the model's server refuses that" if turn.is_too_large else ""
        return f"{said}: the next turn would send them verbatim{fails}."
    return f"{said}: the next turn would compact again."


def preview_restore(
    summary: SessionSummary,
    *,
    cascade: bool = False,
    by: Any = None,
    before: Sequence[SessionSummary] = (),
) -> RestorePreview:
    """Return what restoring a summary would do; nothing is changed.

    With `before`, summaries of its session that are restored before it, the figures are those of
    all of them. Told is what follows for the branch that the session is on, where the summary
    counts there, else for its own. Raises CompactionError where restore_summary would, but for a
    busy branch.
    """
    refuse_branch_summary(summary)
    session = summary.session
    branches = list(Branch.objects.filter(session_id=session.pk))
    affected = taken_back_with(summary, branches, cascade=cascade, before=before)
    affected += before
    snapshot = _taken_back(session, session.branch, affected, by=by)
    if snapshot.state.cursor == snapshot.state.stored_cursor:
        snapshot = _taken_back(session, summary.branch, affected, by=by)
    state, now = snapshot.state, state_of(snapshot.branch)
    return RestorePreview(
        summaries=affected,
        messages=now.covered_messages - state.covered_messages,
        tokens=now.covered_tokens - state.covered_tokens,
        snapshot=snapshot,
        next_turn=next_turn_of(snapshot),
    )


def _taken_back(
    session: Session, branch: Branch, affected: list[SessionSummary], *, by: Any
) -> BranchSnapshot:
    """Return a branch as it would be without some summaries."""
    now = snapshot_of(session, branch)
    reach = coverage_of(branch, besides=[row.pk for row in affected])
    state = copy.copy(now.state)
    columns = {**hold_of_restore(now.state, by=by), **reach.as_columns()}
    for name, value in columns.items():
        setattr(state, name, value)
    state.last_consolidated_at = database_now()
    return BranchSnapshot(session=session, state=state, profile_row=now.profile_row)


def hold_facts(snapshot: BranchSnapshot) -> dict[str, Any] | None:
    """Return who holds a branch, which messages, until when, and what the next turn will do."""
    state = snapshot.state
    if not state.is_held or state.hold_through is None:
        return None
    turn = next_turn_of(snapshot)
    return {
        "by": name_of(state.held_by) or None,
        "since": state.held_at,
        "ends": state.hold_end,
        "until": state.held_until,
        "through": state.hold_through / POSITION_STEP,
        "next_turn": turn.as_dict(),
        "text": hold_words(state, turn),
    }


def held_words(state: CompactionState) -> str:
    """Return who holds a branch and until when, as a sentence."""
    by = name_of(state.held_by)
    whose = f" by {by}" if by else ""
    return f"Held{whose} {until_words(state)}: no rule compacts what was restored."


def hold_words(state: CompactionState, turn: NextTurn) -> str:
    """Return a held branch's facts as sentences, and what the next turn will do."""
    said = f"{held_words(state)} "
    if turn.compacts is None and not turn.is_too_large:
        return f"{said}The next turn sends it verbatim."
    said += f"The window holds {turn.window:,} tokens, the next request takes "
    said += f"{turn.request_tokens:,}: the next turn "
    if turn.compacts is None:
        return f"{said}sends it verbatim, and fails if the model's server refuses that."
    if turn.waits_for_refusal:
        return (
            f"{said}sends it verbatim. If the model's server refuses that, it breaks the hold and "
            "compacts."
        )
    return f"{said}breaks the hold and compacts."


def lift_hold(session: Session, *, by: Any = None, branch: Branch | None = None) -> bool:
    """Let the rules count again on a branch, the active one where none is named.

    Return whether it was held. What is due by then is queued, as after a stored message.
    """
    branch = branch or session.branch
    with transaction.atomic():
        held = CompactionState.objects.filter(pk=branch.pk, hold_through__isnull=False)
        lifted = bool(held.update(**RELEASED, next_check_at=database_now()))
        if lifted:
            text = "The hold was lifted: the profile's rules count again."
            record(session, LIFTED, text, by=by, branch=branch)
            event("hold_lifted", session=session, branch=branch)
    if lifted:
        check_branch(session, branch)
    return lifted
