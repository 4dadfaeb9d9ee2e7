"""The list of sessions: what each is about, whose it is, how full its window is, how it stands.

Everything is read from stored columns: one query for the rows, one for what model servers taught,
and what each app's `states` takes for a whole page, however many rows it has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.owners import owner_url
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.columns import column
from chatapp.admin.toolkit.extension import session_parts
from chatapp.admin.toolkit.lists import (
    BY_MODEL,
    CREATED_SINCE,
    LeanChangeList,
    OneRow,
    by_condition,
    choices_titled,
)
from chatapp.admin.toolkit.model_admin import WideList
from chatapp.admin.toolkit.page_parts import Link
from chatapp.admin.toolkit.permissions import nameless
from chatapp.ids import short_id
from chatapp.llm.learned_limits import all_with_learned_limits
from chatapp.llm.registry import ModelConfig
from chatapp.models import Session

# So many owners are offered by name; of more, the search finds them, and their pages list theirs.
OWNERS_OFFERED = 12
USERS_LOOKED_AT = 50
NEARLY_FULL = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFacts:
    """What the list tells of a session besides its own columns."""

    model: ModelConfig | None
    state: SafeString | str


class SessionChangeList(LeanChangeList):
    """Reads for all rows of a page together what their columns need.

    Owners are no part of the rows' query: joined, SQLite begins with them and sorts all sessions.
    """

    def get_queryset(
        self, request: HttpRequest, exclude_parameters: list[str | None] | None = None
    ) -> QuerySet[Session]:
        """Return the rows with their branches alone."""
        rows: QuerySet[Session] = super().get_queryset(request, exclude_parameters)
        return rows.select_related(None).select_related("active_branch")

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        """Return one column and the key in its direction: an index has just that."""
        first, *_ = super().get_ordering(request, queryset)
        return [first, "-id" if str(first).startswith("-") else "id"]

    def get_results(self, request: HttpRequest) -> None:
        """Read the rows, and what is told of them."""
        super().get_results(request)
        rows: list[Any] = list(self.result_list)
        models, states = all_with_learned_limits(), states_of(rows)
        users: Any = get_user_model()
        named = users._default_manager.only(users.USERNAME_FIELD)
        owners = named.in_bulk({row.owner_id for row in rows})
        for row in rows:
            row.owner = owners[row.owner_id]
            row.listed = ListedFacts(model=models.get(row.model), state=states.get(row.pk, "—"))
        self.result_list = rows


def states_of(sessions: Sequence[Session]) -> Mapping[UUID, SafeString | str]:
    """Return how sessions stand by the apps that join, each in a word or two."""
    found: dict[UUID, SafeString | str] = {}
    for part in session_parts():
        found |= part.states(sessions)
    return found


class ByOwner(OneRow):
    """Sessions of one owner: a few owners are offered, any one can be named in the address."""

    model = get_user_model()
    path = "owner"
    title = "owner"
    parameter_name = "owner__id__exact"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, str]]:
        """Return the owners where they are few; else the one in force, if there is one."""
        users: Any = self.model._default_manager
        own = Session.objects.filter(owner=OuterRef("pk"))
        name = users.model.USERNAME_FIELD
        rows = users.annotate(has_sessions=Exists(own)).order_by(name)
        known = list(rows.values_list("pk", name, "has_sessions")[: USERS_LOOKED_AT + 1])
        found = [(str(key), str(called)) for key, called, has_sessions in known if has_sessions]
        wanted = request.GET.get(self.parameter_name, "")
        if len(known) <= USERS_LOOKED_AT and len(found) <= OWNERS_OFFERED:
            return found
        return [(wanted, f"Owner {short_id(wanted)}")] if wanted else []


def larger_than(share: float) -> Q:
    """Return the condition for sessions whose next request takes more than a share of the window.

    Windows are the models': where a server taught a smaller one, that counts.
    """
    found = Q(pk__in=[])
    for alias, model in all_with_learned_limits().items():
        if model.context_window > 0:
            most = math.floor(share * model.context_window / model.scale)
            found |= Q(model=alias, request_tokens__gt=most)
    return found


OVER_WINDOW = "over"
BY_SIZE = by_condition(
    "next request",
    "size",
    {
        OVER_WINDOW: ("Larger than the window", lambda: larger_than(1)),
        "full": ("More than 80 % of the window", lambda: larger_than(NEARLY_FULL)),
        "half": ("More than half of the window", lambda: larger_than(0.5)),
    },
)


class SessionListPage(WideList):
    """The columns, filters and orders of the list of sessions."""

    list_display = ("name", "owner_name", "model", "messages", "size", "state", "last_active")
    list_display_links = ("name",)
    list_select_related = ("active_branch",)
    list_filter = (ByOwner, BY_MODEL, BY_SIZE, CREATED_SINCE, ("api", choices_titled("API")))
    list_only = ("title", "owner", "active_branch__message_count")
    ordering = ("-updated_at", "-id")
    sortable_by = ("size", "last_active")

    name = column(
        "Conversation",
        lambda session: session,
        lambda session: formatting.shortened(str(session), 100),
        instead=nameless,
    )
    last_active = column("Last active", "updated_at", html.moment, ordering="updated_at")

    @admin.display(description="Owner")
    def owner_name(self, session: Session) -> SafeString:
        """Return a link to the owner's page."""
        return html.link(session.owner.get_username(), owner_url(session.owner_id))

    @admin.display(description="Messages")
    def messages(self, session: Session) -> str:
        """Return the active branch's messages; a stored sum."""
        branch = session.active_branch
        return formatting.number(branch.message_count if branch else None)

    @admin.display(description="Next request", ordering="request_tokens")
    def size(self, session: Session) -> SafeString | str:
        """Return how much of the model's window the next request takes; a stored number."""
        listed: ListedFacts | None = getattr(session, "listed", None)
        return window_bar(session.request_tokens, listed.model if listed else None)

    @admin.display(description="Compaction")
    def state(self, session: Session) -> SafeString | str:
        """Return how compaction of the session stands, in a word."""
        listed: ListedFacts | None = getattr(session, "listed", None)
        return listed.state if listed else "—"

    def columns_read(self) -> tuple[str, ...]:
        """Add the stored size."""
        return (*super().columns_read(), "request_tokens")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[LeanChangeList]:
        """Return the list that reads a page's facts at once."""
        return SessionChangeList

    def get_list_filter(self, request: HttpRequest) -> Any:
        """Add the filters of the apps that join, before those that are asked for less."""
        own = list(super().get_list_filter(request))
        return [*own[:2], *(each for part in session_parts() for each in part.filters), *own[2:]]

    def list_links(self, request: HttpRequest) -> list[Link]:
        """Return what can be done with all sessions that the list holds."""
        return [link for part in session_parts() for link in part.list_links(request)]


def window_bar(tokens: int, model: ModelConfig | None) -> SafeString | str:
    """Return a bar: how much of the model's window so many counted tokens take, in words too."""
    if model is None or model.context_window <= 0:
        return f"{tokens:,} tokens"
    taken = math.ceil(tokens * model.scale)
    share = taken / model.context_window
    words = f"{100 * share:,.0f} %"
    told = f"{taken:,} of {model.context_window:,} tokens"
    tone = "over" if share > 1 else "full" if share > NEARLY_FULL else "fits"
    return format_html(
        '<span class="window-bar window-{}" title="{}">{} {}</span>',
        tone,
        told,
        html.bar(taken, model.context_window, told),
        words,
    )
