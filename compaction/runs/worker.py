"""Compacting a branch: request a run, claim it, hold the branch's lease, look again afterwards.

Every way into a compaction ends here: inline before a request, in a worker, by hand, after an
overflow. What a worker does with a run is in
compaction.runs.execution, when one is due in compaction.runs.scheduling.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import Error, IntegrityError

from chatapp.database import database_now
from chatapp.models import Branch, Session
from compaction.branches.leases import Lease, after_lease, ensure_state
from compaction.branches.snapshot import snapshot_of
from compaction.conf import compaction_settings
from compaction.engine.policy.reasons import Reason, RunCode
from compaction.errors import BranchBusyError, RunGoneError
from compaction.events import event
from compaction.memories.runs import request_extraction
from compaction.models import CompactionProfile, CompactionRun, CompactionState, SessionSummary
from compaction.profiles import parameters_of
from compaction.runs import lifecycle, queue
from compaction.runs.execution import do_work, fail
from compaction.runs.failing import note_models
from compaction.runs.heartbeat import working
from compaction.runs.scheduling import check, check_branch
from compaction.runs.steps import InlineBound, Work
from compaction.selectors import ready_q
from compaction.statistics.hindsight import note_hindsight

__all__ = ["check_branch", "compact_branch", "execute_run"]
logger = logging.getLogger(__name__)
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
    snapshot = snapshot_of(session, branch, profile=profile)
    run = lifecycle.request_run(
        lifecycle.RunRequest(
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
    )
    return execute_run(run.pk, seconds=seconds or compaction_settings.inline_seconds)


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
    try:
        ensure_state(run.branch)
        lease = Lease.acquire_or_steal(run.branch_id, worker)
    except BranchBusyError as busy:
        _step_aside(run, busy)
        return run
    except (Branch.DoesNotExist, IntegrityError):
        # The session was deleted meanwhile; what is no such thing is raised.
        if CompactionRun.objects.filter(pk=run_id).exists():
            raise
        return _as_it_is(run_id)
    event("run_started", session=run.session_id, branch=run.branch_id, run=run, reason=run.reason)
    budget = compaction_settings.run_seconds if seconds is None else seconds
    try:
        with working(lease, run):
            work = Work(
                run=run,
                lease=lease,
                deadline=time.monotonic() + budget,
                bound=_bound_of(run),
            )
            do_work(work)
    except BaseException:
        # Also a queue's time-out, which is no Exception: the row must not say "running" for ever.
        fail(
            run,
            RunCode.INTERRUPTED,
            "The worker was stopped in the middle of the run; nothing was stored.",
        )
        raise
    finally:
        _or_later(lease.release)
    if work.bound is not None and work.bound.was_reached:
        _or_later(partial(_finish_in_background, run, work.bound))
    _or_later(partial(note_models, run, work.tried))
    _or_later(partial(_look_back, run))
    _or_later(partial(_check_again, run))
    _or_later(partial(request_extraction, run))
    return run


def _bound_of(run: CompactionRun) -> InlineBound | None:
    """Return the bound of a run that a request waits for; who asked by hand waits for all of it."""
    if run.mode != "inline" or run.trigger not in (Trigger.PROACTIVE, Trigger.OVERFLOW_RETRY):
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


def _or_later(tidy: Callable[[], object]) -> None:
    """Tidy up after a run whose work is stored; nobody's turn fails because that does not work.

    The lease expires, and the sweep looks for what is left.
    """
    try:
        tidy()
    except (Error, Branch.DoesNotExist):
        logger.exception("A run could not be tidied up; the sweep does it later.")


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


def _check_again(run: CompactionRun) -> None:
    """After a run, let the next one have the branch that stepped aside, or look for a trigger.

    The rule is evaluated again and not blindly followed: what asked meanwhile may have been done
    by this very run. A batch may have left others behind it.
    """
    asked = CompactionState.objects.filter(pk=run.branch_id, recheck_requested=True).update(
        recheck_requested=False
    )
    waiting = CompactionRun.objects.filter(
        ready_q(database_now()),
        branch_id=run.branch_id,
        status=Status.QUEUED,
        mode="background",
    ).exclude(trigger=Trigger.PROACTIVE)
    following = waiting.order_by("created_at").values_list("pk", flat=True).first()
    if following is not None:
        # Delivered perhaps a second time, which is harmless.
        queue.enqueue_run(following)
    # Of a switch, another branch is looked at (compaction.runs.branch_run).
    has_compacted = run.status == Status.SUCCEEDED and run.trigger != Trigger.BRANCH
    if asked or has_compacted or _was_automatic(run):
        state = CompactionState.objects.filter(pk=run.branch_id).select_related("branch").first()
        # A deleted session has no state any more, and nothing to look at.
        if state is not None:
            check(snapshot_of(run.session, state=state))


def _was_automatic(run: CompactionRun) -> bool:
    return run.trigger == Trigger.PROACTIVE and run.is_finished
