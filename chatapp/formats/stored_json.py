"""JSON that stays in its file: lists and objects that decode what they are asked for.

A file of 200 MB is scanned once to find where its values begin and end. A large value becomes a
list or an object of a kind of its own, which decodes its items anew whenever somebody looks at
them; small values are decoded together with their neighbours. Only places, keys and a few pieces
are kept.
"""

from __future__ import annotations

import mmap
import re
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

from chatapp.spooled_files import CODING, SpooledFile

STRETCH_BYTES = 65_536
"""What is decoded at once: small items of a list or an object, one behind the other."""

KEPT_STRETCHES = 8
_MOST_KEPT_BYTES = 4 * STRETCH_BYTES
DROPPED_EACH = 1 << 23
"""After so many bytes the pages of a file that was searched are given back."""

# Possessive: of a text with a million escapes nothing is kept to go back to.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{},]', re.DOTALL)
_BEFORE_VALUE = re.compile(
    rb'[ \t\r\n]*("[^"\\]*+(?:\\.[^"\\]*+)*+")[ \t\r\n]*:[ \t\r\n]*', re.DOTALL
)
_BLANK = b" \t\r\n"
_QUOTE, _COMMA = b'",'
_OPENING = b"{["
_CLOSING = {"{": ord("}"), "[": ord("]")}

Decode = Callable[[str], Any]
"""Decodes a text that is one JSON value; raises ValueError."""

Buffer = mmap.mmap | bytes
Found = tuple[Any, int]
"""A value, and where it ends."""


class NotStoredError(ValueError):
    """No large list or object that is sound JSON begins here."""


class DeeperError(NotStoredError):
    """It is nested deeper than it may be."""


@dataclass(frozen=True, slots=True)
class _ItemStretch:
    """Small items that stand behind each other, and how many they are."""

    start: int
    end: int
    count: int


class StoredText:
    """The text that values lie in; the stretches that were decoded last are kept."""

    def __init__(self, file: SpooledFile, decode: Decode) -> None:
        self.file = file
        self.decode = decode
        self._kept: OrderedDict[tuple[int, str], Any] = OrderedDict()

    def value(self, start: int, end: int, around: str = "", *, decode: Decode | None = None) -> Any:
        """Return what stands there, decoded; `around` are brackets to be put around it."""
        place = (start, around)
        if place in self._kept:
            self._kept.move_to_end(place)
            return self._kept[place]
        text = self.file.read(start, end).decode(*CODING)
        value = (decode or self.decode)(f"{around[:1]}{text}{around[1:]}")
        if end - start <= _MOST_KEPT_BYTES:
            self._kept[place] = value
            if len(self._kept) > KEPT_STRETCHES:
                self._kept.popitem(last=False)
        return value


class LazyList(list[Any]):
    """A list that makes its items when they are asked for; subclasses say which and how many."""

    def item(self, index: int) -> Any:
        """Return the item with a number from 0."""
        raise IndexError(index)

    def plain(self) -> list[Any]:
        """Return a list with all of its items."""
        return [plain(item) for item in self]

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        if isinstance(index, slice):
            return [self.item(number) for number in range(*index.indices(len(self)))]
        number = index.__index__()
        number += len(self) if number < 0 else 0
        if not 0 <= number < len(self):
            raise IndexError("list index out of range")
        return self.item(number)

    def __iter__(self) -> Iterator[Any]:
        return (self.item(number) for number in range(len(self)))

    def __reversed__(self) -> Iterator[Any]:
        return (self.item(number) for number in reversed(range(len(self))))

    def __contains__(self, wanted: object) -> bool:
        return any(item == wanted for item in self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list) or len(self) != len(other):
            return False
        return all(one == another for one, another in zip(self, other, strict=True))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __add__(self, other: Any) -> Any:
        return [*self, *other]

    def __radd__(self, other: Any) -> Any:
        return [*other, *self]

    def copy(self) -> list[Any]:
        """Return a list of its own; what is large in it stays where it is."""
        return [*self]

    def count(self, value: Any) -> int:
        """Return how many items equal a value."""
        return self.copy().count(value)

    def index(self, value: Any, *between: SupportsIndex) -> int:
        """Return the number of the first item that equals a value."""
        return self.copy().index(value, *between)

    def __mul__(self, times: SupportsIndex) -> list[Any]:
        return self.copy() * times

    def __reduce__(self) -> Any:
        return list, (self.plain(),)

    def __repr__(self) -> str:
        return repr(self.plain())


class PickedList(LazyList):
    """Some items of another list, or what is made of them."""

    def __init__(self, make: Callable[[int], Any], numbers: Sequence[int]) -> None:
        super().__init__()
        self._make, self._numbers = make, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def item(self, index: int) -> Any:
        """Return the item with a number from 0."""
        return self._make(self._numbers[index])


class StoredList(LazyList):
    """A large list of a file."""

    def __init__(self, text: StoredText, parts: Sequence[Any]) -> None:
        super().__init__()
        self._text, self._parts, self._firsts = text, parts, list[int]()
        self._length = 0
        for part in parts:
            self._firsts.append(self._length)
            self._length += part.count if isinstance(part, _ItemStretch) else 1

    def __len__(self) -> int:
        return self._length

    def item(self, index: int) -> Any:
        """Return the item with a number from 0."""
        number = bisect_right(self._firsts, index) - 1
        part = self._parts[number]
        if not isinstance(part, _ItemStretch):
            return part
        return self._text.value(part.start, part.end, "[]")[index - self._firsts[number]]


class StoredObject(dict[str, Any]):
    """A large object of a file: its keys, and of each the part that holds its value."""

    def __init__(self, text: StoredText, parts: Mapping[str, Any]) -> None:
        super().__init__(parts)
        self._text = text

    def plain(self) -> dict[str, Any]:
        """Return an object with all of its values."""
        return {key: plain(value) for key, value in self.items()}

    def __getitem__(self, key: str) -> Any:
        part = super().__getitem__(key)
        if not isinstance(part, _ItemStretch):
            return part
        return self._text.value(part.start, part.end, "{}")[key]

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or what is to take its place."""
        try:
            return self[key]
        except KeyError:
            return default

    def __iter__(self) -> Iterator[str]:
        # Said here, so that nobody copies it past __getitem__: {**stored} and `|` look for it.
        return super().__iter__()

    def values(self) -> Any:
        """Return all values, one at a time."""
        return (self[key] for key in self)

    def items(self) -> Any:
        """Return all keys with their values, one at a time."""
        return ((key, self[key]) for key in self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dict) or self.keys() != other.keys():
            return False
        return all(value == other[key] for key, value in self.items())

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __or__(self, other: Any) -> Any:
        return {**self, **other}

    def __ror__(self, other: Any) -> Any:
        return {**other, **self}

    def copy(self) -> dict[str, Any]:
        """Return an object of its own; what is large in it stays where it is."""
        return {**self}

    def __reduce__(self) -> Any:
        return dict, (self.plain(),)

    def __repr__(self) -> str:
        return repr(self.plain())


def _refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise TypeError("What lies in a file cannot be changed. Take a copy of it.")


# They would change what nobody looks at, or hand out a place instead of a value.
for _kind, _names in (
    (LazyList, "append clear extend insert pop remove reverse sort __iadd__ __imul__"),
    (StoredObject, "clear pop popitem setdefault update __ior__"),
):
    for _name in [*_names.split(), "__setitem__", "__delitem__"]:
        setattr(_kind, _name, _refuse)


def plain(value: Any) -> Any:
    """Return a value of which nothing is left in a file."""
    if isinstance(value, (StoredObject, LazyList)):
        return value.plain()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def drop_pages(buffer: Buffer, at: int) -> int:
    """Give back the pages of a file that was searched up to a place; return the place."""
    if isinstance(buffer, mmap.mmap):
        buffer.madvise(mmap.MADV_DONTNEED, 0, at - at % mmap.PAGESIZE)
    return at


# --- where values begin and end -------------------------------------------------------------------


class _OpenValue:
    """A list or an object that is not over yet; stretches are noted as they become long enough."""

    __slots__ = ("has_commas", "item_start", "keys", "parts", "sign", "start", "stretch_start")

    def __init__(self, sign: str, start: int) -> None:
        self.sign, self.start = sign, start
        self.stretch_start = self.item_start = start + 1
        self.has_commas = False
        # Most are small and need neither.
        self.parts: list[Any] | None = None
        self.keys: dict[str, Any] | None = None

    @property
    def is_behind_large(self) -> bool:
        """Whether the item that is not over yet was a large one."""
        return self.item_start < self.stretch_start

    def add(self, part: Any, keys: Iterable[str]) -> None:
        """Take a part; of an object the keys of its values. Of a key that comes twice, the last."""
        if self.sign == "[":
            self.parts = self.parts or []
            self.parts.append(part)
        else:
            self.keys = self.keys or {}
            self.keys |= dict.fromkeys(keys, part)

    def value(self, text: StoredText) -> Any:
        """Return the whole."""
        if self.sign == "[":
            return StoredList(text, self.parts or ())
        return StoredObject(text, self.keys or {})


def stored(text: StoredText, buffer: Buffer, start: int, end: int, *, deepest: int) -> Found:
    """Return the list or object that begins at `start`, and where it ends; a small one decoded.

    Linear, and in memory for what is open: its depth. Raises NotStoredError where it is no sound
    JSON, DeeperError where it has more than `deepest` levels.
    """
    reading = _Reading(text, buffer, deepest)
    return reading.read(start, end)


class _Reading:
    """One way through a text, bracket by bracket."""

    def __init__(self, text: StoredText, buffer: Buffer, deepest: int) -> None:
        self._text = text
        self._buffer = buffer
        self._deepest = deepest
        self._open: list[_OpenValue] = []

    def read(self, start: int, end: int) -> Found:
        """Return the value that begins at `start`, and where it ends."""
        buffer, opened = self._buffer, self._open
        dropped = start
        for token in _TOKEN.finditer(buffer, start, end):
            at = token.start()
            sign = buffer[at]
            if sign == _QUOTE:
                if at - dropped > DROPPED_EACH:
                    dropped = drop_pages(buffer, at)
            elif sign == _COMMA:
                self._separate(at)
            elif sign in _OPENING:
                if len(opened) == self._deepest:
                    raise DeeperError
                opened.append(_OpenValue(chr(sign), at))
            elif self._end(sign, at):
                return self._whole(at), at + 1
        raise NotStoredError("it does not end")

    def _separate(self, at: int) -> None:
        if not self._open:
            raise NotStoredError("a comma outside")
        one = self._open[-1]
        one.has_commas = True
        if one.is_behind_large:
            self._expect_nothing(one.stretch_start, at)
            one.stretch_start = at + 1
        elif at - one.stretch_start >= STRETCH_BYTES:
            if one.item_start > one.stretch_start and at - one.item_start >= STRETCH_BYTES:
                self._add_stretch(one, one.item_start - 1)
                one.stretch_start = one.item_start
            self._add_stretch(one, at)
            one.stretch_start = at + 1
        one.item_start = at + 1

    def _end(self, sign: int, at: int) -> bool:
        """Take a closing bracket; return whether it closes the outermost."""
        opened = self._open
        if not opened or _CLOSING[opened[-1].sign] != sign:
            raise NotStoredError("a bracket that closes nothing")
        if len(opened) == 1:
            return True
        if at - opened[-1].start >= STRETCH_BYTES:
            one = opened.pop()
            self._add_last(one, at)
            self._add_large(opened[-1], one.start, at + 1, one.value(self._text))
        else:
            opened.pop()
        return False

    def _whole(self, at: int) -> Any:
        one = self._open.pop()
        if at - one.start >= STRETCH_BYTES:
            self._add_last(one, at)
            return one.value(self._text)
        return self._decoded(one.start, at + 1, "")

    def _add_last(self, one: _OpenValue, at: int) -> None:
        """Note what stands behind the last stretch."""
        if one.is_behind_large:
            self._expect_nothing(one.stretch_start, at)
        elif one.has_commas or self._buffer[one.stretch_start : at].strip(_BLANK):
            self._add_stretch(one, at)

    def _add_large(self, around: _OpenValue, start: int, end: int, value: Any) -> None:
        """Note a large value as an item of the list or the object around it."""
        if around.item_start > around.stretch_start:
            self._add_stretch(around, around.item_start - 1)
        before = self._buffer[around.item_start : start]
        keys: list[str] = []
        if around.sign == "{":
            key = _BEFORE_VALUE.fullmatch(before)
            if key is None:
                raise NotStoredError("a value without a key")
            at = around.item_start
            keys = [self._decoded(at + key.start(1), at + key.end(1), "")]
        elif before.strip(_BLANK):
            raise NotStoredError("something before a value")
        around.add(value, keys)
        around.stretch_start = end

    def _add_stretch(self, one: _OpenValue, end: int) -> None:
        """Note small items, which are decoded to see that they are sound; none is a fault."""
        found = self._decoded(one.stretch_start, end, "{}" if one.sign == "{" else "[]")
        if not found:
            raise NotStoredError("a comma without a value")
        one.add(_ItemStretch(one.stretch_start, end, len(found)), found)

    def _decoded(self, start: int, end: int, around: str) -> Any:
        try:
            return self._text.value(start, end, around)
        except ValueError as error:
            raise NotStoredError(str(error)) from error

    def _expect_nothing(self, start: int, end: int) -> None:
        if self._buffer[start:end].strip(_BLANK):
            raise NotStoredError("something behind a value")
