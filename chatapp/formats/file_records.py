"""The values of a file with their places: decoded at once, or whenever somebody looks at them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from chatapp.formats.decoding import DECODER, read_lines
from chatapp.formats.records import Problem
from chatapp.formats.stored_json import KEPT_STRETCHES, LazyList, PickedList


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One decoded JSON value and the line, counted from 1, that it starts on."""

    line: int
    value: Any


class StoredRecord(Record):
    """A record of a large file, decoded whenever it is looked at."""

    __slots__ = ("_make",)
    _make: Callable[[], Any]

    def __init__(self, line: int, make: Callable[[], Any]) -> None:
        object.__setattr__(self, "line", line)
        object.__setattr__(self, "_make", make)

    @property
    def value(self) -> Any:
        """What the record holds."""
        return self._make()


class ShortLines:
    """Lines of a large file that stand one behind the other, decoded together.

    Their values are kept until enough other lines were looked at; `last` is shared by all lines of
    a file.
    """

    def __init__(self, text: Callable[[], str], number: int, last: deque[ShortLines]) -> None:
        self._text, self._number, self._last = text, number, last
        self._are_one_list = False
        self._values: list[Any] | None = None

    def read(self, problems: list[Problem]) -> list[int]:
        """Return the numbers of the lines of their values, and add what is no value."""
        text = self._text()
        found = list(read_lines(text, self._number, problems))
        values = [value for _, value in found]
        try:
            self._are_one_list = _as_one_list(text) == values
        except (ValueError, RecursionError):  # several values on a line, damage, or great depth
            self._are_one_list = False
        self._keep(values)
        return [number for number, _ in found]

    def values(self) -> list[Any]:
        """Return their values."""
        if self._values is not None:
            return self._values
        text = self._text()
        if self._are_one_list:
            return self._keep(_as_one_list(text))
        return self._keep([value for _, value in read_lines(text, self._number, [])])

    def _keep(self, values: list[Any]) -> list[Any]:
        self._values = values
        self._last.append(self)
        if len(self._last) > KEPT_STRETCHES:
            self._last.popleft()._values = None
        return values


def _as_one_list(text: str) -> list[Any]:
    """Return the values of lines as those of one list, which is decoded several times faster."""
    values: list[Any] = DECODER.decode(f"[{','.join(filter(str.strip, text.split(chr(10))))}]")
    return values


class LineRecord(StoredRecord):
    """A record of a short line, which is decoded together with those around it."""

    __slots__ = ("_index", "_lines")
    _index: int
    _lines: ShortLines

    def __init__(self, line: int, lines: ShortLines, index: int) -> None:
        for name, value in (("line", line), ("_lines", lines), ("_index", index)):
            object.__setattr__(self, name, value)

    @property
    def value(self) -> Any:
        """What the record holds."""
        return self._lines.values()[self._index]


def items_as_records(items: list[Any]) -> Iterator[Record]:
    """The items of a list as records with their numbers from 1; those of a file stay there."""
    for index in range(len(items)):
        if isinstance(items, LazyList):
            yield StoredRecord(index + 1, partial(items.item, index))
        else:
            yield Record(line=index + 1, value=items[index])


def derived(record: Record, make: Callable[[Any], Any]) -> Record:
    """The record of what is made of another record's value, each time it is looked at."""
    if isinstance(record, StoredRecord):
        return StoredRecord(record.line, lambda: make(record.value))
    return Record(line=record.line, value=make(record.value))


def values_of(records: Sequence[Record]) -> list[Any]:
    """The values of records as a list; those of a large file stay there."""
    if any(isinstance(record, StoredRecord) for record in records):
        return PickedList(lambda index: records[index].value, range(len(records)))
    return [record.value for record in records]


def only_objects(records: Iterable[Record], problems: list[Problem]) -> list[Record]:
    """The records that are JSON objects; every other one is added to the problems."""
    objects = []
    for record in records:
        if isinstance(record.value, dict):
            objects.append(record)
        else:
            text = "The line was left out: it holds no JSON object."
            problems.append(Problem(line=record.line, text=text))
    return objects
