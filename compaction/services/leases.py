"""The lease of a branch: one worker at a time, by conditional UPDATE, expiring (rule 3)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Now
from django.utils import timezone

from chatapp.database import again_if_cut
from chatapp.models import Branch
from chatapp.transcript import lock_branches
from compaction.conf import compaction_settings
from compaction.events import event
from compaction.models import CompactionRun, CompactionState
from compaction.run_selectors import running_row
from compaction.selectors import Coverage, coverage_of
from compaction.services.ending import ended
from compaction.services.errors import BranchBusyError, LostRaceError


def state_of(branch: Branch) -> CompactionState:
    """Return the branch's state with the branch's newest sums; one never stored is worked out.

    A new branch starts where the summaries of its path reach, and with its parent's profile. This
    only reads; `ensure_state` stores. A cursor behind the last message (a restored backup) would
    hide everything: it counts as standing where the summaries reach (2.5: 3680, 4066).
    """
    state = CompactionState.objects.select_related("branch").filter(pk=branch.pk).first()
    if state is not None:
        return state if _is_in_range(state) else _put_in_range(state)
    reach = coverage_of(branch)
    parent = None
    if branch.parent_id is not None:
        parent = CompactionState.objects.filter(pk=branch.parent_id).first()
    return CompactionState(
        branch=Branch.objects.get(pk=branch.pk),
        cursor=reach.cursor,
        covered_messages=reach.messages,
        covered_tokens=reach.tokens,
        profile=parent.profile if parent else "",
    )


def ensure_state(branch: Branch) -> CompactionState:
    """Return the branch's state, stored, so that nothing has to be worked out again."""
    state = state_of(branch)
    if state._state.adding:
        with transaction.atomic():
            # Where a summary is being taken back meanwhile, this waits for how it ends.
            lock_branches(branch.session_id)
            CompactionState.objects.bulk_create([state_of(branch)], ignore_conflicts=True)
        state = state_of(branch)
    elif state.cursor != (stored := state.stored_cursor):
        event(
            "cursor_put_right",
            session=branch.session_id,
            branch=branch,
            stored=stored,
            cursor=state.cursor,
        )
        CompactionState.objects.filter(pk=state.pk, cursor=stored).update(
            cursor=state.cursor,
            covered_messages=state.covered_messages,
            covered_tokens=state.covered_tokens,
        )
    return state


def _is_in_range(state: CompactionState) -> bool:
    return 0 <= state.cursor <= state.branch.head_position


def _put_in_range(state: CompactionState) -> CompactionState:
    """Return the state with the cursor where summaries reach, if that is on the branch."""
    reach = coverage_of(state.branch)
    if reach.cursor > state.branch.head_position:
        reach = Coverage()
    state.cursor = reach.cursor
    state.covered_messages, state.covered_tokens = reach.messages, reach.tokens
    return state


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to compact one branch, held by `owner` until it is released or expires."""

    branch_id: UUID
    owner: UUID
    # Whose time was over when this one took the branch.
    former: UUID | None = None

    @classmethod
    def take(cls, branch_id: UUID, owner: UUID) -> Lease:
        """Take the lease, also from an owner whose time is over; raise BranchBusyError otherwise.

        The run of a former owner is marked as interrupted: it can store nothing any more.
        """
        rows = CompactionState.objects.filter(pk=branch_id)
        former = rows.values_list("lease_owner", flat=True).first()
        free = Q(lease_owner__isnull=True) | Q(lease_expires_at__lt=Now())
        same = Q(lease_owner=former) if former else Q(lease_owner__isnull=True)
        taken = rows.filter(free & same).update(lease_owner=owner, lease_expires_at=_expiry())
        if not taken:
            raise BranchBusyError(
                "Another run is compacting this branch; it will look again after."
            )
        if former:
            _tell_of(former, branch_id)
            interrupt_run_of(former)
        return cls(branch_id=branch_id, owner=owner, former=former)

    def renew(self) -> None:
        """Hold the lease for another period; raise LostRaceError when it is no longer ours."""
        kept = CompactionState.objects.filter(pk=self.branch_id, lease_owner=self.owner).update(
            lease_expires_at=_expiry()
        )
        if not kept:
            raise LostRaceError("The lease ran out and another worker took the branch.")

    def release(self) -> None:
        """Free the branch, if it is still ours."""
        held = CompactionState.objects.filter(pk=self.branch_id, lease_owner=self.owner)
        again_if_cut(lambda: held.update(lease_owner=None, lease_expires_at=None))


def _tell_of(former: UUID, branch_id: UUID) -> None:
    # By the branch, which has an index: the worker has none.
    runs = CompactionRun.objects.filter(branch=branch_id, worker=former)
    run = runs.only("session", "reason").first()
    event(
        "lease_taken_over",
        session=run.session_id if run else None,
        branch=branch_id,
        run=run,
        reason=run.reason if run else "",
        former=former,
    )


def interrupt_run_of(worker: UUID) -> bool:
    """Mark a dead worker's running run as failed; return whether there was one."""
    return interrupt_runs(CompactionRun.objects.filter(worker=worker))


def interrupt_runs(runs: QuerySet[CompactionRun]) -> bool:
    """Mark those of the runs that say they work as failed; return whether there was one."""
    found = False
    for run in runs.filter(status=CompactionRun.Status.RUNNING):
        if running_row(run).update(
            status=CompactionRun.Status.FAILED,
            error_code="interrupted",
            error="The worker stopped in the middle of the run; nothing of it was stored. "
            "A later run takes the same messages.",
            finished_at=timezone.now(),
        ):
            found = True
            # A session may be deleted at this very moment: then there is nothing to tell.
            for stored in CompactionRun.objects.filter(pk=run.pk):
                ended(stored)
    return found


def lock_state(branch_id: UUID) -> None:
    """Hold a branch's state until the transaction ends.

    Whoever changes a run and its branch's state takes the state first, as those do that store a
    summary: otherwise two of them could wait for each other.
    """
    list(CompactionState.objects.select_for_update().filter(pk=branch_id).values_list("pk"))


def soon() -> datetime:
    """Return when the sweep should look at a branch if the worker that has it now dies."""
    return timezone.now() + timedelta(seconds=compaction_settings.lease_seconds)


def _expiry() -> CombinedExpression:
    """Return when a lease ends that is taken now, by the database's clock: machines' may differ."""
    return Now() + timedelta(seconds=compaction_settings.lease_seconds)
