"""Reports of a server that say nothing of the next request: they start no compaction."""

from __future__ import annotations

import pytest
from django.urls import reverse

from chatapp import transcript
from chatapp.messages.wire import DOUBTED_USAGE, REQUEST_MARK
from chatapp.models import Message, Session
from chatapp.turns.attempts import TurnAttempts
from chatapp.turns.service import TurnFailedError
from compaction.branches.planning import decision_of
from compaction.branches.snapshot import NO_SUMMARY, BranchSnapshot, snapshot_of
from compaction.models import CompactionRun
from tests.compaction.support import NEVER, compact, say
from tests.compaction.test_reported_size import add
from tests.factories import SessionFactory, profile, talk

pytestmark = pytest.mark.django_db
BY_USAGE = NEVER | {
    "window_trigger": True,
    "context_size_by": "usage",
    "keep_last_n": 4,
    "reserve_tokens": 60_000,
}

# Above what the reserve leaves of the window, and not more than anybody believes.
LARGE = 90_000


def usage(prompt: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": 5, "total_tokens": prompt + 5}


def answering(server, prompt: int) -> None:
    """Have the server report that size with each answer, and summarise as always."""
    others = [rule for rule in server.script if rule["when"].get("purpose") != "chat"]
    reply = {"text": "ok", "usage": usage(prompt)}
    server.script = [*others, {"when": {"purpose": "chat"}, "reply": reply}]


def now(session: Session) -> BranchSnapshot:
    return snapshot_of(Session.objects.get(pk=session.pk))


@pytest.fixture
def session(owner, model_server, queued) -> Session:
    profile(**BY_USAGE)
    return SessionFactory(owner=owner, wires=talk(12, marker=1))


def test_an_answer_whose_request_was_compacted_meanwhile_says_nothing(
    session, model_server, monkeypatch
):
    answering(model_server, LARGE)
    ask, compacted = TurnAttempts._ask, []

    def meanwhile(self, model, request):
        if not compacted:
            compacted.append(compact(session).status)
        return ask(self, model, request)

    monkeypatch.setattr(TurnAttempts, "_ask", meanwhile)
    answer = say(session, "one").answer
    assert compacted == ["succeeded"]
    assert answer.metadata[REQUEST_MARK] == NO_SUMMARY
    assert DOUBTED_USAGE not in answer.metadata
    assert now(session).reported_size is None
    assert decision_of(now(session)) is None
    assert CompactionRun.objects.count() == 1


def test_the_next_answer_is_of_the_new_request_and_counts(session, model_server):
    compact(session)
    answering(model_server, 640)
    say(session, "one")
    found = now(session).reported_size
    assert found is not None
    assert found.reported == 645


@pytest.mark.parametrize("marked", [True, False])
def test_a_fork_behind_a_compaction_goes_by_no_older_report(session, model_server, api, marked):
    mark = {REQUEST_MARK: NO_SUMMARY} if marked else {}
    add(session, "user", "q1", tokens=2)
    add(session, "assistant", "a1", tokens=2, usage=usage(LARGE), metadata=mark)
    question = add(session, "user", "q2", tokens=2)
    add(session, "assistant", "a2", tokens=2, usage=usage(LARGE + 100), metadata=mark)
    assert compact(session).status == "succeeded"
    answering(model_server, 600)
    answer = api.post(
        reverse("turn", args=[session.pk]),
        {"content": "rather this", "edits": str(question.pk)},
        format="json",
    )
    assert answer.status_code == 200
    # The one by hand.
    assert CompactionRun.objects.count() == 1


@pytest.mark.parametrize("prompt", [5_000_000, 1])
def test_a_report_that_nobody_believes_is_no_size(session, model_server, prompt):
    answering(model_server, prompt)
    answer = say(session, "hi").answer
    assert answer.metadata[DOUBTED_USAGE] is True
    assert now(session).reported_size is None
    assert not CompactionRun.objects.exists()


def test_a_prompt_of_no_tokens_was_not_counted(session, model_server):
    answering(model_server, 0)
    say(session, "hi")
    assert now(session).reported_size is None


def test_a_request_that_held_only_a_part_reports_a_part(owner, model_server, queued):
    profile(**BY_USAGE | {"max_overflow_compaction_attempts": 0, "truncate_tool_results": False})
    long = [
        {"role": role, "content": "word " * 1500}
        for _ in range(15)
        for role in ("user", "assistant")
    ]
    session = SessionFactory(owner=owner, wires=long)
    refusal = {
        "status": 400,
        "body": {
            "error": {
                "message": "This model's maximum context length is 30000 tokens. However, your "
                "messages resulted in 45000 tokens.",
                "code": "context_length_exceeded",
            }
        },
    }
    model_server.script = [
        {"when": {"purpose": "chat", "call": 1}, "reply": {"error": refusal}},
        {"when": {"purpose": "chat"}, "reply": {"text": "ok", "usage": usage(20_000)}},
    ]
    answer = say(session, "hi").answer
    assert len(model_server.calls[-1].messages) < 31
    assert answer.metadata[REQUEST_MARK] == "part"
    assert now(session).reported_size is None


def test_a_branch_that_repeats_another_keeps_its_reports(session, model_server):
    answering(model_server, 700)
    say(session, "one")
    copied = Message.objects.filter(session=session, usage__isnull=False).get()
    assert copied.metadata[REQUEST_MARK] == NO_SUMMARY
    branch = transcript.fork(session, at=copied)
    transcript.switch(session, branch)
    assert now(session).reported_size.reported == 705


def overloaded(server) -> None:
    """Have the server refuse every answer as overloaded, at once and for good."""
    others = [rule for rule in server.script if rule["when"].get("purpose") != "chat"]
    body = {"error": {"message": "529 overloaded", "type": "overloaded_error"}}
    error = {"status": 529, "body": body, "headers": {"Retry-After": "0"}}
    server.script = [*others, {"when": {"purpose": "chat"}, "reply": {"error": error}}]


def runs() -> list[tuple[str, str]]:
    return list(CompactionRun.objects.order_by("created_at").values_list("reason", "status"))


def test_an_outage_behind_a_large_report_compacts_by_that(session, model_server):
    answering(model_server, LARGE)
    say(session, "one")
    overloaded(model_server)
    with pytest.raises(TurnFailedError):
        say(session, "two")
    assert ("window", "succeeded") in runs()


def test_an_outage_without_a_report_compacts_nothing(session, model_server):
    overloaded(model_server)
    with pytest.raises(TurnFailedError):
        say(session, "one")
    assert runs() == []


@pytest.mark.parametrize("marked", [True, False])
def test_an_outage_with_a_report_from_before_a_compaction_compacts_nothing(
    session, model_server, marked
):
    mark = {REQUEST_MARK: NO_SUMMARY} if marked else {}
    add(session, "user", "q", tokens=2)
    add(session, "assistant", "a", tokens=2, usage=usage(LARGE), metadata=mark)
    assert compact(session).status == "succeeded"
    assert now(session).rows[-1].usage is not None
    overloaded(model_server)
    with pytest.raises(TurnFailedError):
        say(session, "one")
    assert runs() == [("manual", "succeeded")]
