"""What is not forgotten, and what is left alone, when a worker dies or a profile changes."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.db import OperationalError
from django.utils import timezone

from compaction.branches.leases import Lease, ensure_state
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.profiles import save_profile
from compaction.runs import lifecycle, sweep
from compaction.runs.sweep import sweep_runs
from compaction.runs.worker import execute_run
from compaction.summaries.restore import restore_summary
from tests.compaction.support import compact
from tests.factories import SessionFactory, profile, talk

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(owner, model_server, queued):
    profile(message_limit=10, keep_last_n=2)
    return SessionFactory(owner=owner, wires=talk(6, marker=1))


def test_a_restored_session_rests_although_somebody_saves_another_profile(session):
    compact(session)
    restore_summary(SessionSummary.objects.get())
    sweep_runs()
    assert not CompactionRun.objects.filter(status="queued").exists()
    save_profile(name="unrelated", parameters={"keep_last_n": 3})
    sweep_runs()
    assert not CompactionRun.objects.filter(status="queued").exists()


def test_a_branch_is_looked_at_though_the_sweeping_worker_was_killed(session, monkeypatch):
    ensure_state(session.branch)
    CompactionState.objects.update(next_check_at=timezone.now() - timedelta(seconds=1))

    def killed(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sweep, "check_branch", killed)
        with pytest.raises(KeyboardInterrupt):
            sweep_runs()
    CompactionState.objects.filter(next_check_at__isnull=False).update(next_check_at=timezone.now())
    sweep_runs()
    assert CompactionRun.objects.filter(status="queued").exists()


@pytest.mark.django_db(transaction=True)
def test_a_dead_workers_run_by_hand_goes_on_though_its_successor_failed_once(session, monkeypatch):
    row = profile(message_limit=10, keep_last_n=2)
    ask = {"session": session, "branch": session.branch, "profile": row, "background": True}
    dead = lifecycle.request_run(lifecycle.RunRequest(**ask, trigger="manual", reason="manual"))
    worker = uuid.uuid4()
    ensure_state(session.branch)
    lifecycle.claim(dead.pk, worker)
    Lease.acquire_or_steal(session.branch.pk, worker)
    past = timezone.now() - timedelta(hours=1)
    CompactionState.objects.update(lease_expires_at=past)
    CompactionRun.objects.update(started_at=past)
    other = lifecycle.request_run(
        lifecycle.RunRequest(**ask, trigger="proactive", reason="message_limit")
    )
    with monkeypatch.context() as patch:

        def cut(*args, **kwargs):
            raise OperationalError("cut")

        patch.setattr(lifecycle, "retry_run", cut)
        with pytest.raises(OperationalError):
            execute_run(other.pk)
    CompactionState.objects.filter(lease_owner__isnull=False).update(lease_expires_at=past)
    CompactionRun.objects.filter(status="running").update(started_at=past)
    sweep_runs()
    sweep_runs()
    assert CompactionRun.objects.filter(trigger="manual", status="queued").exists()
