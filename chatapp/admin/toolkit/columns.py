"""Columns of lists, fields of pages and columns of tables, declared in one line each.

    tokens = column("Tokens", "token_total", number)
    status_shown = column("Status", run_status)
    position = column("Position", "position", place, ordering="position")

A ModelAdmin names them in `list_display` and in its sections, as it would name methods. A table
below a page's fields is made of cells by their titles (see `table_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any

from django.contrib import admin

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.page_parts import Link, Table

Cell = Callable[[Any, Any], Any]
Cells = Mapping[str, Callable[[Any], Any]]
"""The columns of a table: the title of each, and what it shows of a row."""


def column(
    title: str,
    value: str | Callable[[Any], Any],
    show: Callable[[Any], Any] | None = None,
    *,
    ordering: str | None = None,
    reads: tuple[str, ...] | None = None,
) -> Cell:
    """Return a column: `value` is an attribute of the row, dots allowed, or a function of the row.

    `show` turns what it finds into text; `ordering` is the database's column to sort by. `reads`
    are the database's columns that a list has to read for it, where that is not `value` itself;
    what a function needs may stand in the list's `list_only` as well.
    """
    read = attrgetter(value) if isinstance(value, str) else value
    if reads is None:
        reads = (value.replace(".", "__"),) if isinstance(value, str) else ()

    def cell(self: Any, row: Any) -> Any:
        found = read(row)
        return found if show is None else show(found)

    cell.reads = reads  # type: ignore[attr-defined]
    return admin.display(description=title, ordering=ordering)(cell)


def preview(title: str, value: str, *, cut_at: int = html.PREVIEW_CHARS) -> Cell:
    """Return a column for the beginning of a long text: an annotation of `list_previews`."""
    return column(title, value, lambda text: html.preview(text, cut_at=cut_at), reads=())


def table_of(
    title: str,
    rows: Iterable[Any],
    cells: Cells,
    *,
    note: str = "",
    empty: str = "None.",
    more: Link | None = None,
) -> Table:
    """Return a table with a line for every row and a column for every one of the cells."""
    return Table(
        title=title,
        columns=tuple(cells),
        rows=[tuple(show(row) for show in cells.values()) for row in rows],
        note=note,
        empty=empty,
        more=more,
    )


# Columns that many lists have.
SHORT_ID = column("Id", "pk", formatting.short_id)
IN_SESSION = column("Session", "session", html.session_link, reads=("session__title",))
