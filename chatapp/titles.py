"""What lists tell of a session: a title, its last activity, how much its next request takes.

All of it is stored when messages are written, by the transcript: a list of a hundred thousand
sessions reads no message. A session without a title gets the first words of its conversation.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db import models
from django.db.models import Case, F, Value, When
from django.db.models.functions import Greatest
from django.utils import timezone

from chatapp.ids import new_id

MAX_TITLE_CHARS = 200
OPENING_CHARS = 80
# Words are looked for in the beginning of a question alone, however long it is.
LOOKED_AT_CHARS = 1000


class ListedSession(models.Model):
    """The columns of a session that lists show and sort by.

    `request_tokens` is the size of the next request by our own count, in tokens of the model's
    counter. Each write adds to it, a compaction takes away, and each answer sets it to what its
    request really had, so that no error stays.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    title = models.CharField(max_length=MAX_TITLE_CHARS, blank=True)
    request_tokens = models.BigIntegerField(default=0, db_default=0, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        abstract = True


def first_words(text: str) -> str:
    """Return the beginning of a text as a title: one line of whole words, marked where it is cut.

    A word that fills the line by itself is cut.
    """
    words = " ".join(text[:LOOKED_AT_CHARS].split())
    if len(words) <= OPENING_CHARS and len(text) <= LOOKED_AT_CHARS:
        return words
    if len(words) <= OPENING_CHARS:
        return f"{words}…" if words else ""
    cut, _, _ = words[:OPENING_CHARS].rpartition(" ")
    return f"{cut or words[: OPENING_CHARS - 1]}…"


def opening_of(messages: Iterable[Any]) -> str:
    """Return the first words of the first question among rows; empty where it has no text."""
    for message in messages:
        if message.is_question and (words := first_words(message.content or "")):
            return words
    return ""


def told_by(
    messages: Iterable[Any], *, frame_tokens: int, request_tokens: int | None = None
) -> dict[str, Any]:
    """Return what new messages at the end of the active branch tell of it (told_columns).

    `frame_tokens` is what each of them takes besides its words. `request_tokens` is the size of the
    request that they answer, where it is known; without it the messages are added to what is
    stored.
    """
    rows = list(messages)
    return {
        "now": timezone.now(),
        "added": sum(row.tokens + frame_tokens for row in rows if row.is_spoken),
        "asked": request_tokens,
        "opening": opening_of(rows) or None,
    }


def told_columns(
    *, now: datetime, added: int, asked: int | None, opening: str | None
) -> dict[str, Any]:
    """Return what told_by tells as the columns of an UPDATE. A title that is there stays."""
    known = F("request_tokens") if asked is None else Value(asked)
    columns: dict[str, Any] = {"updated_at": now, "request_tokens": known + added}
    if opening is not None:
        untitled = When(title="", then=Value(opening))
        columns["title"] = Case(untitled, default=F("title"))
    return columns


def less_by(tokens: int) -> Any:
    """Return the size of a request that became smaller by so many tokens; never below 0."""
    return Greatest(F("request_tokens") - tokens, Value(0))
