"""The token meter: the parts of the next request in the model's window, drawn and as a table."""

from __future__ import annotations

from dataclasses import dataclass

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.parts import Panel
from chatapp.admin.request_page import request_url
from chatapp.admin.svg import drawing, element, title
from compaction.admin.session.patterns import HATCHED, patterned
from compaction.admin.session.standing import Standing
from compaction.vocabulary import SINCE_SUMMARY

WIDTH, HEIGHT, TOP, BAR = 1000, 44, 6, 32
NAMES = {
    "system": "System prompt and rules",
    "tools": "Tools",
    "summaries": "Summaries",
    "again": "Sent again although covered (pinned, open question)",
    "kept": f"Messages {SINCE_SUMMARY}",
    "free": "Free",
    "reserve": "Kept free for the answer",
    "over": "Beyond the window",
}
# Rare parts, of which a line with 0 says nothing.
ONLY_IF_ANY = ("again", "over")


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


def reading_of(standing: Standing) -> Reading:
    """Return the parts in the order of the drawing; the free room stands before the reserve."""
    snapshot = standing.snapshot
    window, reserve = snapshot.model.context_window, snapshot.reserve
    used = sum(standing.parts.values())
    free = max(0, window - reserve - used)
    return Reading(
        window=window,
        parts={**standing.parts, "free": free, "reserve": reserve},
        over=max(0, used + reserve - window),
    )


def meter_panel(standing: Standing) -> Panel:
    """Return the panel with drawing, table, and what it means."""
    reading = reading_of(standing)
    body = render_to_string(
        "admin/compaction/meter.html",
        {
            "drawing": draw(reading),
            "rows": [_row(name, reading) for name in reading.parts if _is_shown(name, reading)],
            "used": formatting.number(sum(standing.parts.values())),
            "left_out": formatting.number(standing.left_out_tokens)
            if standing.left_out_tokens
            else "",
            "limit": standing.limit_words,
            "next_request": request_url(standing.session),
        },
    )
    return Panel(title="Tokens of the next request", body=body, note=note_on(reading))


def note_on(reading: Reading) -> str:
    """Return how the request fits the window."""
    note = f"The model's window holds {reading.window:,} tokens."
    used = sum(reading.parts.values()) - reading.parts["free"] - reading.parts["reserve"]
    if used > reading.window:
        note += (
            f" The next request alone is {used - reading.window:,} tokens larger than that: "
            "where nothing can be compacted first, the model refuses it."
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
            said = f"{name_of(name, reading)}: {_tokens(tokens)}"
            box = {"x": left, "y": TOP, "width": width, "height": BAR}
            children.append(patterned(name, said, **box))
        left += width
    if reading.over:
        edge = WIDTH * reading.window / reading.whole
        box = {"x": edge, "y": 0, "width": WIDTH - edge, "height": TOP - 1}
        said = f"{NAMES['over']}: {_tokens(reading.over)}"
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


def _tokens(count: int) -> str:
    return f"{count:,} token{'' if count == 1 else 's'}"
