"""Putting one row between two, and making room for it."""

from __future__ import annotations

from django.db import transaction
from django.db.models import F, Min, OuterRef, Subquery
from django.dispatch import Signal

from chatapp.drafts import Draft, TranscriptError
from chatapp.models import Branch, Message, Session
from chatapp.models.message import POSITION_STEP
from chatapp.selectors import counter_of, path_q
from chatapp.transcript.appending import row_of, store_originals
from chatapp.transcript.locking import lock_branches

# Sent inside the transaction that moved positions: `session`, `moved` {old position: new position}.
positions_changed = Signal()

# Sent inside the transaction that put a message between others: `branches` whose path has it now,
# and `message`.
message_inserted = Signal()


def insert_between(branch: Branch, *, after: int, draft: Draft) -> Message:
    """Store one message right behind position `after` of the branch's path and return it.

    It takes the middle position. When no integer is left there, the positions of the session are
    renumbered first, in the same transaction (`positions_changed` tells who keeps positions).
    A placeholder may stand anywhere on the path; a message only behind the fork, because what is
    before it belongs to other branches too. Raises TranscriptError where `after` is no row's place.
    """
    row = row_of(branch, draft, counter_of(branch.session))
    with transaction.atomic():
        lock_branches(branch.session_id)
        branch.refresh_from_db()
        if row.kind == Message.Kind.MESSAGE and after < (branch.fork_position or 0):
            raise TranscriptError(
                "Other branches share this place: put the message into the branch it belongs to."
            )
        through = _tokens_through(branch, after)
        before = _next_position(branch, after)
        if before - after < 2:
            moved = renumber(branch.session)
            branch.refresh_from_db()
            after = moved.get(after, 0)
            before = _next_position(branch, after)
        row.position = (after + before) // 2
        row.tokens_through = through + row.tokens
        row.save(force_insert=True)
        store_originals([row])
        # append() goes on behind placeholders too, or two rows would meet.
        Branch.objects.filter(pk=branch.pk, head_position__lt=row.position).update(
            head_position=row.position
        )
        if row.kind == Message.Kind.MESSAGE:
            _add_behind(branch, row)
    return row


def _next_position(branch: Branch, after: int) -> int:
    """Return the next position that is occupied in any branch, or the next that append() takes.

    Rows of a fork and of its parent share a path, so a middle must be free in all of them.
    """
    rows = Message.objects.filter(branch=OuterRef("pk"), position__gt=after).order_by("position")
    branches = Branch.objects.filter(session_id=branch.session_id).annotate(
        next_position=Subquery(rows.values("position")[:1])
    )
    position: int | None = branches.aggregate(first=Min("next_position"))["first"]
    return position if position is not None else branch.head_position + POSITION_STEP


def _tokens_through(branch: Branch, position: int) -> int:
    if position == 0:
        return 0
    row = Message.objects.filter(path_q(branch), position=position).only("tokens_through").first()
    if row is None:
        raise TranscriptError(f"No message of the branch stands at position {position}.")
    return row.tokens_through


def _add_behind(branch: Branch, row: Message) -> None:
    """Add the row's tokens to all sums behind it: in its branch and in those forked behind it."""
    touched, changed = [branch], []
    while touched:
        current = touched.pop()
        changed.append(current)
        Branch.objects.filter(pk=current.pk).update(
            message_count=F("message_count") + 1,
            token_total=F("token_total") + row.tokens,
        )
        Message.objects.filter(branch=current, position__gt=row.position).update(
            tokens_through=F("tokens_through") + row.tokens
        )
        touched += Branch.objects.filter(parent=current, fork_position__gte=row.position)
    message_inserted.send(sender=Message, message=row, branches=changed)


def renumber(session: Session) -> dict[int, int]:
    """Give every position of the session its rank in whole steps; return {old: new}.

    One mapping for all branches keeps every order and every fork where it was.
    """
    rows = Message.objects.filter(session=session)
    branches = list(Branch.objects.filter(session=session))
    positions = set(rows.values_list("position", flat=True).distinct())
    positions |= {b.head_position for b in branches if b.head_position}
    positions |= {b.fork_position for b in branches if b.fork_position}
    moved = {old: rank * POSITION_STEP for rank, old in enumerate(sorted(positions), 1)}
    # Through the negative numbers, so that no two rows ever share a place on the way.
    batch = []
    for message in rows.only("id", "position").iterator(chunk_size=2000):
        message.position = -moved[message.position]
        batch.append(message)
    Message.objects.bulk_update(batch, ["position"], batch_size=500)
    rows.update(position=-F("position"))
    for branch in branches:
        branch.head_position = moved.get(branch.head_position, 0)
        branch.fork_position = moved.get(branch.fork_position or 0, branch.fork_position)
    Branch.objects.bulk_update(branches, ["head_position", "fork_position"])
    positions_changed.send(sender=Session, session=session, moved=moved)
    return moved
