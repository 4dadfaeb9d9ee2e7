"""The values of a file with their places: decoded at once, or whenever somebody looks at them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from chatapp.formats.records import Problem
from chatapp.formats.stored_json import LazyList, PickedList


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
