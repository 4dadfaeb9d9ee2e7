"""The messages behind a branch's cursor, read from the newest on, as far as they are needed.

What stands before those that were read is known by stored sums: how many messages, how many
tokens and characters.
So a decision, a cut and a request that sends the newest messages cost the same however long a
branch has not been summarised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, repeat, takewhile
from typing import Any, TypeVar
from uuid import UUID

from django.db.models import QuerySet

from chatapp.compiled import compiled_read
from chatapp.context.preview import NotShown, shown_part
from chatapp.models import POSITION_STEP, Message
from chatapp.selectors import (
    is_own,
    path_messages,
    pinned_messages,
    without_pinned_system,
)
from compaction.branches.reading import read_limited, read_request
from compaction.branches.snapshot import BranchSnapshot
from compaction.convert import ITEM_COLUMNS, items_of, read_items
from compaction.engine.types import Item

# Rows a page, the newest page first: most cuts are found in the first one or two.
PAGES = (64, 256, 1024, 4096)
# Positions, in steps for each wanted row, that the first look at a forked path takes in.
REACH = 2
REACH_GROWTH = 8
# What begins a turn (Message.is_question).
QUESTIONS = {"role": Message.Role.USER, "kind": Message.Kind.MESSAGE}
_TAIL, _BEHIND = "tail", "behind_cursor"
Row = TypeVar("Row")


@dataclass(kw_only=True)
class Tail:
    """The newest items that could be summarised; it grows towards the cursor, page by page."""

    snapshot: BranchSnapshot
    items: list[Item] = field(default_factory=list)
    # Whether the items are all there are.
    is_whole: bool = False
    _sizes: Iterator[int] = field(default_factory=lambda: chain(PAGES, repeat(PAGES[-1])))

    def read_on(self, *, all_of_them: bool = False, more: int = 0) -> None:
        """Put the next page before the items, about `more` where that is known, or all the rest."""
        size = None if all_of_them else min(more, PAGES[-1]) or next(self._sizes)
        before = self.items[0].position if self.items else None
        # One more than the page tells whether there are others.
        most = None if size is None else size + 1
        found = _newest_items(self.snapshot, most=most, before=before)
        self.is_whole = size is None or len(found) <= size
        self.items = [*reversed(found[:size]), *self.items]

    @property
    def earlier(self) -> int:
        """How many items stand before those that were read."""
        # A message that came while this was read must not make it look as if there were none.
        return 0 if self.is_whole else max(1, self._sums[0] - len(self.items))

    def tokens_before(self, kept: Sequence[Item]) -> int:
        """Return the tokens of all items but the kept ones, which are the newest."""
        return max(0, self._sums[1] - sum(item.tokens for item in kept))

    def chars_before(self, kept: Sequence[Item]) -> int:
        """Return the characters of all items but the kept ones."""
        return max(0, self._sums[2] - sum(item.chars for item in kept))

    @cached_property
    def _sums(self) -> tuple[int, int, int]:
        """How many items there are, their tokens and characters; no pinned system messages."""
        state, branch = self.snapshot.state, self.snapshot.branch
        rules = self.snapshot.rules_behind
        return (
            branch.message_count - state.covered_messages - len(rules),
            branch.token_total - state.covered_tokens - sum(rule.tokens for rule in rules),
            branch.char_total - state.covered_chars - sum(rule.chars for rule in rules),
        )


def tail_of(snapshot: BranchSnapshot) -> Tail:
    """Return the tail of a branch as far as anybody has read it yet, at least its first page."""
    tail: Tail | None = snapshot.derived.get(_TAIL)
    if tail is None:
        tail = snapshot.derived[_TAIL] = Tail(snapshot=snapshot)
        tail.read_on()
    return tail


def knows_question_behind(snapshot: BranchSnapshot, position: int) -> bool:
    """Whether a question stands behind a position, among what was read of the tail; asks nobody."""
    tail: Tail | None = snapshot.derived.get(_TAIL)
    newest_first = reversed(tail.items) if tail is not None else ()
    behind = takewhile(lambda item: item.position > position, newest_first)
    return any(item.is_question for item in behind)


def keep_tail(fresh: BranchSnapshot, known: BranchSnapshot) -> None:
    """Have a snapshot of the same messages behind a later cursor know what was read of its tail."""
    tail: Tail | None = known.derived.get(_TAIL)
    if tail is None:
        return
    items = [item for item in tail.items if item.position > fresh.state.cursor]
    is_whole = tail.is_whole or len(items) < len(tail.items)
    fresh.derived[_TAIL] = Tail(snapshot=fresh, items=items, is_whole=is_whole)


def oldest_items(snapshot: BranchSnapshot, *, through: int, most: int | None = None) -> list[Item]:
    """Return the oldest items up to a position, all of them or at most so many."""
    found: list[Item] = []
    for after, high in _ranges(snapshot, through=through, most=most):
        rows = _countable(snapshot, after=after, through=high)
        found += read_items(rows if most is None else rows[: most - len(found)])
        if len(found) == most:
            break
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class BehindCursor:
    """What a request may send of the messages behind the cursor, each part in order.

    `rows` are the messages that the profile's limit lets through, without `system`; `pins` are the
    pinned ones before them. `last_covered` is the message at the cursor where it was read, too.
    """

    system: list[Message]
    pins: list[Message]
    rows: list[Message]
    last_covered: Message | None = None
    # What is sent besides the rows where a preview shows a part only.
    not_shown: NotShown | None = None
    # The oldest message behind the cursor and the newest that a limit hides, where both were read.
    hidden: tuple[Message, Message] | None = None


def show_part(snapshot: BranchSnapshot, *, most: int, oldest: int = 0) -> None:
    """Have contexts of this snapshot hold the newest messages only: for pages that show a request,
    and for one that cannot fit (past_window.py).

    At most `most` are read besides the `oldest` ones, where the profile does not send fewer.
    """
    state = snapshot.state
    if snapshot.profile.sent_limit:
        return
    part = shown_part(
        snapshot.branch,
        after=state.cursor,
        messages=state.covered_messages,
        tokens=state.covered_tokens,
        most=most,
        oldest=oldest,
    )
    if part is not None:
        snapshot.derived[_BEHIND] = BehindCursor(
            system=[row for row in part.rows if row.is_pinned_system],
            pins=[],
            rows=[row for row in part.rows if not row.is_pinned_system],
            not_shown=part.not_shown,
        )


def show_question(snapshot: BranchSnapshot) -> None:
    """Have a part that is shown hold the newest question, which may stand before it."""
    part: BehindCursor | None = snapshot.derived.get(_BEHIND)
    if part is None or part.not_shown is None or any(row.is_question for row in part.rows):
        return
    asked = _countable(snapshot).filter(**QUESTIONS).order_by("-position").first()
    if asked is None:
        return
    next_one = _countable(snapshot, after=asked.position).order_by("position")[:1].get()
    is_first = part.not_shown.first == asked.place
    snapshot.derived[_BEHIND] = replace(
        part,
        rows=[asked, *part.rows],
        not_shown=replace(
            part.not_shown,
            messages=part.not_shown.messages - 1,
            tokens=part.not_shown.tokens - asked.tokens,
            first=next_one.place if is_first else part.not_shown.first,
        ),
    )


def behind_cursor(snapshot: BranchSnapshot) -> BehindCursor:
    """Return what may be sent; of a branch with more than the limit, only that is read."""
    found: BehindCursor | None = snapshot.derived.get(_BEHIND)
    if found is None:
        limit = snapshot.profile.sent_limit
        waiting = snapshot.branch.message_count - snapshot.state.covered_messages
        if not 0 < limit < waiting:
            found = _whole(snapshot)
        # Others may have come since the sums were read.
        if found is None or 0 < limit < len(found.rows):
            found = _limited(snapshot, limit)
        snapshot.derived[_BEHIND] = found
    return found


def _whole(snapshot: BranchSnapshot) -> BehindCursor:
    read_request(snapshot)
    rows = snapshot.rows
    return BehindCursor(
        system=[row for row in rows if row.is_pinned_system],
        pins=[],
        rows=[row for row in rows if not row.is_pinned_system],
        last_covered=snapshot.last_covered,
    )


def _limited(snapshot: BranchSnapshot, limit: int) -> BehindCursor:
    branch, cursor = snapshot.branch, snapshot.state.cursor
    first: list[Message] = []
    if is_own(branch, cursor):
        read = read_limited(snapshot, limit)
        newest, marked, first = read.newest, read.pinned, read.first
    else:
        newest = newest_rows(snapshot, list, most=limit + 1)
        marked = list(pinned_messages(branch).filter(position__gt=cursor))
    rows, before = _newest_turns(snapshot, newest[::-1], limit)
    start = rows[0].position if rows else 0
    return BehindCursor(
        system=[row for row in marked if row.is_pinned_system],
        pins=[row for row in marked if not row.is_pinned_system and row.position < start],
        rows=rows,
        hidden=(first[0], before) if first and before is not None else None,
    )


def _newest_turns(
    snapshot: BranchSnapshot, rows: list[Message], limit: int
) -> tuple[list[Message], Message | None]:
    """Return the newest rows from a turn's start on: at most `limit`, or the last turn.

    `rows` are the newest, one more than the limit where there are so many. The second value is the
    last one before the turn's start, where it is known.
    """
    if len(rows) <= limit:
        return rows, None
    starts = [i for i, row in enumerate(rows) if i and row.is_question]
    if starts:
        return rows[starts[0] :], rows[starts[0] - 1]
    # The last turn is longer than the limit; without a question everything is one.
    asked = _countable(snapshot).filter(**QUESTIONS).order_by("-position")
    start = asked.values_list("position", flat=True).first()
    return list(_countable(snapshot).filter(position__gte=start or 0)), None


def _newest_items(snapshot: BranchSnapshot, *, most: int | None, before: int | None) -> list[Item]:
    """Return the newest items, the newest first: at most so many, before a position."""
    branch, cursor = snapshot.branch, snapshot.state.cursor
    if most is None or not is_own(branch, cursor):
        return newest_rows(snapshot, read_items, most=most, before=before)
    return items_of(_own_items.raw(branch=branch.pk, after=cursor, before=before, most=most))


@compiled_read
def _own_items(*, branch: UUID, after: int, before: int | None) -> QuerySet[Any, Any]:
    rows = Message.objects.filter(branch=branch, position__gt=after, kind__in=Message.SPOKEN)
    rows = rows if before is None else rows.filter(position__lt=before)
    return without_pinned_system(rows).order_by("-position").values_list(*ITEM_COLUMNS)


def newest_rows(
    snapshot: BranchSnapshot,
    read: Callable[[QuerySet[Message]], list[Row]],
    *,
    most: int | None,
    before: int | None = None,
) -> list[Row]:
    """Return the newest countable rows, the newest first: at most so many, before a position."""
    found: list[Row] = []
    through = before - 1 if before is not None else None
    for after, high in _ranges(snapshot, through=through, most=most, newest_first=True):
        rows = _countable(snapshot, after=after, through=high).order_by("-position")
        found += read(rows if most is None else rows[: most - len(found)])
        if len(found) == most:
            break
    return found


def _ranges(
    snapshot: BranchSnapshot, *, through: int | None, most: int | None, newest_first: bool = False
) -> Iterator[tuple[int, int | None]]:
    """Yield the ranges of positions (after, through] to look for so many rows in, one by one.

    A branch of its own is one range: its index gives the first rows and stops. A fork's path is
    gathered from several branches and then sorted, so it is looked at in ranges that hardly hold
    more than is wanted; each further one is larger.
    """
    cursor = snapshot.state.cursor
    top = snapshot.branch.head_position if through is None else through
    if most is None or snapshot.branch.parent_id is None or top <= cursor:
        yield cursor, through
        return
    reach, done, whole = REACH * most * POSITION_STEP, 0, top - cursor
    while done < whole:
        edge = min(done + reach, whole)
        if newest_first:
            # Others may have come behind the last message since the branch was read.
            yield top - edge, top - done if done else through
        else:
            yield cursor + done, cursor + edge
        done, reach = edge, REACH_GROWTH * reach


def _countable(
    snapshot: BranchSnapshot, *, after: int | None = None, through: int | None = None
) -> QuerySet[Message]:
    """Return the messages behind the cursor but pinned system ones, or those in a range."""
    start = snapshot.state.cursor if after is None else after
    return without_pinned_system(path_messages(snapshot.branch, after=start, through=through))
