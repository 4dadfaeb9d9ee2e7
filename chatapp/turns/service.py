"""One turn: store what came in, build the request, call the model, recover, store the answer.

There is no HTTP in here. The model is called outside every transaction and without a database
connection, and what the user sent is stored before anything can fail. One turn of a session runs at
a time: a conditional UPDATE takes the lease, and it expires.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from uuid import UUID

from django.core.exceptions import ObjectDoesNotExist
from django.db import IntegrityError, OperationalError, transaction

from chatapp.answer_requests import RequestRecord, keeping_request, remember_texts
from chatapp.conf import chatapp_settings
from chatapp.context.assembly import Context
from chatapp.context.backend import EDITS, Emit, TurnOutcome, context_backend, notify, silent
from chatapp.ids import new_id
from chatapp.incidents import LEFT_OUT_ONCE
from chatapp.late_answers import (
    AnswerNotStoredError,
    AnswerPlace,
    store_late_answers_of,
    stored_or_kept,
)
from chatapp.llm.answer_ends import AnswerEnd, end_of
from chatapp.llm.errors import ErrorKind, ModelError
from chatapp.llm.registry import get_model
from chatapp.llm.requests import Reply
from chatapp.messages.wire import EVENTS, REQUEST_MARK, VENDOR, WireMessage, is_blank
from chatapp.models import Message, Session
from chatapp.round_trips import Statement
from chatapp.selectors import active_branch, copies_of, path_q, rows_before
from chatapp.transcript import append, fork_before, switch
from chatapp.transcript.placing import NotStoredBesideError
from chatapp.transcript.writing import (
    NewMessage,
    SessionDeletedError,
    TranscriptError,
    digest_of,
    stored_under,
)
from chatapp.turns.attempts import AttemptOptions, NoAnswerError, NothingToAnswerError, TurnAttempts
from chatapp.turns.events import EventLog, told_of
from chatapp.turns.lease import GivingBack, TurnLease
from chatapp.turns.made_of import SentRequest, record_of

logger = logging.getLogger(__name__)
# The finish reason of an answer that broke off; what had come of it is stored.
INTERRUPTED = "interrupted"
# In `metadata` of an answer: the id of the one that was cut off and goes on here.
CONTINUES = "continues"
# Sent behind an answer that was cut off: servers refuse one that is last, or begin anew.
GO_ON: WireMessage = {
    "role": "user",
    "content": "[Your last answer was cut off. Go on exactly where it stops, repeat nothing of it, "
    "and say nothing about this note.]",
}


class TurnFailedError(Exception):
    """The turn ended without an answer; the text is for the user. `error` is the model's."""

    def __init__(self, sentence: str, error: ModelError) -> None:
        super().__init__(sentence)
        self.error = error


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What a turn is asked to do; `cancelled` may be set from another thread.

    `goes_on`: an answer that was cut off is continued where it stopped. `edits`: the drafts take
    the place of this message in a branch of their own, which becomes the active one.
    """

    session: Session
    drafts: Sequence[NewMessage] = ()
    goes_on: bool = False
    edits: Message | None = None
    client_key: str | None = None
    stream: bool = False
    emit: Emit = silent
    cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def edited_id(self) -> UUID | None:
        """The key of the message that is edited."""
        return None if self.edits is None else self.edits.pk


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """A finished turn: the rows that came in, the answer's row, what was sent, the run if any.

    `events` are what happened on the way; of a turn that was sent again, what its answer's row
    keeps of them.
    """

    stored: list[Message]
    answer: Message
    context: Context
    events: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedTurn:
    """A turn whose messages are stored; finish_turn answers it.

    The lease is held, unless the turn came before under its key and was `answered` then. The answer
    goes behind `last`.
    """

    turn: Turn
    lease: TurnLease
    stored: list[Message]
    last: Message | None = None
    continues: Message | None = None
    answered: Message | None = None


def run_turn(turn: Turn) -> TurnResult:
    """Store the drafts, get an answer, store it, and return all three.

    Raises what begin_turn and finish_turn raise.
    """
    return finish_turn(begin_turn(turn))


def begin_turn(turn: Turn) -> StartedTurn:
    """Take the session's lease and store what came in.

    A key that is answered takes no lease: its answer is there for all who ask, at any time.

    Raises TurnInProgressError, django.db.Error where an earlier answer still waits to be stored and
    cannot be, chatapp.llm.registry.UnknownModelError for a model that is gone,
    chatapp.messages.wire.InvalidMessageError, chatapp.transcript.writing.TranscriptError,
    NothingToAnswerError where there is nothing to go on from; then nothing is stored.
    """
    get_model(turn.session.model)
    # An answer that came when the database was away stands before the next question. While it
    # cannot be stored the model would not know it, and its next answer would be lost as well.
    store_late_answers_of(turn.session.pk)
    lease = TurnLease(turn.session)
    try:
        if not turn.drafts or (turn.edits is not None and not _was_stored(turn)):
            lease.take()
        stored = _store_drafts(turn, lease)
        if not lease.is_held and (answered := _earlier_answer(turn, stored)):
            return StartedTurn(turn=turn, lease=lease, stored=stored, answered=answered)
        lease.begin()
        last = stored[-1] if stored else _last_message(turn.session)
        continues = _cut_answer(turn.session, last) if turn.goes_on else None
    except BaseException:
        lease.give_back()
        raise
    return StartedTurn(turn=turn, lease=lease, stored=stored, last=last, continues=continues)


def _last_message(session: Session) -> Message | None:
    """Return the last message that is no note."""
    rows = Message.objects.filter(kind=Message.Kind.MESSAGE)
    return next(iter(rows_before(session.branch, rows, most=1)), None)


def _cut_answer(session: Session, last: Message | None) -> Message | None:
    """Return the last message if it is an answer that stopped before its end.

    None where the last message is still to be answered. Raises NothingToAnswerError for an answer
    that is whole, perhaps with notes behind it: they ask nothing.
    """
    if last is None and session.branch.message_count:
        # A note asks nothing.
        raise NothingToAnswerError("There is no user message to answer. Send one with the turn.")
    if last is None or last.role != Message.Role.ASSISTANT:
        return None
    if last.tool_calls or end_of(last.finish_reason) not in (AnswerEnd.CUT, AnswerEnd.BROKEN):
        raise NothingToAnswerError(
            "The last answer was not cut off, so there is nothing to continue. Send a message."
        )
    return last


def _store_drafts(turn: Turn, lease: TurnLease) -> list[Message]:
    """Store what came in; the session then knows the branch that it was stored in.

    What goes to the active branch's end takes the lease in the same commit.
    """
    if not turn.drafts:
        turn.session.refresh_from_db(fields=["active_branch"])
        return []
    if turn.edits is not None and not _was_stored(turn):
        return _store_edited(turn, turn.edits)
    stored = append(
        active_branch(turn.session),
        turn.drafts,
        client_key=turn.client_key,
        edits=turn.edited_id,
        mark=None if lease.is_held else lease.taking(),
    )
    if stored[0].branch_id != turn.session.active_branch_id:
        turn.session.refresh_from_db(fields=["active_branch"])
        _refuse_elsewhere(turn.session, stored[-1])
    return stored


def _refuse_elsewhere(session: Session, last: Message) -> None:
    """Raise TranscriptError where what was stored before is still to be answered, elsewhere.

    The session went on in another branch meanwhile, and the answer would stand there.
    """
    places = [place.pk for place in (last, *copies_of([last]))]
    on_the_way = Message.objects.filter(path_q(session.branch), pk__in=places).exists()
    if not on_the_way and _answer_after(last) is None:
        raise TranscriptError(
            f"The messages of this Idempotency-Key stand in the branch {last.branch_id}, which is "
            "no longer the active one, and have no answer yet. Activate it, then send this again."
        )


def _was_stored(turn: Turn) -> bool:
    """Whether the same turn came before, with the same key; nothing is forked again then.

    Raises KeyReusedError where the key belongs to other messages.
    """
    if not turn.client_key:
        return False
    digest = digest_of(turn.drafts, edits=turn.edited_id)
    return bool(stored_under(turn.session.pk, turn.client_key, digest))


def _store_edited(turn: Turn, edited: Message) -> list[Message]:
    """Store what came in where the edited message stands, in a branch that is active then.

    All or nothing: no branch is left behind where the backend refuses the switch. The message that
    was edited, and what followed it, stay in their own branch.
    """
    with transaction.atomic():
        branch = fork_before(turn.session, at=edited)
        switch(turn.session, branch, {EDITS: True})
        return append(branch, turn.drafts, client_key=turn.client_key, edits=edited.pk)


def finish_turn(started: StartedTurn) -> TurnResult:
    """Get the answer and store it; give the lease back.

    Raises TurnFailedError when no answer came, NothingToAnswerError when there is no question,
    chatapp.late_answers.AnswerNotStoredError when the database does not take the answer,
    chatapp.transcript.writing.SessionDeletedError when the session is gone;
    what the user sent is stored in any case, and a turn that goes on tries again.
    """
    turn, stored = started.turn, started.stored
    try:
        for message in stored:
            turn.emit("message", {"message": message})
        earlier = started.answered or _earlier_answer(turn, stored)
        if earlier is not None:
            # Its account is told, and the answer is there: nobody reads all of a long history.
            context = context_backend.preview_part(turn.session)
            events = earlier.metadata.get(EVENTS, ())
            return TurnResult(stored=stored, answer=earlier, context=context, events=events)
        return _answer(started)
    except AnswerNotStoredError:
        # What cannot store an answer may not be able to free the session: its lease runs out.
        started.lease.give_back_if_possible()
        raise
    except (ObjectDoesNotExist, IntegrityError, OperationalError) as error:
        if Session.objects.filter(pk=turn.session.pk).exists():
            raise
        raise SessionDeletedError from error
    finally:
        started.lease.give_back()


def _earlier_answer(turn: Turn, stored: list[Message]) -> Message | None:
    """Return the answer that an earlier turn with the same key got, if it got a whole one."""
    return _answer_after(stored[-1]) if turn.client_key and stored else None


def _answer_after(message: Message) -> Message | None:
    """Return the first whole answer behind a message, or behind a copy of it."""
    # The turn may have replayed the branch before it got its answer.
    for place in (message, *copies_of([message])):
        following = Message.objects.filter(
            branch_id=place.branch_id,
            position__gt=place.position,
            role=Message.Role.ASSISTANT,
            kind__in=Message.SPOKEN,
        ).exclude(finish_reason=INTERRUPTED)
        found = following.order_by("position").first()
        if found is not None:
            return found
    return None


def _answer(started: StartedTurn) -> TurnResult:
    deadline = time.monotonic() + chatapp_settings.turn_seconds
    turn, stored, session = started.turn, started.stored, started.turn.session
    log = EventLog(turn.emit)
    context = context_backend.prepare(session, emit=log)
    question = AttemptOptions(
        session=session,
        stream=turn.stream,
        emit=log,
        cancelled=turn.cancelled,
        deadline=deadline,
        keep_lease=started.lease.keep,
        instruction=GO_ON if started.continues else None,
        tell_left_out=log.tell_what_is_left_out,
    )
    attempts = TurnAttempts(question=question, context=context)
    try:
        answered = attempts.answer()
    except NoAnswerError as failure:
        raise _failed(started, failure, context, attempts, log) from failure
    metadata = dict(answered.metadata) | told_of(answered.context, log)
    if answered.context.mark:
        metadata[REQUEST_MARK] = answered.context.mark
    if started.continues is not None:
        metadata[CONTINUES] = str(started.continues.pk)
    draft = _draft_of(answered.reply, metadata=metadata, vendor=answered.vendor)
    answer = _store(started, draft, attempts.last_sent, _size_for_lists(answered.context))
    outcome = TurnOutcome(answer=answer, context=answered.context, sent=attempts.sent_at)
    notify(context_backend.turn_finished, session, outcome)
    return TurnResult(
        stored=stored, answer=answer, context=answered.context, events=tuple(log.events)
    )


def _size_for_lists(context: Context) -> int | None:
    """Return the size of the answered request, if the next one is so, too; None where it is not.

    What a recovery left out for this request alone is sent again.
    """
    gone = context.left_out
    return None if gone and gone["why"] in LEFT_OUT_ONCE else context.account.used


def _store(
    started: StartedTurn, draft: NewMessage, sent: SentRequest | None, used: int | None = None
) -> Message:
    """Store an answer, or keep it until the database takes it."""
    place = AnswerPlace(
        session=started.turn.session.pk, after=started.last.pk if started.last else None
    )
    return stored_or_kept(partial(_store_once, started, draft, sent, used), draft, place)


def _store_once(
    started: StartedTurn, draft: NewMessage, sent: SentRequest | None, used: int | None
) -> Message:
    """Store an answer with what its request was made of, and give the lease back: one commit.

    The answer is stored in any case; where its record cannot be, the log says so.
    """
    session = started.turn.session
    record = None if sent is None else _record_of(session, sent)
    store = partial(append, active_branch(session), [draft], request_tokens=used)
    if record is not None:
        beside = partial(_keeping, record, session.active_branch_id)
        try:
            answer = store(mark=GivingBack(started.lease), beside=beside)[0]
        except NotStoredBesideError:
            logger.exception("What a request of session %s was made of is not kept.", session.pk)
        else:
            remember_texts(session.pk, record)
            return answer
    return store(mark=GivingBack(started.lease))[0]


def _record_of(session: Session, sent: SentRequest) -> RequestRecord | None:
    try:
        return record_of(session, sent)
    except Exception:
        logger.exception("What a request of session %s was made of is not known.", session.pk)
        return None


def _keeping(
    record: RequestRecord, asked_in: UUID | None, stored: Sequence[Message]
) -> list[Statement[Any]]:
    answer = stored[0]
    if asked_in is not None and asked_in != answer.branch_id:
        # The branch was replayed meanwhile: the request's messages stand in the older one.
        record = replace(record, made_of={**record.made_of, "branch": str(asked_in)})
    return keeping_request(answer, record)


def _failed(
    started: StartedTurn,
    failure: NoAnswerError,
    context: Context,
    attempts: TurnAttempts,
    log: EventLog,
) -> TurnFailedError:
    """Store what had been streamed, tell the backend, and return the error to raise."""
    turn, said = started.turn, failure.error.partial
    message = None
    if said is not None and not is_blank(said.text):
        draft = _draft_of(said, whole=False, metadata=told_of(attempts.context, log))
        message = _store(started, draft, attempts.last_sent)
    is_stopped = failure.error.kind is ErrorKind.CANCELLED
    outcome = TurnOutcome(
        answer=message,
        context=context,
        error=str(failure),
        is_stopped=is_stopped,
        sent=attempts.sent_at,
    )
    notify(context_backend.turn_finished, turn.session, outcome)
    return TurnFailedError(str(failure), failure.error)


def _draft_of(
    reply: Reply,
    *,
    whole: bool = True,
    metadata: dict[str, Any] | None = None,
    vendor: dict[str, Any] | None = None,
) -> NewMessage:
    """Return a reply as the assistant's message. Calls of a broken-off answer are not kept."""
    wire: dict[str, Any] = {
        "role": "assistant",
        "content": None if is_blank(reply.text) else reply.text,
    }
    if vendor:
        wire[VENDOR] = vendor
    if reply.tool_calls and whole:
        wire["tool_calls"] = list(reply.tool_calls)
    if reply.refusal:
        wire["refusal"] = reply.refusal
        wire["content"] = reply.text or reply.refusal
    return NewMessage(
        key=new_id(),
        wire=wire,
        reasoning=reply.reasoning,
        usage=reply.usage,
        finish_reason=reply.finish_reason if whole else INTERRUPTED,
        response_id=reply.response_id,
        metadata=({"model": reply.model} if reply.model else {}) | (metadata or {}),
    )
