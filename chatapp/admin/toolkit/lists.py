"""Lists of large tables: pages without counting, only the columns shown, cheap filters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db import DataError
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from chatapp.formatting import day_range
from chatapp.ids import short_id
from chatapp.llm.registry import all_models

if TYPE_CHECKING:
    _Paginator = Paginator[Any]
else:
    _Paginator = Paginator

PAGES_AHEAD = 5
FURTHEST_PAGE = 1_000_000


class AheadPaginator(_Paginator):
    """Looks PAGES_AHEAD pages ahead of the shown one; of the rest it says only `has_more`."""

    def __init__(self, *args: Any, near: int = 1, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._before = (min(max(near, 1), FURTHEST_PAGE) - 1) * int(self.per_page)

    @cached_property
    def _found_ahead(self) -> int:
        """Rows from the shown page on, one more than is told so that "more" is known."""
        rows: QuerySet[Model] = self.object_list  # type: ignore[assignment]
        keys = rows.order_by().values_list("pk", flat=True)
        return len(keys[self._before : self._before + self._reach + 1])

    @property
    def _reach(self) -> int:
        return int(self.per_page) * PAGES_AHEAD

    @cached_property
    def count(self) -> int:
        """Rows as far as was looked."""
        return self._before + min(self._found_ahead, self._reach)

    @property
    def has_more(self) -> bool:
        """Whether there are rows beyond `count`."""
        return self._found_ahead > self._reach


def page_asked_for(request: HttpRequest) -> int:
    """Return the page number of a list (`p`) or of a choice box (`page`); 1 for anything odd."""
    text = request.GET.get("p") or request.GET.get("page") or "1"
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 1


class LeanChangeList(ChangeList):
    """Reads only the columns a list shows, with long texts shortened by the database."""

    def get_queryset(
        self, request: HttpRequest, exclude_parameters: list[str | None] | None = None
    ) -> QuerySet[Any]:
        """Return the list's rows with the columns that it reads, and its `list_previews`."""
        rows: QuerySet[Any] = super().get_queryset(request, exclude_parameters)
        own: Any = self.model_admin
        lean: QuerySet[Any] = rows.annotate(**own.list_previews).only(*own.columns_read())
        return lean

    @property
    def counted(self) -> str:
        """How many rows the list has, as far as was looked, for people."""
        return f"{self.result_count:,}"

    def get_results(self, request: HttpRequest) -> None:
        """Read the rows; a value of the address that the database cannot take shows all rows."""
        try:
            super().get_results(request)
        except (ValueError, OverflowError, DataError) as error:
            raise IncorrectLookupParameters from error


Choices = Callable[[], Iterable[tuple[str, str]]]
Condition = Callable[[], Q]
Filter = type[admin.SimpleListFilter]


def by_value(title: str, path: str, choices: Choices, *, parameter: str = "") -> Filter:
    """Return a filter by a column's value; `choices` are known, so the table is not read for them.

    `parameter` is its name in the address where that is not the column's.
    """

    class ByValue(admin.SimpleListFilter):
        def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
            return list(choices())

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            return queryset.filter(**{path: self.value()}) if self.value() else queryset

    ByValue.title, ByValue.parameter_name = title, parameter or path
    return ByValue


def by_condition(
    title: str, parameter: str, offered: Mapping[str, tuple[str, Condition]]
) -> Filter:
    """Return a filter by conditions: the value in the address, its label, which rows it keeps."""

    class ByCondition(admin.SimpleListFilter):
        def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
            return [(value, label) for value, (label, _) in offered.items()]

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            found = offered.get(self.value() or "")
            return queryset.filter(found[1]()) if found else queryset

    ByCondition.title, ByCondition.parameter_name = title, parameter
    return ByCondition


def _newer_than(days: int) -> Condition:
    return lambda: Q(created_at__gte=timezone.now() - timedelta(days=days))


CREATED_SINCE = by_condition(
    "created",
    "since",
    {
        "1": ("In the last 24 hours", _newer_than(1)),
        "7": ("In the last 7 days", _newer_than(7)),
        "30": ("In the last 30 days", _newer_than(30)),
    },
)
"""Newer than some days: a range of the index that orders the list; a date_hierarchy is none."""


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


BY_MODEL = by_value("model", "model", lambda: ((alias, alias) for alias in all_models()))
"""The session's model: aliases come from the settings, not from reading the table."""


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
        return [(wanted, f"{str(self.title).capitalize()} {short_id(wanted)}")] if wanted else []

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
