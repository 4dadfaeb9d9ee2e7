"""Filters of lists: columns that cost little, and one session or branch by its id."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from chatapp.formatting import day_range
from chatapp.llm.registry import all_models


class CreatedSince(admin.SimpleListFilter):
    """Newer than some days: a range of the index that orders the list (no date_hierarchy, M3)."""

    title = "created"
    parameter_name = "since"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the spans of days."""
        return [
            ("1", "In the last 24 hours"),
            ("7", "In the last 7 days"),
            ("30", "In the last 30 days"),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep what is newer."""
        if self.value() in ("1", "7", "30"):
            since = timezone.now() - timedelta(days=int(self.value() or 0))
            return queryset.filter(created_at__gte=since)
        return queryset


class Day(admin.SimpleListFilter):
    """Days of UTC: ?day=2026-11-27, or ?day=2026-11-01..2026-11-30 with both ends.

    A range of the index that orders the list. Shown only while it is in force.
    """

    title = "day (UTC)"
    parameter_name = "day"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, str]]:
        """Return the days in force, or nothing."""
        wanted = request.GET.get(self.parameter_name, "")
        return [(wanted, wanted.replace("..", " to "))] if wanted else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep the rows of these days; what is no day has none."""
        wanted = self.value()
        if not wanted:
            return queryset
        first, _, last = wanted.partition("..")
        try:
            days = date.fromisoformat(first), date.fromisoformat(last or first)
            start, end = day_range(*days)
        except (ValueError, OverflowError):
            return queryset.none()
        return queryset.filter(created_at__gte=start, created_at__lt=end)


def days_value(first: date, last: date) -> str:
    """Return what the address of a list says for a span of days, both ends included."""
    return first.isoformat() if first == last else f"{first.isoformat()}..{last.isoformat()}"


class ModelAlias(admin.SimpleListFilter):
    """The session's model: aliases come from the settings, not from reading the table."""

    title = "model"
    parameter_name = "model"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the configured aliases."""
        return [(alias, alias) for alias in all_models()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep sessions of one alias."""
        return queryset.filter(model=self.value()) if self.value() else queryset


def choices_titled(name: str) -> type[admin.ChoicesFieldListFilter]:
    """Return a filter by a column's choices whose title is not the column's name."""

    class Titled(admin.ChoicesFieldListFilter):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.title = name

    return Titled


class OneRow(admin.SimpleListFilter):
    """Rows of one other row, named by id in the address; shown only while it is in force."""

    model: type[Model]
    path: str

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, str]]:
        """Return the row in force, or nothing: there is no list of all of them."""
        wanted = request.GET.get(str(self.parameter_name), "")
        return [(wanted, f"{str(self.title).capitalize()} {wanted[:8]}")] if wanted else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep the rows of the one; an id that cannot be one has none."""
        wanted = self.value()
        if not wanted:
            return queryset
        try:
            key = self.model._meta.pk.to_python(wanted)
        except (ValidationError, ValueError, TypeError):
            return queryset.none()
        return queryset.filter(**{self.path: key})


def one_row(model: type[Model], path: str) -> type[OneRow]:
    """Return the filter for rows whose `path` is one row of `model`: ?session__id__exact=…"""
    name = path.rsplit("__", 1)[-1].replace("_", " ")
    return type(
        f"One{model.__name__}",
        (OneRow,),
        {"title": name, "parameter_name": f"{path}__id__exact", "model": model, "path": path},
    )


def hex_range(text: str) -> tuple[UUID, UUID] | None:
    """Return the first and last id that begin with the text; None when it begins no id.

    A range, because a UUID column of PostgreSQL knows no LIKE, and an index serves it everywhere.
    """
    digits = text.replace("-", "").lower()
    if not 4 <= len(digits) <= 32 or set(digits) - set("0123456789abcdef"):
        return None
    return UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
