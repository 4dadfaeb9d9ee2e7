"""One line a decision: session, branch, run, reason, numbers, and no word of what was said."""

from __future__ import annotations

import ast
import logging
import uuid
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.utils import timezone

from chatapp import transcript
from chatapp.models import Message
from chatapp.transcript.writing import NewMessage
from compaction.attention.alerts import send_alerts
from compaction.branches.leases import Lease, ensure_state
from compaction.engine.memories import ProposedLine
from compaction.limits import circuit_breaker
from compaction.memories.lines import propose_memories
from compaction.memories.versions import undo_rewriting
from compaction.models import (
    CompactionRun,
    CompactionState,
    MemoryVersion,
    ModelBreaker,
    SessionSummary,
)
from compaction.profiles import save_profile
from compaction.runs import lifecycle, queue
from compaction.runs import sweep as sweeping
from compaction.runs.holding import lift_hold
from compaction.runs.scheduling import check_branch
from compaction.runs.sweep import sweep_runs
from compaction.runs.switching import SwitchWishes, request_switch
from compaction.runs.worker import execute_run
from compaction.summaries.activating import activate_version
from compaction.summaries.editing import edit_summary
from compaction.summaries.restore import restore_summary
from tests.compaction.support import NEVER, compact, say
from tests.compaction.test_memories import answers, compress, remember
from tests.compaction.test_window import failing, window
from tests.factories import SessionFactory, profile, store, talk, user

pytestmark = pytest.mark.django_db
# Decisions about one run of one branch.
ABOUT_A_RUN = {
    "run_requested", "run_started", "run_ended", "run_waits", "run_restarted", "run_given_up",
    "held_off", "lease_taken_over", "archiving", "draft_published", "draft_discarded",
}  # fmt: skip
ABOUT_A_BRANCH = {
    "trigger_due", "asked_again", "messages_left_out", "waiting_for_worker", "cursor_put_right",
    "branch_left_alone", "branch_switched",
}  # fmt: skip
ABOUT_A_MODEL = {
    "breaker_opened", "breaker_probes", "breaker_closed", "model_passed_over", "model_failing",
    "model_works_again",
}  # fmt: skip
ABOUT_AN_OWNER = {
    "memory_run_requested", "memory_run_ended", "memories_proposed", "memories_restored",
}  # fmt: skip
ABOUT_AN_ACT = {"hold_lifted", "hold_broken", "version_activated", "summary_edited"}
REST = {"swept", "alerted", "alert_failed"}


@pytest.fixture
def told(caplog):
    """told("name") are the lines of a decision so far."""
    caplog.set_level("INFO", logger="compaction.events")

    def lines(name: str) -> list[logging.LogRecord]:
        return [r for r in caplog.records if r.name == "compaction.events" and r.event == name]

    return lines


@pytest.fixture
def session(owner, model_server, queued):
    profile(message_limit=10, keep_last_n=2)
    return SessionFactory(owner=owner, wires=talk(6, marker=1))


@pytest.fixture
def on_commit(django_capture_on_commit_callbacks):
    def do(work):
        with django_capture_on_commit_callbacks(execute=True):
            return work()

    return do


def is_about(record, session, run=None) -> bool:
    """Whether a line names the session, its branch, and the run."""
    named = record.session == str(session.pk) and record.branch == str(session.branch.pk)
    return named and (run is None or record.run == str(run.pk))


def names_given_to(function: str, path: Path) -> set[str]:
    """Every literal that calls of a function in a file begin with."""
    calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    called = [call.args[0] for call in calls if getattr(call.func, "id", "") == function]
    return {name.value for name in called if isinstance(name, ast.Constant)}


def names_of_decisions() -> set[str]:
    """Every name that the product gives to `event`."""
    files = (Path(django_settings.BASE_DIR) / "compaction").rglob("*.py")
    return set().union(*(names_given_to("event", path) for path in files))


def test_every_decision_has_a_test_here():
    assert names_of_decisions() == set().union(
        ABOUT_A_RUN, ABOUT_A_BRANCH, ABOUT_A_MODEL, ABOUT_AN_OWNER, ABOUT_AN_ACT, REST
    )
    assert names_of_decisions() <= names_given_to("told", Path(__file__))


def test_memories_that_are_rewritten_taken_back_and_proposed(owner, model_server, told):
    profile(**NEVER)
    remember(owner, [f"line {number} of the tea" for number in range(101)])
    answers(model_server, "The user likes tea.")
    run = compress(owner)
    (asked,), (ended,) = told("memory_run_requested"), told("memory_run_ended")
    assert (asked.owner, asked.kind) == (owner.pk, "compress")
    assert (ended.owner, ended.status) == (owner.pk, "succeeded")
    undo_rewriting(MemoryVersion.objects.get(run=run))
    (restored,) = told("memories_restored")
    assert (restored.owner, restored.versions, restored.lines) == (owner.pk, 1, 91)
    proposals = [ProposedLine(text="The user keeps bees.")]
    propose_memories(owner_id=owner.pk, bot="", lines=proposals, sources=[])
    (proposed,) = told("memories_proposed")
    assert (proposed.owner, proposed.lines) == (owner.pk, 1)


def test_a_switch_with_a_summary(session, told, on_commit):
    first = Message.objects.filter(branch=session.branch).order_by("position")[1]
    other = transcript.fork(session, at=first)
    old = session.branch
    on_commit(lambda: request_switch(session, other, SwitchWishes(summarize=True)))
    (line,) = told("branch_switched")
    assert (line.session, line.branch, line.left) == (
        str(session.pk),
        str(other.pk),
        str(old.pk),
    )


def test_a_run_from_its_trigger_to_its_end(session, told, on_commit):
    run = on_commit(lambda: check_branch(session))
    on_commit(lambda: execute_run(run.pk))
    for name in ("trigger_due", "run_requested", "run_started", "run_ended"):
        assert told(name)
    (due,) = told("trigger_due")
    assert is_about(due, session)
    assert (due.reason, due.messages) == ("message_limit", 12)
    for line in (*told("run_requested"), *told("run_started"), *told("run_ended")):
        assert is_about(line, session, run)
        assert line.reason == "message_limit"
    (ended,) = told("run_ended")
    assert (ended.status, ended.model_calls) == ("succeeded", 1)


def test_a_failed_run_holds_the_next_one_off(session, model_server, told):
    failing(model_server)
    run = execute_run(check_branch(session).pk)
    (line,) = told("held_off")
    assert is_about(line, session, run)
    assert (line.reason, line.code, line.failures) == ("message_limit", "bad_answer", 1)
    assert 58 < line.seconds <= 60


def test_a_lease_that_is_taken_over(session, told):
    run = lifecycle.claim(check_branch(session).pk, uuid.uuid4())
    Lease.acquire_or_steal(session.branch.pk, run.worker)
    CompactionState.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1))
    Lease.acquire_or_steal(session.branch.pk, uuid.uuid4())
    (line,) = told("lease_taken_over")
    assert is_about(line, session, run)
    assert (line.reason, line.former) == ("message_limit", str(run.worker))


def test_who_asks_while_a_worker_works(session, told):
    Lease.acquire_or_steal(ensure_state(session.branch).pk, uuid.uuid4())
    assert check_branch(session) is None
    (line,) = told("asked_again")
    assert is_about(line, session)


@pytest.mark.parametrize(("restarts", "name"), [(0, "run_restarted"), (2, "run_given_up")])
def test_a_dead_workers_run(session, told, restarts, name):
    run = lifecycle.claim(check_branch(session).pk, uuid.uuid4())
    long_ago = timezone.now() - timedelta(hours=1)
    CompactionRun.objects.update(started_at=long_ago, restarts=restarts)
    CompactionState.objects.update(lease_owner=run.worker, lease_expires_at=long_ago)
    sweep_runs()
    (line,) = told(name)
    assert is_about(line, session, run)
    assert bool(told("run_restarted")) == (restarts == 0)
    assert bool(told("run_given_up")) == (restarts == 2)
    (swept,) = told("swept")
    assert (swept.expired_leases, swept.restarted_runs) == (1, 1 - restarts // 2)


def test_a_breaker_and_what_waits_for_it(session, told, settings):
    settings.COMPACTION = settings.COMPACTION | {"BREAKER_FAILURES": 1}
    circuit_breaker.record_failure("default", uuid.uuid4(), "down")
    (opened,) = told("breaker_opened")
    assert opened.model == "default"
    run = execute_run(check_branch(session).pk)
    (waits,) = told("run_waits")
    assert is_about(waits, session, run)
    assert (waits.reason, waits.code) == ("message_limit", "breaker_open")
    ModelBreaker.objects.update(retry_at=timezone.now())
    CompactionRun.objects.update(waits_until=timezone.now())
    execute_run(run.pk)
    assert len(told("breaker_probes")) == len(told("breaker_closed")) == 1


def test_a_model_that_fails_until_it_works_again(session, told, model_server, use_models):
    use_models(model_server.models() | {"other": model_server.models(NAME="other")["default"]})
    profile(message_limit=10, keep_last_n=2, summary_model=["default", "other"])
    refusal = {"status": 401, "body": {"error": {"message": "wrong key"}}}
    echo = list(model_server.script)
    model_server.script = [{"when": {"purpose": "summary", "call": 1}, "reply": {"error": refusal}}]
    model_server.script += echo
    run = compact(session)
    (passed,) = told("model_passed_over")
    assert (passed.model, passed.code, passed.levelname) == (
        "default", "summariser_error", "WARNING",
    )  # fmt: skip
    (fails,) = told("model_failing")
    assert (fails.model, fails.code, fails.levelname) == ("default", "authentication", "WARNING")
    assert (fails.session, fails.run) == (str(session.pk), str(run.pk))
    model_server.script = echo
    compact(SessionFactory(owner=session.owner, wires=talk(6, marker=1)))
    (works,) = told("model_works_again")
    assert works.model == "default"


def ahead(**changes):
    profile(**(NEVER | {"prepare_ratio": 0.7, "keep_last_n": 4, "publish_when_needed": True}
               | changes))  # fmt: skip


@pytest.mark.parametrize("name", ["draft_published", "draft_discarded"])
def test_a_draft(owner, model_server, use_models, queued, told, name):
    use_models(model_server.models(CONTEXT_WINDOW=2400, MAX_OUTPUT=200))
    session = SessionFactory(owner=owner, wires=talk(20, marker=1))
    ahead()
    run = execute_run(check_branch(session).pk)
    if name == "draft_discarded":
        draft = NewMessage(wire=user("put in between"))
        transcript.insert_between(session.branch, after=5_000_000, draft=draft)
    ahead(message_limit=40)
    say(session, "a question")
    (line,) = told("draft_published") or told("draft_discarded")
    assert line.event == name
    assert is_about(line, session, run)


def test_what_a_window_does_when_nothing_else_is_left(owner, model_server, queued, told):
    window()
    session = SessionFactory(owner=owner)
    for _ in range(5):
        circuit_breaker.record_failure("default", uuid.uuid4(), "down")
    store(session, [user(f"message {n} of some words, so that it can be cut") for n in range(400)])
    say(session, "a question")
    (archiving,) = told("archiving")
    assert is_about(archiving, session)
    assert (archiving.reason, archiving.messages) == ("archive", 60)
    (left_out,) = told("messages_left_out")
    assert is_about(left_out, session)
    assert left_out.levelname == "WARNING"
    assert left_out.messages == 401 - 60 - 75


def test_a_turn_that_waits_for_a_worker(owner, model_server, queued, told, settings):
    settings.COMPACTION = settings.COMPACTION | {"INLINE_SECONDS": 0.5}
    window()
    session = SessionFactory(owner=owner)
    store(session, [user(f"message {n} of some words") for n in range(80)])
    Lease.acquire_or_steal(ensure_state(session.branch).pk, uuid.uuid4())
    say(session, "a question")
    (line,) = told("waiting_for_worker")
    assert is_about(line, session)


def test_a_cursor_that_stood_outside(session, told):
    ensure_state(session.branch)
    CompactionState.objects.update(cursor=10**12)
    ensure_state(session.branch)
    (line,) = told("cursor_put_right")
    assert is_about(line, session)
    assert (line.stored, line.cursor) == (10**12, 0)


def test_a_branch_that_cannot_be_looked_at(session, told, monkeypatch):
    ensure_state(session.branch)
    CompactionState.objects.update(next_check_at=timezone.now() - timedelta(seconds=1))

    def broken(*args):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(sweeping, "check_branch", broken)
    sweep_runs()
    (line,) = told("branch_left_alone")
    assert is_about(line, session)
    assert line.code == "internal_error"


def test_what_people_do_to_a_summary(session, told, owner):
    compact(session)
    first = SessionSummary.objects.get()
    own = edit_summary(first, text="The harbour stays open.", author=owner).summary
    (edited,) = told("summary_edited")
    assert (edited.summary, edited.replaced) == (str(own.pk), str(first.pk))
    assert "harbour" not in edited.getMessage()
    activate_version(first)
    (activated,) = told("version_activated")
    assert (activated.summary, activated.replaced) == (str(first.pk), str(own.pk))
    restore_summary(first, by=owner)
    lift_hold(session, by=owner)
    (lifted,) = told("hold_lifted")
    assert all(is_about(line, session) for line in (edited, activated, lifted))


def test_a_hold_that_the_window_breaks(owner, model_server, use_models, queued, told):
    save_profile(
        name="held", base="checkpoint", make_default=True,
        parameters={"keep_recent_tokens": 1_000, "restore_hold": "window"},
    )  # fmt: skip
    session = SessionFactory(owner=owner, wires=talk(40, words=120))
    compact(session)
    use_models(model_server.models(CONTEXT_WINDOW=20_000))
    restore_summary(SessionSummary.objects.get(), by=owner)
    assert told("hold_broken") == []
    say(session, "And now?")
    (broken,) = told("hold_broken")
    assert is_about(broken, session, CompactionRun.objects.latest("created_at"))


def test_alerts_that_are_sent_and_that_cannot_be(told, settings, monkeypatch):
    sending = {"ALERT_EMAILS": ("ops@example.com",), "ALERT_BASE_URL": "https://chat.example.com"}
    settings.COMPACTION = settings.COMPACTION | sending
    ModelBreaker.objects.create(model="m", failing_since=timezone.now(), failing_code="bad_answer")
    send_alerts()
    (sent,) = told("alerted")
    assert sent.things == 1
    monkeypatch.setattr("compaction.attention.alerts.send_mail", refusing)
    ModelBreaker.objects.create(model="n", failing_since=timezone.now(), failing_code="bad_answer")
    send_alerts()
    (failed,) = told("alert_failed")
    assert (failed.way, failed.error) == ("mail", "OSError")


def refusing(*args, **kwargs):
    raise OSError("no such host")


def test_no_line_holds_a_word_of_the_conversation(session, model_server, caplog):
    caplog.set_level("INFO", logger="compaction.events")
    model_server.script = [{"when": {"purpose": "summary"}, "reply": {"text": "secret words"}}]
    compact(session, instructions="look for lorem")
    lines = [r.getMessage() for r in caplog.records if r.name == "compaction.events"]
    assert lines
    assert not [line for line in lines if "lorem" in line or "secret" in line or "\n" in line]
    assert queue.RUN_TASK not in "".join(lines)
