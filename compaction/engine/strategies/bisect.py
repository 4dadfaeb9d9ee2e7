"""Halving: one call for everything; where that is too large, two halves and a merge of the two.

What it holds to: no input is cut before anybody saw it, a merge is never halved, calls are capped,
what is cut off with all the room counts as too large, and every call is a Step in a tree.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from compaction.engine.parameters import Profile
from compaction.engine.policy.head import must_be_halved
from compaction.engine.policy.reasons import RunCode
from compaction.engine.protocols import PlanFacts
from compaction.engine.provenance import Unit
from compaction.engine.strategies.base import files_of, plan_by_cut
from compaction.engine.strategies.calls import NoTextError, SummarizerCalls
from compaction.engine.strategies.checkpoint_text import (
    CHECKPOINT,
    CHECKPOINT_VERSION,
    OWN_FORMS,
    joined_checkpoints,
)
from compaction.engine.strategies.finishing import finished, prose_size
from compaction.engine.strategies.halving import (
    Part,
    cut_in_halves,
    estimate_calls,
    is_clearly_too_large,
    joined_parts,
    leaf,
    made_here,
)
from compaction.engine.strategies.ledger import joined_prose
from compaction.engine.strategies.prompts import PROMPT_VERSION, own_prompt, stored_prompt
from compaction.engine.strategies.shortening import newest_within
from compaction.engine.strategies.sizing import Engine, longest_text, merged_size
from compaction.engine.types import (
    CallEstimate,
    Clock,
    Item,
    NoMoreCallsError,
    Outcome,
    Plan,
    Step,
    Summarizer,
    SummaryAnswer,
    SummaryFailed,
    SummaryJob,
    SummaryRequest,
    TokenCounter,
)

ALGORITHM = "bisect_v1"
# The kind of a step that refuses a text.
GATE = "gate"


def on_step_nothing(step: Step) -> None:
    """Do nothing with a finished step: the default listener."""


@dataclass(slots=True, kw_only=True)
class BisectSummary:
    """Summarises items within a profile's limits; one object serves one run.

    `on_step` hears of every finished call before the next one starts, so that it can be stored; an
    exception it raises ends the run. `counter` measures; `clock` gives monotonic seconds.
    """

    profile: Profile
    summarizer: Summarizer
    counter: TokenCounter
    on_step: Callable[[Step], None] = on_step_nothing
    clock: Clock = time.monotonic
    # A strategy's own instructions by kind of call.
    prompts: Mapping[str, str] = field(default_factory=dict)
    # Asks for prose of that many tokens that cites messages; 0 for a summary of the profile's size.
    prose_tokens: int = 0
    # Messages behind those to summarise, which the last call of all may read.
    kept: tuple[Item, ...] = ()
    # What the calls ask for, how messages and summary look, and the longest answer (0: by size).
    kind: str = "chunk"
    style: str = "headings"
    answer_tokens: int = 0
    # The calls of a run that this is a part of; without, it is one of its own.
    calls: SummarizerCalls | None = None
    _last: SummaryRequest | None = None
    # The parts that are done and stand in no larger one, oldest first, with their items' number.
    _done: list[tuple[int, Part]] = field(default_factory=list)
    _calls: SummarizerCalls = field(init=False)

    def __post_init__(self) -> None:
        self._calls = self.calls or SummarizerCalls(
            profile=self.profile,
            summarizer=self.summarizer,
            counter=self.counter,
            on_step=self.on_step,
            clock=self.clock,
        )

    def run(
        self,
        items: Sequence[Item],
        *,
        previous: str = "",
        instructions: str = "",
        units: tuple[Unit, ...] = (),
    ) -> Outcome:
        """Return the Outcome for the items, which are never cut before they were read.

        `previous` is the summary that this one continues, `units` what the passes before it kept:
        the first part of the input takes them in. Raises SummaryFailed.
        """
        return self.made(
            self.request_for(items, previous=previous, instructions=instructions, units=units)
        )

    def made(self, request: SummaryRequest) -> Outcome:
        """Return the Outcome for a call for everything (`request_for`). Raises SummaryFailed."""
        if not request.items:
            raise SummaryFailed(RunCode.NOTHING_TO_DO, "There is nothing to summarise.")
        try:
            part = self._whole(request)
        except NoMoreCallsError:
            if not self._done:
                raise
            request, part = self._done_so_far(request)
        return self._calls.outcome_of(part, request)

    def request_for(
        self,
        items: Sequence[Item],
        *,
        previous: str = "",
        instructions: str = "",
        units: tuple[Unit, ...] = (),
    ) -> SummaryRequest:
        """Return the call for everything, which is the first one unless it is hopeless."""
        return SummaryRequest(
            kind=self.kind,
            items=tuple(items),
            previous=previous,
            instructions=instructions,
            target_tokens=self.prose_tokens or self.profile.target_summary_tokens,
            prompt=self.prompts.get(self.kind, "") or own_prompt(self.profile, self.kind),
            units=units,
            kept=self.kept,
            cites=self.prose_tokens > 0,
            style=self.style,
            answer_tokens=self.answer_tokens,
        )

    def _whole(self, request: SummaryRequest) -> Part:
        """Return the summary of everything, by another model where one never comes to its text."""
        while True:
            try:
                return self._chunk(request, depth=0, parent=None)
            except NoTextError:
                self._done.clear()
                if not self._calls.use_another_model():
                    return self._forced(request, depth=0, parent=None)

    def ask_again(self, missing: tuple[str, ...]) -> str:
        """Return another answer to the last call, which is told what the one before lacked.

        Empty where no call made the text, or none is left. Raises SummaryFailed.
        """
        if self._last is None:
            return ""
        request = replace(self._last, reinforced=True, missing=missing)
        request = replace(request, whole_room=self._calls.needs_room)
        try:
            answer, step = self._calls.call(request, depth=0, parent=None)
        except NoMoreCallsError:
            return ""
        return answer.text if answer is not None and step.outcome == "ok" else ""

    def shortened(self, text: str, tokens: int) -> str:
        """Return so many tokens of a text, the newest of it among them."""
        return newest_within(text, tokens, self.counter)

    def reject(self, code: str, sentence: str, text: str) -> None:
        """Record that a text was refused, and why."""
        if self._last is not None:
            answer = SummaryAnswer(text=text, output_tokens=self.counter.count(text))
            self._calls.record(
                replace(self._last, kind=GATE),
                answer,
                depth=0,
                parent=None,
                outcome="rejected",
                is_call=False,
                error=sentence,
                code=code,
            )

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps so far."""
        return tuple(self._calls.steps)

    def _done_so_far(self, request: SummaryRequest) -> tuple[SummaryRequest, Part]:
        """Return the request for the oldest items that are done, and their summary, without a call.

        They end where an input was halved, which is never inside a group.
        """
        parts = [part for _, part in self._done]
        request = replace(request, items=request.items[: sum(n for n, _ in self._done)], kept=())
        self._last = None
        if len(parts) == 1:
            return request, parts[0]
        merge = self._merge_of(parts, target_tokens=request.target_tokens)
        whole = joined_parts(parts)
        whole.text = self._joined(merge) or self._shortened(merge, 0, None).text
        return request, whole

    def _merge_of(self, parts: Sequence[Part], **fields: Any) -> SummaryRequest:
        """Return the call that makes one text of several parts."""
        return SummaryRequest(
            kind="merge",
            texts=tuple(part.text for part in parts),
            units=tuple(unit for part in parts for unit in part.units),
            cites=self.prose_tokens > 0,
            style=self.style,
            answer_tokens=self.answer_tokens,
            merges=self.kind if self.kind in OWN_FORMS else "chunk",
            **fields,
        )

    def _joined(self, request: SummaryRequest) -> str:
        """Return prose that has room as it is; empty where it has not."""
        if self.style == CHECKPOINT or self.kind in OWN_FORMS:
            joined = joined_checkpoints(request.texts)
        else:
            joined = joined_prose(request.texts) if request.cites else ""
        return joined if self.counter.count(joined) <= request.target_tokens else ""

    def _chunk(self, request: SummaryRequest, *, depth: int, parent: int | None) -> Part:
        """Return a part's summary, and keep it as one that is done."""
        held = len(self._done)
        part = self._part(request, depth=depth, parent=parent)
        # Its halves are in it.
        self._done[held:] = [(len(request.items), part)]
        return part

    def _part(self, request: SummaryRequest, *, depth: int, parent: int | None) -> Part:
        if self._calls.gave_up:
            return self._forced(request, depth=depth, parent=parent, is_cut=False)
        cut = cut_in_halves(request.items, self.profile, depth)
        if not (self.is_hopeless(request) or must_be_halved(request.items, self.profile, cut)):
            answer, step = self._calls.ask(request, depth=depth, parent=parent)
            if answer is not None:
                self._last = request
                return leaf(answer, depth)
            if step.outcome == "error":
                # Half of it would be answered in the same way. Nothing was too large to be read.
                return self._forced(request, depth=depth, parent=step.key, is_cut=False)
            parent = step.key
        if cut is None:
            return self._undivided(request, depth=depth, parent=parent)
        first = replace(request, items=request.items[:cut], kept=())
        left = self._chunk(first, depth=depth + 1, parent=parent)
        # What is behind the first half brings nothing up to date.
        kind = "chunk" if request.kind == "update" else request.kind
        rest = replace(request, kind=kind, items=request.items[cut:], previous="", units=())
        right = self._chunk(rest, depth=depth + 1, parent=parent)
        return self._merge(request, left, right, depth=depth + 1, parent=parent)

    def _undivided(self, request: SummaryRequest, *, depth: int, parent: int | None) -> Part:
        """Return the summary of what is too large and cannot be halved: by a larger model, or none.

        Perhaps it is a single message.
        """
        answer, request = self._calls.ask_larger(request, depth=depth, parent=parent)
        if answer is None:
            return self._forced(request, depth=depth, parent=parent)
        self._last = request
        return leaf(answer, depth)

    def is_hopeless(self, request: SummaryRequest) -> bool:
        """Whether the call is sure to be refused, so that it can be saved (`planned_split`)."""
        if not self.profile.planned_split or not self.profile.bisect_enabled:
            return False
        limit = self.summarizer.input_limit(request.target_tokens)
        return limit is not None and is_clearly_too_large(self._calls.size_of(request), limit)

    def _merge(
        self, source: SummaryRequest, left: Part, right: Part, *, depth: int, parent: int | None
    ) -> Part:
        """Return the two halves' summaries as one. A merge is never halved: that would not end."""
        request = self._merge_of(
            [left, right],
            instructions=source.instructions,
            target_tokens=self.prose_tokens or merged_size(self.profile),
            prompt=self.prompts.get("merge", ""),
        )
        made, forced = self._merged(request, depth=depth, parent=parent)
        return Part(
            text=made.text,
            units=made.units,
            # A merge counts as a chunk, and each round of merging adds a level.
            chunk_count=left.chunk_count + right.chunk_count + 1,
            max_depth=max(left.max_depth, right.max_depth, depth + 1),
            truncated=left.truncated or right.truncated or forced,
            leaf_count=left.leaf_count + right.leaf_count,
            split_depth=max(left.split_depth, right.split_depth),
        )

    def _merged(
        self, request: SummaryRequest, *, depth: int, parent: int | None
    ) -> tuple[SummaryAnswer, bool]:
        """Return one text of two, and whether no model could make it.

        Prose that has room as it is is joined: asking could only lose something.
        """
        if request.cites and (joined := self._joined(request)):
            whole = SummaryAnswer(text=joined, output_tokens=self.counter.count(joined))
            self._calls.record(
                request, whole, depth=depth, parent=parent, outcome="ok", is_call=False
            )
            self._last = request
            return whole, False
        if self._calls.gave_up:
            part = self._forced(request, depth=depth, parent=parent, is_cut=False)
            return SummaryAnswer(text=part.text, units=part.units), part.truncated
        answer, step = self._calls.ask(request, depth=depth, parent=parent)
        if answer is None:
            answer, request = self._calls.ask_larger(request, depth=depth, parent=step.key)
        self._last = None if answer is None else request
        is_cut = step.outcome != "error" or self.profile.fallback != "extractive"
        return answer or self._shortened(request, depth, step.key), answer is None and is_cut

    def _forced(
        self, request: SummaryRequest, *, depth: int, parent: int | None, is_cut: bool = True
    ) -> Part:
        self._last = None
        part = leaf(self._shortened(request, depth, parent), depth)
        part.truncated = is_cut or self.profile.fallback != "extractive"
        return part

    def _shortened(self, request: SummaryRequest, depth: int, parent: int | None) -> SummaryAnswer:
        """Return a text made without the model, and record it."""
        answer = made_here(
            request,
            size=self._calls.size_of(request),
            chooses=self.profile.fallback == "extractive",
            counter=self.counter,
            depth=depth,
        )
        self._calls.record(
            request, answer, depth=depth, parent=parent, outcome="truncated", is_call=False
        )
        return answer


class BisectStrategy:
    """Asks for one summary of everything, and halves what is too large for the summariser.

    One that asks for something else in the same way is a subclass with an `algorithm`, a `version`
    and `prompts` of its own: the instruction of a `chunk` and of a `merge`.
    """

    uses_summarizer = True
    algorithm = ALGORITHM
    version = PROMPT_VERSION
    prompts: Mapping[str, str] = {}
    plans_from_tail = True

    def plan(self, items: Sequence[Item], profile: Profile, facts: PlanFacts) -> Plan:
        """Return the plan of the profile's cut."""
        return plan_by_cut(items, profile, facts)

    def estimate(self, job: SummaryJob, profile: Profile, limit: int | None) -> CallEstimate:
        """Return the calls that halving comes to; each is taken to write as much as asked for."""
        before = job.counter.count(job.previous) if job.previous else 0
        calls = 0
        if job.items:
            calls = estimate_calls(job.items, limit, profile, previous_tokens=before)
        return CallEstimate(
            calls=calls,
            input_tokens=before + sum(item.tokens for item in job.items),
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
        prose_tokens = prose_size(profile, summarizer)
        engine = BisectSummary(
            profile=profile,
            summarizer=summarizer,
            counter=job.counter,
            on_step=on_step,
            prompts=self.prompts,
            prose_tokens=prose_tokens,
            kept=job.kept if prose_tokens else (),
            style=profile.summary_style,
            answer_tokens=profile.summary_output_tokens,
        )
        first = engine.request_for(
            job.items, previous=job.previous, instructions=job.instructions, units=job.units
        )
        outcome = engine.made(first)
        longest = longest_text(profile, first)
        return self.finish(outcome, engine, job, profile, summarizer, first=first, longest=longest)

    def finish(
        self,
        outcome: Outcome,
        engine: Engine,
        job: SummaryJob,
        profile: Profile,
        summarizer: Summarizer,
        *,
        first: SummaryRequest,
        longest: int = 0,
    ) -> Outcome:
        """Return an outcome that passed ledger and gate, with all that is stored of it.

        `first` is the call for everything, or for the part that comes first; `longest` is what the
        text may have.
        """
        if left := len(job.items) - len(outcome.items):
            job = replace(job, items=outcome.items, kept=())
        outcome = finished(outcome, engine, job, profile, summarizer, longest=longest)
        is_checkpoint = profile.summary_style == CHECKPOINT
        return replace(
            outcome,
            algorithm=self.algorithm,
            prompt=stored_prompt(first, job.items),
            prompt_version=CHECKPOINT_VERSION if is_checkpoint else self.version,
            metadata={
                "leaf_count": outcome.leaf_count,
                "split_depth": outcome.split_depth,
                **({"messages_left": left} if left else {}),
                **outcome.metadata,
            },
            # A checkpoint is one that was brought up to date.
            holds_earlier=is_checkpoint or outcome.holds_earlier,
            **files_of(job.items, job.files, profile.tool_actions),
        )
