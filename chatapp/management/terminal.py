"""What commands show people: a progress bar on a terminal, a table whose columns stand straight."""

from __future__ import annotations

import contextlib
import logging
import shutil
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.core.management.base import OutputWrapper

DEFAULT_COLUMNS = 80
LARGEST_COLUMNS = 100
BAR_CELLS = 24
_CLEAR_LINE = "\r\x1b[K"


def columns_of(stream: OutputWrapper) -> int:
    """Return how wide output may be: the terminal's width up to a readable one; 80 without one."""
    if not stream.isatty():
        return DEFAULT_COLUMNS
    return min(LARGEST_COLUMNS, shutil.get_terminal_size((DEFAULT_COLUMNS, 24)).columns)


def display_width(text: str) -> int:
    """Return how many cells a text takes: Chinese characters take two, combining marks none."""
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def counted(number: int, noun: str) -> str:
    """Return “1 file” or “2,000 files”."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shortened(text: str, cells: int) -> str:
    """Return a text on one line that takes at most `cells`, with “…” where something is missing."""
    text = " ".join(text.split())
    if display_width(text) <= cells:
        return text
    kept, used = "", 1
    for character in text:
        used += _cells(character)
        if used > cells:
            break
        kept += character
    return f"{kept.rstrip()}…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table; the one that is `elastic` gives way when the line is too long."""

    heading: str
    right: bool = False
    elastic: bool = False


def table_lines(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int = DEFAULT_COLUMNS
) -> list[str]:
    """Return heading, rule and rows as lines of at most `width` cells, columns aligned."""
    sizes = [
        max([display_width(column.heading), *(display_width(row[index]) for row in rows)])
        for index, column in enumerate(columns)
    ]
    excess = sum(sizes) + 2 * (len(sizes) - 1) - width
    for index, column in enumerate(columns):
        if column.elastic and excess > 0:
            sizes[index] = max(display_width(column.heading), sizes[index] - excess)
    lines = [
        _line(columns, [column.heading for column in columns], sizes),
        "  ".join("─" * size for size in sizes),
    ]
    return lines + [_line(columns, row, sizes) for row in rows]


def _line(columns: Sequence[Column], cells: Sequence[str], sizes: Sequence[int]) -> str:
    parts = []
    for column, cell, size in zip(columns, cells, sizes, strict=True):
        text = shortened(cell, size)
        gap = " " * (size - display_width(text))
        parts.append(gap + text if column.right else text + gap)
    return "  ".join(parts).rstrip()


class ProgressBar:
    """One line that is redrawn; silent where the stream is no terminal.

    `total` may be an estimate: the bar is never fuller than full. It is gone after the block.
    """

    def __init__(self, stream: OutputWrapper, *, total: int, label: str) -> None:
        self._stream = stream
        self._total = total
        self._label = label
        self._done = 0
        self._shown = False

    def __enter__(self) -> ProgressBar:
        self._draw()
        return self

    def __exit__(self, *exception: object) -> None:
        self.clear()

    def advance(self, steps: int = 1) -> None:
        """Draw the bar `steps` further."""
        self._done += steps
        self._draw()

    def clear(self) -> None:
        """Wipe the line, so that something else can be written; the next step draws it again."""
        if self._shown:
            self._write(_CLEAR_LINE)
            self._shown = False

    def _draw(self) -> None:
        if self._total and self._stream.isatty():
            done = min(self._done, self._total)
            filled = BAR_CELLS * done // self._total
            bar = "█" * filled + "░" * (BAR_CELLS - filled)
            text = f"{bar} {done:,} of {self._total:,} {self._label}"
            self._write(_CLEAR_LINE + shortened(text, columns_of(self._stream) - 1))
            self._shown = True

    def _write(self, text: str) -> None:
        # Plain: a command's error stream would colour it red.
        self._stream.write(text, style_func=str, ending="")
        self._stream.flush()


@contextlib.contextmanager
def quiet_logs(level: int = logging.ERROR) -> Iterator[None]:
    """Keep log lines up to `level` out of output that says the same in sentences."""
    before = logging.root.manager.disable
    logging.disable(level)
    try:
        yield
    finally:
        logging.disable(before)
