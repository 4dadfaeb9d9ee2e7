"""Climbing the ladder of a refused request: engine/recovery.py says what, here it is done.

Every rung is told to the client, stored as a row, and sends less than the request that was refused.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from time import monotonic, sleep
from typing import Any

from chatapp.context.assembly import Context
from chatapp.context.backend import Emit, Recovery
from chatapp.database import release_connection
from chatapp.llm.errors import ErrorKind, ModelError
from chatapp.models import Branch, Session
from chatapp.transcript.writing import TranscriptError
from compaction.branches.context_builder import Cut, context_of, grouped
from compaction.branches.leases import state_of
from compaction.branches.planning import cut_of
from compaction.branches.snapshot import Situation, situation_of
from compaction.conf import compaction_settings
from compaction.engine.policy.reasons import Reason
from compaction.engine.recovery import (
    Footing,
    Ladder,
    LadderRules,
    Move,
    speaks_of_failed_compaction,
)
from compaction.errors import CompactionError
from compaction.models import CompactionRun, RecoveryRung
from compaction.recovery.refusals import is_hopeless, sentence_for, window_of
from compaction.runs.status import run_summary
from compaction.runs.worker import compact_branch
from compaction.summaries.replays import cut_tool_results, is_oversized_now

POLL_SECONDS = 0.5
Outcome = RecoveryRung.Outcome
_REASONS = {
    Move.COMPACT: Reason.OVERFLOW,
    Move.TRUNCATE: "tool_result_truncation",
    Move.HALVE: "halve_history",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Memory:
    """How far the turn has climbed; it goes out and in through Recovery.memory."""

    ladder: Ladder
    recovery: uuid.UUID = field(default_factory=uuid.uuid4)
    rungs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """What one move came to: the context to try, if it helped, and what its row says."""

    ladder: Ladder
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
        """What the rung's row says of it."""
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
    situation = situation_of(session)
    profile = situation.profile
    if not (profile.enabled and profile.retry_on_context_overflow):
        why = "Compaction after an overflow is switched off."
        return Recovery(error=sentence_for(error, situation, refused, tried=why))
    memory = previous.memory if previous is not None else None
    if memory is None:
        rules = LadderRules(
            max_compactions=profile.max_overflow_compaction_attempts,
            truncate=profile.truncate_tool_results,
            halve=profile.halve_history,
        )
        memory = _Memory(ladder=Ladder(rules=rules))
    return _Climb(session=session, error=error, refused=refused, emit=emit, memory=memory).climb()


@dataclass(kw_only=True)
class _Climb:
    """One overflow: rung after rung until a smaller request is found or none is left."""

    session: Session
    error: ModelError
    refused: Context
    emit: Emit
    memory: _Memory

    def climb(self) -> Recovery:
        """Return the next context to try, or the sentence of the end."""
        while True:
            situation = situation_of(self.session)
            move = self.memory.ladder.next(self._footing(situation))
            if move is Move.GIVE_UP or is_hopeless(self.error, situation, self.refused):
                return self._give_up(situation)
            self.emit("compaction", {"phase": "started", "reason": _REASONS[move]})
            step = self._do(move, situation)
            self._record(move, step, situation.branch)
            self.memory = replace(self.memory, ladder=step.ladder)
            if step.context is not None:
                return Recovery(context=step.context, memory=self.memory)

    def _footing(self, situation: Situation) -> Footing:
        rows = [row for row in situation.rows if not row.is_rule]
        return Footing(
            # Shorter results are not fewer messages.
            oversized=self.error.kind is not ErrorKind.TOO_MANY_MESSAGES
            and is_oversized_now(situation, window_of(self.error)),
            groups=len(grouped(rows)),
            compaction_failed=speaks_of_failed_compaction(self.error.detail),
        )

    def _do(self, move: Move, situation: Situation) -> _Step:
        if move is Move.COMPACT:
            return self._compact(situation)
        return self._truncate(situation) if move is Move.TRUNCATE else self._halve(situation)

    def _compact(self, situation: Situation) -> _Step:
        """Compact everything but the question (document 002, 1.4)."""
        reason = self._compaction_reason(situation)
        run = _compact_fully(self.session, situation.branch, reason)
        if run.error_code == "busy" and _is_free_and_unchanged(situation):
            run = _compact_fully(self.session, situation.branch, reason)
        context = context_of(situation_of(self.session), run_id=str(run.pk))
        # A smaller window that the refusal taught makes every request smaller: that is not freed.
        before = self._size(context_of(situation))
        freed = min(self._freed(context), before - self._size(context))
        return _Step(
            ladder=self.memory.ladder.after_compaction(freed),
            context=context if freed > 0 else None,
            text=run.error,
            failed=run.status == CompactionRun.Status.FAILED,
            run=run,
        )

    def _compaction_reason(self, situation: Situation) -> str:
        """Return whether tool results that the model has not seen are summarised, too.

        Only where cutting them is no way any more, and nothing else is left to summarise.
        """
        ladder = self.memory.ladder
        cuttable = ladder.rules.truncate and not ladder.truncated
        if cuttable and is_oversized_now(situation, window_of(self.error)):
            return Reason.OVERFLOW
        earlier = cut_of(situation, keep_last_n=0).messages
        return Reason.OVERFLOW if earlier and not ladder.compactions else Reason.OVERFLOW_AGAIN

    def _truncate(self, situation: Situation) -> _Step:
        """Cut tool results in a replayed branch (document 004, section 4)."""
        ladder = self.memory.ladder
        try:
            cut = cut_tool_results(situation, window_of(self.error))
        except (CompactionError, TranscriptError) as refusal:
            return _Step(ladder=ladder.after_truncation(), text=str(refusal), failed=True)
        context = context_of(situation_of(self.session))
        freed = self._freed(context)
        return _Step(
            ladder=ladder.after_truncation(),
            context=context if freed > 0 else None,
            replay=cut.branch,
            results_cut=cut.results,
            characters_cut=cut.characters,
        )

    def _halve(self, situation: Situation) -> _Step:
        """Send fewer of the newest groups; nothing is stored."""
        footing = self._footing(situation)
        ladder = self.memory.ladder
        while (groups := ladder.halved(footing)) is not None:
            ladder = ladder.after_halving(groups)
            cut = Cut(groups=groups, results_together=True, window=window_of(self.error))
            context = context_of(situation, cut=cut)
            # Pinned messages and the question come on top: fewer groups may change nothing.
            if self._is_enough(context):
                return _Step(ladder=ladder, context=context, groups=groups)
        return _Step(ladder=ladder)

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

    def _record(self, move: Move, step: _Step, branch: Branch) -> None:
        after = step.context or self.refused
        RecoveryRung.objects.create(
            recovery=self.memory.recovery,
            order=self.memory.rungs,
            session=self.session,
            branch=branch,
            move=move.value,
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
        self.memory = replace(self.memory, rungs=self.memory.rungs + 1)
        self.emit("compaction", self._news(move, step))

    def _news(self, move: Move, step: _Step) -> dict[str, Any]:
        """Return what the client hears of a rung when it is done."""
        news: dict[str, Any] = {
            "phase": "finished",
            "rung": move.value,
            "outcome": step.outcome,
            "reason": _REASONS.get(move, move.value),
        }
        if step.run is not None:
            news |= run_summary(step.run)
        if step.replay is not None:
            news |= {"branch": str(step.replay.pk), "results_cut": step.results_cut}
            news |= {"characters_cut": step.characters_cut}
        if step.groups is not None:
            news |= {"groups": step.groups}
        return news

    def _give_up(self, situation: Situation) -> Recovery:
        tried = self._tried()
        sentence = sentence_for(self.error, situation, self.refused, tried=tried)
        step = _Step(ladder=self.memory.ladder, text=sentence)
        self._record(Move.GIVE_UP, step, situation.branch)
        return Recovery(error=sentence, memory=self.memory)

    def _tried(self) -> str:
        """Return in words what was tried in this turn."""
        rungs = RecoveryRung.objects.filter(recovery=self.memory.recovery).order_by("order")
        helped = [rung.move for rung in rungs if rung.outcome == Outcome.SMALLER]
        words = []
        if compactions := helped.count(Move.COMPACT.value):
            words.append("a compaction" if compactions == 1 else f"{compactions} compactions")
        if Move.TRUNCATE.value in helped:
            words.append("cutting its tool results")
        if Move.HALVE.value in helped:
            words.append("sending only the newest messages")
        said = [f"It was still too large after {', '.join(words)}."] if words else []
        failed = [rung.text for rung in rungs if rung.text and rung.outcome != Outcome.SMALLER]
        return " ".join([*said, *failed[-1:]])


def _compact_fully(session: Session, branch: Branch, reason: str) -> CompactionRun:
    return compact_branch(
        session=session,
        branch=branch,
        trigger=CompactionRun.Trigger.OVERFLOW_RETRY,
        reason=reason,
        keep_last_n=0,
    )


def _is_free_and_unchanged(before: Situation) -> bool:
    """Wait for whoever holds the branch; whether it is free then and was not summarised further."""
    return _wait_for_holder(before) and state_of(before.branch).cursor == before.state.cursor


def _wait_for_holder(before: Situation) -> bool:
    """Wait until nobody works on the branch; return whether that came within the user's time."""
    end = monotonic() + compaction_settings.inline_seconds
    while state_of(before.branch).is_consolidating:
        if monotonic() > end:
            return False
        release_connection()
        sleep(POLL_SECONDS)
    return True
