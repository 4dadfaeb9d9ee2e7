"""The sums that are kept along every path: how many messages, their tokens, their characters.

A message is counted once, when its row is made. From then on sums are added to and read, never
recomputed (docs/architecture.md#a-turn-costs-the-same-at-any-age).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db import connections, router
from django.db.models import F

from chatapp.messages.wire import chars_of
from chatapp.models import POSITION_STEP, Branch, Message
from chatapp.round_trips import Statement
from chatapp.selectors import path_q


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSums:
    """The tokens and the characters of a path, up to some place."""

    tokens: int = 0
    chars: int = 0

    @classmethod
    def of(cls, rows: Iterable[Message]) -> PathSums:
        """Return what rows have together; marks of summaries have nothing."""
        tokens = chars = 0
        for row in rows:
            tokens, chars = tokens + row.tokens, chars + row.chars
        return cls(tokens=tokens, chars=chars)

    @classmethod
    def through(cls, row: Message) -> PathSums:
        """Return the sums up to and including a stored row."""
        return cls(tokens=row.tokens_through, chars=row.chars_through)

    @classmethod
    def whole(cls, branch: Branch) -> PathSums:
        """Return the sums of a branch's whole path."""
        return cls(tokens=branch.token_total, chars=branch.char_total)

    def plus(self, row: Message) -> PathSums:
        """Return the sums with one more row, which is told its own."""
        row.tokens_through = self.tokens + row.tokens
        row.chars_through = self.chars + row.chars
        return PathSums.through(row)

    def less(self, other: PathSums) -> PathSums:
        """Return the sums without the last part of the path."""
        return PathSums(tokens=self.tokens - other.tokens, chars=self.chars - other.chars)


def count_chars(row: Message) -> None:
    """Count the characters of a row that is about to be stored; a mark of a summary has none."""
    row.chars = chars_of(row) if row.is_spoken else 0


def set_totals(branch: Branch, sums: PathSums) -> None:
    """Have a branch that is not stored yet say what its path has."""
    branch.token_total, branch.char_total = sums.tokens, sums.chars


def give_places(
    rows: Sequence[Message], *, after: int, through: PathSums, is_empty: bool
) -> PathSums:
    """Give rows their places behind a position and the sums up to each; return the last sums.

    `through` are the sums up to that position; `is_empty` says that no message stands before.
    """
    for row in rows:
        after += POSITION_STEP
        row.position = after
        through = through.plus(row)
        # System messages that open a conversation are its rules: always sent, never summarised.
        is_empty = is_empty and row.role == Message.Role.SYSTEM
        row.pinned = row.pinned or (is_empty and row.is_spoken)
    return through


def adding_at_end(
    branch: Branch, *, places: int, messages: int, sums: PathSums
) -> Statement[tuple[int, ...] | None]:
    """Return what moves the branch's head and adds to its sums: the new ones, for take_totals.

    The UPDATE takes the row lock (or SQLite's write lock): a second writer queues up behind it.
    RETURNING, which the ORM has for no UPDATE, spares every append and every turn a second look.
    None is returned where the branch is gone.
    """
    connection = connections[router.db_for_write(Branch)]
    return Statement(
        connection=connection,
        sql="UPDATE branches SET head_position = head_position + %s, "
        "message_count = message_count + %s, token_total = token_total + %s, "
        "char_total = char_total + %s "
        "WHERE id = %s RETURNING head_position, message_count, token_total, char_total",
        params=[
            places * POSITION_STEP,
            messages,
            sums.tokens,
            sums.chars,
            Branch._meta.pk.get_db_prep_value(branch.pk, connection),
        ],
        result=lambda cursor: cursor.fetchone(),
        writes=True,
    )


def take_totals(branch: Branch, totals: tuple[int, ...]) -> None:
    """Have the object hold what is stored."""
    branch.head_position, branch.message_count, branch.token_total, branch.char_total = totals


def sums_at(branch: Branch, position: int) -> PathSums | None:
    """Return the sums up to a place of the branch's path; None where no row stands there."""
    if position == 0:
        return PathSums()
    there = path_q(branch, after=position - 1, through=position)
    row = Message.objects.filter(there).only("tokens_through", "chars_through").first()
    return PathSums.through(row) if row is not None else None


def add_behind(branch: Branch, row: Message) -> list[Branch]:
    """Add a row to all sums behind it, in its branch and in those forked there; return these."""
    touched, changed = [branch], []
    while touched:
        current = touched.pop()
        changed.append(current)
        Branch.objects.filter(pk=current.pk).update(
            message_count=F("message_count") + 1,
            token_total=F("token_total") + row.tokens,
            char_total=F("char_total") + row.chars,
        )
        Message.objects.filter(branch=current, position__gt=row.position).update(
            tokens_through=F("tokens_through") + row.tokens,
            chars_through=F("chars_through") + row.chars,
        )
        touched += Branch.objects.filter(parent=current, fork_position__gte=row.position)
    return changed
