"""manage.py doctor: finds what is wrong, changes nothing unless told to, then repairs it."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError
from django.utils import timezone

from chatapp import transcript
from chatapp.context.backend import context_backend
from chatapp.models import Branch, Message, Session
from chatapp.selectors import path_messages
from chatapp.transcript.writing import NewMessage
from compaction.branches.context_builder import context_of
from compaction.branches.leases import Lease, ensure_state
from compaction.branches.snapshot import snapshot_of
from compaction.doctor import summaries
from compaction.doctor.examine import examine
from compaction.models import (
    CompactionRun,
    CompactionState,
    SessionSummary,
    SessionSummaryMessage,
)
from compaction.runs.worker import compact_branch
from compaction.summaries.restore import restore_summary
from tests.compaction.screened import screened  # noqa: F401
from tests.factories import SessionFactory, call, profile, result, store, talk, user
from tests.made_once import made_once


def doctor(*arguments: str) -> tuple[int, str]:
    """Run the command; return its exit status and what it wrote."""
    out = StringIO()
    try:
        call_command("doctor", *arguments, stdout=out, stderr=StringIO())
    except SystemExit as end:
        return int(end.code), out.getvalue()
    return 0, out.getvalue()


def codes(session: Session) -> list[str]:
    return [finding.code for finding in examine(session.pk)]


@pytest.fixture
@made_once
def session(owner, model_server, queued) -> Session:
    """A session with two summaries and a fork, all well."""
    model_server.script = [{"when": {}, "reply": {"text": "short"}}]
    profile(message_limit=0, max_context_tokens=0)
    session = SessionFactory(owner=owner, wires=[{"role": "system", "content": "rule"}, *talk(6)])
    compact(session)
    store(session, talk(4))
    compact(session)
    store(session, talk(2))
    transcript.fork(session, at=path_messages(session.branch).order_by("-position")[2])
    return Session.objects.select_related("active_branch").get(pk=session.pk)


def compact(session: Session) -> None:
    run = compact_branch(session=session, trigger="manual", reason="manual", keep_last_n=2)
    assert run.status == "succeeded", run.error


def sent(session: Session) -> str:
    fresh = Session.objects.select_related("active_branch").get(pk=session.pk)
    return json.dumps(context_of(snapshot_of(fresh)).messages)


# --- what is well ---------------------------------------------------------------------------------


def test_a_healthy_session_has_no_finding(session):
    assert codes(session) == []
    assert doctor() == (0, "1 session examined: 0 errors, 0 notes.\n")


def test_pins_restores_replays_and_forks_of_them_are_healthy(session):
    transcript.set_pinned(path_messages(session.branch)[3], True)
    store(session, [user("go"), call("f", "c1"), result("c1", "long\n" * 500), *talk(1)])
    row = Message.objects.get(role="tool")
    transcript.replay(session, contents={row.pk: "long"})
    pinned = path_messages(session.branch)[3]
    transcript.replay(session, contents={pinned.pk: "pinned, shorter"})
    transcript.fork(session, at=path_messages(session.branch).order_by("-position")[0])
    newest = SessionSummary.objects.filter(status="active", branch=session.branch)
    restore_summary(newest.order_by("-covers_through")[0], cascade=True)
    assert codes(session) == []


def test_an_imported_placeholder_is_a_note_because_it_has_no_summary_on_purpose(owner, queued):
    session = SessionFactory(owner=owner, wires=talk(3))
    mark = NewMessage(
        wire={"role": "assistant", "content": None},
        kind="placeholder",
        summary="earlier",
        metadata={"type": "session_summary"},
    )
    transcript.append(session.branch, [mark])
    store(session, talk(2))
    assert ensure_state(session.branch).cursor > 0
    assert codes(session) == ["placeholder_bare"]
    assert doctor("--fix")[0] == 0
    assert codes(session) == ["placeholder_bare"]


# --- what is wrong --------------------------------------------------------------------------------


def break_count(session):
    Branch.objects.filter(pk=session.branch.pk).update(message_count=99)


def break_total(session):
    Branch.objects.filter(pk=session.branch.pk).update(token_total=1)


def break_running_sum(session):
    row = path_messages(session.branch).order_by("-position")[1]
    Message.objects.filter(pk=row.pk).update(tokens_through=5)


def break_head(session):
    Branch.objects.filter(pk=session.branch.pk).update(head_position=1)


def put_cursor_outside(session):
    CompactionState.objects.filter(pk=session.branch.pk).update(cursor=10**12)


def hide_messages(session):
    last = path_messages(session.branch).order_by("-position")[0]
    CompactionState.objects.filter(pk=session.branch.pk).update(cursor=last.position)


def break_covered_sums(session):
    CompactionState.objects.filter(pk=session.branch.pk).update(covered_tokens=3)


def expire_lease(session):
    state = CompactionState.objects.get(pk=session.branch.pk)
    Lease.acquire_or_steal(state.pk, uuid.uuid4())
    CompactionState.objects.filter(pk=state.pk).update(
        lease_expires_at=timezone.now() - timedelta(seconds=1)
    )


def forget_active_branch(session):
    Session.objects.filter(pk=session.pk).update(active_branch=None)


@pytest.mark.parametrize(
    ("harm", "code"),
    [
        (break_count, "sums_off"),
        (break_total, "sums_off"),
        (break_running_sum, "sums_off"),
        (break_head, "sums_off"),
        (put_cursor_outside, "cursor_outside"),
        (hide_messages, "messages_hidden"),
        (break_covered_sums, "covered_sums_off"),
        (expire_lease, "lease_expired"),
        (forget_active_branch, "no_active_branch"),
    ],
)
def test_it_is_found_left_alone_and_then_repaired(session, harm, code):
    before = sent(session)
    harm(session)
    assert codes(session) == [code]
    status, said = doctor()
    assert status == 1
    assert code in said
    assert codes(session) == [code]
    status, said = doctor("--fix")
    assert status == 0
    assert "1 repaired" in said
    assert codes(session) == []
    assert sent(session) == before


def test_links_are_read_some_summaries_at_a_time(session, monkeypatch):
    monkeypatch.setattr(summaries, "SUMMARIES_AT_ONCE", 1)
    assert codes(session) == []
    for summary in SessionSummary.objects.all():
        SessionSummaryMessage.objects.filter(summary=summary).first().delete()
    assert codes(session).count("links_missing") == 2


def test_a_summary_without_its_links_is_taken_back_and_its_messages_are_sent(session):
    first = SessionSummary.objects.order_by("covers_through")[0]
    SessionSummaryMessage.objects.filter(summary=first).delete()
    assert "links_missing" in codes(session)
    assert doctor("--fix")[0] == 0
    assert codes(session) == []
    assert set(SessionSummary.objects.values_list("status", flat=True)) == {"restored"}
    assert "question 0" in sent(session)


def test_a_run_whose_worker_is_gone_is_started_again(session, queued):
    long_ago = timezone.now() - timedelta(hours=1)
    run = CompactionRun.objects.filter(session=session)[0]
    CompactionRun.objects.filter(pk=run.pk).update(
        status="running", worker=uuid.uuid4(), started_at=long_ago
    )
    assert codes(session) == ["run_stuck"]
    assert doctor("--fix")[0] == 0
    run.refresh_from_db()
    assert (run.status, run.error_code) == ("failed", "interrupted")
    assert codes(session) == []


@pytest.mark.django_db(transaction=True)
def test_a_run_that_waits_for_long_is_queued_again(session, queued):
    run = CompactionRun.objects.filter(session=session)[0]
    long_ago = timezone.now() - timedelta(hours=1)
    CompactionRun.objects.filter(pk=run.pk).update(status="queued", created_at=long_ago)
    assert codes(session) == ["run_waits"]
    doctor("--fix")
    assert queued == [("compaction.tasks.run_compaction", str(run.pk))]


def test_a_branch_that_a_worker_holds_is_left_alone(session):
    hide_messages(session)
    Lease.acquire_or_steal(session.branch.pk, uuid.uuid4())
    status, said = doctor("--fix")
    assert status == 1
    assert "Not repaired. Another run is compacting this branch" in said
    assert codes(session) == ["messages_hidden"]


# --- notes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wires", "says"),
    [
        ([call("f", "c1"), *talk(1)], "1 tool call without a result, 0 results without a call"),
        ([result("gone"), *talk(1)], "0 tool calls without a result, 1 result without a call"),
    ],
)
def test_unpaired_calls_are_a_note_because_requests_are_mended(owner, wires, says):
    session = SessionFactory(owner=owner, wires=[*talk(1), *wires])
    assert codes(session) == ["calls_unpaired"]
    status, said = doctor()
    assert status == 0
    assert says in said


def test_a_call_that_waits_for_its_result_is_no_finding(owner):
    session = SessionFactory(owner=owner, wires=[*talk(1), call("f", "c1")])
    assert codes(session) == []


def test_a_placeholder_whose_summary_is_gone_is_a_note(session):
    row = Message.objects.filter(kind="placeholder")[0]
    row.metadata = row.metadata | {"summary_id": str(uuid.uuid4())}
    row.save()
    assert codes(session) == ["placeholder_alone"]
    assert doctor()[0] == 0


def placeholder(session: Session, *, text: str) -> None:
    """An old placeholder at the session's end, without a summary row."""
    wire = {"role": "assistant", "content": None}
    mark = NewMessage(
        wire=wire, kind="placeholder", summary=text, metadata={"type": "session_summary"}
    )
    transcript.append(session.branch, [mark])


def words(session: Session) -> str:
    (found,) = examine(session.pk)
    return found.text


def sent_texts(session: Session) -> str:
    session.refresh_from_db()
    return json.dumps(context_backend.preview(session).messages)


def test_what_is_said_of_a_placeholder_without_a_row_is_what_is_sent(owner, model_server, queued):
    profile(keep_last_n=0, message_limit=0, max_context_tokens=0, summary_limit=1)
    session = SessionFactory(owner=owner, wires=talk(3))
    placeholder(session, text="THE OLDER TALE")
    placeholder(session, text="THE NEWER TALE")
    store(session, talk(3))
    assert "As many of the newest texts in them as the profile sends summaries" in words(session)
    assert "THE NEWER TALE" in sent_texts(session)
    assert "THE OLDER TALE" not in sent_texts(session)
    compact(session)
    assert "its summaries are sent, and no text of a placeholder" in words(session)
    assert "TALE" not in sent_texts(session)


def test_a_placeholder_without_a_text_is_said_to_do_nothing(owner, queued):
    session = SessionFactory(owner=owner, wires=talk(3))
    placeholder(session, text="")
    assert codes(session) == ["placeholder_blank"]
    assert "none is ever sent, and none covers a message" in words(session)
    assert "question 0" in sent_texts(session)


def test_notes_of_one_kind_are_told_together_and_errors_one_by_one(owner, queued):
    for _ in range(7):
        placeholder(SessionFactory(owner=owner, wires=talk(1)), text="")
    broken = SessionFactory(owner=owner, wires=talk(2))
    Branch.objects.filter(session=broken).update(token_total=1)
    status, out = doctor()
    assert status == 1
    assert out.count("placeholder_blank") == 1
    assert "7 notes in 7 sessions" in out
    assert "and 2 sessions more; --json names all" in out
    assert out.index("sums_off") < out.index("placeholder_blank")
    _, lines = doctor("--json")
    assert [json.loads(line)["code"] for line in lines.splitlines()].count("placeholder_blank") == 7
    assert "placeholder" not in doctor("--quiet")[1]


def test_one_note_alone_is_told_with_its_place(owner, queued):
    session = SessionFactory(owner=owner, wires=talk(1))
    placeholder(session, text="")
    out = doctor()[1]
    assert f"session {session.pk}, branch" in out
    assert "1 placeholder without a summary row" in out


def test_a_turn_lease_that_ran_out_is_freed(session):
    Session.objects.update(
        turn_owner=uuid.uuid4(), turn_expires_at=timezone.now() - timedelta(seconds=1)
    )
    assert codes(session) == ["turn_lease_expired"]
    doctor("--fix")
    assert Session.objects.get().turn_owner is None


# --- the command ----------------------------------------------------------------------------------


def test_json_is_one_line_a_finding(session):
    break_count(session)
    status, said = doctor("--json")
    (line,) = said.splitlines()
    found = json.loads(line)
    assert status == 1
    assert found["code"] == "sums_off"
    assert found["session"] == str(session.pk)
    assert found["fixed"] is None
    assert found["can_be_fixed"] is True
    assert json.loads(doctor("--json", "--fix")[1])["fixed"] is True
    assert doctor("--json") == (0, "")


def test_only_the_sessions_that_are_asked_for_are_examined(session, owner):
    other = SessionFactory(owner=owner, wires=talk(1))
    break_count(session)
    assert doctor("--session", str(other.pk)[-8:])[0] == 0
    assert doctor("--session", str(session.pk))[0] == 1
    assert doctor("--owner", owner.username)[0] == 1


@pytest.mark.parametrize(
    "arguments", [["--session", "zzz"], ["--session", "0f8b0000"], ["--owner", "nobody"]]
)
@pytest.mark.django_db
def test_wrong_usage_is_a_sentence_and_status_2(arguments):
    with pytest.raises(CommandError) as refused:
        call_command("doctor", *arguments)
    assert refused.value.returncode == 2


def test_quiet_tells_errors_only(owner, session):
    SessionFactory(owner=owner, wires=[result("gone"), *talk(1)])
    assert doctor("--quiet") == (0, "")
    break_count(session)
    status, said = doctor("--quiet")
    assert status == 1
    assert "sums_off" in said
    assert "calls_unpaired" not in said
    assert "examined" not in said


def test_an_error_without_a_repair_leaves_status_1(session):
    fork = Branch.objects.get(session=session, kind="fork")
    Branch.objects.filter(pk=fork.pk).update(fork_position=fork.fork_position - 1)
    status, said = doctor("--fix")
    assert status == 1
    assert "Not repaired. No program can repair this" in said


def test_after_a_stop_signal_the_status_is_that_of_ctrl_c(session, monkeypatch):
    def stopped(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("compaction.management.commands.doctor.examine", stopped)
    with pytest.raises(CommandError, match="Stopped after 0 sessions") as end:
        doctor()
    assert end.value.returncode == 130


def test_a_database_that_is_gone_is_status_2(session, monkeypatch):
    def gone(*arguments, **options):
        raise OperationalError("server closed the connection")

    monkeypatch.setattr("compaction.management.commands.doctor.examine", gone)
    with pytest.raises(CommandError, match="server closed the connection") as end:
        doctor()
    assert end.value.returncode == 2


def test_a_bar_is_drawn_on_a_terminal(session):
    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    err = Terminal()
    call_command("doctor", stdout=StringIO(), stderr=err)
    assert "1 of 1 sessions" in err.getvalue()


def test_the_queries_do_not_grow_with_the_session(session, django_assert_max_num_queries):
    with django_assert_max_num_queries(60) as few:
        examine(session.pk)
    store(session, talk(60))
    with django_assert_max_num_queries(len(few)):
        examine(session.pk)
