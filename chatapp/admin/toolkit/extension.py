"""What an app adds to chatapp's pages: panels of the front page and of messages, parts of sessions.

An app declares one AdminExtension and names it in its Extension (see chatapp.extensions). One line
in one of its lists adds a panel, a page or a source of the timeline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.contrib.admin import SimpleListFilter
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.utils.module_loading import import_string
from django.utils.safestring import SafeString

from chatapp.admin.toolkit.page_forms import PageForm
from chatapp.admin.toolkit.page_parts import Link, Panel, Table
from chatapp.admin.toolkit.path_pages import StatusesOf
from chatapp.admin.toolkit.timeline import TimelineSource
from chatapp.context.assembly import Context
from chatapp.extensions import registered
from chatapp.models import Message, Session


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontPanel:
    """A piece of the front page; `draw` returns nothing where the operator may not see it.

    `style` is the panel's style sheet, named as a static file.
    """

    draw: Callable[[HttpRequest], SafeString | str]
    style: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminPage:
    """An address below /admin/, for whoever may enter the admin; the view asks for the rest."""

    route: str
    view: Callable[..., HttpResponseBase]
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """One way of the admin's index: a model's list, or a page of its own, and what one does there.

    A list is offered to whoever may see its rows, a page (`name`, as in AdminPage) to who `may`.
    """

    group: str
    label: str
    does: str
    model: type[Model] | None = None
    name: str = ""
    may: Callable[[HttpRequest], bool] = lambda request: True


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAction:
    """Something to do with the sessions selected in their list, offered to who `may` do it.

    `do(model_admin, request, sessions)` is an action as Django has them.
    """

    name: str
    label: str
    do: Callable[[Any, HttpRequest, QuerySet[Session]], None]
    may: Callable[[HttpRequest], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageView:
    """What the page of messages is told: the status of each, and further places to go to."""

    statuses: StatusesOf
    ways: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPart:
    """What an extension adds to a session's page, to the list, and to the next request's page."""

    styles: Sequence[str] = ()
    links: Callable[[Session], Sequence[Link]] = lambda session: ()
    under_way: Callable[[Session], Sequence[Link]] = lambda session: ()
    """What is about to change the session's tree: a sentence of its page, and where it leads."""
    live: Callable[[Session], str] = lambda session: ""
    """How far work at the session is, while it is under way: then its page refreshes."""
    panels: Callable[[HttpRequest, Session], Sequence[Panel]] = lambda request, session: ()
    """Panels above chatapp's own."""
    tables: Callable[[Session], Sequence[Table]] = lambda session: ()
    """Tables above chatapp's own."""
    forms: Mapping[str, PageForm] = field(default_factory=dict)
    actions: Sequence[SessionAction] = ()
    states: Callable[[Sequence[Session]], Mapping[UUID, SafeString | str]] = lambda sessions: {}
    """How sessions stand by their ids, in a word or two; asked once for all rows of a list."""
    filters: Sequence[type[SimpleListFilter]] = ()
    """Filters of the list of sessions."""
    list_links: Callable[[HttpRequest], Sequence[Link]] = lambda request: ()
    """What can be done with all sessions that a list holds; the address says which."""
    messages: Callable[[HttpRequest, Session], MessageView | None] = lambda request, session: None
    """How messages stand in the next request; None: as far as chatapp knows."""
    refusals: tuple[type[Exception], ...] = ()
    """What the context backend answers with where no request can be made; texts are sentences."""
    origins: Callable[[Session, Context], Mapping[int, SafeString | str]] = lambda session, sent: {}
    """Where messages of a request come from that are none of the conversation, by their index."""
    origins_then: Callable[[Sequence[str], Context], Mapping[int, SafeString | str]] = (
        lambda summaries, sent: {}
    )
    """The same for a request of the past: the summaries that its record names, what was sent."""
    notes: Callable[[Context], Sequence[str]] = lambda sent: ()
    """Sentences about how a request comes about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminExtension:
    """What one app adds to the admin."""

    run_permission: str = ""
    """Permission to start the app's work; pages ask for it wherever a model is asked."""
    front_panels: Sequence[FrontPanel] = ()
    pages: Sequence[AdminPage] = ()
    index_entries: Sequence[IndexEntry] = ()
    linked_tables: Sequence[type[Model]] = ()
    """Tables that the index leaves out: their rows are linked from where they belong."""
    session: SessionPart = field(default_factory=SessionPart)
    message_panels: Sequence[Callable[[HttpRequest, Message], Panel | None]] = ()
    """Panels of a message's page; None where there is nothing to say."""
    owner_panels: Sequence[Callable[[HttpRequest, Any], Panel | None]] = ()
    """Panels of an owner's page; None where there is nothing to say, or it may not be seen."""
    timeline_sources: Sequence[TimelineSource] = ()
    """Tables of a session's timeline; one takes the place of another one with the same key."""


def admin_extensions() -> list[AdminExtension]:
    """Return what the registered apps add to the admin, in the order of their registration."""
    return [import_string(each.admin) for each in registered() if each.admin]


def session_parts() -> list[SessionPart]:
    """Return what the registered apps add to a session's page."""
    return [each.session for each in admin_extensions()]
