"""What all views share: an owner sees only their own, in pages that are stable as rows arrive."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import DataError
from django.db.models import Q, QuerySet
from django.http import Http404
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.exceptions import ValidationError as InvalidRequest
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.views import APIView

from chatapp.conf import chatapp_settings
from chatapp.database import long_columns, stored_bytes
from chatapp.models import Branch, Message, Session
from chatapp.selectors import has_ancestors, path_q, rows_before, rows_from

MAX_KEY_CHARS = 200
MAX_NAME_CHARS = 60


def sessions_of(user: Any) -> QuerySet[Session]:
    """Return the user's own sessions; staff rights give nothing here, only in the admin."""
    return Session.objects.filter(owner=user).select_related("active_branch")


def refuse_unknown(given: Iterable[str], known: Iterable[str], *, what: str) -> None:
    """Raise ValidationError for each name that there is not, with the one that may be meant."""
    names = sorted(known)
    wrong: dict[str, list[str]] = {}
    for name in given:
        if name in names:
            continue
        near = get_close_matches(name, names, n=1)
        there_are = f"There are: {', '.join(names)}." if names else "It takes none."
        hint = f"Did you mean {near[0]!r}?" if near else there_are
        wrong[name] = [f"There is no {what} {name[:MAX_NAME_CHARS]!r}. {hint}"]
    if wrong:
        raise InvalidRequest(wrong)


class KnownFields(serializers.Serializer[Any]):
    """Refuses fields that it does not have: what was misspelt would go unnoticed.

    Those that are only read may come back; `also` are names that a serializer takes besides.
    """

    also: tuple[str, ...] = ()

    def to_internal_value(self, data: Any) -> Any:
        """Return the validated fields; raise ValidationError with a suggestion for another name."""
        if isinstance(data, Mapping):
            refuse_unknown(map(str, data), (*self.fields, *self.also), what="field")
        return super().to_internal_value(data)


class KnownQueryView(APIView):
    """A view that refuses query parameters which it does not read.

    Those of its pages and of its filter are known; `query` are its own.
    """

    query: tuple[str, ...] = ()

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Look at the parameters before anything is done."""
        super().initial(request, *args, **kwargs)
        refuse_unknown(request.query_params, self._known(), what="query parameter")

    def _known(self) -> set[str]:
        pages = getattr(self, "pagination_class", None)
        known = {*self.query, *_FORMAT}
        if pages is not None:
            known |= {pages.cursor_query_param, pages.page_size_query_param}
        known |= set(getattr(self, "filterset_fields", ()))
        filters = getattr(self, "filterset_class", None)
        return known | (set(filters.base_filters) if filters is not None else set())


# What REST framework itself reads of any address.
_FORMAT = ("format",)


class SessionView(KnownQueryView):
    """A view below sessions/{id}/."""

    def get_session(self) -> Session:
        """Return the session of the address, or 404 where it is missing or somebody else's."""
        try:
            return sessions_of(self.request.user).get(pk=self.kwargs["session_id"])
        except Session.DoesNotExist as error:
            raise Http404 from error


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

    def paginate_queryset(
        self, queryset: Any, request: Request, view: Any = None
    ) -> list[Any] | None:
        """Return the rows of a page; 404 also for a cursor whose place is no time or number."""
        try:
            return super().paginate_queryset(queryset, request, view)
        except (ValueError, OverflowError, ValidationError, DataError) as error:
            raise NotFound(self.invalid_cursor_message) from error


class TranscriptPagination(NewestFirstPagination):
    """A branch's messages by position; `order=newest` starts at the end.

    A page ends early where more rows would bring more than MAX_PAGE_BYTES; it has one at least.
    """

    ordering = ("position", "id")
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
            sized = queryset.values("position", "id").annotate(size=stored_bytes(columns))
            sizes = [row["size"] for row in super().paginate_queryset(sized, request, view) or ()]
            if self.cursor is not None and self.cursor.reverse:
                sizes.reverse()  # it is read from its end
            sums = itertools.accumulate(sizes)
            self._most_rows = sum(total <= chatapp_settings.max_page_bytes for total in sums) or 1
        return super().paginate_queryset(queryset, request, view)

    def get_page_size(self, request: Request) -> int | None:
        """Return how many rows the page may have, at most."""
        asked = super().get_page_size(request)
        return min(asked, self._most_rows) if asked and self._most_rows else asked

    def path_q(self, branch: Branch, request: Request) -> Q:
        """Return the filter for that part of the branch's path that holds the page asked for.

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
        rows = Message.objects.only("position")
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
