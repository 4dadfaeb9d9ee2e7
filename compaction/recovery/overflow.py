"""The recovery of a refused request: engine/recovery.py says what, here it is done.

Every step is told to the client, stored as a row, and sends less than the request that was refused.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from time import monotonic, sleep
from typing import Any

from chatapp.context.assembly import Context
from chatapp.context.backend import Emit, Recovery
from chatapp.database import release_connection
from chatapp.ids import new_id
from chatapp.llm.errors import ErrorKind, ModelError
from chatapp.models import Branch, Session
from chatapp.transcript.writing import TranscriptError
from compaction.branches.context_builder import RequestCut, context_of, grouped
from compaction.branches.leases import state_of
from compaction.branches.made_of import with_steps
from compaction.branches.past_window import bounded
from compaction.branches.planning import cut_of
from compaction.branches.snapshot import BranchSnapshot, snapshot_of
from compaction.branches.tail import behind_cursor
from compaction.conf import compaction_settings
from compaction.engine.policy.reasons import Reason, RunCode
from compaction.engine.recovery import (
    RecoveryAction,
    RecoveryInput,
    RecoveryLimits,
    RecoveryPolicy,
    speaks_of_failed_compaction,
)
from compaction.errors import CompactionError
from compaction.models import CompactionRun, RecoveryStep
from compaction.recovery.refusals import is_hopeless, sentence_for, window_of
from compaction.runs.status import run_summary
from compaction.runs.worker import compact_branch
from compaction.selectors import compactions_since_question, has_automatic_run
from compaction.summaries.replays import cut_tool_results, is_oversized_now

POLL_SECONDS = 0.5
Outcome = RecoveryStep.Outcome
_REASONS = {
    RecoveryAction.COMPACT: Reason.OVERFLOW,
    RecoveryAction.TRUNCATE: "tool_result_truncation",
    RecoveryAction.HALVE: "halve_history",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Memory:
    """How far the turn has come; it goes out and in through Recovery.memory."""

    policy: RecoveryPolicy
    recovery: uuid.UUID = field(default_factory=new_id)
    recovery_steps: int = 0
    # Seconds that the user has waited for compactions.
    waited: float = 0.0
    # What made the request smaller so far, in order.
    helped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """What one move came to: the context to try, if it helped, and what its row says."""

    policy: RecoveryPolicy
    context: Context | None = None
    text: str = ""
    failed: bool = False
    run: CompactionRun | None = None
    replay: Branch | None = None
    groups: int | None = None
    results_cut: int = 0
    characters_cut: int = 0

    @property
    def outcome(self) -> str:
        """What the step's row says of it."""
        if self.context is not None:
            return Outcome.SMALLER.value
        return (Outcome.FAILED if self.failed else Outcome.NO_HELP).value


def recover_overflow(
    session: Session,
    error: ModelError,
    previous: Recovery | None,
    *,
    refused: Context,
    emit: Emit,
) -> Recovery:
    """Return a smaller context after an overflow, or a sentence that says what to do."""
    snapshot = bounded(snapshot_of(session))
    profile = snapshot.profile
    if not snapshot.recovers:
        why = "Compaction after an overflow is switched off."
        return Recovery(error=sentence_for(error, snapshot, refused, tried=why))
    memory = previous.memory if previous is not None else None
    if memory is None:
        rules = RecoveryLimits(
            max_compactions=profile.max_overflow_compaction_attempts,
            truncate=profile.truncate_tool_results,
            halve=profile.halve_history,
        )
        policy = RecoveryPolicy(
            rules=rules,
            compactions=compactions_since_question(snapshot.branch),
            keeps_cut=profile.overflow_keeps == "cut",
        )
        memory = _Memory(policy=policy)
    return _OverflowRecovery(
        session=session, error=error, refused=refused, emit=emit, memory=memory
    ).recover()


@dataclass(kw_only=True)
class _OverflowRecovery:
    """One overflow: step after step until a smaller request is found or none is left."""

    session: Session
    error: ModelError
    refused: Context
    emit: Emit
    memory: _Memory

    def recover(self) -> Recovery:
        """Return the next context to try, or the sentence of the end."""
        while True:
            snapshot = bounded(snapshot_of(self.session))
            action = self.memory.policy.next(self._recovery_input(snapshot))
            if action is RecoveryAction.GIVE_UP or is_hopeless(self.error, snapshot, self.refused):
                return self._give_up(snapshot)
            self.emit("compaction", {"phase": "started", "reason": _REASONS[action]})
            step = self._do(action, snapshot)
            self._record(action, step, snapshot.branch)
            self.memory = replace(self.memory, policy=step.policy)
            if step.context is not None:
                helped = (*self.memory.helped, action.value)
                self.memory = replace(self.memory, helped=helped)
                made_of = with_steps(step.context.made_of, helped)
                context = replace(step.context, made_of=made_of)
                return Recovery(context=context, memory=self.memory)

    def _recovery_input(self, snapshot: BranchSnapshot) -> RecoveryInput:
        rows = behind_cursor(snapshot).rows
        return RecoveryInput(
            # Shorter results are not fewer messages.
            oversized=self.error.kind is not ErrorKind.TOO_MANY_MESSAGES
            and is_oversized_now(snapshot, window_of(self.error)),
            groups=len(grouped(rows)),
            compaction_failed=speaks_of_failed_compaction(self.error.detail)
            or self.memory.waited > compaction_settings.inline_seconds,
            unfinished=self._is_unfinished(snapshot),
        )

    def _is_unfinished(self, snapshot: BranchSnapshot) -> bool:
        """Whether a run waits or works that summarises more, so that less can be sent meanwhile.

        Looked for only where the profile itself has no such step.
        """
        if self.memory.policy.rules.halve:
            return False
        return has_automatic_run(snapshot.branch) and cut_of(snapshot).messages > 0

    def _do(self, action: RecoveryAction, snapshot: BranchSnapshot) -> _Step:
        if action is RecoveryAction.COMPACT:
            return self._compact(snapshot)
        return (
            self._truncate(snapshot) if action is RecoveryAction.TRUNCATE else self._halve(snapshot)
        )

    def _compact(self, snapshot: BranchSnapshot) -> _Step:
        """Compact everything but the question, or but what the profile's cut keeps."""
        keep = None if self.memory.policy.keeps_cut else 0
        reason = self._compaction_reason(snapshot)
        began = monotonic()
        end = began + compaction_settings.inline_seconds - self.memory.waited
        run = _compact(self.session, snapshot.branch, reason, end, keep)
        if run.error_code == RunCode.BUSY and _is_free_and_unchanged(snapshot, end):
            run = _compact(self.session, snapshot.branch, reason, end, keep)
        waited = self.memory.waited + monotonic() - began
        self.memory = replace(self.memory, waited=waited)
        context = context_of(bounded(snapshot_of(self.session)), run_id=str(run.pk))
        # A smaller window that the refusal taught makes every request smaller: that is not freed.
        before = self._size(context_of(snapshot))
        freed = min(self._freed(context), before - self._size(context))
        return _Step(
            policy=self.memory.policy.after_compaction(freed),
            context=context if freed > 0 else None,
            text=run.error,
            failed=run.status == CompactionRun.Status.FAILED,
            run=run,
        )

    def _compaction_reason(self, snapshot: BranchSnapshot) -> str:
        """Return whether tool results that the model has not seen are summarised, too.

        Only where cutting them is no way any more, and nothing else is left to summarise.
        """
        policy = self.memory.policy
        if policy.keeps_cut:
            return Reason.OVERFLOW
        cuttable = policy.rules.truncate and not policy.truncated
        if cuttable and is_oversized_now(snapshot, window_of(self.error)):
            return Reason.OVERFLOW
        earlier = cut_of(snapshot, keep_last_n=0).messages
        return Reason.OVERFLOW if earlier and not policy.compactions else Reason.OVERFLOW_AGAIN

    def _truncate(self, snapshot: BranchSnapshot) -> _Step:
        """Cut tool results in a replayed branch."""
        policy = self.memory.policy
        try:
            cut = cut_tool_results(snapshot, window_of(self.error))
        except (CompactionError, TranscriptError) as refusal:
            return _Step(policy=policy.after_truncation(), text=str(refusal), failed=True)
        context = context_of(bounded(snapshot_of(self.session)))
        freed = self._freed(context)
        return _Step(
            policy=policy.after_truncation(),
            context=context if freed > 0 else None,
            replay=cut.branch,
            results_cut=cut.results,
            characters_cut=cut.characters,
        )

    def _halve(self, snapshot: BranchSnapshot) -> _Step:
        """Send fewer of the newest groups; nothing is stored."""
        recovery_input = self._recovery_input(snapshot)
        policy = self.memory.policy
        while (groups := policy.halved(recovery_input)) is not None:
            policy = policy.after_halving(groups)
            named = window_of(self.error)
            cut = RequestCut(groups=groups, results_together=True, window=named, refused=True)
            context = context_of(snapshot, cut=cut)
            # Pinned messages and the question come on top: fewer groups may change nothing.
            if self._is_enough(context):
                return _Step(policy=policy, context=context, groups=groups)
        return _Step(policy=policy)

    def _freed(self, context: Context) -> int:
        return self._size(self.refused) - self._size(context)

    def _size(self, context: Context) -> int:
        """Return what the server found too much of: messages, or tokens."""
        if self.error.kind is ErrorKind.TOO_MANY_MESSAGES:
            return len(context.messages)
        return context.account.used

    def _is_enough(self, context: Context) -> bool:
        """Whether a context is worth a request: smaller, and not above a named number."""
        most = self.error.allowed if self.error.kind is ErrorKind.TOO_MANY_MESSAGES else None
        return self._freed(context) > 0 and (not most or len(context.messages) <= most)

    def _record(self, action: RecoveryAction, step: _Step, branch: Branch) -> None:
        after = step.context or self.refused
        RecoveryStep.objects.create(
            recovery=self.memory.recovery,
            order=self.memory.recovery_steps,
            session=self.session,
            branch=branch,
            action=action.value,
            outcome=step.outcome,
            text=step.text,
            run=step.run,
            replay=step.replay,
            error_kind=self.error.kind.value,
            error=self.error.detail,
            observed=self.error.observed,
            allowed=self.error.allowed,
            tokens_before=self.refused.account.used,
            tokens_after=after.account.used,
            groups=step.groups,
            results_cut=step.results_cut,
            characters_cut=step.characters_cut,
        )
        self.memory = replace(self.memory, recovery_steps=self.memory.recovery_steps + 1)
        self.emit("compaction", self._payload(action, step))

    def _payload(self, action: RecoveryAction, step: _Step) -> dict[str, Any]:
        """Return what the client hears of a step when it is done."""
        payload: dict[str, Any] = {
            "phase": "finished",
            "action": action.value,
            # The older name, for one version.
            "rung": action.value,
            "outcome": step.outcome,
            "reason": _REASONS.get(action, action.value),
        }
        if step.run is not None:
            payload |= run_summary(step.run)
        if step.replay is not None:
            payload |= {"branch": str(step.replay.pk), "results_cut": step.results_cut}
            payload |= {"characters_cut": step.characters_cut}
        if step.groups is not None:
            payload |= {"groups": step.groups}
        return payload

    def _give_up(self, snapshot: BranchSnapshot) -> Recovery:
        tried = self._tried()
        sentence = sentence_for(self.error, snapshot, self.refused, tried=tried)
        step = _Step(policy=self.memory.policy, text=sentence)
        self._record(RecoveryAction.GIVE_UP, step, snapshot.branch)
        return Recovery(error=sentence, memory=self.memory)

    def _tried(self) -> str:
        """Return in words what was tried in this turn."""
        recovery_steps = RecoveryStep.objects.filter(recovery=self.memory.recovery).order_by(
            "order"
        )
        helped = [
            recovery_step.action
            for recovery_step in recovery_steps
            if recovery_step.outcome == Outcome.SMALLER
        ]
        words = []
        if compactions := helped.count(RecoveryAction.COMPACT.value):
            words.append("a compaction" if compactions == 1 else f"{compactions} compactions")
        if RecoveryAction.TRUNCATE.value in helped:
            words.append("cutting its tool results")
        if RecoveryAction.HALVE.value in helped:
            words.append("sending only the newest messages")
        said = [f"It was still too large after {', '.join(words)}."] if words else []
        failed = [
            recovery_step.text
            for recovery_step in recovery_steps
            if recovery_step.text and recovery_step.outcome != Outcome.SMALLER
        ]
        return " ".join([*said, *failed[-1:]])


def _compact(
    session: Session, branch: Branch, reason: str, end: float, keep: int | None
) -> CompactionRun:
    return compact_branch(
        session=session,
        branch=branch,
        trigger=CompactionRun.Trigger.OVERFLOW_RETRY,
        reason=reason,
        keep_last_n=keep,
        seconds=max(1.0, end - monotonic()),
    )


def _is_free_and_unchanged(before: BranchSnapshot, end: float) -> bool:
    """Wait for whoever holds the branch; whether it is free then and was not summarised further."""
    return _wait_for_holder(before, end) and state_of(before.branch).cursor == before.state.cursor


def _wait_for_holder(before: BranchSnapshot, end: float) -> bool:
    """Wait until nobody works on the branch; return whether that came within the user's time."""
    while state_of(before.branch).is_consolidating:
        if monotonic() > end:
            return False
        release_connection()
        sleep(POLL_SECONDS)
    return True
