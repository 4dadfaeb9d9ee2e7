"""Putting right what is worked out from the rows: sums, heads, the active branch.

Texts, places and order stay as they are; nothing is deleted.
"""

from __future__ import annotations

from django.db import connection, transaction
from django.db.models import Count, Max, QuerySet, Sum

from chatapp.llm.tokens import count_message
from chatapp.models import Branch, Message, Session
from chatapp.selectors import counter_of, shared_q
from chatapp.transcript.sums import PathSums, count_chars
from chatapp.transcript.writing import lock_branches

BATCH = 500
_SPOKEN = Message.SPOKEN


def repair_sums(branch: Branch) -> None:
    """Work a branch's counts, sums and head out again from what its rows were counted as.

    Forks behind it have sums of their own, which do not depend on those of their parents.
    """
    with transaction.atomic():
        lock_branches(branch.session_id)
        branch.refresh_from_db()
        before = shared_q(branch)
        fork = 0 if before is None else branch.fork_position or 0
        rows = Message.objects
        shared = rows.none() if before is None else rows.filter(before)
        before_fork, base = _sums(shared)
        own = Message.objects.filter(branch=branch)
        count, sums = _sums(own)
        _repair_running(branch, base=base, fork=fork)
        for mark in own.filter(position__lte=fork).exclude(kind__in=_SPOKEN):
            _, through = _sums(shared.filter(position__lte=mark.position))
            own.filter(pk=mark.pk).update(
                tokens_through=through.tokens, chars_through=through.chars
            )
        head = own.aggregate(head=Max("position"))["head"] or 0
        Branch.objects.filter(pk=branch.pk).update(
            message_count=before_fork + count,
            token_total=base.tokens + sums.tokens,
            char_total=base.chars + sums.chars,
            head_position=max(branch.head_position, head, fork),
        )


def _sums(rows: QuerySet[Message]) -> tuple[int, PathSums]:
    """Return how many messages there are, and what they have; placeholders count in neither."""
    sums = rows.filter(kind__in=_SPOKEN).aggregate(
        count=Count("pk"), tokens=Sum("tokens"), chars=Sum("chars")
    )
    return sums["count"], PathSums(tokens=sums["tokens"] or 0, chars=sums["chars"] or 0)


# Both sums in one statement: of a hundred thousand rows none travels through Python.
_REPAIR_RUNNING = """
UPDATE messages
SET tokens_through = %s + counted.tokens, chars_through = %s + counted.chars
FROM (
    SELECT id,
        SUM(CASE WHEN kind <> 'placeholder' THEN tokens ELSE 0 END) OVER along AS tokens,
        SUM(CASE WHEN kind <> 'placeholder' THEN chars ELSE 0 END) OVER along AS chars
    FROM messages WHERE branch_id = %s AND position > %s WINDOW along AS (ORDER BY position)
) AS counted
WHERE messages.id = counted.id AND (
    messages.tokens_through <> %s + counted.tokens OR messages.chars_through <> %s + counted.chars
)
"""


def _repair_running(branch: Branch, *, base: PathSums, fork: int) -> None:
    """Write the sums of the rows behind the fork, where they are not what they should be."""
    key = Branch._meta.pk.get_db_prep_value(branch.pk, connection)
    sums = [base.tokens, base.chars]
    with connection.cursor() as cursor:
        cursor.execute(_REPAIR_RUNNING, [*sums, key, fork, *sums])


def recount_tokens(branch: Branch) -> int:
    """Count tokens and characters of the branch's own messages again; return how many were off.

    Their sums are wrong until `repair_sums` has worked on the branch and on its forks.
    """
    counter = counter_of(branch.session)
    rows = Message.objects.filter(branch=branch, kind__in=_SPOKEN).order_by("position")
    changed, batch = 0, list(rows[:BATCH])
    while batch:
        last = batch[-1].position
        wrong = []
        for row in batch:
            stored = row.tokens, row.chars
            row.tokens = count_message(row.stored_wire(), counter)
            count_chars(row)
            if (row.tokens, row.chars) != stored:
                wrong.append(row)
        Message.objects.bulk_update(wrong, ["tokens", "chars"])
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
