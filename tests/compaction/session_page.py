"""What the tests of the session's page share: addresses, and reading it as an operator does."""

from __future__ import annotations

import html
import re
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.html import strip_tags

from chatapp.models import POSITION_STEP, Message, Session

# Markup, the end of a drawing, a bidi override, and a word of 5 000 characters.
ATTACK = "<script>alert(1)</script></svg></title>\"'&\u202egnp.exe " + "w" * 5000
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;&lt;/svg&gt;"


def page_of(session: Session, **query) -> str:
    address = reverse("admin:chatapp_session_change", args=[session.pk])
    return address + (f"?{urlencode(query)}" if query else "")


def do_of(session: Session, name: str) -> str:
    return reverse("admin:chatapp_session_do", args=[session.pk, name])


def plain(markup: str) -> str:
    return " ".join(html.unescape(strip_tags(markup)).split())


def rows_on(page: str) -> list[tuple[str, ...]]:
    """Return (position, role, text, tokens, fate) of every message that the page shows."""
    rows = re.findall(r'<tr role="row" class="fate-[\w-]+">(.*?)</tr>', page, re.DOTALL)
    found = [re.findall(r"<(t[hd])[^>]*>(.*?)</\1>", row, re.DOTALL) for row in rows]
    return [tuple(plain(cell) for _, cell in cells) for cells in found]


def fates_on(page: str) -> dict[str, str]:
    """Return {position: fate} of the messages that the page shows."""
    return {row[0]: row[4] for row in rows_on(page)}


def places_on(page: str) -> list[str]:
    return [row[0] for row in rows_on(page)]


def drawing_on(page: str, name: str) -> str:
    return re.search(rf'<svg[^>]*class="{name}".*?</svg>', page, re.DOTALL).group()


def titles_in(drawing: str) -> list[str]:
    return [html.unescape(said) for said in re.findall(r"<title>(.*?)</title>", drawing)]


def meter_on(page: str) -> dict[str, str]:
    """Return {part: tokens} of the meter's table."""
    table = re.search(r'<table class="meter-table">.*?</table>', page, re.DOTALL).group()
    rows = re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td>', table, re.DOTALL)
    return {plain(name): tokens for name, tokens in rows}


def grow(session: Session, count: int) -> None:
    """Store rows without the transcript: only the page looks at them."""
    branch = session.branch
    start = branch.head_position // POSITION_STEP
    Message.objects.bulk_create(
        [
            Message(
                session=session, branch=branch, position=(start + number) * POSITION_STEP,
                role="user" if number % 2 else "assistant", content=f"text {number}",
                tokens=2, tokens_through=2 * (start + number),
            )
            for number in range(1, count + 1)
        ],
        batch_size=500,
    )  # fmt: skip
    branch.head_position = (start + count) * POSITION_STEP
    branch.message_count += count
    branch.token_total += 2 * count
    branch.save()
