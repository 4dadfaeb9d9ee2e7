"""What is told of a run that has ended: totals and one line."""

from __future__ import annotations

import logging
import threading
from dataclasses import astuple
from datetime import timedelta

import pytest
from django.db import DatabaseError, connection, transaction
from django.db.models import QuerySet
from django.utils import timezone

from chatapp.admin.toolkit import html
from compaction.branches.snapshot import snapshot_of
from compaction.models import CompactionRun, RunTotals, SessionSummary
from compaction.runs.resummarize import resummarize
from compaction.runs.scheduling import check_branch
from compaction.runs.worker import execute_run
from compaction.statistics.totals import SLOTS, ended, run_totals
from tests.compaction.support import compact, say
from tests.factories import SessionFactory, profile, talk

pytestmark = pytest.mark.django_db
START = timezone.now().replace(microsecond=0) - timedelta(hours=1)


@pytest.fixture
def session(owner):
    profile()
    return SessionFactory(owner=owner, wires=talk(2))


@pytest.fixture
def run(session):
    """Store a run that has ended; the keyword arguments are columns."""

    def store(status: str = "succeeded", **columns) -> CompactionRun:
        columns = {
            "trigger": "manual", "reason": "manual", "mode": "inline",
            "started_at": START, "finished_at": START + timedelta(seconds=2.5),
        } | columns  # fmt: skip
        return CompactionRun.objects.create(
            session=session, branch=session.branch, status=status,
            profile=snapshot_of(session).profile_row, **columns,
        )  # fmt: skip

    return store


@pytest.fixture
def count(django_capture_on_commit_callbacks):
    """End runs in a transaction that commits."""

    def end(*runs: CompactionRun) -> None:
        with django_capture_on_commit_callbacks(execute=True):
            for one in runs:
                ended(one)

    return end


def totals() -> list[tuple]:
    """Return what is read: a kind's counts lie in rows that chance chooses."""
    return [astuple(one) for one in run_totals()]


def test_the_first_run_of_a_kind_makes_a_row(run, count):
    count(run(tokens_before=6_000, tokens_after=1_500))
    assert totals() == [("succeeded", "manual", "inline", 1, 2.5, 4_500)]


def test_later_ones_add_to_it(run, count):
    count(run(tokens_before=6_000, tokens_after=1_500), run(tokens_before=700, tokens_after=200))
    count(run())
    assert totals() == [("succeeded", "manual", "inline", 3, 7.5, 5_000)]


def test_outcome_reason_and_mode_are_counted_apart(run, count):
    count(
        run("failed"), run("skipped"), run("cancelled"),
        run(reason="message_limit"), run(mode="background"),
    )  # fmt: skip
    assert [row[:4] for row in totals()] == [
        ("cancelled", "manual", "inline", 1),
        ("failed", "manual", "inline", 1),
        ("skipped", "manual", "inline", 1),
        ("succeeded", "manual", "background", 1),
        ("succeeded", "message_limit", "inline", 1),
    ]


@pytest.mark.parametrize(
    ("started", "finished", "seconds"),
    [(None, START, 0.0), (None, None, 0.0), (START, START - timedelta(seconds=1), 0.0)],
    ids=["never started", "neither", "clocks that differ"],
)
def test_seconds_are_those_it_worked(run, count, started, finished, seconds):
    count(run("cancelled", started_at=started, finished_at=finished))
    assert totals()[0][4] == seconds


@pytest.mark.parametrize("status", ["failed", "skipped", "cancelled"])
def test_only_what_succeeded_saves_tokens(run, count, status):
    count(run(status, tokens_before=6_000, tokens_after=1_500))
    assert totals()[0][5] == 0


@pytest.mark.parametrize(("before", "after"), [(1_000, 1_200), (None, 500), (500, None)])
def test_what_saved_nothing_counts_for_nothing(run, count, before, after):
    count(run(tokens_before=before, tokens_after=after))
    assert totals()[0][5] == 0


def test_nothing_is_counted_before_the_transaction_commits(run):
    ended(run())
    assert totals() == []


@pytest.mark.django_db(transaction=True)
def test_what_is_rolled_back_is_not_counted(run):
    one = run()
    with transaction.atomic():
        ended(one)
        transaction.set_rollback(True)
    assert totals() == []


@pytest.mark.parametrize("status", ["queued", "running"])
def test_a_run_that_has_not_ended_is_refused(run, status):
    with pytest.raises(ValueError, match="only what has ended is counted"):
        ended(run(status))


def test_the_row_may_be_used_on_after_the_call(run, django_capture_on_commit_callbacks):
    one = run("failed", reason="message_limit")
    with django_capture_on_commit_callbacks(execute=True):
        ended(one)
        one.status, one.reason = "queued", "other"
    assert [row[:2] for row in totals()] == [("failed", "message_limit")]


def test_of_two_first_runs_at_once_both_count(run, count, monkeypatch):
    """Another process writes the row between our UPDATE, which finds none, and our INSERT."""
    update, calls = QuerySet.update, []

    def overtaken(self, **columns) -> int:
        if self.model is not RunTotals or calls:
            return update(self, **columns)
        calls.append(columns)
        RunTotals.objects.create(status="succeeded", reason="manual", mode="inline", runs=1)
        return 0

    monkeypatch.setattr(QuerySet, "update", overtaken)
    monkeypatch.setattr("compaction.statistics.totals.SLOTS", 1)
    count(run())
    assert len(calls) == 1
    assert [row[:4] for row in totals()] == [("succeeded", "manual", "inline", 2)]


@pytest.mark.django_db(transaction=True)
def test_runs_that_end_at_the_same_time_are_all_counted(run):
    runs = [run(tokens_before=100, tokens_after=40) for _ in range(8)]
    together = threading.Barrier(len(runs))

    def work(one: CompactionRun) -> None:
        try:
            together.wait(timeout=30)
            ended(one)
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(one,)) for one in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert totals() == [("succeeded", "manual", "inline", 8, 20.0, 480)]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("slots", [1, SLOTS])
def test_no_count_is_lost_among_workers_that_end_many_runs(run, monkeypatch, slots):
    monkeypatch.setattr("compaction.statistics.totals.SLOTS", slots)
    one = run(tokens_before=100, tokens_after=40)
    together = threading.Barrier(8)

    def work() -> None:
        try:
            together.wait(timeout=30)
            for _ in range(25):
                ended(one)
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert totals() == [("succeeded", "manual", "inline", 200, 500.0, 12_000)]
    assert 1 <= RunTotals.objects.count() <= slots


def test_workers_add_to_different_rows_of_a_kind(run, count):
    count(*[run() for _ in range(60)])
    assert RunTotals.objects.count() > 1
    assert totals() == [("succeeded", "manual", "inline", 60, 150.0, 0)]


def test_the_list_shows_the_sum_of_a_kind_once(admin_client):
    for slot, runs in enumerate((1_000, 200, 34)):
        RunTotals.objects.create(
            status="failed", reason="window", mode="inline", slot=slot, runs=runs, seconds=runs
        )
    RunTotals.objects.create(status="failed", reason="manual", mode="inline", slot=3, runs=7)
    page = admin_client.get(html.list_url(RunTotals))
    assert page.context["cl"].result_count == 2
    assert [row.all_runs for row in page.context["cl"].result_list] == [1_234, 7]
    assert "1,234" in page.text
    shown = page.context["cl"].result_list[0]
    assert "1,234" in admin_client.get(html.change_url(RunTotals, shown.pk)).text


def test_totals_that_cannot_be_written_fail_nobody(run, count, monkeypatch, caplog):
    def refuse(**kind) -> None:
        raise DatabaseError("disk full")

    monkeypatch.setattr(RunTotals.objects, "filter", refuse)
    with caplog.at_level(logging.INFO):
        count(run())
    assert "disk full" in caplog.text
    assert "run_ended" in caplog.text


def test_one_line_tells_the_outcome(run, count, caplog):
    one = run(
        "failed", error_code="summary_empty", error="The model said: my password is hunter2",
        model_calls=3, input_tokens=900, output_tokens=10, tokens_before=6_000,
    )  # fmt: skip
    with caplog.at_level(logging.INFO, logger="compaction.events"):
        count(one)
    (record,) = [one for one in caplog.records if one.name == "compaction.events"]
    assert record.getMessage() == (
        f"run_ended session={one.session_id} branch={one.branch_id} run={one.pk} reason=manual "
        "status=failed mode=inline trigger=manual seconds=2.5 model_calls=3 tokens_before=6000 "
        "input_tokens=900 output_tokens=10 code=summary_empty"
    )


def test_a_run_that_succeeded_has_no_error_code(run, count, caplog):
    with caplog.at_level(logging.INFO, logger="compaction.events"):
        count(run())
    assert "code=" not in caplog.text


def saved() -> int:
    return sum(RunTotals.objects.values_list("tokens_saved", flat=True))


@pytest.fixture
def commits(django_capture_on_commit_callbacks):
    """commits(work) does the work and what follows when it is committed."""

    def do(work):
        with django_capture_on_commit_callbacks(execute=True):
            return work()

    return do


def test_a_new_version_saves_only_what_it_is_shorter_by(owner, model_server, queued, commits):
    profile(message_limit=10, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(6, marker=1))
    commits(lambda: compact(session))
    first = saved()
    assert first > 0
    old = SessionSummary.objects.get()
    commits(lambda: resummarize(old))
    new = SessionSummary.objects.get(status="active")
    assert saved() - first == max(0, old.summary_tokens - new.summary_tokens)


def test_a_draft_saves_nothing_before_it_is_published(
    owner, model_server, use_models, queued, commits
):
    use_models(model_server.models(CONTEXT_WINDOW=2400, MAX_OUTPUT=200))
    rules = {"prepare_ratio": 0.7, "publish_when_needed": True, "message_limit": 41}
    profile(max_context_tokens=0, keep_last_n=4, **rules)
    session = SessionFactory(owner=owner, wires=talk(20, marker=1))
    commits(lambda: execute_run(check_branch(session).pk))
    draft = SessionSummary.objects.get(status="draft")
    assert saved() == 0
    commits(lambda: say(session))
    assert saved() == draft.run.tokens_before - draft.run.tokens_after > 0
    assert [one.runs for one in run_totals()] == [1]
