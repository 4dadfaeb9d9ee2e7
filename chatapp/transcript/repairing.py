"""Working sums out again where they do not fit the rows any more."""

from __future__ import annotations

from django.db import transaction
from django.db.models import Max

from chatapp.models import Branch, Message
from chatapp.selectors import path_messages, path_q
from chatapp.transcript.locking import lock_branches

BATCH = 500


def repair_sums(branch: Branch) -> None:
    """Work a branch's counts, token sums and head out again from the tokens of its rows.

    Texts and places stay. Forks behind it have sums of their own: repair them after it.
    """
    with transaction.atomic():
        lock_branches(branch.session_id)
        branch.refresh_from_db()
        fork = branch.fork_position or 0
        through = sum(path_messages(branch, through=fork).values_list("tokens", flat=True))
        batch: list[Message] = []
        rows = Message.objects.filter(branch=branch).order_by("position", "id")
        for row in rows.only("kind", "tokens", "tokens_through").iterator(chunk_size=2000):
            through += row.tokens if row.kind == Message.Kind.MESSAGE else 0
            if row.tokens_through != through:
                row.tokens_through = through
                batch.append(row)
        Message.objects.bulk_update(batch, ["tokens_through"], batch_size=BATCH)
        head = Message.objects.filter(path_q(branch)).aggregate(head=Max("position"))["head"] or 0
        Branch.objects.filter(pk=branch.pk).update(
            message_count=path_messages(branch).count(),
            token_total=through,
            head_position=max(branch.head_position, head),
        )
