"""The outline of a session's tree: its forks, line ends and roots, without what lies between.

It is worked out from the branches, of which a few columns are read: a fixed number of statements
and linear work, however deep and wide the tree is. Texts are read for what is shown alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.core.exceptions import EmptyResultSet
from django.db.models import (
    BooleanField,
    Case,
    F,
    Func,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    UUIDField,
    Value,
    When,
)
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce, Left

from chatapp.extensions import MarkKind, SwitchUnderWay, TreeMark, TreePart, registered
from chatapp.models import Branch, Message, Session

PREVIEW_CHARS = 120
Place = tuple[int, UUID]
"""(position, branch) of a node; parents stand before their children in this order."""


class OutlineBranch(NamedTuple):
    """What the outline reads of a branch; `last` and `first` are places of its own messages."""

    id: UUID
    parent_id: UUID | None
    fork_position: int | None
    kind: str
    label: str
    message_count: int
    token_total: int
    created_at: datetime
    last: int | None
    first: int | None

    @property
    def head(self) -> Place:
        """Where the branch ends: at its last message, at its fork, or nowhere yet (position 0)."""
        if self.last is not None:
            return self.last, self.id
        return self.fork or (0, self.id)

    @property
    def fork(self) -> Place | None:
        """Where it leaves its parent; None for a line of its own."""
        if self.parent_id is None or self.fork_position is None:
            return None
        return self.fork_position, self.parent_id


@dataclass(slots=True, eq=False)
class OutlineNode:
    """A message at which branches begin or end, or that opens a line; `parent` is the next above.

    `marks` stand on the way from the parent to it. Position 0 is a line without any message.
    `more_heads` and `more_forks` count branches that were not read.
    """

    place: Place
    parent: OutlineNode | None
    is_active: bool
    heads: list[OutlineBranch] = field(default_factory=list)
    forks: list[OutlineBranch] = field(default_factory=list)
    marks: list[TreeMark] = field(default_factory=list)
    more_heads: int = 0
    more_forks: int = 0

    @property
    def head_count(self) -> int:
        """How many branches end here."""
        return len(self.heads) + self.more_heads

    @property
    def fork_count(self) -> int:
        """How many branches begin here."""
        return len(self.forks) + self.more_forks

    @property
    def position(self) -> int:
        """Where its message stands."""
        return self.place[0]

    @property
    def branch_id(self) -> UUID:
        """The branch that its message belongs to."""
        return self.place[1]

    def marks_of(self, kind: MarkKind) -> list[TreeMark]:
        """Return the marks of one kind."""
        return [mark for mark in self.marks if mark.kind == kind]


class Outline:
    """A session's tree: `branches` by their ids, oldest first, and `nodes`, parents first."""

    def __init__(
        self,
        branches: Iterable[OutlineBranch],
        marks: Iterable[TreeMark],
        active: UUID | None,
    ) -> None:
        self.branches = {branch.id: branch for branch in branches}
        self.active = active
        self._through = self._active_line()
        self._positions = self._find_positions()
        self._by_place: dict[Place, OutlineNode] = {}
        self.nodes = self._grow()
        for branch in self.branches.values():
            self._by_place[branch.head].heads.append(branch)
            if branch.fork is not None:
                self._by_place[branch.fork].forks.append(branch)
        for mark in marks:
            if mark.branch_id in self.branches:
                self._node_below(mark).marks.append(mark)

    def node_at(self, place: Place) -> OutlineNode | None:
        """Return the node of a place."""
        return self._by_place.get(place)

    def _active_line(self) -> dict[UUID, int]:
        """Return up to where each branch of the active path belongs to it."""
        found: dict[UUID, int] = {}
        branch = self.branches.get(self.active) if self.active else None
        through = None
        while branch is not None and branch.id not in found:
            here = branch.head[0] if through is None else through
            found[branch.id] = here
            fork = branch.fork
            through = None if fork is None else min(here, fork[0])
            branch = None if fork is None else self.branches.get(fork[1])
        return found

    def _find_positions(self) -> dict[UUID, list[int]]:
        """Return where the nodes of each branch stand, in order."""
        found: dict[UUID, set[int]] = defaultdict(set)
        for branch in self.branches.values():
            places = [branch.head, branch.fork]
            if branch.fork is None and branch.first is not None:
                places.append((branch.first, branch.id))
            for place in places:
                if place is not None:
                    found[place[1]].add(place[0])
        return {branch: sorted(positions) for branch, positions in found.items()}

    def _grow(self) -> list[OutlineNode]:
        places = sorted((at, branch) for branch, own in self._positions.items() for at in own)
        last: dict[UUID, OutlineNode] = {}
        nodes = []
        for place in places:
            position, branch = place
            above = last.get(branch)
            if above is None:
                fork = self.branches[branch].fork
                above = self._by_place.get(fork) if fork is not None else None
            is_active = position <= self._through.get(branch, -1)
            node = OutlineNode(place=place, parent=above, is_active=is_active)
            last[branch] = self._by_place[place] = node
            nodes.append(node)
        return nodes

    def _node_below(self, mark: TreeMark) -> OutlineNode:
        """Return the node at whose edge from above a mark stands: the next one on its branch."""
        own = self._positions.get(mark.branch_id, [])
        if own:
            number = min(bisect_left(own, mark.position), len(own) - 1)
            return self._by_place[own[number], mark.branch_id]
        return self._by_place[self.branches[mark.branch_id].head]


def outline_of(session: Session) -> Outline:
    """Return the outline of a session's tree; a statement for it, and one for each extension."""
    rows = columns_of(Branch.objects.filter(session=session))
    branches = [OutlineBranch(*row) for row in rows.iterator(chunk_size=2_000)]
    return Outline(branches, marks_of(session), session.active_branch_id)


def columns_of(rows: QuerySet[Branch], *more: Subquery | Func) -> QuerySet[Branch, tuple[Any, ...]]:
    """Return what an OutlineBranch holds of branches, oldest first; and more behind it."""
    own = Message.objects.filter(branch=OuterRef("pk")).exclude(kind=Message.Kind.PLACEHOLDER)
    last = Subquery(own.order_by("-position").values("position")[:1])
    first = Case(When(parent=None, then=Subquery(own.order_by("position").values("position")[:1])))
    return rows.order_by("created_at", "pk").values_list(
        "id",
        "parent_id",
        "fork_position",
        "kind",
        "label",
        "message_count",
        "token_total",
        "created_at",
        last,
        first,
        *more,
    )


def marks_of(session: Session, *, part: TreePart | None = None) -> list[TreeMark]:
    """Return what other apps mark in a session's tree, or in a part of it alone."""
    reads = (each.tree_marks for each in registered() if each.tree_marks is not None)
    return [mark for read in reads for mark in read(session.pk, part)]


def switch_of(session: Session) -> SwitchUnderWay | None:
    """Return the switch to another branch that is under way in a session, or None."""
    reads = (each.switch_under_way for each in registered() if each.switch_under_way is not None)
    return next((found for read in reads if (found := read(session.pk)) is not None), None)


def shown_messages(nodes: Iterable[OutlineNode]) -> Mapping[Place, Message]:
    """Return the messages of some nodes with the beginnings of their texts: one statement.

    Each has `preview`, the beginning of its text, and `first_call`, the tool that it calls first.
    """
    rows = _previewed(_AtPlaces({node.place for node in nodes}))
    return {(row.position, row.branch_id): row for row in rows}


class _AtPlaces(Func):
    """Whether a message stands at one of some places: each is looked up by the index."""

    output_field = BooleanField()

    def __init__(self, places: Iterable[Place]) -> None:
        super().__init__(F("branch_id"), F("position"))
        self._places = list(places)

    def as_sql(self, compiler: Any, connection: Any, **_: Any) -> Any:  # type: ignore[override]
        """Return the condition."""
        if not self._places:
            raise EmptyResultSet
        branch, position = (compiler.compile(one)[0] for one in self.source_expressions)
        is_postgresql = connection.vendor == "postgresql"
        form = "(CAST(%s AS uuid), CAST(%s AS bigint))" if is_postgresql else "(%s, %s)"
        rows = ", ".join([form] * len(self._places))
        key = UUIDField().get_db_prep_value
        values = [one for at, branch in self._places for one in (key(branch, connection), at)]
        return f"({branch}, {position}) IN (VALUES {rows})", values


def _previewed(wanted: Q | Func) -> QuerySet[Message]:
    rows = Message.objects.filter(wanted).only(
        "branch_id", "position", "role", "kind", "tool_name", "tokens_through", "created_at"
    )
    return rows.annotate(
        preview=Coalesce(Left("content", PREVIEW_CHARS), Value("")),
        first_call=KT("tool_calls__0__function__name"),
    )


# --- lists of branches ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkCount:
    """How many marks of a kind a branch has of its own, and shares with its ancestors."""

    own: int = 0
    shared: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchFacts:
    """What a list tells of a branch besides its columns."""

    last_message: Message | None
    fork_message: UUID | None
    marks: Mapping[MarkKind, MarkCount]


def with_ends(rows: QuerySet[Branch]) -> QuerySet[Branch]:
    """Return branches with the ids of their last message and of the one that they fork behind."""
    own = Message.objects.filter(branch=OuterRef("pk")).exclude(kind=Message.Kind.PLACEHOLDER)
    at_fork = Message.objects.filter(
        branch=OuterRef("parent"), position=OuterRef("fork_position")
    ).values("pk")[:1]
    last = own.order_by("-position").values("pk")[:1]
    return rows.annotate(fork_message=Subquery(at_fork), last_own=Subquery(last))


def facts_of(session: Session, branches: Sequence[Branch]) -> Mapping[UUID, BranchFacts]:
    """Return the facts of branches that `with_ends` read, by their ids.

    It takes three statements and those of the extensions, however many and deep they are.
    """
    ends: dict[UUID, Any] = {
        row.pk: getattr(row, "last_own", None) or _fork_message(row) for row in branches
    }
    wanted = [pk for pk in ends.values() if pk is not None]
    messages = {row.pk: row for row in _previewed(Q(pk__in=wanted))}
    counts = _mark_counts(session)
    return {
        row.pk: BranchFacts(
            last_message=messages.get(ends[row.pk]),
            fork_message=_fork_message(row),
            marks={kind: counts.of(row.pk, kind) for kind in MarkKind},
        )
        for row in branches
    }


def _fork_message(row: Branch) -> UUID | None:
    found: UUID | None = getattr(row, "fork_message", None)
    return found


class _MarkCounts:
    """Sums of marks along every path: a branch shares what its parent has up to the fork."""

    def __init__(
        self, forks: Mapping[UUID, tuple[UUID | None, int]], marks: Iterable[TreeMark]
    ) -> None:
        self._forks = forks
        self._own: dict[tuple[UUID, MarkKind], list[int]] = defaultdict(list)
        for mark in marks:
            self._own[mark.branch_id, mark.kind].append(mark.position)
        for positions in self._own.values():
            positions.sort()
        self._shared: dict[tuple[UUID, MarkKind], int] = {}

    def of(self, branch: UUID, kind: MarkKind) -> MarkCount:
        own = self._own.get((branch, kind), ())
        return MarkCount(own=len(own), shared=self._shared_by(branch, kind))

    def _shared_by(self, branch: UUID, kind: MarkKind) -> int:
        """Return the sum above a branch; what was worked out on the way is kept."""
        line: list[tuple[UUID, int]] = []
        at: UUID | None = branch
        while at is not None and (at, kind) not in self._shared:
            parent, fork = self._forks.get(at, (None, 0))
            line.append(
                (at, bisect_right(self._own.get((parent, kind), ()), fork) if parent else 0)
            )
            at = parent
        total = self._shared[at, kind] if at is not None else 0
        for key, of_parent in reversed(line):
            total += of_parent
            self._shared[key, kind] = total
        return self._shared[branch, kind]


def _mark_counts(session: Session) -> _MarkCounts:
    marks = marks_of(session)
    rows = Branch.objects.filter(session=session) if marks else Branch.objects.none()
    forks = {
        key: (parent, fork or 0)
        for key, parent, fork in rows.values_list("pk", "parent_id", "fork_position").iterator()
    }
    return _MarkCounts(forks, marks)
