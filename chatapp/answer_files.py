"""Answers that the database could not take, each in a file until it can.

A name is made of the session and of the id that the message will have, so that an answer is stored
once, whoever finds its file. A file is there whole or not at all, for this system's user alone.
Nothing else reads it, and it goes with its session (docs/decisions/0040-no-answer-is-lost.md).
"""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models.signals import post_delete
from django.dispatch import receiver

from chatapp.models import Session

logger = logging.getLogger(__name__)
_END = ".json"
_UNREADABLE = ".unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFile:
    """An answer with all that it brought, and its place: behind message `after`.

    `why` is what the database said when it did not take the answer, `made_at` when that was.
    """

    message: UUID
    session: UUID
    after: UUID | None
    made_at: str
    why: str
    wire: Mapping[str, Any]
    reasoning: str = ""
    usage: Mapping[str, Any] | None = None
    finish_reason: str = ""
    response_id: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Where it lies."""
        return folder() / f"{self.session}.{self.message}{_END}"

    def write(self) -> None:
        """Write it to the disk, beside its place and then there; raises OSError."""
        path = self.path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as to:
                # Half an emoji, which no file's encoding takes, is an escape.
                json.dump(asdict(self), to, default=str)
                to.flush()
                os.fsync(to.fileno())
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise

    def delete(self) -> None:
        """Delete it: the answer is stored, or its session is gone."""
        self.path.unlink(missing_ok=True)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return what a file holds; raises OSError, ValueError, TypeError or LookupError."""
        told = json.loads(path.read_text())
        for name in ("message", "session", "after"):
            told[name] = UUID(told[name]) if told[name] else None
        return cls(**told)


def folder() -> Path:
    """Return where the files lie (ANSWER_DIR)."""
    return Path(settings.ANSWER_DIR)


def waiting(session_id: UUID | None = None) -> Iterator[AnswerFile]:
    """Yield the answers that wait, of one session or of all, in the order of their making.

    Mostly there is no folder at all, and looking costs microseconds. What cannot be read is put
    aside under another name, for people.
    """
    begins = f"{session_id}." if session_id else ""
    try:
        found = [path for path in folder().iterdir() if path.name.startswith(begins)]
    except OSError:
        return
    # Ids of messages are made in the order of time.
    for path in sorted(found, key=lambda path: path.name.partition(".")[2]):
        if path.suffix != _END:
            continue
        try:
            yield AnswerFile.read(path)
        except FileNotFoundError:
            continue  # somebody else stored it just now
        except OSError:
            logger.exception("The answer in %s cannot be read now.", path)
        except (ValueError, TypeError, LookupError):
            logger.exception("The answer in %s cannot be read; it is put aside.", path)
            with suppress(OSError):
                path.replace(path.with_name(path.name + _UNREADABLE))


def delete_answers_of(session_id: UUID) -> int:
    """Delete all files of a session, also what a killed process left; return how many."""
    try:
        found = [path for path in folder().iterdir() if path.name.startswith(f"{session_id}.")]
    except OSError:
        return 0
    for path in found:
        path.unlink(missing_ok=True)
    return len(found)


@receiver(post_delete, sender=Session, dispatch_uid="answer files of session")
def _delete_with_session(*, instance: Session, **kwargs: Any) -> None:
    """Delete a session's files when its deletion is certain."""
    transaction.on_commit(partial(delete_answers_of, instance.pk), robust=True)
