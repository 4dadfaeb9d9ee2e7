"""An answer that the database does not take: it is kept, tried again, stored later, never lost.

What is written down and when: docs/decisions/0040-no-answer-is-lost.md.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.core.exceptions import ObjectDoesNotExist
from django.db import Error, connection, transaction
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from chatapp.answer_files import AnswerFile, sessions_waiting, waiting
from chatapp.database import close_connection, release_connection, trouble_of
from chatapp.ids import new_id
from chatapp.incidents import Kind, note
from chatapp.models import Message, Session
from chatapp.selectors import active_branch, copies_of, rows_before
from chatapp.transcript import append, fork
from chatapp.transcript.writing import NewMessage, SessionDeletedError, TranscriptError
from chatapp.turns.lease import TooManyTurnsError, TurnInProgressError, TurnLease

STORE_SECONDS = 15
"""So long storing is tried again: well within a turn's lease, which nobody can renew meanwhile."""
FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 4.0
SWEEP_SECONDS = 20.0
"""So long one look at all answers that wait may store some; the next look goes on."""
TROUBLES_IN_A_ROW = 3
"""After so many the database takes nothing; a single one may be too large for what is free."""
STORED_LATE = "stored_late"
LABEL = "An answer that was stored late"

logger = logging.getLogger(__name__)


class AnswerNotStoredError(Exception):
    """The model answered and the database does not take it; `answer` holds all that it brought.

    `is_kept`: it lies in a file, from which it is stored; otherwise this is the only copy.
    """

    def __init__(self, answer: Mapping[str, Any], *, is_kept: bool) -> None:
        what = (
            "it is kept on the server's disk and stored when the database is back"
            if is_kept
            else "nor can it be written to the server's disk, so this is the only copy"
        )
        super().__init__(
            f"The model answered, and the database cannot store it just now; {what}. "
            "`answer` holds it whole."
        )
        self.answer, self.is_kept = answer, is_kept


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPlace:
    """Where an answer belongs: behind message `after`; None is the session's beginning."""

    session: UUID
    after: UUID | None


def stored_or_kept(store: Callable[[], Message], draft: NewMessage, place: AnswerPlace) -> Message:
    """Return the row of an answer, however often it takes to store it.

    A file holds the answer from the first failure on, so that a process that dies loses nothing.
    Raises AnswerNotStoredError when the time is up, SessionDeletedError where nothing is to be
    stored any more.
    """
    try:
        return store()
    except Error as error:
        kept = _file_of(draft, place, error)
    is_kept = _is_written(kept)
    try:
        if (answer := _tried_again(store, kept)) is not None:
            kept.delete()
            return answer
    except (SessionDeletedError, ObjectDoesNotExist):
        kept.delete()
        raise
    logger.error("The answer %s of session %s waits to be stored.", kept.message, kept.session)
    raise AnswerNotStoredError(_told(kept), is_kept=is_kept)


def _file_of(draft: NewMessage, place: AnswerPlace, error: Error) -> AnswerFile:
    logger.warning("The answer of session %s is not stored: %s", place.session, _why(error))
    return AnswerFile(
        message=draft.key or new_id(),
        session=place.session,
        after=place.after,
        made_at=timezone.now().isoformat(),
        why=_why(error),
        wire=draft.wire,
        reasoning=draft.reasoning,
        usage=draft.usage,
        finish_reason=draft.finish_reason,
        response_id=draft.response_id,
        metadata=draft.metadata,
    )


def _is_written(kept: AnswerFile) -> bool:
    try:
        kept.write()
    except OSError:
        logger.exception("The answer of session %s cannot be kept either.", kept.session)
        return False
    return True


def _tried_again(store: Callable[[], Message], kept: AnswerFile) -> Message | None:
    """Store the answer as soon as that can be done; None when the time is up.

    Of a commit whose answer was lost nobody knows whether it was done: the message's id tells.
    """
    end, pause = time.monotonic() + STORE_SECONDS, FIRST_PAUSE_SECONDS
    while not connection.in_atomic_block and time.monotonic() + pause < end:
        # Whoever waits computes nothing, and a broken connection is good for nothing.
        release_connection()
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        try:
            return Message.objects.filter(pk=kept.message).first() or store()
        except Error as error:
            logger.warning("The answer of session %s is not stored: %s", kept.session, _why(error))
    return None


def _why(error: Error) -> str:
    """Return what a database said, without what it quotes of the row on the lines below."""
    return next(iter(str(error).splitlines()), type(error).__name__)[:500]


def _told(kept: AnswerFile) -> dict[str, Any]:
    """Return an answer as a client gets it that is not stored yet."""
    wire = {name: value for name, value in kept.wire.items() if not name.startswith("_")}
    return {
        "id": str(kept.message),
        **wire,
        "reasoning": kept.reasoning,
        "finish_reason": kept.finish_reason,
        "usage": kept.usage,
    }


# --- later ----------------------------------------------------------------------------------------


def store_late_answers() -> int:
    """Store the answers that wait; return how many were.

    What the database does not take yet goes on waiting. Where it takes nothing the others are not
    tried, and where very many wait some are left to the next look: the order is another each time,
    so that none waits for ever behind those that cannot be stored.
    """
    end, stored, troubles = time.monotonic() + SWEEP_SECONDS, 0, 0
    sessions = sessions_waiting()
    random.shuffle(sessions)
    for session_id in sessions:
        try:
            stored += store_late_answers_of(session_id)
            troubles = 0
        except Error:
            troubles += 1
        if troubles >= TROUBLES_IN_A_ROW or time.monotonic() > end:
            break
    return stored


def store_late_answers_of(session_id: UUID) -> int:
    """Store the answers of a session that wait, the oldest first; return how many were.

    Raises django.db.Error where the database takes none just now. One that is no trouble of the
    database, but of this answer, keeps nobody waiting.
    """
    stored = 0
    for kept in waiting(session_id):
        try:
            stored += _is_stored(kept)
        except (TurnInProgressError, TooManyTurnsError):
            break  # nothing comes between a turn and its answer
        except Error as error:
            logger.warning("The answer %s goes on waiting: %s", kept.message, _why(error))
            close_connection()
            if trouble_of(error) is not None:
                raise
        except Exception:
            logger.exception("The answer %s goes on waiting.", kept.message)
    return stored


def _is_stored(kept: AnswerFile) -> bool:
    session = Session.objects.filter(pk=kept.session).first()
    if session is None or _is_there(kept):
        kept.delete()
        return False
    lease = TurnLease(session)
    lease.take()
    try:
        session.refresh_from_db()
        # Somebody else may have stored it before this lease was free.
        is_new = not _is_there(kept)
        if is_new:
            with transaction.atomic():
                _store_in_place(session, kept)
    finally:
        lease.give_back()
    kept.delete()
    if is_new:
        words = "An answer that the database did not take at once was stored later."
        note(session, Kind.WARNING, STORED_LATE, words, why=kept.why)
        logger.info("The answer %s of session %s is stored now.", kept.message, kept.session)
    return is_new


def _is_there(kept: AnswerFile) -> bool:
    return Message.objects.filter(pk=kept.message).exists()


def _store_in_place(session: Session, kept: AnswerFile) -> None:
    """Store an answer behind what it answers.

    Where the conversation went on meanwhile it stands in a branch of its own: between messages that
    were sent to a model, or summarised, nothing is put.
    """
    draft = NewMessage(
        key=kept.message,
        wire=kept.wire,
        reasoning=kept.reasoning,
        usage=kept.usage,
        finish_reason=kept.finish_reason,
        response_id=kept.response_id,
        metadata=kept.metadata,
        created_at=parse_datetime(kept.made_at),
    )
    branch = active_branch(session)
    asked = None
    if kept.after is not None:
        asked = Message.objects.filter(pk=kept.after, session=session).first()
    last = next(iter(rows_before(branch, Message.objects.filter(kind="message"), most=1)), None)
    if asked is not None and last not in (asked, *copies_of([asked])):
        # Results that came one by one are not parted.
        with suppress(TranscriptError):
            branch = fork(session, at=asked, label=LABEL)
    append(branch, [draft])
