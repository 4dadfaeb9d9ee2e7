"""Sessions and their branches: whose they are, how large they are, where their messages stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.options import IS_POPUP_VAR
from django.db.models import CASCADE, Q, QuerySet
from django.forms import Media
from django.http import HttpRequest
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.branch_forms import BRANCH_FORMS
from chatapp.admin.messages import all_sent, messages_panel, messages_url
from chatapp.admin.owners import OwnerPages, owner_url
from chatapp.admin.session_list import SessionListPage
from chatapp.admin.timeline import timeline_url
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.columns import IN_SESSION, SHORT_ID, Cells, column, table_of
from chatapp.admin.toolkit.extension import MessageView, session_parts
from chatapp.admin.toolkit.lists import CREATED_SINCE, one_row
from chatapp.admin.toolkit.model_admin import WideList, named_q
from chatapp.admin.toolkit.page_forms import PageForm
from chatapp.admin.toolkit.page_parts import Link, Panel, Section, Table
from chatapp.admin.toolkit.path_pages import request_url
from chatapp.admin.toolkit.permissions import (
    link_for,
    nameless,
    nameless_link,
)
from chatapp.admin.tree_page import TreeOfSession, tree_url
from chatapp.compiled import compiled_read
from chatapp.ids import id_q
from chatapp.llm.registry import UnknownModelError, get_model
from chatapp.llm.tokens import describe_counter
from chatapp.models import Branch, Message, Session
from chatapp.selectors import counter_of

BRANCHES_SHOWN = 50
STYLES = (
    "chatapp/session.css",
    "chatapp/session_list.css",
    "chatapp/timeline.css",
    "chatapp/tree.css",
)

REPLAYS_SHOWN = 10


@admin.register(Session)
class SessionAdmin(SessionListPage, OwnerPages, TreeOfSession):
    """One conversation of one owner; only superusers may delete it, with all that hangs on it."""

    id_paths = ("id",)
    sections = (
        Section(title=None, fields=("title_shown", "short_id", "owner_name", "model", "api_name")),
        Section(
            title="Size",
            fields=("active_branch", "messages", "tokens", "request_size", "token_counting"),
        ),
        Section(title="Times", fields=("created_at", "updated_at")),
        Section(
            title="Sent with every request",
            fields=("prompt_text", "tools_json"),
            optional={"prompt_text": "system_prompt", "tools_json": "tools"},
        ),
        Section(title="More", fields=("metadata_json",), optional={"metadata_json": "metadata"}),
    )

    short_id = SHORT_ID
    api_name = column("API", lambda session: str(session.get_api_display()))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Session]:
        """Return sessions with what every page shows of their owner and branch, in one query."""
        rows: QuerySet[Session] = super().get_queryset(request)
        return rows.select_related("owner", "active_branch")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Only superusers delete conversations."""
        return bool(request.user.is_active and getattr(request.user, "is_superuser", False))

    def search_q(self, request: HttpRequest, wanted: str) -> Q:
        """Search the session itself."""
        return named_q(request, wanted) | id_q(Session, wanted, "id")

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Name the sessions and count what goes with them: listing 400 000 rows helps nobody."""
        sessions = list(objs)
        keys = [session.pk for session in sessions]
        counts = {str(Session._meta.verbose_name_plural): len(keys)}
        for relation in Session._meta.related_objects:
            if relation.on_delete is CASCADE and relation.field.name == "session":
                model = relation.related_model
                rows = model._default_manager.filter(session__in=keys)
                counts[str(model._meta.verbose_name_plural)] = rows.count()
        return [str(session) for session in sessions], counts, set(), []

    title_shown = column("Title", "title", lambda title: title or "—", is_text=True)

    @admin.display(description="Tokens")
    def tokens(self, session: Session) -> str:
        """Return the active branch's tokens; a stored sum."""
        branch = session.active_branch
        return formatting.number(branch.token_total if branch else None)

    request_size = column(
        "Next request", "request_tokens", lambda tokens: f"about {tokens:,} tokens"
    )

    @admin.display(description="Tokens are")
    def token_counting(self, session: Session) -> str:
        """Say how the session's tokens are counted, and when its model is not known."""
        counted = describe_counter(counter_of(session))
        try:
            get_model(session.model)
        except UnknownModelError as error:
            return f"{error} Until then this counts: {counted}"
        return counted

    prompt_text = column("System prompt", "system_prompt", html.stored_text)
    tools_json = column("Tools", "tools", html.stored_json)
    metadata_json = column("Metadata", "metadata", html.stored_json)

    # --- what other apps add ----------------------------------------------------------------------

    @property
    def media(self) -> Media:
        """Return the style sheets, those of the other apps' parts among them."""
        found: Media = super().media + Media(css={"all": STYLES})
        for part in session_parts():
            found += Media(css={"all": part.styles})
        return found

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Add what the operator may do with sessions, by the other apps."""
        found: dict[str, Any] = super().get_actions(request)
        if IS_POPUP_VAR not in request.GET:
            offered = [each for part in session_parts() for each in part.actions]
            found |= {
                each.name: (each.do, each.name, each.label) for each in offered if each.may(request)
            }
        return found

    def forms_of_page(self) -> Mapping[str, PageForm]:
        """Return the forms of the other apps."""
        return {name: form for part in session_parts() for name, form in part.forms.items()}

    # --- page -------------------------------------------------------------------------------------

    def links_for(self, request: HttpRequest, obj: Session) -> list[Link]:
        """Return the ways to the next request, to the messages, in order, and to all branches."""
        url = request_url(obj)
        links = [Link(label="What the next request sends", url=url, needs_texts=True)]
        if obj.active_branch_id:
            links.append(Link(label="Messages in order", url=messages_url(obj.active_branch_id)))
        links += [
            Link(label="Timeline", url=timeline_url(obj)),
            Link(label="Tree", url=tree_url(obj)),
            Link.to_list("Branches", Branch, session__id__exact=obj.pk),
            Link(label="Owner", url=owner_url(obj.owner_id)),
        ]
        return [*links, *(link for part in session_parts() for link in part.links(obj))]

    def live_words(self, request: HttpRequest, obj: Session) -> str:
        """Say what the other apps are doing with the session."""
        return " ".join(words for part in session_parts() if (words := part.live(obj)))

    def panels_for(self, request: HttpRequest, obj: Session) -> list[Panel]:
        """Return the other apps' panels, the timeline's newest entries, a page of the messages."""
        further = [panel for part in session_parts() for panel in part.panels(request, obj)]
        views = [view for part in session_parts() if (view := part.messages(request, obj))]
        view = views[-1] if views else MessageView(statuses=all_sent)
        return [*further, self.timeline_panel(request, obj), messages_panel(request, obj, view)]

    def tables_for(self, request: HttpRequest, obj: Session) -> list[Table]:
        """Return the other apps' tables, and the branches, oldest first."""
        further = [table for part in session_parts() for table in part.tables(obj)]
        rows = _oldest_branches(session=obj.pk, most=BRANCHES_SHOWN + 1)
        return [*further, branch_table(request, rows, obj)]


@compiled_read
def _oldest_branches(*, session: UUID) -> QuerySet[Branch]:
    return Branch.objects.filter(session=session).order_by("created_at")


def branch_table(request: HttpRequest, branches: list[Branch], session: Session) -> Table:
    """Return the table of a session's branches."""
    shown = branches[:BRANCHES_SHOWN]
    more = None
    if len(branches) > BRANCHES_SHOWN:
        more = Link.to_list("All branches", Branch, session__id__exact=session.pk)
    cells: Cells = {
        "Branch": partial(link_for, request),
        "In use": lambda branch: "yes" if branch.pk == session.active_branch_id else "",
        "Forked at": lambda branch: formatting.place(branch.fork_position),
        "Messages": lambda branch: formatting.number(branch.message_count),
        "Tokens": lambda branch: formatting.number(branch.token_total),
        "": lambda branch: html.link("its own messages", messages_url(branch.pk)),
    }
    return table_of("Branches", shown, cells, more=more)


def _listed(links: Iterable[SafeString | str]) -> SafeString | str:
    return format_html_join(", ", "{}", ((link,) for link in links)) or "—"


@admin.register(Branch)
class BranchAdmin(WideList):
    """A parent up to a fork, then messages of its own; sums count the whole path."""

    list_display = ("name", "in_session", "kind", "forked_at", "messages", "tokens", "created_at")
    list_select_related = ("session",)
    list_only = ("label",)
    list_filter = (one_row(Session, "session"), CREATED_SINCE, "kind")
    page_forms = BRANCH_FORMS
    sections = (
        Section(
            title=None,
            fields=(
                "short_id",
                "in_session",
                "kind",
                "parent",
                "forked_at",
                "replaces",
                "replayed_as",
            ),
            optional={"replaces": "replaces_id"},
        ),
        Section(title="Size", fields=("messages", "tokens", "head")),
        Section(title="Times", fields=("created_at",)),
    )

    short_id = SHORT_ID
    name = column("Branch", lambda branch: branch, str, instead=nameless)
    in_session = IN_SESSION
    forked_at = column("Forked at", "fork_position", formatting.place)

    replayed_as = column(
        "Replayed as",
        lambda branch: branch.replays.order_by("created_at")[:REPLAYS_SHOWN],
        lambda rows: _listed(html.row_link(row) for row in rows),
        instead=lambda rows: _listed(nameless_link(row) for row in rows),
    )

    head = column("Last position", "head_position", formatting.place)
    messages = column("Messages", "message_count", formatting.number)
    tokens = column("Tokens", "token_total", formatting.number)

    def links_for(self, request: HttpRequest, obj: Branch) -> list[Link]:
        """Return the ways to its own messages, its placeholders and its children."""
        placeholders = html.list_url(
            Message, branch__id__exact=obj.pk, kind__exact=Message.Kind.PLACEHOLDER
        )
        return [
            Link(label="Own messages in order", url=messages_url(obj.pk)),
            Link(label="Placeholders", url=placeholders),
            Link(label="Tree", url=tree_url(obj.session_id)),
            Link.to("Session", Session, obj.session_id),
        ]

    def page_after(self, request: HttpRequest, obj: Branch) -> str:
        """Return the tree's address where a form of the tree's page was sent."""
        if request.GET.get("to") == "tree":
            return tree_url(obj.session_id)
        return super().page_after(request, obj)
