"""What the next request sends, message by message, as a page and as the very JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.extension import session_parts
from chatapp.admin.toolkit.model_admin import ReadOnlyAdmin
from chatapp.admin.toolkit.path_pages import place_url
from chatapp.admin.toolkit.permissions import require_texts
from chatapp.admin.toolkit.tool_calls import calls_shown
from chatapp.context.assembly import Account, Context
from chatapp.context.backend import context_backend
from chatapp.llm.registry import UnknownModelError, get_model
from chatapp.llm.tokens import ModelTokenCounter, count_message
from chatapp.messages.pairing import answers
from chatapp.models import POSITION_STEP, Session
from chatapp.turns.request import as_sent, body_of

FIRST_SHOWN, MOST_SHOWN = 100, 500
FIRST_CHARS, MOST_CHARS = 500_000, 2_000_000
OPEN_CHARS = 2_000
ROLES = ("system", "user", "assistant", "tool")
PART_NAMES = (
    ("system", "System prompt and pinned system messages"),
    ("tools", "Tools"),
    ("memories", "Memories"),
    ("summaries", "Summaries"),
    ("pinned", "Pinned messages, sent although they are summarised"),
    ("kept", "Messages up to the last answer"),
    ("pending", "Messages without an answer"),
    ("frames", "Roles and marks of the messages"),
    ("reserve", "Kept free for the answer"),
    ("free", "Free"),
    ("window", "The model's window"),
)

_MORE = (
    ("name", "Name"),
    ("tool_call_id", "Answers call"),
    ("refusal", "Refusal"),
    ("tool_calls", "Calls"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMessage:
    """One message of the request as the template draws it."""

    number: int
    role: str
    origin: SafeString | str
    tokens: str
    text: SafeString | str
    preview: SafeString | str
    size: str
    more: Sequence[tuple[str, SafeString | str]]
    is_open: bool


class RequestPage(ReadOnlyAdmin):
    """Adds <page>/request/ to a session's page; `?download=1` answers with the JSON."""

    def get_urls(self) -> list[URLPattern]:
        """Add the address of the page."""
        view = self.admin_site.admin_view(self.request_view)
        own = path("<path:object_id>/request/", view, name="chatapp_session_request")
        return [own, *super().get_urls()]

    def request_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show what a request would send now, or return it as a file."""
        require_texts(request)
        session = self.viewed_row(request, object_id)
        shown: dict[str, Any] = {}
        try:
            if request.GET.get("download"):
                return _download(session, context_backend.preview(session))
            context = context_backend.preview_part(
                session, most=MOST_SHOWN - FIRST_SHOWN, oldest=FIRST_SHOWN
            )
            shown = self._shown(session, as_sent(session, context))
        except refusals() as refusal:
            shown["refusal"] = str(refusal)
        return TemplateResponse(
            request,
            "admin/chatapp/request.html",
            {
                **self.admin_site.each_context(request),
                **shown,
                "title": "What the next request sends",
                "opts": self.opts,
                "media": self.media,
                "session": session,
                "session_name": formatting.shortened(str(session)),
            },
        )

    def _shown(self, session: Session, context: Context) -> dict[str, Any]:
        model = get_model(session.model)
        head, tail = shown_ends(context.messages)
        found, rest = len(context.messages), context.not_shown.messages if context.not_shown else 0
        origins = origins_of(session, context)
        view = MessagesDrawn(
            session=session,
            context=context,
            counter=model.counter,
            origins=origins,
            answered=answers(context.messages),
        )
        return {
            "model": model,
            "notes": [note for part in session_parts() for note in part.notes(context)],
            "account": account_rows(context.account),
            "counted": f"{context.account.used:,} of {context.account.window:,} tokens",
            "total": found + rest,
            "total_words": formatting.plural(found + rest, "message"),
            "head": [view.message(index) for index in range(head)],
            "tail": [view.message(index, behind=rest) for index in range(tail, found)],
            "left_out": tail - head + rest,
            "not_shown": context.not_shown,
            "tools": html.stored_json(session.tools) if session.tools else "",
        }


def refusals() -> tuple[type[Exception], ...]:
    """Return what the backend answers with where no request can be made; texts are sentences."""
    of_parts = (each for part in session_parts() for each in part.refusals)
    return (UnknownModelError, ValueError, *of_parts)


def origins_of(session: Session, context: Context) -> Mapping[int, SafeString | str]:
    """Return where messages come from that are none of the conversation, by their index."""
    first: Mapping[str, Any] = context.messages[0] if context.messages else {}
    prompt = session.system_prompt
    is_prompt = prompt and first.get("role") == "system" and first.get("content") == prompt
    found: dict[int, SafeString | str] = {0: "System prompt"} if is_prompt else {}
    for part in session_parts():
        found = {**part.origins(session, context), **found}
    return found


def account_rows(account: Account) -> list[tuple[str, str]]:
    """Return the account by names for people; what is empty is left out."""
    numbers = account.as_dict()
    always = ("free", "window")
    return [
        (name, f"{numbers[key]:,}") for key, name in PART_NAMES if key in always or numbers[key]
    ]


def shown_ends(messages: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """Return (head, tail): messages before `head` and from `tail` on are shown, the others not.

    The end of a request says more than its middle, so it gets the larger share.
    """
    count = len(messages)
    head = chars = 0
    while head < min(count, FIRST_SHOWN) and chars + _size(messages[head]) <= FIRST_CHARS:
        chars += _size(messages[head])
        head += 1
    tail = count
    while tail > head and head + count - tail < MOST_SHOWN:
        chars += _size(messages[tail - 1])
        # The newest message is shown whatever its size: it is cut like every very long text.
        if chars > MOST_CHARS and tail < count:
            break
        tail -= 1
    return head, tail


def _size(message: Mapping[str, Any]) -> int:
    """Return about how many characters a message takes on the page."""
    content = message.get("content")
    size = len(content) if isinstance(content, str) else len(json.dumps(content))
    extra = len(json.dumps(message["tool_calls"])) if message.get("tool_calls") else 0
    return min(size, html.SHOWN_CHARS) + min(extra, html.SHOWN_CHARS)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesDrawn:
    """Turns messages of the request into what the template draws."""

    session: Session
    context: Context
    counter: ModelTokenCounter
    origins: Mapping[int, SafeString | str]
    # Which call each result answers, by their indexes (chatapp/messages/pairing.py).
    answered: Mapping[int, tuple[int, int]]

    def message(self, index: int, *, behind: int = 0) -> ShownMessage:
        """Return one message, its whole text included; so many before it were not read."""
        message: Mapping[str, Any] = self.context.messages[index]
        content = message.get("content")
        more = [
            (label, self._calls(index, behind) if key == "tool_calls" else message[key])
            for key, label in _MORE
            if message.get(key)
        ]
        if isinstance(content, list):
            more.append(("Parts", html.stored_json(content)))
            content = None
        text = content if isinstance(content, str) else ""
        return ShownMessage(
            number=index + 1 + behind,
            role=message["role"] if message["role"] in ROLES else "other",
            origin=self._origin(index),
            tokens=formatting.number(count_message(message, self.counter)),
            text=html.stored_text(text) if text else "",
            preview=html.preview(text[: html.PREVIEW_CHARS]),
            size=formatting.number(len(text)),
            more=more,
            is_open=len(text) <= OPEN_CHARS,
        )

    def _calls(self, index: int, behind: int) -> SafeString | str:
        """Return the calls of a message, each with the way to the message that answers it."""
        results = {
            number: (html.link(f"message {at}", f"#m{at}"), "")
            for answer, (asker, number) in self.answered.items()
            if asker == index and (at := answer + 1 + behind)
        }
        return calls_shown(self.context.messages[index]["tool_calls"], results)

    def _origin(self, index: int) -> SafeString | str:
        """Return where a message comes from: its place, or what the backend says."""
        places = self.context.places
        place = places[index] if index < len(places) else ""
        if place:
            position = int(Decimal(place) * POSITION_STEP)
            return html.link(f"Message {place}", place_url(self.session.pk, position))
        if index in self.origins:
            return self.origins[index]
        if self.context.messages[index]["role"] == "system":
            return "System message that opened the conversation"
        return "Made for this request: nothing like it is stored"


def _download(session: Session, context: Context) -> HttpResponse:
    """Return the body that the model would be sent, whole."""
    text = json.dumps(body_of(session, context), ensure_ascii=False, indent=1)
    response = HttpResponse(text, content_type="application/json")
    response["Content-Disposition"] = f'attachment; filename="next-request-{session.pk}.json"'
    response["X-Content-Type-Options"] = "nosniff"
    return response
