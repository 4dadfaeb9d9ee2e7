"""Answers that the database could not take, each in a file until it can.

A session has a folder of its own while something of it waits: a turn looks for that one name,
however many others wait. A file's name is the id that the message will have, so that an answer is
stored once, whoever finds it. It is there whole or not at all, for this system's user alone, and it
goes with its session (docs/decisions/0040-no-answer-is-lost.md).
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import time
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
_TRIES = 5
DRAFT_SECONDS = 3600
"""A draft that is older was left by a process that was killed: half an answer, of no use."""
# What a file may raise that holds something else than an answer.
_NO_ANSWER = (ValueError, TypeError, LookupError, AttributeError, RecursionError)


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
        return folder() / str(self.session) / f"{self.message}{_END}"

    def write(self) -> None:
        """Write it to the disk, beside its place and then there; raises OSError."""
        path = self.path
        draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        try:
            with os.fdopen(_opened(draft), "w") as to:
                # Half an emoji, which no file's encoding takes, is an escape.
                json.dump(asdict(self), to, default=str)
                to.flush()
                os.fsync(to.fileno())
            draft.replace(path)
            # A power cut forgets a name that its folder does not have on the disk yet.
            for place in (path.parent, folder()):
                _sync(place)
        except BaseException:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            raise

    def delete(self) -> None:
        """Delete it: the answer is stored, or its session is gone."""
        path = self.path
        path.unlink(missing_ok=True)
        _remove_if_empty(path.parent)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return what a file holds; raises OSError, or one of _NO_ANSWER."""
        told = json.loads(path.read_text())
        for name in ("message", "session", "after"):
            told[name] = UUID(told[name]) if told[name] else None
        found = cls(**told)
        if found.path != path:
            raise ValueError("It lies under another name than its own.")
        return found


def _opened(draft: Path) -> int:
    """Return a new file that is open for writing, in folders for this system's user alone."""
    folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    for _ in range(_TRIES):
        draft.parent.mkdir(mode=0o700, exist_ok=True)
        with suppress(FileNotFoundError):  # somebody removed the folder, which was empty
            return os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    raise FileNotFoundError(draft)


def _sync(place: Path) -> None:
    """Write the names in a folder to the disk, where the system can do that."""
    with suppress(OSError):
        opened = os.open(place, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _remove_if_empty(of_session: Path) -> None:
    with suppress(OSError):
        of_session.rmdir()


def folder() -> Path:
    """Return where the files lie (ANSWER_DIR)."""
    return Path(settings.ANSWER_DIR)


def folder_fault() -> str:
    """Return what is wrong with the folder, as the end of a sentence; empty where nothing is.

    It is made when it is needed, so a folder above it that can be written to is enough.
    """
    place = folder()
    if not os.path.lexists(place):
        above = next(parent for parent in place.absolute().parents if parent.exists())
        is_fit = above.is_dir() and os.access(above, os.W_OK | os.X_OK)
        return "" if is_fit else f"({place}) cannot be made: {above} cannot be written to."
    if not place.is_dir():
        return f"({place}) is no folder."
    if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        return f"({place}) cannot be written to."
    if os.name == "posix" and place.stat().st_mode & 0o077:
        return f"({place}) is open to other users of this machine: take their rights away."
    return ""


def sessions_waiting() -> list[UUID]:
    """Return the sessions that have a folder here, the oldest first."""
    found = []
    with suppress(OSError), os.scandir(folder()) as entries:
        for entry in entries:
            # What somebody else put there, a link for example, is not ours.
            with suppress(ValueError):
                if entry.is_dir(follow_symlinks=False):
                    found.append(UUID(entry.name))
    return sorted(found)


def waiting(session_id: UUID) -> Iterator[AnswerFile]:
    """Yield the answers of a session that wait, in the order of their making.

    Mostly the session has no folder, and looking costs microseconds. What cannot be read is put
    aside under another name, for people.
    """
    of_session = folder() / str(session_id)
    try:
        with os.scandir(of_session) as entries:
            names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    except OSError:
        return
    # Ids of messages are made in the order of time.
    for path in (of_session / name for name in sorted(names)):
        if path.suffix == _END:
            yield from _readable(path)
        elif path.suffix != _UNREADABLE:
            _delete_if_left(path)
    _remove_if_empty(of_session)


def _readable(path: Path) -> Iterator[AnswerFile]:
    """Yield what a file holds, if it holds an answer."""
    try:
        found = AnswerFile.read(path)
    except FileNotFoundError:
        return  # somebody else stored it just now
    except OSError:
        logger.exception("The answer in %s cannot be read now.", path)
    except _NO_ANSWER:
        logger.exception("The answer in %s cannot be read; it is put aside.", path)
        with suppress(OSError):
            path.replace(path.with_name(path.name + _UNREADABLE))
    else:
        yield found


def _delete_if_left(draft: Path) -> None:
    """Delete a draft that nobody writes any more."""
    with suppress(OSError):
        if time.time() - draft.stat().st_mtime > DRAFT_SECONDS:
            draft.unlink(missing_ok=True)


def delete_answers_of(session_id: UUID) -> int:
    """Delete all files of a session, also what a killed process left; return how many."""
    of_session = folder() / str(session_id)
    if of_session.is_symlink():
        of_session.unlink(missing_ok=True)
    try:
        count = len(list(of_session.iterdir()))
    except OSError:
        return 0
    for left in reversed(range(_TRIES)):
        try:
            shutil.rmtree(of_session)
        except FileNotFoundError:
            break
        except OSError:  # a turn that was under way put one more there
            if not left:
                raise
    return count


@receiver(post_delete, sender=Session, dispatch_uid="answer files of session")
def _delete_with_session(*, instance: Session, **kwargs: Any) -> None:
    """Delete a session's files when its deletion is certain."""
    transaction.on_commit(partial(delete_answers_of, instance.pk), robust=True)
