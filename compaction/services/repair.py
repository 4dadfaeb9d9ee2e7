"""Putting a branch's state right after something went wrong; never while somebody works on it."""

from __future__ import annotations

import uuid

from django.db import transaction
from django.db.models import Count, Sum

from chatapp.models import Branch
from chatapp.selectors import path_messages
from chatapp.transcript import lock_branches
from compaction.models import CompactionState
from compaction.selectors import active_summaries_of, hidden_messages, placeholder_reach
from compaction.services.leases import Lease


def put_cursor_back(branch: Branch) -> None:
    """Put the cursor to where the branch's summaries reach without a gap.

    What is behind it is sent verbatim again. Raises BranchBusyError while a run works there.
    """
    lease = Lease.take(branch.pk, uuid.uuid4())
    try:
        with transaction.atomic():
            lock_branches(branch.session_id)
            branch.refresh_from_db()
            _write_state(branch, cursor=_reach(branch))
    finally:
        lease.release()


def put_sums_right(branch: Branch) -> None:
    """Count again what is summarised. Raises BranchBusyError while a run works on the branch."""
    lease = Lease.take(branch.pk, uuid.uuid4())
    try:
        with transaction.atomic():
            lock_branches(branch.session_id)
            state = CompactionState.objects.get(pk=branch.pk)
            _write_state(branch, cursor=state.cursor)
    finally:
        lease.release()


def _reach(branch: Branch) -> int:
    """Return how far summaries cover the path from its beginning on, without hiding a message."""
    reach = placeholder_reach(branch)
    summaries = active_summaries_of(branch).filter(covers_through__lte=branch.head_position)
    ends = summaries.values_list("covers_through", flat=True)
    hidden = hidden_messages(branch, branch.head_position).first()
    limit = hidden.position if hidden is not None else branch.head_position + 1
    return max([reach, *(end for end in ends if end < limit)])


def _write_state(branch: Branch, *, cursor: int) -> None:
    covered = path_messages(branch, through=cursor)
    sums = covered.aggregate(count=Count("id"), total=Sum("tokens"))
    CompactionState.objects.filter(pk=branch.pk).update(
        cursor=cursor, covered_messages=sums["count"], covered_tokens=sums["total"] or 0
    )
