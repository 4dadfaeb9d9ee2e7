"""The engine's Summarizer over chatapp.llm: a language model, or chosen sentences without one.

A run may call a model as long as the hour's budget and the model's circuit breaker allow it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from uuid import UUID

from chatapp.database import release_connection
from chatapp.incidents import Kind, note
from chatapp.llm.adaptations import Adaptation
from chatapp.llm.answer_ends import end_of
from chatapp.llm.asking import OnChange, ask, ignore_change
from chatapp.llm.errors import ErrorKind, ModelError
from chatapp.llm.learned_limits import learn_adaptations, with_learned_limits
from chatapp.llm.registry import ModelConfig, get_model
from chatapp.llm.requests import ModelRequest
from chatapp.llm.tokens import count_message
from chatapp.messages.wire import Cleaner, WireMessage
from chatapp.models import Session
from compaction.engine.extractive.summarizer import ExtractiveSummarizer
from compaction.engine.parameters import Profile
from compaction.engine.policy.reasons import RunCode
from compaction.engine.strategies.acceptance import capped
from compaction.engine.strategies.prompts import instruction_of, messages_for
from compaction.engine.types import (
    Summarizer,
    SummarizerError,
    SummarizerOverflow,
    SummaryAnswer,
    SummaryRequest,
)
from compaction.errors import MustWaitError
from compaction.limits import circuit_breaker
from compaction.limits.budget import overspent
from compaction.limits.circuit_breaker import BREAKER_OPEN
from compaction.models import CompactionRun

WHOLE_ROOM = "room:whole"
"""What is remembered of a model whose thoughts take room that a text alone would not need."""
# Room for the answer: twice the size asked for, so that a complete one is not cut off.
ROOM_FACTOR = 2
SMALLEST_ROOM_TOKENS = 512
# The instruction, the fences and the frame of two messages, generously.
PROMPT_OVERHEAD_TOKENS = 500


def storable(text: str) -> str:
    """Return a server's text without what no database takes: NUL and lone surrogates."""
    return Cleaner().text(text)


class ModelSummarizer:
    """Asks a language model. `deadline` is a time.monotonic() value."""

    def __init__(
        self,
        *,
        model: ModelConfig,
        temperature: float | None,
        deadline: float | None = None,
        cancelled: Callable[[], bool] = lambda: False,
        api: str = "chat",
        on_change: OnChange = ignore_change,
    ) -> None:
        self._model = model
        self._temperature = temperature
        self._deadline = deadline
        self._cancelled = cancelled
        self._api = api
        self._on_change = on_change

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        """Return the model's answer, unjudged; raise SummarizerOverflow or SummarizerError."""
        messages: list[WireMessage] = [
            {"role": message["role"], "content": message["content"]}
            for message in messages_for(request)
        ]
        left = self._left_beside(messages, request.target_tokens)
        most = min(left, self._room(request.target_tokens, whole=True))
        takes_most = request.whole_room or WHOLE_ROOM in self._model.adaptations
        room = most if takes_most else min(left, self._room(request.target_tokens))
        # What thoughts took the room of once is asked for with fewer thoughts, too.
        effort = self._model.reasoning_effort if takes_most else ""
        release_connection()
        try:
            reply = ask(
                self._model,
                ModelRequest(
                    messages=messages,
                    max_output=int(room),
                    temperature=self._temperature,
                    effort=effort,
                    deadline=self._deadline,
                    cancelled=self._asked_to_stop,
                    api=self._api,
                ),
                self._adapt,
            )
        except ModelError as error:
            if error.is_overflow or error.kind is ErrorKind.BODY_TOO_LARGE:
                raise SummarizerOverflow(storable(str(error))) from error
            raise SummarizerError(storable(str(error))) from error
        usage = reply.usage or {}
        said = capped(SummaryAnswer(text=reply.text or ""), request.target_tokens)
        text = storable(said.text)
        count = self._model.counter.count
        if request.whole_room and text.strip():
            learn_adaptations(self._model, [WHOLE_ROOM])
        return SummaryAnswer(
            text=text.strip(),
            finish_reason=reply.finish_reason,
            end=end_of(reply.finish_reason).value,
            has_tool_calls=bool(reply.tool_calls),
            has_thoughts=bool(reply.reasoning),
            had_whole_room=room >= most and effort == self._model.reasoning_effort,
            was_capped=said.was_capped,
            input_tokens=usage.get("prompt_tokens")
            or sum(count(message["content"]) for message in messages),
            output_tokens=usage.get("completion_tokens") or count(text),
            model=storable(reply.model) or self._model.name,
            cost=self._model.cost(reply.usage),
        )

    def _adapt(self, change: Adaptation, error: ModelError) -> None:
        """Have the run's later calls begin with a change that the server wants; tell of it."""
        known = self._model.adaptations | {change.code}
        self._model = replace(self._model, adaptations=known)
        self._on_change(change, error)
        release_connection()

    def _asked_to_stop(self) -> bool:
        stop = self._cancelled()
        release_connection()
        return stop

    def input_limit(self, target_tokens: int) -> int | None:
        """Return how many tokens of transcript fit beside instruction and answer."""
        window = self._model.context_window
        if window <= 0:
            return None
        return max(1, window - self._room(target_tokens) - PROMPT_OVERHEAD_TOKENS)

    def _left_beside(self, messages: list[WireMessage], target_tokens: int) -> float:
        """Return the tokens that the window leaves for the answer.

        Raises SummarizerOverflow where not even half of the size asked for is left: a server would
        refuse the input, or cut the answer off.
        """
        window = self._model.context_window
        if window <= 0:
            return math.inf
        tokens = sum(count_message(message, self._model.counter) for message in messages)
        left = window - math.ceil(tokens * self._model.scale)
        if left < min(self._room(target_tokens), target_tokens // 2):
            raise SummarizerOverflow(
                f"The input has about {tokens:,} tokens; with room for an answer that is more than "
                f"the summarising model's window of {window:,}. It was not sent."
            )
        return left

    def _room(self, target_tokens: int, *, whole: bool = False) -> int:
        """Return the tokens to ask for: enough for a complete text, or the `whole` of the limit."""
        limits = [n for n in (self._model.max_output, self._model.context_window // 2) if n > 0]
        if whole and limits:
            return min(limits)
        return min([max(ROOM_FACTOR * target_tokens, SMALLEST_ROOM_TOKENS), *limits])


def prompt_of(summarizer: Summarizer, request: SummaryRequest) -> str:
    """Return the instruction that a call sends to a language model; empty where none is asked."""
    if not isinstance(summarizer, ModelSummarizer):
        return ""
    return instruction_of(request)


def summarising_model(session: Session, profile: Profile) -> ModelConfig:
    """Return the model that writes a profile's summaries, with what its server taught."""
    return with_learned_limits(get_model(profile.summary_model or session.model))


def summariser_name(session: Session, profile: Profile) -> str:
    """Return what a summary's row calls its writer: the model's name, or `extractive`.

    The name is the configured one; what the server calls itself stands in the steps.
    """
    if profile.summariser == "extractive":
        return "extractive"
    return summarising_model(session, profile).name


def summarizer_for(
    session: Session,
    profile: Profile,
    *,
    deadline: float | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Summarizer:
    """Return the Summarizer a profile asks for.

    The embedded model cannot write: it chooses sentences, within its window, so that halving can be
    seen without a server.
    """
    model = summarising_model(session, profile)
    if profile.summariser == "extractive":
        return ExtractiveSummarizer(counter=model.counter)
    if model.is_embedded:
        return ExtractiveSummarizer(
            counter=model.counter, window=model.context_window, name=model.name
        )
    return ModelSummarizer(
        model=model,
        temperature=profile.temperature,
        deadline=deadline,
        cancelled=cancelled,
        # Another model than the session's own may be offered on the common wire only.
        api=session.api if model.alias == session.model else Session.Api.CHAT,
        on_change=partial(_note_change, session),
    )


def _note_change(session: Session, change: Adaptation, error: ModelError) -> None:
    """Have the session's page say what was changed about a summarising call."""
    note(
        session,
        Kind.CHANGE,
        change.code.partition(":")[0],
        f"A summary was asked for. {change.text}",
        error=error.kind.value,
        said=error.detail[:500],
        status=error.status,
    )


OVER_BUDGET = RunCode.OVER_BUDGET
NO_MODEL = (OVER_BUDGET, BREAKER_OPEN)
# What says that the server or the account has a problem, and not this one conversation.
_OUTAGES = frozenset(
    {
        ErrorKind.UNAVAILABLE,
        ErrorKind.TIMEOUT,
        ErrorKind.RATE_LIMITED,
        ErrorKind.AUTHENTICATION,
        ErrorKind.QUOTA,
        ErrorKind.NOT_CONFIGURED,
        ErrorKind.BAD_ANSWER,
    }
)


def admitted(run: CompactionRun, profile: Profile, summarizer: Summarizer) -> Summarizer:
    """Return the summariser to use for a run: its calls are told to the model's breaker.

    Choosing sentences needs no leave. Raises MustWaitError while the budget of the last hour is
    used up, unless an operator asked for the run, or while the breaker is open.
    """
    if not isinstance(summarizer, ModelSummarizer) or run.worker is None:
        return summarizer
    asked_by_operator = run.requested_by is not None and run.requested_by.is_staff
    over = None if asked_by_operator else overspent(run.session)
    if over is not None:
        raise MustWaitError(over.sentence, code=OVER_BUDGET, until=over.frees_at)
    model = summarising_model(run.session, profile).alias
    refusal = circuit_breaker.admit(model, run.worker)
    if refusal is not None:
        raise MustWaitError(refusal.sentence, code=BREAKER_OPEN, until=refusal.until)
    return WatchedSummarizer(summarizer, model=model, worker=run.worker)


class WatchedSummarizer:
    """A summariser whose calls are told to the breaker of its model."""

    def __init__(self, inner: Summarizer, *, model: str, worker: UUID) -> None:
        self._inner = inner
        self._model = model
        self._worker = worker

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        """Return the inner summariser's answer; tell how the call ended."""
        try:
            answer = self._inner.summarize(request)
        except (SummarizerError, SummarizerOverflow) as error:
            self._tell(error)
            raise
        circuit_breaker.record_success(self._model, self._worker)
        return answer

    def _tell(self, error: Exception) -> None:
        cause = error.__cause__
        if not isinstance(cause, ModelError):
            # Nothing was sent: the input was found too large here.
            self.leave()
        elif isinstance(error, SummarizerError) and cause.kind in _OUTAGES:
            circuit_breaker.record_failure(self._model, self._worker, str(error))
        elif isinstance(error, SummarizerError):
            self.leave()
        else:
            circuit_breaker.record_success(self._model, self._worker)

    def leave(self) -> None:
        """Let another worker try an open breaker, if this one has not."""
        circuit_breaker.give_back(self._model, self._worker)

    def input_limit(self, target_tokens: int) -> int | None:
        """Return what the inner summariser can take."""
        return self._inner.input_limit(target_tokens)
