"""The admin site of this project: its front page has room for what the apps have to tell.

It stands outside chatapp.admin, because Django loads it before the first ModelAdmin registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.admin.apps import AdminConfig
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.safestring import SafeString

# Returns a finished piece of the front page; empty where the operator may not see it.
FrontPanel = Callable[[HttpRequest], SafeString | str]


class OperatorsSite(AdminSite):
    """Stock admin whose index shows the panels that apps add with `add_front_panel`."""

    site_header = "Palimpsest"
    site_title = "Palimpsest"
    index_title = "Conversations and what is sent of them"
    index_template = "admin/chatapp/front.html"

    def __init__(self, name: str = "admin") -> None:
        super().__init__(name)
        self._front_panels: list[FrontPanel] = []

    def add_front_panel(self, panel: FrontPanel) -> FrontPanel:
        """Add a panel to the front page, below those added before; usable as a decorator."""
        self._front_panels.append(panel)
        return panel

    def index(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> TemplateResponse:
        """Return the front page."""
        panels = [panel(request) for panel in self._front_panels]
        return super().index(request, {"front_panels": panels, **(extra_context or {})})


class OperatorsAdminConfig(AdminConfig):
    """django.contrib.admin with the site above in the place of the stock one."""

    default_site = "chatapp.site.OperatorsSite"
