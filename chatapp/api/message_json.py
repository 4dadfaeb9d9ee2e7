"""How a message is written as JSON, field by field, and which columns that takes.

The serializers describe the fields for the schema. Pages of messages are written from here: going
through a serializer field for each value took longer than everything else together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC
from operator import attrgetter
from typing import Any

from chatapp.models import Message
from chatapp.models.message import POSITION_STEP
from chatapp.wire import content_of

# A row's value for a field; the row may be a message or a named tuple of its columns.
Writer = Callable[[Message], Any]


def _sequence_id(message: Message) -> str:
    """Return Message.sequence_id as text; whole numbers are divided faster than decimals."""
    whole, part = divmod(message.position, POSITION_STEP)
    return f"{whole}.{part:06d}"


def _created_at(message: Message) -> str:
    """Return the time in UTC, whatever TIME_ZONE says."""
    return message.created_at.astimezone(UTC).isoformat().replace("+00:00", "Z")


# How a message's fields are written; those that are not named here are written as they are.
_WRITTEN: dict[str, Writer] = {
    "id": lambda message: str(message.id),
    "branch": lambda message: str(message.branch_id),
    "sequence_id": _sequence_id,
    "content": content_of,
    "created_at": _created_at,
}
# The columns that a field is made of, where they are not called like it.
_MADE_OF = {
    "branch": ("branch_id",),
    "sequence_id": ("position",),
    "content": ("content", "parts"),
}


def writers_of(fields: Sequence[str]) -> list[tuple[str, Writer]]:
    """Return each field's name with what writes its value as a JSON type."""
    return [(name, _WRITTEN.get(name) or attrgetter(name)) for name in fields]


def columns_of(fields: Sequence[str]) -> list[str]:
    """Return the columns that the fields are made of: a page reads no others."""
    return [column for name in fields for column in _MADE_OF.get(name, (name,))]
