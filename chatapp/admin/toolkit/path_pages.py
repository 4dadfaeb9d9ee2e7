"""Pages of a branch's path: rows by position, parents included, found by key and never counted."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from chatapp.admin.toolkit import html
from chatapp.compiled import CompiledRead, compiled_read
from chatapp.models import POSITION_STEP, Branch, Message, Session
from chatapp.selectors import has_ancestors, rows_before, rows_from

PAGE_ROWS = 25
ANCHOR = "messages"
FIRST = 0
_POSITION = re.compile(r"[0-9]{1,18}", re.ASCII)
_PLACE = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageStatus:
    """What becomes of a message in the next request: a sign, a class of the style sheet, words."""

    sign: str
    name: str
    words: SafeString | str


StatusesOf = Callable[[list[Message]], Mapping[Any, MessageStatus]]

KEPT = MessageStatus(sign="●", name="kept", words="Kept: sent verbatim")
RULE = MessageStatus(sign="▲", name="rule", words="Rule: always sent first")
PLACEHOLDER = MessageStatus(sign="▣", name="placeholder", words="Placeholder: not sent itself")


@dataclass(frozen=True, slots=True, kw_only=True)
class PathPage:
    """Rows in order; `older` and `newer` are where the next pages begin, None at the ends."""

    rows: list[Message]
    older: int | None = None
    newer: int | None = None


def read_page(
    branch: Branch, rows: QuerySet[Message], *, at: int | None, newest: CompiledRead[Message]
) -> PathPage:
    """Return the page whose first row stands at `at` or behind it.

    None, or a place behind everything, is the newest page. `rows` are all there are, and `newest`
    reads the same of one branch from its end.
    """
    found: list[Message] = []
    if at is not None:
        found = rows_from(branch, rows, start=at, most=PAGE_ROWS + 1)
    newer = found[PAGE_ROWS].position if len(found) > PAGE_ROWS else None
    found = found[:PAGE_ROWS]
    if not found and not has_ancestors(branch):
        found = newest(branch=branch.pk, most=PAGE_ROWS)[::-1]
    elif not found:
        found = rows_before(branch, rows, most=PAGE_ROWS)
    if not found:
        return PathPage(rows=[])
    return PathPage(rows=found, older=_page_before(branch, found[0].position), newer=newer)


def _page_before(branch: Branch, position: int) -> int | None:
    """Return where the page before a position begins; None where nothing stands before it."""
    if not has_ancestors(branch):
        places = _own_places_before(branch=branch.pk, before=position, most=PAGE_ROWS)
        return places[-1] if places else None
    rows = Message.objects.only("position")
    found = rows_before(branch, rows, end=position, most=PAGE_ROWS)
    return found[0].position if found else None


@compiled_read
def _own_places_before(*, branch: UUID, before: int) -> QuerySet[Message, int]:
    rows = Message.objects.filter(branch=branch, position__lt=before).order_by("-position")
    return rows.values_list("position", flat=True)


def position_asked_for(request: HttpRequest) -> int | None:
    """Return the position of `?at=…`, or of a place in steps (`?place=3.5`); None for others."""
    at, place = request.GET.get("at", ""), request.GET.get("place", "").strip()
    if _POSITION.fullmatch(at):
        return int(at)
    return int(Decimal(place) * POSITION_STEP) if _PLACE.fullmatch(place) else None


def place_url(session_id: Any, position: int | None) -> str:
    """Return the address of a session's page with the message of a position first."""
    return place_on(html.change_url(Session, session_id), position)


def place_on(page: str, position: int | None) -> str:
    """Return the same for a page whose address is known: a drawing has hundreds of places."""
    return f"{page}#{ANCHOR}" if position is None else f"{page}?at={position}#{ANCHOR}"


def request_url(session: Session) -> str:
    """Return the address of the page that shows what a session's next request sends."""
    return html.keyed_url("admin:chatapp_session_request", session.pk)


def answer_request_url(message_id: Any) -> str:
    """Return the address of the page that shows what an answer was given."""
    return html.keyed_url("admin:chatapp_message_request", message_id)
