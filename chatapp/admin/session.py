"""Sessions: whose they are, how large they are, where their messages stand."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import CASCADE, Q, QuerySet
from django.http import HttpRequest

from chatapp import formatting
from chatapp.admin import cells
from chatapp.admin.base import sessions_named
from chatapp.admin.filters import CreatedSince, ModelAlias, choices_titled, hex_range
from chatapp.admin.message import messages_url
from chatapp.admin.message_panel import all_sent, messages_panel
from chatapp.admin.parts import Link, Panel, Section, Table
from chatapp.admin.request_page import request_url
from chatapp.admin.timeline.page import TimelineOfSession, timeline_url
from chatapp.llm.registry import UnknownModelError, get_model
from chatapp.llm.tokens import describe_counter
from chatapp.models import Branch, Session
from chatapp.selectors import counter_of

BRANCHES_SHOWN = 50


@admin.register(Session)
class SessionAdmin(TimelineOfSession):
    """One conversation of one owner; only superusers may delete it, with all that hangs on it."""

    list_display = ("name", "owner", "model", "api_name", "messages", "tokens", "created_at")
    list_display_links = ("name",)
    list_select_related = ("owner", "active_branch")
    list_filter = (CreatedSince, ("api", choices_titled("API")), ModelAlias)
    list_only = (
        "title",
        "model",
        "api",
        "created_at",
        "owner__username",
        "active_branch__message_count",
        "active_branch__token_total",
    )
    id_paths = ("id",)
    sections = (
        Section(title=None, fields=("title", "id", "owner", "model", "api_name")),
        Section(
            title="Size",
            fields=("active_branch", "messages", "tokens", "token_counting"),
        ),
        Section(title="Times", fields=("created_at", "updated_at")),
        Section(
            title="Sent with every request",
            fields=("prompt_text", "tools_json"),
            optional={"prompt_text": "system_prompt", "tools_json": "tools"},
        ),
        Section(title="More", fields=("metadata_json",), optional={"metadata_json": "metadata"}),
    )

    class Media:
        css = {"all": ["chatapp/session.css", "chatapp/timeline.css"]}

    @admin.display(description="API")
    def api_name(self, session: Session) -> str:
        """Return which API of the model's server is spoken."""
        return str(session.get_api_display())

    def get_queryset(self, request: HttpRequest) -> QuerySet[Session]:
        """Return sessions with what every page shows of their owner and branch, in one query."""
        rows: QuerySet[Session] = super().get_queryset(request)
        return rows.select_related("owner", "active_branch")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Only superusers delete conversations."""
        return bool(request.user.is_active and getattr(request.user, "is_superuser", False))

    def search_q(self, wanted: str) -> Q:
        """Search the session itself."""
        found = Q(pk__in=sessions_named(wanted).values("pk"))
        ids = hex_range(wanted)
        return found | Q(id__gte=ids[0], id__lte=ids[1]) if ids else found

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

    @admin.display(description="Title")
    def name(self, session: Session) -> str:
        """Return the title, or the id's beginning."""
        return formatting.shortened(str(session), 100)

    @admin.display(description="Messages")
    def messages(self, session: Session) -> str:
        """Return the active branch's messages; a stored sum."""
        branch = session.active_branch
        return formatting.number(branch.message_count if branch else None)

    @admin.display(description="Tokens")
    def tokens(self, session: Session) -> str:
        """Return the active branch's tokens; a stored sum."""
        branch = session.active_branch
        return formatting.number(branch.token_total if branch else None)

    @admin.display(description="Tokens are")
    def token_counting(self, session: Session) -> str:
        """Say how the session's tokens are counted, and when its model is not known."""
        counted = describe_counter(counter_of(session))
        try:
            get_model(session.model)
        except UnknownModelError as error:
            return f"{error} Until then this counts: {counted}"
        return counted

    @admin.display(description="System prompt")
    def prompt_text(self, session: Session) -> str:
        """Return the prompt as stored."""
        return cells.stored_text(session.system_prompt)

    @admin.display(description="Tools")
    def tools_json(self, session: Session) -> str:
        """Return the tool definitions."""
        return cells.stored_json(session.tools)

    @admin.display(description="Metadata")
    def metadata_json(self, session: Session) -> str:
        """Return the metadata."""
        return cells.stored_json(session.metadata)

    def links_for(self, request: HttpRequest, obj: Session) -> list[Link]:
        """Return the ways to the next request, to the messages, in order, and to all branches."""
        links = [
            Link(label="Timeline", url=timeline_url(obj)),
            Link(label="Branches", url=cells.list_url(Branch, session__id__exact=obj.pk)),
        ]
        if obj.active_branch_id:
            links.insert(0, Link(label="Messages in order", url=messages_url(obj.active_branch_id)))
        return [Link(label="What the next request sends", url=request_url(obj)), *links]

    def panels_for(self, request: HttpRequest, obj: Session) -> list[Panel]:
        """Return the timeline's newest entries, and the messages, a page of them."""
        return [self.timeline_panel(obj), messages_panel(request, obj, all_sent)]

    def tables_for(self, request: HttpRequest, obj: Session) -> list[Table]:
        """Return the branches, oldest first."""
        rows = obj.branches.order_by("created_at")[: BRANCHES_SHOWN + 1]
        return [branch_table(list(rows), obj)]


def branch_table(branches: QuerySet[Branch] | list[Branch], session: Session) -> Table:
    """Return the table of a session's branches."""
    shown = list(branches)[:BRANCHES_SHOWN]
    more = None
    if len(branches) > BRANCHES_SHOWN:
        url = cells.list_url(Branch, session__id__exact=session.pk)
        more = Link(label="All branches", url=url)
    return Table(
        title="Branches",
        columns=("Branch", "In use", "Forked at", "Messages", "Tokens", ""),
        rows=[
            (
                cells.row_link(branch),
                "yes" if branch.pk == session.active_branch_id else "",
                formatting.place(branch.fork_position),
                formatting.number(branch.message_count),
                formatting.number(branch.token_total),
                cells.link("its own messages", messages_url(branch.pk)),
            )
            for branch in shown
        ],
        more=more,
    )
