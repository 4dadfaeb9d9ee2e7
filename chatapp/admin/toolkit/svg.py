"""Drawings as inline SVG, made on the server: elements, and bar charts.

Attributes and texts are escaped; no style stands inline (CSP). Shapes get their colours from
classes in the style sheets, so light and dark both fit.

A chart has columns of stacked pieces over an axis with round numbers. It is drawn about as wide as
it is shown at any width of the window, so its text stays as large as the page's. Pieces are told
apart by colour and by pattern. Its links are out of the tab order: the table that stands with every
chart has the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from django.utils.html import conditional_escape
from django.utils.safestring import SafeString, mark_safe

WIDTH, HEIGHT = 380.0, 190.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, 20.0, 24.0, 24.0
INNER_WIDTH, INNER_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
BASE = TOP + INNER_HEIGHT
# Of a column's width, the part between two bars.
GAP = 0.2
MOST_BAR = 24.0
"""Wider bars would be blocks: few of them stand apart instead."""
MOST_STEPS = 4
LEAST_HEIGHT = 1.5
PATTERN_SIZE = 6


def element(tag: str, *children: SafeString | str, **attributes: Any) -> SafeString:
    """Return one element: `cls` becomes class, other underscores hyphens; None leaves one out.

    `tag` is a literal of the caller, never data.
    """
    # Joined by hand: format_html costs a large drawing more than everything else in it.
    shown = "".join(
        f' {_name(name)}="{_escaped(_number(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    inside = "".join(_escaped(child) for child in children)
    return mark_safe(f"<{tag}{shown}>{inside}</{tag}>")  # noqa: S308 - every part is escaped


def _escaped(value: Any) -> str:
    """Return what conditional_escape returns, without asking a text or a number what it is."""
    kind = type(value)
    if kind is SafeString:
        safe: SafeString = value
        return safe
    if kind is str:
        return escape(value)
    return str(value) if kind is int else conditional_escape(value)


def _name(name: str) -> str:
    return "class" if name == "cls" else name.replace("_", "-")


def _number(value: Any) -> Any:
    """Return coordinates with two decimals at most: half the bytes of a large drawing."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value


def title(text: str) -> SafeString:
    """Return what a pointer resting on a shape, or a screen reader on it, is told."""
    return element("title", text)


def anchor(url: str, *children: SafeString, label: str, is_stop: bool = True) -> SafeString:
    """Return shapes that lead to another page; `label` is what a screen reader says.

    Not a stop of the tab key where there are too many, and a list has the same links. What is
    written on it stands behind it: a link is called what its label says, which is not shortened.
    """
    texts = [child for child in children if child.startswith("<text")]
    if texts:
        shapes = [child for child in children if child not in texts]
        link = anchor(url, *shapes, label=label, is_stop=is_stop)
        return element("g", link, element("g", *texts, cls="on-link", aria_hidden="true"))
    return element("a", *children, href=url, aria_label=label, tabindex=None if is_stop else -1)


def drawing(
    *children: SafeString,
    width: float,
    height: float,
    label: str,
    cls: str,
    has_links: bool = False,
    **attributes: Any,
) -> SafeString:
    """Return an <svg> that scales with its frame; with links in it, it is a group, no image."""
    return element(
        "svg",
        *children,
        viewBox=f"0 0 {_number(width)} {_number(height)}",
        role="group" if has_links else "img",
        aria_label=label,
        cls=cls,
        **attributes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tone:
    """How pieces of one kind look: a class of the style sheet, and marks on top of its colour."""

    name: str
    marks: str = ""
    """stripes, cross, dots, or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One part of a bar; `label` says in words what it counts, `url` leads to the rows."""

    tone: Tone
    value: float
    label: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar and the stretch of the axis below it; an empty `tick` leaves the axis bare there."""

    label: str
    url: str
    pieces: Sequence[Piece]
    tick: str = ""

    @property
    def height(self) -> float:
        """The sum of the pieces; what is below zero is not drawn."""
        return sum(max(0.0, piece.value) for piece in self.pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A bar chart; `name` is unique on its page.

    `number` writes the numbers of the axis and `unit` says what they count; `is_whole` allows no
    steps below one. With `last_tick` ticks mark the columns' left edges, and it the right end.
    """

    name: str
    label: str
    unit: str
    columns: Sequence[Bar]
    number: Callable[[float], str]
    is_whole: bool = True
    last_tick: str = ""


def bar_chart(chart: Chart) -> SafeString:
    """Return the drawing."""
    steps = axis_steps(max((c.height for c in chart.columns), default=0.0), chart.is_whole)
    tones = {piece.tone.name: piece.tone for c in chart.columns for piece in c.pieces}
    return drawing(
        element("defs", *(_pattern(chart.name, tone) for tone in tones.values() if tone.marks)),
        element("text", chart.unit, x=LEFT, y=TOP - 12, cls="plot-unit"),
        *_axis(chart, steps),
        *_bars(chart, steps[-1]),
        *_ticks(chart),
        width=WIDTH,
        height=HEIGHT,
        label=chart.label,
        cls="plot",
        has_links=True,
    )


def swatch(chart_name: str, tone: Tone) -> SafeString:
    """Return a sample of a tone, for the legend of the chart of this name."""
    whole = {"width": 14.0, "height": 14.0}
    shapes = [element("rect", cls=f"tone-{tone.name}", **whole)]
    if tone.marks:
        shapes.append(element("rect", fill=_reference(chart_name, tone), **whole))
    return element("svg", *shapes, viewBox="0 0 14 14", cls="plot-swatch", aria_hidden="true")


def axis_steps(top: float, is_whole: bool = True) -> list[float]:
    """Return round numbers from zero up to `top` or the next one above, MOST_STEPS steps at most.

    Steps are 1, 2 or 5 times a power of ten; whole ones are never smaller than one.
    """
    if top <= 0:
        return [0.0, 1.0]
    exponent = math.floor(math.log10(top / MOST_STEPS))
    powers = (factor * 10.0**power for power in (exponent, exponent + 1) for factor in (1, 2, 5))
    # A hair's breadth is left for sums of floats that stand just above a round number.
    step = next(power for power in powers if power * MOST_STEPS >= top * (1 - 1e-9))
    if is_whole:
        step = max(1.0, step)
    count = max(1, math.ceil(top / step - 1e-9))
    digits = max(0, 1 - exponent)
    return [round(step * number, digits) for number in range(count + 1)]


def short_number(value: float) -> str:
    """Return a number for an axis: 950, 12k, 1.5M, 0.05."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


def _axis(chart: Chart, steps: Sequence[float]) -> Iterable[SafeString]:
    for step in steps:
        y = _y(step, steps[-1])
        kind = "plot-line" if step else "plot-base"
        yield element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, cls=kind)
        yield element("text", chart.number(step), x=LEFT - 5, y=y + 4, cls="plot-number")


def _bars(chart: Chart, top: float) -> Iterable[SafeString]:
    width = INNER_WIDTH / max(1, len(chart.columns))
    for index, column in enumerate(chart.columns):
        if column.height <= 0:
            continue
        x = LEFT + width * index
        # The whole height leads to all rows of the column: a small bar is easy to hit too.
        whole = element("rect", x=x, y=TOP, width=width, height=INNER_HEIGHT, cls="plot-hit")
        pieces = list(_pieces(chart.name, column, x, width, top))
        if len(column.pieces) == 1:
            yield _link(column.url, column.label, whole, *pieces[0])
            continue
        yield _link(column.url, column.label, whole)
        drawn = [piece for piece in column.pieces if piece.value > 0]
        for piece, shapes in zip(drawn, pieces, strict=True):
            yield _link(piece.url, piece.label, *shapes)


def _pieces(
    name: str, column: Bar, x: float, width: float, top: float
) -> Iterable[list[SafeString]]:
    """Return the shapes of every piece above zero, from the base up."""
    base, wide = BASE, min(width * (1 - GAP), MOST_BAR)
    for piece in column.pieces:
        if piece.value > 0:
            height = max(LEAST_HEIGHT, INNER_HEIGHT * piece.value / top)
            base -= height
            place = {
                "x": x + (width - wide) / 2,
                "y": base,
                "width": wide,
                "height": height,
            }
            yield _shapes(name, piece.tone, place)


def _shapes(name: str, tone: Tone, place: dict[str, float]) -> list[SafeString]:
    shapes = [element("rect", cls=f"plot-piece tone-{tone.name}", **place)]
    if tone.marks:
        shapes.append(element("rect", fill=_reference(name, tone), **place))
    return shapes


def _link(url: str, label: str, *shapes: SafeString) -> SafeString:
    return element("a", title(label), *shapes, href=url, tabindex=-1)


def _ticks(chart: Chart) -> Iterable[SafeString]:
    width = INNER_WIDTH / max(1, len(chart.columns))
    middle = 0.0 if chart.last_tick else width / 2
    places = [(LEFT + width * i + middle, c.tick) for i, c in enumerate(chart.columns) if c.tick]
    if chart.last_tick:
        places.append((WIDTH - RIGHT, chart.last_tick))
    for x, text in places:
        yield element("line", x1=x, x2=x, y1=BASE, y2=BASE + 4, cls="plot-base")
        yield element("text", text, x=x, y=BASE + 17, cls="plot-tick")


def _y(value: float, top: float) -> float:
    return BASE - INNER_HEIGHT * value / top


def _reference(name: str, tone: Tone) -> str:
    return f"url(#{name}-{tone.name})"


def _pattern(name: str, tone: Tone) -> SafeString:
    """Return marks to be laid over a colour."""
    size, middle = PATTERN_SIZE, PATTERN_SIZE / 2
    upright = element("line", x1=middle, x2=middle, y1=0, y2=size, cls="plot-mark")
    level = element("line", x1=0, x2=size, y1=middle, y2=middle, cls="plot-mark")
    marks = {
        "stripes": [upright],
        "cross": [upright, level],
        "dots": [element("circle", cx=middle, cy=middle, r=1.4, cls="plot-dot")],
    }
    return element(
        "pattern",
        *marks[tone.marks],
        id=f"{name}-{tone.name}",
        width=size,
        height=size,
        patternUnits="userSpaceOnUse",
        patternTransform="rotate(45)",
    )
