"""The steps of a run as a tree: who was halved into what, and which outputs a merge joined.

A step's row names its parent only where that parent was asked. A part that was sure to be refused
was halved without a call (`planned_split`): such parts are put back in here, as nodes without a
step, so that the halves do not hang in the air.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compaction.models import CompactionStep
from compaction.vocabulary import MERGE, is_forced

# Deeper than any run goes; a row that says more is drawn here.
DEEPEST_LEVEL = 40

Outcome = CompactionStep.Outcome


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
