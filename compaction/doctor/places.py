"""Branches and the places of their messages: that every message stands once, and in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from django.db.models import QuerySet

from chatapp.management.console import counted
from chatapp.models import Message, Session
from chatapp.selectors import segments_q
from chatapp.transcript import activate_main_line
from compaction.doctor.findings import Finding
from compaction.doctor.lines import Line


def check_active_branch(session: Session, lines: Sequence[Line]) -> Iterator[Finding]:
    """Yield a session that no turn can go on with: without an active branch of its own."""
    if session.active_branch_id in {line.branch.pk for line in lines}:
        return
    yield Finding(
        code="no_active_branch",
        text="The session has no active branch, or one of another session: no turn can go on.",
        remedy="Its root, or the newest replay of it, is activated; one without any branch gets an "
        "empty root.",
        session=session.pk,
        repair=partial(activate_main_line, session),
    )


def check_places(line: Line) -> Iterator[Finding]:
    """Yield a fork that starts nowhere, and messages that stand where no reader expects them."""
    yield from _fork(line)
    branch, fork = line.branch, line.fork
    own = Message.objects.filter(branch=branch, kind=Message.Kind.MESSAGE)
    # Placeholders may stand before the fork: they mark a summary of what is shared.
    yield from _misplaced(
        line,
        own.filter(position__lte=fork),
        code="place_before_fork",
        where="at or before the place where it begins: their order is not certain",
    )
    yield from _misplaced(
        line,
        own.exclude(session=branch.session_id),
        code="message_of_other_session",
        where="with the id of another session: nobody can tell whose they are",
    )


def _fork(line: Line) -> Iterator[Finding]:
    branch = line.branch
    if (branch.parent_id is None) != (branch.fork_position is None):
        why = "names a parent without a place, or a place without a parent"
    elif line.shared and not _stands_there(line):
        why = "starts where no message of its parent stands"
    else:
        return
    yield Finding(
        code="fork_misplaced",
        text=f"The branch {why}: what it shares with others is not certain.",
        session=branch.session_id,
        branch=branch.pk,
    )


def _stands_there(line: Line) -> bool:
    there = Message.objects.filter(segments_q(line.shared), position=line.fork)
    return there.filter(kind=Message.Kind.MESSAGE).exists()


def _misplaced(line: Line, rows: QuerySet[Message], *, code: str, where: str) -> Iterator[Finding]:
    first = rows.order_by("position").values_list("pk", flat=True).first()
    if first is not None:
        yield Finding(
            code=code,
            text=f"{counted(rows.count(), 'message')} of the branch {where}.",
            session=line.branch.session_id,
            branch=line.branch.pk,
            message=first,
        )
