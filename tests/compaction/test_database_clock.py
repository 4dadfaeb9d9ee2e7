"""Times that machines share count by the database's clock, whatever a machine's own says."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from uuid import uuid4

import pytest
from django.db import DatabaseError, connection
from django.utils import timezone

from chatapp import database
from chatapp.database import _Clock, database_now
from compaction.branches.leases import ensure_state
from compaction.branches.snapshot import snapshot_of
from compaction.limits.circuit_breaker import admit, record_failure
from compaction.models import CompactionRun, ModelBreaker
from compaction.profiles import save_profile
from compaction.runs import lifecycle
from compaction.runs.scheduling import _next_check
from tests.factories import SessionFactory, profile, talk

HOURS = timedelta(hours=2)


@pytest.fixture(params=[HOURS, -HOURS], ids=["ahead", "behind"])
def odd_machine(monkeypatch, request):
    """Make this machine's clock wrong when it is called."""
    right = timezone.now

    def go_wrong() -> None:
        monkeypatch.setattr("django.utils.timezone.now", lambda: right() + request.param)
        monkeypatch.setattr(database._clock, "ahead", lambda: -request.param)

    return go_wrong


def test_how_far_off_a_clock_is_is_asked_for_now_and_then(monkeypatch):
    asked = []

    def ask() -> timedelta:
        asked.append(1)
        return HOURS

    monkeypatch.setattr(
        database, "connection", SimpleNamespace(vendor="postgresql", needs_rollback=False)
    )
    monkeypatch.setattr(database, "_ask_clock", ask)
    clock = _Clock()
    monkeypatch.setattr(database, "_clock", clock)
    for _ in range(3):
        assert abs(database_now() - timezone.now() - HOURS) < timedelta(minutes=1)
    assert len(asked) == 1
    monkeypatch.setattr(database, "CLOCK_SECONDS", -1)
    database_now()
    assert len(asked) == 2


@pytest.mark.django_db
def test_a_database_in_a_file_has_our_clock(monkeypatch):
    if connection.vendor != "sqlite":
        assert abs(database._ask_clock()) < timedelta(minutes=1)
        return
    monkeypatch.setattr(database, "_ask_clock", lambda: pytest.fail("It was asked."))
    assert _Clock().ahead() == timedelta(0)


@pytest.mark.django_db
def test_a_machine_with_another_clock_leaves_a_breaker_open(odd_machine, settings):
    settings.COMPACTION = settings.COMPACTION | {"BREAKER_FAILURES": 1, "BREAKER_SECONDS": 60}
    record_failure("m", uuid4(), "No.")
    right = ModelBreaker.objects.get().retry_at
    odd_machine()
    refusal = admit("m", uuid4())
    assert refusal is not None
    assert refusal.until == right
    # What it stores itself is right for the others.
    record_failure("n", uuid4(), "No.")
    assert abs(ModelBreaker.objects.get(pk="n").retry_at - right) < timedelta(minutes=1)


@pytest.mark.django_db
def test_a_machine_with_another_clock_waits_and_delivers_like_the_others(odd_machine):
    session = SessionFactory(wires=talk(6))
    run = CompactionRun.objects.create(
        profile=profile(keep_last_n=2),
        session=session,
        branch=session.branch,
        trigger="proactive",
        reason="message_limit",
        mode="background",
        waits_until=timezone.now() + timedelta(minutes=5),
    )
    odd_machine()
    assert lifecycle.claim(run.pk, uuid4()) is None
    CompactionRun.objects.update(waits_until=database_now() - timedelta(seconds=1))
    assert lifecycle.claim(run.pk, uuid4()) is not None


def test_in_a_failed_transaction_the_last_known_clock_counts(monkeypatch):
    monkeypatch.setattr(
        database, "connection", SimpleNamespace(vendor="postgresql", needs_rollback=True)
    )
    monkeypatch.setattr(database, "_ask_clock", lambda: pytest.fail("It was asked."))
    assert _Clock().ahead() == timedelta(0)


def test_a_database_that_does_not_answer_leaves_the_clock_as_it_was(monkeypatch):
    def fail() -> timedelta:
        raise DatabaseError("gone")

    monkeypatch.setattr(
        database, "connection", SimpleNamespace(vendor="postgresql", needs_rollback=False)
    )
    monkeypatch.setattr(database, "_ask_clock", fail)
    assert _Clock().ahead() == timedelta(0)


@pytest.mark.django_db
def test_a_machine_with_another_clock_looks_again_when_the_others_would(odd_machine, queued):
    waits_for_age = {
        "compression_cooldown_sec": 600,
        "tail_keep_size": 30,
        "compression_window_size": 200,
        "compression_hard_limit": 400,
        "context_size": 0,
    }
    save_profile(name="w", base="sliding_window", parameters=waits_for_age, make_default=True)
    session = SessionFactory(wires=talk(40))
    snapshot = snapshot_of(session, state=ensure_state(session.branch))
    right = _next_check(snapshot, None)
    odd_machine()
    assert _next_check(snapshot_of(session), None) == right
    assert right is not None
