"""Fills that are told apart without colours: every part of a drawing has a pattern of its own.

Patterns are defined once in a page's drawing; the others refer to them by their ids.
"""

from __future__ import annotations

from typing import Any

from django.utils.safestring import SafeString

from chatapp.admin.svg import element, title

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
    "dots": ("M3.2 4a.8.8 0 1 0 1.6 0a.8.8 0 1 0-1.6 0",),
}
# The pattern of each part; parts that are missing here are plain.
PATTERNS = {
    "system": "columns",
    "tools": "dots",
    "summaries": "lines",
    "again": "cross",
    "reserve": "back",
    "over": "cross",
    "summary-b": "rows",
    "summary-older": "cross",
    "summary": "lines",
    "archive": "grid",
    "rules": "columns",
    "bare": "dots",
    "left-out": "back",
}


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
