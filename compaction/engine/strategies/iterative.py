"""One summary that is brought up to date, with the beginning of a split turn behind it.

What came since the last summary is taken in by an update. Where the cut falls inside a turn, the
beginning of that turn gets a summary of its own, which the turn's later part is read with. Both are
asked for at the same time and each is halved on its own where it is too large
(docs/decisions/0035-two-calls-side-by-side.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from compaction.engine.extractive.summarizer import ExtractiveSummarizer
from compaction.engine.fidelity.gate import NOT_A_SUMMARY, says_nothing
from compaction.engine.parameters import Profile
from compaction.engine.policy.groups import legal_cuts
from compaction.engine.policy.head import must_be_halved
from compaction.engine.strategies.bisect import BisectStrategy, BisectSummary
from compaction.engine.strategies.calls import SummarizerCalls
from compaction.engine.strategies.checkpoint_text import with_turn
from compaction.engine.strategies.finishing import prose_size
from compaction.engine.strategies.halving import (
    cut_in_halves,
    estimate_calls,
)
from compaction.engine.strategies.shortening import newest_within
from compaction.engine.strategies.sizing import longest_text, shared_out
from compaction.engine.types import (
    CallEstimate,
    Clock,
    Item,
    NoMoreCallsError,
    Outcome,
    Step,
    Summarizer,
    SummaryJob,
    SummaryRequest,
)

ALGORITHM = "iterative_v1"
# Another one also where the prompts of either style change.
VERSION = "iterative-2026-11-29.1"


# What two texts may have besides, joined: counts of parts do not add up to that of the whole.
FRAME_MARGIN_TOKENS = 8


def turn_start(items: Sequence[Item], *, parts_turn: bool) -> int:
    """Return the index where the turn begins that a cut behind the items parts, else their number.

    That is the newest question, note or command of a user at which no call is parted from its
    results.
    A turn that began before the items is no matter of theirs: the summary before holds its start.
    """
    if not parts_turn:
        return len(items)
    legal = {0, *legal_cuts(items)}
    starts = (index for index, item in enumerate(items) if item.role == "user" and index in legal)
    return max(starts, default=len(items))


@dataclass(slots=True, kw_only=True)
class _Side:
    """One of the two texts: what it is made of, who makes it, and the text as it stands now."""

    engine: BisectSummary
    request: SummaryRequest
    text: str = ""

    @property
    def is_hopeless(self) -> bool:
        """Whether the call for all of it is sure to be refused."""
        return self.engine.is_hopeless(self.request)

    @property
    def expected_calls(self) -> int:
        """How many calls it takes as far as sizes tell: one, or those of its halves.

        What the profile halves whatever the summariser takes needs both halves and their merge.
        """
        request, profile = self.request, self.engine.profile
        limit = self.engine.summarizer.input_limit(request.target_tokens)
        previous = self.engine.counter.count(request.previous) if request.previous else 0
        calls = estimate_calls(request.items, limit, profile, previous_tokens=previous)
        cut = cut_in_halves(request.items, profile, 0)
        return max(calls, 3) if must_be_halved(request.items, profile, cut) else calls

    def knows(self, text: str) -> bool:
        """Whether a text stands in what this side has read or written."""
        return text.casefold() in self._said()

    def _said(self) -> str:
        calls = (
            f"{call.name} {call.arguments}"
            for item in self.request.items
            for call in item.tool_calls
        )
        texts = (item.text for item in self.request.items)
        return "\n".join((self.text, self.request.previous, *texts, *calls)).casefold()


@dataclass(slots=True, kw_only=True)
class IterativeSummary:
    """Makes the texts of one job, and joins them; one object serves one run."""

    job: SummaryJob
    profile: Profile
    summarizer: Summarizer
    on_step: Callable[[Step], None]
    clock: Clock = time.monotonic
    _calls: SummarizerCalls = field(init=False)
    _history: _Side | None = None
    _prefix: _Side | None = None

    def __post_init__(self) -> None:
        job, profile = self.job, self.profile
        start = turn_start(job.items, parts_turn=profile.split_turns and job.parts_turn)
        history, prefix = job.items[:start], job.items[start:]
        self._calls = SummarizerCalls(
            profile=profile,
            summarizer=self.summarizer,
            counter=job.counter,
            on_step=self.on_step,
            clock=self.clock,
            is_part=bool(prefix),
        )
        if history:
            self._history = self._side(
                "update" if job.previous else "chunk", history, kept=() if prefix else job.kept
            )
        if prefix:
            self._prefix = self._side("prefix", prefix, kept=job.kept)

    def _side(self, kind: str, items: tuple[Item, ...], *, kept: tuple[Item, ...]) -> _Side:
        profile, job = self.profile, self.job
        is_prefix = kind == "prefix"
        prose_tokens = prose_size(profile, self.summarizer)
        engine = BisectSummary(
            profile=profile,
            summarizer=self.summarizer,
            counter=job.counter,
            calls=self._calls,
            prose_tokens=prose_tokens,
            kept=kept if prose_tokens else (),
            kind=kind,
            style=profile.summary_style,
            answer_tokens=profile.prefix_output_tokens
            if is_prefix
            else profile.summary_output_tokens,
        )
        request = engine.request_for(
            items,
            previous="" if is_prefix else job.previous,
            instructions=job.instructions,
            units=() if is_prefix else job.units,
        )
        return _Side(engine=engine, request=request)

    @property
    def first(self) -> SummaryRequest:
        """The call for everything, or for what comes first."""
        return self._sides[0].request

    @property
    def longest_tokens(self) -> int:
        """What the texts may have together, with the summary before where it is carried on."""
        is_carried = self._history is None and self.job.previous
        carried = self.job.counter.count(self.job.previous) if is_carried else 0
        requests = [side.request for side in self._sides]
        return longest_text(self.profile, *requests, carried=carried)

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps so far."""
        return tuple(self._calls.steps)

    @property
    def _sides(self) -> list[_Side]:
        return [side for side in (self._history, self._prefix) if side is not None]

    def run(self) -> Outcome:
        """Return the outcome; raise SummaryFailed where one of the texts cannot be made.

        Where no more calls may be made, it is the outcome of the oldest items that are done.
        """
        history, prefix = self._history, self._prefix
        if prefix is None:
            return self._made(self._sides[0])
        if history is None:
            return self._with_carried(self._made(prefix))
        self._begin(history, prefix)
        older = self._made(history)
        if len(older.items) < len(history.request.items):
            self._prefix = None
            return older
        try:
            turn = self._made(prefix)
        except NoMoreCallsError:
            self._prefix = None
            return older
        return self._both(older, turn)

    def _begin(self, *sides: _Side) -> None:
        """Have the calls of all sides but the first go on while that is made, where that can be."""
        begin = getattr(self.summarizer, "begin", None)
        if begin is None or sides[0].is_hopeless:
            return
        for side in sides[1:]:
            if not side.is_hopeless:
                begin(side.request, beside=sides[0].expected_calls)

    def _made(self, side: _Side) -> Outcome:
        outcome = side.engine.made(side.request)
        side.text = outcome.text
        if side is self._prefix and self.profile.quality_gate and says_nothing(side.text):
            side.text = self._said_after_all(side)
        return replace(outcome, text=side.text)

    def _said_after_all(self, side: _Side) -> str:
        """Return another text for a turn's beginning of which nothing was told.

        Behind a history's the gate would not see that. Asked once more, then chosen sentences.
        """
        sentence = "The summary of the turn's beginning says nothing: its sections are empty."
        side.engine.reject(NOT_A_SUMMARY, sentence, side.text)
        again = side.engine.ask_again(())
        if again and not says_nothing(again):
            return again
        chosen = ExtractiveSummarizer(counter=self.job.counter).summarize(side.request)
        return chosen.text or side.text

    def _with_carried(self, turn: Outcome) -> Outcome:
        """Return a turn's beginning behind the summary before it, which stays as it is."""
        job, count = self.job, self.job.counter.count
        carried = count(job.previous) if job.previous else 0
        text = self._joined()
        return replace(
            turn,
            text=text,
            input_tokens=carried + turn.input_tokens,
            output_tokens=count(text),
            units=(*job.units, *turn.units),
            metadata={"turn_messages": len(turn.items)},
        )

    def _both(self, older: Outcome, turn: Outcome) -> Outcome:
        text = self._joined()
        return replace(
            turn,
            text=text,
            items=(*older.items, *turn.items),
            chunk_count=older.chunk_count + turn.chunk_count,
            max_depth=max(older.max_depth, turn.max_depth),
            truncated=older.truncated or turn.truncated,
            leaf_count=older.leaf_count + turn.leaf_count,
            split_depth=max(older.split_depth, turn.split_depth),
            input_tokens=older.input_tokens + turn.input_tokens,
            output_tokens=self.job.counter.count(text),
            units=(*older.units, *turn.units),
            metadata={"turn_messages": len(turn.items)},
        )

    def _joined(self) -> str:
        """Return the texts as one; without a history of its own, the summary before stays."""
        history = self.job.previous if self._history is None else self._history.text
        return history if self._prefix is None else with_turn(history, self._prefix.text)

    def ask_again(self, missing: tuple[str, ...]) -> str:
        """Return the texts after those were asked for again that could know what is missing.

        Empty where none is to be had. Raises SummaryFailed.
        """
        sides = self._sides
        own = {id(side): tuple(filter(side.knows, missing)) for side in sides}
        if not any(own.values()):
            own = {id(side): missing for side in sides}
        found = [
            (side, text)
            for side in sides
            if own[id(side)] and (text := side.engine.ask_again(own[id(side)]))
        ]
        for side, text in found:
            side.text = text
        return self._joined() if found else ""

    def shortened(self, text: str, tokens: int) -> str:
        """Return the texts as one of so many tokens, each cut at its own sentences."""
        history = self.job.previous if self._history is None else self._history.text
        if self._prefix is None or not history:
            return newest_within(text, tokens, self.job.counter)
        room = tokens - self.job.counter.count(with_turn("-", "")) - FRAME_MARGIN_TOKENS
        both = shared_out([history, self._prefix.text], max(2, room), self.job.counter)
        return newest_within(with_turn(*both), tokens, self.job.counter)

    def reject(self, code: str, sentence: str, text: str) -> None:
        """Record that a text was refused, and why."""
        self._sides[-1].engine.reject(code, sentence, text)


class IterativeStrategy(BisectStrategy):
    """Brings the summary before up to date, and gives the beginning of a split turn its own."""

    algorithm = ALGORITHM
    version = VERSION

    def estimate(self, job: SummaryJob, profile: Profile, limit: int | None) -> CallEstimate:
        """Return the calls of both texts; each is taken to write as much as asked for."""
        start = turn_start(job.items, parts_turn=profile.split_turns and job.parts_turn)
        whole = super().estimate(replace(job, items=job.items[:start]), profile, limit)
        turn = job.items[start:]
        calls = whole.calls + (estimate_calls(turn, limit, profile) if turn else 0)
        return CallEstimate(
            calls=calls,
            input_tokens=whole.input_tokens + sum(item.tokens for item in turn),
            output_tokens=calls * profile.target_summary_tokens,
        )

    def run(
        self,
        job: SummaryJob,
        profile: Profile,
        summarizer: Summarizer,
        on_step: Callable[[Step], None],
    ) -> Outcome:
        """Return the summary with the instruction that its first call was given."""
        engine = IterativeSummary(job=job, profile=profile, summarizer=summarizer, on_step=on_step)
        outcome = engine.run()
        return self.finish(
            outcome,
            engine,
            job,
            profile,
            summarizer,
            first=engine.first,
            longest=engine.longest_tokens,
        )
