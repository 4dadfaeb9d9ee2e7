"""Cursor pages: stable while rows arrive, no counting."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.db import DataError
from django.db.models import Q
from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request

from chatapp.models import Branch, Message
from chatapp.selectors import has_ancestors, path_q, rows_before, rows_from

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
    """A branch's messages by position; `order=newest` starts at the end."""

    ordering = ("position", "id")

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
