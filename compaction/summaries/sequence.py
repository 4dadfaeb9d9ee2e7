"""The models of a profile, in the order in which they are asked, each behind its breaker.

The next one is asked where a model is left alone, refuses, or is too small for what cannot be
divided any more. A run waits only where none of them may be called.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from chatapp.llm.error_kinds import ErrorKind
from chatapp.llm.errors import ModelError
from compaction.engine.policy.reasons import RunCode
from compaction.engine.strategies.prompts import instruction_of
from compaction.engine.types import (
    Summarizer,
    SummarizerError,
    SummarizerOverflow,
    SummaryAnswer,
    SummaryRequest,
)
from compaction.errors import MustWaitError
from compaction.events import event
from compaction.limits import circuit_breaker
from compaction.limits.circuit_breaker import BREAKER_OPEN, Refusal
from compaction.summaries.model_summarizer import BegunCall, ModelSummarizer, NotSentError

# What says that the server or the account has a problem, and not this one conversation.
_OUTAGES = frozenset(
    {
        ErrorKind.UNAVAILABLE,
        ErrorKind.TIMEOUT,
        ErrorKind.BROKEN_ANSWER,
        ErrorKind.RATE_LIMITED,
        ErrorKind.AUTHENTICATION,
        ErrorKind.REGION_REFUSED,
        ErrorKind.QUOTA,
        ErrorKind.NOT_CONFIGURED,
        ErrorKind.BAD_ANSWER,
    }
)
# What a summarising call sends besides its messages.
_PARAMETERS = ("temperature", "max_completion_tokens", "max_tokens", "reasoning_effort")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One model of a sequence: who answers for it, its alias, and the name that rows have."""

    summarizer: Summarizer
    alias: str
    name: str


class ModelSequence:
    """A summariser that asks the first of its models that may be asked.

    Without `admit`, all of them may, and no breaker hears of their calls. `failures` are the models
    that could not answer, with a code that says why; `answered` are those that did.
    """

    def __init__(self, choices: Sequence[Choice]) -> None:
        self._choices = list(choices)
        self._worker: UUID | None = None
        self._admitted: set[str] = set()
        # Of those, the ones whose breakers have not heard how a call ended.
        self._untold: set[str] = set()
        self.failures: dict[str, str] = {}
        self.noted_failing: set[str] = set()
        self.answered: list[Choice] = []
        self._begun: Choice | None = None
        # When the run was found running as it was admitted; 0 once a call was made since.
        self.looked_at = 0.0

    def take_look(self) -> float:
        """Return when the run was last found running (monotonic seconds), once: for one call."""
        looked_at, self.looked_at = self.looked_at, 0.0
        return looked_at

    def admit(self, worker: UUID, *, first_is_clear: bool = False) -> None:
        """Have the breakers say who may be asked, by a worker that tells them of its calls.

        The first model's is not asked where it is known to have nothing to tell
        (circuit_breaker.has_notes). Raises MustWaitError while none of the models may be called.
        """
        self._worker = worker
        if first_is_clear and isinstance(self.first.summarizer, ModelSummarizer):
            self._admit(self.first)
        refusals: list[Refusal] = []
        while self._choices:
            refusal = self._refusal_of(self._choices[0])
            if refusal is None:
                return
            refusals.append(refusal)
            self._pass_over(self._choices[0], BREAKER_OPEN)
        soonest = min(refusals, key=lambda one: one.until)
        raise MustWaitError(soonest.sentence, code=BREAKER_OPEN, until=soonest.until)

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        """Return the answer of the first model behind those that the request passes over.

        Raises SummarizerError where that one could not answer; it is not asked again.
        """
        choice = self._choice(request.passed_over)
        if choice is None:
            raise NotSentError("No larger model can be asked just now.")
        if isinstance(choice.summarizer, ModelSummarizer):
            # One that never answers must leave some time for the next one.
            choice.summarizer.shares_time = choice is not self._choices[-1]
        try:
            answer = choice.summarizer.summarize(request)
        except SummarizerOverflow as error:
            error.model = choice.name
            self._tell(choice, error)
            raise
        except SummarizerError as error:
            error.model = choice.name
            self._tell(choice, error)
            if not (error.was_cut_off or error.was_hurried):
                self.failures[choice.alias] = _code_of(error)
            self._pass_over(choice, RunCode.SUMMARISER_ERROR)
            raise
        if self._worker is not None:
            self._untold.discard(choice.alias)
            circuit_breaker.record_success(choice.alias, self._worker)
        self.answered.append(choice)
        return answer

    def begin(self, request: SummaryRequest) -> bool:
        """Have a call go on beside others, at the model that would be asked; whether it was sent.

        One at a time: `summarize` of the same request takes its answer.
        """
        choice = self._choice(request.passed_over)
        if choice is None or not isinstance(choice.summarizer, ModelSummarizer) or self._begun:
            return False
        choice.summarizer.shares_time = choice is not self._choices[-1]
        if choice.summarizer.begin(request):
            self._begun = choice
        return self._begun is not None

    def begun_call(self, request: SummaryRequest) -> BegunCall | None:
        """Return the call that goes on already for a request, where its model is still asked."""
        choice = self._begun
        if choice is None or choice not in self._choices[request.passed_over :][:1]:
            return None
        summarizer = choice.summarizer
        if not isinstance(summarizer, ModelSummarizer) or not summarizer.has_begun(request):
            return None
        return summarizer.begun

    def leave_begun(self) -> BegunCall | None:
        """Leave the call whose answer nobody took, and return it, if there is one."""
        choice, self._begun = self._begun, None
        if choice is None or not isinstance(choice.summarizer, ModelSummarizer):
            return None
        call, choice.summarizer.begun = choice.summarizer.begun, None
        if call is not None:
            call.leave()
        return call

    def has_another(self, passed_over: int) -> bool:
        """Whether a model behind so many others may be asked."""
        return self._choice(passed_over) is not None

    def use_another(self, passed_over: int) -> bool:
        """Pass over a model whose answers are of no use; whether there is another one."""
        choice = self._choice(passed_over)
        if choice is None or self._choice(passed_over + 1) is None:
            return False
        self._pass_over(choice, RunCode.BAD_ANSWER)
        return True

    def note_of_no_use(self) -> None:
        """Remember that the model that answered last answers nothing of use."""
        for choice in self.answered[-1:]:
            self.failures[choice.alias] = RunCode.BAD_ANSWER

    def instruction_for(self, request: SummaryRequest) -> str:
        """Return the instruction that a call sends to the model that is asked."""
        asked = next(iter(self.answered[-1:] or self._choices[:1]), None)
        if asked is None or not isinstance(asked.summarizer, ModelSummarizer):
            return instruction_of(request)
        return asked.summarizer.instruction_for(request)

    @property
    def models_left(self) -> int:
        """How many models there are still; some may turn out to be left alone."""
        return len(self._choices)

    @property
    def is_known_to_fail(self) -> bool:
        """Whether the model that is asked next was noted as failing before this run."""
        return bool(self._choices) and self.first.alias in self.noted_failing

    @property
    def first(self) -> Choice:
        """The model that is asked next."""
        return self._choices[0]

    def input_limit(self, target_tokens: int) -> int | None:
        """Return what the model that is asked next can take."""
        return self.first.summarizer.input_limit(target_tokens)

    def leave(self) -> None:
        """Let other workers try open breakers that this one has not."""
        if self._worker is not None:
            for alias in self._untold:
                circuit_breaker.give_back(alias, self._worker)

    def _choice(self, passed_over: int) -> Choice | None:
        """Return a model by its place among those that may be asked."""
        while len(self._choices) > passed_over:
            choice = self._choices[passed_over]
            if self._refusal_of(choice) is None:
                return choice
            self._pass_over(choice, BREAKER_OPEN)
        return None

    def _refusal_of(self, choice: Choice) -> Refusal | None:
        is_free = not isinstance(choice.summarizer, ModelSummarizer)
        if self._worker is None or is_free or choice.alias in self._admitted:
            return None
        found = circuit_breaker.admission(choice.alias, self._worker)
        if found.refusal is None:
            self._admit(choice)
        if found.is_failing:
            self.noted_failing.add(choice.alias)
        return found.refusal

    def _admit(self, choice: Choice) -> None:
        self._admitted.add(choice.alias)
        self._untold.add(choice.alias)

    def _pass_over(self, choice: Choice, code: str) -> None:
        self._choices.remove(choice)
        if self._choices:
            event("model_passed_over", model=choice.alias, code=code, level=logging.WARNING)

    def _tell(self, choice: Choice, error: SummarizerError | SummarizerOverflow) -> None:
        """Tell the model's breaker of a call that brought no answer."""
        if self._worker is None:
            return
        self._untold.discard(choice.alias)
        cause = error.__cause__
        if not isinstance(cause, ModelError):
            # Nothing was sent: the input was found too large here.
            circuit_breaker.give_back(choice.alias, self._worker)
        elif isinstance(error, SummarizerOverflow):
            circuit_breaker.record_success(choice.alias, self._worker)
        elif cause.kind in _OUTAGES and not error.was_hurried:
            circuit_breaker.record_failure(choice.alias, self._worker, str(error))
        else:
            circuit_breaker.give_back(choice.alias, self._worker)


def _code_of(error: SummarizerError) -> str:
    """Return why a model could not answer: the error's kind, and the parameter that is meant."""
    cause = error.__cause__
    if not isinstance(cause, ModelError):
        return str(RunCode.SUMMARISER_ERROR)
    if cause.kind is not ErrorKind.PARAMETER_REFUSED:
        return str(cause.kind.value)
    named = cause.param or next((one for one in _PARAMETERS if one in cause.detail), "")
    return f"{cause.kind.value}:{named}" if named else str(cause.kind.value)
