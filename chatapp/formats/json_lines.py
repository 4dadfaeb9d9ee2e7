"""Text as JSON values with their line numbers: one document, or JSON lines with damage in them.

What no reader should have to think about is settled here: a byte order mark, two objects glued
together on one line, broken lines, NaN (becomes null, because a database takes no NaN), numbers
and nesting too large to handle. Time is linear in the size of the text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from chatapp.formats.records import Problem

MAX_DEPTH = 100
"""Levels of nesting; deeper values would later exhaust the stack of whoever walks through them."""

WHITESPACE = " \t\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One decoded JSON value and the line, counted from 1, that it starts on."""

    line: int
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The values of a file; `is_lines` is False when the whole file is one JSON value."""

    records: tuple[Record, ...]
    is_lines: bool
    problems: tuple[Problem, ...] = ()


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


def read_document(text: str) -> Document:
    """The JSON values of a text; lines that cannot be read become problems, the rest is kept."""
    start = _skip_whitespace(text, 0)
    try:
        value, end = _decode(text, start)
    except _UnreadableError:
        return _read_lines(text)
    if _skip_whitespace(text, end) < len(text):
        return _read_lines(text)
    line = text.count("\n", 0, start) + 1
    return Document(records=(Record(line=line, value=value),), is_lines=False)


def compact_json(value: Any) -> str:
    """A value as JSON without spaces, in the characters it has: the form of call arguments."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class _UnreadableError(ValueError):
    """No JSON value starts here; the text says why."""


def _read_lines(text: str) -> Document:
    # Not str.splitlines: it also splits at U+2028 and others, which may stand in a JSON string.
    records: list[Record] = []
    problems: list[Problem] = []
    for number, line in enumerate(text.split("\n"), start=1):
        position = _skip_whitespace(line, 0)
        while position < len(line):
            try:
                value, position = _decode(line, position)
            except _UnreadableError as error:
                problems.append(_broken(number, position, error))
                break
            records.append(Record(line=number, value=value))
            position = _skip_whitespace(line, position)
    return Document(records=tuple(records), is_lines=True, problems=tuple(problems))


def _broken(number: int, position: int, error: _UnreadableError) -> Problem:
    part = f"The line from character {position + 1} on" if position else "The line"
    return Problem(line=number, text=f"{part} was left out: it is not readable JSON ({error}).")


def _decode(text: str, position: int) -> tuple[Any, int]:
    try:
        value, end = _DECODER.raw_decode(text, position)
    except json.JSONDecodeError as error:
        raise _UnreadableError(f"{error.msg}, character {error.pos + 1}") from error
    except RecursionError as error:
        raise _UnreadableError(f"nested deeper than {MAX_DEPTH} levels") from error
    except ValueError as error:  # Python refuses to read integers of more than 4300 digits
        raise _UnreadableError("a number with too many digits") from error
    if _is_too_deep(value):
        raise _UnreadableError(f"nested deeper than {MAX_DEPTH} levels")
    return value, end


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return False
    return True


def _children(value: Any) -> list[Any]:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [item for item in items if isinstance(item, (dict, list))]


def _skip_whitespace(text: str, position: int) -> int:
    while position < len(text) and text[position] in WHITESPACE:
        position += 1
    return position


def _finite(literal: str) -> float | None:
    number = float(literal)
    return number if math.isfinite(number) else None


_DECODER = json.JSONDecoder(strict=False, parse_float=_finite, parse_constant=lambda _: None)
