"""Texts that come in pieces: joined once, when they are read.

A text that an object holds is copied whole by each `+=`: two million characters in pieces of five
took up to a minute of a processor.
"""

from __future__ import annotations

import json
import re
from typing import Final

LONGEST_SCALAR: Final = 5_000
"""A number or a word of JSON that is longer is none: Python reads at most 4 300 digits."""
MOST_PIECES: Final = 1_000
"""So many pieces become one: objects for a million letters take fifty times their size."""
_HIGH_HALF, _LOW_HALF = ("\ud800", "\udbff"), ("\udc00", "\udfff")
_IN_STRING = re.compile(r'["\\]')
_OUTSIDE = re.compile(r'["{}\[\]]')
_NO_BLANK = re.compile(r"[^ \t\n\r]")


class GrowingText:
    """A text to which pieces are added; `str()` of it is the whole.

    A character beyond the first 65 536 that was cut into its two halves is one again.
    """

    __slots__ = ("_joined", "_length", "_pieces")

    def __init__(self, text: str = "") -> None:
        self._pieces = [text] if text else []
        self._length = len(text)
        self._joined = 0  # so many pieces are of MOST_PIECES each

    def add(self, piece: str) -> None:
        """Take a piece in, behind what has come."""
        if not piece:
            return
        if self._pieces and ends_in_half(self._pieces[-1]):
            piece = joined_halves(self._pieces[-1][-1], piece)
            self._pieces[-1] = self._pieces[-1][:-1]
            self._length -= 1
        self._length += len(piece)
        self._pieces.append(piece)
        if len(self._pieces) - self._joined > MOST_PIECES:
            self._pieces[self._joined :] = ["".join(self._pieces[self._joined :])]
            self._joined += 1

    def __len__(self) -> int:
        """Return how many characters have come; nothing is joined for it."""
        return self._length

    def __str__(self) -> str:
        """Return the whole as it is now."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
            self._joined = 1
        return self._pieces[0] if self._pieces else ""

    def opens(self, whole: str) -> bool:
        """Whether a text begins with this one. A shorter one does not, and costs nothing."""
        return len(whole) >= self._length and whole.startswith(str(self))

    def rest_of(self, whole: str) -> str:
        """Return what a text says behind this one; all of it where it begins otherwise."""
        return whole[self._length :] if self.opens(whole) else whole


class GrowingJson(GrowingText):
    """A text of JSON to which pieces are added: it tells at each moment whether it is whole.

    Brackets and quotes of each piece are looked at once; the whole is parsed when its outermost
    bracket has closed, and never again.
    """

    __slots__ = ("_closed", "_depth", "_escaped", "_in_string", "_spoiled", "_unread", "_valid")

    def __init__(self) -> None:
        super().__init__()
        self._unread: list[str] = []
        self._depth = 0
        self._in_string = self._escaped = False
        self._closed = False  # its outermost bracket or quote: blanks alone may follow
        self._spoiled = False  # nothing that follows makes it JSON
        self._valid: bool | None = None

    def add(self, piece: str) -> None:
        """Take a piece in, behind what has come."""
        super().add(piece)
        if piece:
            self._unread.append(piece)
        if len(self._unread) > MOST_PIECES:
            self._read_all()

    def _read_all(self) -> None:
        for piece in self._unread:
            self._read(piece)
        self._unread.clear()

    @property
    def is_in_string(self) -> bool:
        """Whether what comes next stands inside of a string."""
        self._read_all()
        return self._in_string

    @property
    def is_whole(self) -> bool:
        """Whether it is one whole JSON value, as is_json says of its text."""
        self._read_all()
        if self._spoiled or self._depth or self._in_string:
            return False
        if not self._closed:
            return len(self) <= LONGEST_SCALAR and is_json(str(self))
        if self._valid is None:
            self._valid = is_json(str(self))
        return self._valid

    def _read(self, piece: str) -> None:
        place = 0
        if self._escaped:
            place, self._escaped = 1, False
        while place < len(piece) and not self._spoiled:
            if self._in_string:
                place = self._read_string(piece, place)
            elif self._closed:
                self._spoiled = _NO_BLANK.search(piece, place) is not None
                return
            else:
                found = _OUTSIDE.search(piece, place)
                if found is None:
                    return
                place = found.end()
                self._read_mark(found[0])

    def _read_string(self, piece: str, place: int) -> int:
        found = _IN_STRING.search(piece, place)
        if found is None:
            return len(piece)
        if found[0] == "\\":
            self._escaped = found.end() == len(piece)
            return found.end() + 1
        self._in_string = False
        self._closed = self._depth == 0
        return found.end()

    def _read_mark(self, mark: str) -> None:
        if mark == '"':
            self._in_string = True
            return
        self._depth += 1 if mark in "{[" else -1
        self._closed = self._depth == 0
        self._spoiled = self._depth < 0


def is_json(text: str) -> bool:
    """Whether a text is one whole JSON value: half of the arguments of a call is none."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def ends_in_half(text: str) -> bool:
    """Whether a text ends with the first half of a character whose second half may follow."""
    return bool(text) and _HIGH_HALF[0] <= text[-1] <= _HIGH_HALF[1]


def joined_halves(before: str, behind: str) -> str:
    """Return two texts as one; halves of one character that meet there become it."""
    if not (ends_in_half(before) and behind and _LOW_HALF[0] <= behind[0] <= _LOW_HALF[1]):
        return before + behind
    both = (before[-1] + behind[0]).encode("utf-16", "surrogatepass").decode("utf-16")
    return f"{before[:-1]}{both}{behind[1:]}"
