"""The store of parts: files of one session below its id, named by what they hold.

The storage is Django's `STORAGES["parts"]`; without it files lie below the data folder. A name is
made of the session that a row belongs to and of the SHA-256 of the content, so that a digest alone
gives nobody a file, and a session's files go with it. Nothing serves them.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from django.conf import settings
from django.core.files.base import ContentFile, File
from django.core.files.storage import FileSystemStorage, Storage, storages
from django.dispatch import Signal

from chatapp.messages.apart import (
    DAMAGED,
    MISSING,
    UNREADABLE,
    PartFile,
    PartFileError,
    with_files,
)
from chatapp.messages.wire import WireMessage

logger = logging.getLogger(__name__)
ALIAS = "parts"
FOLDER = "parts"
_TRIES = 5

part_unreadable = Signal()
"""Sent with `session_id` and `why` where a file is not there, or not what was stored."""


class PartStorage(FileSystemStorage):
    """Files below the data folder: there whole or not at all, for this system's user alone."""

    def __init__(self, location: str | Path | None = None, **options: Any) -> None:
        super().__init__(location or Path(settings.DATA_DIR) / FOLDER, **options)

    def url(self, name: str | None) -> str:
        """Raise ValueError: no address leads to a part."""
        raise ValueError("The files of parts have no address.")

    def get_available_name(self, name: str, max_length: int | None = None) -> str:
        """Return the name itself: a file of the same name holds the same."""
        return name

    def _save(self, name: str, content: File[Any]) -> str:
        """Write beside the place, to the disk, then move: nobody ever reads half a file."""
        path = Path(self.path(name))
        draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        Path(self.location).mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in reversed(range(_TRIES)):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                opened = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                break
            except FileNotFoundError:  # somebody removed the folder, which was empty
                if not left:
                    raise
        try:
            with os.fdopen(opened, "wb") as file:
                for chunk in content.chunks():
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        return name

    def delete(self, name: str) -> None:
        """Delete a file, and its folders where nothing else is in them."""
        super().delete(name)
        for folder in list(Path(name).parents)[:-1]:
            with suppress(OSError):
                Path(self.path(str(folder))).rmdir()


def part_storage() -> Storage:
    """Return the storage of the settings, or files below the data folder where they name none."""
    if ALIAS in storages.backends:
        return storages[ALIAS]
    return _below(Path(settings.DATA_DIR))


@lru_cache(maxsize=2)
def _below(data_dir: Path) -> Storage:
    return PartStorage(data_dir / FOLDER)


def name_of(session_id: UUID, digest: str) -> str:
    """Return the name of a session's file."""
    return f"{folder_of(session_id)}/{digest}"


def folder_of(session_id: UUID) -> str:
    """Return the folder of a session's files; folders are dealt out to 256 others."""
    return f"{str(session_id)[:2]}/{session_id}"


# --- writing --------------------------------------------------------------------------------------


def keep_texts(session_id: UUID, texts: Mapping[str, str]) -> None:
    """Have each text in the session's file of its digest; what is there stays.

    Raises whatever the storage does.
    """
    storage = part_storage()
    for digest, text in texts.items():
        _keep(storage, name_of(session_id, digest), text.encode())


def _keep(storage: Storage, name: str, data: bytes) -> None:
    for _ in range(_TRIES):
        if storage.exists(name):
            if storage.size(name) == len(data):
                return
            storage.delete(name)  # half of it, by a process that died
        if (saved := storage.save(name, ContentFile(data))) == name:
            return
        # Another process was faster, in a storage that gives such a file another name.
        storage.delete(saved)
    raise OSError(f"The storage {type(storage).__name__} keeps nothing under the name {name}.")


# --- reading --------------------------------------------------------------------------------------


class PartReader:
    """Reads the files of one session, each once; `known` are texts that need not be read."""

    def __init__(self, session_id: UUID, known: Mapping[str, str] | None = None) -> None:
        self._session_id = session_id
        self._texts = dict(known or {})

    def read(self, file: PartFile) -> str:
        """Return the text of a file; raise PartFileError where it is not what was stored."""
        if file.digest not in self._texts:
            try:
                self._texts[file.digest] = _read(self._session_id, file)
            except PartFileError as error:
                part_unreadable.send(PartReader, session_id=self._session_id, why=str(error))
                raise
        return self._texts[file.digest]

    def content(self, content: Any) -> Any:
        """Return a content with all of its parts whole."""
        return with_files(content, self.read)

    def messages(self, messages: Sequence[WireMessage]) -> tuple[WireMessage, ...]:
        """Return messages with all of their parts whole."""
        return tuple(self._message(message) for message in messages)

    def _message(self, message: WireMessage) -> WireMessage:
        content = message.get("content")
        whole = self.content(content)
        return message if whole is content else cast(WireMessage, {**message, "content": whole})


def _read(session_id: UUID, file: PartFile) -> str:
    name = name_of(session_id, file.digest)
    try:
        with part_storage().open(name) as opened:
            data: bytes = opened.read(file.size + 1)
    except FileNotFoundError as error:
        raise PartFileError(MISSING) from error
    except Exception as error:  # storages raise what their libraries do
        logger.warning("The file %s of the part store cannot be read: %s", name, error)
        raise PartFileError(UNREADABLE) from error
    if len(data) != file.size or hashlib.sha256(data).hexdigest() != file.digest:
        raise PartFileError(DAMAGED)
    return data.decode()


def why_not_there(session_id: UUID, file: PartFile, *, is_read: bool = False) -> str:
    """Return what is wrong with a file; empty where nothing is.

    Only its size is looked at unless it `is_read`.
    """
    try:
        if is_read:
            _read(session_id, file)
            return ""
        storage, name = part_storage(), name_of(session_id, file.digest)
        if not storage.exists(name):
            return MISSING
        return "" if storage.size(name) == file.size else DAMAGED
    except PartFileError as error:
        return str(error)
    except Exception as error:
        logger.warning("The part store cannot be asked: %s", error)
        return UNREADABLE


# --- what there is --------------------------------------------------------------------------------


def sessions_with_files() -> Iterator[UUID]:
    """Yield the ids that have folders in the store."""
    for shard in _listed("")[0]:
        for name in _listed(shard)[0]:
            with suppress(ValueError):  # not ours
                yield UUID(name)


def names_in(session_id: UUID) -> list[str]:
    """Return the names of a session's files, drafts of processes that died among them."""
    folder = folder_of(session_id)
    return [f"{folder}/{name}" for name in _listed(folder)[1]]


def _listed(folder: str) -> tuple[list[str], list[str]]:
    try:
        return part_storage().listdir(folder)
    except FileNotFoundError:
        return [], []


def delete_files_of(session_id: UUID) -> int:
    """Delete all files of a session, and return how many there were.

    Raises whatever the storage does.
    """
    names = names_in(session_id)
    for name in names:
        part_storage().delete(name)
    return len(names)
