"""Calls of a summariser: each one capped, judged, timed and recorded as a Step of a tree.

An answer that does not count is asked for once more, and one that was cut off is asked for again
with all the room there is, before anything is halved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from compaction.engine.fidelity.gate import NOT_A_SUMMARY, UNSUPPORTED
from compaction.engine.parameters import Profile
from compaction.engine.policy.reasons import RunCode
from compaction.engine.strategies.acceptance import (
    capped,
    end_note,
    invention_of,
    is_cut_off,
    odd,
    problem_of,
    ran_out_of_room,
    reply_of,
    says_nothing,
)
from compaction.engine.strategies.finishing import chooses_sentences
from compaction.engine.strategies.halving import Part
from compaction.engine.types import (
    Clock,
    NoMoreCallsError,
    Outcome,
    Step,
    Summarizer,
    SummarizerError,
    SummarizerOverflow,
    SummaryAnswer,
    SummaryFailed,
    SummaryRequest,
    TokenCounter,
)

NOT_OF_THIS = frozenset({NOT_A_SUMMARY, UNSUPPORTED})
"""Codes of answers that are not about what was sent: smaller inputs are answered in the same way,
and clauses are chosen instead."""
MOST_WITHOUT_TEXT = 3
"""So many answers of one run may be cut off without a text; smaller inputs help no more then."""
MOST_OF_NO_USE = 2
"""After so many inputs in a row without an answer that counts, no model is asked in this run."""


class NoTextError(Exception):
    """The summariser never comes to its text, however much room it has."""


@dataclass(slots=True, kw_only=True)
class SummarizerCalls:
    """The calls of one run, and the steps that tell of them."""

    profile: Profile
    summarizer: Summarizer
    counter: TokenCounter
    on_step: Callable[[Step], None]
    clock: Clock
    steps: list[Step] = field(default_factory=list)
    made: int = 0
    """How many calls were made."""
    needs_room: bool = False
    """Whether an answer was cut off before: all others are asked for with all the room there is."""
    is_part: bool = False
    """Whether no call stands for everything, so that none is left to the gate to look at."""
    gave_up: bool = False
    """Whether no model is asked any more: none of this run's answers is of use."""
    _without_text: int = 0
    _counts: bool = False
    _in_row: int = 0
    """So many inputs in a row had no answer that counts."""

    def ask(
        self, request: SummaryRequest, *, depth: int, parent: int | None
    ) -> tuple[SummaryAnswer | None, Step]:
        """Return an answer that counts and its step; None when the request was too large.

        If an answer does not count, the model is asked once more. After that the run fails
        (docs/architecture.md#only-a-real-summary-counts) or, where there has to be a summary, goes
        on without the model: None, and the step is an error. The same holds for a model that
        continues the conversation instead: it would do so however often it is asked. Where no
        answer counts at all, no more are asked for (`gave_up`).
        """
        while True:
            for reinforced in (False, True):
                answer, step = self._with_room(
                    replace(request, reinforced=reinforced), depth=depth, parent=parent
                )
                if answer is not None and step.outcome == "ok":
                    self._counts, self._in_row = True, 0
                    return answer, step
                if step.outcome != "error":
                    return None, step
                if step.code not in NOT_OF_THIS and self._is_known_to_fail():
                    break
            if not self.use_another_model(request.passed_over):
                break
        self._in_row += 1
        is_about_this = step.code not in NOT_OF_THIS
        if is_about_this and not self._goes_on_without_model():
            # Whoever goes on all the same (ask_larger) has asked for this input alone in vain.
            raise SummaryFailed(RunCode.BAD_ANSWER, step.error)
        self.gave_up = self._in_row >= MOST_OF_NO_USE or (is_about_this and not self._counts)
        return None, step

    def ask_larger(
        self, request: SummaryRequest, *, depth: int, parent: int | None
    ) -> tuple[SummaryAnswer | None, SummaryRequest]:
        """Return an answer of a model behind the one that a request is too large for, if any.

        With it comes the request that it answers. No other request goes there.
        """
        passed_over = 1
        while passed_over < getattr(self.summarizer, "models_left", 1):
            larger = replace(request, passed_over=passed_over)
            try:
                answer, _ = self.ask(larger, depth=depth, parent=parent)
            except SummaryFailed as failure:
                if failure.code != RunCode.BAD_ANSWER:
                    raise
                break
            if answer is not None:
                return answer, larger
            passed_over += 1
        return None, request

    def use_another_model(self, passed_over: int = 0) -> bool:
        """Have another model asked from now on, where the summariser has several."""
        use_another = getattr(self.summarizer, "use_another", None)
        if use_another is None or not use_another(passed_over):
            return False
        self.needs_room, self._without_text = False, 0
        return True

    def _goes_on_without_model(self, **conditions: bool) -> bool:
        """Whether the summariser says that a summary has to come, whatever its models answer."""
        goes_on = getattr(self.summarizer, "goes_on_without_model", None)
        return goes_on is not None and goes_on(**conditions)

    def _is_known_to_fail(self) -> bool:
        """Whether the model failed other runs, too, and a summary has to come all the same.

        One that answered this run is back.
        """
        return not self._counts and self._goes_on_without_model(if_known=True)

    def _with_room(
        self, request: SummaryRequest, *, depth: int, parent: int | None
    ) -> tuple[SummaryAnswer | None, Step]:
        """Make a call, and once more with all the room there is where its answer was cut off.

        The run's other calls have that room at once. Only what is cut off with it is too large.
        """
        request = replace(request, whole_room=self.needs_room)
        answer, step = self.call(request, depth=depth, parent=parent)
        if answer is not None and not self.needs_room and _wants_room(answer, step):
            self.needs_room = True
            again = replace(request, whole_room=True)
            answer, step = self.call(again, depth=depth, parent=parent)
        if answer is not None and step.outcome == "truncated" and not answer.text.strip():
            self._without_text += 1
            if self._without_text >= MOST_WITHOUT_TEXT:
                raise NoTextError
        return answer, step

    def call(
        self, request: SummaryRequest, *, depth: int, parent: int | None
    ) -> tuple[SummaryAnswer | None, Step]:
        """Make one call, and return its answer, if one came, with its step.

        Raises SummaryFailed when the profile's calls are used up, or the summariser fails.
        """
        if self.made >= self.profile.max_model_calls:
            raise SummaryFailed(
                RunCode.TOO_MANY_CALLS,
                f"The run reached its cap of {self.profile.max_model_calls} model calls "
                "(max_model_calls). Raise it, or use a summariser with a larger window.",
            )
        self.made += 1
        started = self.clock()
        answer, outcome, error, code, fatal, model = None, "ok", "", "", False, ""
        try:
            answer = capped(self.summarizer.summarize(request), request.longest_tokens)
            outcome, error, code = self._judged(answer, request, depth)
        except NoMoreCallsError:
            self.made -= 1
            raise
        except SummarizerOverflow as overflow:
            outcome, error, model = "overflow", str(overflow), overflow.model
        except SummarizerError as failure:
            outcome, error, fatal, model = "error", str(failure), True, failure.model
        step = self.record(
            request,
            answer,
            depth=depth,
            parent=parent,
            outcome=outcome,
            error=error,
            code=code,
            model=model,
            duration_ms=round((self.clock() - started) * 1000),
        )
        if fatal:
            raise SummaryFailed(RunCode.SUMMARISER_ERROR, error)
        return answer, step

    def _judged(
        self, answer: SummaryAnswer, request: SummaryRequest, depth: int
    ) -> tuple[str, str, str]:
        """Return the outcome of an answer, with a sentence and a code where it does not count."""
        if is_cut_off(answer):
            if problem := says_nothing(answer.text, request):
                # Half of the input would be answered in the same way.
                return "error", problem, ""
            return "truncated", "The answer was cut off at the output limit.", ""
        if problem := problem_of(answer) or odd(answer.text, request):
            return "error", problem, ""
        if self._has_gate(depth):
            return "ok", end_note(answer), ""
        if problem := invention_of(answer.text, request):
            return "error", problem, UNSUPPORTED if self.profile.quality_gate else ""
        if problem := self._reply_of(answer, request):
            return "error", problem, NOT_A_SUMMARY
        return "ok", end_note(answer), ""

    def _has_gate(self, depth: int) -> bool:
        """Whether the gate looks at an answer: at what stands for everything, and asks again."""
        is_all = depth == 0 and not self.is_part
        return self.profile.quality_gate and is_all and not chooses_sentences(self.summarizer)

    def _reply_of(self, answer: SummaryAnswer, request: SummaryRequest) -> str:
        """Return why an answer goes on with the conversation.

        What was chosen from the messages may be a reply that somebody wrote.
        """
        return "" if chooses_sentences(self.summarizer) else reply_of(answer, request)

    def record(
        self,
        request: SummaryRequest,
        answer: SummaryAnswer | None,
        *,
        depth: int,
        parent: int | None,
        outcome: str,
        is_call: bool = True,
        error: str = "",
        code: str = "",
        model: str = "",
        duration_ms: int = 0,
    ) -> Step:
        """Store what came of a request as the next step, and return it."""
        items = request.items
        step = Step(
            key=len(self.steps) + 1,
            parent=parent,
            kind=request.kind,
            depth=depth,
            order=len(self.steps) + 1,
            first=items[0].id if items else None,
            last=items[-1].id if items else None,
            message_count=len(items) or len(request.texts),
            input_tokens=answer.input_tokens if answer else self.size_of(request),
            output_tokens=answer.output_tokens if answer else 0,
            outcome=outcome,
            is_call=is_call,
            duration_ms=answer.duration_ms or duration_ms if answer else duration_ms,
            error=error,
            output=answer.text if answer else "",
            model=answer.model if answer else model,
            cost=answer.cost if answer else 0.0,
            code=code,
            request=request,
        )
        self.steps.append(step)
        self.on_step(step)
        return step

    def outcome_of(self, part: Part, request: SummaryRequest) -> Outcome:
        """Return a part that is the whole of a request's answer, with all calls so far."""
        return Outcome(
            text=part.text,
            items=request.items,
            chunk_count=part.chunk_count,
            max_depth=part.max_depth,
            truncated=part.truncated,
            leaf_count=part.leaf_count,
            split_depth=part.split_depth,
            input_tokens=self.size_of(request),
            output_tokens=self.counter.count(part.text),
            model_calls=self.made,
            cost=sum(step.cost for step in self.steps),
            steps=tuple(self.steps),
            units=part.units,
        )

    def size_of(self, request: SummaryRequest) -> int:
        """Return the tokens of a request's input."""
        texts = (*request.texts, request.previous)
        return sum(item.read_tokens for item in (*request.items, *request.kept)) + sum(
            self.counter.count(text) for text in texts if text
        )


def _wants_room(answer: SummaryAnswer, step: Step) -> bool:
    """Whether an answer may be whole with more room: it was cut off, or thoughts took its room."""
    was_cut = step.outcome == "truncated" and not answer.had_whole_room
    return was_cut or ran_out_of_room(answer)
