"""What a row's page is put together from, besides its fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Model
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp.admin.toolkit import html


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A way to another page; one that `needs_texts` is for whoever may see texts alone."""

    label: str
    url: str
    needs_texts: bool = False

    @classmethod
    def to(cls, label: str, model: type[Model], pk: Any) -> Link:
        """Return the way to a row's page."""
        return cls(label=label, url=html.change_url(model, pk))

    @classmethod
    def to_list(cls, label: str, model: type[Model], **filters: Any) -> Link:
        """Return the way to a model's list, filtered."""
        return cls(label=label, url=html.list_url(model, **filters))


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows below the fields of a page; cells are escaped unless made by format_html.

    `texts` are the columns that only whoever may see texts is shown.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    empty: str = "None."
    more: Link | None = None
    texts: frozenset[str] = frozenset()

    def without_texts(self) -> Table:
        """Return the table without the columns that hold texts."""
        kept = [index for index, name in enumerate(self.columns) if name not in self.texts]
        return replace(
            self,
            columns=[self.columns[index] for index in kept],
            rows=[[row[index] for index in kept] for row in self.rows],
            texts=frozenset(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A titled group of fields; a field of `optional` is left out where its column is empty."""

    title: str | None
    fields: tuple[str, ...]
    optional: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A titled piece above the fields of a page: a drawing, side-by-side texts.

    One with `is_text` only says its title, and why, to whoever may not see texts.
    """

    title: str
    body: SafeString
    note: str = ""
    is_text: bool = False

    @classmethod
    def saying(cls, title: str, sentence: object) -> Panel:
        """Return a panel that only says a sentence."""
        return cls(title=title, body=format_html('<p class="panel-more">{}</p>', sentence))
