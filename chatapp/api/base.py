"""What all views share: an owner sees only their own, in pages that are stable as rows arrive."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import DataError
from django.db.models import F, Q, QuerySet
from django.http import Http404
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.exceptions import ValidationError as InvalidRequest
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.pagination import CursorPagination
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.views import APIView

from chatapp.api.json_bytes import FORMAT
from chatapp.api.json_types import unknown_names, wrong_types
from chatapp.api.query import Kind, QueryParameter, read_query
from chatapp.compiled import compiled_read
from chatapp.conf import chatapp_settings
from chatapp.database import long_columns, stored_bytes
from chatapp.models import Branch, Message, Session
from chatapp.selectors import has_ancestors, path_q, rows_before, rows_from

MAX_KEY_CHARS = 200
PAGE_SIZE = QueryParameter(
    name="page_size",
    kind=Kind.COUNT,
    description="Rows of a page, 50 where it is left out; more than 200 are 200.",
)


def sessions_of(user: Any) -> QuerySet[Session]:
    """Return the user's own sessions; staff rights give nothing here, only in the admin."""
    return Session.objects.filter(owner=user).select_related("active_branch")


@compiled_read
def owned_session(*, owner: int, session_id: UUID) -> QuerySet[Session]:
    """The session of this owner with its active branch: asked for with nearly every request."""
    return Session.objects.filter(owner=owner, pk=session_id).select_related("active_branch")


class KnownFields(serializers.Serializer[Any]):
    """Refuses fields that it does not have, and values of another type than a field takes.

    What was misspelt would go unnoticed; what was turned into another type would be stored so.
    Fields that are only read may come back; `also` are names that a serializer takes besides.
    """

    also: tuple[str, ...] = ()
    rules: Mapping[str, Any] = MappingProxyType({})
    """What the fields do not say by themselves, in words of JSON Schema."""

    @classmethod
    def read(cls, data: Any) -> dict[str, Any]:
        """Return the validated fields of a body; raise ValidationError.

        One form is kept for all requests, for making one takes longer than reading a message. It is
        for those that know of nothing but the body: no instance, no request.
        """
        fields: dict[str, Any] = _form_of(cls).run_validation(data)
        return fields

    def to_internal_value(self, data: Any) -> Any:
        """Return the validated fields; raise ValidationError with a sentence for each wrong one."""
        if isinstance(data, Mapping):
            known = (*self.fields, *self.also)
            wrong = unknown_names(map(str, data), known, what="field")
            wrong |= wrong_types(self.fields, data)
            if wrong:
                raise InvalidRequest(wrong)
        return super().to_internal_value(data)


@cache
def _form_of(form: type[KnownFields]) -> KnownFields:
    return form()


class NoFields(KnownFields):
    """What a request holds that needs nothing but its address: an empty object, or no body."""


class KnownQueryView(APIView):
    """A view that refuses query parameters which it does not read.

    `query` are its own; plain names are those that it reads by itself. What was sent of the others
    stands in `asked`.
    """

    query: Sequence[QueryParameter | str] = ()
    asked: Mapping[str, Any] = MappingProxyType({})
    problems: Mapping[str, Sequence[str]] = MappingProxyType({})
    """Codes that a method may answer with besides those of its kind (chatapp/api/problems.py)."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Look at the parameters before anything is done."""
        super().initial(request, *args, **kwargs)
        if request.method not in self.allowed_methods:
            return  # 405, whatever it asks
        pages = getattr(self, "pagination_class", None)
        others = {FORMAT, *(one for one in self.query if isinstance(one, str))}
        if pages is not None and request.method in SAFE_METHODS:
            others.add(pages.cursor_query_param)
        self.asked = read_query(request, self.parameters(), others)

    @classmethod
    def parameters(cls) -> list[QueryParameter]:
        """Return the parameters whose values stand in `asked`."""
        own = [one for one in cls.query if isinstance(one, QueryParameter)]
        return [*own, PAGE_SIZE] if getattr(cls, "pagination_class", None) is not None else own


class SessionView(KnownQueryView):
    """A view below sessions/{id}/."""

    def get_session(self) -> Session:
        """Return the session of the address, or 404 where it is missing or somebody else's."""
        owner, key = self.request.user.pk, self.kwargs["session_id"]
        session = owned_session.first(owner=owner, session_id=key)
        if session is None:
            raise Http404
        return session


def message_of(user: Any, message_id: UUID) -> Message:
    """Return one of the user's own messages, or 404."""
    row = (
        Message.objects.select_related("branch", "session")
        .filter(pk=message_id, session__owner=user)
        .first()
    )
    if row is None:
        raise Http404
    return row


class AnyAccept(DefaultContentNegotiation):
    """Serves every Accept header: a browser that asks for an event stream gets its errors too."""

    def select_renderer(
        self, request: Any, renderers: Any, format_suffix: str | None = None
    ) -> Any:
        """Return the first renderer, whatever was asked for."""
        return renderers[0], renderers[0].media_type


# Of a position in a cursor that somebody made up; the largest real ones have fewer.
MAX_PLACE_DIGITS = 18


class NewestFirstPagination(CursorPagination):
    """{next, previous, results}, newest first; `page_size` up to 200."""

    ordering = ("-created_at", "-id")
    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 200

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the shape of a page: all three are always there."""
        link = {"type": "string", "format": "uri", "nullable": True}
        return {
            "type": "object",
            "required": ["next", "previous", "results"],
            "properties": {
                "next": link | {"description": "Address of the next page, or null."},
                "previous": link | {"description": "Address of the page before, or null."},
                "results": schema,
            },
        }

    def paginate_queryset(
        self, queryset: Any, request: Request, view: Any = None
    ) -> list[Any] | None:
        """Return the rows of a page; 404 also for a cursor whose place is no time or number."""
        try:
            return super().paginate_queryset(queryset, request, view)
        except (ValueError, OverflowError, ValidationError, DataError) as error:
            raise NotFound(self.invalid_cursor_message) from error


class BoundedPagination(NewestFirstPagination):
    """The same; a page ends early where more rows would bring more than MAX_PAGE_BYTES.

    It has one row at least. Sizes are read first, so that no text is that is not sent.
    """

    _most_rows: int | None = None

    def paginate_queryset(
        self, queryset: Any, request: Request, view: Any = None
    ) -> list[Any] | None:
        """Return the rows of a page, which are read after their sizes."""
        self._most_rows = None
        columns = long_columns(queryset.model)
        if chosen := queryset.query.values_select:
            columns = [name for name in columns if name in chosen]
        if columns:
            size = stored_bytes(columns)
            if "parts" in columns:
                size += F("parts_bytes")  # of files, which the page holds as well
            places = [name.removeprefix("-") for name in self.ordering]
            alone = queryset if chosen else queryset.select_related(None)
            sized = alone.values(*places).annotate(page_bytes=size)
            rows = super().paginate_queryset(sized, request, view) or ()
            self._most_rows = self.room_for([row["page_bytes"] for row in rows])
            queryset = self.page_of(queryset, self._kept(rows))
        return super().paginate_queryset(queryset, request, view)

    def room_for(self, sizes: Sequence[int]) -> int:
        """Return of how many rows the page has room, one at least; these are their bytes."""
        if self.cursor is not None and self.cursor.reverse:
            sizes = sizes[::-1]  # it is read from its end
        most = chatapp_settings.max_page_bytes
        return sum(total <= most for total in itertools.accumulate(sizes)) or 1

    def _kept(self, rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Return those of the rows that the page has room for, which are read from their end."""
        is_reverse = self.cursor is not None and self.cursor.reverse
        return rows[-(self._most_rows or 0) :] if is_reverse else rows[: self._most_rows]

    def page_of(self, queryset: Any, places: Sequence[Mapping[str, Any]]) -> Any:
        """Return the query that reads the page; `places` are what its rows are ordered by."""
        return queryset

    def get_page_size(self, request: Request) -> int | None:
        """Return how many rows the page may have, at most."""
        asked = super().get_page_size(request)
        return min(asked, self._most_rows) if asked and self._most_rows else asked


class TranscriptPagination(BoundedPagination):
    """A branch's messages by position; `order=newest` starts at the end."""

    ordering = ("position", "id")

    def path_q(self, branch: Branch, request: Request, rows: QuerySet[Message]) -> Q:
        """Return the filter for that part of the branch's path that holds the page of the rows.

        A path of several branches is not read in order by an index; a part of it is soon sorted.
        """
        cursor = self.decode_cursor(request)
        backwards = self.ordering[0].startswith("-")
        offset, place = 0, ""
        if cursor is not None:
            backwards ^= cursor.reverse
            offset, place = cursor.offset, str(cursor.position or "")
        odd = place and (not place.isdecimal() or len(place) > MAX_PLACE_DIGITS)
        if odd or not has_ancestors(branch):
            # What is no position gets its answer where the page is read.
            return path_q(branch)
        most = (self.get_page_size(request) or self.max_page_size) + offset + 1
        rows = rows.only("position")
        if backwards:
            end = int(place) if place else None
            found = rows_before(branch, rows, end=end, most=most)
        else:
            found = rows_from(branch, rows, start=int(place or 0) + 1, most=most)
        if not found:
            return Q(pk__in=[])
        return path_q(branch, after=found[0].position - 1, through=found[-1].position)


class OldestFirstPagination(NewestFirstPagination):
    """The branches of a session in the order they were made."""

    ordering = ("created_at", "id")
