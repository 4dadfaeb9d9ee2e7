"""Lists that need the window's whole width."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse

from chatapp.admin.base import ReadOnlyAdmin


class WideList(ReadOnlyAdmin):
    """A list without the sidebar of all models; the path above it leads there too."""

    class Media:
        css = {"all": ["chatapp/wide_list.css"]}

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Return the list."""
        wide = {"is_nav_sidebar_enabled": False}
        return super().changelist_view(request, wide | (extra_context or {}))
