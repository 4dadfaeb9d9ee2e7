"""What a screening reads of branches: their stored sums, and those that their messages come to.

Two statements, whatever the number of branches. One reads each message once and follows the running
sums from row to row; where they hold, the last row before a place has the sums up to it, so that
the other one counts the messages by an index and reads one row a place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection
from django.db.models import UUIDField

# Below every position, and above.
LOWEST, HIGHEST = -(2**62), 2**62


class BranchLine(NamedTuple):
    """What is read of a branch and its state; without a state its columns are None."""

    pk: UUID
    session: UUID
    parent: UUID | None
    fork_position: int | None
    messages: int
    tokens: int
    chars: int
    head: int
    parent_session: UUID | None
    cursor: int | None
    covered_messages: int | None
    covered_tokens: int | None
    covered_chars: int | None

    @property
    def is_fork(self) -> bool:
        """Whether the path begins in another branch."""
        return self.parent is not None and self.fork_position is not None

    @property
    def fork(self) -> int:
        """The position behind which its own messages stand; LOWEST for no fork."""
        return self.fork_position or 0 if self.is_fork else LOWEST


LINE_COLUMNS = (
    *("pk", "session", "parent", "fork_position", "message_count", "token_total", "char_total"),
    *("head_position", "parent__session", "compaction_state__cursor"),
    *("compaction_state__covered_messages", "compaction_state__covered_tokens"),
    "compaction_state__covered_chars",
)


class Sums(NamedTuple):
    """What stands in a branch, or a path, up to a place; without a row the sums are None.

    `messages` are counted, `tokens` and `chars` are the running sums of the last row; `stands` says
    whether a message stands just there.
    """

    messages: int = 0
    tokens: int | None = None
    chars: int | None = None
    stands: bool = False

    def with_before(self, before: Sums) -> Sums:
        """Return the sums with what stands before: of its running sums where there were none."""
        if self.tokens is None:
            return before._replace(messages=before.messages + self.messages, stands=self.stands)
        return self._replace(messages=before.messages + self.messages)

    @property
    def totals(self) -> tuple[int, int, int]:
        """Messages, tokens, characters: as branches and states store them."""
        return (self.messages, self.tokens or 0, self.chars or 0)


_SUMS_SQL = """
WITH point(branch_id, low, high) AS (VALUES {values})
SELECT point.branch_id, point.high,
    (SELECT COUNT(*) FROM messages m WHERE {inside})
        - (SELECT COUNT(*) FROM messages m WHERE {inside} AND m.kind = 'placeholder'),
    m.tokens_through, m.chars_through, {spoken}, m.position
FROM point LEFT JOIN messages m ON m.branch_id = point.branch_id
    AND m.position = (SELECT MAX(m.position) FROM messages m WHERE {inside})
ORDER BY point.branch_id, point.high"""
_INSIDE = "m.branch_id = point.branch_id AND m.position > point.low AND m.position <= point.high"
_IS_SPOKEN = "m.kind <> 'placeholder'"


def sums_of(points: Sequence[tuple[UUID, int, int]]) -> Iterator[tuple[UUID, int, Sums, int]]:
    """Yield (branch, end, its sums, position of its last row) of stretches, in their order.

    The position is 0 where nothing stands.
    """
    is_postgresql = connection.vendor == "postgresql"
    row = "(%s::uuid, %s::bigint, %s::bigint)" if is_postgresql else "(%s, %s, %s)"
    values = ", ".join([row] * len(points))
    sql = _SUMS_SQL.format(values=values, inside=_INSIDE, spoken=_IS_SPOKEN)
    given = [value for pk, low, high in points for value in (_key(pk), low, high)]
    with connection.cursor() as cursor:
        cursor.execute(sql, given)
        for branch, high, messages, tokens, chars, is_spoken, last in cursor.fetchall():
            stands = bool(is_spoken) and last == high
            yield UUID(str(branch)), high, Sums(messages, tokens, chars, stands), last or 0


_BREAKS_SQL = """
SELECT branch_id, before_tokens IS NULL, tokens_through - own_tokens, chars_through - own_chars,
    is_elsewhere
FROM (
    SELECT m.branch_id, m.tokens_through, m.chars_through,
        {spoken} AND m.session_id <> b.session_id AS is_elsewhere,
        CASE WHEN {spoken} THEN m.tokens ELSE 0 END AS own_tokens,
        CASE WHEN {spoken} THEN m.chars ELSE 0 END AS own_chars,
        {before}
    WHERE b.session_id IN ({ids}) AND {own}
    {window}
) AS stepped
WHERE before_tokens IS NULL OR is_elsewhere OR tokens_through <> before_tokens + own_tokens
    OR chars_through <> before_chars + own_chars"""
_OWN = "(b.parent_id IS NULL OR b.fork_position IS NULL OR {row}.position > b.fork_position)"
_BEFORE_BY_WINDOW = """
        LAG(m.tokens_through) OVER along AS before_tokens,
        LAG(m.chars_through) OVER along AS before_chars
    FROM branches b JOIN messages m ON m.branch_id = b.id"""
_WINDOW = "WINDOW along AS (PARTITION BY m.branch_id ORDER BY m.position)"
# SQLite looks the row before up in half the time that its windows take; PostgreSQL in four times.
_BEFORE_BY_INDEX = """
        p.tokens_through AS before_tokens, p.chars_through AS before_chars
    FROM branches b JOIN messages m ON m.branch_id = b.id
    LEFT JOIN messages p ON p.branch_id = m.branch_id AND p.position = (
        SELECT MAX(q.position) FROM messages q
        WHERE q.branch_id = m.branch_id AND q.position < m.position AND {own}
    )"""


def breaks_in(ids: Sequence[UUID]) -> Iterator[tuple[UUID, bool, int, int, bool]]:
    """Yield each branch's first message, and those that do not go on from the one before them.

    A row is (branch, whether it is the first, tokens and characters before it by its own sums,
    whether it says that it is another session's); of the latter all are told.
    """
    is_sqlite = connection.vendor == "sqlite"
    before = _BEFORE_BY_INDEX if is_sqlite else _BEFORE_BY_WINDOW
    sql = _BREAKS_SQL.format(
        before=before.format(own=_OWN.format(row="q")),
        window="" if is_sqlite else _WINDOW,
        own=_OWN.format(row="m"),
        spoken=_IS_SPOKEN,
        ids=", ".join(["%s"] * len(ids)),
    )
    with connection.cursor() as cursor:
        cursor.execute(sql, list(map(_key, ids)))
        for branch, is_first, tokens, chars, is_elsewhere in cursor.fetchall():
            yield UUID(str(branch)), bool(is_first), tokens, chars, bool(is_elsewhere)


def _key(value: UUID) -> Any:
    return UUIDField().get_db_prep_value(value, connection)
