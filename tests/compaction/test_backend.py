"""What chatapp calls: a turn fails for no compaction, and costs the same at any age."""

from __future__ import annotations

import uuid

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from chatapp import transcript
from chatapp.context.backend import context_backend
from chatapp.models import POSITION_STEP, Branch, Message
from compaction.branches.leases import Lease, ensure_state
from compaction.branches.snapshot import snapshot_of
from compaction.models import CompactionRun, CompactionState, SessionSummary
from tests.compaction.support import NEVER, compact, say, sent, texts
from tests.factories import SessionFactory, call, profile, result, store, talk
from tests.facts import code

pytestmark = pytest.mark.django_db


@pytest.fixture
def due(owner, model_server, queued):
    """A session whose next request compacts first."""
    profile(message_limit=10, keep_last_n=2)
    return SessionFactory(owner=owner, wires=talk(6, marker=1))


def test_a_due_trigger_compacts_before_the_request(due, model_server):
    say(due, "QUESTION")
    assert [call.purpose for call in model_server.calls] == ["summary", "chat"]
    request = model_server.of("chat")[0].messages
    assert request[-1]["content"] == "QUESTION"
    assert code(1) in request[0]["content"]


def test_the_watcher_hears_of_it(due):
    events = []
    say(due, emit=lambda name, payload: events.append((name, payload)))
    news = [payload for name, payload in events if name == "compaction"]
    assert [one["phase"] for one in news] == ["started", "finished"]
    assert news[0]["reason"] == "message_limit"
    assert news[1]["status"] == "succeeded"


@pytest.mark.parametrize(
    "reply",
    [
        {"text": ""},
        {"error": {"status": 401, "body": {"error": {"message": "no"}}}},
        {"error": {"status": 400, "body": "<html>bad gateway</html>"}},
        {"raw": "not json"},
        {"text": "wordy " * 5000},
    ],
    ids=["empty", "refused", "html", "broken", "too long"],
)
def test_a_failing_summariser_never_fails_the_turn(due, model_server, reply, monkeypatch):
    monkeypatch.setattr("chatapp.llm.openai_client.MAX_ATTEMPTS", 1)
    model_server.script = [
        {"when": {"purpose": "summary"}, "reply": reply},
        {"when": {}, "reply": {"text": "ok"}},
    ]
    assert say(due).answer.content == "ok"
    assert CompactionRun.objects.get().status == "failed"
    assert len(model_server.of("chat")[0].messages) == 13


def test_an_unexpected_error_never_fails_the_turn(due, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr("compaction.runs.execution.store_summary", broken)
    assert say(due).answer.content == "ok"
    assert CompactionRun.objects.get().error_code == "internal_error"


def test_a_busy_branch_is_not_waited_for(due, model_server):
    Lease.acquire_or_steal(ensure_state(due.branch).pk, uuid.uuid4())
    assert say(due).answer.content == "ok"
    assert not model_server.summarising()


def test_while_backing_off_the_request_goes_out_as_it_is(due, model_server):
    model_server.script = [
        {"when": {"purpose": "summary"}, "reply": {"text": ""}},
        {"when": {}, "reply": {"text": "ok"}},
    ]
    say(due)
    say(due)
    assert len(model_server.summarising()) == 2
    assert CompactionRun.objects.count() == 1


def test_looking_changes_nothing(due):
    CompactionState.objects.all().delete()
    sent(due)
    context_backend.preview(due)
    assert not CompactionState.objects.exists()
    assert not CompactionRun.objects.exists()


def test_the_preview_announces_that_the_next_turn_compacts_first(due):
    assert context_backend.preview(due).facts["compacts_first"] == "message_limit"


def test_a_turn_sends_what_the_preview_showed(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(6), system_prompt="Be kind.")
    compact(session)
    shown = sent(session)
    say(session, "QUESTION")
    assert model_server.of("chat")[0].messages == [*shown, {"role": "user", "content": "QUESTION"}]


def tool_turn(rounds: int) -> list[dict]:
    """A question, that many calls with their results, and the answer."""
    wires = [{"role": "user", "content": f"{code(1)} question " + "lorem " * 30}]
    for number in range(rounds):
        wires += [call("read", f"c{number}"), result(f"c{number}", "ipsum " * 30)]
    return [*wires, {"role": "assistant", "content": "the answer"}]


def test_after_a_cut_inside_a_turn_the_next_one_sends_what_the_preview_showed(
    owner, model_server, queued
):
    profile(**NEVER, keep_last_n=6)
    session = SessionFactory(owner=owner, wires=tool_turn(20))
    compact(session)
    shown = sent(session)
    say(session, "QUESTION")
    assert model_server.of("chat")[0].messages == [*shown, {"role": "user", "content": "QUESTION"}]


def test_a_running_turn_that_was_cut_keeps_its_question_while_tools_go_on(
    owner, model_server, queued
):
    profile(**NEVER, keep_last_n=6)
    session = SessionFactory(owner=owner, wires=tool_turn(20)[:-1])
    compact(session)
    before = sent(session)
    assert [text.split()[0] for text in texts(before, "user")] == [code(1)]
    store(session, [call("read", "next"), result("next")])
    assert sent(session)[: len(before)] == before


def test_the_preview_counts_the_message_that_the_next_turn_brings(owner, model_server, queued):
    profile(message_limit=13, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(6))
    assert context_backend.preview(session).facts["compacts_first"] == "message_limit"
    say(session)
    assert CompactionRun.objects.get().status == "succeeded"


def test_the_preview_announces_nothing_where_all_is_kept(owner, queued):
    profile(message_limit=0, max_context_tokens=10, keep_last_n=20)
    session = SessionFactory(owner=owner, wires=talk(6))
    assert context_backend.preview(session).facts["compacts_first"] is None


def test_the_window_rule_counts_pinned_messages_before_the_cursor(owner, model_server, queued):
    profile(**NEVER, window_trigger=True, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(6))
    first = Message.objects.filter(session=session).order_by("position").first()
    transcript.set_pinned(first, True)
    compact(session)
    facts = snapshot_of(session).facts
    assert facts.request_tokens == context_backend.preview(session).account.used


def test_a_variable_that_clashes_with_a_profile_costs_nobody_a_turn(
    owner, model_server, queued, settings
):
    profile(keep_last_n=10)
    settings.COMPACTION = settings.COMPACTION | {"ENVIRONMENT": {"SUMMARY_MESSAGE_LIMIT": "8"}}
    session = SessionFactory(owner=owner, wires=talk(2))
    assert say(session).answer.content == "ok"


def test_an_answer_that_makes_a_trigger_due_queues_a_run(
    owner, model_server, queued, django_capture_on_commit_callbacks
):
    profile(message_limit=14, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(6))
    with django_capture_on_commit_callbacks(execute=True):
        say(session)
    run = CompactionRun.objects.get()
    assert (run.status, run.mode) == ("queued", "background")
    assert queued == [("compaction.tasks.run_compaction", str(run.pk))]


# --- the cost of a turn does not grow with the session's age --------------------------------------


def aged(owner, count: int):
    """A session of `count` messages, summarised up to twenty before its end."""
    session = SessionFactory(owner=owner)
    branch = session.branch
    rows = [
        Message(
            session=session, branch=branch, position=n * POSITION_STEP, tokens=10,
            role="user" if n % 2 else "assistant", content=f"message {n}", tokens_through=n * 10,
        )
        for n in range(1, count + 1)
    ]  # fmt: skip
    Message.objects.bulk_create(rows, batch_size=2000)
    Branch.objects.filter(pk=branch.pk).update(
        head_position=count * POSITION_STEP, message_count=count, token_total=count * 10
    )
    covered = count - 20
    SessionSummary.objects.create(
        session=session, branch=branch, summary_text="SUMMARY", summary_tokens=1,
        covers_from=POSITION_STEP, covers_through=covered * POSITION_STEP,
        trigger="manual", reason="manual",
    )  # fmt: skip
    branch.refresh_from_db()
    return session


def reading(act) -> tuple[list[str], int]:
    """Return the queries of an act without their values, and the rows that were fetched."""
    fetched = 0

    def count(execute, sql, params, many, context):
        nonlocal fetched
        result = execute(sql, params, many, context)
        cursor = context["cursor"]
        for name in ("fetchall", "fetchmany", "fetchone"):
            real = getattr(cursor, name)

            def counted(*args, real=real):
                nonlocal fetched
                rows = real(*args)
                fetched += len(rows) if isinstance(rows, list) else int(rows is not None)
                return rows

            if not hasattr(real, "counted"):
                counted.counted = True  # type: ignore[attr-defined]
                setattr(cursor, name, counted)
        return result

    with CaptureQueriesContext(connection) as captured, connection.execute_wrapper(count):
        act()
    return [query["sql"].split("WHERE")[0] for query in captured.captured_queries], fetched


@pytest.fixture
def steady(owner, model_server, queued):
    """prepare() of a session whose state is stored already."""
    profile(**NEVER)

    def measure(session):
        context_backend.prepare(session)
        return reading(lambda: context_backend.prepare(session))

    return measure


@pytest.mark.slow
def test_preparing_a_long_session_reads_what_a_short_one_reads(owner, steady):
    short, long = steady(aged(owner, 50)), steady(aged(owner, 50_000))
    assert long == short
    assert 20 <= short[1] < 40
    assert len(short[0]) <= 8


@pytest.mark.slow
def test_preparing_a_fork_of_a_long_session_reads_what_a_short_one_reads(owner, steady):
    measured = []
    for count in (50, 50_000):
        session = aged(owner, count)
        last = Message.objects.filter(session=session).order_by("-position")[0]
        transcript.activate(session, transcript.fork(session, at=last))
        store(session, talk(2))
        measured.append(steady(session))
    assert measured[0] == measured[1]
    assert 24 <= measured[0][1] < 50


def test_storing_a_summary_does_not_read_the_messages_before_the_cursor(owner, steady):
    session = aged(owner, 200)
    steady(session)
    store(session, talk(10, words=60))
    _, fetched = reading(lambda: compact(session, keep_last_n=2))
    assert SessionSummary.objects.filter(session=session).count() == 2
    assert fetched < 200
