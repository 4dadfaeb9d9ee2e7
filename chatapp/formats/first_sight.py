"""What is told of a file before it is parsed: that it is too much, and by what its format is known.

Files of a million lines that hold nothing are sent, too; these questions cost no more than reading
them once.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from chatapp.formats.file_records import Record, items_as_records, values_of
from chatapp.formats.reading import Document
from chatapp.formats.records import FileLimits, refuse_lines, refuse_marks
from chatapp.spooled_files import SpooledFile

LONGEST_FIRST_LINE = 1_000_000
"""Bytes of a first line that is decoded to see whether the file consists of lines."""


def refuse_at_sight(content: SpooledFile, limits: FileLimits) -> None:
    """Raise TooMuchInFileError where counting bytes shows that a file holds more than it may.

    Lines are counted where the first one holds a value of its own.
    """
    refuse_marks(_marks(content), limits)
    beginning = content.read(0, LONGEST_FIRST_LINE + 1)
    end = beginning.find(b"\n")
    if end >= 0 and _is_one_value(beginning[:end]):
        refuse_lines(content.lines(), limits)


def is_large(content: SpooledFile, *, size: int, pieces: int) -> bool:
    """Whether a file has more bytes than `size`, or more lines, brackets and colons than `pieces`.

    Those decide how long it takes to be read.
    """
    return content.size > size or _marks(content) + content.count(b"\n") > pieces


def _marks(content: SpooledFile) -> int:
    return content.count(b"[", b"{", b":")


def _is_one_value(line: bytes) -> bool:
    try:
        json.loads(line.decode("utf-8-sig"), strict=False)
    except (ValueError, RecursionError):
        return False
    return True


def telling(document: Document) -> Document:
    """The document without values that could tell no format from another.

    Those are empty ones, single numbers and texts, and of flat objects with the same keys, type and
    role all but the first. A file of a million such lines is told as soon as one of ten.
    """
    seen: set[Any] = set()
    if document.is_lines:
        records = tuple(one for one in document.records if _tells(one.value, seen))
        return replace(document, records=records)
    record = document.records[0]
    if not isinstance(record.value, list):
        return document
    items = values_of([one for one in items_as_records(record.value) if _tells(one.value, seen)])
    return replace(document, records=(Record(line=record.line, value=items),))


def _tells(value: Any, seen: set[Any]) -> bool:
    if not value or not isinstance(value, (dict, list)):
        return False
    if isinstance(value, list) or any(map(_may_hold_more, value.values())):
        return True
    kinds = (value.get("type"), value.get("role"))
    shape = (*value, *(kind for kind in kinds if isinstance(kind, str)))
    if shape in seen:
        return False
    seen.add(shape)
    return True


def _may_hold_more(value: Any) -> bool:
    """Whether something stands inside a value, be it as JSON or as events in a text."""
    if isinstance(value, str):
        return value.lstrip().startswith(("{", "[")) or "data:" in value
    return isinstance(value, (dict, list)) and bool(value)
