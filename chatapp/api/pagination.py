"""Cursor pages: stable while rows arrive, no counting."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.db import DataError
from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request


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


class OldestFirstPagination(NewestFirstPagination):
    """The branches of a session in the order they were made."""

    ordering = ("created_at", "id")
