"""What a request waits for: so many calls and seconds; the rest is done in the background.

The summarisers here take many calls, or long, and every turn gets its answer.
"""

from __future__ import annotations

import time
import uuid

import pytest
from django.utils import timezone

from chatapp.models import Incident
from chatapp.turns.service import TurnFailedError
from compaction.branches.leases import Lease
from compaction.engine.strategies.base import plan_by_cut
from compaction.engine.types import CallEstimate, Outcome, SummaryRequest
from compaction.models import (
    CompactionProfile,
    CompactionRun,
    CompactionStep,
    ModelBreaker,
    RecoveryStep,
    SessionSummary,
)
from compaction.runs.worker import execute_run
from tests.compaction.support import NEVER, compact, say, state, stored
from tests.factories import SessionFactory, profile, talk
from tests.facts import CODE_PATTERN, code
from tests.fakes.model_server import ECHO_AND_ANSWER

pytestmark = pytest.mark.django_db
TOO_LONG = {
    "error": {
        "status": 400,
        "body": {"error": {"code": "context_length_exceeded", "message": "too long"}},
    }
}
LATE_SECONDS = 2.5
"""What a turn may take beyond its bound: storing, and the scripted answers of a busy machine."""


class OneByOne:
    """A strategy that asks for each message by itself, and has nothing before the last one."""

    uses_summarizer = True
    version = "1"

    def plan(self, items, profile, facts):
        return plan_by_cut(items, profile, facts)

    def estimate(self, job, profile, limit):
        return CallEstimate(calls=len(job.items), input_tokens=0, output_tokens=0)

    def run(self, job, profile, summarizer, on_step):
        lines = [
            summarizer.summarize(SummaryRequest(kind="chunk", items=(item,))).text
            for item in job.items
        ]
        text = " ".join(lines)[:200]
        return Outcome(
            text=text, items=job.items, chunk_count=1, max_depth=0, truncated=False,
            input_tokens=sum(item.tokens for item in job.items), output_tokens=20,
        )  # fmt: skip


@pytest.fixture
def settings_of(settings):
    def change(**values):
        settings.COMPACTION = settings.COMPACTION | values

    return change


def takes_at_most(tokens):
    """A summariser that refuses larger inputs, so that it is asked many times."""
    rule = {"when": {"purpose": "summary", "est_tokens_gt": tokens}, "reply": TOO_LONG}
    return [rule, *ECHO_AND_ANSWER]


def slow(seconds):
    """A summariser that takes so long for each answer."""
    rules = [
        {"when": {"purpose": purpose}, "reply": {"echo_markers": CODE_PATTERN, "delay_s": seconds}}
        for purpose in ("summary", "merge")
    ]
    return [*rules, *ECHO_AND_ANSWER]


def only_run():
    return CompactionRun.objects.get(mode="inline")


def rest():
    return CompactionRun.objects.get(reason="rest")


def markers(session):
    text = " ".join(row.summary_text for row in SessionSummary.objects.filter(status="active"))
    return {code(number) for number in range(1, 41) if code(number) in text}


@pytest.mark.parametrize("calls", [1, 2, 3, 5, 8, 13])
def test_a_turn_waits_for_so_many_calls_and_gets_its_answer(
    owner, model_server, queued, settings_of, calls, django_capture_on_commit_callbacks
):
    settings_of(INLINE_CALLS=calls)
    model_server.script = takes_at_most(900)
    profile(message_limit=20, max_context_tokens=0, keep_last_n=2, bisect_min_messages=2)
    session = SessionFactory(owner=owner, wires=talk(30, marker=1))
    with django_capture_on_commit_callbacks(execute=True):
        assert say(session).answer.content == "ok"
    assert len(model_server.summarising()) == calls
    assert only_run().model_calls == calls
    assert queued == [("compaction.tasks.run_compaction", str(rest().pk))]


def test_what_was_done_until_then_is_kept_and_the_rest_is_finished_in_the_background(
    owner, model_server, queued, settings_of
):
    settings_of(INLINE_CALLS=8)
    model_server.script = takes_at_most(900)
    profile(
        message_limit=20, max_context_tokens=0, keep_last_n=2, bisect_min_messages=2, ledger=False,
        quality_gate=False,
    )  # fmt: skip
    session = SessionFactory(owner=owner, wires=talk(30, marker=1))
    before = len(stored(session))
    say(session)
    run = only_run()
    first = SessionSummary.objects.get()
    assert run.status == "succeeded"
    assert 0 < first.message_count < 58
    # Two messages and the question are kept.
    assert first.metadata["messages_left"] == 61 - 3 - first.message_count
    read = {code(number) for number in range(1, (first.message_count + 1) // 2 + 1)}
    assert markers(session) == read

    background = execute_run(rest().pk)
    assert (background.status, background.error) == ("succeeded", "")
    assert state(session).covered_messages == 60
    assert {code(number) for number in range(1, 31)} <= markers(session)
    assert len(stored(session)) > before


def test_nothing_is_asked_for_twice(owner, model_server, queued, settings_of):
    settings_of(INLINE_CALLS=4)
    model_server.script = takes_at_most(900)
    profile(message_limit=20, max_context_tokens=0, keep_last_n=2, bisect_min_messages=2)
    session = SessionFactory(owner=owner, wires=talk(20, marker=1))
    say(session)
    covered = state(session).cursor
    execute_run(rest().pk)
    later = CompactionStep.objects.filter(run=rest(), first_message__isnull=False)
    assert later.exists()
    assert all(step.first_message.position > covered for step in later)


@pytest.mark.parametrize("seconds", [1, 2])
def test_a_slow_summariser_delays_a_turn_for_its_bound_and_no_longer(
    owner, model_server, queued, settings_of, seconds
):
    settings_of(INLINE_SECONDS=seconds)
    model_server.script = slow(10)
    profile(message_limit=20, max_context_tokens=0, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(30, marker=1))
    began = time.monotonic()
    assert say(session).answer.content == "ok"
    assert time.monotonic() - began < seconds + LATE_SECONDS
    run = only_run()
    assert (run.status, run.error_code) == ("skipped", "inline_limit")
    assert "finished in the background" in run.error
    assert state(session).failures == 0
    # The model was not given the time that a call may take: that says nothing of it.
    assert not ModelBreaker.objects.exists()

    model_server.script = list(ECHO_AND_ANSWER)
    assert execute_run(rest().pk).status == "succeeded"
    assert SessionSummary.objects.get().status == "active"
    assert state(session).backoff_until is None


def test_the_turns_after_it_do_not_wait_again_while_the_rest_is_queued(
    owner, model_server, queued, settings_of
):
    settings_of(INLINE_SECONDS=1)
    model_server.script = slow(10)
    profile(message_limit=20, max_context_tokens=0, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(30, marker=1))
    say(session)
    asked = len(model_server.summarising())
    for _ in range(3):
        began = time.monotonic()
        say(session)
        assert time.monotonic() - began < LATE_SECONDS
    assert len(model_server.summarising()) == asked
    assert rest().status == "queued"


@pytest.mark.parametrize(
    "script", [slow(10), takes_at_most(60)], ids=["slow", "many calls without any answer"]
)
def test_after_an_overflow_the_next_recovery_step_follows(
    owner, model_server, queued, settings_of, script
):
    settings_of(INLINE_SECONDS=1, INLINE_CALLS=3)
    refusal = {"when": {"purpose": "chat", "est_tokens_gt": 1500}, "reply": TOO_LONG}
    model_server.script = [refusal, *script]
    profile(**NEVER, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(30, marker=1))
    began = time.monotonic()
    assert say(session).answer.content == "ok"
    assert time.monotonic() - began < 1 + 2 * LATE_SECONDS
    steps = RecoveryStep.objects.order_by("order").values_list("action", "outcome")
    assert steps[0] == ("compact", "no_help")
    assert steps.last() == ("halve", "smaller")
    assert only_run().model_calls <= 3
    assert not Incident.objects.filter(kind="error").exists()

    model_server.script = list(ECHO_AND_ANSWER)
    done = execute_run(rest().pk)
    assert (done.status, done.keep_last_n) == ("succeeded", None)
    # The question and its answer are kept, as the profile says: the overflow alone kept none.
    assert state(session).covered_messages == 60


def too_long_for_one_turn(owner, model_server, use_models):
    """A session of the preset `checkpoint` that a few calls do not bring into its window."""
    use_models(model_server.models(CONTEXT_WINDOW=4000, MAX_OUTPUT=200), TOKEN_COUNTER="chars4")
    refusal = {"when": {"est_tokens_gt": 4000}, "reply": TOO_LONG}
    model_server.script = [refusal, *ECHO_AND_ANSWER]
    profile("checkpoint", quality_gate=False, keep_recent_tokens=500)
    session = SessionFactory(owner=owner, wires=talk(300, words=60, marker=1))
    assert session.branch.token_total > 12 * 4000
    return session


def test_a_backlog_that_no_turn_can_wait_for_ends_no_session(
    owner, model_server, queued, use_models, settings_of
):
    """`checkpoint` sends fewer messages while a run waits, though it has no such step itself."""
    settings_of(INLINE_CALLS=4)
    session = too_long_for_one_turn(owner, model_server, use_models)
    covered = [0]
    for number in range(3):
        result = say(session, f"Question {number}?")
        assert result.answer.content == "ok"
        assert result.context.left_out["why"] == "halve_history"
        assert model_server.of("chat")[-1].messages[-1]["content"] == f"Question {number}?"
        covered.append(state(session).covered_messages)
    # Nobody works in the background here: each turn does its part of it.
    assert covered == sorted(set(covered))
    assert rest().status == "queued"
    assert not Incident.objects.filter(kind="error").exists()

    settings_of(INLINE_CALLS=8)
    execute_run(rest().pk)
    while (waiting := CompactionRun.objects.filter(status="queued").first()) is not None:
        execute_run(waiting.pk)
    result = say(session, "And now?")
    assert result.answer.content == "ok"
    assert not result.context.left_out
    # A summary, and the questions of before, which the cut keeps.
    first, *kept = model_server.of("chat")[-1].messages
    assert "<summary>" in first["content"]
    assert [f"Question {n}?" for n in range(3)] == [
        m["content"] for m in kept if m["role"] == "user" and "Question" in m["content"]
    ]


def test_a_call_that_was_not_sent_counts_as_none(
    owner, model_server, queued, use_models, settings_of
):
    """What is known to be too large for the summariser is halved here, and nobody waits for it."""
    settings_of(INLINE_CALLS=4)
    say(too_long_for_one_turn(owner, model_server, use_models))
    first = CompactionRun.objects.filter(mode="inline").earliest("created_at")
    steps = list(first.steps.values_list("outcome", "error"))
    unsent = [error for outcome, error in steps if outcome == "overflow"]
    assert len(unsent) >= 3
    assert all("It was not sent." in error for error in unsent)
    assert len(steps) - len(unsent) == 4
    assert first.status == "succeeded"


def test_a_worker_that_is_at_it_ends_no_turn_either(
    owner, model_server, queued, use_models, settings_of
):
    settings_of(INLINE_CALLS=2, INLINE_SECONDS=1)
    session = too_long_for_one_turn(owner, model_server, use_models)
    say(session)
    CompactionRun.objects.filter(reason="rest").update(status="running", worker=uuid.uuid4())
    Lease.acquire_or_steal(session.branch.pk, uuid.uuid4())
    assert say(session, "Meanwhile?").answer.content == "ok"


def test_a_finished_compaction_is_followed_by_no_halving_in_checkpoint(
    owner, model_server, queued, use_models
):
    """All is summarised that can be: what is kept is the profile's own word."""
    session = too_long_for_one_turn(owner, model_server, use_models)
    model_server.script = [
        {"when": {"purpose": "chat"}, "reply": TOO_LONG},
        *ECHO_AND_ANSWER,
    ]
    compact(session)
    CompactionRun.objects.create(
        session=session, branch=session.branch, trigger="proactive", reason="rest",
        status="queued", mode="background", profile=CompactionProfile.objects.get(is_default=True),
    )  # fmt: skip
    asked = len(model_server.of("chat"))
    with pytest.raises(TurnFailedError):
        say(session)
    assert len(model_server.of("chat")) - asked <= 2
    assert not RecoveryStep.objects.filter(action="halve").exists()


def test_all_compactions_of_one_recovery_share_the_seconds(
    owner, model_server, queued, settings_of
):
    settings_of(INLINE_SECONDS=2)
    refusal = {"when": {"purpose": "chat", "est_tokens_gt": 300}, "reply": TOO_LONG}
    model_server.script = [refusal, *slow(1.2)]
    profile(**NEVER, keep_last_n=2, ledger=False, quality_gate=False)
    session = SessionFactory(owner=owner, wires=talk(30, marker=1))
    began = time.monotonic()
    say(session)
    assert time.monotonic() - began < 2 + 2 * LATE_SECONDS


def test_where_messages_would_fall_out_they_are_stored_as_a_digest(
    owner, model_server, queued, settings_of
):
    settings_of(INLINE_SECONDS=1)
    model_server.script = slow(10)
    profile(
        message_limit=0, max_context_tokens=0, cut="tail_size", tail_keep_size=4, context_size=12,
        compression_window_size=4, compression_hard_limit=8,
    )  # fmt: skip
    session = SessionFactory(owner=owner, wires=talk(12, marker=1))
    began = time.monotonic()
    assert say(session).answer.content == "ok"
    assert time.monotonic() - began < 1 + 2 * LATE_SECONDS
    assert SessionSummary.objects.get(status="active").is_digest


def test_a_strategy_that_has_nothing_yet_leaves_all_of_it(owner, model_server, queued, settings_of):
    settings_of(
        INLINE_CALLS=3, STRATEGIES={"one_by_one": f"{OneByOne.__module__}.{OneByOne.__name__}"}
    )
    profile(message_limit=8, max_context_tokens=0, keep_last_n=2, strategy="one_by_one")
    session = SessionFactory(owner=owner, wires=talk(6, marker=1))
    assert say(session).answer.content == "ok"
    assert (only_run().status, only_run().error_code) == ("skipped", "inline_limit")
    assert len(model_server.summarising()) == 3
    assert execute_run(rest().pk).status == "succeeded"


def test_what_is_asked_for_by_hand_has_no_such_bound(owner, model_server, queued, settings_of):
    settings_of(INLINE_CALLS=1)
    model_server.script = takes_at_most(900)
    profile(**NEVER, keep_last_n=2, bisect_min_messages=2)
    run = compact(SessionFactory(owner=owner, wires=talk(30, marker=1)))
    assert (run.status, run.model_calls > 8) == ("succeeded", True)
    assert not CompactionRun.objects.filter(reason="rest").exists()


def test_a_run_in_the_background_has_no_such_bound(owner, model_server, queued, settings_of):
    settings_of(INLINE_CALLS=1)
    model_server.script = takes_at_most(900)
    profile(message_limit=20, max_context_tokens=0, keep_last_n=2, bisect_min_messages=2)
    session = SessionFactory(owner=owner, wires=talk(30, marker=1))
    say(session)
    run = execute_run(rest().pk)
    assert (run.status, run.model_calls > 8) == ("succeeded", True)


def test_the_pages_say_why_and_what_follows(owner, model_server, queued, settings_of, admin_client):
    settings_of(INLINE_SECONDS=1)
    model_server.script = slow(10)
    profile(message_limit=20, max_context_tokens=0, keep_last_n=2)
    say(SessionFactory(owner=owner, wires=talk(30, marker=1)))
    page = admin_client.get(f"/admin/compaction/compactionrun/{only_run().pk}/change/").text
    assert "It took longer than a request waits" in page
    page = admin_client.get(f"/admin/compaction/compactionrun/{rest().pk}/change/").text
    assert "Rest of a compaction that a request waited for" in page
    assert rest().created_at <= timezone.now()
