"""Who may see texts, and who may have models asked: the two rules that all pages share.

Texts are whatever a conversation or a model's server said, and what may quote it: messages,
summaries, inputs and outputs of steps, errors, titles, instructions, notes to verdicts. What shows
them is marked where it is declared (a column, a table's cell, a panel), and the toolkit leaves it
out for whoever may not see it; a page that is made of texts alone asks `require_texts`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db.models import Field, JSONField, Model, TextField
from django.http import HttpRequest
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.extension import admin_extensions
from chatapp.admin.toolkit.page_parts import Link
from chatapp.models import Branch, ImportJob, Session

# Columns of words that people give their things; what the rows are called comes from them.
NAMES = ((Session, "title"), (Branch, "label"), (ImportJob, "name"))
SEE_TEXTS = "chatapp.read_texts"
TEXTS_HIDDEN = (
    "You may not see messages, summaries, titles and other texts of conversations: that takes the "
    "permission “read texts”."
)


def holds(request: HttpRequest, *permissions: str) -> bool:
    """Whether the operator has all of these permissions."""
    user: Any = request.user
    return bool(user.has_perms(permissions))


def may_see_texts(request: HttpRequest) -> bool:
    """Whether the operator may see texts of conversations: permission `read texts`."""
    return holds(request, SEE_TEXTS)


def require_texts(request: HttpRequest) -> None:
    """Raise PermissionDenied, with the sentence, for an operator who may not see texts."""
    if not may_see_texts(request):
        raise PermissionDenied(TEXTS_HIDDEN)


def may_run(request: HttpRequest) -> bool:
    """Whether the operator may start work that asks models: the permission that the apps name.

    Where no app that names one has joined, superusers may.
    """
    named = [each.run_permission for each in admin_extensions() if each.run_permission]
    if named:
        return holds(request, *named)
    return bool(request.user.is_active and getattr(request.user, "is_superuser", False))


def is_text_column(field: Field[Any, Any]) -> bool:
    """Whether a column of the database holds texts; names that people give are short ones."""
    return (field.model, field.name) in NAMES or isinstance(field, TextField | JSONField)


# --- names ----------------------------------------------------------------------------------------


def nameless(row: Model) -> str:
    """Return what a row is called without words of its owner's: titles, labels, names of files."""
    if is_named_by_people(type(row)):
        return f"{str(row._meta.verbose_name).capitalize()} {formatting.short_id(row.pk)}"
    return str(row)


def name_for(request: HttpRequest, row: Model) -> str:
    """Return what a row is called on the operator's pages."""
    return str(row) if may_see_texts(request) else nameless(row)


def is_named_by_people(model: type[Model]) -> bool:
    """Whether rows of a table are called what their owners call them."""
    return any(issubclass(model, named) for named, _ in NAMES)


def permitted_links(request: HttpRequest, links: Iterable[Link]) -> list[Link]:
    """Return those of the links that the operator may follow."""
    texts = may_see_texts(request)
    return [link for link in links if texts or not link.needs_texts]


def nameless_link(row: Model | None) -> SafeString | str:
    """Return a link to a row by its id; a dash for no row."""
    return "—" if row is None else html.row_link(row, nameless(row))


def link_for(request: HttpRequest, row: Model) -> SafeString | str:
    """Return a link to a row by what it is called on the operator's pages."""
    return html.row_link(row, formatting.shortened(name_for(request, row)))
