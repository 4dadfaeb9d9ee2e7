"""Hooks at a switch to another branch, and the signals that tell of one."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse

from chatapp import transcript
from chatapp.models import Incident, Message, Session
from chatapp.transcript import SwitchRefusedError
from chatapp.transcript.writing import NewMessage
from chatapp.turns.service import Turn, run_turn
from compaction.hooks import BranchAnswer, Cancel
from compaction.models import CompactionRun, CompactionStep, SessionSummary
from compaction.signals import branch_summarised, branch_switched, compacted, compaction_failed
from tests.compaction import toy_hooks as toys
from tests.compaction.support import NEVER
from tests.compaction.test_hooks import FIRST, answering, ids, use_hooks
from tests.factories import SessionFactory, profile, talk, user

__all__ = ["use_hooks"]
pytestmark = pytest.mark.django_db


@pytest.fixture
def session(owner, model_server, queued) -> Session:
    profile(**NEVER, branch_summary="ask")
    return SessionFactory(owner=owner, wires=talk(3, marker=1))


@pytest.fixture
def other(session):
    """A branch that shares the first turn and has one message of its own."""
    second = Message.objects.get(pk=ids(session)[1])
    branch = transcript.fork(session, at=second, label="other")
    transcript.append(branch, [NewMessage(wire=user("Another question"))])
    branch.session = session
    return branch


def switch(session: Session, branch, **wishes: Any) -> CompactionRun | None:
    session.refresh_from_db()
    transcript.switch(session, branch, wishes)
    session.refresh_from_db()
    return CompactionRun.objects.filter(trigger="branch").order_by("-created_at").first()


def fork(api, session: Session, **body: Any):
    """Fork by the API behind the first answer."""
    address = reverse("branch-list", args=[session.pk])
    return api.post(address, {"message": ids(session)[1]} | body, format="json")


def test_a_hook_is_shown_what_only_the_branch_that_is_left_has(session, other, use_hooks):
    use_hooks(FIRST)
    old = session.branch
    run = switch(session, other, summarize=True, instructions="Mind names", label="new name")
    [payload] = [one for one in toys.First.given if hasattr(one, "to_branch")]
    assert (payload.session, payload.from_branch, payload.to_branch) == (
        str(session.pk),
        str(old.pk),
        str(other.pk),
    )
    kept = Message.objects.filter(branch=old).order_by("position").values_list("pk", flat=True)
    assert [one.id for one in payload.messages] == [str(pk) for pk in kept][2:]
    assert payload.common == str(kept[1])
    assert (payload.run, payload.wants_summary) == (str(run.pk), True)
    assert (payload.instructions, payload.label) == ("Mind names", "new name")
    assert run.status == "succeeded"
    assert session.active_branch == other


def test_a_hooks_summary_is_stored_without_a_call(session, other, use_hooks, model_server):
    toys.First.branch = answering(
        BranchAnswer(summary="They tried boots.", details={"k": 1}, label="boots")
    )
    use_hooks(FIRST)
    run = switch(session, other, summarize=True)
    assert (run.status, run.error, run.model_calls) == ("succeeded", "", 0)
    summary = SessionSummary.objects.get(kind="branch")
    assert (summary.summary_text, summary.from_hook, summary.details) == (
        "They tried boots.",
        True,
        {"k": 1},
    )
    note = Message.objects.get(kind="note")
    assert "They tried boots." in note.content
    other.refresh_from_db()
    assert other.label == "boots"
    assert model_server.calls == []


def test_instructions_of_a_hook_reach_the_model(session, other, use_hooks, model_server):
    toys.First.branch = answering(BranchAnswer(instructions="Name every boot size."))
    use_hooks(FIRST)
    run = switch(session, other, summarize=True, instructions="Mind names")
    assert (run.status, run.instructions) == ("succeeded", "Name every boot size.")
    assert "Name every boot size." in str(model_server.calls[-1].messages)
    assert "Mind names" not in str(model_server.calls[-1].messages)


def test_cancel_leaves_the_session_where_it_is(session, other, use_hooks, model_server):
    toys.First.branch = answering(Cancel("Finish this first."))
    use_hooks(FIRST)
    old = session.branch
    run = switch(session, other, summarize=True)
    assert (run.status, run.error_code) == ("cancelled", "hook_cancelled")
    assert "Finish this first." in run.error
    assert session.active_branch == old
    with pytest.raises(SwitchRefusedError, match=r"Finish this first\."):
        switch(session, other)
    session.refresh_from_db()
    assert session.active_branch == old
    assert not Message.objects.filter(kind="note").exists()


def test_the_api_tells_a_hooks_no_as_a_conflict(session, other, use_hooks, api):
    toys.First.branch = answering(Cancel("Finish this first."))
    use_hooks(FIRST)
    answer = api.post(reverse("branch-activate", args=[other.pk]), {}, format="json")
    assert answer.status_code == 409
    assert "Finish this first." in answer.data["detail"]


def test_a_no_to_a_fork_leaves_no_branch_behind(session, use_hooks, api):
    toys.First.branch = answering(Cancel("Finish this first."))
    use_hooks(FIRST)
    answer = fork(api, session, label="Second try")
    assert answer.status_code == 409
    assert "Finish this first." in answer.data["detail"]
    assert [branch.pk for branch in session.branches.all()] == [session.active_branch_id]
    assert fork(api, session, activate=False).status_code == 201


def test_a_hook_reads_the_name_that_a_fork_was_given(session, use_hooks, api):
    use_hooks(FIRST)
    assert fork(api, session, label="Second try").data["label"] == "Second try"
    assert fork(api, session).data["label"] == ""
    assert [payload.label for payload in toys.First.given] == ["Second try", None]
    toys.First.branch = answering(BranchAnswer(label="by hook"))
    assert fork(api, session, label="Second try").data["label"] == "by hook"


def test_nobody_gets_round_a_no_by_calling_a_switch_an_edit(session, other, use_hooks, api):
    toys.First.branch = answering(Cancel("Finish this first."))
    use_hooks(FIRST)
    address = reverse("branch-activate", args=[other.pk])
    answer = api.post(address, {"wishes": {"edits": True}}, format="json")
    assert answer.status_code == 409


def test_a_plain_switch_asks_too_and_takes_a_label_but_no_summary(session, other, use_hooks):
    toys.First.branch = answering(BranchAnswer(summary="Not wanted.", label="by hook"))
    use_hooks(FIRST)
    assert switch(session, other) is None
    assert session.active_branch == other
    other.refresh_from_db()
    assert other.label == "by hook"
    assert not SessionSummary.objects.exists()
    [payload] = toys.First.given
    assert (payload.wants_summary, payload.run) == (False, None)


@pytest.mark.parametrize("name", ["OldName", "OlderName"])
def test_the_names_that_coding_agents_use_are_known(session, other, use_hooks, name):
    use_hooks(f"{toys.HERE}.{name}")
    switch(session, other)
    other.refresh_from_db()
    assert other.label == "from a hook"


NONSENSE = {
    "blank": BranchAnswer(summary="  "),
    "larger": BranchAnswer(summary="lorem ipsum " * 3000),
    "no text": BranchAnswer(summary=3),
    "a long label": BranchAnswer(label="x" * 121),
    "a label of another kind": BranchAnswer(label=7),
    "long instructions": BranchAnswer(instructions="x" * 4001),
    "a text for yes or no": BranchAnswer(instructions="Mind names", replaces_instructions="no"),
    "a number for yes or no": BranchAnswer(replaces_instructions=1),
    "details": BranchAnswer(summary="x", details={1: {2}}),
    "a text": "summary",
    "raises": lambda payload: 1 / 0,
}


@pytest.mark.parametrize("kind", NONSENSE)
def test_nonsense_is_passed_over_and_the_default_goes_on(session, other, use_hooks, kind):
    toys.First.branch = answering(NONSENSE[kind])
    use_hooks(FIRST)
    run = switch(session, other, summarize=True)
    assert (run.status, run.error) == ("succeeded", "")
    assert not SessionSummary.objects.get(kind="branch").from_hook
    assert FIRST in CompactionStep.objects.get(run=run, kind="hook").error
    assert Incident.objects.filter(code="hook_failed").count() == 1
    other.refresh_from_db()
    assert other.label == "other"
    assert (run.instructions, run.replaces_instructions) == ("", False)


def test_an_edit_asks_nobody(session, use_hooks):
    toys.First.branch = answering(Cancel("No."))
    use_hooks(FIRST)
    first = Message.objects.get(pk=ids(session)[0])
    draft = NewMessage(wire=user("Asked anew"))
    result = run_turn(Turn(session=session, drafts=[draft], edits=first))
    assert result.answer is not None
    assert [one for one in toys.First.given if hasattr(one, "to_branch")] == []


# --- signals --------------------------------------------------------------------------------------


@pytest.fixture
def heard():
    found: list[tuple[Any, dict[str, Any]]] = []

    def hear(signal, **facts):
        facts.pop("sender")
        found.append((signal, facts))

    known = (branch_summarised, branch_switched, compacted, compaction_failed)
    for signal in known:
        signal.connect(hear)
    yield found
    for signal in known:
        signal.disconnect(hear)


def test_a_switch_with_a_summary_is_told_twice_and_is_no_compaction(
    session, other, heard, django_capture_on_commit_callbacks
):
    old = session.branch
    with django_capture_on_commit_callbacks(execute=True):
        run = switch(session, other, summarize=True)
    summary = SessionSummary.objects.get(kind="branch")
    about = {"session": str(session.pk), "branch": str(other.pk), "from_branch": str(old.pk)}
    assert heard == [
        (
            branch_summarised,
            about
            | {
                "run": str(run.pk),
                "summary": str(summary.pk),
                "messages": summary.message_count,
                "from_hook": False,
            },
        ),
        (branch_switched, about | {"summary": str(summary.pk)}),
    ]


def test_a_plain_switch_is_told_without_a_summary(
    session, other, heard, django_capture_on_commit_callbacks
):
    with django_capture_on_commit_callbacks(execute=True):
        switch(session, other)
    [(signal, facts)] = heard
    assert (signal, facts["branch"], facts["summary"]) == (branch_switched, str(other.pk), None)
