"""An answer that the database does not take: it is kept, tried again, stored later, never lost.

What is written down and when: docs/decisions/0040-no-answer-is-lost.md.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.core.exceptions import ObjectDoesNotExist
from django.db import Error, connection
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from chatapp.answer_files import AnswerFile, waiting
from chatapp.database import close_connection, release_connection
from chatapp.ids import new_id
from chatapp.incidents import Kind, note
from chatapp.models import Message, Session
from chatapp.selectors import active_branch, copies_of, rows_before
from chatapp.transcript import append, fork
from chatapp.transcript.writing import NewMessage, SessionDeletedError, TranscriptError
from chatapp.turns.lease import GivingBack, TooManyTurnsError, TurnInProgressError, TurnLease

STORE_SECONDS = 15
"""So long storing is tried again: well within a turn's lease, which nobody can renew meanwhile."""
FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 4.0
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
    logger.warning("The answer of session %s is not stored: %s", place.session, error)
    return AnswerFile(
        message=draft.key or new_id(),
        session=place.session,
        after=place.after,
        made_at=timezone.now().isoformat(),
        why=str(error)[:500],
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
            logger.warning("The answer of session %s is not stored: %s", kept.session, error)
    return None


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


def store_late_answers(session_id: UUID | None = None) -> int:
    """Store the answers that wait, of one session or of all; return how many were.

    What the database does not take yet goes on waiting.
    """
    stored = 0
    for kept in waiting(session_id):
        try:
            stored += _is_stored(kept)
        except (TurnInProgressError, TooManyTurnsError):
            continue  # nothing comes between a turn and its answer
        except Error as error:
            logger.warning("The answer %s goes on waiting: %s", kept.message, error)
            close_connection()
        except Exception:
            logger.exception("The answer %s goes on waiting.", kept.message)
    return stored


def _is_stored(kept: AnswerFile) -> bool:
    session = Session.objects.filter(pk=kept.session).first()
    if session is None or Message.objects.filter(pk=kept.message).exists():
        kept.delete()
        return False
    lease = TurnLease(session)
    lease.take()
    try:
        session.refresh_from_db()
        _store_in_place(session, kept, lease)
    finally:
        lease.give_back()
    kept.delete()
    words = "An answer that the database did not take at once was stored later."
    note(session, Kind.WARNING, STORED_LATE, words, why=kept.why)
    logger.info("The answer %s of session %s is stored now.", kept.message, kept.session)
    return True


def _store_in_place(session: Session, kept: AnswerFile, lease: TurnLease) -> None:
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
    append(branch, [draft], mark=GivingBack(lease))
