"""The tree of a session as a picture: a lane for each line, a dot for each fork and line end.

It is drawn about as wide as a telephone shows it, so that its text is as large as the page's. Every
row is a link, in the order of the rows. Colours come from static/chatapp/tree.css.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.svg import anchor, drawing, element, title
from chatapp.admin.tree_layout import TreeRow
from chatapp.extensions import MarkKind
from chatapp.models import Message
from chatapp.outline import OutlineBranch, OutlineNode, Place

WIDTH, TOP, ROW, FOOT = 380, 4, 44, 6
LANE, FIRST_LANE, DOT, CURVE = 16.0, 14.0, 5.5, 8.0
# Half the width of a summary's sign, and the room that it takes beside others.
MARK, SIGN = 5.0, 17.0
# How wide a letter of a row's two texts is, about.
NAME, TEXT = 6.5, 5.9
HEADS_NAMED = 2
MARK_WORDS = {
    MarkKind.SUMMARY: ("summary", "summaries"),
    MarkKind.BRANCH_SUMMARY: ("summary of a branch", "summaries of branches"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TreePicture:
    """What the picture is told: messages by place, names of branches, addresses of folds."""

    messages: Mapping[Place, Message]
    texts: bool
    name: Callable[[OutlineBranch], str]
    fold_url: Callable[[TreeRow], str]
    in_use: object


def draw_tree(rows: Sequence[TreeRow], view: TreePicture, *, label: str) -> SafeString:
    """Return the drawing; the line in use is drawn last, over what it crosses."""
    edges = sorted((row for row in rows if row.above is not None), key=lambda row: row.is_active)
    return drawing(
        *(_edge(rows[row.above or 0], row) for row in edges),
        *(shape for row in rows for shape in _shapes(row, view)),
        width=WIDTH,
        height=TOP + ROW * len(rows) + FOOT,
        label=label,
        cls="tree",
        has_links=True,
    )


def _x(row: TreeRow) -> float:
    return FIRST_LANE + LANE * row.lane


def _y(row: TreeRow) -> float:
    return TOP + ROW * row.number + 16.0


def _edge(above: TreeRow, row: TreeRow) -> SafeString:
    x, y, to_x, to_y = _x(above), _y(above), _x(row), _y(row)
    if to_x <= x:
        path = f"M{x:g} {y:g}V{to_y:g}"
    else:
        path = f"M{x:g} {y:g}V{to_y - CURVE:g}Q{x:g} {to_y:g} {x + CURVE:g} {to_y:g}H{to_x:g}"
    names = ["tree-edge"]
    names += ["is-active"] if row.is_active else []
    names += ["is-folded"] if row.fold or above.fold else []
    return element("path", d=path, cls=" ".join(names))


def _shapes(row: TreeRow, view: TreePicture) -> list[SafeString]:
    """Return a row's links: first the row itself, then the summaries on the way to it."""
    if row.node is None or row.fold is not None:
        return [_fold(row, view)]
    kinds = [kind for kind in MarkKind if row.node.marks_of(kind)]
    left = _x(row) + 15
    marks = [_mark(row, row.node, kind, left + SIGN * place) for place, kind in enumerate(kinds)]
    return [_node(row, row.node, view, left + SIGN * len(kinds)), *marks]


def _mark(row: TreeRow, node: OutlineNode, kind: MarkKind, left: float) -> SafeString:
    """Return the sign of the summaries of a kind above a node; it leads to the newest of them."""
    marks = node.marks_of(kind)
    newest = max(marks, key=lambda mark: mark.position)
    words = f"Above {formatting.place(node.position)}: {mark_words(kind, len(marks))}"
    x, y = left + MARK + 1, _y(row) - 3.0
    place = {"x": x - MARK, "y": y - MARK, "width": 2 * MARK, "height": 2 * MARK}
    hit = element("rect", x=x - 8, y=y - 9, width=16.0, height=18.0, cls="tree-hit", rx=3)
    if kind == MarkKind.SUMMARY:
        sign = element("rect", cls="tree-mark", **place)
    else:
        far = MARK + 1
        path = f"M{x:g} {y - far:g}l{far:g} {far:g} {-far:g} {far:g} {-far:g} {-far:g}z"
        sign = element("path", d=path, cls="tree-mark")
    url = html.change_url(newest.model, newest.pk)
    return anchor(url, title(words), hit, sign, label=words)


def _node(row: TreeRow, node: OutlineNode, view: TreePicture, left: float) -> SafeString:
    x, y = _x(row), _y(row)
    is_in_use = any(head.id == view.in_use for head in node.heads)
    name, text = node_name(node, view), node_text(node, view)
    said = f"{name}{f': {text}' if text else ''}"
    names = ["tree-dot", *(["is-head"] if node.heads else []), *(["is-active"] * row.is_active)]
    area = {"x": x + 9, "y": y - 16, "width": WIDTH - x - 10, "height": ROW - 3}
    shapes = [
        element("rect", cls="tree-hit", rx=4, **area),
        *([element("circle", cx=x, cy=y, r=DOT + 3.5, cls="tree-ring")] if is_in_use else []),
        element("circle", cx=x, cy=y, r=DOT, cls=" ".join(names)),
        element("text", fitting(name, _letters(left, NAME)), x=left, y=y + 1, cls="tree-name"),
        element("text", fitting(text, _letters(x + 15, TEXT)), x=x + 15, y=y + 17, cls="tree-text"),
    ]
    message = view.messages.get(node.place)
    if message is None:
        return element("g", title(said), *shapes)
    return anchor(html.change_url(Message, message.pk), title(said), *shapes, label=said)


def _letters(left: float, width: float) -> float:
    """Return how many letters of a width fit behind a place."""
    return (WIDTH - left - 4) / width


def _fold(row: TreeRow, view: TreePicture) -> SafeString:
    x, y, words = _x(row), _y(row), row.fold.words if row.fold is not None else ""
    area = {"x": x + 9, "y": y - 15, "width": WIDTH - x - 10, "height": 30.0}
    shapes = [
        element("rect", cls="tree-hit", rx=4, **area),
        *(element("circle", cx=x, cy=y + step, r=1.8, cls="tree-more") for step in (-6, 0, 6)),
        element("text", f"{words} …", x=x + 15, y=y + 4, cls="tree-fold"),
    ]
    said = f"Show {words}"
    return anchor(view.fold_url(row), title(said), *shapes, label=said)


def mark_words(kind: MarkKind, count: int) -> str:
    """Return how many summaries of a kind there are, in words."""
    one, many = MARK_WORDS[kind]
    return f"{count:,} {one if count == 1 else many}"


def node_name(node: OutlineNode, view: TreePicture) -> str:
    """Return who speaks, where, and what branches end there."""
    message = view.messages.get(node.place)
    if message is None:
        who = "Empty line" if not node.position else "Message that is gone"
    elif message.kind == Message.Kind.NOTE:
        who = f"Note {formatting.place(node.position)}"
    else:
        who = f"{message.get_role_display()} {formatting.place(node.position)}"
    names = [view.name(head) for head in node.heads[:HEADS_NAMED]]
    if more := len(node.heads) - HEADS_NAMED:
        names += [f"{more:,} more"] if more > 0 else []
    parts = [who]
    if names:
        is_in_use = any(head.id == view.in_use for head in node.heads)
        parts.append(f"end of {', '.join(names)}{' (in use)' if is_in_use else ''}")
    if node.forks:
        parts.append(formatting.plural(len(node.forks), "fork"))
    return " · ".join(parts)


def node_text(node: OutlineNode, view: TreePicture) -> str:
    """Return the beginning of what is said there, in one line; nothing where it may not be seen."""
    message = view.messages.get(node.place)
    if message is None or not view.texts:
        return ""
    text = " ".join(str(getattr(message, "preview", "") or "").split())
    called = getattr(message, "first_call", None)
    return text or (f"calls {called}" if called else "")


def fitting(text: str, letters: float) -> str:
    """Return as much of a text as fits; East Asian letters take the room of two."""
    room = letters
    for number, letter in enumerate(text):
        room -= 1.9 if unicodedata.east_asian_width(letter) in "WF" else 1
        if room < 0:
            return f"{text[: max(0, number - 1)].rstrip()}…"
    return text
