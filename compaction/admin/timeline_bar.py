"""The conversation as a bar from its first to its newest message: what is summarised, what is sent.

Its links are no stops of the tab key, of which there would be hundreds: the list below has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.page_parts import Panel
from chatapp.admin.toolkit.path_pages import place_on
from chatapp.admin.toolkit.svg import anchor, drawing, element, title
from chatapp.models import POSITION_STEP, Message
from compaction.admin.branch_view import MARKS_DRAWN, SUMMARIES_DRAWN, BranchView
from compaction.admin.meter import patterned, swatch
from compaction.engine.policy.reasons import reason_label
from compaction.models import SessionSummary

KIND_NAMES = {
    "older": "Older summaries, taken together",
    "summary": "Summarised",
    "summary-b": "Summarised (the next one)",
    "archive": "Fallback digest: stored unsummarised",
    "rules": "Rules: always sent first",
    "bare": "Covered without a summary row",
    "left-out": "Not sent (limit of messages)",
    "kept": "Kept: sent verbatim",
}

WIDTH, HEIGHT = 1000, 92
BAR_TOP, BAR = 26, 34
MARK_TOP, PIN_TOP = BAR_TOP + BAR + 4, BAR_TOP - 14
# Narrower than this nobody could see or hit it.
NARROWEST = 2.0
LABEL_ROOM = 74.0
MARK_ROOM = 6.0
LABEL_WIDTH = 7.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BarSegment:
    """Positions from `start` through `end`; `said` tells all of it in words."""

    kind: str
    start: int
    end: int
    said: str
    label: str = ""
    summary: SessionSummary | None = None

    @property
    def name(self) -> str:
        """The part of the drawings that has its colour and pattern."""
        return "summary-older" if self.kind == "older" else self.kind


def segments_of(view: BranchView) -> list[BarSegment]:
    """Return the segments from the first message to the newest; none where nothing is stored."""
    rows = view.summaries
    older, rows = rows[:-SUMMARIES_DRAWN], rows[-SUMMARIES_DRAWN:]
    found: list[BarSegment] = []
    begin = POSITION_STEP
    if older:
        found.append(_older(view, rows[0]))
        begin = rows[0].covers_from
    sent = {row.pk for row in view.snapshot.summaries}
    for number, row in enumerate(rows):
        if _steps(begin, row.covers_from - 1) >= 1:
            found.append(_without_summary(view, begin, row.covers_from - 1))
        found.append(_summary(row, even=number % 2 == 0, is_sent=row.pk in sent))
        begin = row.covers_through + 1
    if _steps(begin, view.cursor) >= 1:
        found.append(_without_summary(view, begin, view.cursor))
    return found + _behind_the_cursor(view)


def _behind_the_cursor(view: BranchView) -> list[BarSegment]:
    begin, head = view.cursor + 1, view.branch.head_position
    found = []
    if view.sent_from > begin:
        end = view.sent_from - 1
        found.append(
            BarSegment(
                kind="left-out",
                start=begin,
                end=end,
                label="not sent",
                said=f"Not sent, because the profile has a {view.limit_words}: "
                f"{_places(begin, end)}",
            )
        )
    if head >= view.sent_from:
        found.append(
            BarSegment(
                kind="kept",
                start=view.sent_from,
                end=head,
                label="kept",
                said=f"Kept, sent verbatim: {_places(view.sent_from, head)}",
            )
        )
    return found


def _older(view: BranchView, first: SessionSummary) -> BarSegment:
    end = first.covers_from - 1
    return BarSegment(
        kind="older",
        start=POSITION_STEP,
        end=end,
        label="older summaries",
        said=f"Summarised by summaries older than the newest {SUMMARIES_DRAWN}, drawn as one: "
        f"{_places(POSITION_STEP, end)}",
    )


def _summary(row: SessionSummary, *, even: bool, is_sent: bool) -> BarSegment:
    sends = "its text is sent" if is_sent else "newer summaries have taken it in"
    what = "Fallback digest" if row.is_digest else "Summary"
    name = formatting.short_id(row.pk)
    kind = "summary" if even else "summary-b"
    return BarSegment(
        kind="archive" if row.is_digest else kind,
        start=row.covers_from,
        end=row.covers_through,
        label="digest" if row.is_digest else name,
        summary=row,
        said=f"{what} {name} of {formatting.plural(row.message_count, 'message')}, "
        f"{_places(row.covers_from, row.covers_through)}; "
        f"{formatting.before_after(row.approx_tokens, row.summary_tokens)} tokens; "
        f"{reason_label(row.reason)}; {sends}",
    )


def _without_summary(view: BranchView, start: int, end: int) -> BarSegment:
    """Return a segment before the cursor that no summary covers: rules, or an import's past."""
    rules = sum(row.is_pinned_system and start <= row.position <= end for row in view.pinned)
    if rules >= _steps(start, end):
        said = f"Rules of the conversation, always sent first: {_places(start, end)}"
        return BarSegment(kind="rules", start=start, end=end, label="rules", said=said)
    said = f"Covered by an imported placeholder without a summary row: {_places(start, end)}"
    return BarSegment(kind="bare", start=start, end=end, label="imported", said=said)


def _steps(start: int, end: int) -> int:
    """Return how many whole messages may stand from one position through another."""
    return end // POSITION_STEP - (start - 1) // POSITION_STEP


def _places(start: int, end: int) -> str:
    """Return positions in words; a start just behind a message is that of the next one."""
    first = -(-start // POSITION_STEP)
    last = max(first, end // POSITION_STEP)
    return f"position {first:,}" if first == last else f"positions {first:,} – {last:,}"


def forks_of(view: BranchView) -> list[tuple[int, str]]:
    """Return where the branch leaves each of its ancestors: (position, sentence)."""
    return [
        (
            segment.through,
            f"Forked from branch {formatting.short_id(segment.branch_id)} "
            f"behind position {formatting.place(segment.through)}",
        )
        for segment in view.segments
        if segment.through is not None
    ]


class _PositionScale:
    """Positions as places of the drawing: the n-th message fills what lies between n - 1 and n."""

    def __init__(self, head: int) -> None:
        self._whole = max(head, POSITION_STEP)

    def x(self, position: int) -> float:
        """Return where a position ends."""
        return WIDTH * min(max(position, 0), self._whole) / self._whole


def conversation_panel(view: BranchView) -> Panel:
    """Return the panel with drawing, legend, and the same as a list."""
    segments = segments_of(view)
    urls = [url_of(view, one) for one in segments]
    kinds = {one.kind: one.name for one in segments}
    body = render_to_string(
        "admin/compaction/timeline_bar.html",
        {
            "drawing": draw(view, segments, urls),
            "legend": [(swatch(name), KIND_NAMES[kind]) for kind, name in kinds.items()],
            "items": [_item(view, *each) for each in zip(segments, urls, strict=True)],
            "forks": [said for _, said in forks_of(view)],
            "marks": _marks_listed(view),
        },
    )
    count = formatting.plural(view.branch.message_count, "message")
    note = (
        f"From the first to the newest of {count}, by position. "
        "A summary leads to its page, everything else to its messages."
    )
    return Panel(title="The conversation", body=body, note=note)


def draw(view: BranchView, segments: list[BarSegment], urls: list[str]) -> SafeString:
    """Return the drawing: the bar of segments, pins above it, placeholders and forks below."""
    scale = _PositionScale(view.branch.head_position)
    children = [_segment(one, url, scale) for one, url in zip(segments, urls, strict=True)]
    children += [_fork(position, said, scale) for position, said in forks_of(view)]
    children += [_pin(view, row, scale) for row in _apart(view.pinned, scale)]
    marks = _apart(view.placeholders, scale)
    children += [_placeholder(view, row, scale) for row in marks]
    if view.cursor:
        children.append(_cursor(view, scale))
    children += _ends(view)
    return drawing(
        *children,
        width=WIDTH,
        height=HEIGHT,
        label="The conversation as a bar of segments; the same stands below as a list",
        cls="strip",
        has_links=True,
    )


def _segment(segment: BarSegment, url: str, scale: _PositionScale) -> SafeString:
    # A segment may begin between two messages: it is drawn from the end of the one before.
    before = (segment.start - 1) // POSITION_STEP * POSITION_STEP
    left, right = scale.x(before), scale.x(segment.end)
    width = max(NARROWEST, right - left)
    left = min(left, WIDTH - width)
    box = {"x": left, "y": BAR_TOP, "width": width, "height": BAR}
    shapes = [patterned(segment.name, segment.said, **box)]
    label = segment.label if width >= LABEL_ROOM else ""
    if label:
        shapes += _label(label, left + width / 2)
    return anchor(url, *shapes, label=segment.said, is_stop=False)


def _label(text: str, middle: float) -> list[SafeString]:
    """Return a text on a plate: on a pattern nobody could read it."""
    half = LABEL_WIDTH * len(text) / 2 + 4
    top = BAR_TOP + BAR / 2 - 9
    plate = element(
        "rect", x=middle - half, y=top, width=2 * half, height=18, rx=3, cls="strip-plate"
    )
    words = element("text", text, x=middle, y=top + 13.0, text_anchor="middle", cls="strip-label")
    return [plate, words]


def url_of(view: BranchView, segment: BarSegment) -> str:
    """Return where a segment leads: to its summary, or to its first messages."""
    if segment.summary is not None:
        return html.change_url(type(segment.summary), segment.summary.pk)
    return place_on(view.page, segment.start)


def _apart(rows: list[Message], scale: _PositionScale) -> list[Message]:
    """Return the rows whose marks do not lie on each other; the list below counts all of them."""
    found: list[Message] = []
    for row in rows[-MARKS_DRAWN:]:
        if not found or scale.x(row.position) - scale.x(found[-1].position) >= MARK_ROOM:
            found.append(row)
    return found


def _pin(view: BranchView, row: Message, scale: _PositionScale) -> SafeString:
    x = scale.x(row.position - POSITION_STEP // 2)
    kind = "Rule" if row.is_pinned_system else "Pinned message"
    said = f"{kind} at position {formatting.place(row.position)}, {row.tokens:,} tokens"
    shape = element("path", title(said), d=f"M{x:.1f} {PIN_TOP}l5 5-5 5-5-5z", cls="strip-pin")
    return anchor(place_on(view.page, row.position), shape, label=said, is_stop=False)


def _placeholder(view: BranchView, row: Message, scale: _PositionScale) -> SafeString:
    x = scale.x(row.position // POSITION_STEP * POSITION_STEP)
    said = f"Placeholder of a summary at position {formatting.place(row.position)}"
    shape = element("path", title(said), d=f"M{x:.1f} {MARK_TOP}l4 8h-8z", cls="strip-placeholder")
    return anchor(place_on(view.page, row.position), shape, label=said, is_stop=False)


def _fork(position: int, said: str, scale: _PositionScale) -> SafeString:
    x = scale.x(position)
    line = element("line", x1=x, x2=x, y1=4, y2=HEIGHT - 18, cls="strip-fork")
    return element("g", title(said), line)


def _cursor(view: BranchView, scale: _PositionScale) -> SafeString:
    x = scale.x(view.cursor)
    said = f"Summarised up to position {formatting.place(view.cursor)}"
    line = element("line", x1=x, x2=x, y1=BAR_TOP - 6, y2=BAR_TOP + BAR + 3, cls="strip-cursor")
    return element("g", title(said), line)


def _ends(view: BranchView) -> list[SafeString]:
    """Return the places of the first and of the newest message, and of the cursor between."""
    head = view.branch.head_position
    y = HEIGHT - 3
    shown = [element("text", "1", x=0, y=y, cls="strip-place")]
    x = _PositionScale(head).x(view.cursor)
    if view.cursor and 90 < x < WIDTH - 90:
        words = f"cursor {formatting.place(view.cursor)}"
        shown.append(element("text", words, x=x, y=y, text_anchor="middle", cls="strip-place"))
    last = element(
        "text", formatting.place(head), x=WIDTH, y=y, text_anchor="end", cls="strip-place"
    )
    return [*shown, last]


def _item(view: BranchView, segment: BarSegment, url: str) -> dict[str, Any]:
    """Return a segment as the list tells it."""
    messages = place_on(view.page, segment.start)
    return {"said": segment.said, "url": url, "messages": messages if messages != url else ""}


def _marks_listed(view: BranchView) -> list[dict[str, Any]]:
    """Return the marks by kind: a sentence how many there are, and a link to each of them."""
    found: list[dict[str, Any]] = []
    for name, rows in (("pinned message", view.pinned), ("placeholder", view.placeholders)):
        shown = rows[-MARKS_DRAWN:]
        if shown:
            newest = "The newest " if len(rows) > MARKS_DRAWN else ""
            links = [
                (place_on(view.page, row.position), formatting.place(row.position)) for row in shown
            ]
            found.append({"said": newest + formatting.plural(len(shown), name), "links": links})
    return found
