"""The next request's size by what the server reported (context_size_by = usage)."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from chatapp import transcript
from chatapp.context.backend import TurnOutcome, context_backend
from chatapp.llm.chat_wire import _Completion
from chatapp.models import POSITION_STEP, Branch, Message, Session
from compaction.branches.planning import decision_of
from compaction.branches.reported_size import size_of_rest
from compaction.branches.snapshot import BranchSnapshot, snapshot_of
from compaction.models import CompactionRun, SessionSummary
from compaction.summaries.restore import restore_summary
from tests.compaction.session_page import page_of
from tests.compaction.support import NEVER, compact, say
from tests.factories import SessionFactory, call, profile, result, store, talk, user

pytestmark = pytest.mark.django_db
USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
CHECKPOINT = {**NEVER, "window_trigger": True, "context_size_by": "usage", "keep_last_n": 2}


@pytest.fixture
def session(owner, model_server, queued) -> Session:
    profile(**CHECKPOINT)
    model_server.script = [
        *(rule for rule in model_server.script if rule["when"].get("purpose") == "summary"),
        {"when": {"purpose": "chat"}, "reply": {"text": "ok", "usage": USAGE}},
    ]
    return SessionFactory(owner=owner)


def add(session: Session, role: str, text: str, *, tokens: int, **fields: Any) -> Message:
    """Store a row of so many tokens, as they would be counted by another counter."""
    branch = Branch.objects.get(pk=session.branch.pk)
    row = Message.objects.create(
        session=session,
        branch=branch,
        role=role,
        content=text,
        tokens=tokens,
        position=branch.head_position + POSITION_STEP,
        tokens_through=branch.token_total + tokens,
        **fields,
    )
    Branch.objects.filter(pk=branch.pk).update(
        head_position=row.position,
        message_count=branch.message_count + 1,
        token_total=row.tokens_through,
    )
    session.branch.refresh_from_db()
    return row


def quarter(text: str) -> int:
    """Count as pi does: a token is four characters."""
    return math.ceil(len(text) / 4)


def fresh(session: Session) -> BranchSnapshot:
    return snapshot_of(Session.objects.get(pk=session.pk))


def size(session: Session) -> int | None:
    found = fresh(session).reported_size
    return None if found is None else found.tokens


def answered(session: Session, **fields: Any) -> Message:
    """Store the document's example: a question, and an answer whose server counted 110 tokens."""
    add(session, "user", "abcd", tokens=1)
    return add(session, "assistant", "efgh", tokens=1, **({"usage": USAGE} | fields))


# --- which report --------------------------------------------------------------------------------


def test_what_follows_the_report_is_counted_an_errors_own_text_too(session):
    answered(session)
    for role, text, reason in [("user", "abcdefgh", ""), ("assistant", "err", "error")]:
        add(session, role, text, tokens=quarter(text), finish_reason=reason, usage=None)
    assert size(session) == 113


def test_what_follows_is_counted_as_the_model_counts_it():
    assert size_of_rest(103, 100, 1.0) == 3
    assert size_of_rest(103, 100, 1.5) == 5
    # A message that was taken out of the sums makes no request smaller than reported.
    assert size_of_rest(90, 100, 1.0) == 0


@pytest.mark.parametrize(
    "newest",
    [
        {"finish_reason": "interrupted"},
        {"finish_reason": "error"},
        {"finish_reason": "aborted"},
        {"usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}},
        {"usage": None},
        {"metadata": {"model": "another"}},
        {"metadata": {"model": "scripted", "asked_model": "another"}},
        {"metadata": {"usage_of_new_part": True}},
    ],
)
def test_a_report_that_says_nothing_of_the_next_request_is_passed_over(session, newest):
    answered(session)
    values = {"usage": {"prompt_tokens": 990, "completion_tokens": 9}} | newest
    add(session, "assistant", "ijklmnop", tokens=2, **values)
    assert size(session) == 112


@pytest.mark.parametrize(
    "metadata",
    [{}, {"model": "scripted"}, {"model": "scripted-2026-01", "asked_model": "scripted"}],
)
def test_a_report_of_the_sessions_model_counts(session, metadata):
    answered(session, metadata=metadata)
    assert size(session) == 110


def test_an_answer_that_was_cut_at_its_limit_counts(session):
    answered(session, finish_reason="length")
    assert size(session) == 110


def test_cached_tokens_are_a_part_of_the_prompt(session):
    usage = USAGE | {"prompt_tokens_details": {"cached_tokens": 90}}
    answered(session, usage=usage)
    assert size(session) == 110


def test_without_a_report_it_is_our_count(session):
    store(session, talk(3))
    assert size(session) is None
    found = fresh(session)
    # Six messages and the answer's beginning have a frame of four tokens each.
    assert found.facts.request_tokens == found.branch.token_total + 4 * (6 + 1)


def test_a_turns_answer_is_the_next_ones_report(session, model_server):
    store(session, talk(3))
    say(session, "how many?")
    assert size(session) == 110
    asked, *_ = store(session, [user("and now?")])
    assert size(session) == 110 + asked.tokens


def test_the_model_that_was_asked_is_kept_where_the_server_names_another(session, monkeypatch):
    assert "asked_model" not in say(session).answer.metadata
    whole = _Completion.reply
    dated = {"model": "scripted-2026-01"}
    monkeypatch.setattr(_Completion, "reply", lambda self, why: replace(whole(self, why), **dated))
    answer = say(session).answer
    assert answer.metadata["model"] == "scripted-2026-01"
    assert answer.metadata["asked_model"] == "scripted"
    assert size(session) == 110


# --- after a compaction and a restore ------------------------------------------------------------


def reported(session: Session) -> None:
    """Store ten turns whose last answer says that the context held 5,000 tokens."""
    rows = store(session, talk(10))
    usage = {"prompt_tokens": 4900, "completion_tokens": 100}
    Message.objects.filter(pk=rows[-1].pk).update(usage=usage)


def test_a_report_from_before_a_compaction_does_not_count(session):
    reported(session)
    assert size(session) == 5000
    assert compact(session).status == "succeeded"
    assert size(session) is None
    say(session, "hello")
    assert size(session) is not None


def test_a_report_from_before_a_restore_does_not_count(session, model_server):
    # What a server may report of all ten turns, frames and all.
    usage = {"prompt_tokens": 600, "completion_tokens": 10, "total_tokens": 610}
    model_server.script[-1]["reply"]["usage"] = usage
    reported(session)
    compact(session)
    say(session, "hello")
    assert size(session) is not None
    restore_summary(SessionSummary.objects.get())
    assert size(session) is None
    say(session, "hello again")
    assert size(session) is not None


def test_a_report_from_before_an_imported_compaction_does_not_count(session):
    reported(session)
    rows = Message.objects.filter(session=session)
    add(session, "assistant", "", tokens=0, kind="placeholder", summary="What was said.",
        metadata={"keepLastN": 2})  # fmt: skip
    assert fresh(session).state.cursor == rows.order_by("position")[17].position
    assert size(session) is None
    add(session, "assistant", "x", tokens=1, usage=USAGE)
    assert size(session) == 110


# --- the rules that look at it -------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "due"), [(90_000, None), (90_001, "window")])
def test_the_window_is_full_above_what_the_reserve_leaves(
    session, use_models, model_server, tokens, due
):
    use_models(model_server.models(CONTEXT_WINDOW=100_000, MAX_OUTPUT=10_000))
    answered(session, usage={"prompt_tokens": tokens - 10, "completion_tokens": 10})
    decision = decision_of(fresh(session))
    assert (decision.reason if decision else None) == due


@pytest.mark.parametrize(("longest", "left"), [(4_096, 183_616), (65_536, 134_464)])
def test_the_reserve_is_the_profiles_or_the_models_longest_answer(
    session, use_models, model_server, longest, left
):
    use_models(model_server.models(CONTEXT_WINDOW=200_000, MAX_OUTPUT=longest))
    profile(reserve_tokens=16_384)
    assert 200_000 - fresh(session).reserve == left


def test_without_a_window_no_report_is_too_large(session, use_models, model_server):
    use_models(model_server.models(CONTEXT_WINDOW=0))
    answered(session, usage={"prompt_tokens": 10**9, "completion_tokens": 10})
    assert decision_of(fresh(session)) is None


def test_the_rule_ahead_of_need_goes_by_the_report_too(session, use_models, model_server):
    use_models(model_server.models(CONTEXT_WINDOW=100_000))
    profile(**NEVER, prepare_ratio=0.7, context_size_by="usage", minimum_gain=0.0)
    store(session, talk(3, words=90))
    answered(session, usage={"prompt_tokens": 69_990, "completion_tokens": 10})
    assert decision_of(fresh(session)) is None
    add(session, "user", "x", tokens=1)
    assert decision_of(fresh(session)).reason == "ahead"
    # By our own count the request is small.
    profile(**NEVER, prepare_ratio=0.7, minimum_gain=0.0)
    assert decision_of(fresh(session)) is None


def test_it_is_looked_at_between_the_steps_of_a_turn(session, use_models, model_server):
    use_models(model_server.models(CONTEXT_WINDOW=8000, MAX_OUTPUT=1000))
    store(session, [*talk(10), user("go"), call("read", "r1")])
    last = Message.objects.order_by("-position").first()
    usage = {"prompt_tokens": 6990, "completion_tokens": 10}
    Message.objects.filter(pk=last.pk).update(usage=usage)
    assert decision_of(fresh(session)) is None
    store(session, [result("r1", "done")])
    context = context_backend.prepare(Session.objects.get(pk=session.pk))
    assert CompactionRun.objects.get(status="succeeded").reason == "window"
    assert context.messages[-1]["role"] == "tool"


def test_an_answer_that_a_person_broke_off_queues_nothing(session, use_models, model_server):
    use_models(model_server.models(CONTEXT_WINDOW=8000, MAX_OUTPUT=1000))
    rows = store(session, talk(10))
    usage = {"prompt_tokens": 7990, "completion_tokens": 10}
    Message.objects.filter(pk=rows[-1].pk).update(usage=usage)
    context = context_backend.preview(session)
    stopped = TurnOutcome(answer=None, context=context, error="Stopped.", is_stopped=True)
    context_backend.turn_finished(session, stopped)
    assert not CompactionRun.objects.exists()
    context_backend.turn_finished(session, TurnOutcome(answer=rows[-1], context=context))
    assert CompactionRun.objects.get().reason == "window"


# --- what it costs, and where it is told ---------------------------------------------------------


@pytest.mark.parametrize("turns", [2, 60])
def test_it_costs_one_statement_and_reads_no_text(session, turns):
    store(session, talk(turns))
    last = Message.objects.order_by("-position").first()
    Message.objects.filter(pk=last.pk).update(usage=USAGE, metadata={"model": "scripted"})
    snapshot = fresh(session)
    assert (snapshot.branch, snapshot.model) is not None
    with CaptureQueriesContext(connection) as captured:
        assert snapshot.reported_size.tokens == 110
    (query,) = captured
    assert '"content"' not in query["sql"]
    assert "LIMIT 1" in query["sql"]


def test_without_any_report_a_second_statement_ends_the_search(session):
    store(session, talk(60))
    snapshot = fresh(session)
    assert (snapshot.branch, snapshot.model) is not None
    with CaptureQueriesContext(connection) as captured:
        assert snapshot.reported_size is None
    assert len(captured) == 2


def test_a_fork_takes_the_report_of_its_parent(session):
    first, last = answered(session), None
    last = add(session, "user", "abcdefgh", tokens=2)
    fork = transcript.fork(session, at=Message.objects.get(pk=last.pk))
    found = snapshot_of(session, fork).reported_size
    assert (found.message, found.tokens) == (first.pk, 112)


def test_context_and_meter_say_which_size_rules_go_by(session, api, admin_client):
    answered(session)
    add(session, "user", "abcdefgh", tokens=2)
    facts = api.get(f"/api/v1/sessions/{session.pk}/context/").json()["facts"]
    assert facts["reported_tokens"] == 110
    assert (facts["request_tokens"], facts["size_by"]) == (112, "usage")
    page = admin_client.get(page_of(session)).content.decode()
    assert "Rules go by what the server reported: 110 tokens with its last answer" in page
    profile(**NEVER)
    facts = api.get(f"/api/v1/sessions/{session.pk}/context/").json()["facts"]
    # Three messages of four tokens; each has a frame of four, the answer's beginning too.
    assert (facts["request_tokens"], facts["size_by"]) == (4 + 4 * (3 + 1), "count")
    page = admin_client.get(page_of(session)).content.decode()
    assert "Rules go by what the server reported" not in page


def test_time_alone_makes_no_report_stale(session):
    answered(session, created_at=timezone.now() - timedelta(days=400))
    assert size(session) == 110
