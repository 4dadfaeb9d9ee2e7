"""The SQL of paths: which rows hold on a branch's path, at any depth of forks.

A path is the branch's own rows and, of each ancestor, those up to where the path leaves it. Every
statement walks up from the branch in the database. Two things keep the walk short: it stops at the
ancestor that holds the first position asked for, and it skips ancestors behind the last one by
their jump pointers (see Branch.jump). A branch without a pointer is walked step by step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import BigIntegerField, BooleanField, F, Func, QuerySet, UUIDField

# What a position is compared with where a path has no end.
END = 2**63 - 1
Sql = tuple[str, tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathTable:
    """Rows of a table that belong to a branch and stand at a position; `where` are literals.

    A database uses a partial index only where it reads the same literal condition.
    """

    table: str
    position: str = "position"
    where: str = "1 = 1"


ALL_ROWS = PathTable(table="messages")
# Notes, too: what a reader of messages reads (Message.SPOKEN).
MESSAGES = PathTable(table="messages", where="r.kind <> 'placeholder'")
PLACEHOLDERS = PathTable(table="messages", where="r.kind = 'placeholder'")
PINNED = PathTable(table="messages", where="r.pinned")

_WALK = """
WITH RECURSIVE walk(id, parent_id, jump_id, low, high) AS (
    SELECT b.id, b.parent_id, b.jump_id, b.fork_position, CAST(%s AS bigint)
    FROM branches b WHERE b.id = %s
    UNION ALL
    SELECT n.id, n.parent_id, n.jump_id, n.fork_position,
        CASE WHEN walk.low < walk.high THEN walk.low ELSE walk.high END
    FROM walk {step}
    WHERE walk.low > %s
)"""
_BY_STEP = "JOIN branches n ON n.id = walk.parent_id"
# A skipped ancestor and all between have only rows behind the last position asked for.
_BY_JUMP = """LEFT JOIN branches j ON j.id = walk.jump_id AND j.fork_position >= walk.high
    JOIN branches n ON n.id = COALESCE(j.id, walk.parent_id)"""
_ROWS = """
SELECT r.id FROM walk CROSS JOIN {table} r
WHERE r.branch_id = walk.id AND r.{position} > %s AND r.{position} <= walk.high AND {where}"""

_PLACEHOLDERS = """
UNION ALL SELECT r.id FROM messages r
WHERE r.session_id = %s AND {where} AND r.position > %s AND r.position <= %s AND {test}"""
# Where two paths part: the last position that both hold; NULL where they share nothing.
_SHARED = """
{old}, {new} SELECT MAX(CASE WHEN o.high < n.high THEN o.high ELSE n.high END)
FROM old_walk o JOIN new_walk n ON n.id = o.id"""
_NEAREST = "{walk} SELECT walk.id, walk.high FROM walk LIMIT %s"

# The nearest ancestor that forks no later than the row's branch: that branch itself, or no relative
# of this path. The last step to it is never a jump, so `high` is where the path leaves it.
_FORK = "COALESCE((SELECT a.fork_position FROM branches a WHERE a.id = {branch}), -1)"
_LEFT_AT = """(
    WITH RECURSIVE up(id, parent_id, jump_id, low, high) AS (
        SELECT b.id, b.parent_id, b.jump_id, b.fork_position, CAST(NULL AS bigint)
        FROM branches b WHERE b.id = %s
        UNION ALL
        SELECT n.id, n.parent_id, n.jump_id, n.fork_position, up.low
        FROM up LEFT JOIN branches j ON j.id = up.jump_id AND j.fork_position > {fork}
        JOIN branches n ON n.id = COALESCE(j.id, up.parent_id)
        WHERE up.low > {fork}
    )
    SELECT up.high FROM up WHERE up.id = {branch}
)"""
_ON_PATH = "({branch} = %s OR {position} <= " + _LEFT_AT + ")"


class PathRows(Func):
    """Whether an id is that of a row on the path, its position in (after, through].

    The database finds the ids first, branch by branch, and the rows by their ids: right where the
    positions are close together or the rows are few. With `jumps` the rows of descendants that
    stand before their fork are left out; only placeholders and summaries stand there.
    """

    output_field = BooleanField()

    def __init__(
        self,
        ids: F,
        *,
        branch_id: UUID,
        table: PathTable,
        after: int = 0,
        through: int | None = None,
        jumps: bool = False,
    ) -> None:
        super().__init__(ids)
        self._branch_id = branch_id
        self._table = table
        self._after = after
        self._through = END if through is None else through
        self._jumps = jumps

    def as_sql(self, compiler: Any, connection: Any, **_: Any) -> Sql:  # type: ignore[override]
        """Return the condition; PostgreSQL is told to go by the ids whatever it estimates."""
        ids, params = compiler.compile(self.source_expressions[0])
        found, more = self.rows_sql(connection)
        is_postgresql = connection.vendor == "postgresql"
        form = "{} = ANY(ARRAY({}))" if is_postgresql else "{} IN ({})"
        return form.format(ids, found), (*params, *more)

    def rows_sql(self, connection: Any) -> Sql:
        """Return the statement that finds the ids."""
        key = _key(self._branch_id, connection)
        walk = _WALK.format(step=_BY_JUMP if self._jumps else _BY_STEP)
        rows = _ROWS.format(
            table=self._table.table, position=self._table.position, where=self._table.where
        )
        return walk + rows, (self._through, key, self._after, self._after)


class MixedPathRows(PathRows):
    """The same for messages and placeholders of a deep path: placeholders are tested one by one."""

    def __init__(self, ids: F, *, session_id: UUID, **where: Any) -> None:
        super().__init__(ids, table=MESSAGES, jumps=True, **where)
        self._session_id = session_id

    def rows_sql(self, connection: Any) -> Sql:
        """Return the statement that finds the ids of both."""
        messages, params = super().rows_sql(connection)
        test, more = _on_path("r.branch_id", "r.position", _key(self._branch_id, connection))
        placeholders = _PLACEHOLDERS.format(where=PLACEHOLDERS.where, test=test)
        session = _key(self._session_id, connection)
        return messages + placeholders, (*params, session, self._after, self._through, *more)


class OnPath(Func):
    """Whether a row of a branch and a position holds on the path; tested row by row.

    Each test is O(log depth) look-ups: right where few rows come into question.
    """

    output_field = BooleanField()

    def __init__(self, branch: F, position: F, *, branch_id: UUID) -> None:
        super().__init__(branch, position)
        self._branch_id = branch_id

    def as_sql(self, compiler: Any, connection: Any, **_: Any) -> Sql:  # type: ignore[override]
        """Return the condition."""
        branch, position = (compiler.compile(one)[0] for one in self.source_expressions)
        return _on_path(branch, position, _key(self._branch_id, connection))


class LeftAt(Func):
    """The position at which the path leaves a branch; NULL where it ends there or never is."""

    output_field = BigIntegerField()

    def __init__(self, branch: F, *, branch_id: UUID) -> None:
        super().__init__(branch)
        self._branch_id = branch_id

    def as_sql(self, compiler: Any, connection: Any, **_: Any) -> Sql:  # type: ignore[override]
        """Return the subquery."""
        branch, _params = compiler.compile(self.source_expressions[0])
        fork = _FORK.format(branch=branch)
        return _LEFT_AT.format(branch=branch, fork=fork), (_key(self._branch_id, connection),)


def _on_path(branch: str, position: str, key: Any) -> Sql:
    fork = _FORK.format(branch=branch)
    return _ON_PATH.format(branch=branch, position=position, fork=fork), (key, key)


def ancestors_sql(branch_id: UUID, most: int, connection: Any) -> Sql:
    """Return the statement that reads (id, last position) of the nearest segments."""
    sql = _NEAREST.format(walk=_WALK.format(step=_BY_STEP))
    return sql, (END, _key(branch_id, connection), -1, most)


def shared_sql(one: UUID, other: UUID, connection: Any) -> Sql:
    """Return the statement that reads the last position which both paths hold, NULL for none."""
    walk = _WALK.format(step=_BY_STEP)
    old, new = (walk.replace("walk", name) for name in ("old_walk", "new_walk"))
    new = new.replace("WITH RECURSIVE", "", 1).strip()
    keys = (_key(key, connection) for key in (one, other))
    return _SHARED.format(old=old, new=new), tuple(v for key in keys for v in (END, key, -1))


def _key(value: UUID, connection: Any) -> Any:
    return UUIDField().get_db_prep_value(value, connection)


def lineage_below(branches: QuerySet[Any], parent_id: UUID) -> tuple[int, UUID]:
    """Return (depth, jump) of a child of one of the branches.

    These are the jump pointers of a skew-binary list (Myers, 1983): two jumps of equal length
    become one of twice the length and a step, so any ancestor is O(log depth) pointers away.
    """
    columns = ("depth", "jump_id", "jump__depth", "jump__jump_id", "jump__jump__depth")
    parent = branches.filter(pk=parent_id).values_list(*columns).first()
    if parent is None:
        return 1, parent_id
    return child_lineage(parent_id, *parent)


def child_lineage(
    parent_id: UUID,
    depth: int,
    jump: UUID | None,
    jump_depth: int | None,
    farther: UUID | None,
    farther_depth: int | None,
) -> tuple[int, UUID]:
    """Return (depth, jump) of a child from its parent's, its jump's, and that one's jump's."""
    # A farther pointer exists where the jump does not lead to a root.
    if jump_depth is None or farther is None or farther_depth is None:
        return depth + 1, parent_id
    is_doubled = depth - jump_depth == jump_depth - farther_depth
    return depth + 1, farther if is_doubled else parent_id
