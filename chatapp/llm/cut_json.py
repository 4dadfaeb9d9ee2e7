"""JSON that was cut: read as far as it came, and made shorter while it comes.

A model server may quote the whole request in front of what it has to say, or begin a text that
never ends. Of both what can be used is used, in memory of a bounded size.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

MOST_DEPTH: Final = 60
"""No error and no piece of an answer is nested deeper."""
LONGEST_STRING_BYTES: Final = 15_000
"""Of a string in the body of an error: what is longer quotes a conversation."""
END_BYTES: Final = 2_000
"""So many of a longer one's last bytes are kept, too: there may stand what is wrong with it."""
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+("?)|[{}\[\],:]', re.DOTALL)
# What a string cannot end with: half of an escape, or of a character that is two escapes. An even
# number of backslashes before it are characters of their own.
_HALF = r"\\(?:u[0-9a-fA-F]{0,3})?"
_HALF_ESCAPE = re.compile(
    rf"(?<!\\)((?:\\\\)*+)(?:\\u[dD][89abAB][0-9a-fA-F]{{2}}(?:{_HALF})?|{_HALF})\Z"
)
_HALF_ESCAPE_IN_BYTES = re.compile(_HALF_ESCAPE.pattern.encode())
_CLOSED_BY: Final = {"{": "}", "[": "]"}
_MARK = re.compile(rb'["\\]')


def read_cut(text: str) -> Any:
    """Return the value that a JSON text begins, as far as it came; None where it is none.

    A string that is cut ends where the text does; a number, a name or a word that is cut is left
    out.
    """
    begun = _Begun()
    for token in _TOKEN.finditer(text):
        if not begun.take(token):
            return None
        if begun.is_done:
            break
    try:
        return json.loads(begun.closed(text))
    except (ValueError, RecursionError):
        return None


class _Begun:
    """Where a JSON text can be ended so that it is whole: `end`, and what has to close it there."""

    def __init__(self) -> None:
        self.is_done = False
        self._open: list[str] = []
        self._end = 0
        self._closing = ""
        self._has_name = False
        self._ends_in_string = False

    def take(self, token: re.Match[str]) -> bool:
        """Go on over a token; return whether it can stand there."""
        mark = token[0]
        if mark in _CLOSED_BY:
            self._open.append(_CLOSED_BY[mark])
            self._has_name = False
            self._end_at(token.end())
            return len(self._open) <= MOST_DEPTH
        if not self._open:
            return False
        if mark in "}]":
            is_fitting = self._open.pop() == mark
            self._end_at(token.end())
            self.is_done = not self._open
            return is_fitting
        if mark == ",":
            self._end_at(token.start())
            self._has_name = False
        elif mark == ":":
            self._has_name = True
        elif self._open[-1] == "]" or self._has_name:
            self._ends_in_string = not token[1]
            self._end_at(token.end())
        return True

    def _end_at(self, place: int) -> None:
        self._end, self._closing = place, "".join(reversed(self._open))

    def closed(self, text: str) -> str:
        """Return the text up to its last whole value, with all that is open closed."""
        told = text[: self._end]
        if self._ends_in_string:
            told = _HALF_ESCAPE.sub(r"\1", told) + '"'
        return told + self._closing


def without_long_strings(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a JSON text whose long strings are cut, as it comes; what is no JSON stays as it is.

    A string is kept until it ends or is too long; of one that is the beginning and the end are.
    """
    cutter: _Cutter | None = None
    is_json: bool | None = None
    for chunk in chunks:
        if is_json is None and chunk.strip():
            is_json = chunk.lstrip()[:1] in (b"{", b"[")
            cutter = _Cutter() if is_json else None
        yield chunk if cutter is None else cutter.cut(chunk)
    if cutter is not None:
        yield cutter.rest()


class _Cutter:
    """Cuts the strings of a JSON text that comes in chunks."""

    def __init__(self) -> None:
        self._string: bytearray | None = None  # that has begun, with its quote
        self._is_over = False  # it is too long: its beginning is told, and its end is kept
        self._escaped = False

    def cut(self, chunk: bytes) -> bytes:
        """Return what can be told of a chunk."""
        told, place = bytearray(), 0
        while place < len(chunk):
            if self._string is None:
                quote = chunk.find(b'"', place)
                end = len(chunk) if quote < 0 else quote
                told += chunk[place:end]
                place = end
                if quote >= 0:
                    self._string, self._is_over, place = bytearray(b'"'), False, quote + 1
            else:
                place = self._go_on(chunk, place, told)
        return bytes(told)

    def _go_on(self, chunk: bytes, place: int, told: bytearray) -> int:
        """Read on in a string; return where it, or the chunk, ends."""
        string, begin = self._string, place
        assert string is not None  # noqa: S101
        ended = False
        if self._escaped:
            place, self._escaped = place + 1, False
        while place < len(chunk):
            mark = _MARK.search(chunk, place)
            if mark is None:
                place = len(chunk)
            elif mark[0] == b"\\":
                place = mark.end() + 1
                self._escaped = place > len(chunk)
            else:
                place, ended = mark.end(), True
                break
        place = min(place, len(chunk))
        string += chunk[begin:place]
        self._tell(string, told, ended=ended)
        if ended:
            self._string = None
        return place

    def _tell(self, string: bytearray, told: bytearray, *, ended: bool) -> None:
        """Tell what is known of a string; with its last byte, its quote, all that is left."""
        if not self._is_over and len(string) > LONGEST_STRING_BYTES + END_BYTES:
            kept = _HALF_ESCAPE_IN_BYTES.sub(rb"\1", bytes(string[:LONGEST_STRING_BYTES]))
            told += kept.decode("utf-8", "ignore").encode() + b" [cut]"
            self._is_over = True
        if self._is_over:
            del string[:-END_BYTES]
        if ended:
            # Behind a blank no letter and no escape is in two.
            told += b" " + string.partition(b" ")[2] if self._is_over else string
            if self._is_over and b" " not in string:
                told += b'"'

    def rest(self) -> bytes:
        """Return what is kept of a string that did not end."""
        return b"" if self._string is None or self._is_over else bytes(self._string)
