"""What commands show people and ask of them: text, tables, a pager, progress, ids, stop signals.

Widths are counted in the cells of a terminal: Chinese characters take two, combining marks none.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shlex
import shutil
import signal
import sys
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn, TextIO, TypeVar, cast
from uuid import UUID

from django.core.management.base import CommandError, OutputWrapper
from django.db.models import Model, QuerySet
from django.utils.functional import SimpleLazyObject

from chatapp.ids import LEAST_DIGITS, digits_of, own_id_q

# Loaded when something is drawn: most commands draw nothing.
click: Any = SimpleLazyObject(partial(import_module, "click"))
wcwidth: Any = SimpleLazyObject(partial(import_module, "wcwidth"))
DEFAULT_COLUMNS = 80
LARGEST_COLUMNS = 100
TAB = " " * 4


def columns_of(stream: OutputWrapper) -> int:
    """Return how wide output may be: the terminal's width up to a readable one; 80 without one."""
    if not stream.isatty():
        return DEFAULT_COLUMNS
    return min(LARGEST_COLUMNS, shutil.get_terminal_size((DEFAULT_COLUMNS, 24)).columns)


def has_colour(stream: OutputWrapper, options: Mapping[str, Any]) -> bool:
    """Whether to write colours: Django's two options count more than NO_COLOR and the terminal."""
    if options["force_color"]:
        return True
    refused = options["no_color"] or os.environ.get("NO_COLOR")
    return bool(stream.isatty() and not refused and os.environ.get("TERM") != "dumb")


# --- text -----------------------------------------------------------------------------------------


def shortened(text: str, cells: int) -> str:
    """Return a text on one line that takes at most `cells`, with “…” where something is missing."""
    text = " ".join(text.split())
    if wcwidth.width(text) <= cells:
        return text
    return f"{wcwidth.clip(text, 0, max(0, cells - 1)).rstrip()}…"


def printable(text: str) -> str:
    r"""Return a text with everything a terminal would obey written out: ESC as `\x1b`.

    Control characters, invisible ones and those that turn the reading direction are escaped as in
    Python; newlines, tabs and spaces of any width stay. A CR before a newline is part of it.
    """
    text = text.replace("\r\n", "\n")
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(map(_visible, text))


def one_line(text: str) -> str:
    """Return a printable text for a heading: newlines and tabs are spaces."""
    return printable(" ".join(text.split()))


def _visible(character: str) -> str:
    if character in "\n\t" or character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    return character.encode("unicode_escape").decode("ascii")


def wrapped(text: str, width: int) -> list[str]:
    """Return a printable text in lines of at most `width` cells; its own indentation stays."""
    lines: list[str] = []
    for line in text.split("\n"):
        lines += _pieces(line.replace("\t", TAB), width)
    return lines


def _pieces(line: str, width: int) -> list[str]:
    # By offsets, not with wcwidth.wrap: that takes minutes for a megabyte without a space.
    pieces, start = [], 0
    # A break inside the indentation would leave a line of nothing.
    indentation = len(line) - len(line.lstrip())
    while (end := _end_of_piece(line, start, width)) < len(line):
        space = end if line[end] == " " else line.rfind(" ", max(start + 1, indentation), end)
        pieces.append(line[start : space if space > 0 else end].rstrip())
        start = space + 1 if space > 0 else end
    return [*pieces, line[start:].rstrip()]


def _end_of_piece(line: str, start: int, width: int) -> int:
    """Return behind which character at most `width` cells are full; one is taken at least."""
    piece = line[start : start + width]
    if piece.isascii():
        return start + len(piece)
    used, end = 0, start
    while end < len(line):
        used += max(0, wcwidth.wcwidth(line[end]))
        if used > width:
            return max(end, start + 1)
        end += 1
    return end


# --- tables ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """One column of a table; the one that is `elastic` gives way when the line is too long."""

    heading: str
    right: bool = False
    elastic: bool = False


def table_lines(
    columns: Sequence[TableColumn], rows: Sequence[Sequence[str]], *, width: int = DEFAULT_COLUMNS
) -> list[str]:
    """Return heading, rule and rows as lines of at most `width` cells, columns aligned."""
    sizes = [
        max([wcwidth.width(column.heading), *(wcwidth.width(row[index]) for row in rows)])
        for index, column in enumerate(columns)
    ]
    excess = sum(sizes) + 2 * (len(sizes) - 1) - width
    for index, column in enumerate(columns):
        if column.elastic and excess > 0:
            sizes[index] = max(wcwidth.width(column.heading), sizes[index] - excess)
    lines = [
        _line(columns, [column.heading for column in columns], sizes),
        "  ".join("─" * size for size in sizes),
    ]
    return lines + [_line(columns, row, sizes) for row in rows]


def _line(columns: Sequence[TableColumn], cells: Sequence[str], sizes: Sequence[int]) -> str:
    parts = []
    for column, cell, size in zip(columns, cells, sizes, strict=True):
        aligned = wcwidth.rjust if column.right else wcwidth.ljust
        parts.append(aligned(shortened(cell, size), size))
    return "  ".join(parts).rstrip()


# --- long output ----------------------------------------------------------------------------------


def write_lines(stream: OutputWrapper, lines: Iterable[str]) -> bool:
    """Write lines as they come; return whether anybody still reads them.

    It ends quietly where the reader of a pipe went away (`| head`).
    """
    try:
        for line in lines:
            stream.write(line)
        stream.flush()
        return True
    except BrokenPipeError:
        # What Python still flushes at its end would fail a second time.
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        return False


def page_lines(lines: Iterable[str], *, colour: bool) -> None:
    """Show lines in the pager ($PAGER, or less) as they come, and return when it is closed.

    Without a pager or without a terminal they are written to the standard output.
    """
    # For a PAGER that is plain `less`: else colours show as codes.
    os.environ.setdefault("LESS", "-R")
    try:
        shlex.split(os.environ.get("PAGER", ""))
    except ValueError:  # a quotation mark that is never closed
        del os.environ["PAGER"]
    # Ctrl-C stops what is still to be written; the pager has the terminal until it is closed.
    with (
        contextlib.suppress(KeyboardInterrupt),
        click.get_pager_file(color=colour) as pager,
        contextlib.suppress(BrokenPipeError),
    ):
        for line in lines:
            pager.write(f"{line}\n")


# --- progress -------------------------------------------------------------------------------------


class _Plain(io.TextIOBase):
    """A command's stream for a library: no line ends of its own, no red for the error stream."""

    def __init__(self, stream: OutputWrapper) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(text, style_func=str, ending="")
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return bool(self._stream.isatty())


class ProgressBar:
    """One line that is redrawn; silent where the stream is no terminal, gone after the block.

    `total` may be an estimate: the bar is never fuller than full.
    """

    def __init__(self, stream: OutputWrapper, *, total: int, label: str) -> None:
        self._stream = _Plain(stream)
        self._total, self._done, self._label = total, 0, label
        self._bar = click.progressbar(
            range(total),
            file=cast(TextIO, self._stream),
            fill_char="█",
            empty_char="░",
            bar_template="%(bar)s %(info)s",
            width=24,
            show_eta=True,
            show_percent=False,
            item_show_func=self._count,
            hidden=not total or not stream.isatty(),
        )

    def __enter__(self) -> ProgressBar:
        self._bar.render_progress()
        return self

    def __exit__(self, *exception: object) -> None:
        self.clear()

    def advance(self, steps: int = 1) -> None:
        """Draw the bar `steps` further."""
        self._done += steps
        self._bar.update(steps)

    def clear(self) -> None:
        """Wipe the line, so that something else can be written; the next step draws it again."""
        if not self._bar.hidden:
            show_cursor, wipe_line = "\x1b[?25h", "\r\x1b[K"
            self._stream.write(show_cursor + wipe_line)
            self._stream.flush()

    def _count(self, item: int | None) -> str:
        return f"{min(self._done, self._total):,} of {self._total:,} {self._label}"


@contextlib.contextmanager
def quiet_logs(level: int = logging.ERROR) -> Iterator[None]:
    """Keep log lines up to `level` out of output that says the same in sentences."""
    before = logging.root.manager.disable
    logging.disable(level)
    try:
        yield
    finally:
        logging.disable(before)


# --- stopping -------------------------------------------------------------------------------------

# What a shell shows for a program that Ctrl-C ended.
INTERRUPTED_STATUS = 130
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def stop_signals_interrupt() -> Iterator[None]:
    """Inside the block every stop signal raises KeyboardInterrupt, as Ctrl-C does.

    SIGINT too: a shell starts background jobs with it ignored. Outside the main thread, where
    Python allows no handlers, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _interrupt) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


# --- ids ------------------------------------------------------------------------------------------

MOST_NAMED = 5
WHOLE_ID = 32
_Row = TypeVar("_Row", bound=Model)


def find_by_id(rows: QuerySet[_Row], text: str, *, noun: str) -> _Row:
    """Return the only row whose id begins or ends with `text`, hyphens or not.

    Raises CommandError with a sentence when it is no id, too short, unknown or not unique.
    """
    digits = digits_of(text)
    if not digits:
        raise CommandError(
            f"“{text}” is no {noun} id. Ids look like 0f8b…-…; the API and the admin show them."
        )
    if len(digits) < LEAST_DIGITS:
        raise CommandError(
            f"“{text}” is too short: write at least {LEAST_DIGITS} digits, of the id's beginning "
            "or its end."
        )
    found = list(rows.filter(own_id_q(rows, digits)).order_by("pk")[: MOST_NAMED + 1])
    if not found:
        raise CommandError(f"There is no {noun} whose id is or starts or ends with “{text}”.")
    if len(found) > 1:
        names = ", ".join(str(row.pk) for row in found[:MOST_NAMED])
        more = ", …" if len(found) > MOST_NAMED else ""
        raise CommandError(
            f"More than one {noun} id starts or ends with “{text}”: {names}{more}. "
            "Write more of it."
        )
    return found[0]


def ids_named(rows: QuerySet[_Row], texts: Sequence[str], *, noun: str) -> list[Any]:
    """Return the keys of the rows that texts name, whole ids by one statement.

    Raises CommandError as find_by_id does.
    """
    whole = [UUID(digits) for text in texts if len(digits := digits_of(text)) == WHOLE_ID]
    there = set(rows.filter(pk__in=whole).values_list("pk", flat=True)) if whole else set()
    found = []
    for text in texts:
        digits = digits_of(text)
        key = UUID(digits) if len(digits) == WHOLE_ID else None
        found.append(key if key in there else find_by_id(rows, text, noun=noun).pk)
    return found
