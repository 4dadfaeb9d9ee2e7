"""The token meter: the parts of the next request in the model's window, drawn and as a table.

Every part of a drawing has a pattern of its own, so that parts are told apart without colours.
Patterns are defined once in a page's drawing; the others refer to them by their ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit.page_parts import Panel
from chatapp.admin.toolkit.path_pages import request_url
from chatapp.admin.toolkit.svg import drawing, element, title
from compaction.admin.branch_view import BranchView
from compaction.branches.pins import excess_now
from compaction.branches.snapshot import BranchSnapshot
from compaction.engine.policy.reasons import SINCE_SUMMARY
from compaction.runs.status import uses_report

SIZE = 8
NARROW = 6
# What is drawn in one tile of each pattern.
_TILES = {
    "lines": ("M0 8L8 0M-2 2L2-2M6 10L10 6",),
    "back": ("M0 0L8 8M-2 6L2 10M6-2L10 2",),
    "cross": ("M0 8L8 0M0 0L8 8",),
    "rows": ("M0 4H8",),
    "columns": ("M4 0V8",),
    "grid": ("M0 4H8M4 0V8",),
    "bricks": ("M0 0H8M0 4H8M2 0V4M6 4V8",),
    "waves": ("M0 5L2 3L4 5L6 3L8 5",),
    "ticks": ("M4 2V6",),
    "dots": ("M3.2 4a.8.8 0 1 0 1.6 0a.8.8 0 1 0-1.6 0",),
}
# The pattern of each part; parts that are missing here are plain.
PATTERNS = {
    "system": "columns",
    "tools": "dots",
    "memories": "bricks",
    "summaries": "lines",
    "pinned": "cross",
    "pinned-over": "grid",
    "again": "rows",
    "frames": "ticks",
    "reserve": "back",
    "over": "waves",
    "summary-b": "rows",
    "summary-older": "cross",
    "summary": "lines",
    "archive": "grid",
    "rules": "columns",
    "bare": "dots",
    "left-out": "back",
}

WIDTH, HEIGHT, TOP, BAR = 1000, 44, 6, 32
NAMES = {
    "system": "System prompt and pinned system messages",
    "tools": "Tools",
    "memories": "Memories",
    "summaries": "Summaries",
    "pinned": "Pinned messages, sent although covered",
    "pinned-over": "Pinned beyond their share of the window",
    "again": "Open question, sent although covered",
    "kept": f"Messages {SINCE_SUMMARY}",
    "frames": "Roles and marks of the messages",
    "free": "Free",
    "reserve": "Kept free for the answer",
    "over": "Beyond the window",
}
# Rare parts, of which a line with 0 says nothing.
ONLY_IF_ANY = ("memories", "pinned", "pinned-over", "again", "over")


def _pattern(name: str, paths: tuple[str, ...]) -> SafeString:
    return element(
        "pattern",
        *(element("path", d=d, cls="pattern-line") for d in paths),
        id=f"pattern-{name}",
        width=SIZE,
        height=SIZE,
        patternUnits="userSpaceOnUse",
    )


HATCHED = element("defs", *(_pattern(name, paths) for name, paths in _TILES.items()))


def patterned(name: str, said: str, **box: Any) -> SafeString:
    """Return a box in the colour (a class) and the pattern of a part; `said` is its title.

    A narrow one has neither pattern nor frame: they would hide its colour.
    """
    narrow = box["width"] < NARROW
    shapes = [element("rect", **box, cls=f"part part-{name}" + " part-narrow" * narrow)]
    if name in PATTERNS and not narrow:
        pattern = f"url(#pattern-{PATTERNS[name]})"
        shapes.append(element("rect", **box, fill=pattern, cls="part-pattern"))
    return element("g", title(said), *shapes) if said else element("g", *shapes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the meter shows. `over` is how many tokens the window and its reserve lack."""

    window: int
    parts: dict[str, int]
    over: int

    @property
    def whole(self) -> int:
        """The tokens that the drawing's width stands for."""
        return max(1, sum(self.parts.values()))


def reading_of(view: BranchView) -> Reading:
    """Return the parts in the order of the drawing; the free room stands before the reserve."""
    snapshot = view.snapshot
    window, reserve = snapshot.model.context_window, snapshot.reserve
    used = sum(view.parts.values())
    free = max(0, window - reserve - used)
    return Reading(
        window=window,
        parts={**view.parts, "free": free, "reserve": reserve},
        over=max(0, used + reserve - window),
    )


def meter_panel(view: BranchView) -> Panel:
    """Return the panel with drawing, table, and what it means."""
    reading = reading_of(view)
    body = render_to_string(
        "admin/compaction/meter.html",
        {
            "drawing": draw(reading),
            "rows": [_row(name, reading) for name in reading.parts if _is_shown(name, reading)],
            "used": formatting.number(sum(view.parts.values())),
            "left_out": formatting.number(view.left_out_tokens) if view.left_out_tokens else "",
            "limit": view.limit_words,
            "next_request": request_url(view.session) if view.texts else "",
        },
    )
    excess = excess_now(view.snapshot, view.pin_tokens)
    note = f"{note_on(reading)}{_report_words(view.snapshot)}{f' {excess}' if excess else ''}"
    return Panel(title="Tokens of the next request", body=body, note=note)


def _report_words(snapshot: BranchSnapshot) -> str:
    """Return the size that rules look at where it is not the one that is drawn."""
    size = snapshot.reported_size
    if size is None or not uses_report(snapshot):
        return ""
    return (
        f" Rules go by what the server reported: {size.reported:,} tokens with its last answer "
        f"and, by our count, {size.following:,} since, {size.tokens:,} together. The parts are "
        "counted."
    )


def note_on(reading: Reading) -> str:
    """Return how the request fits the window."""
    note = f"The model's window holds {reading.window:,} tokens."
    used = sum(reading.parts.values()) - reading.parts["free"] - reading.parts["reserve"]
    if used > reading.window:
        note += (
            f" The next request alone is {used - reading.window:,} tokens larger than that: "
            "where nothing can be compacted first, the model's server decides."
        )
    elif reading.over:
        note += f" The room for the answer is {reading.over:,} tokens smaller than it should be."
    return note


def name_of(name: str, reading: Reading) -> str:
    """Return what a part is called; before the first summary, nothing is since it."""
    return (
        NAMES[name] if reading.parts["summaries"] else NAMES[name].replace(SINCE_SUMMARY, "so far")
    )


def draw(reading: Reading) -> SafeString:
    """Return the stacked bar; where the parts are larger than the window, its edge is marked."""
    children: list[SafeString] = []
    left = 0.0
    for name, tokens in reading.parts.items():
        width = WIDTH * tokens / reading.whole
        if tokens:
            said = f"{name_of(name, reading)}: {formatting.plural(tokens, 'token')}"
            box = {"x": left, "y": TOP, "width": width, "height": BAR}
            children.append(patterned(name, said, **box))
        left += width
    if reading.over:
        edge = WIDTH * reading.window / reading.whole
        box = {"x": edge, "y": 0, "width": WIDTH - edge, "height": TOP - 1}
        said = f"{NAMES['over']}: {formatting.plural(reading.over, 'token')}"
        children.append(patterned("over", said, **box))
        line = element("line", x1=edge, x2=edge, y1=0, y2=HEIGHT, cls="meter-edge")
        children.append(element("g", title(f"Here the window ends: {reading.window:,}"), line))
    shown = (
        f"{name_of(name, reading)} {tokens:,}" for name, tokens in reading.parts.items() if tokens
    )
    label = f"Tokens of the next request in a window of {reading.window:,}: {', '.join(shown)}"
    return drawing(
        HATCHED,
        *children,
        width=WIDTH,
        height=HEIGHT,
        label=label + (f"; {reading.over:,} do not fit" if reading.over else ""),
        cls="meter",
        preserveAspectRatio="none",
    )


def _is_shown(name: str, reading: Reading) -> bool:
    return name not in ONLY_IF_ANY or bool(reading.parts[name])


def _row(name: str, reading: Reading) -> tuple[SafeString, str, str, str]:
    """Return one line of the table: swatch, name, tokens, part of the window."""
    tokens = reading.parts[name]
    share = f"{100 * tokens / reading.window:.1f} %" if reading.window > 0 else "—"
    return swatch(name), name_of(name, reading), formatting.number(tokens), share


def swatch(name: str) -> SafeString:
    """Return a small box in a part's colour and pattern; its name stands beside it."""
    box = patterned(name, "", x=1, y=1, width=18, height=14)
    return element("svg", box, viewBox="0 0 20 16", cls="swatch", aria_hidden="true")
