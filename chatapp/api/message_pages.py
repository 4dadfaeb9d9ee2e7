"""Pages of stored messages: their places first, then columns straight to JSON, each read once.

The places of a page's rows, what they hold in bytes and what of them can change are one read. They
say where the page ends, which links lead on, and, nearly always, the page's tag: a client that has
the page costs no second read. A row's text never changes
(docs/architecture.md#compaction-changes-nothing-stored); a pin, a place or a count of tokens does,
and so does what a placeholder names. Where a row is a placeholder, or has files, which can be lost,
the tag is made of the page's bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from types import MappingProxyType
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.models import F, QuerySet, Value
from rest_framework.request import Request
from rest_framework.response import Response

from chatapp.api.base import NewestFirstPagination, TranscriptPagination
from chatapp.api.etags import has_already, not_modified, tag_of, tagged
from chatapp.api.json_bytes import as_bytes
from chatapp.api.message_json import columns_of, written
from chatapp.api.serializers import (
    LightMessageSerializer,
    MessageSerializer,
    MessageSizeSerializer,
)
from chatapp.compiled import CompiledRead, compiled_read
from chatapp.database import long_columns, stored_bytes
from chatapp.lineage import END
from chatapp.models import Branch, Message
from chatapp.selectors import has_ancestors, is_own, path_q

FIELDS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "": MessageSerializer.Meta.fields,
        "light": LightMessageSerializer.Meta.fields,
        "sizes": MessageSizeSerializer.Meta.fields,
    }
)
"""The columns of a message that a page shows, by what `fields` says."""


# A row of a page: its position, its bytes and those of its files, and all of it that can change.
_PLACE = ("position", "id", "page_bytes", "parts_bytes", "kind", "pinned", "tokens")
_Place = Sequence[Any]
# Reads rows between two positions, from either end: (after, before, newest first, most).
_Read = Callable[[int, int, bool, int], Sequence[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """How the rows of one choice of fields are read: their places, and their columns."""

    fields: Sequence[str]
    columns: Sequence[str]
    places: CompiledRead[Any]
    rows: CompiledRead[Any]


def _form(fields: Sequence[str]) -> _Form:
    columns = columns_of(fields)

    @compiled_read
    def places(*, branch: UUID, after: int, before: int, newest: bool) -> QuerySet[Message, Any]:
        """The places of rows of one branch between two positions, from either end."""
        return _placed(_between(branch, after, before), columns).order_by(*_order(newest))

    @compiled_read
    def rows(*, branch: UUID, after: int, before: int, newest: bool) -> QuerySet[Message, Any]:
        """The columns of rows of one branch between two positions, from either end."""
        found = _between(branch, after, before).values_list(*columns)
        return found.order_by(*_order(newest))

    return _Form(fields=fields, columns=columns, places=places, rows=rows)


_FORMS = {name: _form(fields) for name, fields in FIELDS.items()}


def _between(branch: UUID, after: int, before: int) -> QuerySet[Message]:
    return Message.objects.filter(branch=branch, position__gt=after, position__lt=before)


def _order(newest: bool) -> tuple[str, str]:
    return ("-position", "-id") if newest else ("position", "id")


def _placed(messages: QuerySet[Message], columns: Sequence[str]) -> QuerySet[Message, Any]:
    """Return the places of messages, of which the page will show these columns.

    Where no text is among the columns, they are read at once.
    """
    long = _texts(columns)
    if not long:
        return messages.annotate(page_bytes=Value(0)).values_list(*_PLACE, *_others(columns))
    size: Any = stored_bytes(long)
    if "parts" in long:
        size += F("parts_bytes")  # of files, which the page holds as well
    return messages.annotate(page_bytes=size).values_list(*_PLACE)


def _texts(columns: Sequence[str]) -> list[str]:
    return [name for name in long_columns(Message) if name in columns]


def _others(columns: Sequence[str]) -> list[str]:
    return [name for name in columns if name not in _PLACE]


def _stored(rows: QuerySet[Message, Any]) -> list[tuple[Any, ...]]:
    """Return the rows of a query as the database gives them, no value converted."""
    sql, params = rows.query.get_compiler(rows.db).as_sql()
    with connections[rows.db].cursor() as cursor:
        cursor.execute(sql, params)
        found: list[tuple[Any, ...]] = cursor.fetchall()
    return found


class _PlacedRows:
    """Rows for the paginator, by the three methods of a queryset that it asks for.

    What was read stays for the second look, at a page that ends early.
    """

    def __init__(self, read: _Read) -> None:
        self._read = read
        self._newest, self._after, self._before = False, 0, END
        self._found: Sequence[_Place] | None = None

    def order_by(self, *names: str) -> _PlacedRows:
        self._newest = names[0].startswith("-")
        return self

    def filter(self, **where: str) -> _PlacedRows:
        for name, text in where.items():
            # A cursor that somebody made up may name any number.
            place = min(max(int(text), 0), END)
            if name == "position__gt":
                self._after = place
            else:
                self._before = place
        return self

    def __getitem__(self, wanted: slice) -> Sequence[_Place]:
        if self._found is None:
            self._found = self._read(self._after, self._before, self._newest, wanted.stop)
        return self._found[wanted]


class StoredPagination(TranscriptPagination):
    """The pages of a branch's messages as bytes, with their tags."""

    page: list[_Place]

    def answer(self, branch: Branch, request: Request, view: Any, fields: str) -> Response:
        """Return the page that the request asks for, or 304 where the client has it."""
        form = _FORMS[fields]
        self.paginate_queryset(_PlacedRows(self._places_of(form, branch, request)), request, view)
        links = {"next": self.get_next_link(), "previous": self.get_previous_link()}
        tag = self._tag_of_places(form, links)
        if tag and has_already(request, tag):
            return not_modified(tag)
        rows = self._rows(form, branch)
        body = as_bytes(links | {"results": written(rows, form.columns, form.fields)})
        if tag and self._are_those(rows, form):
            return Response(body, headers={"ETag": tag})
        return tagged(request, body)

    def paginate_queryset(
        self, queryset: Any, request: Request, view: Any = None
    ) -> list[Any] | None:
        """Have `page` hold the places of as many rows as there is room for, and one at least."""
        self._most_rows = None
        page = NewestFirstPagination.paginate_queryset(self, queryset, request, view) or []
        most = self.room_for([place[2] for place in page])
        if most < len(page):
            self._most_rows = most
            page = NewestFirstPagination.paginate_queryset(self, queryset, request, view) or []
        return page

    def _get_position_from_instance(self, instance: Any, ordering: Any) -> str:
        return str(instance[0])

    def _places_of(self, form: _Form, branch: Branch, request: Request) -> _Read:
        if not has_ancestors(branch):
            return lambda after, before, newest, most: form.places.raw(
                branch=branch.pk, after=after, before=before, newest=newest, most=most
            )
        rows = Message.objects.filter(self.path_q(branch, request, Message.objects.all()))

        def read(after: int, before: int, newest: bool, most: int) -> Sequence[Any]:
            found = rows.filter(position__gt=after, position__lt=before).order_by(*_order(newest))
            return _stored(_placed(found, form.columns)[:most])

        return read

    def _rows(self, form: _Form, branch: Branch) -> list[tuple[Any, ...]]:
        """Return the columns of the page's rows, in its order."""
        if not self.page:
            return []
        if not _texts(form.columns):
            known = (*_PLACE, *_others(form.columns))
            return list(map(itemgetter(*map(known.index, form.columns)), self.page))
        newest = self.ordering[0].startswith("-")
        ends = self.page[0][0], self.page[-1][0]
        first, last = min(ends), max(ends)
        if is_own(branch, first - 1):
            return form.rows.raw(branch=branch.pk, after=first - 1, before=last + 1, newest=newest)
        rows = Message.objects.filter(path_q(branch, after=first - 1, through=last))
        return _stored(rows.order_by(*_order(newest)).values_list(*form.columns))

    def _tag_of_places(self, form: _Form, links: Mapping[str, Any]) -> str:
        """Return the page's tag without reading it; empty where its bytes must be looked at."""
        if any(place[3] or place[4] == Message.Kind.PLACEHOLDER for place in self.page):
            return ""
        return tag_of(as_bytes([form.fields, links, self.page]))

    def _are_those(self, rows: Sequence[tuple[Any, ...]], form: _Form) -> bool:
        """Whether the rows that were read are still what the tag was made of."""
        names = ("position", "pinned", "kind")
        read = map(itemgetter(*map(form.columns.index, names)), rows)
        return list(read) == list(map(itemgetter(*map(_PLACE.index, names)), self.page))
