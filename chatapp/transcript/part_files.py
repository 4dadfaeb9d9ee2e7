"""Files of parts beside their rows: written before a row, and gone when no row names them.

Both look again under the lock of the session's branches: who stores a row, whether its file is
still there, and who deletes a file, whether a row has come to name it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.db import Error, connection, transaction
from django.db.models.signals import post_delete
from django.dispatch import receiver
from django.utils import timezone

from chatapp.conf import chatapp_settings
from chatapp.incidents import Kind, note
from chatapp.llm.tokens import ModelTokenCounter, count_part
from chatapp.messages.apart import PartFile, Read, files_of, put_apart, whole_part
from chatapp.models import Incident, Message, MessageOriginal, Session
from chatapp.part_store import (
    PartReader,
    delete_files_of,
    keep_texts,
    names_in,
    part_storage,
    part_unreadable,
    sessions_with_files,
)

logger = logging.getLogger(__name__)
ORPHAN_AGE = timedelta(days=1)
"""How old a file is that no row names before it is deleted: its row may still be on its way."""

UNREADABLE_CODE = "part_file_missing"


# --- storing --------------------------------------------------------------------------------------


def keep_apart(row: Message, counter: ModelTokenCounter) -> None:
    """Move the long strings of a new row's parts into files; the row then names them.

    Where the storage fails, the parts stay in the row, and the log says why.
    """
    longest = chatapp_settings.part_storage_bytes
    texts: dict[str, str] = {}
    for holder in _holders_of(row) if longest > 0 else ():
        if holder.parts is not None:
            holder.parts, own = put_apart(
                holder.parts, longest=longest, tokens_of=partial(count_part, counter=counter)
            )
            texts |= own
    row.parts_bytes = bytes_of(row.parts)
    if texts:
        row.part_texts = texts
        _keep(row)


def bytes_of(parts: Any) -> int:
    """Return how many bytes of stored parts are in files."""
    return sum(file.size for file in files_of(parts))


def _holders_of(row: Message) -> list[Message | MessageOriginal]:
    """Return the row and, of one that was cut when it was made, the whole beside it."""
    is_cut = "original" in row._state.fields_cache
    return [row, row.original] if is_cut else [row]


def _keep(row: Message) -> None:
    try:
        keep_texts(row.session_id, row.part_texts)
    except Exception:  # storages raise what their libraries do
        logger.exception("The part store failed; parts of %s stay in the row.", row.session_id)
        read: Read = PartReader(row.session_id, row.part_texts).read
        for holder in _holders_of(row):
            if holder.parts is not None:
                holder.parts = [whole_part(part, read) for part in holder.parts]
        row.parts_bytes, row.part_texts = 0, {}


def look_again(rows: Sequence[Message]) -> None:
    """Have the files of rows that are stored in this transaction, which holds their lock.

    Somebody may have deleted them since they were written, because no row named them.
    """
    for row in rows:
        if row.part_texts:
            _keep(row)


@contextmanager
def files_only_if_stored(rows: Sequence[Message]) -> Iterator[None]:
    """Delete the files of rows whose storing fails; those that other rows name stay.

    In a transaction of the caller's they are left to `delete_orphans`.
    """
    try:
        yield
    except BaseException:
        digests = {digest for row in rows for digest in row.part_texts}
        if digests and not connection.in_atomic_block:
            try:
                _delete_unnamed(rows[0].session_id, digests)
            except Exception:
                logger.warning("Files of parts are left until the next day.", exc_info=True)
        raise


# --- deleting -------------------------------------------------------------------------------------


def files_named(session_id: UUID) -> list[tuple[UUID, PartFile]]:
    """Return the files that a session's rows name, each with its message's id."""
    rows = Message.objects.filter(session=session_id, parts_bytes__gt=0)
    whole = MessageOriginal.objects.filter(message__session=session_id, parts__isnull=False)
    found = [*rows.values_list("pk", "parts"), *whole.values_list("pk", "parts")]
    return [(pk, file) for pk, parts in found for file in files_of(parts)]


def sessions_naming_files(session_ids: Sequence[UUID]) -> set[UUID]:
    """Return those of the sessions whose rows may name files, by two statements."""
    ids = list(session_ids)
    rows = Message.objects.filter(session__in=ids, parts_bytes__gt=0)
    whole = MessageOriginal.objects.filter(message__session__in=ids, parts__isnull=False)
    return {
        *rows.values_list("session", flat=True).distinct(),
        *whole.values_list("message__session", flat=True).distinct(),
    }


def _delete_unnamed(
    session_id: UUID, digests: Collection[str] | None = None, *, before: datetime | None = None
) -> int:
    """Delete files of a session that no row names: some, or all that are older; return how many."""
    from chatapp.transcript.writing import lock_branches

    storage, deleted = part_storage(), 0
    with transaction.atomic():
        lock_branches(session_id)
        for name in _unnamed(session_id):
            if digests is not None and name.rpartition("/")[2] not in digests:
                continue
            if before is None or storage.get_modified_time(name) < before:
                storage.delete(name)
                deleted += 1
    return deleted


def _unnamed(session_id: UUID) -> list[str]:
    """Return the names of a session's files that no row names."""
    named = {file.digest for _, file in files_named(session_id)}
    return [name for name in names_in(session_id) if name.rpartition("/")[2] not in named]


def delete_orphans(*, now: datetime | None = None) -> int:
    """Delete the files that no row names and that are a day old; return how many.

    They are what processes left that died between a file and its row.
    """
    before = (now or timezone.now()) - ORPHAN_AGE
    deleted = 0
    for session_id in sessions_with_files():
        try:
            # Nearly every session has none: nobody has to wait for the look at it.
            if _unnamed(session_id):
                deleted += _delete_unnamed(session_id, before=before)
        except Exception:
            logger.exception("Files of parts of session %s were left alone.", session_id)
    return deleted


@receiver(post_delete, sender=Session, dispatch_uid="part files of session")
def _delete_with_session(*, instance: Session, **kwargs: Any) -> None:
    """Delete a session's files when its deletion is certain."""
    transaction.on_commit(partial(delete_files_of, instance.pk), robust=True)


# --- what is not there ----------------------------------------------------------------------------


@receiver(part_unreadable, dispatch_uid="incident of part file")
def _note_unreadable(*, session_id: UUID, why: str, **kwargs: Any) -> None:
    """Tell an operator once a session. Whoever reads goes on, whatever comes of it."""
    try:
        with transaction.atomic():
            known = Incident.objects.filter(session=session_id, code=UNREADABLE_CODE)
            if known.exists():
                return
            note(
                Session.objects.get(pk=session_id),
                Kind.WARNING,
                UNREADABLE_CODE,
                f"An image or a file of a message could not be read: {why}. A line of text says "
                "so in its place. manage.py doctor lists what is missing; a backup of the store "
                "has it.",
            )
    except (Error, Session.DoesNotExist):
        logger.warning("A part of session %s is left out: %s.", session_id, why, exc_info=True)
