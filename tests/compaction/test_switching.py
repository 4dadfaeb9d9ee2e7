"""Switching to another branch with a summary of the one that is left."""

from __future__ import annotations

import re
from datetime import timedelta
from uuid import UUID

import pytest
from django.utils import timezone

from chatapp import transcript
from chatapp.context.backend import context_backend
from chatapp.models import Branch, Message, Session
from chatapp.transcript.writing import NewMessage
from compaction.admin.step_input import StepInput
from compaction.branches.left_branch import LeftBranch
from compaction.branches.snapshot import snapshot_of
from compaction.doctor.examine import examine
from compaction.errors import CompactionError, SwitchUnderWayError
from compaction.limits.budget import Overspent
from compaction.models import CompactionRun, ModelBreaker, SessionSummary
from compaction.profiles import save_profile
from compaction.runs import branch_run, lifecycle
from compaction.runs.resummarize import resummarize
from compaction.runs.switching import SwitchWishes, request_switch
from compaction.runs.worker import execute_run
from compaction.selectors import branch_summaries_of
from compaction.summaries import summarizer
from compaction.summaries.restore import restore_summary
from tests.compaction.support import NEVER, compact, sent
from tests.factories import SessionFactory, call, profile, result, store, user
from tests.fakes.strict_checker import faults

pytestmark = pytest.mark.django_db

WORDS = " words that somebody said at some length" * 3


def said(name: str, role: str = "user") -> dict:
    return {"role": role, "content": f"{name}:{WORDS}"}


def names(messages) -> list[str]:
    """The names of what was said, in order."""
    return [message.text.partition(":")[0] for message in messages]


@pytest.fixture
def session(owner, model_server, queued) -> Session:
    """A-B-C-D-E-F on the active branch."""
    profile(**NEVER)
    wires = [
        said(name, role) for name, role in zip("ABCDEF", ["user", "assistant"] * 3, strict=True)
    ]
    return SessionFactory(owner=owner, wires=wires)


def at(session: Session, name: str) -> Message:
    return Message.objects.get(session=session, content__startswith=f"{name}:")


@pytest.fixture
def other(session) -> Branch:
    """B-G-H: a branch beside the active one."""
    branch = transcript.fork(session, at=at(session, "B"))
    branch.session = session
    for name, role in (("G", "user"), ("H", "assistant")):
        transcript.append(branch, [NewMessage(wire=said(name, role))])
    return branch


def switch(session: Session, branch: Branch, **wishes) -> CompactionRun | None:
    session.refresh_from_db()
    return request_switch(session, branch, SwitchWishes(summarize=True, **wishes))


def left(session: Session, new: Branch) -> list[str]:
    found = LeftBranch(snapshot=snapshot_of(session, session.branch), new=new)
    return names(entry.item for entry in found.entries)


def test_it_reads_from_the_old_leaf_to_the_common_ancestor(session, other):
    assert left(session, other) == ["C", "D", "E", "F"]
    back = transcript.fork(session, at=at(session, "C"))
    assert left(session, back) == ["D", "E", "F"]


def test_going_down_leaves_nothing(session, other):
    short = transcript.fork(session, at=at(session, "B"))
    transcript.activate(session, short)
    assert left(session, other) == []
    assert switch(session, other) is None


def test_the_summary_becomes_a_note_at_the_end_of_the_new_branch(session, other, model_server):
    old, leaf = session.branch, at(session, "F")
    run = switch(session, other)
    assert (run.status, run.error, run.trigger, run.branch) == ("succeeded", "", "branch", old)
    session.refresh_from_db()
    assert session.active_branch == other
    summary = SessionSummary.objects.get(run=run)
    assert (summary.kind, summary.branch, summary.from_branch) == ("branch", other, old)
    assert summary.from_message == leaf
    assert summary.covers_from == at(session, "C").position
    assert summary.covers_through == leaf.position
    linked = Message.objects.filter(summary_links__summary=summary).order_by("position")
    assert [row.content[0] for row in linked] == ["C", "D", "E", "F"]
    other.refresh_from_db()
    note = Message.objects.get(branch=other, position=other.head_position)
    assert (note.kind, note.role, note.metadata["summary_id"]) == ("note", "user", str(summary.pk))
    assert summary.summary_text in note.content
    assert [call.purpose for call in model_server.calls] == ["branch"]
    [step] = run.steps.all()
    assert (step.kind, step.message_count) == ("branch", 4)
    assert not examine(session.pk)


def test_the_next_request_tells_the_summary_and_counts_it_once(session, other):
    before = sum(
        row.tokens for row in Message.objects.filter(session=session, content__regex="^[ABGH]:")
    )
    switch(session, other)
    session.refresh_from_db()
    context = context_backend.preview(session)
    note = Message.objects.get(kind="note")
    assert context.messages[-1]["content"] == note.content
    assert context.account.summaries == note.tokens
    assert context.account.kept + context.account.pending == before


def test_a_later_compaction_reads_the_note_as_any_message(session, other, model_server):
    switch(session, other)
    session.refresh_from_db()
    store(session, [said("I"), said("J", "assistant")])
    run = compact(session, keep_last_n=0)
    assert run.status == "succeeded"
    assert "note: The user explored another branch" in model_server.of("summary")[-1].text


def test_a_branch_that_came_back_tells_what_it_was_told(session, other, model_server):
    """The note of the first switch is read by the second: nothing learnt is lost on the way."""
    old = session.branch
    switch(session, other)
    run = switch(session, old)
    assert run.status == "succeeded"
    assert "explored another branch" in model_server.of("branch")[-1].text
    session.refresh_from_db()
    assert session.active_branch == old
    assert list(branch_summaries_of(old)) == [SessionSummary.objects.get(run=run)]


def test_summaries_of_the_left_stretch_are_read_too(session, other, model_server):
    compact(session, keep_last_n=2)
    text = SessionSummary.objects.get().summary_text
    session.refresh_from_db()
    found = LeftBranch(snapshot=snapshot_of(session, session.branch), new=other)
    assert [entry.is_summary for entry in found.entries] == [False, False, True, False, False]
    switch(session, other)
    assert text in model_server.of("branch")[-1].text


def test_a_restored_summary_is_not_read(session, other):
    compact(session, keep_last_n=2)
    restore_summary(SessionSummary.objects.get())
    session.refresh_from_db()
    assert left(session, other) == ["C", "D", "E", "F"]


def test_files_of_the_stretch_stand_in_columns_and_in_the_note(session, other):
    store(
        session,
        [
            call("read", "c1", '{"path": "b"}'), result("c1"),
            call("edit", "c2", '{"path": "a"}'), result("c2"),
            said("Z", "assistant"),
        ],
    )  # fmt: skip
    switch(session, other)
    summary = SessionSummary.objects.get()
    assert (summary.files_read, summary.files_modified) == (["b"], ["a"])
    assert "<read-files>\nb\n</read-files>" in Message.objects.get(kind="note").content
    assert "<read-files>" not in summary.summary_text


def test_files_of_nested_branch_summaries_go_on(session, other):
    store(session, [call("edit", "c2", '{"path": "a"}'), result("c2"), said("Z", "assistant")])
    old = session.branch
    switch(session, other)
    run = switch(session, old)
    assert SessionSummary.objects.get(run=run).files_modified == ["a"]


def test_it_calls_nobody_where_nothing_was_said(session, model_server):
    back = transcript.fork(session, at=at(session, "F"))
    done = transcript.switch(session, back, {"summarize": True})
    assert (done.is_done, done.run) == (True, None)
    assert not CompactionRun.objects.exists()
    assert not model_server.calls


def test_a_failing_summariser_changes_nothing(session, other, model_server):
    model_server.script = [
        {"when": {"purpose": "branch"}, "reply": {"error": {"status": 400, "body": {}}}}
    ]
    old = session.branch
    run = switch(session, other)
    assert run.status == "failed"
    assert run.error
    session.refresh_from_db()
    assert session.active_branch == old
    assert not SessionSummary.objects.exists()
    assert not Message.objects.filter(kind="note").exists()


def test_it_waits_in_the_queue_and_switches_when_it_ends(
    session, other, queued, django_capture_on_commit_callbacks
):
    old = session.branch
    with django_capture_on_commit_callbacks(execute=True):
        run = switch(session, other, wait=False, label="Tried")
    assert (run.status, run.mode) == ("queued", "background")
    session.refresh_from_db()
    assert session.active_branch == old
    [(_, key)] = queued
    execute_run(UUID(key))
    session.refresh_from_db()
    other.refresh_from_db()
    assert (session.active_branch, other.label) == (other, "Tried")


@pytest.mark.parametrize("where", ["old", "new"])
def test_who_goes_on_talking_before_a_worker_comes_is_not_taken_away(session, other, where):
    old = session.branch
    run = switch(session, other, wait=False)
    branch = old if where == "old" else other
    transcript.append(branch, [NewMessage(wire=said("X"))])
    run = execute_run(run.pk)
    assert (run.status, run.error_code) == ("failed", "lost_race")
    assert "after the switch was asked for" in run.error
    assert Session.objects.get(pk=session.pk).active_branch == old


def test_messages_that_an_import_dates_in_the_future_hold_up_no_switch(session, other):
    later = timezone.now() + timedelta(days=1)
    transcript.append(session.branch, [NewMessage(wire=said("X"), created_at=later)])
    assert switch(session, other).status == "succeeded"


def test_its_sizes_are_those_of_the_request_that_follows(session, other):
    session.refresh_from_db()
    run = switch(session, other)
    summary, note = SessionSummary.objects.get(), Message.objects.get(kind="note")
    session.refresh_from_db()
    used = context_backend.preview(session).account.used
    assert (run.tokens_before, summary.tokens_before) == (used - note.tokens - 4,) * 2
    assert abs(run.tokens_after - used) <= 5


def test_a_second_switch_is_refused_while_one_is_under_way(session, other):
    run = switch(session, other, wait=False)
    with pytest.raises(SwitchUnderWayError, match=str(run.pk)):
        switch(session, other)
    lifecycle.cancel_run(run)
    assert switch(session, other).status == "succeeded"


@pytest.mark.parametrize("where", ["old", "new"])
def test_a_message_that_arrives_meanwhile_makes_it_lose(session, other, where, monkeypatch):
    old = session.branch

    def arrive(*call, **named):
        branch = old if where == "old" else other
        transcript.append(branch, [NewMessage(wire=said("X"))])

    during(monkeypatch, arrive)
    run = switch(session, other)
    assert (run.status, run.error_code) == ("failed", "lost_race")
    assert "went on" in run.error
    session.refresh_from_db()
    assert session.active_branch == old
    assert not SessionSummary.objects.exists()
    assert not Message.objects.filter(kind="note").exists()


def test_another_active_branch_meanwhile_makes_it_lose(session, other, monkeypatch):
    third = transcript.fork(session, at=at(session, "D"))
    during(monkeypatch, lambda: transcript.activate(session, third))
    run = switch(session, other)
    assert (run.status, run.error_code) == ("failed", "lost_race")
    assert Session.objects.get(pk=session.pk).active_branch == third
    assert not SessionSummary.objects.exists()


def test_a_cancelled_run_changes_nothing(session, other, monkeypatch):
    old = session.branch
    during(monkeypatch, lambda: lifecycle.cancel_run(CompactionRun.objects.get()))
    run = switch(session, other)
    assert run.status == "cancelled"
    assert Session.objects.get(pk=session.pk).active_branch == old
    assert not SessionSummary.objects.exists()


def during(monkeypatch, happens) -> None:
    """Have something happen once the model has answered, before anything is stored."""
    real = branch_run.summarise

    def summarise(*call, **named):
        outcome = real(*call, **named)
        happens()
        return outcome

    monkeypatch.setattr(branch_run, "summarise", summarise)


def test_it_is_neither_restored_nor_made_again(session, other):
    switch(session, other)
    summary = SessionSummary.objects.get()
    with pytest.raises(CompactionError, match="cannot be restored"):
        restore_summary(summary)
    with pytest.raises(CompactionError, match="not made again"):
        resummarize(summary)


def test_it_works_without_a_model(owner, model_server, queued):
    profile(**NEVER, summariser="extractive")
    session = SessionFactory(
        owner=owner, wires=[user(f"A: We decided to use port 844{n}. {WORDS}") for n in range(6)]
    )
    first = Message.objects.filter(session=session).order_by("position").first()
    new = transcript.fork(session, at=first)
    new.session = session
    run = switch(session, new)
    assert (run.status, run.error) == ("succeeded", "")
    assert not model_server.calls
    assert SessionSummary.objects.get().model == "extractive"


def test_what_is_too_large_is_halved(session, other, model_server):
    body = {"error": {"code": "context_length_exceeded", "message": "too long"}}
    model_server.script = [
        {
            "when": {"purpose": "branch", "call": 1},
            "reply": {"error": {"status": 400, "body": body}},
        },
        *model_server.script,
        {"when": {"purpose": "merge"}, "reply": {"text": "## Goal\nBoth parts."}},
    ]
    profile(**NEVER, bisect_min_messages=2)
    run = switch(session, other)
    assert (run.status, run.error) == ("succeeded", "")
    assert [step.kind for step in run.steps.order_by("order")] == ["branch"] * 3 + ["merge"]


def test_secrets_are_hidden_from_the_summariser(session, other, model_server):
    key = "sk-proj-" + "a1B2c3D4" * 6
    store(session, [user(f"The key is {key}."), said("Z", "assistant")])
    profile(**NEVER, redact_secrets=True)
    switch(session, other)
    assert key not in model_server.of("branch")[0].text


def test_a_replay_takes_its_branch_summaries_along(session, other):
    switch(session, other)
    session.refresh_from_db()
    store(session, [call("read", "c1"), result("c1", "long " * 100), said("Z", "assistant")])
    row = Message.objects.get(session=session, role="tool")
    at_b = Message.objects.get(session=session, content__startswith="G:")
    done = transcript.replay(session, contents={row.pk: "short", at_b.pk: "G: short"})
    [copy] = branch_summaries_of(done.new)
    note = Message.objects.get(branch=done.new, kind="note")
    assert (copy.branch, copy.metadata["note"]) == (done.new, str(note.pk))
    assert note.metadata["summary_id"] == str(copy.pk)
    assert not examine(session.pk)
    assert sent(session)


def test_the_pages_of_a_switch_are_shown(session, other, admin_client):
    run = switch(session, other)
    summary = SessionSummary.objects.get()
    step = run.steps.get()
    note = Message.objects.get(kind="note")
    for address in (
        f"compaction/compactionrun/{run.pk}/change/",
        f"compaction/compactionstep/{step.pk}/change/",
        f"compaction/sessionsummary/{summary.pk}/change/",
        f"chatapp/session/{session.pk}/change/",
        f"chatapp/message/{note.pk}/change/",
        "compaction/sessionsummary/",
        "compaction/compactionrun/",
        "chatapp/message/",
        "",
    ):
        assert admin_client.get(f"/admin/{address}").status_code == 200, address


def test_a_steps_page_shows_what_the_summariser_was_given(session, other, model_server):
    store(session, [call("read", "c1", '{"path": "b"}'), result("c1"), said("Z", "assistant")])
    compact(session, keep_last_n=4)
    run = switch(session, other, instructions="Mind the ports.")
    shown = StepInput(run.steps.get())
    assert shown.is_complete
    asked = "\n\n".join(message["content"] for message in model_server.of("branch")[0].messages)
    assert without_ids("".join(shown.pieces())) == without_ids(asked)


def without_ids(text: str) -> str:
    """The text without the numbers that nobody can guess."""
    text = re.sub(r" id=[0-9a-f]{8}>", ">", text)
    text = re.sub(r"^[0-9a-f]{8} (?=\[\d)", "", text, flags=re.MULTILINE)
    return re.sub(r"^[0-9a-f]{8} calls ", "  calls ", text, flags=re.MULTILINE)


def test_a_note_between_a_call_and_its_result_keeps_every_request_strict(session, other):
    """The branch that is switched to waits for a tool: the note comes before its result."""
    transcript.append(other, [NewMessage(wire=call("read", "c1"))])
    run = switch(session, other)
    assert run.status == "succeeded"
    session.refresh_from_db()
    store(session, [result("c1", "what was read"), said("I")])
    messages = sent(session)
    assert not faults(messages)
    assert any("explored another branch" in str(message["content"]) for message in messages)
    assert not examine(session.pk)


def test_the_doctor_tells_of_a_summary_that_no_note_tells(session, other):
    switch(session, other)
    Message.objects.filter(kind="note").update(kind="message")
    assert [finding.code for finding in examine(session.pk)] == ["branch_summary_untold"]


def test_it_is_skipped_past_the_budget_and_changes_nothing(
    session, other, model_server, monkeypatch
):
    over = Overspent(sentence="Too much.", frees_at=timezone.now() + timedelta(hours=1))
    monkeypatch.setattr(summarizer, "may_be_overspent", lambda spent: True)
    monkeypatch.setattr(summarizer, "overspent", lambda session: over)
    old = session.branch
    run = switch(session, other)
    assert (run.status, run.error_code, run.error) == ("skipped", "over_budget", "Too much.")
    assert not model_server.calls
    assert Session.objects.get(pk=session.pk).active_branch == old


def test_it_waits_in_the_queue_for_a_model_that_is_left_alone(session, other):
    model = snapshot_of(session).model
    now = timezone.now()
    ModelBreaker.objects.create(model=model.alias, opened_at=now, retry_at=now + timedelta(hours=1))
    run = switch(session, other, wait=False)
    execute_run(run.pk)
    run.refresh_from_db()
    assert (run.status, run.error_code) == ("queued", "breaker_open")
    assert run.waits_until is not None
    with pytest.raises(SwitchUnderWayError):
        switch(session, other)


def test_lists_of_files_behind_a_note_are_no_text_to_a_summariser(owner, model_server, queued):
    parameters = {"keep_recent_tokens": 20, "quality_gate": False, "reserve_tokens": 1000}
    save_profile(name="point", base="checkpoint", parameters=parameters, make_default=True)
    session = SessionFactory(owner=owner, wires=[said("A"), said("B", "assistant")])
    other = transcript.fork(session, at=at(session, "B"))
    wires = [user("Read it"), call("read", "c1", '{"path": "zebra.py"}'), result("c1", "stripes")]
    store(session, [*wires, said("Done", "assistant")])
    assert switch(session, other).status == "succeeded"
    session = Session.objects.get(pk=session.pk)
    note = Message.objects.get(session=session, kind="note")
    assert "<read-files>\nzebra.py" in note.content
    store(session, [said(name, role) for name in "GHI" for role in ("user", "assistant")])
    before = len(model_server.calls)
    run = compact(session)
    assert (run.status, run.error) == ("succeeded", "")
    given = str([one.messages for one in model_server.calls[before:]])
    assert note.content.partition("<summary>\n")[2].partition("\n</summary>")[0] in given
    assert "zebra.py" not in given
    summary = SessionSummary.objects.get(run=run)
    assert "zebra.py" in summary.files_read
    shown = "".join("".join(StepInput(step).message_blocks()) for step in run.steps.all())
    assert "zebra.py" not in shown
