"""The forms of a message that pin it or take its pin back."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest

from chatapp import formatting, transcript
from chatapp.admin.toolkit.page_forms import PageForm, RefusedError
from chatapp.admin.toolkit.permissions import holds, may_see_texts
from chatapp.context.backend import warning_of_pins
from chatapp.models import Message
from chatapp.transcript.writing import TranscriptError


def may_pin(request: HttpRequest) -> bool:
    """Whether the operator may pin messages: permission `change message`, and seeing them."""
    return holds(request, "chatapp.change_message") and may_see_texts(request)


def _make_pin(request: HttpRequest, message: Message, data: Any) -> forms.Form | None:
    return forms.Form(data) if message.is_spoken and not message.pinned else None


def _make_unpin(request: HttpRequest, message: Message, data: Any) -> forms.Form | None:
    return forms.Form(data) if message.is_spoken and message.pinned else None


def _pin(request: HttpRequest, message: Message, asked: dict[str, Any]) -> str:
    return _set(request, message, True, "Pinned {}, {} tokens: sent verbatim with every request.")


def _unpin(request: HttpRequest, message: Message, asked: dict[str, Any]) -> str:
    words = "{}, {} tokens, no longer pinned: what is summarised is not sent."
    return _set(request, message, False, words)


def _set(request: HttpRequest, message: Message, pinned: bool, words: str) -> str:
    """Pin or unpin, and say what that comes to, and where all pins take too much."""
    try:
        rows = transcript.set_pinned(message, pinned, by=request.user)
    except TranscriptError as refusal:
        raise RefusedError(str(refusal)) from refusal
    count = formatting.plural(len(rows), "message")
    done = words.format(count, formatting.number(sum(row.tokens for row in rows)))
    return " ".join(filter(None, (done, warning_of_pins(message.session))))


PIN_FORMS = {
    "pin": PageForm(
        label="Pin this message",
        make=_make_pin,
        do=_pin,
        may=may_pin,
        help="It is sent verbatim with every request, with the calls and results that belong to "
        "it, also when a summary covers them.",
    ),
    "unpin": PageForm(
        label="Take the pin back",
        make=_make_unpin,
        do=_unpin,
        may=may_pin,
        help="Of the calls and results that belong to it, too. What a summary covers is then no "
        "longer sent.",
    ),
}
