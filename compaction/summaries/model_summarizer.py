"""A language model as a summariser: what it is asked for, how much room and time it has.

Its answers are handed on unjudged.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

from chatapp.conf import chatapp_settings
from chatapp.database import release_connection
from chatapp.llm.adaptations import Adaptation
from chatapp.llm.answer_ends import end_of
from chatapp.llm.asking import OnChange, ask, ignore_change
from chatapp.llm.errors import ErrorKind, ModelError
from chatapp.llm.learned_limits import learn_adaptations
from chatapp.llm.registry import ModelConfig
from chatapp.llm.requests import ModelRequest
from chatapp.llm.tokens import count_message
from chatapp.messages.wire import Cleaner, WireMessage
from compaction.engine.strategies.acceptance import capped
from compaction.engine.strategies.prompts import messages_for
from compaction.engine.types import (
    SummarizerError,
    SummarizerOverflow,
    SummaryAnswer,
    SummaryRequest,
)

WHOLE_ROOM = "room:whole"
"""What is remembered of a model whose thoughts take room that a text alone would not need."""
# Room for the answer: twice the size asked for, so that a complete one is not cut off.
ROOM_FACTOR = 2
SMALLEST_ROOM_TOKENS = 512
# A call that had less than this part of the time that one may take says nothing of the server.
HURRIED_SHARE = 1 / 3
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
        self.shares_time = False
        """Whether half of the time that is left is another model's."""

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        """Return the model's answer, unjudged; raise SummarizerOverflow or SummarizerError."""
        messages: list[WireMessage] = [
            {"role": message["role"], "content": message["content"]}
            for message in messages_for(request)
        ]
        left = self._left_beside(messages, request)
        most = min(left, self._whole_room() or self._room_for(request))
        takes_most = request.whole_room or WHOLE_ROOM in self._model.adaptations
        room = most if takes_most else min(left, self._room_for(request))
        # What thoughts took the room of once is asked for with fewer thoughts, too.
        effort = self._model.reasoning_effort if takes_most else ""
        release_connection()
        began, deadline = time.monotonic(), self._until()
        try:
            reply = ask(
                self._model,
                ModelRequest(
                    messages=messages,
                    max_output=int(room),
                    temperature=self._temperature,
                    effort=effort,
                    deadline=deadline,
                    cancelled=self._asked_to_stop,
                    api=self._api,
                ),
                self._adapt,
            )
        except ModelError as error:
            raise self._failure(error, began, deadline) from error
        usage = reply.usage or {}
        said = capped(SummaryAnswer(text=reply.text or ""), request.longest_tokens)
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

    def _until(self) -> float | None:
        if self._deadline is None or not self.shares_time:
            return self._deadline
        now = time.monotonic()
        return now + (self._deadline - now) / 2

    def _failure(
        self, error: ModelError, began: float, deadline: float | None
    ) -> SummarizerOverflow | SummarizerError:
        """Return what a call's error means to a run: smaller inputs, or another way."""
        said = storable(str(error))
        if error.is_overflow or error.kind is ErrorKind.BODY_TOO_LARGE:
            return SummarizerOverflow(said)
        is_late = error.kind is ErrorKind.TIMEOUT
        given = math.inf if deadline is None else deadline - began
        return SummarizerError(
            said,
            was_cut_off=is_late and time.monotonic() >= (self._deadline or math.inf),
            was_hurried=is_late and given < HURRIED_SHARE * chatapp_settings.model_timeout_seconds,
        )

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

    def _left_beside(self, messages: list[WireMessage], request: SummaryRequest) -> float:
        """Return the tokens that the window leaves for the answer.

        Raises SummarizerOverflow where not even half of the size asked for is left: a server would
        refuse the input, or cut the answer off.
        """
        window = self._model.context_window
        if window <= 0:
            return math.inf
        tokens = sum(count_message(message, self._model.counter) for message in messages)
        left = window - math.ceil(tokens * self._model.scale)
        if left < min(self._room_for(request), request.target_tokens // 2):
            raise SummarizerOverflow(
                f"The input has about {tokens:,} tokens; with room for an answer that is more than "
                f"the summarising model's window of {window:,}. It was not sent."
            )
        return left

    def _room_for(self, request: SummaryRequest) -> int:
        """Return the tokens to ask for: what the profile allows, or enough for a complete text."""
        return self._within_limits(request.answer_tokens) or self._room(request.target_tokens)

    def _room(self, target_tokens: int) -> int:
        return self._within_limits(max(ROOM_FACTOR * target_tokens, SMALLEST_ROOM_TOKENS))

    def _whole_room(self) -> int:
        """Return the longest answer of the model; 0 where nobody knows."""
        return min(self._limits, default=0)

    def _within_limits(self, tokens: int) -> int:
        return min([tokens, *self._limits])

    @property
    def _limits(self) -> list[int]:
        """The model's longest answer and half of its window, as far as they are known."""
        return [n for n in (self._model.max_output, self._model.context_window // 2) if n > 0]
