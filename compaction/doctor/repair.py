"""Repairs of what the doctor finds, and of what it leaves alone."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from django.db import transaction
from django.db.models import Count, Q, Sum
from django.db.models.functions import Now

from chatapp.models import Branch, Session
from chatapp.selectors import path_messages
from chatapp.transcript import lock_branches, repair_sums, set_pinned
from compaction.branches.coverage import coverage_of, hidden_messages, sent_chain
from compaction.branches.leases import held
from compaction.models import CompactionRun, CompactionState, SessionSummary, SessionSummaryMessage
from compaction.models.summaries import status_columns
from compaction.runs.lifecycle import interrupt_runs
from compaction.summaries.restore import restore_summary

Status = SessionSummary.Status

# Messages that no summary read are pinned up to this number: pins are never summarised away.
MOST_PINNED = 20


@contextmanager
def _held(branch: Branch) -> Iterator[None]:
    """Hold the branch's lease, where it has a state at all: without one no run can work on it."""
    if not CompactionState.objects.filter(pk=branch.pk).exists():
        yield
        return
    with held(branch.pk):
        yield


def while_nobody_works(branch: Branch, repair: Callable[[], object]) -> None:
    """Do a repair that no run may see half done."""
    with _held(branch):
        repair()


def put_branch_sums_right(branch: Branch) -> None:
    """Work the branch's counts, sums and head out again."""
    while_nobody_works(branch, partial(repair_sums, branch))


def put_cursor_right(branch: Branch) -> None:
    """Put the cursor to where the branch's summaries reach; what is behind it is sent verbatim."""
    with _held(branch), transaction.atomic():
        lock_branches(branch.session_id)
        _write_state(branch, cursor=coverage_of(branch).cursor)


def put_covered_sums_right(branch: Branch) -> None:
    """Count again what stands up to the cursor, which stays."""
    with _held(branch), transaction.atomic():
        lock_branches(branch.session_id)
        _write_state(branch, cursor=CompactionState.objects.get(pk=branch.pk).cursor)


def _write_state(branch: Branch, *, cursor: int) -> None:
    covered = path_messages(branch, through=cursor)
    sums = covered.aggregate(count=Count("id"), tokens=Sum("tokens"), chars=Sum("chars"))
    CompactionState.objects.filter(pk=branch.pk).update(
        cursor=cursor,
        covered_messages=sums["count"],
        covered_tokens=sums["tokens"] or 0,
        covered_chars=sums["chars"] or 0,
    )


def show_hidden(branch: Branch) -> None:
    """Have the messages sent that stand before the cursor and that no summary has read.

    A few that came in late are pinned. Where a summary's place in the chain is empty, those behind
    it are taken back. Where no summary reaches that far, only the cursor goes back.
    """
    cursor = CompactionState.objects.get(pk=branch.pk).cursor
    hidden = list(hidden_messages(branch, cursor)[: MOST_PINNED + 1])
    if not hidden:
        return
    behind = [row for row in sent_chain(branch, cursor) if row.covers_through > hidden[0].position]
    were_read = SessionSummaryMessage.objects.filter(message__in=[row.pk for row in hidden])
    if not behind:
        put_cursor_right(branch)
    elif len(hidden) > MOST_PINNED or were_read.exists():
        take_back(behind[-1].pk)
    else:
        with _held(branch), transaction.atomic():
            for row in hidden:
                set_pinned(row, True)


def take_back(summary_id: uuid.UUID) -> None:
    """Restore a summary, if it is still active, and those built on it: its messages are sent."""
    rows = SessionSummary.objects.select_related("branch", "session")
    summary = rows.filter(pk=summary_id, status=Status.ACTIVE).first()
    if summary is not None:
        restore_summary(summary, cascade=True, holds=False)


def part_overlapping(earlier_id: uuid.UUID, later_id: uuid.UUID) -> None:
    """Leave one of two summaries of one branch that cover the same messages.

    Where the later one has read everything that the earlier one read, it supersedes it; else it is
    taken back.
    """
    later = SessionSummary.objects.select_related("branch").get(pk=later_id)
    links = SessionSummaryMessage.objects
    read = links.filter(summary_id=later_id).values("message")
    if links.filter(summary_id=earlier_id).exclude(message__in=read).exists():
        take_back(later_id)
        return
    with _held(later.branch):
        SessionSummary.objects.filter(pk=earlier_id, status=Status.ACTIVE).update(
            **status_columns(Status.SUPERSEDED)
        )


def free_lease(state: CompactionState) -> None:
    """Free a lease that ran out or that has no end, unless somebody else took it meanwhile."""
    is_over = Q(lease_expires_at__isnull=True) | Q(lease_expires_at__lt=Now())
    CompactionState.objects.filter(is_over, pk=state.pk, lease_owner=state.lease_owner).update(
        lease_owner=None, lease_expires_at=None
    )


def free_turn(session: Session) -> None:
    """Free the lease of a session's turn that ran out."""
    Session.objects.filter(pk=session.pk, turn_expires_at__lt=Now()).update(
        turn_owner=None, turn_expires_at=None
    )


def end_run(run: CompactionRun) -> None:
    """Mark a run as interrupted that says it works and names no worker or no beginning."""
    interrupt_runs(CompactionRun.objects.filter(pk=run.pk, worker=run.worker))
