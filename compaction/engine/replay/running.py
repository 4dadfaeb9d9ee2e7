"""One compaction of a replay: what the strategy is given, and what of it counts.

It is what a run of the application does without a row: the same job, the same checks of the
outcome, the same sizes before and after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from compaction.engine.abridged import Entry, entries_of
from compaction.engine.abridging import with_history, with_small_history
from compaction.engine.fidelity.redaction import redact, redact_items
from compaction.engine.policy.groups import MoreItemsNeeded
from compaction.engine.policy.head import count_dropped, within_limit
from compaction.engine.policy.reasons import Reason, RunCode
from compaction.engine.policy.window import batch_size, first_batch, uses_digest
from compaction.engine.protocols import SentSummary
from compaction.engine.registry import STRATEGIES
from compaction.engine.replay.branch import ReplayedBranch
from compaction.engine.replay.state import ReplayedSummary, sent_text_of
from compaction.engine.strategies.acceptance import does_not_shrink, fault_of_outcome
from compaction.engine.strategies.actions import joined_files
from compaction.engine.strategies.base import shown_of_kept
from compaction.engine.strategies.branch_summary import without_files
from compaction.engine.strategies.checkpoint_text import CHECKPOINT
from compaction.engine.strategies.finishing import chooses_sentences, with_fidelity
from compaction.engine.tool_results import limited_results, limits_of, named_results
from compaction.engine.types import (
    Clock,
    Item,
    NoMoreCallsError,
    Outcome,
    Step,
    Summarizer,
    SummarizerError,
    SummarizerOverflow,
    SummaryAnswer,
    SummaryFailed,
    SummaryJob,
    SummaryRequest,
)

DIGEST = "digest"
# How many more messages than a batch takes are looked at: it ends between groups.
BATCH_MARGIN = 64


@dataclass(slots=True)
class ReplaySpent:
    """What calls of a summariser took, those that failed too; `seconds` are by the clock."""

    calls: int = 0
    read: int = 0
    written: int = 0
    cost: float = 0.0
    seconds: float = 0.0

    def add(self, other: ReplaySpent) -> None:
        """Add what others took."""
        self.calls += other.calls
        self.read += other.read
        self.written += other.written
        self.cost += other.cost
        self.seconds += other.seconds


@dataclass(slots=True, kw_only=True)
class CountedSummarizer:
    """A summariser whose calls are counted; one that a request waits for is asked `most` times."""

    inner: Summarizer
    clock: Clock
    most: int | None = None
    hides_secrets: bool = False
    spent: ReplaySpent = field(default_factory=ReplaySpent)
    was_reached: bool = False

    @property
    def chooses_sentences(self) -> bool:
        """Whether the summariser is no model."""
        return chooses_sentences(self.inner)

    def input_limit(self, target_tokens: int) -> int | None:
        """Return the tokens of transcript that one call can take."""
        return self.inner.input_limit(target_tokens)

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        """Return the answer; raise NoMoreCallsError where no call is left."""
        if self.most is not None and self.spent.calls >= self.most:
            self.was_reached = True
            raise NoMoreCallsError(f"A request waits for no more calls than {self.most:,}.")
        self.spent.calls += 1
        started = self.clock()
        try:
            answer = self.inner.summarize(request)
        finally:
            self.spent.seconds += self.clock() - started
        self.spent.read += answer.input_tokens
        self.spent.written += answer.output_tokens
        self.spent.cost += answer.cost
        return replace(answer, text=redact(answer.text).text) if self.hides_secrets else answer


class ReplayedRun:
    """A compaction of a branch as it is; `most_calls` where a request waits for it."""

    def __init__(
        self,
        branch: ReplayedBranch,
        summarizer: Summarizer,
        *,
        clock: Clock,
        most_calls: int | None,
        reason: str = "",
    ) -> None:
        self.branch, self.reason = branch, reason
        self.left = 0
        """Messages that were to be summarised and are not."""
        self.summarizer = CountedSummarizer(
            inner=summarizer,
            clock=clock,
            most=most_calls,
            hides_secrets=branch.profile.redact_secrets,
        )

    def summary(self) -> ReplayedSummary | None:
        """Return the new summary, or None where there is nothing to summarise.

        Raises SummaryFailed, NoMoreCallsError and CutFailed.
        """
        items = self._input()
        if not items:
            return None
        smaller = self.branch.profile.smaller_after_failures
        is_made_small = 0 < smaller <= self.branch.state.failures
        least = 0 if is_made_small else self.branch.least_tokens(self.reason)
        if sum(item.tokens for item in items) < least:
            raise SummaryFailed(RunCode.NO_GAIN, "What would be summarised is too little.")
        asks = STRATEGIES.get(self._strategy).uses_summarizer
        dropped = count_dropped(items, self.branch.profile) if asks else 0
        outcome = self._outcome(items[dropped:], after=self.branch.state.cursor + dropped)
        # What was cut to be read is counted, and abridged, as it is stored.
        stored = tuple(items[dropped : dropped + len(outcome.items)])
        outcome = replace(outcome, items=stored, dropped=tuple(items[:dropped]))
        entries = self._entries(outcome)
        outcome = self._with_abridged(outcome, entries)
        self._must_shrink(outcome)
        self.left = len(items) - len(outcome.passed)
        covered = self.branch.state.cursor + len(outcome.passed)
        counter = self.branch.model.counter
        return ReplayedSummary.of(outcome, covered=covered, counter=counter, entries=entries)

    @property
    def is_digest(self) -> bool:
        """Whether the messages themselves are stored, because the summariser keeps failing."""
        return uses_digest(self.branch.profile, self.branch.state.failures)

    def _input(self) -> Sequence[Item]:
        """Return the messages to summarise, a batch of the oldest."""
        branch = self.branch
        waiting = branch.cut().messages
        most = batch_size(branch.profile, waiting=waiting, failures=branch.state.failures)
        if waiting <= most:
            return branch.items(0, waiting)
        read = most + BATCH_MARGIN
        while True:
            items = branch.items(0, min(read, waiting))
            try:
                return first_batch(items, most, later=len(items) < waiting)
            except MoreItemsNeeded:
                # A long group, or a call that may be answered further on.
                read *= 4

    @property
    def _strategy(self) -> str:
        return DIGEST if self.is_digest else self.branch.profile.strategy

    def _outcome(self, items: Sequence[Item], *, after: int) -> Outcome:
        """Return what the strategy makes of the items `after` so many; raise SummaryFailed."""
        profile, name = self.branch.model.summary_profile(self.branch.profile), self._strategy
        strategy = STRATEGIES.get(name)
        job = self._job(items, after=after, reads_whole=not strategy.uses_summarizer)
        try:
            outcome = strategy.run(job, profile, self.summarizer, _unheard)
        except (SummaryFailed, NoMoreCallsError):
            raise
        except (SummarizerError, SummarizerOverflow) as error:
            raise SummaryFailed(RunCode.SUMMARISER_ERROR, str(error)) from error
        except Exception as error:
            raise SummaryFailed(
                RunCode.STRATEGY_ERROR,
                f"The strategy {name!r} failed ({type(error).__name__}: {error}).",
            ) from error
        if fault := fault_of_outcome(outcome, items, whole=False):
            raise SummaryFailed(RunCode.STRATEGY_ERROR, f"The strategy {name!r} {fault}.")
        if not outcome.text.strip():
            raise SummaryFailed(RunCode.BAD_ANSWER, f"The strategy {name!r} returned no text.")
        if outcome.units or chooses_sentences(self.summarizer):
            # What was chosen brings its clauses; to measure it would take longer than to make it.
            return outcome
        return with_fidelity(outcome, replace(job, items=job.items[: len(outcome.items)]), profile)

    def _entries(self, outcome: Outcome) -> Sequence[Entry]:
        """Return what an outcome's abridged history is chosen from, where the profile wants one."""
        branch, state = self.branch, self.branch.state
        profile, items = branch.profile, outcome.passed
        if profile.abridged_total_chars_limit <= 0:
            return ()
        again = branch.sums.pinned_in(state.cursor, state.cursor + len(items))
        return entries_of(
            redact_items(items)[0] if profile.redact_secrets else items,
            earlier=state.sent[-1].entries if state.sent else (),
            profile=profile,
            pinned=frozenset(branch.sums.message(number).position for number in again),
        )

    def _with_abridged(self, outcome: Outcome, entries: Sequence[Entry]) -> Outcome:
        profile = self.branch.profile
        if profile.abridged_total_chars_limit <= 0:
            return outcome
        if not self.branch.state.is_node:
            return with_history(outcome, entries, profile)
        before, after = self._sizes(outcome)
        count = self.branch.model.counter.count
        return with_small_history(outcome, entries, profile, saved=before - after, count=count)

    def _job(self, items: Sequence[Item], *, after: int, reads_whole: bool) -> SummaryJob:
        branch, state, profile = self.branch, self.branch.state, self.branch.profile
        kept: Sequence[Item] = shown_of_kept(branch.cut().newest, items[-1].position)
        named = [without_files(item) for item in named_results(items)]
        if profile.summary_style == CHECKPOINT:
            named = list(branch.conversation.with_thoughts(named))
        before = state.continued
        previous = "\n\n".join(one.text for one in before)
        digest = state.digest.text if state.digest else ""
        units = tuple(chain.from_iterable(one.units for one in before))
        if profile.redact_secrets:
            named, _ = redact_items(named)
            kept, _ = redact_items(kept)
            previous, digest = redact(previous).text, redact(digest).text
            units = tuple(unit._replace(text=redact(unit.text).text) for unit in units)
        limit = None if reads_whole else self._result_chars()
        read = tuple(limited_results(named, limit, beginning=profile.result_chars_in_summary > 0))
        again = branch.sums.pinned_in(after, after + len(items))
        return SummaryJob(
            items=read if reads_whole else within_limit(read, profile),
            counter=branch.model.counter,
            previous=previous,
            digest=digest,
            sent_again=frozenset(branch.sums.message(number).position for number in again),
            units=units,
            named_before=before[-1].named_weight if before else 0.0,
            kept=tuple(kept),
            files=joined_files([one.files for one in before]),
            parts_turn=self._parts_turn(after + len(items)),
        )

    def _parts_turn(self, number: int) -> bool:
        branch = self.branch
        if not branch.profile.split_turns or number >= branch.end:
            return False
        return branch.sums.message(number).role != "user"

    def _result_chars(self) -> int | None:
        """Return how many characters of a tool result the summariser reads; None for all."""
        profile, window = self.branch.profile, self.branch.model.result_window
        limits = [profile.result_chars_in_summary] if profile.result_chars_in_summary else []
        if profile.limit_tool_results and window > 0:
            limits.append(limits_of(profile).max_chars(window))
        return min(limits, default=None)

    def _must_shrink(self, outcome: Outcome) -> None:
        """Raise SummaryFailed where text or next request would not be smaller than before."""
        branch, state, counter = self.branch, self.branch.state, self.branch.model.counter
        is_longer = bool(does_not_shrink(outcome.input_tokens, counter.count(outcome.text)))
        before, after = self._sizes(outcome)
        smaller = branch.profile.smaller_after_failures
        if outcome.is_digest or 0 < smaller <= state.failures:
            question = self._question_tokens(state.cursor + len(outcome.passed))
            after -= state.frame_tokens + question
            carriers = branch.front_with([SentSummary(text=outcome.text)]) - branch.front_with([])
            after -= branch.model.frame_tokens * carriers
        if is_longer or (before and after >= before):
            presses = self.reason == Reason.HARD_LIMIT
            raise SummaryFailed(
                RunCode.NOT_SMALLER if presses else RunCode.NO_GAIN,
                f"The next request would have {after:,} tokens, not fewer than {before:,}.",
            )

    def _sizes(self, outcome: Outcome) -> tuple[int, int]:
        """Return the tokens of the next request without and with an outcome."""
        branch, state, sums = self.branch, self.branch.state, self.branch.sums
        cursor, covered = state.cursor, state.cursor + len(outcome.passed)
        now, frame = branch.request_tokens, branch.model.frame_tokens
        staying, text = state.staying(outcome), sent_text_of(outcome)
        new = SentSummary(text=text, abridged=outcome.abridged)
        after = now - state.summary_tokens + self._question_tokens(covered)
        after += sum(one.tokens for one in staying) + branch.model.counter.count(text)
        forms = [*(one.sent for one in staying), new]
        after += state.carried_tokens(forms)
        after -= sum(item.tokens for item in outcome.passed) - sums.pinned_tokens(cursor, covered)
        again = len(sums.pinned_in(cursor, covered)) - len(outcome.passed)
        again += branch.front_with(forms) - branch.front_with(state.sent_forms)
        after += frame * again
        return now + self._question_tokens(cursor), after

    def _question_tokens(self, cursor: int) -> int:
        sums = self.branch.sums
        found = sums.split_question(cursor, self.branch.end) if cursor else None
        return 0 if found is None else sums.message(found).tokens + self.branch.model.frame_tokens


def _unheard(step: Step) -> None:
    """Do nothing with a step: calls are counted where they are made, a plug-in's too."""
