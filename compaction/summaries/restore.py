"""Restoring: a summary no longer covers its messages, so they are sent verbatim again, and held."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Value
from django.db.models.functions import Coalesce, Greatest
from django.utils import timezone

from chatapp.audit import record
from chatapp.database import database_now
from chatapp.formatting import plural, short_id
from chatapp.models import Branch
from chatapp.transcript import lock_branches
from compaction.branches.coverage import coverage_of
from compaction.branches.holds import hold_columns, until_words
from compaction.branches.leases import Lease, ensure_state, held
from compaction.engine.policy.holds import hold_length
from compaction.errors import CompactionError, LostRaceError
from compaction.models import CompactionState, SessionSummary
from compaction.models.summaries import status_columns
from compaction.profiles import parameters_of, profile_of
from compaction.selectors import chain_of
from compaction.summaries.sizes import note_request_size

# How long the sweep leaves a branch alone whose summary was taken back, where nothing holds it.
REST = timedelta(minutes=15)
# The code of the audit log.
RESTORED = "restored"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """Which summaries were taken back, oldest first, and where the cursor stands now.

    `state` is that of the branch of the summary that was asked for.
    """

    summaries: list[SessionSummary]
    cursor: int
    state: CompactionState


def restore_summary(
    summary: SessionSummary, *, cascade: bool = False, by: Any = None, holds: bool = True
) -> Restored:
    """Take a summary back: nothing is deleted, its messages are sent again, and held.

    Newer summaries were built on it, in its branch and in forks: with `cascade` they are taken back
    too, without it CompactionError counts them. Raises BranchBusyError while a run works on the
    branch; one that works on a fork loses its race.

    `by` is the person whose decision it is. It beats the rules for as long as the profile says
    (restore_hold): each branch that sends more again is held. A repair `holds` nothing.
    """
    refuse_branch_summary(summary)
    state = ensure_state(summary.branch)
    with held(state.pk) as lease, transaction.atomic():
        lock_branches(summary.session_id)
        restored = _restore(summary, lease, cascade=cascade, by=by, holds=holds)
        note_request_size(summary.session)
    return restored


def refuse_branch_summary(summary: SessionSummary) -> None:
    """Raise CompactionError for the summary of a branch that was left."""
    if summary.kind == SessionSummary.Kind.BRANCH:
        raise CompactionError(
            "The summary of a branch cannot be restored: it hides nothing. The messages that it "
            "tells of stand on the branch that was left; switch to that one to go on there."
        )


def _restore(
    summary: SessionSummary, lease: Lease, *, cascade: bool, by: Any, holds: bool
) -> Restored:
    summary.refresh_from_db(fields=["status", "covers_from", "covers_through"])
    branches = list(Branch.objects.filter(session_id=summary.session_id))
    affected = taken_back_with(summary, branches, cascade=cascade)
    mark_restored(affected)
    drafts = SessionSummary.objects.filter(
        session=summary.session_id, status=SessionSummary.Status.DRAFT
    )
    drafts.update(**status_columns(SessionSummary.Status.SUPERSEDED))
    for branch in branches:
        move_back(branch, by=by, holds=holds)
    now_held = CompactionState.objects.filter(pk=summary.branch_id, lease_owner=lease.owner).first()
    if now_held is None:
        raise LostRaceError("Another worker took the branch meanwhile; nothing was restored.")
    if holds:
        record(
            summary.session_id,
            RESTORED,
            _words(affected, now_held),
            by=by,
            branch=summary.branch_id,
        )
    return Restored(summaries=affected, cursor=now_held.cursor, state=now_held)


def _words(affected: list[SessionSummary], state: CompactionState) -> str:
    """Return what was done, for the audit log."""
    more = len(affected) - 1
    others = f" and {plural(more, 'newer one')}" if more else ""
    messages = plural(sum(row.message_count for row in affected), "message")
    said = f"Summary {short_id(affected[0].pk)}{others} restored: {messages} sent verbatim again."
    if not state.is_held:
        return said
    return f"{said} They are held {until_words(state)}: no rule compacts them."


def taken_back_with(
    summary: SessionSummary,
    branches: list[Branch],
    *,
    cascade: bool,
    before: Collection[SessionSummary] = (),
) -> list[SessionSummary]:
    """Return the summary and those that are taken back with it, oldest first.

    Raises CompactionError where it is not active, not the one that is sent, or, without `cascade`,
    where newer ones were built on it. `branches` are all of its session's; `before` are summaries
    that are taken back before it.
    """
    if summary.status != SessionSummary.Status.ACTIVE:
        raise CompactionError(
            f"Only an active summary can be restored; this one is {summary.status}."
        )
    if (copy := copy_in_use(summary)) is not None:
        raise CompactionError(
            "The branch of this summary was replayed with shorter tool results, and the "
            f"conversation goes on with its copy: restore summary {copy.pk} instead."
        )
    newer = [row for row in built_on(summary, branches) if row not in before]
    if newer and not cascade:
        raise CompactionError(
            f"{len(newer)} newer summar{'y was' if len(newer) == 1 else 'ies were'} built on this "
            "one. Restore the newest first, or all of them with cascade."
        )
    return [summary, *newer]


def mark_restored(rows: list[SessionSummary]) -> None:
    """Mark summaries as taken back, in the database and in memory."""
    columns = status_columns(SessionSummary.Status.RESTORED)
    SessionSummary.objects.filter(pk__in=[row.pk for row in rows]).update(**columns)
    for row in rows:
        for name, value in columns.items():
            setattr(row, name, value)


def copy_in_use(summary: SessionSummary) -> SessionSummary | None:
    """Return the copy that a replay made of a summary, where it and not this one is sent."""
    active = Branch.objects.get(pk=summary.session.branch.pk)
    chain = chain_of(active)
    if any(row.pk == summary.pk for row in chain):
        return None
    return next((row for row in chain if _is_copy(row, summary)), None)


def _is_copy(row: SessionSummary, summary: SessionSummary) -> bool:
    """Whether a row repeats a summary: both are of one run, or of none and of one moment."""
    if summary.run_id is not None:
        return row.run_id == summary.run_id
    return row.run_id is None and row.created_at == summary.created_at


def built_on(summary: SessionSummary, branches: list[Branch]) -> list[SessionSummary]:
    """Return the active summaries of any branch that continue this one, oldest first."""
    found: dict[uuid.UUID, SessionSummary] = {}
    for branch in branches:
        chain = chain_of(branch)
        if summary in chain:
            found |= {row.pk: row for row in chain[: chain.index(summary)]}
    return sorted(found.values(), key=lambda row: (row.covers_through, row.created_at))


def move_back(branch: Branch, *, by: Any = None, holds: bool = False) -> None:
    """Put a cursor back to where the branch's active summaries still reach, and hold the rest."""
    reach = coverage_of(branch)
    ahead = CompactionState.objects.filter(pk=branch.pk, cursor__gt=reach.cursor)
    state = ahead.first()
    if state is None:
        return
    hold = hold_of_restore(state, by=by) if holds else {}
    if hold:
        # What an earlier restore holds stays held: it stands behind this one's messages.
        before = Coalesce(F("hold_through"), Value(0))
        hold["hold_through"] = Greatest(F("cursor"), before)
    ahead.update(
        **reach.as_columns(),
        **hold,
        # What was reported of requests with the summary says nothing of the next one.
        last_consolidated_at=database_now(),
        # A run that gained nothing had other messages before it.
        gainless_total=0,
        # Who restored it wants to read it first: an idle session is left alone for a while.
        next_check_at=hold["held_until"] if hold else timezone.now() + REST,
    )


def hold_of_restore(state: CompactionState, *, by: Any) -> dict[str, Any]:
    """Return the columns by which a restore holds a branch up to its cursor, as its profile says.

    They are none where the profile holds nothing, or cannot be read.
    """
    length = hold_length(parameters_of(profile_of(state)).restore_hold)
    return hold_columns(state.cursor, length, by=by)
