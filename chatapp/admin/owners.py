"""An owner's page: what there is of them, what it cost, and how to hand it out or erase it.

Owners are users of whatever kind the project has; who may see sessions may see whose they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Max, Min, Sum
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, URLPattern, path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.extension import admin_extensions
from chatapp.admin.toolkit.model_admin import ReadOnlyAdmin
from chatapp.admin.toolkit.page_parts import Link, Panel
from chatapp.admin.toolkit.permissions import may_see_texts, require_texts
from chatapp.admin.users import may_erase
from chatapp.downloads import text_download
from chatapp.exports import export_sessions
from chatapp.formats import all_exports
from chatapp.keys import ApiKey
from chatapp.models import ImportJob, Session

# The form of an owner's export: one conversation a line, which imports back equal.
EXPORTED_AS = "jsonl"


def owner_url(pk: Any) -> str:
    """Return the address of an owner's page."""
    return html.keyed_url("admin:chatapp_session_owner", pk)


class OwnerPages(ReadOnlyAdmin):
    """Adds the pages of owners to the list of sessions: owner/<id>/, and its export."""

    def get_urls(self) -> list[URLPattern]:
        """Add the addresses."""
        page = self.admin_site.admin_view(self.owner_view)
        export = self.admin_site.admin_view(self.owner_export_view)
        own = [
            path("owner/<str:owner_id>/", page, name="chatapp_session_owner"),
            path("owner/<str:owner_id>/export/", export, name="chatapp_session_owner_export"),
        ]
        return [*own, *super().get_urls()]

    def owner_view(self, request: HttpRequest, owner_id: str) -> HttpResponse:
        """Show what there is of an owner, what the apps know of them, and what can be done."""
        owner = self._owner(request, owner_id)
        panels = [usage_panel(owner)]
        for extension in admin_extensions():
            for draw in extension.owner_panels:
                panels += [panel] if (panel := draw(request, owner)) is not None else []
        return TemplateResponse(
            request,
            "admin/chatapp/owner.html",
            {
                **self.admin_site.each_context(request),
                "title": f"Owner {owner.get_username()}",
                "opts": self.opts,
                "media": self.media,
                "owner": owner,
                "panels": panels,
                "links": links_of(request, owner),
                "export_address": reverse("admin:chatapp_session_owner_export", args=[owner.pk])
                if may_see_texts(request)
                else "",
                "erase_address": erase_address(request, owner),
            },
        )

    def owner_export_view(self, request: HttpRequest, owner_id: str) -> StreamingHttpResponse:
        """Return all conversations of an owner as a file, one a line; texts may be seen in it."""
        owner = self._owner(request, owner_id)
        require_texts(request)
        export = all_exports()[EXPORTED_AS]
        return text_download(
            request,
            export_sessions(_sessions_of(owner), export),
            filename=f"owner-{owner.pk}{export.ending}",
            media_type=export.media_type,
        )

    def _owner(self, request: HttpRequest, owner_id: str) -> Any:
        """Return the user; the same 404 where there is none, and where the id can be none."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        users: Any = get_user_model()
        try:
            owner = users._default_manager.filter(pk=owner_id).first()
        except (ValueError, ValidationError, OverflowError):
            owner = None
        if owner is None:
            raise Http404("There is no such user.")
        return owner


def _sessions_of(owner: Any) -> Iterator[Session]:
    """Yield an owner's sessions, oldest first, one in memory at a time.

    One that is deleted meanwhile is left out.
    """
    rows = Session.objects.filter(owner=owner).order_by("created_at", "pk")
    for key in list(rows.values_list("pk", flat=True)):
        yield from Session.objects.select_related("active_branch").filter(pk=key)


def usage_panel(owner: Any) -> Panel:
    """Return how many conversations there are, how large they are, and when they were used."""
    sums = Session.objects.filter(owner=owner).aggregate(
        messages=Sum("active_branch__message_count"),
        stored=Sum("active_branch__token_total"),
        asked=Sum("request_tokens"),
        first=Min("created_at"),
        last=Max("updated_at"),
    )
    count = Session.objects.filter(owner=owner).count()
    told = [
        ("Sessions", formatting.number(count)),
        ("Messages", formatting.number(sums["messages"] or 0)),
        ("Tokens stored", formatting.number(sums["stored"] or 0)),
        ("Tokens of all next requests", formatting.number(sums["asked"] or 0)),
        ("First session", formatting.when(sums["first"])),
        ("Last active", formatting.when(sums["last"])),
        ("Imports", formatting.number(ImportJob.objects.filter(owner=owner).count())),
        ("API keys", formatting.number(ApiKey.objects.filter(owner=owner).count())),
    ]
    return Panel(title="Usage", body=named_values(told))


def named_values(told: list[tuple[str, Any]]) -> SafeString:
    """Return names and values as a list of terms."""
    return format_html(
        '<dl class="named-values">{}</dl>',
        format_html_join("", "<div><dt>{}</dt><dd>{}</dd></div>", told),
    )


def links_of(request: HttpRequest, owner: Any) -> list[Link]:
    """Return the ways to the owner's sessions, imports and keys, and to the user's own page."""
    links = [Link.to_list("Sessions", Session, owner__id__exact=owner.pk)]
    if _may_view(request, ImportJob):
        links.append(Link.to_list("Imports", ImportJob, q=owner.get_username()))
    if _may_view(request, ApiKey):
        links.append(Link.to_list("API keys", ApiKey, q=owner.get_username()))
    if _may_view(request, type(owner)):
        links.append(Link(label="User", url=html.change_url(type(owner), owner.pk)))
    return links


def _may_view(request: HttpRequest, model: Any) -> bool:
    if not admin.site.is_registered(model):
        return False
    return bool(admin.site.get_model_admin(model).has_view_permission(request))


def erase_address(request: HttpRequest, owner: Any) -> str:
    """Return where erasing is asked for; empty where the operator may not, or there is no page."""
    if not (may_erase(request) and _may_view(request, type(owner))):
        return ""
    try:
        return html.list_url(type(owner))
    except NoReverseMatch:
        return ""
