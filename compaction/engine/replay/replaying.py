"""A conversation replayed under a profile, turn by turn, with the engine alone.

Before each answer the next request is put together, and what is due first is compacted; behind it,
what is due in the background is. Nothing is stored. What a worker would do is taken to be done
before the next message, so a replay shows a queue that keeps up.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from compaction.engine.parameters import Profile
from compaction.engine.policy.cache_clock import run_delay_ms
from compaction.engine.policy.reasons import Reason, RunCode
from compaction.engine.policy.window import falls_out, uses_digest
from compaction.engine.replay.branch import CutFailed, ReplayedBranch
from compaction.engine.replay.conversation import ReplayedConversation
from compaction.engine.replay.figures import CompactionPoint, ReplayFigures
from compaction.engine.replay.requests import ReplayedRequests
from compaction.engine.replay.running import ReplayedRun
from compaction.engine.replay.state import ReplayModel, ReplayState
from compaction.engine.replay.survival import Named
from compaction.engine.tool_results import limits_of
from compaction.engine.types import (
    Clock,
    Decision,
    NoMoreCallsError,
    Summarizer,
    SummaryFailed,
)

INLINE, BACKGROUND = "inline", "background"
# Rules that are no limit: too few messages are not worth a run.
_UNHURRIED = frozenset({Reason.AHEAD, Reason.MAXIMUM_AGE})
# A background run leaves others behind it; more than so many in a row are a fault of a rule.
MOST_IN_A_ROW = 500
# How many attempts of one request may fail: smaller batches, then digests.
MOST_FAILURES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """How a replay goes: calls that a request waits for, the first pause after a failure.

    `on_messages` hears how many messages have come, and may raise to end the replay.
    """

    inline_calls: int = 8
    backoff_seconds: float = 60.0
    input_price: float = 0.0
    clock: Clock = time.monotonic
    on_messages: Callable[[int], None] = lambda count: None


class ProfileReplay:
    """One conversation under one profile; what comes of it is added to `figures`."""

    def __init__(
        self,
        conversation: ReplayedConversation,
        profile: Profile,
        *,
        figures: ReplayFigures,
        model: ReplayModel,
        summarizer: Summarizer,
        options: ReplayOptions,
    ) -> None:
        self._conversation, self._model = conversation, model
        self._summarizer, self._options = summarizer, options
        self._state = ReplayState(profile=profile, counter=model.counter)
        self._requests = ReplayedRequests(
            conversation, limits_of(profile), window=max(0, model.window)
        )
        self.figures = figures
        self._end = 0

    def run(self, named: Named) -> None:
        """Replay it; `named` is what the conversation names.

        A strategy or a cut that gives no plan ends the replay with a sentence among the problems.
        """
        sums, is_answer = self._conversation.sums, True
        try:
            for number in range(len(sums)):
                self._options.on_messages(number)
                self._wait_until(number + 1)
                is_answer = sums.message(number).role == "assistant"
                if is_answer:
                    self._ask()
                self._end = number + 1
                if is_answer:
                    self._state.asked_seconds = self._branch().seconds
                    self._look()
            self._options.on_messages(len(sums))
            if not is_answer:
                self._ask()
            self.figures.survived(named.survival(self._requests.texts(self._branch())))
        except CutFailed as failure:
            self.figures.note(str(failure))

    def _branch(self, *, end: int | None = None) -> ReplayedBranch:
        count = self._end if end is None else end
        return ReplayedBranch(
            self._conversation,
            self._state,
            self._model,
            end=count,
            seconds=self._conversation.sums.seconds(count),
            note=self.figures.note,
        )

    # --- before a request -------------------------------------------------------------------------

    def _ask(self) -> None:
        """Compact what cannot wait, and put the request together that gets the next answer."""
        # It starts the time of its server's prompt cache anew.
        self._state.asked_seconds = None
        branch = self._branch()
        # A worker takes up what is due now; the request does not wait for it.
        is_queued = self._is_for_worker(branch) and self._due_later(branch) is not None
        self._compact_inline()
        self._note_request(self._branch())
        if is_queued:
            self._look()

    @staticmethod
    def _is_for_worker(branch: ReplayedBranch) -> bool:
        background = branch.decision(modes=(BACKGROUND,), by_limits_alone=True)
        return background is not None and branch.decision(modes=(INLINE,)) is None

    def _compact_inline(self) -> None:
        """Compact as long as a request would have to wait for it: once, or until all fits."""
        calls, failed, used_digest = self.figures.spent.calls, 0, False
        while (decision := self._due_inline(branch := self._branch())) is not None:
            if self._publish():
                continue
            is_digest = uses_digest(branch.profile, self._state.failures)
            helped = self._compact(branch, decision, mode=INLINE)
            used_digest |= helped and is_digest
            failed += not helped
            after = self._branch()
            hides = falls_out(after.profile, after.facts.countable)
            goes_on = hides if failed else not used_digest
            if decision.reason != Reason.HARD_LIMIT or not goes_on or failed > MOST_FAILURES:
                break
        self.figures.waits += self.figures.spent.calls > calls

    def _due_inline(self, branch: ReplayedBranch) -> Decision | None:
        decision = branch.decision(modes=(INLINE,))
        if decision is None and self._requests.would_be_refused(branch):
            decision = Decision(reason=Reason.PRECHECK)
        if decision is None:
            return None
        hides = falls_out(branch.profile, branch.facts.countable)
        bypasses = decision.reason == Reason.HARD_LIMIT and (self._state.failures or hides)
        if branch.backs_off and not bypasses:
            return None
        return decision if branch.cut().messages else None

    def _note_request(self, branch: ReplayedBranch) -> None:
        tokens = math.ceil(self._requests.tokens(branch) * self._model.scale)
        figures, window = self.figures, self._model.window
        figures.sent.add(tokens)
        figures.sending_cost += tokens * self._options.input_price / 1_000_000
        if window > 0:
            figures.worst_use = max(figures.worst_use, tokens / window)
            figures.too_large += tokens > window

    # --- in the background ------------------------------------------------------------------------

    def _wait_until(self, count: int) -> None:
        """Let the time pass until the next message: a rule may be due by the time alone."""
        branch = self._branch()
        passed = self._conversation.sums.seconds(count) - branch.seconds
        old = _grows_old(branch)
        # Where an answer comes next, its request is under way, and has started the time anew.
        is_asked = self._conversation.sums.message(count - 1).role == "assistant"
        expires = None if is_asked else _cache_expires(branch)
        for later in sorted({one for one in (old, expires) if one is not None}):
            if 0 < later <= passed:
                self._look(later=later)
                if later == expires:
                    # The clock fires once.
                    self._state.asked_seconds = None

    def _look(self, *, later: float = 0.0) -> None:
        """Do what is due in the background, run after run, as workers do that keep up."""
        for _ in range(MOST_IN_A_ROW):
            branch = self._branch()
            branch.seconds += later
            decision = self._due_later(branch)
            if decision is None:
                return
            if self._publish():
                continue
            if not self._compact(branch, decision, mode=BACKGROUND):
                return

    @staticmethod
    def _due_later(branch: ReplayedBranch) -> Decision | None:
        """Return why a run is due that no request waits for, if it is worth one."""
        if branch.backs_off or branch.decision(by_limits_alone=True) is None:
            return None
        decision = branch.decision()
        if decision is None:
            return None
        least = branch.profile.minimum_batch if decision.reason in _UNHURRIED else 1
        return decision if branch.is_worth_a_run(decision, least=least) else None

    def _publish(self) -> bool:
        """Let the draft count, if there is one."""
        draft = self._state.draft
        if draft is not None:
            self._state.take(draft, seconds=self._branch().seconds)
        return draft is not None

    # --- one compaction ---------------------------------------------------------------------------

    def _compact(self, branch: ReplayedBranch, decision: Decision, *, mode: str) -> bool:
        """Compact a branch; return whether something came of it.

        What a request does not wait for any longer is finished in the background.
        """
        most = self._options.inline_calls if mode == INLINE else None
        run = ReplayedRun(
            branch,
            self._summarizer,
            clock=self._options.clock,
            most_calls=most,
            reason=decision.reason,
        )
        is_left = False
        try:
            summary = run.summary()
        except (NoMoreCallsError, SummaryFailed) as failure:
            summary, is_left = None, run.summarizer.was_reached
            if isinstance(failure, SummaryFailed) and failure.code == RunCode.NO_GAIN:
                # No failure: nothing waits, but for more to be summarised.
                self.figures.note(str(failure))
                self._state.gainless_total = branch.covered_tokens + branch.tokens
            elif not is_left:
                self.figures.failures += 1
                self.figures.note(str(failure))
                pause = self._options.backoff_seconds
                self._state.fail(seconds=branch.seconds, pause=pause)
        finally:
            self.figures.spent.add(run.summarizer.spent)
            self.figures.waited += run.summarizer.spent.seconds if mode == INLINE else 0.0
        if summary is None:
            if is_left:
                self._finish(branch)
            return False
        before = self._state.cursor
        self.figures.summarised += self._conversation.sums.tokens(before, summary.covered)
        point = CompactionPoint(
            messages=branch.end, covered=summary.covered, reason=decision.reason, mode=mode
        )
        self.figures.compacted(point)
        if decision.reason == Reason.AHEAD and branch.profile.publish_when_needed:
            self._state.keep(summary)
            return False
        self._state.take(summary, seconds=branch.seconds)
        if run.summarizer.was_reached and run.left:
            self._finish(branch)
        return True

    def _finish(self, branch: ReplayedBranch) -> None:
        """Finish in the background what a request did not wait for."""
        rest = self._branch(end=branch.end)
        if rest.cut().messages:
            self._compact(rest, Decision(reason=Reason.REST), mode=BACKGROUND)


def _grows_old(branch: ReplayedBranch) -> float | None:
    """Return in how many seconds what waits is old enough for a run; None where it never is."""
    age = branch.profile.compression_cooldown_sec
    since = branch.facts.waiting_seconds if age else None
    return None if since is None else age - since


def _cache_expires(branch: ReplayedBranch) -> float | None:
    """Return in how many seconds a run is due before the prompt cache expires; None: never."""
    delay = run_delay_ms(branch.profile, branch.cache_age_ms)
    return None if delay is None else delay / 1000
