"""What stands in cells and fields: links, numbers, stored text. Everything stored is escaped."""

from __future__ import annotations

import json
import re
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db.models import Model
from django.urls import get_script_prefix, get_urlconf, reverse
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from chatapp.formatting import clock, number, shortened, when
from chatapp.ids import short_id as end_of

SHOWN_CHARS = 200_000
PREVIEW_CHARS = 120
KEY_PLACE = "~key~"


def change_url(model: type[Model], pk: Any) -> str:
    """Return the address of a row's page."""
    return keyed_url(_name_of(model, "change"), pk)


def keyed_url(name: str, pk: Any) -> str:
    """Return the address of a page that is named with one key."""
    if isinstance(pk, UUID | int):
        # A page leads to dozens of rows: their keys need no quoting, and one address tells all.
        before, after = _around_key(name, get_script_prefix(), get_urlconf())
        return f"{before}{pk}{after}"
    return reverse(name, args=[pk])


def list_url(model: type[Model], **filters: Any) -> str:
    """Return the address of a model's list, filtered."""
    url = plain_url(_name_of(model, "changelist"))
    return f"{url}?{urlencode(filters)}" if filters else url


@lru_cache(maxsize=256)
def _around_key(name: str, prefix: str, urlconf: str | None) -> tuple[str, str]:
    """Return what stands before and behind a row's key in the address of a page."""
    before, _, after = reverse(name, args=[KEY_PLACE]).partition(KEY_PLACE)
    return before, after


def plain_url(name: str) -> str:
    """Return the address of a page that is named with nothing else."""
    return _found_once(name, get_script_prefix(), get_urlconf())


@lru_cache(maxsize=256)
def _found_once(name: str, prefix: str, urlconf: str | None) -> str:
    return reverse(name)


def _name_of(model: type[Model], page: str) -> str:
    return f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}"


def link(label: Any, url: str) -> SafeString:
    """Return a link."""
    return format_html('<a href="{}">{}</a>', url, label)


def row_link(row: Model | None, label: Any = None) -> SafeString | str:
    """Return a link to a row's page; a dash for no row."""
    if row is None:
        return "—"
    return link(row if label is None else label, change_url(type(row), row.pk))


def session_link(session: Model) -> SafeString | str:
    """Return a link to a session by its title, which may be long."""
    return row_link(session, shortened(str(session)))


def moment(at: datetime | None) -> SafeString | str:
    """Return a time as lists show it, on one line: short, and told whole on hover."""
    if at is None:
        return "—"
    whole = when(at)
    return format_html(
        '<time class="moment" datetime="{}" title="{}">{}</time>', at.isoformat(), whole, clock(at)
    )


def short_id(pk: Any) -> SafeString | str:
    """Return the end of an id; the whole is told on hover, and copied with it."""
    if pk is None:
        return "—"
    whole, shown = str(pk), end_of(pk)
    return format_html(
        '<span class="short-id" title="{}">'
        '<span class="id-rest" aria-hidden="true">{}</span>{}</span>',
        whole,
        whole[: -len(shown)],
        shown,
    )


def preview(text: str | None, *, cut_at: int = PREVIEW_CHARS) -> SafeString | str:
    """Return the beginning of a text for one line of a list; `cut_at` is where it was cut."""
    if not text:
        return "—"
    more = "…" if len(text) >= cut_at else ""
    return format_html('<span class="stored-preview" dir="auto">{}{}</span>', text, more)


# Sentences for users name messages by the API's address; operators open them here.
# Looked for where an address begins alone, so that a run of slashes is read once.
_MESSAGE = re.compile(
    r"(?<![\w./-])/[\w./-]{0,200}/messages/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/"
)


def told_text(text: str | None) -> SafeString | str:
    """Return a sentence as it is; a message's address in it becomes a link to its page here."""
    if not text:
        return ""
    told, end = [], 0
    for found in _MESSAGE.finditer(text):
        url = reverse("admin:chatapp_message_change", args=[found[1]])
        told += [(text[end : found.start()],), (link(short_id(found[1]), url),)]
        end = found.end()
    return format_html_join("", "{}", [*told, (text[end:],)])


def stored_text(text: str | None) -> SafeString | str:
    """Return a stored text as it is, wrapped; a very long one is shown up to SHOWN_CHARS."""
    if not text:
        return "—"
    note: SafeString | str = ""
    if len(text) > SHOWN_CHARS:
        note = format_html(
            '<p class="help">The first {} of {} characters; the API returns all of them.</p>',
            number(SHOWN_CHARS),
            number(len(text)),
        )
    return format_html(
        '<div class="stored-text" dir="auto" tabindex="0">{}</div>{}', text[:SHOWN_CHARS], note
    )


def stored_json(value: Any) -> SafeString | str:
    """Return a stored JSON value, indented; a dash for an empty one."""
    if value in (None, [], {}, ""):
        return "—"
    return stored_text(json.dumps(value, indent=2, ensure_ascii=False))


def folded_text(text: str | None) -> SafeString | str:
    """Return a stored text that is shown when it is asked for."""
    if not text:
        return "—"
    return format_html(
        "<details><summary>{} characters</summary>{}</details>",
        number(len(text)),
        stored_text(text),
    )


def marked(text: SafeString | str, word: str) -> SafeString:
    """Return a text with a word of warning behind it."""
    return format_html("{} {}", text, badge(word, "busy"))


def badge(label: Any, tone: str = "") -> SafeString:
    """Return a short word in a coloured frame; tones: good, bad, busy."""
    return format_html('<span class="badge {}">{}</span>', tone and f"badge-{tone}", label)


def bar(part: float, whole: float, label: str) -> SafeString:
    """Return how much of a whole a part is, as a drawing (no inline style: CSP)."""
    width = round(min(100.0, max(0.0, 100 * part / whole)), 1) if whole > 0 else 0.0
    return format_html(
        '<svg class="share" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" '
        'aria-label="{}"><rect class="share-all" width="100" height="8"/>'
        '<rect class="share-part" width="{}" height="8"/></svg>',
        label,
        width,
    )
