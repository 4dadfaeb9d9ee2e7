"""The strip: the whole conversation of a branch from its first to its newest message, drawn.

Its links are no stops of the tab key, of which there would be hundreds: the list below has them.
"""

from __future__ import annotations

from typing import Any

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin import cells
from chatapp.admin.parts import Panel
from chatapp.admin.path_page import place_on
from chatapp.admin.svg import anchor, drawing, element, title
from chatapp.models import POSITION_STEP, Message
from compaction.admin.session.meter import swatch
from compaction.admin.session.patterns import patterned
from compaction.admin.session.standing import MARKS_DRAWN, Standing
from compaction.admin.session.stretches import KIND_NAMES, Stretch, forks_of, stretches_of

WIDTH, HEIGHT = 1000, 92
BAR_TOP, BAR = 26, 34
MARK_TOP, PIN_TOP = BAR_TOP + BAR + 4, BAR_TOP - 14
# Narrower than this nobody could see or hit it.
NARROWEST = 2.0
LABEL_ROOM = 74.0
MARK_ROOM = 6.0
LABEL_WIDTH = 7.0


class _Scale:
    """Positions as places of the drawing: the n-th message fills what lies between n - 1 and n."""

    def __init__(self, head: int) -> None:
        self._whole = max(head, POSITION_STEP)

    def x(self, position: int) -> float:
        """Return where a position ends."""
        return WIDTH * min(max(position, 0), self._whole) / self._whole


def strip_panel(standing: Standing) -> Panel:
    """Return the panel with drawing, legend, and the same as a list."""
    stretches = stretches_of(standing)
    urls = [url_of(standing, one) for one in stretches]
    kinds = {one.kind: one.name for one in stretches}
    body = render_to_string(
        "admin/compaction/strip.html",
        {
            "drawing": draw(standing, stretches, urls),
            "legend": [(swatch(name), KIND_NAMES[kind]) for kind, name in kinds.items()],
            "items": [_item(standing, *each) for each in zip(stretches, urls, strict=True)],
            "forks": [said for _, said in forks_of(standing)],
            "marks": _marks_listed(standing),
        },
    )
    count = standing.branch.message_count
    plural = "" if count == 1 else "s"
    note = (
        f"From the first to the newest of {count:,} message{plural}, by position. "
        "A summary leads to its page, everything else to its messages."
    )
    return Panel(title="The conversation", body=body, note=note)


def draw(standing: Standing, stretches: list[Stretch], urls: list[str]) -> SafeString:
    """Return the drawing: the bar of stretches, pins above it, placeholders and forks below."""
    scale = _Scale(standing.branch.head_position)
    children = [_segment(one, url, scale) for one, url in zip(stretches, urls, strict=True)]
    children += [_fork(position, said, scale) for position, said in forks_of(standing)]
    children += [_pin(standing, row, scale) for row in _apart(standing.pinned, scale)]
    marks = _apart(standing.placeholders, scale)
    children += [_placeholder(standing, row, scale) for row in marks]
    if standing.cursor:
        children.append(_cursor(standing, scale))
    children += _ends(standing)
    return drawing(
        *children,
        width=WIDTH,
        height=HEIGHT,
        label="The conversation as a strip of stretches; the same stands below as a list",
        cls="strip",
        has_links=True,
    )


def _segment(stretch: Stretch, url: str, scale: _Scale) -> SafeString:
    # A stretch may begin between two messages: it is drawn from the end of the one before.
    before = (stretch.start - 1) // POSITION_STEP * POSITION_STEP
    left, right = scale.x(before), scale.x(stretch.end)
    width = max(NARROWEST, right - left)
    left = min(left, WIDTH - width)
    box = {"x": left, "y": BAR_TOP, "width": width, "height": BAR}
    shapes = [patterned(stretch.name, stretch.said, **box)]
    label = stretch.label if width >= LABEL_ROOM else ""
    if label:
        shapes += _label(label, left + width / 2)
    return anchor(url, *shapes, label=stretch.said, is_stop=False)


def _label(text: str, middle: float) -> list[SafeString]:
    """Return a text on a plate: on a pattern nobody could read it."""
    half = LABEL_WIDTH * len(text) / 2 + 4
    top = BAR_TOP + BAR / 2 - 9
    plate = element(
        "rect", x=middle - half, y=top, width=2 * half, height=18, rx=3, cls="strip-plate"
    )
    words = element("text", text, x=middle, y=top + 13.0, text_anchor="middle", cls="strip-label")
    return [plate, words]


def url_of(standing: Standing, stretch: Stretch) -> str:
    """Return where a stretch leads: to its summary, or to its first messages."""
    if stretch.summary is not None:
        return cells.change_url(type(stretch.summary), stretch.summary.pk)
    return place_on(standing.page, stretch.start)


def _apart(rows: list[Message], scale: _Scale) -> list[Message]:
    """Return the rows whose marks do not lie on each other; the list below counts all of them."""
    found: list[Message] = []
    for row in rows[-MARKS_DRAWN:]:
        if not found or scale.x(row.position) - scale.x(found[-1].position) >= MARK_ROOM:
            found.append(row)
    return found


def _pin(standing: Standing, row: Message, scale: _Scale) -> SafeString:
    x = scale.x(row.position - POSITION_STEP // 2)
    kind = "Rule" if row.is_rule else "Pinned message"
    said = f"{kind} at position {formatting.place(row.position)}, {row.tokens:,} tokens"
    shape = element("path", title(said), d=f"M{x:.1f} {PIN_TOP}l5 5-5 5-5-5z", cls="strip-pin")
    return anchor(place_on(standing.page, row.position), shape, label=said, is_stop=False)


def _placeholder(standing: Standing, row: Message, scale: _Scale) -> SafeString:
    x = scale.x(row.position // POSITION_STEP * POSITION_STEP)
    said = f"Placeholder of a summary at position {formatting.place(row.position)}"
    shape = element("path", title(said), d=f"M{x:.1f} {MARK_TOP}l4 8h-8z", cls="strip-placeholder")
    return anchor(place_on(standing.page, row.position), shape, label=said, is_stop=False)


def _fork(position: int, said: str, scale: _Scale) -> SafeString:
    x = scale.x(position)
    line = element("line", x1=x, x2=x, y1=4, y2=HEIGHT - 18, cls="strip-fork")
    return element("g", title(said), line)


def _cursor(standing: Standing, scale: _Scale) -> SafeString:
    x = scale.x(standing.cursor)
    said = f"Summarised up to position {formatting.place(standing.cursor)}"
    line = element("line", x1=x, x2=x, y1=BAR_TOP - 6, y2=BAR_TOP + BAR + 3, cls="strip-cursor")
    return element("g", title(said), line)


def _ends(standing: Standing) -> list[SafeString]:
    """Return the places of the first and of the newest message, and of the cursor between."""
    head = standing.branch.head_position
    y = HEIGHT - 3
    shown = [element("text", "1", x=0, y=y, cls="strip-place")]
    x = _Scale(head).x(standing.cursor)
    if standing.cursor and 90 < x < WIDTH - 90:
        words = f"cursor {formatting.place(standing.cursor)}"
        shown.append(element("text", words, x=x, y=y, text_anchor="middle", cls="strip-place"))
    last = element(
        "text", formatting.place(head), x=WIDTH, y=y, text_anchor="end", cls="strip-place"
    )
    return [*shown, last]


def _item(standing: Standing, stretch: Stretch, url: str) -> dict[str, Any]:
    """Return a stretch as the list tells it."""
    messages = place_on(standing.page, stretch.start)
    return {"said": stretch.said, "url": url, "messages": messages if messages != url else ""}


def _marks_listed(standing: Standing) -> list[dict[str, Any]]:
    """Return the marks by kind: a sentence how many there are, and a link to each of them."""
    found: list[dict[str, Any]] = []
    for name, rows in (("pinned message", standing.pinned), ("placeholder", standing.placeholders)):
        shown = rows[-MARKS_DRAWN:]
        if shown:
            count = f"The newest {MARKS_DRAWN}" if len(rows) > MARKS_DRAWN else f"{len(shown)}"
            plural = "" if len(shown) == 1 else "s"
            links = [
                (place_on(standing.page, row.position), formatting.place(row.position))
                for row in shown
            ]
            found.append({"said": f"{count} {name}{plural}", "links": links})
    return found
