"""Runs that have not finished: those that nobody works on, and those that wait or work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial

from django.utils import timezone

from chatapp.models import Session
from compaction.conf import compaction_settings
from compaction.doctor.findings import NOTHING, Finding, Severity
from compaction.models import CompactionRun
from compaction.queue import enqueue_run
from compaction.services.repair import end_run
from compaction.services.restarting import restart_run
from compaction.services.sweep import dead_runs

Status = CompactionRun.Status


def check_runs(session: Session) -> Iterator[Finding]:
    """Yield a session's unfinished runs; only one that says it works without a worker is wrong."""
    now = timezone.now()
    runs = CompactionRun.objects.filter(session=session)
    rows = list(runs.filter(status__in=[Status.QUEUED, Status.RUNNING]).order_by("created_at"))
    if not rows:
        return
    dead = {run.pk: run for run in dead_runs(now).filter(session=session)}
    for run in rows:
        if run.pk in dead:
            yield _stuck(run, partial(restart_run, dead[run.pk]))
        elif run.status == Status.RUNNING and (run.worker is None or run.started_at is None):
            yield _stuck(run, partial(end_run, run))
        elif run.status == Status.RUNNING:
            yield _note(run, "run_working", "A run works on the branch now.")
        elif run.created_at < now - timedelta(seconds=compaction_settings.queued_run_seconds):
            yield _waits(run, now)


def _stuck(run: CompactionRun, repair: Callable[[], object]) -> Finding:
    return Finding(
        code="run_stuck",
        text="The run says that it works, and no worker holds its branch: its process died.",
        remedy="It is marked as interrupted and, unless its workers keep dying, started again.",
        session=run.session_id,
        branch=run.branch_id,
        run=run.pk,
        repair=repair,
    )


def _waits(run: CompactionRun, now: datetime) -> Finding:
    minutes = int((now - run.created_at).total_seconds() // 60)
    return _note(
        run,
        "run_waits",
        f"The run has waited for {minutes:,} minutes: the workers are busy, none is there, or the "
        "queue lost it.",
        remedy="It is delivered once more; where it was not lost, that changes nothing.",
        repair=partial(enqueue_run, run.pk),
    )


def _note(
    run: CompactionRun,
    code: str,
    text: str,
    *,
    remedy: str = NOTHING,
    repair: Callable[[], object] | None = None,
) -> Finding:
    return Finding(
        code=code,
        text=text,
        severity=Severity.NOTE,
        remedy=remedy,
        session=run.session_id,
        branch=run.branch_id,
        run=run.pk,
        repair=repair,
    )
