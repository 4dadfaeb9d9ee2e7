"""Leases that outlived their holder, runs that nobody works on, sessions without a branch."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial

from django.utils import timezone

from chatapp.models import Branch, Session
from chatapp.transcript import activate
from compaction.conf import compaction_settings
from compaction.doctor.findings import Finding, Severity
from compaction.models import CompactionRun, CompactionState
from compaction.queue import enqueue_run
from compaction.services.sweep import dead_runs, free_expired, restart_run


def check_session(session: Session) -> Iterator[Finding]:
    """Yield what is wrong with a session's own row, its leases and its unfinished runs."""
    now = timezone.now()
    if session.active_branch_id is None:
        yield Finding(
            code="no_active_branch",
            text="The session has no active branch, so no turn can go on. Its root is activated.",
            session=session.pk,
            repair=partial(_activate_root, session),
        )
    if session.turn_expires_at is not None and session.turn_expires_at < now:
        yield Finding(
            code="turn_lease_expired",
            text="A turn ended without giving its lease back. The next one takes it; it is freed.",
            severity=Severity.NOTE,
            session=session.pk,
            repair=partial(_free_turn, session),
        )
    states = CompactionState.objects.filter(
        branch__session=session, lease_owner__isnull=False, lease_expires_at__lt=now
    )
    for state in states:
        yield Finding(
            code="lease_expired",
            text="The worker that holds the branch is gone. The lease is freed.",
            session=session.pk,
            branch=state.pk,
            repair=partial(_free, state),
        )
    yield from _runs(session)


def _runs(session: Session) -> Iterator[Finding]:
    now = timezone.now()
    for run in dead_runs(now).filter(session=session):
        yield Finding(
            code="run_stuck",
            text="The run says that it works, and no worker holds its branch. It is marked as "
            "interrupted and started again.",
            session=session.pk,
            branch=run.branch_id,
            row=run.pk,
            repair=partial(_restart, run),
        )
    long_ago = now - timedelta(seconds=compaction_settings.queued_run_seconds)
    waiting = CompactionRun.objects.filter(
        session=session, status=CompactionRun.Status.QUEUED, created_at__lt=long_ago
    )
    for run in waiting:
        yield Finding(
            code="run_waits",
            text="The run has waited for a worker for long. It is put into the queue again; if it "
            "stays there, no cluster is running.",
            session=session.pk,
            branch=run.branch_id,
            row=run.pk,
            repair=partial(enqueue_run, run.pk),
        )


def _restart(run: CompactionRun) -> None:
    restart_run(run)


def _free(state: CompactionState) -> None:
    free_expired(CompactionState.objects.filter(pk=state.pk))


def _free_turn(session: Session) -> None:
    Session.objects.filter(
        pk=session.pk, turn_owner=session.turn_owner, turn_expires_at__lt=timezone.now()
    ).update(turn_owner=None, turn_expires_at=None)


def _activate_root(session: Session) -> None:
    root = Branch.objects.filter(session=session, parent=None).order_by("created_at").first()
    if root is not None:
        session.active_branch = root
        activate(session, root)
