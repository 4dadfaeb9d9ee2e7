"""Memories as rows: stored, changed, accepted, proposed and deleted.

Every writer goes through here, so that tokens are counted once, a line that there was is known, and
too many lines are noticed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from chatapp.database import database_now
from chatapp.llm.registry import UnknownModelError, get_model
from chatapp.llm.tokens import counter_for
from compaction.engine.memories import ProposedLine, fault_of_line, key_of_line, sent_line
from compaction.engine.types import MAX_BOT_CHARS
from compaction.errors import CompactionError
from compaction.events import event
from compaction.memories.runs import request_if_too_many
from compaction.models import Memory, MemoryKey

# Lines are an owner's, and go with sessions of any model: they are counted as for this alias.
COUNTED_FOR = "default"


class MemoryRefusedError(CompactionError):
    """A line or a bot's name cannot be stored; `field` is `text` or `bot`."""

    def __init__(self, sentence: str, *, field: str) -> None:
        super().__init__(sentence)
        self.field = field


class MemoryGoneError(CompactionError):
    """The line was deleted or rewritten meanwhile."""

    def __init__(self) -> None:
        super().__init__("The memory is gone: it was deleted, or rewritten with others.")


def tokens_of_line(text: str) -> int:
    """Return the tokens of a line as it is sent."""
    try:
        counter = get_model(COUNTED_FOR).counter
    except UnknownModelError:
        counter = counter_for(None)
    return counter.count(sent_line(text))


def add_memory(
    *, owner: Any, text: str, bot: str = "", created_by: Any = None, source: UUID | None = None
) -> Memory:
    """Store a line that somebody wrote; it counts at once. Raises MemoryRefusedError."""
    _refuse(text, bot)
    now = database_now()
    with transaction.atomic():
        remember_keys(owner.pk, bot, [text])
        row = Memory.objects.create(
            owner=owner,
            bot=bot,
            text=text,
            tokens=tokens_of_line(text),
            position=position_at(now),
            source_id=source,
            created_by=created_by,
            accepted_at=now,
            created_at=now,
        )
        request_if_too_many(owner.pk, bot)
    return row


def change_memory(row: Memory, *, text: str | None = None, bot: str | None = None) -> Memory:
    """Store another text of a line, or have it count for another bot; its place stays.

    Raises MemoryRefusedError, and MemoryGoneError where it was rewritten meanwhile.
    """
    text = row.text if text is None else text
    bot = row.bot if bot is None else bot
    _refuse(text, bot)
    changed = {"text": text, "bot": bot, "tokens": tokens_of_line(text)}
    with transaction.atomic():
        if not Memory.objects.filter(pk=row.pk).update(**changed):
            raise MemoryGoneError
        remember_keys(row.owner_id, bot, [text])
        request_if_too_many(row.owner_id, bot)
    return _read_again(row)


def delete_memory(row: Memory) -> None:
    """Take a line away for good; it is not proposed again. Raises MemoryGoneError."""
    if not Memory.objects.filter(pk=row.pk).delete()[0]:
        raise MemoryGoneError


def accept_memory(row: Memory) -> Memory:
    """Have a proposed line count from now on, as the newest; one that counts stays as it is.

    Raises MemoryGoneError.
    """
    now = database_now()
    with transaction.atomic():
        waiting = Memory.objects.filter(pk=row.pk, accepted_at__isnull=True)
        if waiting.update(accepted_at=now, position=position_at(now)):
            request_if_too_many(row.owner_id, row.bot)
        elif not Memory.objects.filter(pk=row.pk).exists():
            raise MemoryGoneError
    return _read_again(row)


def propose_memories(
    *, owner_id: Any, bot: str, lines: Sequence[ProposedLine], sources: Sequence[Any]
) -> int:
    """Store lines that wait for a yes; return how many.

    One that the owner has, or had, for this bot or for all is left out. `sources` are the ids of
    the messages that were read, in order: a line's `message` counts them from 1.
    """
    now, stored = database_now(), 0
    with transaction.atomic():
        for number, line in enumerate(lines):
            if not _is_new(owner_id, bot, line.text):
                continue
            place = line.message
            known = place is not None and place <= len(sources)
            Memory.objects.create(
                owner_id=owner_id,
                bot=bot,
                text=line.text,
                tokens=tokens_of_line(line.text),
                position=position_at(now) + number,
                origin=Memory.Origin.PROPOSED,
                source_id=sources[place - 1] if place is not None and known else None,
                created_at=now,
            )
            stored += 1
    if stored:
        event("memories_proposed", owner=owner_id, lines=stored)
    return stored


def _read_again(row: Memory) -> Memory:
    """Return a line as it is stored now. Raises MemoryGoneError."""
    try:
        row.refresh_from_db()
    except Memory.DoesNotExist as gone:
        raise MemoryGoneError from gone
    return row


def position_at(moment: datetime) -> int:
    """Return the place of a line that is stored at a moment: its microseconds."""
    return int(moment.timestamp()) * 1_000_000 + moment.microsecond


def remember_keys(owner_id: Any, bot: str, texts: Iterable[str]) -> None:
    """Note that there are these lines, so that they are never proposed."""
    rows = [MemoryKey(owner_id=owner_id, bot=bot, digest=_digest(text)) for text in texts]
    MemoryKey.objects.bulk_create(rows, ignore_conflicts=True)


def _is_new(owner_id: Any, bot: str, text: str) -> bool:
    """Note a line; return whether there was none like it. Of two workers one gets True."""
    digest = _digest(text)
    if MemoryKey.objects.filter(owner_id=owner_id, bot__in={"", bot}, digest=digest).exists():
        return False
    _, is_new = MemoryKey.objects.get_or_create(owner_id=owner_id, bot=bot, digest=digest)
    return is_new


def _digest(text: str) -> str:
    return hashlib.sha256(key_of_line(text).encode("utf-8", "surrogatepass")).hexdigest()


def _refuse(text: str, bot: str) -> None:
    """Raise MemoryRefusedError where a line or a bot's name cannot be stored."""
    if fault := fault_of_line(text):
        raise MemoryRefusedError(fault, field="text")
    if len(bot) > MAX_BOT_CHARS:
        sentence = f"A bot's name has at most {MAX_BOT_CHARS} characters."
        raise MemoryRefusedError(sentence, field="bot")
