"""The tree of a run's steps, drawn: one row a step, moved in by depth, with the messages it read.

The drawing is SVG made here; colours come from static/compaction/run.css. What it says is also in
the table of steps below it, and in each row's label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.page_parts import Panel
from chatapp.admin.toolkit.svg import anchor, drawing, element, title
from chatapp.models import POSITION_STEP
from compaction import vocabulary
from compaction.admin.lists import STEPS_SHOWN, shown_steps
from compaction.models import CompactionRun, CompactionStep
from compaction.vocabulary import KIND_MEANINGS, MERGE, PREFIX, UPDATE, is_forced, reads_texts

# Kinds whose names do not tell what they are.
TOLD_KINDS = (UPDATE, PREFIX)
# Deeper than any run goes; a row that says more is drawn here.
DEEPEST_LEVEL = 40

Outcome = CompactionStep.Outcome

ROW, HEAD, NODE_HEIGHT = 30, 26, 22
NODE_WIDTH = 178
# How far a level is moved in: (deepest level, by how much); deeper trees are drawn narrower.
INDENTS = ((4, 20), (8, 12), (DEEPEST_LEVEL, 8))
BAR_WIDTH, NARROWEST_BAR = 190, 3
MODEL_CHARS = 16
# A tree with more rows scrolls in its frame, so that what stands below stays within reach.
PAGE_LONG = 64
# More rows than this are no stops of the tab key: the table of steps below has the same links.
MOST_TAB_STOPS = 50
# Columns between the nodes and the bars, with their widths.
COLUMNS = (("Depth", 48), ("Messages", 122), ("Tokens in → out", 122), ("Time", 58), ("Model", 124))
# Drawn, not written: every font has them. 12 by 12.
SIGNS = {
    "ok": "M2 6.5l3 3 5-7",
    "overflow": "M6 1v4L2 10M6 5l4 5M2 10l.2-3M2 10l2.6-1.2M10 10l-.2-3M10 10l-2.6-1.2",
    "truncated": "M1 6h6M9 1.5v9",
    "error": "M2.5 2.5l7 7M9.5 2.5l-7 7",
    "forced": "M1 2.5h10M3 6h6M5 9.5h2",
    "rejected": "M6 1.5a4.5 4.5 0 1 0 .01 0M3 9l6-6",
    "unasked": "M6 1v4L2 10M6 5l4 5",
}
LEGEND = ("ok", "overflow", "truncated", "error", "forced", "rejected")


@dataclass(slots=True, kw_only=True, eq=False)
class Node:
    """One place in the tree; without a step, a part that was halved although nobody was asked.

    `first` and `last` are positions: of a merge, those of what it joined. `joins` are the steps
    whose outputs a merge was given.
    """

    step: CompactionStep | None
    parent: Node | None
    level: int
    first: int | None = None
    last: int | None = None
    joins: tuple[CompactionStep, ...] = ()
    is_merged: bool = False
    """Whether a merge below it has put the halves together: no further part belongs to it."""


def arrange(steps: Sequence[CompactionStep]) -> list[Node]:
    """Return the nodes in the order of the steps, which is the tree's order from the top.

    `steps` are a run's first steps by `order`, with their first and last messages.
    """
    tree = _Tree()
    for step in steps:
        tree.add(step)
    return tree.nodes


class _Tree:
    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._of_step: dict[int, Node] = {}
        # The line of nodes from the top to where the next part belongs, one a level.
        self._line: list[Node] = []
        # Parts whose summary is there and not joined yet.
        self._ready: list[Node] = []

    def add(self, step: CompactionStep) -> None:
        """Put one more step in its place."""
        parent = self._parent_of(step)
        node = Node(step=step, parent=parent, level=parent.level + 1 if parent else 0)
        if step.first_message and step.last_message:
            node.first, node.last = step.first_message.position, step.last_message.position
        self.nodes.append(node)
        self._of_step[step.pk] = node
        self._line[node.level :] = [node]
        if step.kind == MERGE:
            self._join(node, step)
        elif step.outcome == Outcome.OK or is_forced(step):
            self._ready.append(node)
        self._widen(node)

    def _join(self, node: Node, step: CompactionStep) -> None:
        joined = self._ready[-2:]
        if len(joined) < 2:
            return
        node.joins = tuple(part.step for part in joined if part.step is not None)
        node.first, node.last = joined[0].first, joined[1].last
        if step.outcome == Outcome.OK or is_forced(step):
            self._ready[-2:] = [node]
            above = node.parent
            while above is not None and above.step is not None and above.step.kind == MERGE:
                above = above.parent
            if above is not None:
                above.is_merged = True

    def _parent_of(self, step: CompactionStep) -> Node | None:
        """Return the node above a step; parts between that were never asked are put in."""
        depth = min(step.depth, DEEPEST_LEVEL)
        named = self._of_step.get(step.parent_id or 0)
        if step.kind != MERGE:
            for level, node in enumerate(self._line[:depth]):
                if node.step is None and node.is_merged:
                    del self._line[level:]
                    break
        del self._line[depth:]
        if named is not None and named not in self._line:
            # Not halved but tried in another way: the text shortened after a refusal.
            self._line = _line_to(named)
            return named
        while len(self._line) < depth:
            above = self._line[-1] if self._line else None
            unasked = Node(step=None, parent=above, level=len(self._line))
            self.nodes.append(unasked)
            self._line.append(unasked)
        return self._line[-1] if self._line else None

    def _widen(self, node: Node) -> None:
        """Tell the parts above that were never asked which messages they hold."""
        above = node.parent
        while above is not None and node.first is not None and node.last is not None:
            if above.step is None:
                above.first = min(node.first, node.first if above.first is None else above.first)
                above.last = max(node.last, node.last if above.last is None else above.last)
            above = above.parent


def _line_to(node: Node) -> list[Node]:
    line = [node]
    while (above := line[0].parent) is not None:
        line.insert(0, above)
    return line


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """Where the columns stand, and which positions the bars span."""

    tree_width: int
    indent: int
    low: int
    high: int

    @property
    def bars(self) -> int:
        return self.tree_width + sum(width for _, width in COLUMNS)

    @property
    def width(self) -> int:
        return self.bars + BAR_WIDTH + 4

    def bar(self, node: Node) -> tuple[float, float] | None:
        """Return x and width of the part of the run's messages that a node holds."""
        if node.first is None or node.last is None:
            return None
        span = self.high - self.low + POSITION_STEP
        x = BAR_WIDTH * (node.first - self.low) / span
        width = BAR_WIDTH * (node.last - node.first + POSITION_STEP) / span
        return self.bars + min(x, BAR_WIDTH - NARROWEST_BAR), max(width, float(NARROWEST_BAR))


def tree_panel(run: CompactionRun) -> Panel | None:
    """Return the drawing of a run's first steps; None before there is one."""
    steps = shown_steps(run)
    if not steps:
        return None
    shown = steps[:STEPS_SHOWN]
    note = "Every step in its order; what a halved input became stands below it, moved in."
    if len(steps) > len(shown):
        note = (
            f"The first {len(shown):,} of {run.steps.count():,} steps are drawn, in their order; "
            "the list of steps has all of them."
        )
    if any(step.kind in TOLD_KINDS for step in shown):
        told = "; ".join(f"{kind}: {KIND_MEANINGS[kind]}" for kind in TOLD_KINDS)
        note = f"{note} Each text has a tree of its own ({told})."
    nodes = arrange(shown)
    body = render_to_string(
        "admin/compaction/run_tree.html",
        {
            "drawing": draw(nodes),
            "is_long": len(nodes) > PAGE_LONG,
            "legend": [_legend(kind) for kind in LEGEND],
        },
    )
    return Panel(title="Steps as a tree", body=body, note=note)


def draw(nodes: list[Node]) -> SafeString:
    """Return the drawing of the nodes, each row a link to its step."""
    frame = _frame(nodes)
    is_stop = sum(1 for node in nodes if node.step) <= MOST_TAB_STOPS
    rows = {id(node): number for number, node in enumerate(nodes)}
    edges = [
        _edge(node, rows[id(node)], node.parent, rows[id(node.parent)], frame)
        for node in nodes
        if node.parent is not None
    ]
    steps = formatting.plural(sum(1 for node in nodes if node.step), "step")
    return drawing(
        _head(frame),
        *edges,
        *(_row(node, number, frame, is_stop) for number, node in enumerate(nodes)),
        width=frame.width,
        height=HEAD + ROW * len(nodes) + 2,
        label=f"The {steps} of the run as a tree",
        cls="run-tree" if frame.width <= 1000 else "run-tree run-tree-wide",
        has_links=True,
    )


def _frame(nodes: list[Node]) -> _Frame:
    deepest = max(node.level for node in nodes)
    indent = next((each for level, each in INDENTS if deepest <= level), INDENTS[-1][1])
    return _Frame(
        tree_width=NODE_WIDTH + indent * deepest + 16,
        indent=indent,
        low=min((node.first for node in nodes if node.first is not None), default=0),
        high=max((node.last for node in nodes if node.last is not None), default=0),
    )


def _head(frame: _Frame) -> SafeString:
    x, parts = frame.tree_width, [_text("Step", 2, 16, "head")]
    for name, width in COLUMNS:
        parts.append(_text(name, x, 16, "head"))
        x += width
    parts.append(_text(_span_words(frame), frame.bars, 16, "head"))
    return element("g", *parts, aria_hidden="true")


def _span_words(frame: _Frame) -> str:
    if not frame.high:
        return "Part of the messages"
    return f"Messages {formatting.place(frame.low)} – {formatting.place(frame.high)}"


def _edge(node: Node, row: int, parent: Node, parent_row: int, frame: _Frame) -> SafeString:
    """Return the line from a part down to what became of it."""
    x = frame.indent * parent.level + 8
    top, y = _middle(parent_row) + NODE_HEIGHT / 2, _middle(row)
    end = frame.indent * node.level + 1
    return element("path", d=f"M{x} {top:g}V{y:g}H{end}", cls="edge", aria_hidden="true")


def _middle(row: int) -> float:
    return HEAD + ROW * row + ROW / 2


def _row(node: Node, number: int, frame: _Frame, is_stop: bool) -> SafeString:
    y = HEAD + ROW * number
    kind = vocabulary.outcome_kind(node.step) if node.step else "unasked"
    x = frame.indent * node.level + 1
    shapes = [
        element("rect", cls="hit", x=0, y=y + 1, width=frame.width, height=ROW - 2, rx=4),
        element(
            "rect", cls=f"node is-{kind}", x=x, y=y + 4, width=NODE_WIDTH, height=NODE_HEIGHT, rx=4
        ),
        element("path", cls="sign", d=SIGNS[kind], transform=f"translate({x + 7} {y + 9})"),
        _text(_name(node), x + 25, y + 19, "name"),
        *_bar(node, y, kind, frame),
    ]
    if node.step is None:
        why = "Nobody was asked: the part was sure to be too large (planned_split)."
        return element("g", title(why), *shapes, cls="row")
    at = frame.tree_width
    for (_, width), value in zip(COLUMNS, _values(node, node.step), strict=True):
        shapes.append(_text(value, at, y + 19, "value"))
        at += width
    label = label_of(node, node.step)
    url = html.change_url(CompactionStep, node.step.pk)
    return anchor(url, title(label), *shapes, label=label, is_stop=is_stop)


def _text(words_shown: str, x: float, y: float, cls: str) -> SafeString:
    return element("text", words_shown, x=x, y=y, cls=cls)


def _name(node: Node) -> str:
    if node.step is None:
        return "halved, not asked"
    step = node.step
    ended = vocabulary.OUTCOMES[vocabulary.outcome_kind(step)]
    return f"{step.order}. {formatting.shortened(step.kind, 10)} · {ended}"


def _values(node: Node, step: CompactionStep) -> tuple[str, ...]:
    return (
        f"{step.depth}",
        _range_words(node, step),
        f"{step.input_tokens:,} → {step.output_tokens:,}",
        vocabulary.step_seconds(step),
        formatting.shortened(step.model, MODEL_CHARS) if step.model else "—",
    )


def _range_words(node: Node, step: CompactionStep) -> str:
    if step.kind == vocabulary.MERGE:
        joined = " + ".join(str(part.order) for part in node.joins)
        return f"joins {joined}" if joined else "two texts"
    if node.first is None:
        return f"{step.message_count:,}{' texts' if reads_texts(step) else ''}"
    return (
        f"{formatting.place(node.first)} – {formatting.place(node.last)} ({step.message_count:,})"
    )


def _bar(node: Node, y: float, kind: str, frame: _Frame) -> list[SafeString]:
    place = frame.bar(node)
    track = element("rect", cls="track", x=frame.bars, y=y + 13, width=BAR_WIDTH, height=4)
    if place is None:
        return [track]
    x, width = place
    is_read = node.step is not None and node.step.kind != vocabulary.MERGE
    bar: Any = f"bar is-{kind}" if is_read else "bar is-joined"
    return [track, element("rect", cls=bar, x=x, y=y + 8, width=width, height=14)]


def label_of(node: Node, step: CompactionStep) -> str:
    """Return everything a row says, as one sentence."""
    if step.kind == vocabulary.MERGE:
        joined = " and ".join(str(part.order) for part in node.joins)
        read = f"joins the outputs of {joined}" if joined else "joins two texts"
    elif node.first is None:
        read = f"{step.message_count:,} {'texts' if reads_texts(step) else 'messages'}"
    else:
        read = (
            f"messages {formatting.place(node.first)} to {formatting.place(node.last)} "
            f"({step.message_count:,})"
        )
    model = f", {formatting.shortened(step.model)}" if step.model else ""
    outcome = vocabulary.OUTCOMES[vocabulary.outcome_kind(step)]
    return (
        f"Step {step.order}, {step.kind}, {outcome}: {read}, "
        f"{step.input_tokens:,} tokens in, {step.output_tokens:,} out, "
        f"{vocabulary.step_seconds(step)}, depth {step.depth}{model}"
    )


def _legend(kind: str) -> dict[str, Any]:
    sign = element("path", cls="sign", d=SIGNS[kind], transform="translate(3 3)")
    frame = element("rect", cls=f"node is-{kind}", x=1, y=1, width=16, height=16, rx=4)
    return {
        "sign": element(
            "svg", frame, sign, viewBox="0 0 18 18", cls="run-sign", aria_hidden="true"
        ),
        "words": vocabulary.OUTCOMES[kind],
        "meaning": vocabulary.OUTCOME_MEANINGS[kind],
    }
