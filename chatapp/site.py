"""The admin site of this project: its front page has room for what the apps have to tell.

It stands outside chatapp.admin, because Django loads it before the first ModelAdmin registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.admin.apps import AdminConfig
from django.http import HttpRequest, HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, URLResolver, path
from django.utils.safestring import SafeString

# Returns a finished piece of the front page; empty where the operator may not see it.
FrontPanel = Callable[[HttpRequest], SafeString | str]
PageView = Callable[..., HttpResponseBase]


class OperatorsSite(AdminSite):
    """Stock admin whose index shows the panels that apps add with `add_front_panel`."""

    site_header = "Palimpsest"
    site_title = "Palimpsest"
    index_title = "Conversations and what is sent of them"
    index_template = "admin/chatapp/front.html"

    def __init__(self, name: str = "admin") -> None:
        super().__init__(name)
        self._front_panels: list[FrontPanel] = []
        self._front_styles: list[str] = []
        self._pages: list[tuple[str, PageView, str]] = []

    def add_front_panel(self, panel: FrontPanel, *, style: str = "") -> FrontPanel:
        """Add a panel to the front page, below those added before; usable as a decorator.

        `style` is the panel's style sheet, named as a static file.
        """
        self._front_panels.append(panel)
        if style:
            self._front_styles.append(style)
        return panel

    def add_page(self, route: str, view: PageView, *, name: str) -> None:
        """Add an address of an app's own, for whoever may enter the admin.

        What else the view asks of them is its own matter. Call it while the apps are loaded: the
        addresses are read once.
        """
        self._pages.append((route, view, name))

    def get_urls(self) -> list[URLPattern | URLResolver]:
        """Return the apps' own addresses before the stock ones, which end in a catch-all."""
        own = [path(route, self.admin_view(view), name=name) for route, view, name in self._pages]
        return [*own, *super().get_urls()]

    def index(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> TemplateResponse:
        """Return the front page."""
        panels = [shown for panel in self._front_panels if (shown := panel(request))]
        context = {"front_panels": panels, "front_styles": self._front_styles if panels else []}
        return super().index(request, context | (extra_context or {}))


class OperatorsAdminConfig(AdminConfig):
    """django.contrib.admin with the site above in the place of the stock one."""

    default_site = "chatapp.site.OperatorsSite"
