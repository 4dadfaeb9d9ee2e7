"""Runs beside the conversation: cursors, messages that arrive meanwhile, crashes, queues."""

from __future__ import annotations

import io
import threading
import time
import uuid
from contextlib import suppress
from datetime import timedelta

import pytest
from django.conf import settings as django_settings
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.utils import timezone

from chatapp.models import Session
from compaction import tasks
from compaction.branches.snapshot import snapshot_of
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.runs import queue
from compaction.runs import worker as compact_service
from compaction.runs.lifecycle import RunRequest, request_run
from compaction.runs.sweep import sweep_runs
from compaction.runs.worker import check_branch, execute_run
from compaction.summaries.summarizer import ModelSummarizer
from tests.cases.support import (
    add,
    ask,
    check,
    compact,
    fresh,
    linked,
    next_request,
    originals,
    state,
    stored,
    summarised_as,
)
from tests.cases.test_summaries import admin_text
from tests.factories import talk
from tests.fakes.model_server import ModelServer

threaded = pytest.mark.django_db(transaction=True)


class Beside:
    """Work in a thread of its own, with a database connection of its own."""

    def __init__(self, work, *arguments):
        self.outcome = self.error = None

        def run():
            try:
                self.outcome = work(*arguments)
            except BaseException as error:
                self.error = error
            finally:
                connections.close_all()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def result(self):
        self._thread.join(30)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error
        return self.outcome


def queued_run(session, **arguments):
    """A run as the API queues it, waiting for a worker."""
    snapshot = snapshot_of(fresh(session))
    arguments = {"trigger": "manual", "reason": "manual"} | arguments
    return request_run(
        RunRequest(
            session=snapshot.session,
            branch=snapshot.branch,
            profile=snapshot.profile_row,
            background=True,
            **arguments,
        )
    )


# --- how far a background run got ----------------------------------------------------------------


def post(api, session, wires):
    url = f"/api/v1/sessions/{session.pk}/messages/"
    response = api.post(url, {"messages": wires}, format="json")
    assert response.status_code == 201, response.data
    return response


@pytest.mark.django_db
def test_b39_a_background_run_stores_how_far_it_got(
    cases, play, api, owner, queued, django_capture_on_commit_callbacks
):
    case = cases("B39")
    server = play(case.script)
    case.window()
    session = stored(owner, case.transcript)
    old_session = fresh(session)
    old_state = snapshot_of(old_session).state
    assert old_state.cursor == 0
    run = check_branch(old_session)
    assert run is not None
    assert tasks.run_compaction(str(run.pk)) == "succeeded"

    rows = originals(session)
    summary = SessionSummary.objects.get()
    assert linked(summary) == rows[:12]

    def field(entry):
        assert entry["name"] == "last_consolidated"
        assert state(session).covered_messages == entry["value"] == 12
        assert state(session).cursor == rows[11].position

    check(case, server, session, field=field)
    assert state(session).last_consolidated_at is not None

    # Reloaded, one more message within the cooldown: no run.
    with django_capture_on_commit_callbacks(execute=True):
        post(api, session, [{"role": "user", "content": "MK-3990 one more"}])
    assert check_branch(fresh(session)) is None
    assert CompactionRun.objects.count() == 1
    assert queued == []

    # Eleven more make twelve: a full window; the cooldown is over.
    late = timezone.now() - timedelta(seconds=901)
    CompactionState.objects.filter(pk=session.active_branch_id).update(last_consolidated_at=late)
    with django_capture_on_commit_callbacks(execute=True):
        post(api, session, talk(6, words=3)[1:])
    assert queued == [(queue.RUN_TASK, str(CompactionRun.objects.latest("created_at").pk))]
    assert tasks.run_compaction(queued[0][1]) == "succeeded"
    second = SessionSummary.objects.latest("covers_through")
    assert linked(second) == originals(session)[12:24]
    assert state(session).covered_messages == 24


@pytest.mark.django_db
def test_b39_each_further_message_starts_no_run_until_a_window_is_full(cases, play, owner):
    case = cases("B39")
    server = play(case.script)
    case.window()
    session = stored(owner, case.transcript)
    execute_run(check_branch(fresh(session)).pk)
    for number in range(11):
        add(session, [{"role": "user", "content": f"message {number}"}])
        assert check_branch(fresh(session)) is None
    assert len(server.of("summary")) == 1
    add(session, [{"role": "assistant", "content": "the twelfth"}])
    run = execute_run(check_branch(fresh(session)).pk)
    assert linked(run.summaries.get()) == originals(session)[12:24]


@pytest.mark.django_db
def test_b39_a_request_that_began_earlier_does_not_write_the_old_value_back(
    cases, play, api, owner
):
    case = cases("B39")
    play(case.script)
    case.window()
    session = stored(owner, case.transcript)
    # What a web request holds while the worker works: session, branch and state of before.
    held = fresh(session)
    held_situation = snapshot_of(held)
    assert held_situation.state.cursor == 0
    execute_run(check_branch(fresh(session)).pk)
    reached = state(session)
    assert reached.covered_messages == 12

    held.title = "renamed"
    held.save()
    add(held, talk(1))
    url = f"/api/v1/sessions/{session.pk}/"
    assert api.patch(url, {"title": "renamed again"}, format="json").status_code == 200
    ask(held, "and a whole turn")
    after = state(session)
    assert (after.cursor, after.covered_messages, after.covered_tokens) == (
        reached.cursor,
        reached.covered_messages,
        reached.covered_tokens,
    )
    assert SessionSummary.objects.count() == 1


@threaded
def test_b39_a_run_that_ends_during_a_turn_keeps_its_cursor(cases, play, owner):
    case = cases("B39")
    server = play([{"when": {"purpose": "chat"}, "reply": {"text": "ok"}}, *case.script])
    case.window()
    session = stored(owner, case.transcript)
    with server.holding("chat"):
        turn = Beside(ask, session, "a question")
        server.wait_for("chat")
        run = compact(session)
        assert run.status == "succeeded"
        reached = state(session)
    turn.result()
    assert state(session).cursor == reached.cursor
    assert state(session).covered_messages == reached.covered_messages
    assert linked(SessionSummary.objects.get())[-1].position == reached.cursor


# --- a message that arrives during a compaction --------------------------------------------------


@threaded
@pytest.mark.parametrize("tail", [2, 0, 6])
def test_b42_a_message_that_arrives_during_a_compaction_is_answered(cases, play, api, owner, tail):
    case = cases("B42")
    server = play(case.script)
    case.profile(keep_last_n=tail)
    session = stored(owner, case.transcript)
    start, wait_call, step, wait_end = case.raw["steps"]
    assert (start, wait_call) == ({"start": "background_compaction"}, {"wait_for": "summary_call"})
    run = queued_run(session)
    with server.holding("summary"):
        worker = Beside(execute_run, run.pk)
        server.wait_for("summary")
        # The document of the case asks for it: posting returns within a second.
        started = time.thread_time()
        post(api, session, [{"role": "user", "content": step["post_user"]}])
        assert time.thread_time() - started < 1
        assert not SessionSummary.objects.exists()
    assert wait_end == {"wait_for": "compaction_done"}
    assert worker.result().status == "succeeded"
    ask(session, None)

    check(case, server, session)
    request = next_request(server).messages
    assert request[-1] == {"role": "user", "content": step["post_user"]}
    summary = SessionSummary.objects.get()
    late = next(row for row in originals(session) if row.content == step["post_user"])
    assert late not in linked(summary)
    assert summary.last_message.position < late.position
    assert linked(summary) == originals(session)[: 20 - tail]


@threaded
def test_b42_a_whole_turn_goes_on_during_a_compaction(cases, play, owner):
    case = cases("B42")
    server = play(case.script)
    case.profile(message_limit=20)
    session = stored(owner, case.transcript)
    with server.holding("summary"):
        worker = Beside(execute_run, queued_run(session).pk)
        server.wait_for("summary")
        ask(session, "MK-4298 first")
        ask(session, "MK-4299 second")
        assert not SessionSummary.objects.exists()
    assert worker.result().status == "succeeded"
    ask(session, "MK-4297 third")
    assert case.markers | {"MK-4297", "MK-4298", "MK-4299"} <= case.lib.markers(
        next_request(server).messages
    )
    assert len(linked(SessionSummary.objects.get())) == 18


# --- a crash in the middle of a run --------------------------------------------------------------


def crashed(case, session, age_seconds):
    """The state that a worker leaves which died `age_seconds` after it took the lease."""
    lease = timedelta(seconds=case.settings["lease_sec"])
    began = timezone.now() - timedelta(seconds=age_seconds)
    run = queued_run(session)
    worker = uuid.uuid4()
    CompactionRun.objects.filter(pk=run.pk).update(
        status="running", worker=worker, started_at=began
    )
    CompactionState.objects.update_or_create(
        pk=session.active_branch_id,
        defaults={"lease_owner": worker, "lease_expires_at": began + lease},
    )
    run.refresh_from_db()
    return run


def leased(case, play, owner):
    server = play(case.script)
    case.window()
    return server, stored(owner, case.transcript)


@pytest.mark.django_db
def test_b44_an_expired_lease_is_taken_over(cases, play, owner, queued):
    case = cases("B44")
    server, session = leased(case, play, owner)
    assert case.raw["session_state"] == {"is_consolidating": True, "lease_age_sec": 3600}
    stale = crashed(case, session, 3600)
    run = check_branch(fresh(session))
    assert run is not None
    assert execute_run(run.pk).status == "succeeded"

    def field(entry):
        assert entry["name"] == "is_consolidating"
        assert state(session).is_consolidating is entry["value"]
        assert state(session).lease_owner is None

    check(case, server, session, field=field)
    stale.refresh_from_db()
    assert (stale.status, stale.error_code) == ("failed", "interrupted")
    assert stale.finished_at is not None
    assert len(linked(SessionSummary.objects.get())) == 20


@pytest.mark.django_db
@pytest.mark.parametrize("age", [10, 290])
def test_b44_a_lease_that_holds_starts_nothing_and_asks_for_another_look(
    cases, play, owner, age, settings
):
    # A turn whose oldest messages would fall out waits for whoever holds the branch: not long here.
    settings.COMPACTION = settings.COMPACTION | {"INLINE_SECONDS": 1, "LEASE_SECONDS": 300}
    case = cases("B44")
    server, session = leased(case, play, owner)
    alive = crashed(case, session, age)
    assert check_branch(fresh(session)) is None
    assert state(session).recheck_requested is True
    assert CompactionRun.objects.count() == 1
    # A turn goes out uncompacted, a run that is delivered all the same steps aside.
    outcome = ask(session, "hello")
    assert outcome.answer.content == "ok"
    other = compact(session)
    assert other.status == "skipped"
    assert server.summarising() == []
    alive.refresh_from_db()
    assert alive.status == "running"


@pytest.mark.django_db
def test_b44_the_stale_run_is_shown_as_interrupted_in_the_admin(cases, play, owner, client):
    case = cases("B44")
    _, session = leased(case, play, owner)
    stale = crashed(case, session, 3600)
    assert compact(session).status == "succeeded"
    assert "interrupted" in admin_text(client, CompactionRun, stale).lower()


@pytest.mark.django_db
@pytest.mark.parametrize("finishes", [True, False])
def test_b44_an_old_worker_that_comes_back_cannot_store(cases, play, owner, monkeypatch, finishes):
    case = cases("B44")
    server, session = leased(case, play, owner)
    summarize = ModelSummarizer.summarize
    taken = []

    def overtaken(self, request):
        answer = summarize(self, request)
        if not taken:
            taken.append(True)
            CompactionState.objects.filter(pk=session.active_branch_id).update(
                lease_expires_at=timezone.now() - timedelta(seconds=1)
            )
            if finishes:
                taken.append(compact(session))
            else:
                # The successor has the branch and has not finished.
                CompactionState.objects.filter(pk=session.active_branch_id).update(
                    lease_owner=uuid.uuid4(),
                    lease_expires_at=timezone.now() + timedelta(seconds=300),
                )
        return answer

    monkeypatch.setattr(ModelSummarizer, "summarize", overtaken)
    old = execute_run(queued_run(session).pk)
    assert old.status == "failed"
    assert old.error
    if finishes:
        assert taken[1].status == "succeeded"
        summary = SessionSummary.objects.get()
        assert summary.run_id == taken[1].pk
        assert session.messages.filter(kind="placeholder").count() == 1
        assert state(session).cursor == summary.covers_through
    else:
        assert not SessionSummary.objects.exists()
        assert state(session).cursor == 0
        assert state(session).is_consolidating
    assert server.of("summary")


@pytest.mark.django_db
def test_b44_a_worker_whose_lease_ran_out_alone_stores_nothing_twice(cases, play, owner):
    case = cases("B44")
    _, session = leased(case, play, owner)
    stale = crashed(case, session, 3600)
    swept = sweep_runs()
    assert swept.expired_leases == 1
    stale.refresh_from_db()
    assert (stale.status, stale.error_code) == ("failed", "interrupted")
    assert not state(session).is_consolidating
    again = CompactionRun.objects.exclude(pk=stale.pk).get()
    assert again.status == "queued"
    assert execute_run(again.pk).status == "succeeded"
    # The old delivery comes once more: nothing happens.
    assert execute_run(stale.pk).status == "failed"
    assert SessionSummary.objects.count() == 1


# --- a queue that delivers twice, early, or loses a failure --------------------------------------


class Watcher(ModelServer):
    """Does something while the summariser's caller waits for the answer."""

    look = None

    def answer(self, body, headers):
        call, reply = super().answer(body, headers)
        if self.look is not None and call.purpose == "summary":
            try:
                self.look()
            finally:
                connections.close_all()
        return call, reply


@threaded
@pytest.mark.parametrize("gap", [0.5, 0.0])
def test_b45_two_deliveries_give_one_summary_and_one_call(cases, play, owner, gap):
    case = cases("B45")
    server = play(case.script)
    case.profile()
    session = stored(owner, case.transcript)
    run = queued_run(session)
    assert [step.get("after_s", 0.5) for step in case.raw["steps"]] == [0.5, 0.5]
    first = Beside(tasks.run_compaction, str(run.pk))
    time.sleep(gap)
    second = Beside(tasks.run_compaction, str(run.pk))
    outcomes = {first.result(), second.result()}
    assert "succeeded" in outcomes
    assert outcomes <= {"succeeded", "running"}
    third = tasks.run_compaction(str(run.pk))
    assert third == "succeeded"

    check(case, server, session, warns=warns)
    assert len(server.of("summary")) == 1
    assert SessionSummary.objects.count() == 1
    run.refresh_from_db()
    assert (run.status, run.model_calls) == ("succeeded", 1)


@threaded
def test_b45_two_runs_of_one_branch_do_the_work_once(cases, play, owner):
    case = cases("B45")
    server = play(case.script)
    case.profile(message_limit=20)
    session = stored(owner, case.transcript)
    automatic = check_branch(fresh(session))
    assert check_branch(fresh(session)).pk == automatic.pk
    manual = queued_run(session)
    workers = [Beside(execute_run, run.pk) for run in (automatic, manual)]
    assert "succeeded" in {worker.result().status for worker in workers}
    for run in CompactionRun.objects.filter(status="queued"):
        execute_run(run.pk)
    assert SessionSummary.objects.count() == 1
    assert len(server.of("summary")) == 1


@threaded
def test_b45_a_task_of_a_transaction_that_rolls_back_never_runs(cases, play, owner, queued):
    case = cases("B45")
    play(case.script)
    case.profile(message_limit=20)
    session = stored(owner, case.transcript)

    class UndoneError(Exception):
        pass

    for start in (queued_run, lambda one: check_branch(fresh(one))):
        with pytest.raises(UndoneError), transaction.atomic():
            assert start(session) is not None
            assert queued == []
            raise UndoneError
        assert queued == []
        assert not CompactionRun.objects.exists()
    run = check_branch(fresh(session))
    # The arguments are ids only, and the row is there when the task starts.
    assert queued == [(queue.RUN_TASK, str(run.pk))]


@threaded
def test_b45_no_transaction_is_open_while_the_model_is_waited_for(cases, play, owner, monkeypatch):
    case = cases("B45")
    server = play(case.script, server=Watcher)
    case.profile()
    session = stored(owner, case.transcript)
    seen = []
    summarize = ModelSummarizer.summarize
    monkeypatch.setattr(
        ModelSummarizer,
        "summarize",
        lambda self, request: (
            seen.append(("in transaction", connection.in_atomic_block)),
            summarize(self, request),
        )[1],
    )

    def write_elsewhere():
        # Another connection writes to the very rows: no lock may stand in its way.
        started = time.monotonic()
        Session.objects.filter(pk=session.pk).update(title="renamed meanwhile")
        CompactionState.objects.filter(pk=session.active_branch_id).update(recheck_requested=False)
        CompactionRun.objects.filter(status="running").update(instructions="seen")
        seen.append(("waited", time.monotonic() - started > 0.8))
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                    "AND state LIKE 'idle in transaction%%' AND pid <> pg_backend_pid()"
                )
                seen.append(("idle in transaction", cursor.fetchone()[0] > 0))

    server.look = write_elsewhere
    run = execute_run(queued_run(session).pk)
    assert run.status == "succeeded"
    assert {name for name, _ in seen} >= {"in transaction", "waited"}
    assert not any(wrong for _, wrong in seen)
    assert fresh(session).title == "renamed meanwhile"


@threaded
def test_b45_no_database_connection_is_held_meanwhile(cases, play, owner):
    case = cases("B45")
    held = []
    server = play(case.script)
    case.profile()
    session = stored(owner, case.transcript)

    def work():
        mine["connection"] = connections["default"]
        return execute_run(run.pk)

    mine = {}
    run = queued_run(session)
    worker = Beside(work)
    server.wait_for("summary")
    held.append(mine["connection"].connection)
    assert worker.result().status == "succeeded"
    assert held == [None]


def warnings_of(**queue_settings):
    """What manage.py check says with these settings of the queue."""
    from django.test import override_settings

    out = io.StringIO()
    cluster = django_settings.Q_CLUSTER | queue_settings
    with override_settings(Q_CLUSTER=cluster):
        call_command("check", stdout=out, stderr=out)
    return out.getvalue()


def warns(entry):
    assert entry["target"] == "system_check"
    text = warnings_of(**entry["settings"])
    assert "compaction.W001" in text
    assert "WARNING" in text


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("queue_settings", "expected"),
    [
        ({"timeout": 600, "retry": 120}, "compaction.W001"),
        ({"timeout": 600, "retry": 600}, "compaction.W001"),
        ({"timeout": 600, "retry": 1800, "max_attempts": 0}, "compaction.W002"),
        ({"timeout": 600, "retry": 1800, "ack_failures": False}, "compaction.W002"),
    ],
)
def test_b45_check_warns_of_settings_that_deliver_twice(cases, queue_settings, expected):
    entry = next(e for e in cases("B45").raw["checks"] if e["rule"] == "warns")
    assert entry["settings"] == {"timeout": 600, "retry": 120}
    warns(entry)
    assert expected in warnings_of(**queue_settings)
    assert "compaction.W" not in warnings_of()


class QueueTimeout(SystemExit):
    """How a queue's time limit ends a worker in the middle of a task."""


@pytest.mark.django_db
@pytest.mark.parametrize("death", [QueueTimeout, KeyboardInterrupt, MemoryError])
def test_b45_a_task_that_is_killed_shows_as_failed(cases, play, api, owner, monkeypatch, death):
    case = cases("B45")
    play(case.script)
    case.profile()
    session = stored(owner, case.transcript)
    run = queued_run(session)

    def die(self, request):
        raise death

    monkeypatch.setattr(ModelSummarizer, "summarize", die)
    with suppress(QueueTimeout, KeyboardInterrupt, MemoryError):
        tasks.run_compaction(str(run.pk))
    run.refresh_from_db()
    assert run.status == "failed"
    assert run.error
    assert run.finished_at is not None
    shown = api.get("/api/v1/runs/").data["results"]
    assert [(row["id"], row["status"]) for row in shown] == [(str(run.pk), "failed")]
    assert not state(session).is_consolidating
    assert not SessionSummary.objects.exists()
    monkeypatch.undo()


@pytest.mark.django_db
def test_b45_a_worker_killed_outright_shows_as_failed_after_its_lease(cases, play, owner, client):
    case = cases("B45")
    play(case.script)
    case.profile()
    session = stored(owner, case.transcript)
    run = queued_run(session)
    worker, past = uuid.uuid4(), timezone.now() - timedelta(seconds=400)
    CompactionRun.objects.filter(pk=run.pk).update(status="running", worker=worker, started_at=past)
    CompactionState.objects.update_or_create(
        pk=session.active_branch_id,
        defaults={"lease_owner": worker, "lease_expires_at": past},
    )
    sweep_runs()
    run.refresh_from_db()
    assert run.status == "failed"
    page = admin_text(client, CompactionRun)
    assert "Failed" in page or "Interrupted" in page


@pytest.mark.django_db
def test_b45_summaries_made_one_after_the_other_are_both_stored(cases, play, owner):
    case = cases("B45")
    server = play(case.script)
    case.profile()
    session = stored(owner, case.transcript)
    summarised_as(server, session, "SUMMARY one")
    add(session, talk(4))
    summarised_as(server, session, "SUMMARY two")
    assert compact_service.execute_run(CompactionRun.objects.latest("created_at").pk).status == (
        "succeeded"
    )
    assert SessionSummary.objects.count() == 2
