"""Cursor pages: stable while rows arrive, no counting."""

from __future__ import annotations

from rest_framework.pagination import CursorPagination


class NewestFirstPagination(CursorPagination):
    """{next, previous, results}, newest first; `page_size` up to 200."""

    ordering = ("-created_at", "-id")
    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 200


class TranscriptPagination(NewestFirstPagination):
    """A branch's messages by position; `order=newest` starts at the end."""

    ordering = ("position", "id")
