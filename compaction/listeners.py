"""What this app hears from the transcript: positions that moved."""

from __future__ import annotations

from typing import Any

from django.dispatch import receiver

from chatapp.models import Session
from chatapp.transcript import positions_changed
from compaction.models import CompactionState, SessionSummary


@receiver(positions_changed, dispatch_uid="compaction.listeners")
def follow_positions(*, session: Session, moved: dict[int, int], **kwargs: Any) -> None:
    """Move cursors and coverage with the positions, in the transaction that moved them."""
    states = list(CompactionState.objects.filter(branch__session=session))
    for state in states:
        state.cursor = moved.get(state.cursor, state.cursor)
    CompactionState.objects.bulk_update(states, ["cursor"])
    summaries = list(
        SessionSummary.objects.filter(session=session).only("covers_from", "covers_through")
    )
    for summary in summaries:
        summary.covers_from = moved.get(summary.covers_from, summary.covers_from)
        summary.covers_through = moved.get(summary.covers_through, summary.covers_through)
    SessionSummary.objects.bulk_update(summaries, ["covers_from", "covers_through"])
