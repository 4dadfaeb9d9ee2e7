"""The plot of a comparison: tokens of each request, one line a profile, and the same as a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit.page_parts import Table
from chatapp.admin.toolkit.svg import axis_steps, drawing, element, short_number, title

WIDTH, HEIGHT = 640.0, 260.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 16.0, 26.0, 38.0
BASE = HEIGHT - BOTTOM
# Lines differ in colour and in how they are dashed; with more of them both come again.
TONES = 6
DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2")
TABLE_ROWS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedLine:
    """One profile's line: its name, the values of its points, and how it looks.

    Each value is the largest of `width` requests, a power of two; the last one of as many as came.
    """

    name: str
    values: Sequence[int]
    width: int
    number: int

    @property
    def tone(self) -> str:
        """The class of its colour."""
        return f"compared-line compared-line-{self.number % TONES}"

    @property
    def dash(self) -> str | None:
        """How it is dashed."""
        return DASHES[self.number % len(DASHES)] or None

    @property
    def swatch(self) -> SafeString:
        """A sample of it for the legend."""
        line = element("line", x1=0, x2=36, y1=7, y2=7, cls=self.tone, stroke_dasharray=self.dash)
        return element("svg", line, viewBox="0 0 36 14", cls="compared-swatch", aria_hidden="true")


def lines_of(rows: Sequence[Mapping[str, Any]]) -> list[ComparedLine]:
    """Return the lines of the profiles that were replayed."""
    return [
        ComparedLine(
            name=row["profile"],
            values=row["sent_per_turn"],
            width=row["turns_per_point"],
            number=number,
        )
        for number, row in enumerate(rows)
        if row["sent_per_turn"]
    ]


def sent_plot(lines: Sequence[ComparedLine], *, turns: int) -> SafeString:
    """Return the drawing; `turns` are the requests of the profile that has most."""
    steps = axis_steps(max((max(line.values) for line in lines), default=0))
    top = steps[-1]
    return drawing(
        element("text", "tokens", x=LEFT, y=TOP - 12, cls="compared-unit"),
        *_axis(steps),
        *(_line(line, top, turns) for line in lines),
        *_ticks(turns),
        width=WIDTH,
        height=HEIGHT,
        label="Tokens of each request by profile. The table below has the numbers.",
        cls="compared-plot",
    )


def sent_table(lines: Sequence[ComparedLine], *, turns: int) -> Table:
    """Return the same in numbers: the largest request of each stretch."""
    # A stretch of whole points of every line: of two powers of two one divides the other.
    unit = max((line.width for line in lines), default=1)
    stretch = unit * max(1, math.ceil(turns / unit / TABLE_ROWS))
    rows = []
    for start in range(0, turns if lines else 0, stretch):
        end = min(turns, start + stretch)
        label = f"{end:,}" if end == start + 1 else f"{start + 1:,} – {end:,}"
        rows.append([label, *(_largest(line, start, end) for line in lines)])
    return Table(
        title="Tokens of requests",
        columns=("Requests", *(line.name for line in lines)),
        rows=rows,
    )


def _largest(line: ComparedLine, start: int, end: int) -> str:
    values = line.values[start // line.width : math.ceil(end / line.width)]
    return formatting.number(max(values)) if values else "—"


def _line(line: ComparedLine, top: float, turns: int) -> SafeString:
    """Draw a line; each value stands at the last of its requests."""
    width, last = WIDTH - LEFT - RIGHT, max(1, turns - 1)
    points = " ".join(
        f"{LEFT + width * (min(turns, (index + 1) * line.width) - 1) / last:.1f},"
        f"{BASE - (BASE - TOP) * value / top:.1f}"
        for index, value in enumerate(line.values)
    )
    drawn = element("polyline", points=points, cls=line.tone, stroke_dasharray=line.dash)
    return element("g", title(f"{line.name}: at most {max(line.values):,} tokens"), drawn)


def _axis(steps: Sequence[float]) -> Iterator[SafeString]:
    for step in steps:
        y = BASE - (BASE - TOP) * step / steps[-1]
        kind = "compared-grid" if step else "compared-base"
        yield element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, cls=kind)
        yield element("text", short_number(step), x=LEFT - 6, y=y + 4, cls="compared-number")


def _ticks(turns: int) -> Iterator[SafeString]:
    width = WIDTH - LEFT - RIGHT
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = LEFT + width * share
        number = formatting.number(max(1, round(turns * share)))
        yield element("line", x1=x, x2=x, y1=BASE, y2=BASE + 4, cls="compared-base")
        yield element("text", number, x=x, y=BASE + 17, cls="compared-tick")
    yield element("text", "request", x=LEFT + width / 2, y=BASE + 32, cls="compared-tick")
