"""JSON as files have it: one value, or several on a line, each with its place or its fault."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from chatapp.formats.nesting import flattened
from chatapp.formats.records import Problem

MAX_DEPTH = 100
"""Levels of nesting; deeper values would later exhaust the stack of whoever walks through them."""


_WHITESPACE = re.compile(r"[ \t\r\n]*")


class UnreadableError(ValueError):
    """No JSON value starts here; the text says why."""


class TooDeepError(UnreadableError):
    """A value is nested deeper than MAX_DEPTH."""

    def __init__(self) -> None:
        super().__init__(f"nested deeper than {MAX_DEPTH} levels")


def read_values(
    line: str, number: int, problems: list[Problem], *, start: int = 0
) -> Iterator[tuple[Any, int]]:
    """Yield the values of a line, each with the place where it ends."""
    position = skip_whitespace(line, start)
    while position < len(line):
        try:
            value, position = decode(line, position)
        except UnreadableError as error:
            problems.append(_broken(number, position, error))
            return
        yield value, position
        position = skip_whitespace(line, position)


def read_lines(text: str, number: int, problems: list[Problem]) -> Iterator[tuple[int, Any]]:
    """Yield the values of all lines of a text with the number of the line, from `number` on."""
    for line_number, line in enumerate(_lines(text), start=number):
        for value, _ in read_values(line, line_number, problems):
            yield line_number, value


def _lines(text: str) -> Iterator[str]:
    """Yield line by line, as all of them at once would take more memory than the text.

    Not as str.splitlines does: it also splits at U+2028 and others, which may stand in a string.
    """
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:]


def _broken(number: int, position: int, error: UnreadableError) -> Problem:
    part = f"The line from character {position + 1} on" if position else "The line"
    return Problem(line=number, text=f"{part} was left out: it is not readable JSON ({error}).")


def decode(text: str, position: int) -> tuple[Any, int]:
    """Return the value that starts here and where it ends; of deep trees a flatter form."""
    try:
        return _decode_one(text, position)
    except TooDeepError:
        flat = flattened(text, position)
        if flat is None:
            raise
    return _decode_one(flat[0], 0)[0], flat[1]


def _decode_one(text: str, position: int) -> tuple[Any, int]:
    try:
        value, end = DECODER.raw_decode(text, position)
    except json.JSONDecodeError as error:
        raise UnreadableError(f"{error.msg}, character {error.pos + 1}") from error
    except RecursionError as error:
        raise TooDeepError from error
    except ValueError as error:  # Python refuses to read integers of more than 4300 digits
        raise UnreadableError("a number with too many digits") from error
    # What is nested that deep opens that many lists and objects.
    opened = text.count("[", position, end) + text.count("{", position, end)
    if opened > MAX_DEPTH and _is_too_deep(value):
        raise TooDeepError
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


def skip_whitespace(text: str, position: int) -> int:
    """Return the place behind what is no value, from a place on."""
    found = _WHITESPACE.match(text, position)
    return found.end() if found else position


def _finite(literal: str) -> float | None:
    number = float(literal)
    return number if math.isfinite(number) else None


DECODER = json.JSONDecoder(strict=False, parse_float=_finite, parse_constant=lambda _: None)


def decode_whole(text: str) -> Any:
    """Return the value that a text begins with."""
    return decode(text, skip_whitespace(text, 0))[0]
