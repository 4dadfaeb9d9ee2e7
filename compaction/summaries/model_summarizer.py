"""A language model as a summariser: what it is asked for, how much room and time it has.

Its answers are handed on unjudged.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace

from chatapp.conf import chatapp_settings
from chatapp.context.assembly import without_margin
from chatapp.database import release_connection
from chatapp.llm.adaptations import Adaptation, adapted, output_of
from chatapp.llm.answer_ends import end_of
from chatapp.llm.asking import OnChange, ask, ignore_change
from chatapp.llm.errors import ErrorKind, ModelError
from chatapp.llm.learned_limits import learn_adaptations
from chatapp.llm.registry import ModelConfig
from chatapp.llm.requests import ModelRequest, Reply
from chatapp.llm.tokens import count_message
from chatapp.llm.usage import billed
from chatapp.messages.wire import Cleaner, WireMessage
from compaction.engine.fidelity.redaction import redact
from compaction.engine.strategies.acceptance import capped
from compaction.engine.strategies.prompts import (
    conversation_instruction,
    instruction_of,
    messages_for,
)
from compaction.engine.types import (
    SummarizerError,
    SummarizerOverflow,
    SummaryAnswer,
    SummaryRequest,
)
from compaction.engine.unwrapping import unwrapped
from compaction.summaries.conversation_input import ConversationInput
from compaction.summaries.input_tokens import conversation_tokens, transcript_tokens

WHOLE_ROOM = "room:whole"
"""What is remembered of a model whose thoughts take room that a text alone would not need."""
# Room for the answer: twice the size asked for, so that a complete one is not cut off.
ROOM_FACTOR = 2
# Sizes by stored tokens are at most so much above those by counting: of messages of a word or two.
MOST_ROUNDING = 2
SMALLEST_ROOM_TOKENS = 64
# For a model that is known to think first: it would never come to a small text. One that nobody
# knows of is found out by its first answer, and has all its room from then on (WHOLE_ROOM).
SMALLEST_THINKING_ROOM_TOKENS = 512
# A call that had less than this part of the time that one may take says nothing of the server.
HURRIED_SHARE = 1 / 3
# The instruction, the fences and the frame of two messages, generously.
PROMPT_OVERHEAD_TOKENS = 500


def storable(text: str) -> str:
    """Return a server's text without what no database takes: NUL and lone surrogates."""
    return Cleaner().text(text)


class NotSentError(SummarizerOverflow):
    """An input was found too large before it was sent, so that no call was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCall:
    """A call as it is sent: to which model, with what, and whether it has all the room there is."""

    model: ModelConfig
    sent: ModelRequest
    has_whole_room: bool
    input_tokens: int


class BegunCall:
    """A call that goes on in a thread of its own.

    That thread makes the HTTP call and nothing else: it has no database connection
    (docs/decisions/0035-two-calls-side-by-side.md).
    """

    def __init__(self, request: SummaryRequest, asked: PreparedCall) -> None:
        self.asked = asked
        self.began = time.monotonic()
        self.duration_ms = 0
        self._request = request
        self._left = threading.Event()
        self._reply: Future[Reply] = Future()
        # No pool: its threads would be waited for when the process ends.
        threading.Thread(target=self._call, name="summary-call", daemon=True).start()

    def is_for(self, request: SummaryRequest) -> bool:
        """Whether it is the call of a request, with whatever room."""
        return replace(self._request, whole_room=request.whole_room) == request

    def is_done(self, seconds: float = 0) -> bool:
        """Whether something has come of it, by so many seconds from now."""
        return bool(wait([self._reply], timeout=seconds).done)

    def reply(self) -> Reply:
        """Return the answer when it has come; raise what the call raised."""
        return self._reply.result()

    def leave(self) -> None:
        """Have it wait for nothing any more: nobody will ask for its answer."""
        self._left.set()

    def _call(self) -> None:
        model, sent = self.asked.model, self.asked.sent
        try:
            request = replace(adapted(sent, model), cancelled=self._left.is_set)
            reply = model.connect().complete(request)
        except BaseException as error:
            self._end()
            self._reply.set_exception(error)
        else:
            self._end()
            self._reply.set_result(reply)

    def _end(self) -> None:
        self.duration_ms = max(1, round((time.monotonic() - self.began) * 1000))


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
        conversation: ConversationInput | None = None,
        counted_by: str = "",
    ) -> None:
        self._conversation = conversation
        # The way in which the messages' stored tokens were counted; empty: nobody knows.
        self._counted_by = counted_by
        self._model = model
        self._temperature = temperature
        self._deadline = deadline
        self._cancelled = cancelled
        self._api = api
        self._on_change = on_change
        self.shares_time = False
        """Whether half of the time that is left is another model's."""
        self.begun: BegunCall | None = None
        """A call that goes on beside others, as long as nobody took its answer."""

    def begin(self, request: SummaryRequest) -> bool:
        """Have a call go on in a thread of its own; whether it was sent.

        `summarize` of the same request takes its answer.
        """
        try:
            asked = self._prepared(request)
        except NotSentError:
            return False
        self.begun = BegunCall(request, asked)
        return True

    def has_begun(self, request: SummaryRequest) -> bool:
        """Whether the request is the one whose call goes on already."""
        return self.begun is not None and self.begun.is_for(request)

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        """Return the model's answer, unjudged; raise SummarizerOverflow or SummarizerError."""
        begun = self.begun if self.has_begun(request) else None
        if begun is not None:
            self.begun = None
        asked = self._prepared(request) if begun is None else begun.asked
        release_connection()
        began = time.monotonic() if begun is None else begun.began
        try:
            reply = ask(
                asked.model,
                asked.sent,
                self._adapt,
                first_reply=None if begun is None else begun.reply,
            )
        except ModelError as error:
            raise self._failure(error, began, asked.sent.deadline) from error
        duration = 0 if begun is None else begun.duration_ms
        return replace(self._answer(reply, request, asked), duration_ms=duration)

    def _prepared(self, request: SummaryRequest) -> PreparedCall:
        """Return what a call sends. Raises NotSentError where there is no room for it."""
        conversation = self._conversation_for(request)
        if conversation is not None:
            messages = conversation.with_instruction(request)
        else:
            messages = [
                {"role": message["role"], "content": message["content"]}
                for message in messages_for(request)
            ]
        tokens = self._tokens_of(messages, request)
        left = self._left_beside(tokens, request)
        most = min(left, self._whole_room() or self._room_for(request))
        takes_most = request.whole_room or WHOLE_ROOM in self._model.adaptations
        room = most if takes_most else min(left, self._room_for(request))
        # What thoughts took the room of once is asked for with fewer thoughts, too.
        effort = self._model.reasoning_effort if takes_most else ""
        sent = ModelRequest(
            messages=messages,
            max_output=int(room),
            temperature=self._temperature,
            effort=effort,
            deadline=self._until(),
            cancelled=self._asked_to_stop,
            **({"api": self._api} if conversation is None else conversation.fields),
        )
        if conversation is not None:
            sent = adapted(sent, self._model)
        has_most = room >= most and effort == self._model.reasoning_effort
        return PreparedCall(
            model=self._model, sent=sent, has_whole_room=has_most, input_tokens=tokens
        )

    def _answer(self, reply: Reply, request: SummaryRequest, asked: PreparedCall) -> SummaryAnswer:
        usage = reply.usage or {}
        said = capped(SummaryAnswer(text=reply.text or ""), request.longest_tokens)
        text = storable(said.text)
        conversation = self._conversation_for(request)
        if conversation is not None and conversation.hides_secrets:
            # A transcript has none; the conversation may.
            text = redact(text).text
        count = self._model.counter.count
        if request.whole_room and text.strip():
            learn_adaptations(self._model, [WHOLE_ROOM])
        return SummaryAnswer(
            # A strategy that asks in words of its own may want any form.
            text=text.strip() if request.prompt else unwrapped(text),
            finish_reason=reply.finish_reason,
            end=end_of(reply.finish_reason).value,
            has_tool_calls=bool(reply.tool_calls),
            has_thoughts=bool(reply.reasoning),
            had_whole_room=asked.has_whole_room,
            was_capped=said.was_capped,
            is_endless=said.is_endless,
            input_tokens=usage.get("prompt_tokens") or asked.input_tokens,
            output_tokens=usage.get("completion_tokens") or count(text),
            model=storable(reply.model) or self._model.name,
            cost=self._model.cost(reply.usage),
            cached_tokens=billed(reply.usage)["cached_tokens"],
        )

    def instruction_for(self, request: SummaryRequest) -> str:
        """Return the instruction that a call sends."""
        is_whole = self._conversation_for(request) is not None
        return conversation_instruction(request) if is_whole else instruction_of(request)

    def _conversation_for(self, request: SummaryRequest) -> ConversationInput | None:
        """Return the conversation where a call sends it itself."""
        found = self._conversation
        return found if found is not None and found.serves(request) else None

    def _adapt(self, change: Adaptation, error: ModelError) -> None:
        """Have the run's later calls begin with a change that the server wants; tell of it."""
        if (longest := output_of(change.code)) is None:
            known = self._model.adaptations | {change.code}
            self._model = replace(self._model, adaptations=known)
        else:
            self._model = replace(self._model, max_output=longest)
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

    def _tokens_of(self, messages: list[WireMessage], request: SummaryRequest) -> int:
        """Return the tokens of a call's messages, from stored ones where they are ours.

        Those are rounded up. Where the window may be too small for them alone, they are counted.
        """
        conversation, model = self._conversation_for(request), self._model
        if self._counted_by != model.counter.name:
            return sum(count_message(message, model.counter) for message in messages)
        if conversation is None:
            tokens = transcript_tokens(request, messages[0]["content"], model)
        else:
            places = conversation.fields.get("places", ())
            tokens = conversation_tokens(messages, places, request.items, model)
        taken, window = tokens * model.scale, model.context_window
        if window - self._room_for(request) < taken < MOST_ROUNDING * window:
            return sum(count_message(message, model.counter) for message in messages)
        return tokens

    def _left_beside(self, tokens: int, request: SummaryRequest) -> float:
        """Return the tokens that the window leaves for the answer beside those of the messages.

        Raises NotSentError where not even half of the size asked for is left: a server would
        refuse the input, or cut the answer off.
        """
        window = self._model.context_window
        if window <= 0:
            return math.inf
        if conversation := self._conversation_for(request):
            tokens += conversation.tokens_of_tools
        left = window - math.ceil(tokens * self._model.scale)
        if left < min(self._room_for(request), request.target_tokens // 2):
            raise NotSentError(
                f"The input has about {tokens:,} tokens; with room for an answer that is more than "
                f"the summarising model's window of {window:,}. It was not sent."
            )
        # Servers count otherwise than we do: what fills the window to the last token is refused.
        return without_margin(left, window - left)

    def _room_for(self, request: SummaryRequest) -> int:
        """Return the tokens to ask for: what the profile allows, or enough for a complete text."""
        return self._within_limits(request.answer_tokens) or self._room(request.target_tokens)

    def _room(self, target_tokens: int) -> int:
        thinks = bool(self._model.reasoning_effort)
        least = SMALLEST_THINKING_ROOM_TOKENS if thinks else SMALLEST_ROOM_TOKENS
        return self._within_limits(max(ROOM_FACTOR * target_tokens, least))

    def _whole_room(self) -> int:
        """Return the longest answer of the model; 0 where nobody knows."""
        return min(self._limits, default=0)

    def _within_limits(self, tokens: int) -> int:
        return min([tokens, *self._limits])

    @property
    def _limits(self) -> list[int]:
        """The model's longest answer and half of its window, as far as they are known."""
        return [n for n in (self._model.max_output, self._model.context_window // 2) if n > 0]
