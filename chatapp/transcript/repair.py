"""Putting right what is worked out from the rows: sums, heads, the active branch.

Texts, places and order stay as they are; nothing is deleted.
"""

from __future__ import annotations

from django.db import connection, transaction
from django.db.models import Count, Max, QuerySet, Sum

from chatapp.llm.tokens import count_message
from chatapp.models import Branch, Message, Session
from chatapp.selectors import counter_of, shared_q
from chatapp.transcript.writing import lock_branches

BATCH = 500
_SPOKEN = Message.SPOKEN


def repair_sums(branch: Branch) -> None:
    """Work a branch's counts, token sums and head out again from the tokens of its rows.

    Forks behind it have sums of their own, which do not depend on those of their parents.
    """
    with transaction.atomic():
        lock_branches(branch.session_id)
        branch.refresh_from_db()
        before = shared_q(branch)
        fork = 0 if before is None else branch.fork_position or 0
        rows = Message.objects
        shared = rows.none() if before is None else rows.filter(before)
        base = _sums(shared)
        own = Message.objects.filter(branch=branch)
        count, tokens = _sums(own)
        _repair_running(branch, base=base[1], fork=fork)
        for mark in own.filter(position__lte=fork).exclude(kind__in=_SPOKEN):
            through = _sums(shared.filter(position__lte=mark.position))[1]
            own.filter(pk=mark.pk).update(tokens_through=through)
        head = own.aggregate(head=Max("position"))["head"] or 0
        Branch.objects.filter(pk=branch.pk).update(
            message_count=base[0] + count,
            token_total=base[1] + tokens,
            head_position=max(branch.head_position, head, fork),
        )


def _sums(rows: QuerySet[Message]) -> tuple[int, int]:
    """Return how many messages there are and their tokens; placeholders count in neither."""
    sums = rows.filter(kind__in=_SPOKEN).aggregate(count=Count("pk"), tokens=Sum("tokens"))
    return sums["count"], sums["tokens"] or 0


def _repair_running(branch: Branch, *, base: int, fork: int) -> None:
    """Write `tokens_through` of the rows behind the fork, where it is not what it should be.

    One statement: of a hundred thousand rows none travels through Python.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE messages SET tokens_through = %s + counted.through FROM ("
            "SELECT id, SUM(CASE WHEN kind <> 'placeholder' THEN tokens ELSE 0 END) "
            "OVER (ORDER BY position) AS through "
            "FROM messages WHERE branch_id = %s AND position > %s) AS counted "
            "WHERE messages.id = counted.id AND messages.tokens_through <> %s + counted.through",
            [base, Branch._meta.pk.get_db_prep_value(branch.pk, connection), fork, base],
        )


def recount_tokens(branch: Branch) -> int:
    """Count the tokens of the branch's own messages again; return how many rows were changed.

    Their sums are wrong until `repair_sums` has worked on the branch and on its forks.
    """
    counter = counter_of(branch.session)
    rows = Message.objects.filter(branch=branch, kind__in=_SPOKEN).order_by("position")
    changed, batch = 0, list(rows[:BATCH])
    while batch:
        last = batch[-1].position
        wrong = []
        for row in batch:
            tokens = count_message(row.stored_wire(), counter)
            if tokens != row.tokens:
                row.tokens = tokens
                wrong.append(row)
        Message.objects.bulk_update(wrong, ["tokens"])
        changed += len(wrong)
        batch = list(rows.filter(position__gt=last)[:BATCH])
    return changed


def activate_main_line(session: Session) -> Branch:
    """Give a session without an active branch one: its root, or the newest replay of it.

    A session without any branch gets an empty root. One that has its active branch keeps it.
    """
    with transaction.atomic():
        lock_branches(session.pk)
        branches = Branch.objects.filter(session_id=session.pk).order_by("created_at", "pk")
        row = Session.objects.select_for_update().get(pk=session.pk)
        if row.active_branch_id is not None:
            active = branches.filter(pk=row.active_branch_id).first()
            if active is not None:
                return active
        line = branches.filter(parent=None, kind=Branch.Kind.ROOT).first() or branches.first()
        line = line or Branch.objects.create(session_id=session.pk)
        while (newer := branches.filter(replaces=line).last()) is not None:
            line = newer
        Session.objects.filter(pk=session.pk).update(active_branch=line)
    return line
