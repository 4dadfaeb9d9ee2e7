"""resummarize and sweep: what is chosen, what is written, what happens when somebody stops them."""

from __future__ import annotations

import io
import json
import os
import signal
from datetime import timedelta
from types import SimpleNamespace
from uuid import UUID, uuid4

import pytest
from django.apps import apps
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import OperationalError
from django.utils import timezone

from chatapp.models import Session
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.runs import redo
from compaction.runs import resummarize as resummarizing
from compaction.runs.redo import Redo, ids_of, sessions_with_summaries
from compaction.runs.worker import compact_branch
from tests.factories import SessionFactory, profile, store, talk

pytestmark = pytest.mark.django_db

Status = SessionSummary.Status


@pytest.fixture(autouse=True)
def _profile(db, queued) -> None:
    """A profile that summarises the few messages of these tests; nobody takes queued work."""
    profile(message_limit=6, keep_last_n=2)


def compacted(**fields) -> Session:
    """Store a session and compact it with the embedded model."""
    session = SessionFactory(model="embedded", wires=talk(6, marker=1), **fields)
    compact(session)
    return session


def compact(session: Session) -> None:
    run = compact_branch(session=session, trigger="manual", reason="manual")
    assert (run.status, run.error) == ("succeeded", "")


def resummarize(*arguments: str) -> SimpleNamespace:
    """Run the command; return what it wrote and the error it ended with, if it did."""
    out, err, error = io.StringIO(), io.StringIO(), None
    try:
        call_command("resummarize", *arguments, stdout=out, stderr=err)
    except CommandError as failure:
        error = failure
    return SimpleNamespace(out=out.getvalue(), err=err.getvalue(), error=error)


def lines(done: SimpleNamespace) -> dict[str, dict]:
    """Return the JSON lines by session."""
    return {line["session"]: line for line in map(json.loads, done.out.splitlines())}


def statuses() -> list[str]:
    return sorted(SessionSummary.objects.values_list("status", flat=True))


def rows() -> dict[str, int]:
    """Count the rows of every table."""
    return {model._meta.label: model.objects.count() for model in apps.get_models()}


# --- what it does -------------------------------------------------------------


def test_it_makes_a_new_version_of_every_summary_and_keeps_the_old_one():
    compacted()
    compacted()

    done = resummarize("--all")

    assert statuses() == ["active", "active", "superseded", "superseded"]
    assert done.error is None
    assert "2 sessions: 2 summarised again, 0 with nothing to do, 0 failed" in done.out


def test_a_second_time_finds_everything_up_to_date():
    compacted()
    resummarize("--all")

    done = resummarize("--all")

    assert "1 session: 0 summarised again, 1 with nothing to do, 0 failed" in done.out
    assert SessionSummary.objects.count() == 2


def test_force_does_it_again():
    compacted()
    resummarize("--all")

    resummarize("--all", "--force")

    assert SessionSummary.objects.count() == 3


def test_a_named_profile_is_used_and_its_next_version_is_news():
    compacted()
    profile("short", message_limit=6, keep_last_n=2, target_summary_tokens=100)
    resummarize("--all", "--profile=short")
    assert SessionSummary.objects.get(status=Status.ACTIVE).profile.name == "short"

    profile("short", message_limit=6, keep_last_n=2, target_summary_tokens=90)
    done = resummarize("--all", "--profile=short")

    assert "1 summarised again" in done.out
    assert SessionSummary.objects.get(status=Status.ACTIVE).profile.version == 2


def test_an_unknown_profile_is_refused_with_the_known_ones():
    done = resummarize("--all", "--profile=gone")

    assert "'gone'" in str(done.error)
    assert "test" in str(done.error)


def test_json_has_one_line_a_session_and_nothing_else_on_stdout():
    new, up_to_date = compacted(), compacted()
    resummarize("--session", str(up_to_date.pk))

    done = resummarize("--all", "--json")

    found = lines(done)
    assert found[str(up_to_date.pk)]["status"] == "nothing_to_do"
    line = found[str(new.pk)]
    assert (line["status"], line["summaries"], line["messages"]) == ("succeeded", 1, 10)
    assert line["tokens"] > 0
    assert line["calls"] == 1
    assert "2 sessions" in done.err


# --- which sessions -----------------------------------------------------------


@pytest.mark.parametrize("arguments", [(), ("--all", "--since=2026-01-01")])
def test_exactly_one_way_of_choosing_must_be_given(arguments):
    done = resummarize(*arguments)

    assert done.error is not None


def test_only_the_named_sessions_are_done():
    named, other = compacted(), compacted()

    done = resummarize("--json", "--session", str(named.pk), str(named.pk))

    assert list(lines(done)) == [str(named.pk)]
    assert SessionSummary.objects.get(session=other).status == Status.ACTIVE


def test_an_unknown_session_is_an_error_line_and_the_rest_goes_on():
    known, unknown = compacted(), uuid4()

    done = resummarize("--session", str(unknown), "seventeen", str(known.pk))

    assert f"{unknown}: failed. There is no such session." in done.err
    assert "seventeen: failed. This is no session id." in done.err
    assert f"{known.pk}: succeeded" in done.out
    assert str(done.error).startswith("2 of 3 sessions failed")
    assert done.error.returncode == 1


def test_all_leaves_out_sessions_without_a_summary():
    SessionFactory(wires=talk(1))
    session = compacted()

    assert list(lines(resummarize("--all", "--json"))) == [str(session.pk)]


def test_since_means_when_the_summary_was_made():
    old, new = compacted(), compacted()
    past = timezone.now() - timedelta(days=10)
    SessionSummary.objects.filter(session=old).update(created_at=past)

    found = {
        days: set(lines(resummarize("--since", _days_ago(days), "--json", "--dry-run")))
        for days in (3, 11)
    }

    assert found == {3: {str(new.pk)}, 11: {str(new.pk), str(old.pk)}}


def _days_ago(days: int) -> str:
    return (timezone.now() - timedelta(days=days)).date().isoformat()


@pytest.mark.parametrize("text", ["2026-11-27", "2026-11-27T18:00", "2026-11-27T18:00:00Z"])
def test_since_takes_days_and_times(text):
    assert resummarize("--since", text).error is None


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "2026-02-30T10:00"])
def test_since_refuses_what_is_no_date(text):
    assert f"“{text}” is no date" in str(resummarize("--since", text).error)


def test_ids_come_in_batches_and_each_once(monkeypatch, django_assert_num_queries):
    monkeypatch.setattr(redo, "ID_BATCH", 2)
    owner = SessionFactory().owner
    for _ in range(4):
        SessionFactory(owner=owner)

    with django_assert_num_queries(4):
        found = list(ids_of(Session.objects.all()))

    assert sorted(found) == sorted(Session.objects.values_list("pk", flat=True))
    assert len(set(found)) == 5


def test_restored_summaries_are_nothing_to_redo():
    session = compacted()
    SessionSummary.objects.update(status=Status.RESTORED)

    assert list(sessions_with_summaries()) == []
    assert Redo().take(session.pk).status == "nothing_to_do"


# --- dry run, limit, queue ----------------------------------------------------


def test_a_dry_run_says_what_would_be_done_and_writes_nothing():
    session = compacted()
    before, state = rows(), CompactionState.objects.values().get()

    done = resummarize("--all", "--dry-run", "--json")

    line = lines(done)[str(session.pk)]
    assert (line["status"], line["summaries"], line["messages"]) == ("planned", 1, 10)
    assert (line["calls"], line["cost"]) == (1, 0.0)
    assert line["tokens"] == SessionSummary.objects.get().approx_tokens
    assert "1 would be summarised again" in done.err
    assert (rows(), CompactionState.objects.values().get()) == (before, state)


def test_a_dry_run_stores_no_state_for_a_branch_that_has_none():
    session = compacted()
    CompactionState.objects.all().delete()

    assert Redo(dry_run=True).take(session.pk).status == "planned"
    assert not CompactionState.objects.exists()


def test_a_dry_run_tells_the_cost_of_a_model_with_prices(model_server, use_models):
    use_models(model_server.models(PRICES={"INPUT": 1000.0, "OUTPUT": 0.0}))
    session = compacted_by_server()

    result = Redo(dry_run=True).take(session.pk)

    assert result.cost == pytest.approx(result.tokens / 1000)


def compacted_by_server() -> Session:
    session = SessionFactory(wires=talk(6, marker=1))
    compact(session)
    return session


def test_the_limit_counts_only_sessions_with_work():
    sessions = [compacted() for _ in range(3)]
    resummarize("--session", *[str(session.pk) for session in sessions[:2]])

    done = resummarize("--all", "--limit=1", "--json")

    assert [line["status"] for line in lines(done).values()].count("succeeded") == 1
    assert statuses().count("superseded") == 3


@pytest.mark.parametrize("limit", ["0", "-1", "many"])
def test_a_limit_below_one_is_refused(limit):
    assert "whole number from 1 on" in str(resummarize("--all", f"--limit={limit}").error)


def test_queue_leaves_the_work_to_the_workers(queued, django_capture_on_commit_callbacks):
    session = compacted()
    summary = SessionSummary.objects.get()

    with django_capture_on_commit_callbacks(execute=True):
        done = resummarize("--all", "--queue", "--json")

    run = CompactionRun.objects.get(status="queued")
    assert (run.replaces, run.trigger, run.mode) == (summary, "resummarize", "background")
    assert queued == [("compaction.tasks.run_compaction", str(run.pk))]
    assert lines(done)[str(session.pk)]["status"] == "queued"
    assert statuses() == ["active"]


def test_what_is_queued_already_is_not_queued_again():
    compacted()
    resummarize("--all", "--queue")

    done = resummarize("--all", "--queue")

    assert CompactionRun.objects.filter(status="queued").count() == 1
    assert "1 with nothing to do" in done.out


# --- failing and stopping -----------------------------------------------------


def test_a_failed_session_is_told_and_ends_with_status_1(monkeypatch):
    bad, good = compacted(), compacted()
    Session.objects.filter(pk=bad.pk).update(model="gone")

    done = resummarize("--all", "--json")

    assert lines(done)[str(bad.pk)]["status"] == "failed"
    assert "'gone'" in lines(done)[str(bad.pk)]["error"]
    assert lines(done)[str(good.pk)]["status"] == "succeeded"
    assert str(done.error).startswith("1 of 2 sessions failed")
    assert done.error.returncode == 1


def test_a_run_that_fails_is_told_with_its_sentence(model_server, monkeypatch):
    session = compacted_by_server()
    failed = CompactionRun(status="failed", error="The server is down.", model_calls=1)
    monkeypatch.setattr(resummarizing, "resummarize", lambda summary, profile: failed)

    done = resummarize("--session", str(session.pk))

    assert f"{session.pk}: failed. The server is down." in done.err
    assert done.error.returncode == 1


def test_after_a_failure_the_later_summaries_of_the_session_wait(monkeypatch):
    session = compacted()
    store(session, talk(6, marker=50))
    compact(Session.objects.get(pk=session.pk))
    asked = []

    def fail(summary, profile):
        asked.append(summary.covers_through)
        return CompactionRun(status="failed", error="no")

    monkeypatch.setattr(resummarizing, "resummarize", fail)

    assert Redo().take(session.pk).status == "failed"
    assert asked == [SessionSummary.objects.order_by("covers_through")[0].covers_through]


def test_a_fault_in_one_session_does_not_end_the_work_on_the_others(monkeypatch, caplog):
    bad, good = compacted(), compacted()
    real = resummarizing.summaries_to_redo

    def fragile(session, **options):
        if session.pk == bad.pk:
            raise ZeroDivisionError("a bug")
        return real(session, **options)

    monkeypatch.setattr(resummarizing, "summaries_to_redo", fragile)

    done = resummarize("--all", "--json")

    assert lines(done)[str(bad.pk)]["error"] == "ZeroDivisionError: a bug"
    assert lines(done)[str(good.pk)]["status"] == "succeeded"
    assert "Traceback" in caplog.text


def test_a_database_that_is_gone_ends_it_with_a_sentence(monkeypatch):
    compacted()

    def gone(session, **options):
        raise OperationalError("connection refused")

    monkeypatch.setattr(resummarizing, "summaries_to_redo", gone)

    done = resummarize("--all")

    assert "The database cannot be reached: connection refused" in str(done.error)


def test_broken_off_and_started_again_it_goes_on_where_it_stopped(monkeypatch):
    for _ in range(3):
        compacted()
    real, calls = resummarizing.resummarize, []

    def breaks_off(summary, **options):
        calls.append(summary.pk)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(summary, **options)

    monkeypatch.setattr(resummarizing, "resummarize", breaks_off)

    stopped = resummarize("--all")
    assert "Stopped after 1 session." in str(stopped.error)
    assert "goes on where it stopped" in str(stopped.error)
    assert stopped.error.returncode == 130
    assert statuses() == ["active", "active", "active", "superseded"]

    again = resummarize("--all")
    assert "3 sessions: 2 summarised again, 1 with nothing to do, 0 failed" in again.out
    assert calls.count(calls[0]) == 1

    third = resummarize("--all")
    assert "3 sessions: 0 summarised again, 3 with nothing to do, 0 failed" in third.out
    assert len(calls) == 4


def test_a_supervisor_stops_it_like_ctrl_c(monkeypatch):
    compacted()

    def stopped_here(summary, **options):
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()

    monkeypatch.setattr(resummarizing, "resummarize", stopped_here)

    assert resummarize("--all").error.returncode == 130


def test_the_bar_is_drawn_on_a_terminal_beside_the_lines():
    compacted()

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen, out = Terminal(), io.StringIO()
    call_command("resummarize", "--all", stdout=out, stderr=screen)

    assert "0 of 1 sessions" in screen.getvalue()
    assert "1 of 1 sessions" in screen.getvalue()
    assert "█" not in out.getvalue()


# --- sweep --------------------------------------------------------------------


def sweep(*arguments: str) -> str:
    out = io.StringIO()
    call_command("sweep", *arguments, stdout=out)
    return out.getvalue()


@pytest.fixture
def dead_worker(queued):
    """A branch whose worker died in the middle of a run."""
    session = compacted()
    worker: UUID = uuid4()
    past = timezone.now() - timedelta(hours=1)
    CompactionState.objects.update(lease_owner=worker, lease_expires_at=past)
    CompactionRun.objects.create(
        session=session,
        branch=session.branch,
        status="running",
        trigger="manual",
        reason="manual",
        mode="background",
        profile=CompactionRun.objects.get().profile,
        worker=worker,
        started_at=past,
    )
    return session


def test_a_sweep_frees_what_a_dead_worker_held_and_prints_the_counts(dead_worker):
    assert sweep().splitlines()[0].split() == ["Expired", "leases", "1"]
    assert CompactionState.objects.get().lease_owner is None


def test_the_counts_of_a_sweep_come_as_json(dead_worker):
    assert json.loads(sweep("--json"))["restarted_runs"] == 1
    assert set(json.loads(sweep("--json")).values()) == {0}


def test_a_session_that_another_run_works_on_is_busy_and_no_failure():
    session, other = compacted(), compacted()
    owner = uuid4()
    state = CompactionState.objects.filter(pk=session.branch.pk)
    until = timezone.now() + timedelta(minutes=5)
    state.update(lease_owner=owner, lease_expires_at=until)
    for options in ([], ["--force"]):
        done = resummarize("--session", str(session.pk), *options)
        assert done.error is None
        assert f"{session.pk}: busy. " in done.out
        assert "1 busy with another run, 0 failed" in done.out
        assert done.err == ""
    done = resummarize("--all", "--json")
    found = {key: line["status"] for key, line in lines(done).items()}
    assert found == {str(session.pk): "busy", str(other.pk): "succeeded"}
