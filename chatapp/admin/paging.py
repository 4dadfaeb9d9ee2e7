"""Pages of a list without counting the table (spec/stack.md M2)."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db import DataError
from django.db.models import Model, QuerySet
from django.http import HttpRequest

PAGES_AHEAD = 5
FURTHEST_PAGE = 1_000_000

if TYPE_CHECKING:
    _Paginator = Paginator[Any]
else:
    _Paginator = Paginator


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
        """Return the list's rows with the columns of `list_only` and `list_previews`."""
        rows: QuerySet[Any] = super().get_queryset(request, exclude_parameters)
        own: Any = self.model_admin
        lean: QuerySet[Any] = rows.annotate(**own.list_previews).only(*own.list_only)
        return lean

    def get_results(self, request: HttpRequest) -> None:
        """Read the rows; a value of the address that the database cannot take shows all rows."""
        try:
            super().get_results(request)
        except (ValueError, OverflowError, DataError) as error:
            raise IncorrectLookupParameters from error
