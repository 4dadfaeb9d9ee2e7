"""Two people, or a person and a run, at one summary's versions: one of them, and all of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connections
from django.utils import timezone

from compaction.branches.snapshot import snapshot_of
from compaction.doctor.examine import examine
from compaction.errors import BranchBusyError, CompactionError
from compaction.models import CompactionState, SessionSummary
from compaction.runs import lifecycle
from compaction.runs.resummarize import resummarize
from compaction.runs.sweep import sweep_runs
from compaction.runs.worker import execute_run
from compaction.summaries.activating import activate_version
from compaction.summaries.editing import edit_summary
from compaction.summaries.summarizer import ModelSummarizer
from tests.compaction.support import NEVER, compact, held_worker
from tests.factories import SessionFactory, profile, store, talk

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2, target_summary_tokens=300)
    return SessionFactory(owner=owner, wires=talk(6, marker=1))


@pytest.fixture
def versions(session) -> list[SessionSummary]:
    """Three versions of one summary, the oldest first; the newest counts."""
    compact(session)
    for _ in range(2):
        assert resummarize(counting(session)[0]).status == "succeeded"
    return list(SessionSummary.objects.order_by("created_at"))


def counting(session) -> list[SessionSummary]:
    rows = SessionSummary.objects.filter(session=session, status="active")
    return list(rows.order_by("covers_through"))


def at_once(*works: Callable[[], object]) -> list[object]:
    """Do some things in threads that start together; return what came of each."""
    barrier, results = threading.Barrier(len(works)), [None] * len(works)

    def do(place: int, work: Callable[[], object]) -> None:
        barrier.wait()
        try:
            results[place] = work()
        except CompactionError as refused:
            results[place] = refused
        finally:
            connections.close_all()

    threads = [threading.Thread(target=do, args=pair) for pair in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


def fresh(summary: SessionSummary) -> SessionSummary:
    return SessionSummary.objects.select_related("session", "branch").get(pk=summary.pk)


def test_two_people_activate_at_once(session, versions):
    rows = [fresh(row) for row in versions[:2]]
    results = at_once(*(lambda row=row: activate_version(row) for row in rows))
    done = [one for one in results if not isinstance(one, CompactionError)]
    assert done
    [counts] = counting(session)
    assert counts in versions[:2]
    assert not CompactionState.objects.filter(lease_owner__isnull=False).exists()
    assert examine(session.pk) == []


def test_one_edits_while_another_one_activates(session, versions, owner):
    newest, old = fresh(versions[2]), fresh(versions[0])
    results = at_once(
        lambda: edit_summary(newest, text="Three poles.", author=owner),
        lambda: activate_version(old),
    )
    assert any(not isinstance(one, CompactionError) for one in results)
    assert len(counting(session)) == 1
    assert examine(session.pk) == []


def a_run(session, **changes):
    return lifecycle.request_run(lifecycle.RunRequest(
        session=session, branch=session.branch, trigger="manual", reason="manual",
        profile=snapshot_of(session).profile_row, background=True, **changes,
    ))  # fmt: skip


def test_while_a_run_works_the_person_is_told_and_the_run_ends_well(session, versions):
    store(session, talk(4, marker=20))
    run = a_run(session)
    with held_worker(run), pytest.raises(BranchBusyError, match="try again when it has ended"):
        activate_version(versions[0])
    run.refresh_from_db()
    assert run.status == "succeeded"
    assert counting(session)[0] == versions[2]
    assert examine(session.pk) == []


def expired(session) -> None:
    """The run's worker seems dead: its lease is over."""
    past = timezone.now() - timedelta(seconds=1)
    CompactionState.objects.filter(pk=session.branch.pk).update(lease_expires_at=past)


@pytest.fixture
def meanwhile(monkeypatch):
    """meanwhile(do) has `do` happen while the summariser works."""

    def set_up(do) -> None:
        real = ModelSummarizer.summarize

        def summarize(self, request):
            answer = real(self, request)
            do()
            return answer

        monkeypatch.setattr(ModelSummarizer, "summarize", summarize)

    return set_up


@pytest.mark.parametrize("replaces", [False, True])
def test_a_run_that_seemed_dead_stores_nothing_over_what_was_activated(
    session, versions, meanwhile, replaces
):
    store(session, talk(4, marker=20))
    run = a_run(session, replaces=versions[2] if replaces else None)

    def activate() -> None:
        if counting(session) != [versions[0]]:
            expired(session)
            activate_version(fresh(versions[0]))

    meanwhile(activate)
    ended = execute_run(run.pk)
    assert (ended.status, ended.error_code) == ("failed", "interrupted")
    assert counting(session) == [versions[0]]
    sweep_runs()
    assert {one.code for one in examine(session.pk)} <= {"turn_lease_expired"}
