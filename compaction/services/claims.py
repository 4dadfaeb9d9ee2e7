"""What must hold when a summary is stored: positions, lease, cursor and run, compared and set.

All of it is called inside the transaction that stores the summary (DESIGN.md, rule 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models.functions import Now
from django.utils import timezone

from chatapp.models import Message
from chatapp.transcript import lock_branches
from compaction.engine.types import Outcome
from compaction.models import CompactionRun, CompactionState
from compaction.run_selectors import running_row
from compaction.services.ending import ended
from compaction.services.errors import LostRaceError
from compaction.services.leases import Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Tokens of summaries and history in the next request, before and after; of the new text."""

    before: int
    after: int
    summary: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The rows of the first and the last message that the summariser received."""

    first: Message
    last: Message


def hold_positions(run: CompactionRun, outcome: Outcome) -> Ends:
    """Keep the session's positions where they are until the transaction ends.

    Another branch's summary may have renumbered them while this one was being written. Branches are
    locked before states, here and in the transcript, so that two workers never wait for each other.
    """
    lock_branches(run.session_id)
    ends = outcome.items[0].id, outcome.items[-1].id
    first, last = (Message._meta.pk.to_python(end) for end in ends)
    found = Message.objects.only("position", "tokens_through", "created_at")
    rows = found.in_bulk([first, last])
    if not {first, last} <= rows.keys() or rows[last].position != outcome.items[-1].position:
        raise LostRaceError(
            "The session's positions were renumbered while the summary was being written; "
            "nothing was stored."
        )
    return Ends(first=rows[first], last=rows[last])


def claim_state(lease: Lease, *, cursor: int, changes: dict[str, Any]) -> None:
    """Change the branch's state, if the lease holds it and the cursor stands where it stood."""
    held = CompactionState.objects.filter(
        pk=lease.branch_id,
        lease_owner=lease.owner,
        lease_expires_at__gt=Now(),
        cursor=cursor,
    ).update(**changes)
    if not held:
        raise LostRaceError(
            "The branch changed hands or its cursor moved while the summary was being written; "
            "nothing was stored."
        )


def finish_run(
    run: CompactionRun, outcome: Outcome, sizes: Sizes, *, saved: int | None = None
) -> None:
    """Mark the run as succeeded; raise LostRaceError where it is no longer this worker's.

    `saved` tells the next request's gain where the sizes do not (ending.ended).
    """
    finished = running_row(run).update(
        status=CompactionRun.Status.SUCCEEDED,
        finished_at=timezone.now(),
        tokens_before=sizes.before,
        tokens_after=sizes.after,
        input_tokens=outcome.input_tokens,
        output_tokens=outcome.output_tokens,
        chunk_count=outcome.chunk_count,
        max_depth=outcome.max_depth,
        truncated=outcome.truncated,
        cost=outcome.cost,
    )
    if not finished:
        raise LostRaceError("The run was cancelled or taken over; nothing was stored.")
    run.refresh_from_db()
    ended(run, saved=saved)
