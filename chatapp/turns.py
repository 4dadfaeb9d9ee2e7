"""One turn: store what came in, build the request, call the model, recover, store the answer.

There is no HTTP in here. The model is called outside every transaction and without a database
connection (DESIGN.md, rule 9), and what the user sent is stored before anything can fail.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db import connection
from django.db.models import Q
from django.utils import timezone

from chatapp.conf import chatapp_settings
from chatapp.context import Context, Emit, TurnOutcome, context_backend, silent
from chatapp.llm.errors import ErrorKind, ModelError
from chatapp.llm.messages import ModelRequest, Reply
from chatapp.llm.models import get_model
from chatapp.models import Message, Session
from chatapp.transcript import Draft, append

MAX_RECOVERIES = 8
LEASE_SLACK_SECONDS = 30


class TurnInProgressError(Exception):
    """Another turn of this session is running."""


class TurnFailedError(Exception):
    """The turn ended without an answer; the text is for the user. `error` is the model's."""

    def __init__(self, sentence: str, error: ModelError) -> None:
        super().__init__(sentence)
        self.error = error


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What a turn is asked to do; `cancelled` may be set from another thread."""

    session: Session
    drafts: Sequence[Draft] = ()
    client_key: str | None = None
    stream: bool = False
    emit: Emit = silent
    cancelled: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """A finished turn: the rows that came in, the answer's row, what was sent, the run if any."""

    stored: list[Message]
    answer: Message
    context: Context


class TurnLease:
    """The right to run a session's turn: taken by a conditional UPDATE, given back or expiring."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._owner = uuid.uuid4()

    def take(self) -> None:
        """Take the lease; raise TurnInProgressError when another turn holds it."""
        now = timezone.now()
        seconds = chatapp_settings.turn_seconds + LEASE_SLACK_SECONDS
        taken = Session.objects.filter(
            Q(turn_expires_at__isnull=True) | Q(turn_expires_at__lt=now), pk=self._session.pk
        ).update(turn_owner=self._owner, turn_expires_at=now + timedelta(seconds=seconds))
        if not taken:
            raise TurnInProgressError(
                "A turn of this session is running. Wait for its answer, then send the next one."
            )

    def give_back(self) -> None:
        """Free the session, if this lease still holds it."""
        Session.objects.filter(pk=self._session.pk, turn_owner=self._owner).update(
            turn_owner=None, turn_expires_at=None
        )


def run_turn(turn: Turn, *, lease: TurnLease | None = None) -> TurnResult:
    """Store the drafts, get an answer, store it, and return all three.

    `lease` is one that the caller took already. Raises TurnInProgressError before anything is
    stored, chatapp.wire.InvalidMessageError for what cannot be, TurnFailedError when no answer
    came; then what the user sent is stored, and an empty turn tries again.
    """
    if lease is None:
        lease = TurnLease(turn.session)
        lease.take()
    try:
        stored = append(turn.session.branch, turn.drafts, client_key=turn.client_key)
        for message in stored:
            turn.emit("message", {"message": message})
        earlier = _answer_after(stored) if turn.client_key and stored else None
        if earlier is not None:
            context = context_backend.preview(turn.session)
            return TurnResult(stored=stored, answer=earlier, context=context)
        return _answer(turn, stored)
    finally:
        lease.give_back()


def _answer_after(stored: Sequence[Message]) -> Message | None:
    """Return the answer that an earlier turn with the same key got, if it got one."""
    following = Message.objects.filter(
        branch_id=stored[-1].branch_id,
        position__gt=stored[-1].position,
        kind=Message.Kind.MESSAGE,
        role=Message.Role.ASSISTANT,
    ).order_by("position")
    return following.first()


def _answer(turn: Turn, stored: list[Message]) -> TurnResult:
    deadline = time.monotonic() + chatapp_settings.turn_seconds
    session = turn.session
    context = context_backend.prepare(session, [m.wire() for m in stored], emit=turn.emit)
    run_id = context.run_id
    attempt = 0
    while True:
        try:
            reply = call_model(turn, context, deadline)
            break
        except ModelError as error:
            attempt += 1
            recovered = _recover(turn, error, attempt)
            if recovered is None:
                raise _failed(turn, error) from error
            context = recovered
            run_id = context.run_id or run_id
    answer = _store(session, reply)
    outcome = TurnOutcome(message_id=str(answer.pk), usage=reply.usage)
    context_backend.turn_finished(session, outcome)
    context_backend.message_stored(session, answer)
    final = Context(
        messages=context.messages,
        account=context.account,
        previous_response_id=context.previous_response_id,
        run_id=run_id,
        facts=context.facts,
    )
    return TurnResult(stored=stored, answer=answer, context=final)


def call_model(turn: Turn, context: Context, deadline: float) -> Reply:
    """Return the model's reply to a context; no database connection is held meanwhile."""
    model = get_model(turn.session.model)
    account = context.account
    room = account.window - account.used
    request = ModelRequest(
        messages=context.messages,
        tools=turn.session.tools,
        # More room than the window has left would be refused although the request fits (B33).
        max_output=min(model.max_output, room) if room > 0 else model.max_output,
        stream=turn.stream,
        deadline=deadline,
        cancelled=turn.cancelled.is_set,
    )
    if not any(message["role"] == "user" for message in context.messages):
        raise ModelError(
            ErrorKind.REJECTED,
            "There is no user message to answer. Send one with the turn.",
            code="nothing_to_answer",
        )
    release_connection()
    return model.connect().complete(request, turn.emit)


def release_connection() -> None:
    """Close this thread's database connection, so that waiting for a model holds none.

    Inside a transaction (tests, callers with their own) it stays open.
    """
    if not connection.in_atomic_block:
        connection.close()


def _recover(turn: Turn, error: ModelError, attempt: int) -> Context | None:
    """Return a smaller context after an overflow; None when the turn has to end."""
    if not error.is_overflow or turn.cancelled.is_set() or attempt > MAX_RECOVERIES:
        return None
    recovery = context_backend.recover(turn.session, error, attempt, emit=turn.emit)
    if recovery.context is None:
        raise _failed(turn, error, recovery.error) from error
    return recovery.context  # type: ignore[no-any-return]


def _failed(turn: Turn, error: ModelError, sentence: str = "") -> TurnFailedError:
    """Store what had been streamed, tell the backend, and return the error to raise."""
    message = None
    if error.partial is not None and error.partial.text:
        message = _store(turn.session, error.partial, whole=False)
    failure = TurnFailedError(sentence or _sentence(error), error)
    context_backend.turn_finished(
        turn.session,
        TurnOutcome(message_id=str(message.pk) if message else None, usage=None, error=str(failure)),
    )
    return failure


def _sentence(error: ModelError) -> str:
    if error.kind in (ErrorKind.REJECTED, ErrorKind.BAD_ANSWER) and error.detail:
        return f"{error.sentence} It says: {error.detail[:500]}"
    return error.sentence


def _store(session: Session, reply: Reply, *, whole: bool = True) -> Message:
    """Store a reply as the assistant's message. Calls of a broken-off answer are not kept."""
    wire: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.tool_calls and whole:
        wire["tool_calls"] = list(reply.tool_calls)
    if reply.refusal:
        wire["refusal"] = reply.refusal
        wire["content"] = reply.text or reply.refusal
    draft = Draft(
        wire=wire,
        reasoning=reply.reasoning,
        usage=reply.usage,
        finish_reason=reply.finish_reason if whole else "interrupted",
        response_id=reply.response_id,
        metadata={"model": reply.model} if reply.model else {},
    )
    return append(session.branch, [draft])[0]


