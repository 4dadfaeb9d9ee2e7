"""The life of a run: requested, claimed, finished in one of four ways, cancelled, tried again.

Every change of a run's status is in here. After failures, after a cancel and past a budget,
automatic runs of a branch wait.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, Q, QuerySet

from chatapp.compiled import compiled_read
from chatapp.database import again_if_cut, database_now, update_returning
from chatapp.models import Branch, Session
from compaction.branches.leases import lock_state, with_states
from compaction.conf import compaction_settings
from compaction.engine.policy.reasons import RunCode
from compaction.engine.types import Outcome
from compaction.errors import CompactionError, LostRaceError, SwitchUnderWayError
from compaction.events import event
from compaction.models import CompactionProfile, CompactionRun, CompactionState, SessionSummary
from compaction.runs import queue
from compaction.selectors import ready_q, running_row
from compaction.statistics.totals import ended
from compaction.summaries.columns import Sizes

logger = logging.getLogger(__name__)
Status = CompactionRun.Status
NO_ERROR = {"error_code": "", "error": ""}
INSERT_ATTEMPTS = 3
# What changes while a run is worked on: all but what it belongs to.
_OWN_COLUMNS = [one.attname for one in CompactionRun._meta.concrete_fields if not one.is_relation]
LONGEST_BACKOFF_SECONDS = 3600
# The code of a run that found another one working on its branch.
BUSY = RunCode.BUSY


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What a run is asked to do; `background` leaves it to the queue.

    `trigger` is who asked (CompactionRun.Trigger), `reason` the rule. `keep_last_n` overrides the
    profile's cut, `replaces` is the summary to make again. `restarts` counts workers that died.
    A switch has the branch to go to, its new label (None: as it is), and whether the instructions
    take the place of ours.
    """

    session: Session
    branch: Branch
    trigger: str
    reason: str
    profile: CompactionProfile
    background: bool
    instructions: str = ""
    keep_last_n: int | None = None
    replaces: SessionSummary | None = None
    requested_by: Any = None
    restarts: int = 0
    switch_to: Branch | None = None
    switch_label: str | None = None
    replaces_instructions: bool = False

    @property
    def mode(self) -> str:
        """The mode of the run's row."""
        return "background" if self.background else "inline"


def request_run(request: RunRequest) -> CompactionRun:
    """Return a queued run; a background one reaches the queue when the transaction commits.

    A branch waits for one automatic run at most: where one is queued already, that one is returned.
    """
    run = _insert_or_find(request)
    if run.is_new:
        _tell_of_request(request, run.row)
        if request.background:
            queue.enqueue_run(run.row.pk)
    return run.row


@dataclass(frozen=True, slots=True)
class _Requested:
    row: CompactionRun
    is_new: bool


def _insert_or_find(request: RunRequest) -> _Requested:
    """Insert a run, or find the automatic one that waits for the same branch.

    The waiting one may be claimed between the two: then there is room for ours. An inline request
    takes it over.
    """
    for _ in range(INSERT_ATTEMPTS - 1):
        try:
            return _insert(request)
        except IntegrityError:
            waiting = waiting_run(request.branch)
            if waiting is None or request.trigger != waiting.trigger:
                continue
            if request.background:
                return _Requested(waiting, is_new=False)
            if _reassign(waiting, request):
                return _Requested(waiting, is_new=True)
    return _insert(request)


def _reassign(waiting: CompactionRun, request: RunRequest) -> bool:
    """Have a request that cannot wait do what waits for the queue; whether nobody was quicker.

    The run is then the request's own, with its reason, and waits for nothing any more.
    """
    changed = CompactionRun.objects.filter(pk=waiting.pk, status=Status.QUEUED).update(
        reason=request.reason,
        mode=request.mode,
        profile=request.profile,
        **NO_ERROR,
        waits_until=None,
    )
    waiting.refresh_from_db()
    return bool(changed)


def waiting_run(branch: Branch) -> CompactionRun | None:
    """Return the automatic run that waits for the branch, if there is one."""
    return waiting_runs.first(branch=branch.pk)


@compiled_read
def waiting_runs(*, branch: uuid.UUID) -> QuerySet[CompactionRun]:
    """What waits for a branch by a rule: asked for with each message that makes a run due."""
    return CompactionRun.objects.filter(
        branch=branch, status=Status.QUEUED, trigger=CompactionRun.Trigger.PROACTIVE
    )


def begin_run(request: RunRequest, worker: uuid.UUID) -> CompactionRun:
    """Return a new run that this worker has at once: it is never queued, so nobody can claim it."""
    row = _insert(request, status=Status.RUNNING, worker=worker, started_at=database_now()).row
    _tell_of_request(request, row)
    return row


def _tell_of_request(request: RunRequest, row: CompactionRun) -> None:
    """Log that a run was asked for once its row is there to stay: a release may take it back."""
    transaction.on_commit(
        lambda: event(
            "run_requested",
            session=request.session,
            branch=request.branch,
            run=row,
            reason=request.reason,
            trigger=str(request.trigger),
            mode=row.mode,
        ),
        robust=True,
    )


def _insert(request: RunRequest, **claimed: Any) -> _Requested:
    with transaction.atomic():
        row = CompactionRun.objects.create(
            session=request.session,
            branch=request.branch,
            trigger=request.trigger,
            reason=request.reason,
            mode=request.mode,
            profile=request.profile,
            instructions=request.instructions,
            keep_last_n=request.keep_last_n,
            replaces=request.replaces,
            requested_by=request.requested_by,
            restarts=request.restarts,
            switch_to=request.switch_to,
            switch_label=request.switch_label,
            replaces_instructions=request.replaces_instructions,
            **claimed,
        )
    return _Requested(row, is_new=True)


def claim(run_id: uuid.UUID, worker: uuid.UUID) -> CompactionRun | None:
    """Return the run if this worker has it now, with its branch's state (leases.state_of_run).

    None when it was claimed or cancelled before, or waits for something that has not come yet.
    """
    now = database_now()
    claimed = CompactionRun.objects.filter(ready_q(now), pk=run_id, status=Status.QUEUED).update(
        status=Status.RUNNING,
        worker=worker,
        started_at=now,
        waits_until=None,
        **NO_ERROR,
    )
    if not claimed:
        return None
    # A session may be deleted at this very moment, and its runs with it.
    return _claimed_runs.first(run=run_id)


@compiled_read
def _claimed_runs(*, run: uuid.UUID) -> QuerySet[CompactionRun]:
    """A run with all that its work begins with."""
    rows = CompactionRun.objects.select_related("session", "branch", "profile", "replaces")
    return with_states(rows.filter(pk=run))


def finish(run: CompactionRun, status: str, *, code: str = "", sentence: str = "") -> bool:
    """End a running run without a summary and return whether that was done.

    One that ended meanwhile, or that another worker took over, stays as it is.
    """
    running = running_row(run)
    columns = {"status": status, "error_code": code[:40], "error": sentence}
    found = again_if_cut(lambda: update_returning(running, **columns, finished_at=database_now()))
    if not found:
        reload(run)
        return False
    _take_over(run, found[0])
    ended(run)
    if status == Status.FAILED:
        logger.warning("Run %s of session %s failed: %s", run.pk, run.session_id, code)
    return True


def _take_over(run: CompactionRun, stored: CompactionRun) -> None:
    """Have a run say what its row says; session, branch and profile stay as they were read."""
    for name in _OWN_COLUMNS:
        setattr(run, name, getattr(stored, name))


def reload(run: CompactionRun) -> None:
    """Read the run again; one that was deleted with its session counts as cancelled.

    Session, branch and profile stay as the run's worker has read them.
    """
    try:
        run.refresh_from_db(fields=_OWN_COLUMNS)
    except CompactionRun.DoesNotExist:
        run.status = Status.CANCELLED
        run.error_code, run.error = RunCode.DELETED, "The session was deleted while the run worked."


def put_back(
    run: CompactionRun, *, until: datetime | None = None, code: str = "", sentence: str = ""
) -> None:
    """Let a claimed run wait again.

    Whoever holds its branch delivers it afterwards, or the sweep does when `until` has passed; code
    and sentence tell operators what it waits for.
    """
    changes: dict[str, Any] = {"status": Status.QUEUED, "worker": None, "started_at": None}
    changes |= {"waits_until": until, "error_code": code, "error": sentence}
    rows = running_row(run)
    try:
        with transaction.atomic():
            waits = rows.update(**changes)
    except IntegrityError:
        # Another automatic run was queued for the branch meanwhile: it does the same work.
        finish(run, Status.SKIPPED, code=code or BUSY, sentence=sentence)
        return
    reload(run)
    if waits:
        event(
            "run_waits",
            session=run.session_id,
            branch=run.branch_id,
            run=run,
            reason=run.reason,
            code=code or BUSY,
        )


def interrupt_run_of(worker: uuid.UUID) -> bool:
    """Mark a dead worker's running run as failed; return whether there was one."""
    return interrupt_runs(CompactionRun.objects.filter(worker=worker))


def interrupt_runs(runs: QuerySet[CompactionRun]) -> bool:
    """Mark those of the runs that say they work as failed; return whether there was one."""
    found = False
    for run in runs.filter(status=Status.RUNNING):
        if running_row(run).update(
            status=Status.FAILED,
            error_code=RunCode.INTERRUPTED,
            error="The worker stopped in the middle of the run; nothing of it was stored. "
            "A later run takes the same messages.",
            finished_at=database_now(),
        ):
            found = True
            # A session may be deleted at this very moment: then there is nothing to tell.
            for stored in CompactionRun.objects.filter(pk=run.pk):
                ended(stored)
    return found


def cancel_run(run: CompactionRun) -> CompactionRun:
    """Cancel a run that has not finished; a working one stops before its next model call.

    Automatic runs of the branch then wait for a while.

    Raises CompactionError when it has finished.
    """
    unfinished = CompactionRun.objects.filter(pk=run.pk, status__in=[Status.QUEUED, Status.RUNNING])
    with transaction.atomic():
        lock_state(run.branch_id)
        cancelled = unfinished.update(
            status=Status.CANCELLED,
            error_code=RunCode.CANCELLED,
            error="Somebody cancelled the run; nothing of it was stored.",
            finished_at=database_now(),
            waits_until=None,
        )
        reload(run)
        if not cancelled:
            status = run.get_status_display().lower()
            raise CompactionError(f"The run has ended already ({status}).")
        if run.trigger == CompactionRun.Trigger.PROACTIVE:
            # The next message would start it again at once.
            apply_backoff(
                run, database_now() + timedelta(seconds=compaction_settings.backoff_seconds)
            )
        ended(run)
    return run


def switch_under_way(session: Session | uuid.UUID) -> CompactionRun | None:
    """Return the run that is to switch the session, or does so now."""
    return CompactionRun.objects.filter(
        session=session,
        trigger=CompactionRun.Trigger.BRANCH,
        status__in=[Status.QUEUED, Status.RUNNING],
    ).first()


def refuse_second_switch(session: Session) -> None:
    """Raise SwitchUnderWayError where another switch with a summary is under way."""
    if (run := switch_under_way(session)) is not None:
        raise SwitchUnderWayError(
            f"Another switch of this session is under way (run {run.pk}, {run.status}). Wait for "
            "its end or cancel it, then switch again."
        )


def retry_run(run: CompactionRun, *, requested_by: Any = None, restarts: int = 0) -> CompactionRun:
    """Return a new queued run for what a failed, skipped or cancelled one should have done.

    It uses the profile as it is now: whoever mended it wants the mended one.
    """
    if not run.is_finished or run.status == Status.SUCCEEDED:
        raise CompactionError("Only a run that failed, was skipped or cancelled can be run again.")
    if run.trigger == CompactionRun.Trigger.BRANCH:
        refuse_second_switch(run.session)
    return request_run(
        RunRequest(
            session=run.session,
            branch=run.branch,
            trigger=run.trigger,
            reason=run.reason,
            profile=_as_it_is_now(run.profile),
            background=True,
            instructions=run.instructions,
            keep_last_n=run.keep_last_n,
            replaces=run.replaces,
            requested_by=requested_by,
            restarts=restarts,
            switch_to=run.switch_to,
            switch_label=run.switch_label,
            replaces_instructions=run.replaces_instructions,
        )
    )


def _as_it_is_now(profile: CompactionProfile) -> CompactionProfile:
    """Return the current version of a profile; the old one where its name is gone."""
    current = CompactionProfile.objects.filter(name=profile.name, is_current=True)
    return current.first() or profile


def succeed(
    run: CompactionRun, outcome: Outcome, sizes: Sizes, *, saved: int | None = None
) -> None:
    """Mark the run as succeeded; raise LostRaceError where it is no longer this worker's.

    `saved` tells the next request's gain where the sizes do not (statistics.totals.ended).
    """
    finished = update_returning(
        running_row(run),
        status=Status.SUCCEEDED,
        finished_at=database_now(),
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
    _take_over(run, finished[0])
    ended(run, saved=saved)


def note_failure(run: CompactionRun) -> None:
    """Make automatic runs of the branch wait, twice as long after every failed automatic run.

    What somebody tried by hand, perhaps with another profile, says nothing about the next trigger.
    """
    if run.trigger not in CompactionRun.AUTOMATIC:
        return
    states = CompactionState.objects.filter(pk=run.branch_id)
    states.update(failures=F("failures") + 1)
    failures = states.values_list("failures", flat=True).first() or 1
    seconds = min(
        LONGEST_BACKOFF_SECONDS, compaction_settings.backoff_seconds * 2 ** min(failures - 1, 12)
    )
    apply_backoff(run, database_now() + timedelta(seconds=seconds), failures=failures)


def apply_backoff(run: CompactionRun, until: datetime, *, failures: int | None = None) -> None:
    """Make automatic runs of the branch wait; the sweep looks again then, if nobody else does.

    A longer pause is not made shorter.
    """
    shorter = Q(backoff_until__isnull=True) | Q(backoff_until__lt=until)
    if CompactionState.objects.filter(shorter, pk=run.branch_id).update(
        backoff_until=until, next_check_at=until
    ):
        event(
            "held_off",
            session=run.session_id,
            branch=run.branch_id,
            run=run,
            reason=run.reason,
            code=run.error_code,
            seconds=(until - database_now()).total_seconds(),
            failures=failures,
        )
