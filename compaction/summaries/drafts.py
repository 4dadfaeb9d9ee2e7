"""Summaries that were made ahead of need: stored as drafts, published when a rule asks for them.

A draft costs a model call when nobody waits, and publishing it none. It may be published as long as
the messages that it was made from are exactly those that would be passed
(docs/architecture.md#a-cursor-moves-only-over-what-was-read).
"""

from __future__ import annotations

import uuid

from django.db import transaction
from django.db.models import F, QuerySet

from chatapp.models import Branch, Message
from chatapp.selectors import path_messages, without_pinned_system
from chatapp.transcript import lock_branches
from compaction.branches.holds import note_end_of_hold
from compaction.branches.leases import Lease, after_lease, held
from compaction.branches.snapshot import BranchSnapshot
from compaction.engine.types import Outcome
from compaction.errors import BranchBusyError, LostRaceError
from compaction.events import event
from compaction.models import CompactionRun, CompactionState, SessionSummary, SessionSummaryMessage
from compaction.models.summaries import status_columns
from compaction.selectors import summaries_of
from compaction.statistics.totals import published
from compaction.summaries.columns import Sizes, write_placeholder
from compaction.summaries.storing import (
    EndRun,
    claim_state,
    hold_positions,
    moved_cursor,
    previous_of,
    sources_of,
    write_summary,
)

Status = SessionSummary.Status


def store_draft(
    *,
    snapshot: BranchSnapshot,
    run: CompactionRun,
    lease: Lease,
    outcome: Outcome,
    sizes: Sizes,
    end_run: EndRun,
) -> SessionSummary:
    """Store a summary that is not sent yet; the cursor stays.

    Raises LostRaceError as store_summary does.
    """
    state = snapshot.state
    with transaction.atomic():
        ends = hold_positions(run, outcome)
        claim_state(
            lease,
            cursor=state.cursor,
            changes={"failures": 0, "backoff_until": None, "next_check_at": after_lease()},
        )
        _drafts(snapshot).update(**status_columns(Status.SUPERSEDED))
        passed = path_messages(snapshot.branch, after=state.cursor, through=ends.last.position)
        draft = write_summary(
            snapshot,
            run,
            outcome,
            sizes,
            ends=ends,
            sources=sources_of(outcome, passed),
            previous=previous_of(snapshot, outcome),
            is_draft=True,
        )
        # A draft saves nothing before it is published.
        end_run(outcome, sizes, saved=0)
    return draft


def has_draft(snapshot: BranchSnapshot) -> bool:
    """Whether a draft waits for the branch."""
    known = snapshot.state.known_to_run
    return draft_id_of(snapshot) is not None if known is None else known.has_draft


def draft_id_of(snapshot: BranchSnapshot) -> uuid.UUID | None:
    """Return the id of the draft that waits for the branch."""
    newest = _drafts(snapshot).order_by("-created_at")
    return newest.values_list("pk", flat=True).first()


def publish_draft(snapshot: BranchSnapshot, *, lease: Lease | None = None) -> SessionSummary | None:
    """Let the branch's draft count, without a model call; return it, or None.

    One that no longer fits is superseded. Without a lease of the caller's own it is taken for the
    moment; while a run works on the branch nothing happens.
    """
    if not has_draft(snapshot):
        return None
    try:
        if lease is not None:
            return _publish(snapshot, lease)
        with held(snapshot.branch.pk) as own:
            return _publish(snapshot, own)
    except (BranchBusyError, LostRaceError):
        return None


def _publish(snapshot: BranchSnapshot, lease: Lease) -> SessionSummary | None:
    branch = snapshot.branch
    with transaction.atomic():
        lock_branches(branch.session_id)
        state = CompactionState.objects.get(pk=branch.pk)
        draft = _drafts(snapshot).order_by("-created_at").first()
        if draft is None:
            return None
        passed = path_messages(branch, after=state.cursor, through=draft.covers_through)
        last = _last_if_it_fits(snapshot, draft, state)
        if last is None:
            # Nothing of the state changes; whoever has lost the lease may write nothing.
            claim_state(
                lease, cursor=state.cursor, changes={"recheck_requested": F("recheck_requested")}
            )
            _drafts(snapshot).update(**status_columns(Status.SUPERSEDED))
            event("draft_discarded", session=branch.session_id, branch=branch, run=draft.run_id)
            return None
        changes = moved_cursor(passed, last, messages=draft.message_count + draft.dropped_messages)
        claim_state(lease, cursor=state.cursor, changes=changes)
        _drafts(snapshot).filter(pk=draft.pk).update(**status_columns(Status.ACTIVE))
        draft.status = Status.ACTIVE
        write_placeholder(branch, draft)
        if draft.run is not None:
            note_end_of_hold(state, draft.run)
            published(draft.run)
    event(
        "draft_published",
        session=branch.session_id,
        branch=branch,
        run=draft.run_id,
        reason=draft.reason,
        messages=draft.message_count,
    )
    return draft


def _last_if_it_fits(
    snapshot: BranchSnapshot, draft: SessionSummary, state: CompactionState
) -> Message | None:
    """Return the last message that the draft covers, if it was made from exactly what stands there.

    No summary may have been stored since, either: the draft would not continue it.
    """
    known = summaries_of(snapshot.branch).filter(covers_through__lte=state.cursor)
    if known.filter(created_at__gt=draft.created_at).exists():
        return None
    return end_of_what_was_read(snapshot.branch, draft, cursor=state.cursor)


def end_of_what_was_read(branch: Branch, summary: SessionSummary, *, cursor: int) -> Message | None:
    """Return the last message of a summary, if it was made from exactly what stands there behind
    a cursor; None where anything else stands there, too, or something is gone.
    """
    rows = path_messages(branch, after=cursor, through=summary.covers_through)
    passed = list(without_pinned_system(rows).values_list("pk", flat=True))
    read = SessionSummaryMessage.objects.filter(summary=summary).values_list("message", flat=True)
    if not passed or set(passed[summary.dropped_messages :]) != set(read):
        return None
    return Message.objects.only("position", "tokens_through", "chars_through").get(pk=passed[-1])


def _drafts(snapshot: BranchSnapshot) -> QuerySet[SessionSummary]:
    return SessionSummary.objects.filter(branch=snapshot.branch, status=Status.DRAFT)
