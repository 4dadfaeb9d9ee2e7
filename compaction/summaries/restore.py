"""Restoring: a summary no longer covers its messages, so they are sent verbatim again."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from chatapp.database import database_now
from chatapp.models import Branch
from chatapp.transcript import lock_branches
from compaction.branches.leases import Lease, ensure_state, held
from compaction.errors import CompactionError, LostRaceError
from compaction.models import CompactionState, SessionSummary
from compaction.selectors import chain_of, coverage_of
from compaction.summaries.sizes import note_request_size

# How long the sweep leaves a branch alone whose summary was taken back.
REST = timedelta(minutes=15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """Which summaries were taken back, oldest first, and where the cursor stands now."""

    summaries: list[SessionSummary]
    cursor: int


def restore_summary(summary: SessionSummary, *, cascade: bool = False) -> Restored:
    """Take a summary back: nothing is deleted, its messages are sent again.

    Newer summaries were built on it, in its branch and in forks: with `cascade` they are taken back
    too, without it CompactionError counts them. Raises BranchBusyError while a run works on the
    branch; one that works on a fork loses its race.
    """
    if summary.kind == SessionSummary.Kind.BRANCH:
        raise CompactionError(
            "The summary of a branch cannot be restored: it hides nothing. The messages that it "
            "tells of stand on the branch that was left; switch to that one to go on there."
        )
    state = ensure_state(summary.branch)
    with held(state.pk) as lease, transaction.atomic():
        lock_branches(summary.session_id)
        restored = _restore(summary, lease, cascade=cascade)
        note_request_size(summary.session)
    return restored


def _restore(summary: SessionSummary, lease: Lease, *, cascade: bool) -> Restored:
    summary.refresh_from_db(fields=["status", "covers_from", "covers_through"])
    if summary.status != SessionSummary.Status.ACTIVE:
        raise CompactionError(
            f"Only an active summary can be restored; this one is {summary.status}."
        )
    if (copy := _copy_in_use(summary)) is not None:
        raise CompactionError(
            "The branch of this summary was replayed with shorter tool results, and the "
            f"conversation goes on with its copy: restore summary {copy.pk} instead."
        )
    branches = list(Branch.objects.filter(session_id=summary.session_id))
    newer = _built_on(summary, branches)
    if newer and not cascade:
        raise CompactionError(
            f"{len(newer)} newer summar{'y was' if len(newer) == 1 else 'ies were'} built on this "
            "one. Restore the newest first, or all of them with cascade."
        )
    affected = [summary, *newer]
    SessionSummary.objects.filter(pk__in=[row.pk for row in affected]).update(
        status=SessionSummary.Status.RESTORED
    )
    drafts = SessionSummary.objects.filter(
        session=summary.session_id, status=SessionSummary.Status.DRAFT
    )
    drafts.update(status=SessionSummary.Status.SUPERSEDED)
    for branch in branches:
        _move_back(branch)
    held = CompactionState.objects.filter(pk=summary.branch_id, lease_owner=lease.owner).first()
    if held is None:
        raise LostRaceError("Another worker took the branch meanwhile; nothing was restored.")
    for row in affected:
        row.status = SessionSummary.Status.RESTORED
    return Restored(summaries=affected, cursor=held.cursor)


def _copy_in_use(summary: SessionSummary) -> SessionSummary | None:
    """Return the copy that a replay made of a summary, where it and not this one is sent."""
    active = Branch.objects.get(pk=summary.session.branch.pk)
    if summary.run_id is None:
        return None
    chain = chain_of(active)
    if any(row.pk == summary.pk for row in chain):
        return None
    return next((row for row in chain if row.run_id == summary.run_id), None)


def _built_on(summary: SessionSummary, branches: list[Branch]) -> list[SessionSummary]:
    """Return the active summaries of any branch that continue this one, oldest first."""
    found: dict[uuid.UUID, SessionSummary] = {}
    for branch in branches:
        chain = chain_of(branch)
        if summary in chain:
            found |= {row.pk: row for row in chain[: chain.index(summary)]}
    return sorted(found.values(), key=lambda row: (row.covers_through, row.created_at))


def _move_back(branch: Branch) -> None:
    """Put a cursor back to where the branch's active summaries still reach."""
    reach = coverage_of(branch)
    CompactionState.objects.filter(pk=branch.pk, cursor__gt=reach.cursor).update(
        **reach.as_columns(),
        # What was reported of requests with the summary says nothing of the next one.
        last_consolidated_at=database_now(),
        # Who restored it wants to read it first: an idle session is left alone for a while.
        next_check_at=timezone.now() + REST,
    )
