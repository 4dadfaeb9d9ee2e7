"""Restoring: a summary no longer covers its messages, so they are sent verbatim again."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from django.db import transaction

from chatapp.models import Branch
from compaction.models import CompactionState, SessionSummary
from compaction.selectors import coverage_of
from compaction.services.errors import CompactionError, LostRaceError
from compaction.services.leases import Lease, ensure_state


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """Which summaries were taken back, oldest first, and where the cursor stands now."""

    summaries: list[SessionSummary]
    cursor: int


def restore_summary(summary: SessionSummary, *, cascade: bool = False) -> Restored:
    """Take a summary back: nothing is deleted, its messages are sent again.

    Newer summaries of the branch were built on it: with `cascade` they are taken back too, without
    it CompactionError names them. Raises BranchBusyError while a run works on the branch.
    """
    if summary.status != SessionSummary.Status.ACTIVE:
        raise CompactionError(
            f"Only an active summary can be restored; this one is {summary.status}."
        )
    state = ensure_state(summary.branch)
    lease = Lease.take(state.pk, uuid.uuid4())
    try:
        return _restore(summary, state, lease, cascade=cascade)
    finally:
        lease.release()


def _restore(
    summary: SessionSummary, state: CompactionState, lease: Lease, *, cascade: bool
) -> Restored:
    active = SessionSummary.objects.filter(
        branch_id=summary.branch_id,
        status=SessionSummary.Status.ACTIVE,
        covers_through__gte=summary.covers_through,
    ).order_by("covers_through")
    affected = list(active)
    newer = [row for row in affected if row.pk != summary.pk]
    if newer and not cascade:
        raise CompactionError(
            f"{len(newer)} newer summar{'y was' if len(newer) == 1 else 'ies were'} built on this "
            "one. Restore the newest first, or all of them with cascade."
        )
    with transaction.atomic():
        SessionSummary.objects.filter(pk__in=[row.pk for row in affected]).update(
            status=SessionSummary.Status.RESTORED
        )
        cursor = _move_back(summary.branch)
        _move_back_forks(summary, affected)
        held = CompactionState.objects.filter(pk=state.pk, lease_owner=lease.owner)
        if not held.exists():
            raise LostRaceError("Another worker took the branch meanwhile; nothing was restored.")
    for row in affected:
        row.status = SessionSummary.Status.RESTORED
    return Restored(summaries=affected, cursor=cursor)


def _move_back(branch: Branch) -> int:
    """Put the branch's cursor where its active summaries reach now, and return it."""
    reach = coverage_of(branch)
    CompactionState.objects.filter(pk=branch.pk).update(
        cursor=reach.cursor, covered_messages=reach.messages, covered_tokens=reach.tokens
    )
    return reach.cursor


def _move_back_forks(summary: SessionSummary, affected: list[SessionSummary]) -> None:
    """Do the same for forks that took a summary over, or its messages would be sent by nobody.

    A run that works on such a fork loses its race by the moved cursor.
    """
    inherited = (
        CompactionState.objects.select_related("branch")
        .filter(
            branch__session_id=summary.session_id,
            cursor__in=[row.covers_through for row in affected],
        )
        .exclude(pk=summary.branch_id)
    )
    for state in inherited:
        _move_back(state.branch)
