"""Pages of the outline of a session's tree, or of one branch of it.

Nothing of the tree beyond the page is read: a page costs the same statements and rows however many
branches a session has. The database alone looks at more than that. It looks up where each branch
ends: no index holds that, for it changes with every message. It counts very many branches that
leave at one place, and looks up each line of its own and each line that ends with marks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.models import Case, Count, Exists, F, OuterRef, Q, QuerySet, Subquery, When, Window
from django.db.models.functions import RowNumber
from django.http import Http404

from chatapp.extensions import TreeMark, TreePart
from chatapp.lineage import END, LeftAt
from chatapp.models import POSITION_STEP, Branch, Message, Session
from chatapp.outline import OutlineBranch, OutlineNode, Place, columns_of, marks_of

MOST_NAMED = 100
"""Branches that begin at a node and are read, and as many that end there; the rest is counted."""
MOST_NAMED_OF_BRANCH = 20
"""The same where the nodes of one branch are asked for."""
# Before and behind all places.
START: Place = (-1, UUID(int=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePage:
    """Nodes in the order of their places, and whether more stand around them."""

    nodes: Sequence[OutlineNode]
    has_before: bool
    has_behind: bool


def node_page(
    session: Session,
    branch_id: UUID | None = None,
    *,
    size: int,
    after: Place = START,
    before: Place | None = None,
) -> NodePage:
    """Return the nodes of a session behind a place, or the last ones before one.

    With a branch those of that one alone; 404 for another session's. A branch without messages of
    its own has no nodes: it ends at one of the branch it leaves.
    """
    rows = Branch.objects.filter(session=session)
    if branch_id is not None and not rows.filter(pk=branch_id).exists():
        raise Http404
    places = _TreePlaces(session, branch_id)
    if before is None:
        found = places.behind(after, size + 1)
        kept = found[:size]
        has_before, has_behind = bool(places.up_to(after)), len(found) > size
    else:
        found = places.before(before, size + 1)
        kept = found[-size:]
        has_before, has_behind = len(found) > size, bool(places.since(before))
    most_named = MOST_NAMED if branch_id is None else MOST_NAMED_OF_BRANCH
    nodes = _PageNodes(session, kept, most_named=most_named).all() if kept else []
    return NodePage(nodes=nodes, has_before=has_before, has_behind=has_behind)


# --- where nodes stand ----------------------------------------------------------------------------

_OWN = "SELECT m.position FROM messages m WHERE m.branch_id = b.id AND m.kind <> 'placeholder'"
# Each part is in order and no longer than the page needs. In turn: where branches leave
# others; where lines end with a message; where they end with marks behind it; where those begin
# that leave no other (at 0 without a message). A head is never before a line's last message. What
# is looked up of a branch is no EXISTS: that would be joined, which reads all messages.
_PLACES = """
SELECT position, branch_id FROM (
    SELECT * FROM (
        SELECT DISTINCT b.fork_position AS position, b.parent_id AS branch_id FROM branches b
        WHERE {of_parent} AND (b.fork_position, b.parent_id) {test} (%s, %s)
        ORDER BY 1 {order}, 2 {order} LIMIT %s
    ) AS forks
    UNION SELECT * FROM (
        SELECT b.head_position, b.id FROM branches b
        WHERE {own} AND (b.head_position, b.id) {test} (%s, %s)
            AND ({of_own} AND m.position = b.head_position) IS NOT NULL
        ORDER BY 1 {order}, 2 {order} LIMIT %s
    ) AS heads
    UNION SELECT * FROM (
        SELECT ({of_own} ORDER BY m.position DESC LIMIT 1) AS position, b.id
        FROM messages k JOIN branches b ON b.id = k.branch_id AND b.head_position = k.position
        WHERE {marks} AND k.kind = 'placeholder' AND k.position > %s
    ) AS marked WHERE (position, id) {test} (%s, %s)
    UNION SELECT * FROM (
        SELECT COALESCE(({of_own} ORDER BY m.position LIMIT 1), 0) AS position, b.id
        FROM branches b WHERE {own} AND b.fork_position IS NULL
    ) AS roots WHERE (position, id) {test} (%s, %s)
) AS places
ORDER BY 1 {order}, 2 {order} LIMIT %s"""


class _TreePlaces:
    """Where the nodes of a session stand, or those of one branch."""

    def __init__(self, session: Session, branch_id: UUID | None = None) -> None:
        self.session = session
        self._connection = connections[Branch.objects.db]
        key, column = (branch_id, "id") if branch_id else (session.pk, "session_id")
        self._key = self._value(key)
        self._scope = {
            "of_parent": f"b.{'parent_id' if branch_id else column} = %s",
            "own": f"b.{column} = %s",
            "marks": f"k.{'branch_id' if branch_id else column} = %s",
        }

    def behind(self, place: Place, most: int) -> list[Place]:
        """Return the first places behind one."""
        return self._read(">", "ASC", place, most)

    def before(self, place: Place, most: int) -> list[Place]:
        """Return the last places before one, in order."""
        return self._read("<", "DESC", place, most)[::-1]

    def up_to(self, place: Place) -> list[Place]:
        """Return the last place up to one."""
        return self._read("<=", "DESC", place, 1)

    def since(self, place: Place) -> list[Place]:
        """Return the first place from one on."""
        return self._read(">=", "ASC", place, 1)

    def _read(self, test: str, order: str, place: Place, most: int) -> list[Place]:
        if test == "<=" and place[0] < 0:
            return []
        sql = _PLACES.format(test=test, order=order, of_own=_OWN, **self._scope)
        at = (place[0], self._value(place[1]))
        # Where a line ends with marks, its last message stands before them.
        marks_from = place[0] if order == "ASC" else -1
        page = (self._key, *at, most)
        values = (*page, *page, self._key, marks_from, *at, self._key, *at, most)
        with self._connection.cursor() as cursor:
            cursor.execute(sql, values)
            rows = cursor.fetchall()
        return [(at, key if isinstance(key, UUID) else UUID(key)) for at, key in rows]

    def _value(self, key: UUID) -> Any:
        return Branch._meta.pk.get_db_prep_value(key, self._connection)


# --- what stands at them --------------------------------------------------------------------------

# It has no message of its own. A message stands a step behind the fork, or farther: nearer stand
# marks alone, and nobody need be looked at who is farther.
_MESSAGES = Message.objects.filter(branch=OuterRef("pk")).exclude(kind=Message.Kind.PLACEHOLDER)
_IS_EMPTY = Q(head_position__lte=F("fork_position")) | Q(
    ~Exists(_MESSAGES), head_position__lt=F("fork_position") + POSITION_STEP
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PageBranch:
    """A branch that nodes of the page belong to, and what stands around them on it."""

    row: OutlineBranch
    above: int | None
    """Where the last branch before the page leaves it."""
    last_fork: int | None
    left_at: int | None
    """Up to which position the active path goes along it; None where it never does."""
    nodes: list[OutlineNode] = field(default_factory=list)

    def parent_of(self, position: int) -> Place | None:
        """Return the place above the page's first node: on the branch, or where it forks."""
        row = self.row
        first = row.first if row.parent_id is None else None
        own = [at for at in (self.above, first, row.last) if at is not None and at < position]
        return (max(own), row.id) if own else row.fork

    @property
    def stretch(self) -> tuple[int, int | None]:
        """Behind which position and up to which one marks belong to the page; None: to the end."""
        above, end = self.nodes[0].parent, self.nodes[-1].position
        after = above.position if above is not None and above.branch_id == self.row.id else -1
        return after, None if end >= max(self.last_fork or 0, self.row.last or 0) else end

    def take(self, mark: TreeMark) -> None:
        """Add a mark to the next node behind it, or to the last, if that one is on the page."""
        after, through = self.stretch
        if after < mark.position and (through is None or mark.position <= through):
            number = bisect_left(self.nodes, mark.position, key=_position_of)
            self.nodes[min(number, len(self.nodes) - 1)].marks.append(mark)


class _PageNodes:
    """The nodes of a page, with what begins, ends and stands at each."""

    def __init__(self, session: Session, places: Sequence[Place], *, most_named: int) -> None:
        self._session, self._places, self._most_named = session, places, most_named
        self._positions = sorted({position for position, _ in places})
        ids = {branch for _, branch in places}
        self._forks = Branch.objects.filter(parent__in=ids, fork_position__in=self._positions)
        self._branches = self._read_branches(ids)

    def all(self) -> list[OutlineNode]:
        """Return them in order."""
        nodes: dict[Place, OutlineNode] = {}
        for place in self._places:
            branch = self._branches[place[1]]
            above = branch.nodes[-1] if branch.nodes else None
            if above is None and (over := branch.parent_of(place[0])) is not None:
                # Of a node before the page only its place is told.
                above = nodes.get(over) or OutlineNode(place=over, parent=None, is_active=False)
            is_active = branch.left_at is not None and place[0] <= branch.left_at
            nodes[place] = OutlineNode(place=place, parent=above, is_active=is_active)
            branch.nodes.append(nodes[place])
        self._add_branches(nodes)
        self._add_marks(nodes)
        return list(nodes.values())

    def _read_branches(self, ids: set[UUID]) -> dict[UUID, _PageBranch]:
        first, _ = self._places[0]
        # Of the first position only those branches have a node before the page that have none on
        # it: they come earlier in the order of ids.
        on_first = [branch for position, branch in self._places if position == first]
        bound = Case(When(pk__in=on_first, then=first - 1), default=first)
        forks = Branch.objects.filter(parent=OuterRef("pk")).order_by("-fork_position")
        places = forks.values("fork_position")
        used = self._session.active_branch_id or UUID(int=0)
        rows = columns_of(
            Branch.objects.filter(pk__in=ids).alias(bound=bound),
            Subquery(places.filter(fork_position__lte=OuterRef("bound"))[:1]),
            Subquery(places[:1]),
            LeftAt(F("pk"), branch_id=used),
        )
        return {
            row[0]: _PageBranch(
                row=OutlineBranch(*row),
                above=above,
                last_fork=last,
                left_at=END if row[0] == used else left,
            )
            for *row, above, last, left in rows
        }

    def _add_branches(self, nodes: Mapping[Place, OutlineNode]) -> None:
        for branch in self._branches.values():
            if branch.row.head in nodes and branch.row.head[1] == branch.row.id:
                nodes[branch.row.head].heads.append(branch.row)
        counts = self._counts()
        is_crowded = any(begin > self._most_named for begin, _ in counts.values())
        for fork in self._named() if is_crowded else self._read(self._forks):
            node = nodes.get(fork.fork or START)
            if node is None:
                continue
            if len(node.forks) < self._most_named:
                node.forks.append(fork)
            if fork.last is None:
                node.heads.append(fork)
        for place, node in nodes.items():
            begin, end = counts.get(place, (0, 0))
            is_end = self._branches[place[1]].row.head == place
            node.more_forks = begin - len(node.forks)
            node.more_heads = end + is_end - len(node.heads)

    def _counts(self) -> dict[Place, tuple[int, int]]:
        """Return how many branches begin at each place, and how many of them end there."""
        rows = self._forks.values_list("fork_position", "parent_id").order_by()
        counted = rows.annotate(begin=Count("pk"), end=Count("pk", filter=_IS_EMPTY))
        return {(at or 0, branch): (begin, end) for at, branch, begin, end in counted if branch}

    def _named(self) -> list[OutlineBranch]:
        """Return the oldest branches that begin at each place, and the oldest that end there."""
        number = Window(
            RowNumber(),
            partition_by=["parent", "fork_position", Case(When(_IS_EMPTY, then=1), default=0)],
            order_by=["created_at", "pk"],
        )
        oldest = self._forks.annotate(number=number).filter(number__lte=self._most_named)
        return self._read(Branch.objects.filter(pk__in=oldest.values("pk")))

    @staticmethod
    def _read(rows: QuerySet[Branch]) -> list[OutlineBranch]:
        return [OutlineBranch(*row) for row in columns_of(rows)]

    def _add_marks(self, nodes: Mapping[Place, OutlineNode]) -> None:
        """Add what stands on the way to each node, and on branches that end there without own."""
        shown = {branch.row.id: branch for branch in self._branches.values() if branch.nodes}
        part = TreePart(
            stretches={key: branch.stretch for key, branch in shown.items()},
            whole=self._forks.filter(_IS_EMPTY),
        )
        marks = marks_of(self._session, part=part)
        places = self._ends_of({mark.branch_id for mark in marks} - shown.keys())
        for mark in marks:
            branch = shown.get(mark.branch_id)
            if branch is not None:
                branch.take(mark)
            elif (node := nodes.get(places.get(mark.branch_id, START))) is not None:
                node.marks.append(mark)

    def _ends_of(self, ids: set[UUID]) -> dict[UUID, Place]:
        """Return where branches without messages of their own end."""
        rows = Branch.objects.filter(pk__in=ids) if ids else Branch.objects.none()
        return {
            key: (at or 0, parent)
            for key, at, parent in rows.values_list("pk", "fork_position", "parent_id")
            if parent is not None
        }


def _position_of(node: OutlineNode) -> int:
    return node.position
