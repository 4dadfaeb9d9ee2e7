"""The life of a run: requested, claimed, finished in one of four ways, cancelled, tried again."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone

from chatapp.models import Branch, Session
from compaction import queue
from compaction.conf import compaction_settings
from compaction.models import (
    CompactionProfile,
    CompactionRun,
    CompactionState,
    SessionSummary,
)
from compaction.services.errors import CompactionError

logger = logging.getLogger(__name__)
Status = CompactionRun.Status
LONGEST_BACKOFF_SECONDS = 3600
INSERT_ATTEMPTS = 3
# Reasons of runs after a refusal: what was said so far; then tool results that were not seen, too.
OVERFLOW, OVERFLOW_AGAIN = "overflow_retry", "overflow_again"


def request_run(
    *,
    session: Session,
    branch: Branch,
    trigger: str,
    reason: str,
    profile: CompactionProfile,
    background: bool,
    instructions: str = "",
    keep_last_n: int | None = None,
    replaces: SessionSummary | None = None,
    requested_by: Any = None,
    restarts: int = 0,
) -> CompactionRun:
    """Return a queued run; a background one reaches the queue when the transaction commits.

    A branch waits for one automatic run at most: where one is queued already, that one is returned.
    """
    run = _insert_or_find(
        session=session,
        branch=branch,
        trigger=trigger,
        reason=reason,
        mode="background" if background else "inline",
        profile=profile,
        instructions=instructions,
        keep_last_n=keep_last_n,
        replaces=replaces,
        requested_by=requested_by,
        restarts=restarts,
    )
    if background and run.is_new:
        queue.enqueue_run(run.row.pk)
    return run.row


@dataclass(frozen=True, slots=True)
class _Requested:
    row: CompactionRun
    is_new: bool


def _insert_or_find(**columns: Any) -> _Requested:
    """Insert a run, or find the automatic one that waits for the same branch.

    The waiting one may be claimed between the two: then there is room for ours.
    """
    for _ in range(INSERT_ATTEMPTS - 1):
        try:
            return _insert(columns)
        except IntegrityError:
            waiting = waiting_run(columns["branch"])
            if waiting is not None and columns["trigger"] == waiting.trigger:
                return _Requested(waiting, is_new=False)
    return _insert(columns)


def waiting_run(branch: Branch) -> CompactionRun | None:
    """Return the automatic run that waits for the branch, if there is one."""
    return CompactionRun.objects.filter(
        branch=branch, status=Status.QUEUED, trigger=CompactionRun.Trigger.PROACTIVE
    ).first()


def _insert(columns: dict[str, Any]) -> _Requested:
    with transaction.atomic():
        return _Requested(CompactionRun.objects.create(**columns), is_new=True)


def claim(run_id: uuid.UUID, worker: uuid.UUID) -> CompactionRun | None:
    """Return the run if this worker has it now; None when it was claimed or cancelled before."""
    claimed = CompactionRun.objects.filter(pk=run_id, status=Status.QUEUED).update(
        status=Status.RUNNING, worker=worker, started_at=timezone.now()
    )
    if not claimed:
        return None
    return CompactionRun.objects.select_related("session", "branch", "profile", "replaces").get(
        pk=run_id
    )


def finish(run: CompactionRun, status: str, *, code: str = "", sentence: str = "") -> None:
    """End a running run without a summary; one that ended meanwhile stays as it is."""
    ended = CompactionRun.objects.filter(
        pk=run.pk, status=Status.RUNNING, worker=run.worker
    ).update(status=status, error_code=code[:40], error=sentence, finished_at=timezone.now())
    reload(run)
    if ended and status == Status.FAILED:
        logger.warning("Run %s of session %s failed: %s", run.pk, run.session_id, code)


def reload(run: CompactionRun) -> None:
    """Read the run again; one that was deleted with its session counts as cancelled."""
    try:
        run.refresh_from_db()
    except CompactionRun.DoesNotExist:
        run.status = Status.CANCELLED
        run.error_code, run.error = "deleted", "The session was deleted while the run worked."


def put_back(run: CompactionRun) -> None:
    """Let a claimed run wait again; whoever holds its branch delivers it afterwards."""
    CompactionRun.objects.filter(pk=run.pk, status=Status.RUNNING, worker=run.worker).update(
        status=Status.QUEUED, worker=None, started_at=None
    )
    reload(run)


def note_failure(run: CompactionRun) -> None:
    """Make automatic runs of the branch wait, twice as long after every failed automatic run.

    What somebody tried by hand, perhaps with another profile, says nothing about the next trigger.
    """
    if run.trigger not in (CompactionRun.Trigger.PROACTIVE, CompactionRun.Trigger.OVERFLOW_RETRY):
        return
    states = CompactionState.objects.filter(pk=run.branch_id)
    states.update(failures=F("failures") + 1)
    failures = states.values_list("failures", flat=True).first() or 1
    seconds = min(
        LONGEST_BACKOFF_SECONDS, compaction_settings.backoff_seconds * 2 ** min(failures - 1, 12)
    )
    states.update(backoff_until=timezone.now() + timedelta(seconds=seconds))


def cancel_run(run: CompactionRun) -> CompactionRun:
    """Cancel a run that has not finished; a working one stops before its next model call.

    Raises CompactionError when it has finished.
    """
    cancelled = CompactionRun.objects.filter(
        pk=run.pk, status__in=[Status.QUEUED, Status.RUNNING]
    ).update(
        status=Status.CANCELLED,
        error_code="cancelled",
        error="Somebody cancelled the run; nothing of it was stored.",
        finished_at=timezone.now(),
    )
    reload(run)
    if not cancelled:
        raise CompactionError(f"The run has ended already ({run.get_status_display().lower()}).")
    return run


def retry_run(run: CompactionRun, *, requested_by: Any = None, restarts: int = 0) -> CompactionRun:
    """Return a new queued run for what a failed, skipped or cancelled one should have done.

    It uses the profile as it is now: whoever mended it wants the mended one.
    """
    if not run.is_finished or run.status == Status.SUCCEEDED:
        raise CompactionError("Only a run that failed, was skipped or cancelled can be run again.")
    return request_run(
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
    )


def _as_it_is_now(profile: CompactionProfile) -> CompactionProfile:
    """Return the current version of a profile; the old one where its name is gone."""
    current = CompactionProfile.objects.filter(name=profile.name, is_current=True)
    return current.first() or profile
