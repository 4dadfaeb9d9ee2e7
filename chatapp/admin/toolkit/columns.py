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
from django.utils.safestring import SafeString

from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.page_parts import Link, Table
from chatapp.admin.toolkit.permissions import nameless_link

Cell = Callable[[Any, Any], Any]
Show = Callable[[Any], Any]
_SHOW_TEXTS: tuple[Show, ...] = (html.stored_text, html.stored_json, html.folded_text)
Cells = Mapping[str, Callable[[Any], Any]]
"""The columns of a table: the title of each, and what it shows of a row."""


def column(
    title: str,
    value: str | Callable[[Any], Any],
    show: Show | None = None,
    *,
    ordering: str | None = None,
    reads: tuple[str, ...] | None = None,
    is_text: bool = False,
    instead: Show | None = None,
) -> Cell:
    """Return a column: `value` is an attribute of the row, dots allowed, or a function of the row.

    `show` turns what it finds into text; `ordering` is the database's column to sort by. `reads`
    are the database's columns that a list has to read for it, where that is not `value` itself;
    what a function needs may stand in the list's `list_only` as well. A column with `is_text` is
    left out for who may not see texts, or shows of the same value what `instead` makes of it;
    stored texts and JSON are texts without saying so.
    """
    read = attrgetter(value) if isinstance(value, str) else value
    if reads is None:
        reads = (value.replace(".", "__"),) if isinstance(value, str) else ()

    def cell(self: Any, row: Any) -> Any:
        found = read(row)
        return found if show is None else show(found)

    def shown_instead(row: Any) -> Any:
        return instead(read(row)) if instead else None

    made: Any = admin.display(description=title, ordering=ordering)(cell)
    made.reads, made.is_text = reads, is_text or show in _SHOW_TEXTS or instead is not None
    named: Any = admin.display(description=title, ordering=ordering)(shown_instead)
    made.instead = named if instead else None
    found: Cell = made
    return found


def shows_text(method: Cell) -> Cell:
    """Mark a method that shows a text: it is left out for who may not see texts."""
    marked: Any = method
    marked.is_text, marked.instead = True, None
    return method


def text_cell(show: Show) -> Show:
    """Mark what a column of a table shows as a text."""
    marked: Any = show
    marked.is_text = True
    return show


def nameless_field(field: Any) -> Any:
    """Return what stands in the place of a foreign key to rows that people name."""

    def shown(row: Any) -> SafeString | str:
        return nameless_link(getattr(row, field.name))

    return admin.display(description=str(field.verbose_name).capitalize())(shown)


def is_text(cell: Any) -> bool:
    """Whether a column, a method or a cell is marked as one that shows a text."""
    return bool(getattr(cell, "is_text", False))


def preview(title: str, value: str, *, cut_at: int = html.PREVIEW_CHARS) -> Cell:
    """Return a column for the beginning of a long text: an annotation of `list_previews`."""
    return column(
        title, value, lambda text: html.preview(text, cut_at=cut_at), reads=(), is_text=True
    )


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
        texts=frozenset(name for name, show in cells.items() if is_text(show)),
    )


# Columns that many lists have.
SHORT_ID = column("Id", "pk", html.short_id)
IN_SESSION = column(
    "Session", "session", html.session_link, reads=("session__title",), instead=nameless_link
)


def person(title: str, value: str, *, ordering: str | None = None) -> Cell:
    """Return a column of a user, or nobody, that leads to what is theirs.

    Django's own link leads to the account, which few may see.
    """

    def shown(user: Any) -> SafeString | str:
        if user is None:
            return "—"
        address = html.keyed_url("admin:chatapp_session_owner", user.pk)
        return html.link(user.get_username(), address)

    return column(title, value, shown, ordering=ordering)


OWNER = person("Owner", "owner", ordering="owner")
