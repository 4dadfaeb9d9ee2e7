"""Inline SVG, drawn on the server. Attributes and texts are escaped; no style stands inline (CSP).

Shapes get their colours from classes in the style sheets, so light and dark both fit.
"""

from __future__ import annotations

from typing import Any

from django.utils.html import conditional_escape
from django.utils.safestring import SafeString, mark_safe


def element(tag: str, *children: SafeString | str, **attributes: Any) -> SafeString:
    """Return one element: `cls` becomes class, other underscores hyphens; None leaves one out.

    `tag` is a literal of the caller, never data.
    """
    # Joined by hand: format_html costs a large drawing more than everything else in it.
    shown = "".join(
        f' {_name(name)}="{conditional_escape(_number(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    inside = "".join(conditional_escape(child) for child in children)
    return mark_safe(f"<{tag}{shown}>{inside}</{tag}>")  # noqa: S308 - every part is escaped


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

    Not a stop of the tab key where there are too many, and a list has the same links.
    """
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
