"""The admin for tables that grow: nothing is edited, nothing long is listed, nothing is counted.

A subclass names columns, filters, sections, links and tables; this file is the only place that
knows how they are read and shown, and that leaves texts out for operators who may not see them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.admin.utils import flatten_fieldsets
from django.contrib.auth import get_user_model
from django.core.exceptions import FieldDoesNotExist, PermissionDenied
from django.db.models import Q, QuerySet
from django.forms import CheckboxInput, Script
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from chatapp.admin.toolkit.columns import is_text, nameless_field
from chatapp.admin.toolkit.history import told_to, write_entry
from chatapp.admin.toolkit.lists import AheadPaginator, LeanChangeList, page_asked_for
from chatapp.admin.toolkit.page_forms import PageForms
from chatapp.admin.toolkit.page_parts import Link, Panel, Section, Table
from chatapp.admin.toolkit.permissions import (
    TEXTS_HIDDEN,
    is_named_by_people,
    is_text_column,
    may_see_texts,
    name_for,
    nameless,
    permitted_links,
)
from chatapp.ids import id_q
from chatapp.models import Session

TEXT_SEARCH = "text:"
# Django's own head of the column of boxes.
TICK_ALL = format_html('<input type="checkbox" id="action-toggle" aria-label="{}">', "Select all")
MOST_CHOSEN = 100


def sessions_named(request: HttpRequest, text: str) -> QuerySet[Session]:
    """Return the sessions whose owner's name contains the text, or their title."""
    return Session.objects.filter(named_q(request, text))


def named_q(request: HttpRequest, text: str) -> Q:
    """Return the condition for sessions whose owner's name contains the text, or their title.

    A search that finds by a text tells what it says: titles are for whoever may see texts. Owners
    are looked up first: joined, a database would begin with them and sort all sessions.
    """
    users: Any = get_user_model()
    found = Q(owner__in=users._default_manager.filter(username__icontains=text).values("pk"))
    if may_see_texts(request):
        found |= Q(title__icontains=text)
    return found


class ReadOnlyAdmin(PageForms):
    """Lists and pages to look at; what may be done are actions and a page's own forms."""

    paginator = AheadPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    list_max_show_all = 50
    change_form_template = "admin/chatapp/detail.html"
    change_list_template = "admin/chatapp/list.html"
    object_history_template = "admin/chatapp/history.html"
    ordering: ClassVar[tuple[str, ...]] = ("-created_at", "-id")
    sortable_by: ClassVar[tuple[str, ...]] = ("created_at",)
    search_help_text = "The beginning or end of an id, a session's title or its owner."

    class Media:
        js = [Script("chatapp/live.js", type="module")]

    list_only: tuple[str, ...] = ()
    """Columns that a list reads besides those that its own columns say they read."""
    list_previews: Mapping[str, Any] = {}
    """Beginnings of long texts, cut by the database."""
    id_paths: tuple[str, ...] = ("id", "session")
    """Id columns that the search compares."""
    session_path = "session"
    """The way to the session whose title and owner the search compares."""
    text_paths: tuple[str, ...] = ()
    """Long texts that `text: …` searches."""
    sections: tuple[Section, ...] = ()
    detail_actions: tuple[str, ...] = ()
    """Actions that a row's own page offers as buttons."""

    # --- what may be done -------------------------------------------------------------------------

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody adds rows here."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody edits rows here."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nothing stored is lost."""
        return False

    # --- texts ------------------------------------------------------------------------------------

    def _permitted(self, request: HttpRequest, name: Any) -> Any:
        """Return a column's name, what stands in its place for the operator, or None."""
        if may_see_texts(request):
            return name
        cell = getattr(type(self), str(name), None)
        if is_text(cell):
            return getattr(cell, "instead", None)
        fields = {field.name: field for field in self.opts.concrete_fields}
        field = fields.get(str(name)) if cell is None else None
        related: Any = field.related_model if field is not None else None
        if related is not None and is_named_by_people(related):
            return nameless_field(field)
        return name

    def texts_hidden(
        self, request: HttpRequest, panels: Iterable[Panel] = (), tables: Iterable[Table] = ()
    ) -> str:
        """Return the sentence for an operator from whom texts of these rows are withheld."""
        if may_see_texts(request):
            return ""
        fields = [name for section in self.sections for name in section.fields]
        cells = (getattr(type(self), str(name), None) for name in (*self.list_display, *fields))
        marked = (*map(is_text, cells), *(each.is_text for each in panels))
        return TEXTS_HIDDEN if any((*marked, *(each.texts for each in tables))) else ""

    # --- lists ------------------------------------------------------------------------------------

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        """Return the columns, texts as far as the operator may see them."""
        shown = (self._permitted(request, name) for name in self.list_display)
        return [each for each in shown if each is not None]

    def get_list_display_links(self, request: HttpRequest, list_display: Any) -> Any:
        """Return the columns that lead to the row's page."""
        links = super().get_list_display_links(request, list_display)
        return [self._permitted(request, name) for name in links or ()]

    def list_links(self, request: HttpRequest) -> list[Link]:
        """Return the ways from the list to other pages."""
        return []

    @admin.display(description=TICK_ALL)
    def action_checkbox(self, obj: Any) -> SafeString:
        """Return the box that selects a row, for screen readers without the row's texts."""
        told = {"class": "action-select", "aria-label": f"Select {nameless(obj)}"}
        box = CheckboxInput(told, check_test=lambda value: False)
        return box.render(ACTION_CHECKBOX_NAME, str(obj.pk))

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Return the list under the name of its rows, and say whether texts are left out."""
        told = {
            "title": capfirst(self.opts.verbose_name_plural),
            "texts_hidden": self.texts_hidden(request),
            "list_links": self.list_links(request),
        }
        return super().changelist_view(request, told | (extra_context or {}))

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[LeanChangeList]:
        """Return the list that reads only its own columns."""
        return LeanChangeList

    def columns_read(self) -> tuple[str, ...]:
        """Return the database's columns that a list reads; no other is read."""
        names = {field.name for field in self.opts.get_fields()}
        found = [*self.list_only]
        for name in self.list_display:
            declared = getattr(type(self), str(name), None)
            found += getattr(declared, "reads", [name] if name in names else [])
        return tuple(found)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Allow the addresses of `one_row` filters over two relations too.

        Nobody finds rows by a text that they may not see: that tells what it says.
        """
        own = {getattr(each, "parameter_name", None) for each in self.list_filter or ()}
        if lookup in own:
            return True
        try:
            column = self.opts.get_field(lookup.partition("__")[0])
        except FieldDoesNotExist:
            return super().lookup_allowed(lookup, value, request)
        if is_text_column(column) and not may_see_texts(request):  # type: ignore[arg-type]
            return False
        return super().lookup_allowed(lookup, value, request)

    def get_paginator(
        self,
        request: HttpRequest,
        queryset: QuerySet[Any],
        per_page: int,
        orphans: int = 0,
        allow_empty_first_page: bool = True,
    ) -> AheadPaginator:
        """Return the paginator, told which page it is near."""
        return AheadPaginator(
            queryset, per_page, orphans, allow_empty_first_page, near=page_asked_for(request)
        )

    def get_search_fields(self, request: HttpRequest) -> tuple[str, ...]:
        """Say that there is a search; get_search_results is the search."""
        return ("id",)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search ids by either end, sessions by title and owner; `text: …` searches texts."""
        wanted = search_term.strip()
        if not wanted:
            return queryset, False
        if self.text_paths and wanted.lower().startswith(TEXT_SEARCH):
            if not may_see_texts(request):
                return queryset.none(), False
            text = wanted[len(TEXT_SEARCH) :].strip()
            found = Q()
            for path in self.text_paths:
                found |= Q(**{f"{path}__icontains": text})
            return queryset.filter(found), False
        return queryset.filter(self.search_q(request, wanted)), False

    def search_q(self, request: HttpRequest, wanted: str) -> Q:
        """Return the condition of an ordinary search."""
        found = self._of_sessions(sessions_named(request, wanted))
        return found | id_q(self.model, wanted, *self.id_paths)

    def _of_sessions(self, sessions: QuerySet[Session]) -> Q:
        """Return the condition for rows of the sessions, over the row's own column alone.

        A joined column among others that are alternatives would keep the database from its indexes.
        """
        own, _, further = self.session_path.partition("__")
        keys: QuerySet[Any] = sessions
        if further:
            between: Any = self.model._meta.get_field(own).related_model
            keys = between._default_manager.filter(**{f"{further}__in": sessions.values("pk")})
        return Q(**{f"{own}__in": keys.values("pk")})

    # --- pages ------------------------------------------------------------------------------------

    def get_sections(self, request: HttpRequest, obj: Any) -> tuple[Section, ...]:
        """Return the groups of fields of a row's page."""
        return self.sections

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the sections without what is empty, and without texts that may not be seen."""
        shown: list[Any] = []
        for section in self.get_sections(request, obj):
            optional = section.optional or {}
            filled = (
                self._permitted(request, name)
                for name in section.fields
                if name not in optional or getattr(obj, optional[name], None)
            )
            names = [name for name in filled if name is not None]
            if names:
                shown.append((section.title, {"fields": names}))
        return shown

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Every field is only shown."""
        return flatten_fieldsets(self.get_fieldsets(request, obj))

    def viewed_row(self, request: HttpRequest, object_id: str) -> Any:
        """Return the row of a page of its own. Raises PermissionDenied; Http404 without a row."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        row = self.get_object(request, object_id)
        if row is None:
            raise Http404
        return row

    def links_for(self, request: HttpRequest, obj: Any) -> list[Link]:
        """Return the ways from a row's page to others."""
        return []

    def notices_for(self, request: HttpRequest, obj: Any) -> list[SafeString | str]:
        """Return sentences that stand above everything else of a row's page."""
        return []

    def live_words(self, request: HttpRequest, obj: Any) -> str:
        """Return how far work at the row is, while it is under way: then its page refreshes."""
        return ""

    def panels_for(self, request: HttpRequest, obj: Any) -> list[Panel]:
        """Return what stands above a row's fields: drawings, and what may be done."""
        return []

    def tables_for(self, request: HttpRequest, obj: Any) -> list[Table]:
        """Return the tables below a row's fields."""
        return []

    def buttons_for(self, request: HttpRequest, obj: Any) -> list[str]:
        """Return the names of the actions that make sense for the row."""
        return list(self.detail_actions)

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Any = None,
    ) -> HttpResponse:
        """Add links, buttons, panels, forms and tables to a row's page."""
        if obj is not None and change:
            labels = {
                name: action[2] for name, action in self.get_actions(request).items() if action
            }
            panels, tables = self.panels_for(request, obj), self.tables_for(request, obj)
            hidden = self.texts_hidden(request, panels, tables)
            context |= {
                "title": capfirst(self.opts.verbose_name),
                "subtitle": name_for(request, obj),
                "detail_links": permitted_links(request, self.links_for(request, obj)),
                "live_words": self.live_words(request, obj),
                "detail_notices": [*([hidden] if hidden else []), *self.notices_for(request, obj)],
                "detail_panels": permitted_panels(request, panels),
                "detail_forms": self.forms_shown(request, obj),
                "detail_tables": permitted_tables(request, tables),
                "detail_buttons": [
                    (name, labels[name])
                    for name in self.buttons_for(request, obj)
                    if name in labels
                ],
                "list_address": reverse(
                    f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist"
                ),
            }
        return super().render_change_form(request, context, add, change, form_url, obj)

    # --- history ----------------------------------------------------------------------------------

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> LogEntry:
        """Note in the history what was done with a row, without its texts."""
        return write_entry(request, obj, CHANGE, message)

    def log_deletions(self, request: HttpRequest, queryset: Any) -> list[LogEntry]:
        """Note in the history which rows were deleted, without their texts."""
        return [write_entry(request, row, DELETION) for row in queryset]

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Return who did what with a row; its name is what the operator may see of it."""
        response: Any = super().history_view(request, object_id, extra_context)
        context = getattr(response, "context_data", None)
        if context:
            row, page = context["object"], context["action_list"]
            context["title"] = f"Change history: {name_for(request, row)}"
            context["row_name"] = name_for(request, row)
            page.object_list = told_to(request, row, page.object_list)
        answered: HttpResponse = response
        return answered

    # --- actions ----------------------------------------------------------------------------------

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Any], *args: Any, **kwargs: Any
    ) -> HttpResponse | None:
        """After a button of a row's page, go back to that page."""
        response = super().response_action(request, queryset, *args, **kwargs)
        chosen = request.POST.getlist("_selected_action")
        if "from_page" in request.POST and len(chosen) == 1 and response is not None:
            name = f"admin:{self.opts.app_label}_{self.opts.model_name}_change"
            return HttpResponseRedirect(reverse(name, args=chosen))
        return response

    def chosen(self, request: HttpRequest, queryset: QuerySet[Any], *related: str) -> list[Any]:
        """Return the rows an action works on, whole; none, and a message, for too many."""
        keys = list(queryset.values_list("pk", flat=True)[: MOST_CHOSEN + 1])
        if len(keys) > MOST_CHOSEN:
            self.message_user(
                request,
                f"Nothing was done: more than {MOST_CHOSEN} rows are selected. "
                "Select fewer, or use the API or a management command.",
                level="error",
            )
            return []
        rows = self.model._default_manager.filter(pk__in=keys)
        return list(rows.select_related(*related) if related else rows)


def permitted_panels(request: HttpRequest, panels: Iterable[Panel]) -> list[Panel]:
    """Return the panels; those of texts only say so to an operator who may not see them."""
    if may_see_texts(request):
        return list(panels)
    return [Panel.saying(each.title, TEXTS_HIDDEN) if each.is_text else each for each in panels]


def permitted_tables(request: HttpRequest, tables: Iterable[Table]) -> list[Table]:
    """Return the tables, without their texts for an operator who may not see them."""
    if may_see_texts(request):
        return list(tables)
    return [each.without_texts() for each in tables]


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
