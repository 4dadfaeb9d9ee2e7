"""Taking a rewriting of memories back: the lines that it took away return as they were."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db import transaction

from chatapp.database import database_now
from chatapp.models import Message
from compaction.errors import CompactionError
from compaction.events import event
from compaction.models import Memory, MemoryVersion


class WouldLoseLinesError(CompactionError):
    """Something newer builds on the rewriting, and would be lost with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoneRewritings:
    """What was taken back: the versions, the newest first, and how many lines are back."""

    versions: Sequence[MemoryVersion]
    lines: int


def stored_lines(rows: Iterable[Memory]) -> list[dict[str, Any]]:
    """Return lines as a version keeps them: everything that their rows hold."""
    return [
        {
            "id": str(row.pk),
            "text": row.text,
            "tokens": row.tokens,
            "position": row.position,
            "origin": str(row.origin),
            "source": str(row.source_id) if row.source_id else None,
            "created_by": row.created_by_id,
            "accepted_at": row.accepted_at.isoformat() if row.accepted_at else None,
            "created_at": row.created_at.isoformat(),
        }
        for row in rows
    ]


def texts_of_lines(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the texts of lines as a version keeps them."""
    return [str(line["text"]) for line in lines]


def undo_rewriting(version: MemoryVersion, *, cascade: bool = False) -> UndoneRewritings:
    """Give back the lines that a rewriting took away; lines that were added since stay.

    Raises WouldLoseLinesError where a line that it wrote was changed since, or rewritten again;
    with `cascade` the newer rewritings are taken back as well, and changed lines go.
    """
    with transaction.atomic():
        # First: a rewriting that reads these lines is over, with its version there, or finds them
        # changed.
        _locked(version)
        rows = MemoryVersion.objects.select_for_update()
        # Those of the owner and bot, so that two who undo wait for each other.
        own = list(rows.filter(owner_id=version.owner_id, bot=version.bot).order_by("-created_at"))
        found = next((one for one in own if one.pk == version.pk), None)
        if found is None or found.undone_at is not None:
            raise CompactionError("This rewriting was taken back already.")
        undone, lines = [], 0
        for newer in _built_on(found, own):
            if not cascade:
                raise WouldLoseLinesError(
                    "A newer rewriting builds on this one. Take that one back first, or both with "
                    "`cascade`."
                )
            lines += _give_back(newer, cascade=cascade)
            undone.append(newer)
        lines += _give_back(found, cascade=cascade)
        undone.append(found)
    event("memories_restored", owner=version.owner_id, versions=len(undone), lines=lines)
    return UndoneRewritings(versions=undone, lines=lines)


def _built_on(version: MemoryVersion, newest_first: Sequence[MemoryVersion]) -> list[MemoryVersion]:
    """Return the rewritings in force that built on this one, the newest first."""
    written, found = _ids(version.after), []
    for one in reversed(newest_first):
        is_newer = one.undone_at is None and one.created_at >= version.created_at
        if one.pk != version.pk and is_newer and written & _ids(one.before):
            written |= _ids(one.after)
            found.append(one)
    return found[::-1]


def _give_back(version: MemoryVersion, *, cascade: bool) -> int:
    """Put the old lines in the places of the new ones; return how many there are."""
    written = {UUID(line["id"]): line["text"] for line in version.after}
    rows = _locked(version)
    changed = [row for row in rows if row.text != written[row.pk] or row.bot != version.bot]
    if changed and not cascade:
        raise WouldLoseLinesError(
            f"Of the lines that this rewriting made, {len(changed):,} were changed since; they "
            "would be lost. Take it back with `cascade` all the same."
        )
    Memory.objects.filter(pk__in=written).delete()
    Memory.objects.bulk_create(_rows_of(version))
    version.undone_at = database_now()
    version.save(update_fields=["undone_at"])
    return len(version.before)


def _locked(version: MemoryVersion) -> list[Memory]:
    """Return those of the lines that a rewriting wrote that are there, locked."""
    rows = Memory.objects.select_for_update().filter(pk__in=_ids(version.after))
    return list(rows.order_by("pk"))


def _rows_of(version: MemoryVersion) -> list[Memory]:
    """Return the lines that were taken away as rows; what they named may be gone by now."""
    lines = version.before
    messages = _still_there(Message, (line["source"] for line in lines))
    people = _still_there(get_user_model(), (line["created_by"] for line in lines))
    return [
        Memory(
            id=UUID(line["id"]),
            owner_id=version.owner_id,
            bot=version.bot,
            text=line["text"],
            tokens=line["tokens"],
            position=line["position"],
            origin=line["origin"],
            source_id=messages.get(str(line["source"])),
            created_by_id=people.get(str(line["created_by"])),
            accepted_at=_moment(line["accepted_at"]),
            created_at=datetime.fromisoformat(line["created_at"]),
        )
        for line in lines
    ]


def _still_there(model: Any, keys: Iterable[Any]) -> dict[str, Any]:
    """Return those of the keys whose rows exist, by their texts."""
    named = {key for key in keys if key is not None}
    found = model._default_manager.filter(pk__in=named).values_list("pk", flat=True)
    return {str(key): key for key in (found if named else ())}


def _ids(lines: Iterable[Mapping[str, Any]]) -> set[str]:
    return {line["id"] for line in lines}


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
