"""A summariser whose answers are never summaries is asked once more, then done without.

What can wait fails and says so (tests/cases/test_summaries.py, B15); a conversation whose next
request no longer fits goes on with chosen sentences, and an operator is told of the model.
"""

from __future__ import annotations

import pytest

from chatapp.models import Session
from compaction.models import CompactionRun, ModelBreaker, RecoveryStep, SessionSummary
from compaction.runs.lifecycle import cancel_run, retry_run
from compaction.runs.scheduling import check_branch
from compaction.runs.worker import execute_run
from tests.compaction.support import NEVER, compact, say, sent, state
from tests.factories import SessionFactory, profile, store, talk
from tests.facts import code
from tests.fakes.model_server import ECHO_AND_ANSWER, ModelServer, estimate

pytestmark = pytest.mark.django_db
WINDOW = 2_000
OF_NO_USE = {
    "empty": {"text": ""},
    "blank": {"text": "  \n\n "},
    "a page": {"text": "<!DOCTYPE html><html><body>502 Bad Gateway</body></html>"},
    "an error as JSON": {"text": '{"error": {"message": "no upstream", "code": 503}}'},
    "an error in words": {"text": "Error: upstream connect error"},
    "dots": {"text": ". . . . . ."},
    "a question back": {"text": "Please provide the conversation that I should summarise."},
    "a tool": {"tool_calls": [{"name": "read", "arguments": {}}]},
    "filtered": {"text": "Half a sen", "finish_reason": "content_filter"},
}
TOO_LARGE = {
    "error": {
        "status": 400,
        "body": {"error": {"code": "context_length_exceeded", "message": "too large"}},
    }
}
REFUSED = {"error": {"status": 401, "body": {"error": {"message": "Wrong key."}}}}
each = pytest.mark.parametrize("reply", OF_NO_USE.values(), ids=OF_NO_USE.keys())


@pytest.fixture
def server(model_server, use_models, queued):
    models = model_server.models(CONTEXT_WINDOW=WINDOW, MAX_OUTPUT=200)
    use_models(models, TOKEN_COUNTER="chars4")
    return model_server


def nonsense(reply: dict) -> list[dict]:
    """Return the script of a server that chats well and summarises never."""
    chat = {"when": {"purpose": "chat"}, "reply": {"text": "Noted."}}
    return [chat, {"when": {}, "reply": reply}]


def outgrown(owner, **parameters) -> Session:
    """Return a session whose next request does not fit the window."""
    profile(**NEVER, window_trigger=True, prepare_ratio=0.0, keep_last_n=2, **parameters)
    session = SessionFactory(owner=owner, wires=talk(30, words=20, marker=1))
    assert estimate(sent(session)) > WINDOW
    return session


@each
def test_a_conversation_that_outgrew_its_window_goes_on_with_chosen_sentences(server, owner, reply):
    session = outgrown(owner)
    server.script = nonsense(reply)
    assert say(session, "And now?").answer.content == "Noted."
    run = CompactionRun.objects.get()
    assert (run.status, run.reason) == ("succeeded", "window")
    # Asked once more for what it was asked first, and for nothing else; each answer is a row.
    failed = run.steps.filter(outcome="error")
    assert len(failed) == len(server.summarising()) == 2
    assert all(step.error for step in failed)
    assert not run.steps.filter(outcome="ok").exists()
    summary = SessionSummary.objects.get()
    assert (summary.model, summary.truncated) == ("extractive", False)
    assert code(1) in summary.summary_text
    assert all(text not in summary.summary_text for text in ("upstream", "Half a sen", "html"))
    assert estimate(server.of("chat")[-1].messages) < WINDOW
    assert state(session).failures == 0


@each
def test_a_refused_request_is_made_to_fit_with_chosen_sentences(server, owner, reply):
    profile(**NEVER, prepare_ratio=0.0, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(20, marker=1))
    refused = {"when": {"purpose": "chat", "call": 1}, "reply": TOO_LARGE}
    server.script = [refused, *nonsense(reply)]
    assert say(session, "And now?").answer.content == "Noted."
    assert [(step.action, step.outcome) for step in RecoveryStep.objects.all()] == [
        ("compact", "smaller")
    ]
    assert SessionSummary.objects.get().model == "extractive"


def test_the_model_is_told_of_though_the_run_succeeded(server, owner):
    session = outgrown(owner)
    server.script = nonsense({"text": ""})
    say(session, "And now?")
    model = ModelBreaker.objects.get()
    assert (model.model, model.failing_code) == ("default", "bad_answer")
    assert model.failing_since is not None


def test_it_stays_told_of_until_the_model_writes_a_summary(server, owner):
    session = outgrown(owner)
    server.script = nonsense({"text": ""})
    say(session, "And now?")
    first = ModelBreaker.objects.get().failing_since
    store(session, talk(30, words=20, marker=50))
    say(session, "And then?")
    assert ModelBreaker.objects.get().failing_since == first
    store(session, talk(30, words=20, marker=90))
    server.script = nonsense({"text": f"They spoke of {code(90)} and {code(91)} for long."})
    say(session, "And at last?")
    assert ModelBreaker.objects.get().failing_since is None


@pytest.mark.parametrize("messages", [80, 400])
def test_a_long_backlog_is_inside_its_window_in_the_first_turn(server, owner, messages):
    """The first part is asked for twice, and each run behind that asks once whether it is back."""
    profile(**NEVER, window_trigger=True, prepare_ratio=0.0, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(messages, words=20, marker=1))
    assert estimate(sent(session)) > 2 * WINDOW
    server.script = nonsense({"text": ""})
    assert say(session, "And now?").answer.content == "Noted."
    runs = CompactionRun.objects.count()
    assert len(server.summarising()) == 1 + runs <= 4
    assert estimate(server.of("chat")[-1].messages) < WINDOW
    assert not CompactionRun.objects.exclude(status="succeeded").exists()
    assert len(server.of("chat")) == 1
    say(session, "And then?")
    assert len(server.summarising()) == 1 + runs


def test_a_model_known_to_fail_is_asked_once_and_believed_when_it_is_back(server, owner):
    session = outgrown(owner)
    server.script = nonsense({"text": ""})
    say(session, "And now?")
    asked = len(server.summarising())
    store(session, talk(30, words=20, marker=50))
    say(session, "And then?")
    assert len(server.summarising()) == asked + 1
    store(session, talk(8, words=40, marker=90))
    told = {"text": f"They spoke of {code(90)} and {code(91)}, and of much before it."}
    server.script = nonsense(told)
    run = compact(session)
    assert run.status == "succeeded"
    assert ModelBreaker.objects.get().failing_since is None


def test_after_two_parts_of_no_use_in_a_row_no_more_are_asked_for(server, owner):
    session = SessionFactory(owner=owner, wires=talk(120, words=20, marker=1))
    profile(**NEVER, window_trigger=True, prepare_ratio=0.0, keep_last_n=2, ledger=False)
    told = {"text": f"They spoke of {code(1)} and {code(2)} in the first part."}
    server.script = [
        {"when": {"purpose": "summary", "call": 1}, "reply": told},
        *nonsense({"text": ""}),
    ]
    say(session, "And now?")
    first = CompactionRun.objects.earliest("created_at")
    assert first.steps.filter(outcome="error").count() == 4
    assert first.steps.filter(outcome="ok").count() == 1


def test_by_turns_without_end_it_never_gets_stuck(server, owner):
    session = outgrown(owner)
    server.script = nonsense({"text": ""})
    for turn in range(12):
        store(session, talk(6, words=40, marker=100 + 10 * turn))
        assert say(session, f"Turn {turn}?").answer.content == "Noted."
        assert estimate(server.of("chat")[-1].messages) < WINDOW
    assert not CompactionRun.objects.exclude(status="succeeded").exists()
    assert code(1) in SessionSummary.objects.latest("created_at").summary_text


def test_one_half_of_no_use_is_chosen_and_the_other_stays(server, owner):
    session = outgrown(owner, ledger=False, quality_gate=False)
    told = {"text": f"They spoke of {code(1)} and {code(2)} in the first half."}
    server.script = [
        {"when": {"purpose": "summary", "call": 1}, "reply": TOO_LARGE},
        {"when": {"purpose": "summary", "call": 2}, "reply": told},
        *nonsense({"text": ""}),
    ]
    say(session, "And now?")
    text = SessionSummary.objects.get().summary_text
    assert told["text"] in text
    assert code(28) in text


def test_what_still_fits_fails_and_says_so(server, owner):
    profile(**NEVER, window_trigger=True, prepare_ratio=0.0, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(6, marker=1))
    server.script = nonsense({"text": ""})
    run = compact(session)
    assert (run.status, run.error_code) == ("failed", "bad_answer")
    assert not SessionSummary.objects.exists()


def test_a_window_that_is_full_does_not_wait_until_branches_may_try_again(server, owner, queued):
    profile(**NEVER, window_trigger=True, prepare_ratio=0.7, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(20, words=20, marker=1))
    server.script = nonsense({"text": ""})
    ahead = execute_run(check_branch(session).pk)
    assert (ahead.reason, ahead.status) == ("ahead", "failed")
    assert state(session).backoff_until is not None
    store(session, talk(10, words=20, marker=50))
    assert say(session, "And now?").answer.content == "Noted."
    assert estimate(server.of("chat")[-1].messages) < WINDOW


def test_it_waits_where_the_model_could_not_be_asked(server, owner, queued):
    profile(**NEVER, window_trigger=True, prepare_ratio=0.7, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(20, words=20, marker=1))
    server.script = nonsense({"error": {"status": 401, "body": {"error": {"message": "no key"}}}})
    execute_run(check_branch(session).pk)
    asked = len(server.summarising())
    store(session, talk(10, words=20, marker=50))
    say(session, "And now?")
    assert len(server.summarising()) == asked


def test_nor_does_it_wait_because_somebody_began_a_run_and_stopped_it(server, owner, queued):
    profile(**NEVER, window_trigger=True, prepare_ratio=0.7, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(20, words=20, marker=1))
    server.script = nonsense({"text": ""})
    failed = execute_run(check_branch(session).pk)
    cancel_run(retry_run(failed))
    assert state(session).backoff_until is not None
    store(session, talk(10, words=20, marker=50))
    assert say(session, "And now?").answer.content == "Noted."
    assert estimate(server.of("chat")[-1].messages) < WINDOW


def test_a_user_waits_for_one_compaction_where_another_model_writes_it(owner, use_models, queued):
    """Only what is chosen without a model is so quick that more may follow in the same turn."""
    with ModelServer() as first, ModelServer() as second:
        first.script, second.script = nonsense(REFUSED), list(ECHO_AND_ANSWER)
        window = {"CONTEXT_WINDOW": WINDOW, "MAX_OUTPUT": 200}
        models = {
            "default": first.models(NAME="chat", **window)["default"],
            "small": first.models(NAME="small-1", **window)["default"],
            "large": second.models(NAME="large-1", **window)["default"],
        }
        use_models(models, TOKEN_COUNTER="chars4")
        profile(
            **NEVER,
            window_trigger=True,
            prepare_ratio=0.0,
            keep_last_n=2,
            summary_model=["small", "large"],
        )
        session = SessionFactory(owner=owner, wires=talk(90, words=20, marker=1))
        assert say(session, "And now?").answer.content == "Noted."
    assert ModelBreaker.objects.get(model="small").failing_since is not None
    runs = CompactionRun.objects.filter(status="succeeded")
    assert list(runs.values_list("reason", flat=True)) == ["window"]
    assert SessionSummary.objects.get().model == "large-1"
