"""Getting a turn's answer: ask, and after a refusal change the request until something works.

Everything here is bounded: the changes of adaptations.py, the backend's recovery, and the time of
the turn. The same request is never sent twice; waiting for a busy server is the client's matter.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from chatapp.context.assembly import LARGE_MARGIN_SHARE, Context
from chatapp.context.backend import Emit, Recovery, context_backend
from chatapp.database import release_connection, without_failing
from chatapp.incidents import Kind, note
from chatapp.llm.adaptations import SMALLEST_OUTPUT_TOKENS
from chatapp.llm.asking import Guesses, is_answered
from chatapp.llm.errors import ErrorKind, ModelError, Reaction
from chatapp.llm.learned_limits import learn_adaptations, learn_from_error, remembered
from chatapp.llm.registry import ModelConfig
from chatapp.llm.requests import ModelRequest, Reply
from chatapp.llm.wires import arguments_of, message_at
from chatapp.messages.outgoing import USER_LAST
from chatapp.messages.wire import (
    ASKED_MODEL,
    REASONING_ITEMS,
    VENDOR_LEFT_OUT,
    WireMessage,
    is_blank,
)
from chatapp.models import Session
from chatapp.turns.adaptations import (
    Adjustments,
    Change,
    changed,
)
from chatapp.turns.made_of import SentRequest
from chatapp.turns.request import (
    SENT,
    digest_of,
    kept_of,
    model_of,
    request_of,
    sent_by,
    supports_continuation,
    take_in,
)

# More steps than any recovery has; what asks for more has lost its way.
MAX_RECOVERIES = 20
# No request is changed any more where a turn has sent so many; a recovery goes on.
MAX_REQUESTS = 8
# Part of a limit per minute that the answer may take: the request counts, too.
ANSWER_SHARE = 4
EMPTY_ANSWER, THOUGHTS_ALONE = "empty_answer", "thoughts_alone"
_NOT_LEARNED = "What a model server taught is not remembered"
# Kinds whose sentence leaves open what happened.
_TOLD_WITH_DETAIL = (ErrorKind.REJECTED, ErrorKind.BAD_ANSWER, ErrorKind.BROKEN_ANSWER)


class NothingToAnswerError(Exception):
    """The request would hold no user message, so no model was asked."""


class NoAnswerError(Exception):
    """Nothing was left to try; the text is for the user, `error` is the model's last one."""

    def __init__(self, sentence: str, error: ModelError) -> None:
        super().__init__(sentence)
        self.error = error


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptOptions:
    """What is asked for: a session's next answer. `keep_lease` is called before every request.

    `instruction` is a user's message that is sent behind the conversation and not stored.
    `tell_left_out` hears of each context before it is sent.
    """

    session: Session
    stream: bool
    emit: Emit
    cancelled: threading.Event
    deadline: float
    keep_lease: Callable[[], None]
    instruction: WireMessage | None = None
    tell_left_out: Callable[[Context], None] = lambda context: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The reply, the context that it answers, and what its row remembers of the request."""

    reply: Reply
    context: Context
    metadata: dict[str, Any] = field(default_factory=dict)
    vendor: dict[str, Any] | None = None


@dataclass(kw_only=True)
class TurnAttempts:
    """One turn's attempts; what was tried is never forgotten before the turn ends."""

    question: AttemptOptions
    context: Context
    done: Adjustments = field(default_factory=Adjustments)
    recovery: Recovery | None = None
    recoveries: int = 0
    run_id: str | None = None
    last_error: ModelError | None = None
    first_refusal: tuple[ModelError, ModelRequest] | None = None
    guesses: Guesses = field(default_factory=Guesses)
    sent: set[str] = field(default_factory=set)
    last_sent: SentRequest | None = None
    # When the last request went out, by time.monotonic().
    sent_at: float | None = None

    @property
    def session(self) -> Session:
        """The session that is answered."""
        return self.question.session

    def answer(self) -> Answered:
        """Return the answer; raise NoAnswerError or NothingToAnswerError."""
        self.run_id = self.context.run_id
        while True:
            # A backend's work may have taken long; nobody else's turn may start before this ends.
            self.question.keep_lease()
            if self.context.not_shown is not None:
                self._recover_unsent()
                continue
            model = self.context.model or model_of(self.session)
            request = self._request(model)
            self.question.tell_left_out(self.context)
            try:
                reply = self._ask(model, request)
            except ModelError as error:
                self.last_error = error
                self._after(error, model, request)
                self._take_back(error)
            else:
                return self._answered(reply, model, request)

    def _recover_unsent(self) -> None:
        """Go on as after an overflow: the backend's sums say that no server could take all of it.

        The request was not even put together, so nothing is learned of the server.
        """
        if self.question.cancelled.is_set():
            raise self._failed(ModelError(ErrorKind.CANCELLED))
        account = self.context.account
        self.last_error = ModelError(
            ErrorKind.CONTEXT_OVERFLOW,
            f"Not sent: the request has about {account.used:,} tokens, and the model's window is "
            f"{account.window:,}.",
            observed=account.used,
        )
        self._recover(self.last_error)

    def _request(self, model: ModelConfig) -> ModelRequest:
        if not self.context.asks_something:
            raise NothingToAnswerError(
                "There is no user message to answer. Send one with the turn."
            )
        question = self.question
        request = request_of(
            self.session,
            self.context,
            model,
            stream=question.stream,
            deadline=question.deadline,
            cancelled=question.cancelled.is_set,
        )
        if question.instruction is not None:
            messages, places = (*request.messages, question.instruction), (*request.places, "")
            request = replace(request, messages=messages, places=places)
        asking = replace(request, adaptations=request.adaptations | {USER_LAST})
        return self.done.apply(asking, model, context_backend.shorten)

    def _ask(self, model: ModelConfig, request: ModelRequest) -> Reply:
        digest = _digest(request, model)
        if digest in self.sent and self.last_error is not None:
            raise self._failed(self.last_error)
        self.sent.add(digest)
        self.last_sent = SentRequest(
            request=request, model=model, context=self.context, digest=digest
        )
        release_connection(of_a_server=True)
        self.sent_at = time.monotonic()
        reply = model.connect().complete(request, self._on_event)
        if reply.is_empty:
            raise ModelError(
                ErrorKind.BAD_ANSWER,
                f"finish reason {reply.finish_reason}",
                code=EMPTY_ANSWER if is_blank(reply.reasoning) else THOUGHTS_ALONE,
            )
        return reply

    def _on_event(self, name: str, payload: dict[str, Any]) -> None:
        """Pass the model's news on; a retry is noted, too."""
        if name == "retry":
            note(
                self.session,
                Kind.RETRY,
                payload["code"],
                payload["text"],
                wait_seconds=payload["wait_seconds"],
                attempt=payload["attempt"],
            )
            release_connection()
        self.question.emit(name, payload)

    def _after(self, error: ModelError, model: ModelConfig, request: ModelRequest) -> None:
        """Change the request after an error, or raise NoAnswerError."""
        with without_failing(_NOT_LEARNED):
            learn_from_error(model, error, self.context.account.used)
        self.guesses.refused(error)
        first = self.first_refusal
        if error.reaction is Reaction.ADAPT and (first is None or is_answered(first[0], error)):
            self.first_refusal = error, request
        if self.question.cancelled.is_set() or error.kind is ErrorKind.CANCELLED:
            raise self._failed(error)
        change = None
        if len(self.sent) < MAX_REQUESTS:
            change = self._shorter_answer(error, request)
            change = change or self._next_change(error, model, request)
        if change is not None:
            self._note_change(change.code, change.text, error)
            self.guesses.tried(error, change.adjustments.codes - self.done.codes)
            self.done = change.adjustments
            self._remember(change.code)
        elif error.reaction is Reaction.RECOVERY or error.kind is ErrorKind.BODY_TOO_LARGE:
            if error.kind is ErrorKind.REQUEST_OVER_RATE and error.allowed:
                self._answer_shorter(error.allowed)
            self._recover(error)
        else:
            raise self._refused(error, request)

    def _refused(self, error: ModelError, request: ModelRequest) -> NoAnswerError:
        """Return the failure of a turn that nothing helped, in the server's first words about it.

        What it says of the request's changed forms would tell nobody what is wrong.
        """
        if error.reaction is Reaction.ADAPT and self.first_refusal is not None:
            error, request = self.first_refusal
        return self._failed(error, _which_message(error, request))

    def _shorter_answer(self, error: ModelError, request: ModelRequest) -> Change | None:
        """Return a shorter answer where a refused request fits the window by our count.

        Its server counts a little more than we do: there may be nothing to compact. An answer that
        loses more than half of its room is no way out before a compaction was tried.
        """
        account, now = self.context.account, request.max_output or 0
        is_smaller = 0 < (error.allowed or 0) < account.window
        if error.kind is not ErrorKind.CONTEXT_OVERFLOW or is_smaller or now > account.room:
            return None
        lower = account.answer_room(share=LARGE_MARGIN_SHARE)
        least = max(SMALLEST_OUTPUT_TOKENS, account.least_answer, now // 2)
        if not least <= lower < now:
            return None
        return Change(
            code="output_lowered",
            text=f"The request filled the window by our count, and the server counts more; an "
            f"answer of {lower:,} tokens at most was asked for instead of {now:,}.",
            adjustments=replace(self.done, max_output=lower, output_refused=False),
        )

    def _next_change(
        self, error: ModelError, model: ModelConfig, request: ModelRequest
    ) -> Change | None:
        """Return the next change that leads to a request unlike all that were sent."""
        done = self.done
        # No kind of refusal has more changes to try; one of a length would repeat itself.
        for _ in range(MAX_REQUESTS):
            change = changed(done, error, request, model)
            if change is None:
                return None
            again = change.adjustments.apply(request, model, context_backend.shorten)
            if _digest(again, model) not in self.sent:
                return change
            done = change.adjustments
        return None

    def _on_recovery_event(self, name: str, payload: dict[str, Any]) -> None:
        """Pass the backend's news on; its work may be long, so the lease is kept meanwhile."""
        self.question.keep_lease()
        self.question.emit(name, payload)

    def _answer_shorter(self, allowed: int) -> None:
        """Ask for a shorter answer where request and answer share a limit per minute."""
        most = max(SMALLEST_OUTPUT_TOKENS, allowed // ANSWER_SHARE)
        shorter = min(self.done.max_output or most, most)
        self.done = replace(self.done, max_output=shorter, output_refused=False)

    def _take_back(self, error: ModelError) -> None:
        """Tell who watches that what was streamed of a refused answer does not count."""
        partial: Reply | None = error.partial
        if self.question.stream and partial and (partial.text or partial.tool_calls):
            self.question.emit("reset", {"code": error.kind.value})

    def _remember(self, code: str) -> None:
        """Have the session's later turns begin with what its server turned out to want."""
        column = {"stateless": "stateless", "plain_text": "plain_text"}.get(code)
        if column is not None:
            Session.objects.filter(pk=self.session.pk).update(**{column: True})
            setattr(self.session, column, True)

    def _learn(self, model: ModelConfig) -> None:
        """Remember which changes of the form helped: for the model, or for this conversation."""
        learn_adaptations(model, self.guesses.of_model(self.done.codes))
        if self.done.output_refused:
            # Where the server named no number, the length that it took at last.
            longest = ModelError(ErrorKind.OUTPUT_LIMIT, allowed=self.done.max_output)
            learn_from_error(model, longest, 0)
        if own := self.guesses.of_conversation(self.done.codes):
            known = {**self.session.adaptations, **remembered(own)}
            Session.objects.filter(pk=self.session.pk).update(adaptations=known)
            self.session.adaptations = known

    def _note_change(self, code: str, text: str, error: ModelError) -> None:
        note(
            self.session,
            Kind.CHANGE,
            code,
            text,
            error=error.kind.value,
            said=error.detail[:500],
            status=error.status,
        )
        self.question.emit("change", {"code": code, "text": text})

    def _recover(self, error: ModelError) -> None:
        self.recoveries += 1
        if self.recoveries > MAX_RECOVERIES:
            raise self._failed(error)
        self.recovery = context_backend.recover(
            self.session, error, self.recovery, refused=self.context, emit=self._on_recovery_event
        )
        if self.recovery.context is None:
            raise self._failed(error, self.recovery.error)
        self.context = self.recovery.context
        self.run_id = self.context.run_id or self.run_id

    def _failed(self, error: ModelError, sentence: str = "") -> NoAnswerError:
        sentence = sentence or _sentence(error)
        with without_failing("A turn's failure is not noted"):
            note(
                self.session,
                Kind.ERROR,
                error.kind.value,
                sentence,
                said=error.detail[:500],
                status=error.status,
                server_code=error.code,
            )
        return NoAnswerError(sentence, error)

    def _answered(self, reply: Reply, model: ModelConfig, request: ModelRequest) -> Answered:
        account, metadata = self.context.account, {}
        with without_failing(_NOT_LEARNED):
            self._learn(model)
        with without_failing(_NOT_LEARNED):
            metadata = take_in(self.session, reply, model=model, request=request, account=account)
        if reply.model != model.name:
            metadata[ASKED_MODEL] = model.name
        if supports_continuation(self.session, model):
            metadata[SENT] = sent_by(request, model, whole=self.done.stateless)
        if reply.reasoning_items:
            metadata[REASONING_ITEMS] = list(reply.reasoning_items)
        kept = kept_of(reply, request, model)
        left_out = [*reply.left_out, *(kept.left_out if kept else ())]
        if left_out:
            metadata[VENDOR_LEFT_OUT] = left_out
        context = replace(self.context, run_id=self.run_id)
        vendor = kept.vendor if kept else None
        return Answered(reply=reply, context=context, metadata=metadata, vendor=vendor)


def _digest(request: ModelRequest, model: ModelConfig) -> str:
    """Return what tells one request from another, as the server would see it."""
    return digest_of([{"api": request.api}, arguments_of(model, request)])


def _sentence(error: ModelError) -> str:
    if error.code == EMPTY_ANSWER:
        return (
            f"The model answered with neither text nor a tool call ({error.detail}). Try again; "
            "where the reason is length, raise OPENAI_MAX_OUTPUT."
        )
    if error.code == THOUGHTS_ALONE:
        return (
            f"The model thought, and answered with neither text nor a tool call ({error.detail}). "
            "Try again; where the reason is length, raise OPENAI_MAX_OUTPUT. Where it is so each "
            "time, the server's reasoning parser takes answers for thoughts: switch it off there."
        )
    if error.kind in _TOLD_WITH_DETAIL and error.detail:
        return f"{error.sentence} It says: {error.detail[:500]}"
    return error.sentence


def _which_message(error: ModelError, request: ModelRequest) -> str:
    """Return a sentence that names the message that is the cause, where the error names it."""
    if error.message_index is None:
        return ""
    index = message_at(request, error.message_index)
    if index is None:
        return ""
    role = request.messages[index]["role"]
    place = request.places[index] if index < len(request.places) else ""
    which = f"message {place}" if place else f"a message of the role {role}"
    if error.kind is not ErrorKind.MESSAGE_TOO_LONG:
        return f"{_sentence(error)} It is about {which} ({role})."
    limit = f" ({error.allowed:,} characters)" if error.allowed else ""
    if role == "tool":
        return (
            f"The server takes no text that long{limit}: {which} (tool), also after it was cut. "
            "Have the tool answer with less, or start a new session."
        )
    return (
        f"The server takes no text that long{limit}: {which} ({role}). Send it in pieces, or start "
        "a new session without it."
    )
