"""Files on their way into sessions: few bytes stay in memory, more lie in a temporary file."""

from __future__ import annotations

import codecs
import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, Self

IN_MEMORY_BYTES = 1_000_000
"""So many bytes are kept and read as they are; what is more lies on the disk, and is read there."""

PIECE_BYTES = 1_000_000
CODING = ("utf-8", "surrogatepass")
"""How texts are written: one that did not come as bytes may hold lone surrogates."""

PIECE_CHARS = 64_000
"""Texts that are made one by one are written so many characters at a time."""

_MARK = codecs.BOM_UTF8


def gathered(texts: Iterable[str]) -> Iterator[str]:
    """Yield texts in pieces that are worth a write."""
    waiting: list[str] = []
    size = 0
    for text in texts:
        waiting.append(text)
        size += len(text)
        if size >= PIECE_CHARS:
            yield "".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield "".join(waiting)


class SpooledFile:
    """The bytes of a file, read from any place; a large one takes no memory."""

    def __init__(self, pieces: Iterable[bytes] = ()) -> None:
        self.size = 0
        self._few: list[bytes] = []
        self._file: IO[bytes] | None = None
        for piece in pieces:
            self._write(piece)
        if self._file is not None:
            self._file.flush()
        else:
            self._few = [b"".join(self._few)]

    @classmethod
    def of(cls, content: bytes | SpooledFile) -> SpooledFile:
        """Return the content as a file."""
        return content if isinstance(content, SpooledFile) else cls([content])

    @classmethod
    def read_from(cls, stream: IO[bytes]) -> Self:
        """Return what a stream holds, read piece by piece."""
        return cls(iter(lambda: stream.read(PIECE_BYTES), b""))

    @property
    def is_large(self) -> bool:
        """Whether it lies on the disk."""
        return self._file is not None

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes from one place up to another, or up to the end."""
        end = self.size if end is None else min(end, self.size)
        if self._file is None:
            return self._few[0][start:end]
        return _read_at(self._file.fileno(), start, end)

    def pieces(self, size: int = PIECE_BYTES) -> Iterator[bytes]:
        """Yield the bytes in order, so many at a time."""
        for start in range(0, self.size, size):
            yield self.read(start, start + size)

    def count(self, *marks: bytes) -> int:
        """Return how often single bytes stand in the file, all together."""
        return sum(piece.count(mark) for piece in self.pieces() for mark in marks)

    def count_before(self, mark: bytes, end: int) -> int:
        """Return how often a byte stands before a place."""
        pieces = (self.read(at, min(at + PIECE_BYTES, end)) for at in range(0, end, PIECE_BYTES))
        return sum(piece.count(mark) for piece in pieces)

    def lines(self) -> int:
        """Return how many lines there are."""
        return self.count(b"\n") + (not self.read(self.size - 1).endswith(b"\n"))

    def as_text(self) -> tuple[SpooledFile, int | None]:
        """Return the file as UTF-8 without a byte order mark, and the line of the first bad byte.

        Bytes that are not UTF-8 are replaced by U+FFFD; None where there are none.
        """
        has_mark = self.read(0, len(_MARK)) == _MARK
        line = self._first_bad_line()
        if not has_mark and line is None:
            return self, None
        return SpooledFile(self._replaced(len(_MARK) if has_mark else 0)), line

    def mapped(self) -> mmap.mmap | bytes:
        """Return all of it to search through; of a file on the disk pages come and go."""
        if self._file is None:
            return self._few[0]
        return mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)

    def _write(self, piece: bytes) -> None:
        self.size += len(piece)
        if self._file is None and self.size <= IN_MEMORY_BYTES:
            self._few.append(bytes(piece))
            return
        if self._file is None:
            # Closed, and thereby gone, with the object.
            self._file = tempfile.TemporaryFile()  # noqa: SIM115
            self._file.writelines(self._few)
            self._few = []
        self._file.write(piece)

    def _first_bad_line(self) -> int | None:
        decoder = codecs.getincrementaldecoder("utf-8")()
        lines = 1
        for piece in self.pieces():
            waiting = decoder.getstate()[0]
            try:
                decoder.decode(piece)
            except UnicodeDecodeError as error:
                return lines + (waiting + piece).count(b"\n", 0, error.start)
            lines += piece.count(b"\n")
        try:
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return lines
        return None

    def _replaced(self, start: int) -> Iterator[bytes]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for at in range(start, self.size, PIECE_BYTES):
            yield decoder.decode(self.read(at, at + PIECE_BYTES)).encode()
        yield decoder.decode(b"", final=True).encode()


def _read_at(descriptor: int, start: int, end: int) -> bytes:
    found = bytearray()
    while start + len(found) < end:
        piece = os.pread(descriptor, end - start - len(found), start + len(found))
        if not piece:
            break
        if len(piece) == end - start:
            return piece
        found += piece
    return bytes(found)
