"""The messages of a session, paged on its own page, each with what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.db.models.fields.json import KT
from django.db.models.functions import Left
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin import cells
from chatapp.admin.message import MessageAdmin
from chatapp.admin.parts import Link, Panel
from chatapp.admin.path_page import (
    ANCHOR,
    FIRST,
    PathPage,
    place_url,
    position_asked_for,
    read_page,
)
from chatapp.models import Message, Session

TITLE = "Messages along the active branch"
NOT_ALLOWED = "You may not see messages: that takes the permission “view message”."
_COLUMNS = ("branch", "position", "role", "kind", "tokens", "pinned")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What becomes of a message in the next request: a sign, a class of the style sheet, words."""

    sign: str
    name: str
    words: SafeString | str


Fates = Callable[[list[Message]], Mapping[Any, Fate]]

KEPT = Fate(sign="●", name="kept", words="Kept: sent verbatim")
RULE = Fate(sign="▲", name="rule", words="Rule: always sent first")
PLACEHOLDER = Fate(sign="▣", name="placeholder", words="Placeholder: not sent itself")


def all_sent(rows: list[Message]) -> dict[Any, Fate]:
    """Return the fates where everything that was stored is sent."""
    return {row.pk: _sent(row) for row in rows}


def _sent(row: Message) -> Fate:
    if row.kind == Message.Kind.PLACEHOLDER:
        return PLACEHOLDER
    return RULE if row.is_rule else KEPT


def shown_messages() -> QuerySet[Message]:
    """Return all rows with what a page of them reads: long texts are cut by the database."""
    return Message.objects.annotate(
        **MessageAdmin.list_previews,
        summary_start=Left("summary", cells.PREVIEW_CHARS),
        marks=KT("metadata__summary_id"),
    ).only(*_COLUMNS)


def messages_panel(
    request: HttpRequest, session: Session, fates: Fates, *, ways: tuple[Link, ...] = ()
) -> Panel:
    """Return the page of messages that `?at=` asks for; `ways` are further places to go to.

    Operators who may not see messages are told so.
    """
    user: Any = request.user
    if not user.has_perm("chatapp.view_message"):
        return Panel(title=TITLE, body=format_html('<p class="panel-more">{}</p>', NOT_ALLOWED))
    page = PathPage(rows=[])
    if session.active_branch is not None:
        page = read_page(session.active_branch, shown_messages(), at=position_asked_for(request))
    found = fates(page.rows)
    body = render_to_string(
        "admin/chatapp/messages.html",
        {
            "anchor": ANCHOR,
            "rows": [_shown(row, found[row.pk]) for row in page.rows],
            "ways": [*_ways(session, page), *ways] if page.rows else [],
            "page_address": cells.change_url(Session, session.pk),
        },
    )
    return Panel(title=TITLE, body=body)


def _ways(session: Session, page: PathPage) -> list[Link]:
    """Return the ways to other pages, in the order of the conversation."""
    ways = []
    if page.older is not None:
        ways.append(Link(label="« First", url=place_url(session.pk, FIRST)))
        ways.append(Link(label="‹ Older", url=place_url(session.pk, page.older)))
    if page.newer is not None:
        ways.append(Link(label="Newer ›", url=place_url(session.pk, page.newer)))
        ways.append(Link(label="Newest »", url=place_url(session.pk, None)))
    return ways


def _shown(row: Any, fate: Fate) -> dict[str, Any]:
    """Return one row as the template shows it."""
    is_placeholder = row.kind == Message.Kind.PLACEHOLDER
    text = row.summary_start if is_placeholder else row.content_start
    called = row.first_call or ""
    tool = row.result_of or (f"calls {called[:60]}" if called else "")
    return {
        "place": cells.row_link(row, formatting.place(row.position)),
        "role": "—" if is_placeholder else row.get_role_display(),
        "tool": tool,
        "text": cells.preview(text) if text or not tool else "",
        "tokens": "" if is_placeholder else formatting.number(row.tokens),
        "fate": fate,
    }
