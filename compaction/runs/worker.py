"""Compacting a branch: request a run, claim it, hold the branch's lease, look again afterwards.

Every way into a compaction ends here: inline before a request, in a worker, by hand, after an
overflow. What a worker does with a run is in
compaction.runs.execution, when one is due in compaction.runs.scheduling.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from django.db import Error, IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from chatapp.database import close_connection, database_now
from chatapp.models import Branch, Session
from compaction.branches.leases import (
    Lease,
    after_lease,
    asked_state,
    ensure_state,
    state_of,
    state_of_run,
)
from compaction.branches.planning import cut_of, decision_of
from compaction.branches.snapshot import BranchSnapshot, refreshed, snapshot_of
from compaction.branches.tail import keep_tail
from compaction.conf import compaction_settings
from compaction.engine.policy.reasons import Reason, RunCode
from compaction.errors import BranchBusyError, CompactionError, RunGoneError
from compaction.events import event
from compaction.memories.runs import request_extraction
from compaction.models import CompactionProfile, CompactionRun, CompactionState, SessionSummary
from compaction.profiles import in_force_of, parameters_of, profile_of
from compaction.runs import lifecycle, queue
from compaction.runs.execution import do_work, fail
from compaction.runs.failing import note_models
from compaction.runs.heartbeat import working
from compaction.runs.scheduling import check, check_branch, columns_if_idle, queue_due
from compaction.runs.steps import InlineBound, Work
from compaction.selectors import ready_q, waiting_for
from compaction.statistics.hindsight import note_hindsight
from compaction.summaries.storing import STATE_AFTER

__all__ = ["check_branch", "compact_branch", "execute_run"]
logger = logging.getLogger(__name__)
_Result = TypeVar("_Result")
Status, Trigger = CompactionRun.Status, CompactionRun.Trigger


def compact_branch(
    *,
    session: Session,
    branch: Branch | None = None,
    trigger: str,
    reason: str,
    profile: CompactionProfile | None = None,
    instructions: str = "",
    replaces_instructions: bool = False,
    keep_last_n: int | None = None,
    replaces: SessionSummary | None = None,
    requested_by: Any = None,
    seconds: float | None = None,
) -> CompactionRun:
    """Compact a branch here and now and return the finished run, however it ended.

    A trigger by hand or after an overflow bypasses the thresholds, never the input. `seconds` is
    the time it may take; without it, what a waiting user is asked to wait.
    """
    branch = branch or session.branch
    worker, may_wait = uuid.uuid4(), trigger == Trigger.PROACTIVE or replaces is not None
    # Stored first: the lease is a column of it.
    found = asked_state(branch, for_run=True).run()
    state = ensure_state(branch, found, owner=None if may_wait else worker)
    with _freed_if_it_fails(state, worker):
        snapshot = snapshot_of(session, state=state, profile=profile)
        request = lifecycle.RunRequest(
            session=session,
            branch=snapshot.branch,
            trigger=trigger,
            reason=reason,
            profile=snapshot.profile_row,
            background=False,
            instructions=instructions,
            replaces_instructions=replaces_instructions,
            keep_last_n=keep_last_n,
            replaces=replaces,
            requested_by=requested_by,
        )
        seconds = seconds or compaction_settings.inline_seconds
        if may_wait and (replaces is not None or _is_waited_for(state)):
            # What waits already is done now; what is replaced is read again with the claim.
            return execute_run(lifecycle.request_run(request).pk, seconds=seconds)
        run = lifecycle.begin_run(request, worker)
    return _work_on(run, worker, seconds=seconds, read=snapshot)


@contextmanager
def _freed_if_it_fails(state: CompactionState, worker: uuid.UUID) -> Iterator[None]:
    """Free a branch that the worker took as its state was stored, where no run comes of it."""
    try:
        yield
    except BaseException:
        if state.lease_owner == worker:
            _or_later(Lease(branch_id=state.pk, owner=worker).release)
        raise


def _is_waited_for(state: CompactionState) -> bool:
    """Whether a rule's run waits for the branch, as the state was read."""
    return state.has_waiting_run is not False and lifecycle.waiting_run(state.branch) is not None


def execute_run(run_id: uuid.UUID, *, seconds: float | None = None) -> CompactionRun:
    """Do a queued run's work and return it finished; one that is not queued is returned as it is.

    Delivering a run twice, early or late is harmless: only one worker can claim it. Whatever goes
    wrong ends as the run's row; only what stops the worker itself (a queue's time-out) is raised
    again.
    """
    worker = uuid.uuid4()
    run = lifecycle.claim(run_id, worker)
    if run is None:
        return _as_it_is(run_id)
    budget = compaction_settings.run_seconds if seconds is None else seconds
    return _work_on(run, worker, seconds=budget, read=_as_claimed(run))


def _as_claimed(run: CompactionRun) -> BranchSnapshot | None:
    """Return a run's branch as it was read with the claim; None where it has to be read again.

    So has what cannot be read now: what goes wrong then is the run's.
    """
    try:
        state = state_of_run(run)
        if state is None:
            return None
        return snapshot_of(run.session, state=state, profile=run.profile)
    except (Error, CompactionError):
        logger.warning("The branch of run %s is read again.", run.pk, exc_info=True)
        close_connection()
        return None


def _work_on(
    run: CompactionRun, worker: uuid.UUID, *, seconds: float, read: BranchSnapshot | None = None
) -> CompactionRun:
    """Do the work of a run that this worker has, and return it finished.

    `read` is the branch as it was just read; it is read again where it has changed since.
    """
    try:
        lease = Lease.acquire_as_read(read.state, worker) if read else None
        if lease is None:
            lease, read = _lease_for(run, worker), None
    except BranchBusyError as busy:
        _step_aside(run, busy)
        return run
    except (Branch.DoesNotExist, IntegrityError):
        # The session was deleted meanwhile; what is no such thing is raised.
        if CompactionRun.objects.filter(pk=run.pk).exists():
            raise
        return _as_it_is(run.pk)
    event("run_started", session=run.session_id, branch=run.branch_id, run=run, reason=run.reason)
    left: _Left | None = None
    try:
        with working(lease, run):
            deadline = time.monotonic() + seconds
            work = Work(run=run, lease=lease, deadline=deadline, bound=_bound_of(run))
            snapshot = do_work(work, read)
        left = _or_later(partial(_leave, work, snapshot))
    except BaseException:
        # Also a queue's time-out, which is no Exception: the row must not say "running" for ever.
        fail(
            run,
            RunCode.INTERRUPTED,
            "The worker was stopped in the middle of the run; nothing was stored.",
        )
        raise
    finally:
        if left is None:
            _or_later(lease.release)
    if work.bound is not None and work.bound.was_reached:
        _or_later(partial(_finish_in_background, run, work.bound))
    _or_later(partial(note_models, run, work.tried))
    if (snapshot is None or snapshot.state.cursor) and not (left and left.has_next):
        # Before a first summary there is none to look back at; the last run of a backlog does.
        _or_later(partial(_look_back, run))
    if left is None or not left.is_idle:
        _or_later(partial(_check_again, run, left.found if left else None))
    _or_later(partial(request_extraction, run))
    return run


def _lease_for(run: CompactionRun, worker: uuid.UUID) -> Lease:
    """Return the lease of a run's branch, whose state may have to be stored first."""
    with suppress(BranchBusyError):
        return Lease.acquire_or_steal(run.branch_id, worker)
    ensure_state(run.branch)
    return Lease.acquire_or_steal(run.branch_id, worker)


def _bound_of(run: CompactionRun) -> InlineBound | None:
    """Return the bound of a run that a request waits for; who asked by hand waits for all of it."""
    if run.mode != "inline" or run.trigger not in CompactionRun.AUTOMATIC:
        return None
    return InlineBound(calls=compaction_settings.inline_calls)


def _finish_in_background(run: CompactionRun, bound: InlineBound) -> None:
    """Queue a run for what a request did not wait for any longer."""
    is_left = run.error_code == RunCode.INLINE_LIMIT
    is_partly_done = run.status == Status.SUCCEEDED and bound.messages_left > 0
    if run.profile is None or not (is_left or is_partly_done):
        return
    lifecycle.request_run(
        lifecycle.RunRequest(
            session=run.session,
            branch=run.branch,
            trigger=Trigger.PROACTIVE,
            reason=Reason.REST,
            profile=run.profile,
            background=True,
        )
    )


def _or_later(tidy: Callable[[], _Result]) -> _Result | None:
    """Tidy up after a run whose work is stored; nobody's turn fails because that does not work.

    Return what the tidying returns. The lease expires, and the sweep looks for what is left.
    """
    try:
        return tidy()
    except (Error, Branch.DoesNotExist):
        logger.exception("A run could not be tidied up; the sweep does it later.")
        return None


def _as_it_is(run_id: uuid.UUID) -> CompactionRun:
    run = CompactionRun.objects.filter(pk=run_id).first()
    if run is None:
        raise RunGoneError("The run does not exist any more: its session was deleted.")
    return run


def _step_aside(run: CompactionRun, busy: BranchBusyError) -> None:
    """Leave a busy branch alone: an automatic or waiting caller's run ends, a queued one waits."""
    states = CompactionState.objects.filter(pk=run.branch_id)
    # Whoever holds the branch may be no run, or die: then the sweep looks.
    states.update(recheck_requested=True, next_check_at=after_lease())
    if run.mode == "background" and run.trigger != Trigger.PROACTIVE:
        lifecycle.put_back(run)
    else:
        lifecycle.finish(run, Status.SKIPPED, code=lifecycle.BUSY, sentence=str(busy))


def _look_back(run: CompactionRun) -> None:
    """After a run that stored a summary, see what the turns since older ones needed of them."""
    if run.status == Status.SUCCEEDED and run.profile is not None:
        note_hindsight(run.branch, turns=parameters_of(run.profile).hindsight_turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Left:
    """A branch after its release: whether nothing is left to look at; as it was read for that.

    `has_next` is whether its next run was queued with the release.
    """

    is_idle: bool = False
    has_next: bool = False
    found: BranchSnapshot | None = None


def _leave(work: Work, before: BranchSnapshot | None) -> _Left:
    """Release the branch of a run, and look whether a rule is due.

    Where none is, one UPDATE releases it and says when to look again. Where one is, its run is
    queued in the transaction that releases. Both change nothing where somebody asked for a recheck
    or noted another time since the branch was read, or a run waits.
    """
    run, lease = work.run, work.lease
    if before is None or not _is_looked_at(run):
        lease.release()
        return _Left()
    stored = _as_stored(run, before)
    left = None if stored is None else _left_as(work, stored, _still_so(stored))
    if left is None:
        state = state_of(run.branch, asked_state(run.branch, for_run=True).run())
        left = _left_as(work, _as_it_is_now(run, before, state), Q())
    if left is None:
        lease.release()
    return left or _Left()


def _left_as(work: Work, found: BranchSnapshot, still_so: Q) -> _Left | None:
    """Release the branch as it was found; None where it is not so any more, or is to be rechecked.

    `still_so` is what must hold besides.
    """
    noted = found.state.next_check_at
    columns = columns_if_idle(found)
    still_so &= Q(recheck_requested=False)
    unasked = Q(next_check_at__isnull=True) if noted is None else Q(next_check_at=noted)
    alone = Q(still_so, unasked, ~Exists(_waiting_for(work.run)))
    if columns is not None and work.lease.release_if(alone, columns):
        return _Left(is_idle=True)
    # What a request did not wait for gets a run of its own (_finish_in_background).
    if columns is None and not (work.bound is not None and work.bound.was_reached):
        found = _by_current_profile(found)
        if (is_queued := _release_to_next(work.lease, found, alone)) is not None:
            return _Left(is_idle=True, has_next=is_queued)
    if not work.lease.release_if(still_so, {}):
        return None
    found.state.lease_owner = found.state.lease_expires_at = None
    return _Left(found=_by_current_profile(found))


def _release_to_next(lease: Lease, found: BranchSnapshot, condition: Q) -> bool | None:
    """Queue the run that a rule wants next, and release the branch; both or none.

    Return whether there is such a run; None where nothing was done. What it takes to decide is read
    before.
    """
    decision = None if found.backs_off else decision_of(found)
    if decision is not None:
        cut_of(found)
    with transaction.atomic():
        queued = queue_due(found, decision)
        is_released = lease.release_if(condition, queued.columns)
        transaction.set_rollback(not is_released)
    return queued.has_run if is_released else None


def _as_stored(run: CompactionRun, before: BranchSnapshot) -> BranchSnapshot | None:
    """Return the branch as a run has left it, without reading it again, where that can be known."""
    state, known = before.derived.get(STATE_AFTER), before.state.known_to_run
    is_own = run.trigger == Trigger.PROACTIVE or (
        known is not None and known.profile_in_force == before.profile_row.pk
    )
    if run.status != Status.SUCCEEDED or state is None or known is None or not is_own:
        return None
    state.branch = before.branch
    if before.state.has_no_pins and before.state.has_pins_behind is False:
        state.pinned_sums, state.has_pins_behind = before.state.pinned_sums, False
        is_instructed = known.has_instructions or bool(run.instructions)
        state.known_to_run = replace(known, has_draft=False, has_instructions=is_instructed)
    found = _as_it_is_now(run, before, state)
    # Of what came since, or was taken away, the condition of the release tells (_still_so).
    keep_tail(found, before)
    return found


def _still_so(found: BranchSnapshot) -> Q:
    """Return the condition that a branch has the messages and the profile that were read."""
    branch, profile = found.branch, found.profile_row
    sums = {"message_count": branch.message_count, "token_total": branch.token_total}
    return Q(
        Exists(Branch.objects.filter(pk=branch.pk, **sums)),
        Exists(in_force_of(OuterRef("profile")).filter(pk=profile.pk)),
    )


def _waiting_for(run: CompactionRun) -> QuerySet[CompactionRun]:
    """Return the runs that somebody asked for and that may begin once this one is done."""
    return waiting_for(run.branch_id).filter(ready_q(database_now()))


def _as_it_is_now(
    run: CompactionRun, before: BranchSnapshot, state: CompactionState
) -> BranchSnapshot:
    """Return the branch after a run, by its own profile; what did not change is not read again."""
    found = refreshed(before, state)
    # A rule's run has the profile that the branch had when it was asked for.
    is_own = run.trigger == Trigger.PROACTIVE and before.profile_row.is_current
    return found if is_own else _by_current_profile(found)


def _by_current_profile(found: BranchSnapshot) -> BranchSnapshot:
    """Return a branch by the profile that counts for it now: a new run has its newest version."""
    known = found.state.known_to_run
    if known is not None and found.profile_row.pk == known.profile_in_force:
        return found
    profile = profile_of(found.state)
    if found.profile_row.pk == profile.pk:
        return found
    return snapshot_of(found.session, state=found.state, profile=profile)


def _is_looked_at(run: CompactionRun) -> bool:
    """Whether rules may be due after a run, whether or not somebody asked meanwhile."""
    # Of a switch, another branch is looked at (compaction.runs.branch_run).
    has_compacted = run.status == Status.SUCCEEDED and run.trigger != Trigger.BRANCH
    return has_compacted or _was_automatic(run)


def _check_again(run: CompactionRun, found: BranchSnapshot | None) -> None:
    """After a run, let the next one have the branch that stepped aside, or look for a trigger.

    The rule is evaluated again and not blindly followed: what asked meanwhile may have been done
    by this very run. A batch may have left others behind it. `found` is the branch where nobody had
    asked for a recheck when it was released.
    """
    asked = found is None and CompactionState.objects.filter(
        pk=run.branch_id, recheck_requested=True
    ).update(recheck_requested=False)
    following = _waiting_for(run).order_by("created_at").values_list("pk", flat=True).first()
    if following is not None:
        # Delivered perhaps a second time, which is harmless.
        queue.enqueue_run(following)
    if found is not None:
        check(found)
    elif asked or _is_looked_at(run):
        state = CompactionState.objects.filter(pk=run.branch_id).select_related("branch").first()
        # A deleted session has no state any more, and nothing to look at.
        if state is not None:
            check(snapshot_of(run.session, state=state))


def _was_automatic(run: CompactionRun) -> bool:
    return run.trigger == Trigger.PROACTIVE and run.is_finished
