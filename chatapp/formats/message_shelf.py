"""What messages say, in a temporary file until it is stored: their places stay in memory.

A reader of a large file has each message kept (`Document.keep`) as soon as it is made. What it gets
back has the same fields; those that are long are read again when somebody looks at them.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from chatapp.formats.records import ImportedMessage

Keep = Callable[[ImportedMessage], ImportedMessage]

HEAVY = ("wire", "reasoning", "usage", "finish_reason", "summary", "metadata")
LIGHT = frozenset({"key", "parent", "kind", "created_at", "pinned"})


def as_it_is(message: ImportedMessage) -> ImportedMessage:
    """Return the message: one of a small file stays in memory."""
    return message


class Shelf:
    """A temporary file of what messages say; it goes with the last of its messages."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._end = 0
        self._flushed = 0
        self._last: tuple[int, dict[str, Any]] = (-1, {})

    def keep(self, message: ImportedMessage) -> ImportedMessage:
        """Return the message with what it says in the file."""
        # What lies in the file that is read becomes plain by being written.
        data = pickle.dumps({name: getattr(message, name) for name in HEAVY}, protocol=5)
        place, self._end = self._end, self._end + len(data)
        self._file.write(data)
        return ShelvedMessage(self, place, len(data), message)

    def said(self, place: int, size: int) -> dict[str, Any]:
        """Return what was kept at a place."""
        if self._last[0] != place:
            if place + size > self._flushed:
                self._file.flush()
                self._flushed = self._end
            data = os.pread(self._file.fileno(), size, place)
            self._last = (place, pickle.loads(data))  # noqa: S301 - nobody else writes the file
        return self._last[1]


class ShelvedMessage(ImportedMessage):
    """A message of which only the place is in memory."""

    __slots__ = ("_place", "_shelf", "_size")
    _place: int
    _shelf: Shelf
    _size: int

    def __init__(self, shelf: Shelf, place: int, size: int, message: ImportedMessage) -> None:
        for name, value in (("_shelf", shelf), ("_place", place), ("_size", size)):
            object.__setattr__(self, name, value)
        for name in LIGHT:
            object.__setattr__(self, name, getattr(message, name))

    def _said(self, name: str) -> Any:
        return self._shelf.said(self._place, self._size)[name]

    @property
    def size(self) -> int:
        """How many bytes of it lie in the file."""
        return self._size

    wire = property(lambda self: {**self._said("wire")})
    reasoning = property(lambda self: self._said("reasoning"))
    usage = property(lambda self: self._said("usage"))
    finish_reason = property(lambda self: self._said("finish_reason"))
    summary = property(lambda self: self._said("summary"))
    metadata = property(lambda self: {**self._said("metadata")})

    def whole(self) -> ImportedMessage:
        """Return the message with all that it says in memory."""
        return ImportedMessage(**{name: getattr(self, name) for name in (*LIGHT, *HEAVY)})

    def changed(self, **fields: Any) -> ImportedMessage:
        """Return the message with other fields; what it says stays in the file, if it can."""
        if fields.keys() - LIGHT:
            return replace(self.whole(), **fields)
        other = ShelvedMessage(self._shelf, self._place, self._size, self)
        for name, value in fields.items():
            object.__setattr__(other, name, value)
        return other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ImportedMessage) and self.whole() == other.whole()

    __hash__ = None  # type: ignore[assignment]
