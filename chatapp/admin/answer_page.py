"""“What this answer was given”: the request of one answer, rebuilt, and what changed after it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from django.db.models import Q
from django.forms import Media
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.request_page import (
    MessagesDrawn,
    ShownMessage,
    origins_of,
    refusals,
    shown_ends,
)
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.extension import session_parts
from chatapp.admin.toolkit.lists import by_condition
from chatapp.admin.toolkit.model_admin import ReadOnlyAdmin
from chatapp.admin.toolkit.page_parts import Link, Panel
from chatapp.admin.toolkit.path_pages import answer_request_url
from chatapp.admin.toolkit.permissions import require_texts
from chatapp.context.assembly import Account, Context
from chatapp.context.backend import context_backend
from chatapp.incidents import left_out_why
from chatapp.messages.pairing import answers
from chatapp.messages.wire import LEFT_OUT
from chatapp.models import Message
from chatapp.selectors import counter_of
from chatapp.turns.made_of import described, place_of, position_of
from chatapp.turns.rebuilding import NoRequestError, RebuiltRequest, RequestGoneError, rebuild

WITHOUT = "without"
ANY = "part"
WITHOUT_PART = by_condition(
    "given without",
    WITHOUT,
    {ANY: ("a part of the conversation", lambda: Q(request__left_out__isnull=False))},
)
TITLE = "What this answer was given"
# Its messages are drawn as those of the next request.
STYLES = ("chatapp/session.css",)
_MADE_OF = (
    ("model", "Model"),
    ("api", "API"),
    ("profile", "Profile"),
    ("parameters", "Parameters"),
    ("prompt", "Digest of the prompt"),
    ("tools", "Digest of the tools"),
    ("first_kept", "First message behind the summaries"),
    ("pins", "Sent for their pin"),
    ("cut", "Sent shortened"),
    ("steps", "Recovery steps"),
)
_PARAMETERS = {
    "max": "longest answer in tokens",
    "stream": "streamed",
    "codes": "adaptations",
    "no_tools": "without tools",
}


def given_links(message: Message, *, is_recorded: bool) -> list[Link]:
    """Return the way to what an answer was given; none where no such record was written.

    An imported answer has none, nor has what is no answer.
    """
    if not is_recorded:
        return []
    url = answer_request_url(message.pk)
    return [Link(label="What it was given", url=url, needs_texts=True)]


def left_out_words(count: int) -> str:
    """Return what an answer went without, for a badge."""
    return f"given without {formatting.plural(count, 'message')}"


def left_out_sentence(left_out: Mapping[str, Any]) -> str:
    """Return what an answer went without, from where to where, and why."""
    messages = formatting.plural(int(left_out["messages"]), "message")
    tokens = formatting.plural(int(left_out["tokens"]), "token")
    return (
        f"This answer was given without {messages} of the conversation ({left_out['first']} to "
        f"{left_out['last']}, {tokens}), and no summary told it of them: "
        f"{left_out_why(str(left_out['why']))}"
    )


def left_out_panel(request: HttpRequest, message: Message) -> Panel | None:
    """Return the panel of a message's page that says what the answer went without; usually none."""
    left_out = message.metadata.get(LEFT_OUT)
    if not _is_told(left_out):
        return None
    body = format_html(
        '<p class="request-note">{} {}</p>',
        html.badge("incomplete", "busy"),
        left_out_sentence(left_out),
    )
    return Panel(title="Given without a part of the conversation", body=body)


def _is_told(left_out: Any) -> bool:
    """Whether it is what a turn stored: an importer may have brought anything under that name."""
    keys = ("messages", "first", "last", "tokens", "why")
    return isinstance(left_out, Mapping) and all(
        isinstance(left_out.get(key), int | str) and str(left_out.get(key)) for key in keys
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedMessage:
    """One line of a comparison: `sign` is + or −, or empty for `same` messages in a row."""

    sign: str
    message: ShownMessage | None = None
    same: int = 0


class AnswerPage(ReadOnlyAdmin):
    """Adds <page>/request/ to a message's page; `?compare=next` shows what changed after it."""

    def get_urls(self) -> list[URLPattern]:
        """Add the address of the page."""
        view = self.admin_site.admin_view(self.answer_view)
        own = path("<path:object_id>/request/", view, name="chatapp_message_request")
        return [own, *super().get_urls()]

    def answer_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show the request, a sentence where it cannot be rebuilt, or the body as a file."""
        require_texts(request)
        message = self.viewed_row(request, object_id)
        shown: dict[str, Any] = {}
        try:
            found = rebuild(message)
            if request.GET.get("download"):
                return _download(found)
            is_comparison = request.GET.get("compare") == "next"
            shown = _compared(found) if is_comparison else _shown(found)
        except (NoRequestError, RequestGoneError) as refusal:
            shown["refusal"] = str(refusal)
        return TemplateResponse(
            request,
            "admin/chatapp/answer_request.html",
            {
                **self.admin_site.each_context(request),
                **shown,
                "title": TITLE,
                "opts": self.opts,
                "media": self.media + Media(css={"all": STYLES}),
                "message": message,
                "message_name": f"{message.get_role_display()} {message.place}",
            },
        )


def _context(found: RebuiltRequest) -> Context:
    """Return a rebuilt request in the form that pages of requests draw."""
    return Context(
        messages=tuple(part.message for part in found.parts),
        places=tuple(
            "" if part.position is None else place_of(part.position) for part in found.parts
        ),
        account=Account(),
    )


def _drawn(found: RebuiltRequest, context: Context) -> MessagesDrawn:
    session = found.answer.session
    summaries = described(found.made_of)["summaries"]
    origins: dict[int, SafeString | str] = {}
    for part in session_parts():
        origins |= part.origins_then(summaries, context)
    for index, one in enumerate(found.parts):
        if one.position is None and one.message["role"] == "system" and index not in origins:
            origins[index] = "System prompt, and what was sent with it" if index == 0 else "System"
    return MessagesDrawn(
        session=session,
        context=context,
        counter=counter_of(session),
        origins=origins,
        answered=answers(context.messages),
    )


def _shown(found: RebuiltRequest) -> dict[str, Any]:
    context = _context(found)
    view = _drawn(found, context)
    head, tail = shown_ends(context.messages)
    total = len(context.messages)
    left_out = found.answer.metadata.get(LEFT_OUT)
    is_told = _is_told(left_out)
    return {
        "notes": [left_out_sentence(left_out)] if is_told else [],
        "gap_before": _gap(found, left_out) if is_told else 0,
        "gap": left_out_words(int(left_out["messages"])) if is_told else "",
        "cut": {index + 1 for index, part in enumerate(found.parts) if part.is_cut},
        "made_of": made_of_rows(described(found.made_of)),
        "digest": found.digest,
        "total_words": formatting.plural(total, "message"),
        "head": [view.message(index) for index in range(head)],
        "tail": [view.message(index) for index in range(tail, total)],
        "left_out": tail - head,
        "tools": html.stored_json(found.body["tools"]) if found.body.get("tools") else "",
    }


def _gap(found: RebuiltRequest, left_out: Mapping[str, Any]) -> int:
    """Return the number of the message before which those that were left out would stand."""
    try:
        last = position_of(str(left_out["last"]))
    except ArithmeticError:
        return 0
    later = (n for n, part in enumerate(found.parts, 1) if (part.position or 0) > last)
    return next(later, 0)


def made_of_rows(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a request was made of by names for people; what is empty is left out."""
    return [(name, _words(told[key])) for key, name in _MADE_OF if told.get(key)]


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        if value.keys() == {"name", "version"}:
            return f"{value['name']} v{value['version']}"
        return ", ".join(
            f"{_PARAMETERS.get(key, key)}: {_words(one)}" for key, one in value.items()
        )
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


# --- compared with the next -----------------------------------------------------------------------


def _compared(found: RebuiltRequest) -> dict[str, Any]:
    """Return what the next answer's request had that this one had not, and the other way round.

    The next request is that of the next answer of the branch, or what would be sent now.
    """
    following = Message.objects.filter(
        branch=found.answer.branch_id,
        position__gt=found.answer.position,
        role=Message.Role.ASSISTANT,
        kind=Message.Kind.MESSAGE,
    ).order_by("position")[:1]
    answer = next(iter(following), None)
    own = _context(found)
    told: dict[str, Any] = {"is_comparison": True}
    if answer is not None:
        try:
            other = rebuild(answer)
        except RequestGoneError as refusal:
            return told | {"refusal": f"The next answer's: {refusal}"}
        context = _context(other)
        told["changes"] = _changes(described(found.made_of), described(other.made_of))
        told["next"] = Link(label=f"message {answer.place}", url=answer_request_url(answer.pk))
        drawn = _drawn(other, context)
    else:
        session = found.answer.session
        try:
            context = context_backend.preview(session)
        except refusals() as refusal:
            return told | {"refusal": str(refusal)}
        drawn = MessagesDrawn(
            session=session,
            context=context,
            counter=counter_of(session),
            origins=origins_of(session, context),
            answered=answers(context.messages),
        )
    return told | {"compared": compared(_drawn(found, own), drawn)}


def _changes(then: Mapping[str, Any], later: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return what a request was made of besides its messages, where the two differ."""
    return [
        (name, _words(then[key] or "—"), _words(later[key] or "—"))
        for key, name in _MADE_OF
        if then[key] != later[key]
    ]


def compared(then: MessagesDrawn, later: MessagesDrawn) -> list[ComparedMessage]:
    """Return the messages of two requests: those of one alone, with how many are the same."""
    texts = [
        [json.dumps(one, sort_keys=True, ensure_ascii=False) for one in drawn.context.messages]
        for drawn in (then, later)
    ]
    lines: list[ComparedMessage] = []
    matcher = SequenceMatcher(None, texts[0], texts[1], autojunk=False)
    for what, start, end, from_, to in matcher.get_opcodes():
        if what == "equal":
            lines.append(ComparedMessage(sign="", same=end - start))
            continue
        lines += [ComparedMessage(sign="−", message=then.message(n)) for n in range(start, end)]
        lines += [ComparedMessage(sign="+", message=later.message(n)) for n in range(from_, to)]
    return lines


def _download(found: RebuiltRequest) -> HttpResponse:
    """Return the body that the model was sent, whole."""
    text = json.dumps(found.body, ensure_ascii=False, indent=1)
    response = HttpResponse(text, content_type="application/json")
    response["Content-Disposition"] = f'attachment; filename="request-{found.answer.pk}.json"'
    response["X-Content-Type-Options"] = "nosniff"
    return response
