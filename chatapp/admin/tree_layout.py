"""Which rows the picture of a tree has: lines below each other, and what is folded between them.

The line in use comes first and stands in the leftmost lane; what leaves it is indented by a lane. A
tree of some rows is shown whole. Of a larger one the long lines are folded in their middle, and of
many lines that begin at one place the first are shown; every fold leads to a page of what it hides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from chatapp import formatting
from chatapp.outline import Outline, OutlineNode

# Below this many nodes a tree is shown whole.
SMALL_TREE = 40
MOST_ROWS = 70
MOST_LANES = 6
# Nodes of a line that are shown before and behind a fold, by its lane; the last counts for others.
LINE_ENDS = ((5, 6), (1, 2), (1, 1))
SIDE_LINES = 3
LINES_OF_A_PAGE = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeFold:
    """What is not drawn: how much, and the node and number that its own page begins with."""

    words: str
    node: OutlineNode | None
    skip: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeRow:
    """One row of the picture: a node or a fold, in a lane, hanging under a row above it."""

    number: int
    lane: int
    above: int | None
    node: OutlineNode | None = None
    fold: TreeFold | None = None
    is_active: bool = False


class TreeLayout:
    """The rows of a tree, or of what hangs under one of its nodes, from the `skip`th line on."""

    def __init__(self, outline: Outline, *, start: OutlineNode | None, skip: int = 0) -> None:
        self.rows: list[TreeRow] = []
        self._start, self._skip = start, skip
        self._children: dict[int, list[OutlineNode]] = defaultdict(list)
        self._roots: list[OutlineNode] = []
        self._ends: dict[int, int] = {}
        self._age = {branch: number for number, branch in enumerate(outline.branches)}
        for node in outline.nodes:
            above = self._roots if node.parent is None else self._children[id(node.parent)]
            above.append(node)
        for node in reversed(outline.nodes):
            own = len(node.heads) + self._ends.get(id(node), 0)
            self._ends[id(node)] = own
            if node.parent is not None:
                self._ends[id(node.parent)] = self._ends.get(id(node.parent), 0) + own
        self._is_small = start is None and len(outline.nodes) <= SMALL_TREE
        self._draw()

    def _draw(self) -> None:
        """Draw the tree; of a node whose first lines are skipped, the lines that follow."""
        if self._start is None:
            self._lines(self._main_first(self._roots), lane=0, above=None)
        elif self._skip:
            row = self._add(lane=0, above=None, node=self._start)
            self._lines(self._sides_of(self._start), lane=1, above=row.number)
        else:
            self._line(self._start, lane=0, above=None)

    def _lines(self, starts: Sequence[OutlineNode], *, lane: int, above: int | None) -> None:
        """Draw a page of lines that begin at one place, from the one that was asked for on."""
        shown = starts[self._skip : self._skip + LINES_OF_A_PAGE]
        for start in shown:
            self._line(start, lane=lane, above=above)
        rest = starts[self._skip + len(shown) :]
        if rest:
            skip = self._skip + len(shown)
            self._fold(rest, lane=lane, above=above, node=self._start, skip=skip)

    def _line(self, start: OutlineNode, *, lane: int, above: int | None) -> None:
        """Draw a line down to its end, and behind each node the lines that leave it there."""
        chain = [start]
        while children := self._children.get(id(chain[-1])):
            chain.append(self._main_first(children)[0])
        first, last = LINE_ENDS[min(lane, len(LINE_ENDS) - 1)]
        whole = self._is_small or len(chain) <= first + last + 1
        for number, node in enumerate(chain):
            if whole or number < first or number >= len(chain) - last:
                above = self._add(lane=lane, above=above, node=node).number
                self._sides(node, lane=lane + 1, above=above)
            elif number == first:
                hidden = len(chain) - first - last
                words = f"{formatting.plural(hidden, 'more fork')} of this line"
                fold = TreeFold(words=words, node=node)
                above = self._add(
                    lane=lane, above=above, fold=fold, is_active=node.is_active
                ).number

    def _sides(self, node: OutlineNode, *, lane: int, above: int) -> None:
        sides = self._sides_of(node)
        most = len(sides) if self._is_small else SIDE_LINES
        if lane > MOST_LANES or (len(self.rows) >= MOST_ROWS and not self._is_small):
            most = 0
        for side in sides[:most]:
            self._line(side, lane=lane, above=above)
        if sides[most:]:
            self._fold(sides[most:], lane=lane, above=above, node=node, skip=most)

    def _sides_of(self, node: OutlineNode) -> Sequence[OutlineNode]:
        return self._main_first(self._children.get(id(node), []))[1:]

    def _main_first(self, nodes: list[OutlineNode]) -> list[OutlineNode]:
        """Return siblings, oldest first; before all the one in use, else their parent's own."""
        return sorted(nodes, key=self._rank)

    def _rank(self, node: OutlineNode) -> tuple[bool, bool, int]:
        is_own = node.parent is not None and node.branch_id == node.parent.branch_id
        return not node.is_active, not is_own, self._age[node.branch_id]

    def _fold(
        self,
        hidden: Sequence[OutlineNode],
        *,
        lane: int,
        above: int | None,
        node: OutlineNode | None,
        skip: int,
    ) -> None:
        lines = formatting.plural(len(hidden), "more line")
        ends = sum(self._ends[id(each)] for each in hidden)
        inside = "" if ends == len(hidden) else f" with {formatting.plural(ends, 'end')}"
        fold = TreeFold(words=f"{lines}{inside}", node=node, skip=skip)
        is_active = any(each.is_active for each in hidden)
        self._add(lane=lane, above=above, fold=fold, is_active=is_active)

    def _add(
        self,
        *,
        lane: int,
        above: int | None,
        node: OutlineNode | None = None,
        fold: TreeFold | None = None,
        is_active: bool = False,
    ) -> TreeRow:
        row = TreeRow(
            number=len(self.rows),
            lane=min(lane, MOST_LANES),
            above=above,
            node=node,
            fold=fold,
            is_active=node.is_active if node is not None else is_active,
        )
        self.rows.append(row)
        return row
