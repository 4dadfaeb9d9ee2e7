"""The outline of one branch: where others leave it, and where it ends, read page by page.

Nothing of the tree beyond the page is read: a page costs the same however many branches a session
has. Only where very many branches leave at one place does the database count them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Case, Count, Exists, F, OuterRef, Q, QuerySet, When, Window
from django.db.models.functions import RowNumber
from django.http import Http404

from chatapp.lineage import OnPath
from chatapp.models import POSITION_STEP, Branch, Message, Session
from chatapp.outline import OutlineBranch, OutlineNode, columns_of, marks_of

MOST_NAMED = 20
"""Branches that begin at a node and are read, and as many that end there; the rest is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchPage:
    """Nodes of one branch in the order of their positions, and whether more stand around them."""

    nodes: Sequence[OutlineNode]
    has_before: bool
    has_behind: bool


def branch_page(
    session: Session, branch_id: UUID, *, size: int, after: int = -1, before: int | None = None
) -> BranchPage:
    """Return the nodes behind a position, or the last ones before one; 404 for another's branch.

    A branch without messages of its own has no nodes: it ends at one of the branch it leaves.
    """
    rows = columns_of(Branch.objects.filter(session=session, pk=branch_id))
    row = next(iter(rows), None)
    if row is None:
        raise Http404
    places = _BranchPlaces(OutlineBranch(*row))
    if before is None:
        found = places.behind(after, size + 1)
        kept = found[:size]
        has_before, has_behind = bool(kept) and places.any_before(kept[0]), len(found) > size
    else:
        found = places.before(before, size + 1)
        kept = found[-size:]
        has_before, has_behind = len(found) > size, bool(places.behind(before - 1, 1))
    return BranchPage(
        nodes=_BranchNodes(session, places, kept, is_last=not has_behind).all(),
        has_before=has_before,
        has_behind=has_behind,
    )


class _BranchPlaces:
    """Where the nodes of a branch stand: its first message, its last one, and the forks off it."""

    def __init__(self, branch: OutlineBranch) -> None:
        self.branch = branch
        ends = {branch.first, branch.last} - {None}
        if branch.fork is None and branch.last is None:
            # A line without any message.
            ends = {0}
        self._ends: list[int] = sorted(one for one in ends if one is not None)
        self._forks = Branch.objects.filter(parent=branch.id)

    def behind(self, position: int, most: int) -> list[int]:
        """Return the first places behind a position."""
        forks = self._distinct(self._forks.filter(fork_position__gt=position), "fork_position")
        ends = [one for one in self._ends if one > position]
        return sorted({*forks[:most], *ends})[:most]

    def before(self, position: int, most: int) -> list[int]:
        """Return the last places before a position, in order."""
        forks = self._distinct(self._forks.filter(fork_position__lt=position), "-fork_position")
        ends = [one for one in self._ends if one < position]
        return sorted({*forks[:most], *ends})[-most:]

    def any_before(self, position: int) -> bool:
        """Whether a node stands before a position."""
        return bool(self.before(position, 1))

    def above(self, position: int) -> tuple[int, UUID] | None:
        """Return the place of the next node above: on the branch, or where it leaves another."""
        own = self.before(position, 1)
        return (own[0], self.branch.id) if own else self.branch.fork

    @staticmethod
    def _distinct(rows: QuerySet[Branch], order: str) -> QuerySet[Any, Any]:
        return rows.order_by(order).values_list("fork_position", flat=True).distinct()

    def counts(self, positions: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Return how many branches begin at each place, and how many of them end there."""
        rows = self._forks.filter(fork_position__in=positions).values("fork_position")
        counted = rows.annotate(begin=Count("pk"), end=Count("pk", filter=_IS_EMPTY))
        return {row["fork_position"] or 0: (row["begin"], row["end"]) for row in counted.order_by()}

    def named(self, positions: Sequence[int]) -> list[OutlineBranch]:
        """Return the oldest branches that begin at each place, and the oldest that end there."""
        number = Window(
            RowNumber(),
            partition_by=["fork_position", Case(When(_IS_EMPTY, then=1), default=0)],
            order_by=["created_at", "pk"],
        )
        numbered = self._forks.filter(fork_position__in=positions).annotate(number=number)
        oldest = numbered.filter(number__lte=MOST_NAMED).values("pk")
        return [OutlineBranch(*row) for row in columns_of(Branch.objects.filter(pk__in=oldest))]


# It has no message of its own. A message stands a step behind the fork, or farther: nearer stand
# marks alone, and nobody need be looked at who is farther.
_OWN = Message.objects.filter(branch=OuterRef("pk")).exclude(kind=Message.Kind.PLACEHOLDER)
_IS_EMPTY = Q(head_position__lte=F("fork_position")) | Q(
    ~Exists(_OWN), head_position__lt=F("fork_position") + POSITION_STEP
)


class _BranchNodes:
    """The nodes of a page, with what begins, ends and stands at each."""

    def __init__(
        self, session: Session, places: _BranchPlaces, positions: Sequence[int], *, is_last: bool
    ) -> None:
        self._session, self._places = session, places
        self._positions, self._is_last = positions, is_last
        self._branch = places.branch

    def all(self) -> list[OutlineNode]:
        """Return them in the order of their positions."""
        if not self._positions:
            return []
        active = self._active()
        place = self._places.above(self._positions[0])
        # Of the node above only its place is told.
        above = None if place is None else OutlineNode(place=place, parent=None, is_active=False)
        nodes = []
        for position in self._positions:
            node = OutlineNode(
                place=(position, self._branch.id), parent=above, is_active=position in active
            )
            nodes.append(node)
            above = node
        self._add_branches({node.position: node for node in nodes})
        self._add_marks(nodes)
        return nodes

    def _active(self) -> set[int]:
        """Return the places through which the active branch goes."""
        used = self._session.active_branch_id
        if used is None:
            return set()
        if used == self._branch.id:
            return set(self._positions)
        rows = Message.objects.filter(branch=self._branch.id, position__in=self._positions)
        on_path = OnPath(F("branch_id"), F("position"), branch_id=used)
        return set(rows.filter(on_path).values_list("position", flat=True))

    def _add_branches(self, nodes: dict[int, OutlineNode]) -> None:
        if self._branch.head[1] == self._branch.id and self._branch.head[0] in nodes:
            nodes[self._branch.head[0]].heads.append(self._branch)
        counts = self._places.counts(self._positions)
        for fork in self._places.named(list(counts)):
            node = nodes[fork.fork_position or 0]
            if len(node.forks) < MOST_NAMED:
                node.forks.append(fork)
            if fork.last is None:
                node.heads.append(fork)
        for position, (begin, end) in counts.items():
            node = nodes[position]
            is_end = self._branch.head == node.place
            node.more_forks = begin - len(node.forks)
            node.more_heads = end + is_end - len(node.heads)

    def _add_marks(self, nodes: Sequence[OutlineNode]) -> None:
        first = nodes[0].parent
        above = first.position if first is not None and first.branch_id == self._branch.id else -1
        for mark in marks_of(self._session, branch=self._branch.id):
            number = bisect_left(self._positions, mark.position)
            if number == len(nodes) and self._is_last:
                number -= 1
            if mark.position > above and number < len(nodes):
                nodes[number].marks.append(mark)
