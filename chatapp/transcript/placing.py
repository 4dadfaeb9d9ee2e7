"""The transaction that stores messages at a branch's end: two round trips, whatever it holds.

The first takes the branch's row lock and marks the session, the second brings the rows and commits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import DatabaseError, transaction
from django.db.models import QuerySet

from chatapp.compiled import CompiledInsert, compiled_update
from chatapp.messages.wire import CUT_FROM
from chatapp.models import POSITION_STEP, Branch, Message, MessageOriginal, Session
from chatapp.round_trips import Statement, is_lost, together
from chatapp.titles import told_columns
from chatapp.transcript.part_files import look_again
from chatapp.transcript.sums import PathSums, adding_at_end, give_places, take_totals

# Rows in one INSERT; requests are smaller, imported files may be larger.
INSERT_BATCH = 500
_insert = CompiledInsert(Message, batch_size=INSERT_BATCH)
_insert_originals = CompiledInsert(MessageOriginal)
# What else is stored with rows, as statements of the same transaction.
Beside = Callable[[list[Message]], Sequence[Statement[Any]]]


class BranchGoneError(Exception):
    """The branch was deleted meanwhile; nothing was stored."""


class NotStoredBesideError(Exception):
    """Rows, or what was to be stored beside them, were refused; nothing was stored."""


class _ReplacedError(Exception):
    """The branch was replayed meanwhile; `by` is the one that goes on."""

    def __init__(self, by: Branch) -> None:
        super().__init__()
        self.by = by


class SessionMark:
    """How the session's row is written with new messages: it changed, and what lists tell of it.

    A turn writes its lease in the same UPDATE (chatapp/turns/lease.py).
    """

    def active(self, *, session: UUID, branch: UUID, **told: Any) -> list[Statement[Any]]:
        """Return what marks a session where the branch is the active one.

        The last of the statements returns whether it is.
        """
        return [_mark.asked(session=session, branch=branch, **told)]

    def elsewhere(self, *, session: UUID, now: datetime) -> None:
        """Mark a session that went on in another branch: its size and title are that one's."""
        Session.objects.filter(pk=session).update(updated_at=now)

    def stored(self, *, is_active: bool) -> None:
        """Hear that the transaction is over, and whether the branch is the active one."""


@compiled_update
def _mark(*, session: UUID, branch: UUID, **told: Any) -> tuple[QuerySet[Session], dict[str, Any]]:
    return Session.objects.filter(pk=session, active_branch=branch), told_columns(**told)


@dataclass(frozen=True, slots=True)
class Ending:
    """What a transaction that stores rows holds besides: the session's columns, and other rows."""

    told: Mapping[str, Any]
    mark: SessionMark
    beside: Beside | None


def place_where_it_goes_on(branch: Branch, rows: list[Message], ending: Ending) -> None:
    """Store the rows at the branch's end, or at that of the replay that took its place.

    Raises BranchGoneError, NotStoredBesideError.
    """
    while True:
        try:
            with transaction.atomic():
                is_active = _place_at_end(branch, rows, ending)
            ending.mark.stored(is_active=is_active)
            return
        except _ReplacedError as replaced:
            branch = replaced.by
            for row in rows:
                row.branch = branch


def _place_at_end(branch: Branch, rows: list[Message], ending: Ending) -> bool:
    """Store the rows at the branch's end; return whether it is the session's active branch."""
    counted = [row for row in rows if row.is_spoken]
    sums, told = PathSums.of(rows), ending.told
    # Everybody locks the branch first, then the owner, then the session.
    totals, *marks = together(
        adding_at_end(branch, places=len(rows), messages=len(counted), sums=sums),
        *ending.mark.active(session=branch.session_id, branch=branch.pk, **told),
    )
    if totals is None:
        raise BranchGoneError
    take_totals(branch, totals)
    is_active = bool(marks[-1])
    if not is_active:
        _mark_elsewhere(branch, ending)
    give_places(
        rows,
        after=branch.head_position - len(rows) * POSITION_STEP,
        through=PathSums.whole(branch).less(sums),
        is_empty=branch.message_count == len(counted),
    )
    look_again(rows)
    statements: list[Statement[Any]] = [*_insert.asked(rows), *_originals(rows)]
    if ending.beside is None:
        together(*statements, ends=True)
    else:
        _with_others(statements, ending.beside(rows))
    return is_active


def _with_others(statements: list[Statement[Any]], others: Sequence[Statement[Any]]) -> None:
    try:
        together(*statements, *others, ends=True)
    except DatabaseError as error:
        # Of a connection that broke nobody knows whether all of it was stored.
        if is_lost(statements[0].connection):
            raise
        raise NotStoredBesideError from error


def _mark_elsewhere(branch: Branch, ending: Ending) -> None:
    """Mark the session of rows that are stored on a branch which is not the active one.

    Raises _ReplacedError when the branch has been replayed since the caller looked which one is
    active: what is stored behind the old one would never be sent.
    """
    sessions = Session.objects.filter(pk=branch.session_id)
    active = Branch.objects.filter(pk__in=sessions.values("active_branch")).first()
    current = active
    while current is not None and current.replaces is not None:
        current = current.replaces
        if active is not None and current.pk == branch.pk:
            raise _ReplacedError(active)
    ending.mark.elsewhere(session=branch.session_id, now=ending.told["now"])


def store_originals(rows: Sequence[Message]) -> None:
    """Write the whole texts of those rows that were cut when they were made."""
    for one in _originals(rows):
        one.run()


def _originals(rows: Sequence[Message]) -> list[Statement[Any]]:
    return _insert_originals.asked([row.original for row in rows if CUT_FROM in row.metadata])
