"""How a message is written as JSON, field by field, and which columns that takes.

The serializers describe the fields for the schema. Pages of messages are written from here: making
a Python value of each column, and a text of each value again through a serializer's field, took
longer than everything else together. JSON columns are never read, only passed on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any
from uuid import UUID

from chatapp.api.json_bytes import as_stored, encoded
from chatapp.llm.answer_ends import AnswerEnd, end_of
from chatapp.models import POSITION_STEP, Message

MESSAGE_FIELDS = [
    "id",
    "branch",
    "sequence_id",
    "role",
    "kind",
    "content",
    "tool_calls",
    "tool_call_id",
    "tool_name",
    "reasoning",
    "summary",
    "metadata",
    "vendor",
    "tokens",
    "usage",
    "end",
    "finish_reason",
    "response_id",
    "pinned",
    "created_at",
]
"""All fields of a message, in the order in which they are shown."""
Writer = Callable[[Message], Any]
Column = Sequence[Any]
# Rows as the database gives them: {column: its value in each row}.
Stored = dict[str, Column]


def _sequence_id(position: int) -> str:
    """Return Message.sequence_id as text; whole numbers are divided faster than decimals."""
    whole, part = divmod(position, POSITION_STEP)
    return f"{whole}.{part:06d}"


def _time(value: datetime) -> str:
    """Return the time in UTC, whatever TIME_ZONE says; databases without zones store UTC."""
    known = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    return f"{known.isoformat()}Z"


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


def writers_of(fields: Sequence[str]) -> list[tuple[str, Writer]]:
    """Return each field's name with what writes its value as a JSON type."""
    return [(name, _WRITTEN.get(name) or attrgetter(name)) for name in fields]


def messages_json(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return messages with all fields, as JSON types."""
    return [{name: write(one) for name, write in _ALL} for one in messages]


def message_json(message: Message) -> dict[str, Any]:
    """Return a message with all fields, as JSON types."""
    return messages_json([message])[0]


_ALL = writers_of(MESSAGE_FIELDS)


# --- rows as the database gives them --------------------------------------------------------------


def columns_of(fields: Sequence[str]) -> list[str]:
    """Return the columns that the fields are made of."""
    columns = (column for name in fields for column in _MADE_OF.get(name, (name,)))
    return list(dict.fromkeys(columns))


def written(
    rows: Sequence[Sequence[Any]], columns: Sequence[str], fields: Sequence[str]
) -> list[dict[str, Any]]:
    """Return stored rows as the API shows messages, ready for `chatapp.api.json_bytes`.

    It goes column by column: most columns are shown as they are stored.
    """
    stored: Stored = dict(zip(columns, zip(*rows, strict=True), strict=False))
    if not stored:
        return []
    shown = [
        _WRITTEN_STORED[name](stored) if name in _WRITTEN_STORED else stored[name]
        for name in fields
    ]
    return [dict(zip(fields, values, strict=True)) for values in zip(*shown, strict=True)]


def _ids(column: Column) -> Column:
    """Return UUIDs as texts where the database has no type for them and stores their digits."""
    if isinstance(column[0], UUID):
        return column
    return [f"{one[:8]}-{one[8:12]}-{one[12:16]}-{one[16:20]}-{one[20:]}" for one in column]


def _same_id(column: Column) -> Column:
    """Return the same for a column that has one value in most rows."""
    known = dict(zip(found := list(dict.fromkeys(column)), _ids(found), strict=True))
    return [known[one] for one in column]


def _times(column: Column) -> Column:
    """Return times in UTC; those without a zone are."""
    return [one.astimezone(UTC) if one.tzinfo else one for one in column]


def _json(column: Column) -> Column:
    return [as_stored(text) for text in column] if any(column) else column


def _contents(stored: Stored) -> Column:
    """Return contents as clients sent them; few messages have parts."""
    contents, parts = stored["content"], stored["parts"]
    if not any(parts):
        return contents
    return [
        content if part is None else _with_parts(content, part, session_id)
        for content, part, session_id in zip(contents, parts, stored["session_id"], strict=True)
    ]


def _with_parts(content: str | None, parts: str, session_id: Any) -> Any:
    message = Message(content=content, parts=json.loads(parts))
    message.session_id = UUID(str(session_id))
    return encoded(message.content_with_files())


def _ends(stored: Stored) -> Column:
    rows = zip(stored["role"], stored["finish_reason"], stored["tool_calls"], strict=True)
    return [_end(role, reason, calls not in _NO_CALLS) for role, reason, calls in rows]


_NO_CALLS = (None, "[]", "null")
# How fields are written that are not shown as their column has them.
_WRITTEN_STORED: dict[str, Callable[[Stored], Column]] = {
    "id": lambda stored: _ids(stored["id"]),
    "branch": lambda stored: _same_id(stored["branch_id"]),
    "sequence_id": lambda stored: [_sequence_id(one) for one in stored["position"]],
    "content": _contents,
    "tool_calls": lambda stored: _json(stored["tool_calls"]),
    "metadata": lambda stored: _json(stored["metadata"]),
    "usage": lambda stored: _json(stored["usage"]),
    "vendor": lambda stored: _json(stored["vendor"]),
    "end": _ends,
    "created_at": lambda stored: _times(stored["created_at"]),
}
