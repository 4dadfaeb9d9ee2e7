"""The admin site of this project: its front page shows what the apps have to tell.

It stands outside chatapp.admin, because Django loads it before the first ModelAdmin registers; so
it imports of the admin only where it answers.
"""

from __future__ import annotations

from typing import Any

from django.contrib.admin import AdminSite, autodiscover
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.contrib.admin.views.autocomplete import AutocompleteJsonView
from django.core import checks
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, URLResolver, path


class NamesForChoice(AutocompleteJsonView):
    """Django's answer to boxes that look for rows; rows are called what the operator may see.

    It answers for every foreign key of a table that has a page, whether a box asks or not.
    """

    def serialize_result(self, obj: Model, to_field_name: str) -> dict[str, str]:
        """Return what a box needs of a row."""
        from chatapp.admin.toolkit.permissions import name_for

        found: dict[str, str] = super().serialize_result(obj, to_field_name)
        return found | {"text": name_for(self.request, obj)}


class OperatorsSite(AdminSite):
    """Stock admin whose index shows the panels of the apps that join, and that has their pages."""

    site_header = "Palimpsest"
    site_title = "Palimpsest"
    index_title = "Conversations and what is sent of them"
    index_template = "admin/chatapp/front.html"

    def get_urls(self) -> list[URLPattern | URLResolver]:
        """Return the apps' own addresses before the stock ones, which end in a catch-all."""
        from chatapp.admin.toolkit.extension import admin_extensions

        pages = [page for extension in admin_extensions() for page in extension.pages]
        own = [path(page.route, self.admin_view(page.view), name=page.name) for page in pages]
        return [*own, *super().get_urls()]

    def autocomplete_view(self, request: HttpRequest) -> HttpResponse:
        """Return rows for a box that looks for them."""
        answered: Any = NamesForChoice.as_view(admin_site=self)(request)
        shown: HttpResponse = answered
        return shown

    def get_log_entries(self, request: HttpRequest) -> Any:
        """Return what the front page tells of the operator's own actions."""
        from chatapp.admin.toolkit.history import own_entries

        return own_entries(request, super().get_log_entries(request))

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """Return the groups of the index and the sidebar; of one app, its tables."""
        from chatapp.admin.front_index import groups_for

        apps: list[Any] = super().get_app_list(request, app_label)
        return apps if app_label else groups_for(request, apps)

    def index(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> TemplateResponse:
        """Return the front page."""
        from chatapp.admin.toolkit.extension import admin_extensions

        panels = [panel for extension in admin_extensions() for panel in extension.front_panels]
        drawn = [shown for panel in panels if (shown := panel.draw(request))]
        styles = [panel.style for panel in panels if panel.style] if drawn else []
        tables = [(app["name"], app["app_url"]) for app in super().get_app_list(request)]
        context = {"front_panels": drawn, "front_styles": styles, "all_tables": tables}
        return super().index(request, context | (extra_context or {}))


class OperatorsAdminConfig(SimpleAdminConfig):
    """django.contrib.admin with the site above in the place of the stock one.

    Its pages are loaded by chatapp/urls.py, and by the checks: a command that shows no page starts
    without them.
    """

    default_site = "chatapp.site.OperatorsSite"

    def ready(self) -> None:
        """Register the stock checks, each behind the loading of the pages that it looks at."""
        checks.register(check_dependencies, checks.Tags.admin)
        checks.register(check_pages, checks.Tags.admin)


def check_pages(app_configs: Any, **kwargs: Any) -> list[checks.CheckMessage]:
    """Load the pages of all apps, and return what is wrong with them."""
    autodiscover()
    found: list[checks.CheckMessage] = check_admin_app(app_configs, **kwargs)
    return found
