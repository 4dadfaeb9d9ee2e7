"""What a compaction may ask of the database: counts that CI holds, as those of turns.

They are today's; whoever makes one smaller writes the smaller number here. The goal is 25
statements for a compaction whose model is called once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection

from compaction.models import CompactionRun, CompactionState
from compaction.runs import heartbeat, steps
from compaction.runs.heartbeat import beat
from compaction.runs.scheduling import assign_profile, check_branch
from compaction.runs.worker import compact_branch, execute_run
from compaction.statistics import totals
from tests.bench.conversations import fresh, grow, stored
from tests.bench.instant import models
from tests.bench.statements import Asked, counted

pytestmark = pytest.mark.django_db(transaction=True)
SHORT, LONG = 100, 300
# (statements, commits) at most.
FIRST_COMPACTION, NEXT_BATCH = (25, 4), (26, 3)
# PostgreSQL locks branches, and the state, by statements of their own.
LOCKS_ON_POSTGRESQL = 3


@pytest.fixture(autouse=True)
def instant_model(settings, queued, monkeypatch):
    """Answer at once, let runs wait, and count totals in one row, which is there already."""
    settings.CHATAPP = settings.CHATAPP | {"MODELS": models()}
    monkeypatch.setattr(totals, "SLOTS", 1)
    # A machine that is busy may take longer between a look at a run and the call it was for.
    monkeypatch.setattr(steps, "LOOK_SECONDS", 600)


@contextmanager
def counted_alone() -> Iterator[Asked]:
    """Count what a run asks for, without the sign of life that its process gives now and then.

    That is an UPDATE before the run and one behind it, and an INSERT where tests took the row away.
    """
    beat()
    with counted() as asked:
        yield asked


def asked_by_first_compaction(count: int) -> Asked:
    session = fresh(stored(count))
    assert not CompactionState.objects.filter(pk=session.branch.pk).exists()
    with counted_alone() as asked:
        run = compact_branch(
            session=session, trigger="manual", reason="manual", keep_last_n=0, seconds=600
        )
    assert (run.status, run.model_calls) == (CompactionRun.Status.SUCCEEDED, 1), run.error
    return asked


def asked_by_third_batch(count: int) -> Asked:
    session = grow(stored(SHORT), count)
    assign_profile(session, "sliding_window")
    session = fresh(session)
    check_branch(session, session.branch)
    runs = CompactionRun.objects.filter(session=session)
    for _ in range(2):
        execute_run(runs.get(status="queued").pk)
    third = runs.get(status="queued").pk
    with counted_alone() as asked:
        run = execute_run(third)
    assert run.status == CompactionRun.Status.SUCCEEDED, run.error
    return asked


def test_a_process_that_was_silent_for_long_asks_for_the_same(monkeypatch):
    asked_by_first_compaction(SHORT)
    before = asked_by_first_compaction(SHORT).statements
    monkeypatch.setattr(heartbeat, "_last_beat", {})
    assert asked_by_first_compaction(SHORT).statements == before


def test_a_first_compaction_asks_for_no_more_than_today_and_for_the_same_at_any_size():
    asked_by_first_compaction(SHORT)
    short, long = map(asked_by_first_compaction, (SHORT, LONG))
    assert long.statements <= FIRST_COMPACTION[0] + locks(), "\n".join(long.sql)
    assert long.transactions <= FIRST_COMPACTION[1]
    assert long.statements == short.statements


def test_a_batch_asks_for_no_more_than_today_and_for_the_same_at_any_age():
    short, long = map(asked_by_third_batch, (LONG, 2 * LONG))
    assert long.statements <= NEXT_BATCH[0] + locks(), "\n".join(long.sql)
    assert long.transactions <= NEXT_BATCH[1]
    assert (long.statements, long.rows) == (short.statements, short.rows)


def locks() -> int:
    return LOCKS_ON_POSTGRESQL if connection.vendor == "postgresql" else 0
