"""Files that stay on the disk while they are read: one JSON value, or a value a line."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any

from chatapp.formats.decoding import DECODER, MAX_DEPTH, decode_whole, read_values
from chatapp.formats.file_records import LineRecord, Record, ShortLines, StoredRecord
from chatapp.formats.nesting import flattened_pieces
from chatapp.formats.records import Problem
from chatapp.formats.stored_json import (
    DROPPED_EACH,
    STRETCH_BYTES,
    DeeperError,
    NotStoredError,
    StoredText,
    drop_pages,
    stored,
)
from chatapp.spooled_files import CODING, SpooledFile

_BLANK_BYTES = re.compile(rb"[ \t\r\n]*")
_NO_CONTAINER = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[-+.\w]++', re.DOTALL)


class LargeFile:
    """Reads a file that stays on the disk."""

    def __init__(self, file: SpooledFile) -> None:
        self._file = file
        self._buffer = file.mapped()
        self._text = StoredText(file, DECODER.decode)
        self._last: deque[ShortLines] = deque()

    def skip_blank(self, at: int) -> int:
        """Return the place behind what is no value, from a place on."""
        found = _BLANK_BYTES.match(self._buffer, at)
        return found.end() if found else at

    def value(self, start: int, end: int) -> tuple[Any, int] | None:
        """Return the value that begins there and where it ends; None where it is not sound."""
        if self._buffer[start : start + 1] not in (b"{", b"["):
            return self._single(start, end)
        try:
            return stored(self._text, self._buffer, start, end, deepest=MAX_DEPTH)
        except DeeperError:
            return self._flatter(start)
        except NotStoredError:
            return None

    def _single(self, start: int, end: int) -> tuple[Any, int] | None:
        """Return the text, the number or the word that begins there, and where it ends."""
        found = _NO_CONTAINER.match(self._buffer, start, end)
        try:
            return (self._text.value(start, found.end()), found.end()) if found else None
        except ValueError:
            return None

    def _flatter(self, start: int) -> tuple[Any, int] | None:
        found = flattened_pieces(self._buffer, start)
        if found is None:
            return None
        pieces, end = found
        flat = SpooledFile(pieces)
        text = StoredText(flat, DECODER.decode)
        try:
            return stored(text, flat.mapped(), 0, flat.size, deepest=MAX_DEPTH)[0], end
        except NotStoredError:
            return None

    def records(self, problems: list[Problem]) -> Iterator[Record]:
        """Yield what stands on the lines of the file, one value or several on each."""
        # Where the short lines begin that are not read yet, and the number of the first.
        start, first = 0, 1
        begins, dropped = 0, 0
        for number in count(1):
            ends = self._buffer.find(b"\n", begins)
            ends = self._file.size if ends < 0 else ends
            behind = min(ends + 1, self._file.size)
            if ends - begins >= STRETCH_BYTES:
                yield from self._short_lines(start, begins, first, problems)
                yield from self._records_of(begins, ends, number, problems)
                start, first = behind, number + 1
            elif behind - start >= STRETCH_BYTES or behind == self._file.size:
                yield from self._short_lines(start, behind, first, problems)
                start, first = behind, number + 1
            if behind == self._file.size:
                return
            begins = behind
            if begins - dropped > DROPPED_EACH:
                dropped = drop_pages(self._buffer, begins)

    def _short_lines(
        self, start: int, end: int, number: int, problems: list[Problem]
    ) -> Iterator[Record]:
        lines = ShortLines(lambda: self._file.read(start, end).decode(*CODING), number, self._last)
        for index, line in enumerate(lines.read(problems)):
            yield LineRecord(line, lines, index)

    def _records_of(
        self, start: int, end: int, number: int, problems: list[Problem]
    ) -> Iterator[Record]:
        at = start
        if end - start >= STRETCH_BYTES:
            while (at := self.skip_blank(at)) < end and (found := self.value(at, end)):
                value, at = found
                yield Record(line=number, value=value)
            if at >= end:
                return
        line = self._file.read(start, end).decode(*CODING)
        position = len(self._file.read(start, at).decode(*CODING))
        for value, until in read_values(line, number, problems, start=position):
            begins, at = at, start + len(line[:until].encode(*CODING))
            yield self._stored_record(number, value, begins, at)

    def _stored_record(self, number: int, value: Any, start: int, end: int) -> Record:
        if not isinstance(value, (list, dict)):
            return Record(line=number, value=value)
        text = self._text
        return StoredRecord(number, partial(text.value, start, end, decode=decode_whole))
