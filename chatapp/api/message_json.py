"""How a message is written as JSON, field by field, and which columns that takes.

The serializers describe the fields for the schema. Pages of messages are written from here: making
a Python value of each column, and a text of each value again through a serializer's field, took
longer than everything else together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from operator import attrgetter, itemgetter
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.db.models.query import BaseIterable

from chatapp.llm.answer_ends import AnswerEnd, end_of
from chatapp.models import POSITION_STEP, Message

Writer = Callable[[Message], Any]
# A row as the database gives it: {column: value}.
Stored = dict[str, Any]


def _sequence_id(position: int) -> str:
    """Return Message.sequence_id as text; whole numbers are divided faster than decimals."""
    whole, part = divmod(position, POSITION_STEP)
    return f"{whole}.{part:06d}"


def _time(value: datetime) -> str:
    """Return the time in UTC, whatever TIME_ZONE says; databases without zones store UTC."""
    known = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    return f"{known.isoformat()}Z"


def _uuid(value: UUID | str) -> str:
    """Return a UUID's text; databases without the type store its digits."""
    if isinstance(value, UUID):
        return str(value)
    return f"{value[:8]}-{value[8:12]}-{value[12:16]}-{value[16:20]}-{value[20:]}"


def _json(text: str | None) -> Any:
    """Return what is stored in a JSON column; most hold nothing."""
    if text is None:
        return None
    return json.loads(text) if text != "{}" else {}


def _content(row: Stored) -> Any:
    """Return the content as the client sent it; few messages have parts."""
    if row["parts"] is None:
        return row["content"]
    message = Message(content=row["content"], parts=_json(row["parts"]))
    message.session_id = UUID(str(row["session_id"]))
    return message.content_with_files()


def _end(role: str, finish_reason: str, calls: Any) -> str | None:
    """Return how an answer ended, in one word for all servers; None for what is no answer."""
    if role != Message.Role.ASSISTANT or not finish_reason:
        return None
    end = end_of(finish_reason)
    # Some servers say of a call that they stopped.
    return (AnswerEnd.TOOL_CALLS if calls and end is AnswerEnd.WHOLE else end).value


# How a message's fields are written; those that are not named here are written as they are.
_WRITTEN: dict[str, Writer] = {
    "id": lambda message: str(message.id),
    "branch": lambda message: str(message.branch_id),
    "sequence_id": lambda message: _sequence_id(message.position),
    "content": Message.content_with_files,
    "end": lambda message: _end(message.role, message.finish_reason, message.tool_calls),
    "created_at": lambda message: _time(message.created_at),
}
# The columns that a field is made of, where they are not called like it.
_MADE_OF = {
    "branch": ("branch_id",),
    "sequence_id": ("position",),
    "content": ("content", "parts", "session_id"),
    "end": ("role", "finish_reason", "tool_calls"),
}
# The same for rows as the database gives them.
_WRITTEN_STORED: dict[str, Callable[[Stored], Any]] = {
    "id": lambda row: _uuid(row["id"]),
    "branch": lambda row: _uuid(row["branch_id"]),
    "sequence_id": lambda row: _sequence_id(row["position"]),
    "content": _content,
    "tool_calls": lambda row: _json(row["tool_calls"]),
    "metadata": lambda row: _json(row["metadata"]),
    "usage": lambda row: _json(row["usage"]),
    "vendor": lambda row: _json(row["vendor"]),
    "end": lambda row: _end(row["role"], row["finish_reason"], _json(row["tool_calls"])),
    "created_at": lambda row: _time(row["created_at"]),
}


def writers_of(fields: Sequence[str]) -> list[tuple[str, Writer]]:
    """Return each field's name with what writes its value as a JSON type."""
    return [(name, _WRITTEN.get(name) or attrgetter(name)) for name in fields]


def stored_rows(messages: QuerySet[Message], fields: Sequence[str]) -> QuerySet[Message, Stored]:
    """Return the rows with the columns that the fields are made of, as the database gives them."""
    columns = (column for name in fields for column in _MADE_OF.get(name, (name,)))
    rows: QuerySet[Message, Stored] = messages.values(*dict.fromkeys(columns))
    rows._iterable_class = _StoredRows
    return rows


class _StoredRows(BaseIterable):  # type: ignore[type-arg]  # generic in the stubs only
    """The rows of `values()` without a Python value made of each column."""

    def __iter__(self) -> Iterator[Stored]:
        compiler = self.queryset.query.get_compiler(self.queryset.db)
        columns = self.queryset.query.values_select
        for chunk in compiler.execute_sql(chunked_fetch=self.chunked_fetch):
            for row in chunk:
                yield dict(zip(columns, row, strict=True))


def written(rows: Sequence[Stored], fields: Sequence[str]) -> list[dict[str, Any]]:
    """Return stored rows as the API shows messages."""
    writers = [(name, _WRITTEN_STORED.get(name) or itemgetter(name)) for name in fields]
    return [{name: write(row) for name, write in writers} for row in rows]
