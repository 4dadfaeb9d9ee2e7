"""After a refused request: one full compaction, one retry."""

from __future__ import annotations

import uuid

import pytest

from chatapp.models import Message
from chatapp.transcript.writing import NewMessage
from chatapp.turns.service import Turn, TurnFailedError, run_turn
from compaction.branches.leases import Lease, ensure_state
from compaction.models import CompactionRun, CompactionState, RecoveryStep, SessionSummary
from compaction.selectors import compactions_since_question
from tests.compaction.support import NEVER, say, state, stored
from tests.factories import SessionFactory, call, profile, result, store, talk, user
from tests.facts import CODE_PATTERN

pytestmark = pytest.mark.django_db
OVERFLOW = {
    "error": {
        "status": 400,
        "body": {"error": {"code": "context_length_exceeded", "message": "too long"}},
    }
}
WRONG_KEY = {
    "error": {"status": 401, "body": {"error": {"message": "Incorrect API key provided."}}}
}


def overflow_once() -> list[dict]:
    return [
        {"when": {"purpose": "chat", "call": 1}, "reply": OVERFLOW},
        {"when": {"purpose": "chat"}, "reply": {"text": "the answer"}},
        {"when": {}, "reply": {"echo_markers": CODE_PATTERN, "prefix": "SUMMARY "}},
    ]


@pytest.fixture
def session(owner, model_server, queued):
    model_server.script = overflow_once()
    profile(**NEVER, keep_last_n=6)
    return SessionFactory(owner=owner, wires=talk(6, marker=1))


def test_the_turn_is_answered_after_one_compaction(session, model_server):
    assert say(session, "THE QUESTION").answer.content == "the answer"
    assert [c.purpose for c in model_server.calls] == ["chat", "summary", "chat"]
    run = CompactionRun.objects.get()
    assert (run.trigger, run.reason, run.status) == (
        "overflow_retry", "overflow_retry", "succeeded",
    )  # fmt: skip


def test_the_question_is_sent_verbatim_and_not_summarised(session, model_server):
    say(session, "THE QUESTION")
    retried = model_server.of("chat")[1].messages
    assert retried[-1] == {"role": "user", "content": "THE QUESTION"}
    assert "THE QUESTION" not in model_server.of("summary")[0].text


def test_everything_before_the_question_is_summarised(session):
    say(session, "THE QUESTION")
    summary = SessionSummary.objects.get()
    assert summary.message_count == 12
    assert summary.keep_last_n == 0


def test_an_overflow_that_lasts_ends_the_turn_with_what_to_do(session, model_server):
    model_server.script = [
        {"when": {"purpose": "chat"}, "reply": OVERFLOW},
        {"when": {}, "reply": {"text": "short"}},
    ]
    with pytest.raises(TurnFailedError, match="use a model with a larger window"):
        say(session)
    assert len(model_server.of("chat")) == 2
    assert len(model_server.summarising()) == 1
    assert stored(session)[-1].content == "hello"


def test_a_compaction_that_fails_is_not_followed_by_the_same_request(session, model_server):
    profile(**NEVER, halve_history=False)
    model_server.script = [
        {"when": {"purpose": "chat"}, "reply": OVERFLOW},
        {"when": {}, "reply": WRONG_KEY},
    ]
    with pytest.raises(TurnFailedError, match="key"):
        say(session)
    assert len(model_server.of("chat")) == 1
    assert state(session).cursor == 0


def test_with_the_retry_switched_off_nothing_is_compacted(session, model_server):
    profile(**NEVER, retry_on_context_overflow=False)
    with pytest.raises(TurnFailedError, match="switched off"):
        say(session)
    assert not CompactionRun.objects.exists()


def test_with_compaction_switched_off_nothing_is_compacted(session):
    profile(**NEVER, enabled=False)
    with pytest.raises(TurnFailedError, match="switched off"):
        say(session)
    assert not CompactionRun.objects.exists()


def test_with_nothing_left_to_compact_the_user_hears_why(owner, model_server, queued):
    model_server.script = overflow_once()
    profile(**NEVER)
    with pytest.raises(TurnFailedError, match="nothing to compact"):
        say(SessionFactory(owner=owner))
    assert len(model_server.of("chat")) == 1


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (429, {"error": {"message": "Rate limit exceeded: 30000 tokens per minute"}}),
        (400, {"error": {"message": "Unsupported parameter: temperature"}}),
        (401, {"error": {"code": "invalid_api_key", "message": "no"}}),
    ],
    ids=["rate limit", "other refusal", "key"],
)
def test_another_error_is_no_reason_to_compact(session, model_server, monkeypatch, status, body):
    monkeypatch.setattr("chatapp.llm.openai_client.MAX_ATTEMPTS", 1)
    model_server.script = [
        {"when": {"purpose": "chat"}, "reply": {"error": {"status": status, "body": body}}}
    ]
    with pytest.raises(TurnFailedError):
        say(session)
    assert not CompactionRun.objects.exists()


def test_a_turn_in_the_middle_of_its_tools_keeps_its_question(owner, model_server, queued):
    model_server.script = overflow_once()
    profile(**NEVER)
    tools = [m for n in range(4) for m in (call("run", f"c{n}"), result(f"c{n}", "out " * 60))]
    question = {"role": "user", "content": "THE QUESTION"}
    session = SessionFactory(owner=owner, wires=[*talk(3), question, *tools])
    from chatapp.turns.service import Turn, run_turn

    assert run_turn(Turn(session=session)).answer.content == "the answer"
    sent = model_server.of("chat")[1].messages
    assert question in sent
    # The newest results are not summarised before the model has seen them.
    assert [message["role"] for message in sent[-2:]] == ["assistant", "tool"]
    assert sent[-1]["tool_call_id"] == "c3"


def test_a_branch_that_another_run_holds_is_waited_for(session, monkeypatch):
    held = ensure_state(session.branch)
    Lease.acquire_or_steal(held.pk, uuid.uuid4())
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        CompactionState.objects.filter(pk=held.pk).update(lease_owner=None, lease_expires_at=None)

    monkeypatch.setattr("compaction.recovery.overflow.sleep", nap)
    assert say(session).answer.content == "the answer"
    assert len(naps) == 1
    assert SessionSummary.objects.get().reason == "overflow_retry"


def test_a_branch_that_stays_held_is_passed_by(session, model_server, settings):
    settings.COMPACTION = settings.COMPACTION | {"INLINE_SECONDS": 0}
    Lease.acquire_or_steal(ensure_state(session.branch).pk, uuid.uuid4())
    assert say(session).answer.content == "the answer"
    assert not model_server.summarising()


def test_a_branch_that_stays_held_ends_the_turn_with_a_sentence(session, settings):
    profile(**NEVER, halve_history=False)
    settings.COMPACTION = settings.COMPACTION | {"INLINE_SECONDS": 0}
    Lease.acquire_or_steal(ensure_state(session.branch).pk, uuid.uuid4())
    with pytest.raises(TurnFailedError, match="Another run is compacting"):
        say(session)


# --- what a compaction keeps, and how often a question may have one -------------------------------

LASTING = [
    {"when": {"purpose": "chat"}, "reply": OVERFLOW},
    {"when": {}, "reply": {"text": "short"}},
]


def checkpoint(**changes):
    """Keep what the cut keeps, once a question, and try nothing else."""
    only_once = {"max_overflow_compaction_attempts": 1, "halve_history": False}
    return profile(**NEVER, **({"keep_last_n": 6, "overflow_keeps": "cut"} | only_once | changes))


def test_what_the_cut_keeps_stays_after_a_refusal(session, model_server):
    checkpoint()
    say(session, "THE QUESTION")
    assert SessionSummary.objects.get().message_count == 6
    assert len(model_server.of("chat")[1].messages) == 1 + 6 + 1
    assert [step.outcome for step in RecoveryStep.objects.all()] == ["smaller"]


def test_where_the_cut_keeps_everything_the_question_alone_is_kept(session, model_server):
    checkpoint(keep_last_n=50)
    assert say(session, "THE QUESTION").answer.content == "the answer"
    assert SessionSummary.objects.get().message_count == 12
    steps = RecoveryStep.objects.order_by("order")
    assert [(step.action, step.outcome) for step in steps] == [
        ("compact", "no_help"), ("compact", "smaller"),
    ]  # fmt: skip
    assert len(model_server.of("chat")) == 2


def test_a_question_has_one_compaction_and_no_request_goes_out_twice(session, model_server):
    checkpoint()
    model_server.script = LASTING
    with pytest.raises(TurnFailedError):
        say(session, "THE QUESTION")
    assert len(model_server.of("chat")) == 2
    assert len(model_server.summarising()) == 1
    sent = [call.messages for call in model_server.of("chat")]
    assert sent[0] != sent[1]


def test_a_turn_that_goes_on_with_the_question_gets_no_further_compaction(session, model_server):
    checkpoint()
    model_server.script = LASTING
    for drafts in ([NewMessage(wire=user("THE QUESTION"))], [], []):
        with pytest.raises(TurnFailedError):
            run_turn(Turn(session=session, drafts=drafts))
    assert len(model_server.summarising()) == 1
    # The next question has one of its own.
    with pytest.raises(TurnFailedError):
        say(session, "ANOTHER QUESTION")
    assert len(model_server.summarising()) == 2


def test_an_answer_gives_the_next_step_of_a_turn_a_compaction_of_its_own(session, model_server):
    checkpoint()
    say(session, "THE QUESTION")
    assert compactions_since_question(session.branch) == 0
    store(session, [call("read", "r1"), result("r1")])
    assert compactions_since_question(session.branch) == 0


def test_what_a_broken_off_answer_brought_is_no_answer(session, model_server):
    checkpoint()
    model_server.script = LASTING
    with pytest.raises(TurnFailedError):
        say(session, "THE QUESTION")
    store(session, [{"role": "assistant", "content": "I th"}])
    Message.objects.filter(content="I th").update(finish_reason="interrupted")
    assert compactions_since_question(session.branch) == 1
