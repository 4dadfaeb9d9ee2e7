"""What a screening reads of branches: their stored sums, and those that their messages come to.

Two statements, whatever the number of branches: each message is read once by either.
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
    """Sums of a path up to a place; `stands` says whether a message stands just there."""

    messages: int = 0
    tokens: int = 0
    chars: int = 0
    stands: bool = False

    def with_more(self, messages: int, tokens: int, chars: int, *, stands: bool) -> Sums:
        """Return the sums with those of what stands behind."""
        return Sums(self.messages + messages, self.tokens + tokens, self.chars + chars, stands)


# Each message is read once, whatever points its branch has: they follow each other.
_SUMS_SQL = """
WITH point(branch_id, low, high) AS (VALUES {values})
SELECT point.branch_id, point.high, COUNT(m.id),
    COALESCE(SUM(CASE WHEN {spoken} THEN 1 ELSE 0 END), 0),
    COALESCE(SUM(CASE WHEN {spoken} THEN m.tokens ELSE 0 END), 0),
    COALESCE(SUM(CASE WHEN {spoken} THEN m.chars ELSE 0 END), 0),
    COALESCE(MAX(CASE WHEN {spoken} AND m.position = point.high THEN 1 ELSE 0 END), 0),
    MAX(m.position)
FROM point LEFT JOIN messages m
    ON m.branch_id = point.branch_id AND m.position > point.low AND m.position <= point.high
GROUP BY point.branch_id, point.low, point.high
ORDER BY point.branch_id, point.high"""
_IS_SPOKEN = "m.kind <> 'placeholder'"


def sums_of(points: Sequence[tuple[UUID, int, int]]) -> Iterator[tuple[Any, ...]]:
    """Yield (branch, end, messages, tokens, chars, stands, last) of stretches, in their order."""
    is_postgresql = connection.vendor == "postgresql"
    row = "(%s::uuid, %s::bigint, %s::bigint)" if is_postgresql else "(%s, %s, %s)"
    sql = _SUMS_SQL.format(values=", ".join([row] * len(points)), spoken=_IS_SPOKEN)
    given = [value for pk, low, high in points for value in (_key(pk), low, high)]
    with connection.cursor() as cursor:
        cursor.execute(sql, given)
        for branch, high, _, messages, tokens, chars, stands, last in cursor.fetchall():
            yield UUID(str(branch)), high, messages, int(tokens), int(chars), stands, last


_BREAKS_SQL = """
SELECT branch_id, before_tokens IS NULL, tokens_through - own_tokens, chars_through - own_chars
FROM (
    SELECT m.branch_id, m.tokens_through, m.chars_through,
        CASE WHEN {spoken} THEN m.tokens ELSE 0 END AS own_tokens,
        CASE WHEN {spoken} THEN m.chars ELSE 0 END AS own_chars,
        LAG(m.tokens_through) OVER along AS before_tokens,
        LAG(m.chars_through) OVER along AS before_chars
    FROM branches b JOIN messages m ON m.branch_id = b.id
    WHERE b.session_id IN ({ids})
        AND (b.parent_id IS NULL OR b.fork_position IS NULL OR m.position > b.fork_position)
    WINDOW along AS (PARTITION BY m.branch_id ORDER BY m.position)
) AS stepped
WHERE before_tokens IS NULL OR tokens_through <> before_tokens + own_tokens
    OR chars_through <> before_chars + own_chars"""


def breaks_in(ids: Sequence[UUID]) -> Iterator[tuple[UUID, bool, int, int]]:
    """Yield each branch's first message, and those that do not go on from the one before them.

    A row is (branch, whether it is the first, tokens and characters before it by its own sums).
    """
    places = ", ".join(["%s"] * len(ids))
    with connection.cursor() as cursor:
        cursor.execute(_BREAKS_SQL.format(spoken=_IS_SPOKEN, ids=places), list(map(_key, ids)))
        for branch, is_first, tokens, chars in cursor.fetchall():
            yield UUID(str(branch)), bool(is_first), int(tokens), int(chars)


def _key(value: UUID) -> Any:
    return UUIDField().get_db_prep_value(value, connection)
