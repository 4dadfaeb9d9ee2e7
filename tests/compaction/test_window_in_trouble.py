"""The window when things go wrong around it: nothing falls out, nothing storms, nobody forgets."""

from __future__ import annotations

import threading
import uuid
from datetime import timedelta

import pytest
from django.utils import timezone

from chatapp import transcript
from chatapp.models import Message
from chatapp.turns.service import TurnFailedError
from compaction.branches.leases import Lease
from compaction.engine.policy.window import SHORT_REPLY_CHARS
from compaction.errors import OutOfTimeError
from compaction.limits import circuit_breaker
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.profiles import save_profile
from compaction.runs import lifecycle
from compaction.runs import sweep as sweeping
from compaction.runs.scheduling import assign_profile, check_branch
from compaction.runs.sweep import sweep_runs
from compaction.runs.worker import execute_run
from compaction.summaries.restore import restore_summary
from compaction.summaries.summarizer import ModelSummarizer
from tests.compaction.clock import START, Conversation
from tests.compaction.support import NEVER, compact, held_worker, say, sent
from tests.compaction.test_window import failing, window
from tests.factories import SessionFactory, profile, store, talk, user
from tests.facts import CODE_PATTERN, code
from tests.fakes.model_server import echo_and_answer

pytestmark = pytest.mark.django_db
WORDS = "words enough to be summarised by somebody"
SHORT = [
    {"when": {"purpose": "summary"}, "reply": {"text": "what was said"}},
    {"when": {"purpose": "chat"}, "reply": {"text": "ok"}},
]


@pytest.fixture
def conversation(monkeypatch, model_server, owner, queued) -> Conversation:
    model_server.script = echo_and_answer(CODE_PATTERN)
    window()
    return Conversation(monkeypatch, owner=owner)


@pytest.fixture
def small(owner, model_server, use_models, queued):
    """A session that nearly fills a window of 2 400 tokens."""
    use_models(model_server.models(CONTEXT_WINDOW=2400, MAX_OUTPUT=200))
    return SessionFactory(owner=owner, wires=talk(20, marker=1))


def fill(session, first: int, last: int) -> None:
    store(session, [user(f"{code(n)} {WORDS}") for n in range(first, last)])


def unknown(server, count: int) -> list[int]:
    """Messages that are neither in the newest request nor linked to an active summary."""
    told = server.of("chat")[-1].text
    read = Message.objects.filter(summary_links__summary__status="active")
    known = told + "\n".join(read.values_list("content", flat=True))
    return [n for n in range(count) if code(n) not in known]


def outage() -> None:
    for _ in range(5):
        circuit_breaker.record_failure("default", uuid.uuid4(), "down")
    assert circuit_breaker.admit("default", uuid.uuid4()) is not None


# --- a request never waits in vain, nor leaves out what nobody has read --------------------------


@pytest.mark.django_db(transaction=True)
def test_a_request_that_waited_for_a_worker_sends_the_new_state(owner, model_server, queued):
    window()
    session = SessionFactory(owner=owner)
    fill(session, 0, 80)
    heard = []
    with held_worker(check_branch(session)) as go_on:

        def hear(name, payload):
            heard.append((name, payload.get("phase")))
            if payload.get("phase") == "waiting":
                go_on.set()

        say(session, "and now?", emit=hear)
    assert ("compaction", "waiting") in heard
    assert unknown(model_server, 80) == []
    assert "SUMMARY" in model_server.of("chat")[-1].text


def test_a_run_that_waits_for_a_model_stands_in_no_requests_way(conversation, model_server):
    fill(conversation.session, 0, 60)
    outage()
    run = execute_run(check_branch(conversation.session).pk)
    assert (run.status, run.error_code) == ("queued", "breaker_open")
    fill(conversation.session, 60, 120)
    say(conversation.session, "and now?")
    assert unknown(model_server, 120) == []


def test_what_waits_for_the_queue_is_done_by_the_request_that_cannot_wait(
    conversation, model_server
):
    fill(conversation.session, 0, 60)
    waiting = check_branch(conversation.session)
    fill(conversation.session, 60, 72)
    say(conversation.session, "and now?")
    waiting.refresh_from_db()
    assert (waiting.status, waiting.mode, waiting.reason) == ("succeeded", "inline", "hard_limit")


def test_a_run_ahead_of_need_that_a_request_takes_over_stores_no_draft(small):
    keeps = {"prepare_ratio": 0.7, "keep_last_n": 4, "publish_when_needed": True}
    profile(**(NEVER | keeps))
    assert check_branch(small).reason == "ahead"
    profile(**(NEVER | keeps | {"message_limit": 41}))
    say(small, "a question")
    assert SessionSummary.objects.get().status == "active"


def test_after_a_draft_was_published_what_is_still_due_is_done(small):
    keeps = {"prepare_ratio": 0.5, "keep_last_n": 4, "publish_when_needed": True}
    profile(**(NEVER | keeps))
    execute_run(check_branch(small).pk)
    store(small, talk(40))
    profile(**(NEVER | keeps | {"window_trigger": True}))
    assert say(small, "a question").context.account.used <= 2200
    assert SessionSummary.objects.filter(status="active").count() == 2


# --- fallback digests are few
# ----------------------------------------------------------------------------


def test_a_failing_summariser_does_not_cost_a_backlog_its_summaries(conversation, model_server):
    failing(model_server)
    fill(conversation.session, 0, 400)
    say(conversation.session, "still there?")
    # Six attempts come before each fallback digest of a few.
    done = list(CompactionRun.objects.order_by("created_at"))
    first = next(index for index, run in enumerate(done) if run.status == "succeeded")
    assert [run.error_code for run in done[:first]] == ["bad_answer"] * 6
    assert done[first].summaries.get().message_count == 4


def test_while_a_model_is_left_alone_one_turn_archives_one_batch(conversation, model_server):
    outage()
    fill(conversation.session, 0, 400)
    say(conversation.session, "still there?")
    assert model_server.of("summary") == []
    (digest,) = SessionSummary.objects.filter(is_digest=True)
    assert digest.message_count == 60


def test_only_what_would_fall_out_is_archived(conversation, model_server):
    outage()
    fill(conversation.session, 0, 80)
    say(conversation.session, "still there?")
    (digest,) = SessionSummary.objects.filter(is_digest=True)
    assert digest.message_count == 6
    assert unknown(model_server, 80) == []


def test_a_run_that_was_late_archives_nothing(conversation, monkeypatch):
    real, late = ModelSummarizer.summarize, []

    def once(self, request):
        if not late:
            late.append(True)
            raise OutOfTimeError("late")
        return real(self, request)

    monkeypatch.setattr(ModelSummarizer, "summarize", once)
    fill(conversation.session, 0, 80)
    say(conversation.session, "a question")
    assert not SessionSummary.objects.filter(is_digest=True).exists()


def test_a_run_that_lost_its_race_archives_nothing(conversation, monkeypatch):
    real, seen = ModelSummarizer.summarize, []
    session = conversation.session

    def meanwhile(self, request):
        if not seen:
            seen.append(True)
            past = timezone.now() - timedelta(seconds=1)
            CompactionState.objects.update(lease_expires_at=past)
            compact(session)
        return real(self, request)

    monkeypatch.setattr(ModelSummarizer, "summarize", meanwhile)
    fill(session, 0, 130)
    say(session, "a question")
    assert not SessionSummary.objects.filter(is_digest=True).exists()


def test_rules_of_the_conversation_push_nothing_out(conversation, model_server):
    failing(model_server)
    rules = [{"role": "system", "content": f"rule {n}"} for n in range(10)]
    store(conversation.session, rules)
    fill(conversation.session, 0, 69)
    say(conversation.session, "and now?")
    assert not SessionSummary.objects.exists()
    assert unknown(model_server, 69) == []


# --- no storms -----------------------------------------------------------------------------------


def test_a_tail_that_is_near_the_limit_alone_is_followed_by_few_runs(
    conversation, model_server, use_models
):
    save_profile(name="window", base="sliding_window", parameters={}, make_default=True)
    use_models(model_server.models(CONTEXT_WINDOW=1500, MAX_OUTPUT=200))
    model_server.script = SHORT
    conversation.go_on(104)
    assert len(conversation.fired) <= 8


def test_past_the_budget_the_hard_limit_makes_no_row_with_every_turn(conversation, settings):
    settings.COMPACTION = settings.COMPACTION | {"SESSION_CALLS_PER_HOUR": 1}
    conversation.go_on(52)
    assert conversation.covered == 12
    fill(conversation.session, 0, 21)
    before = CompactionRun.objects.count()
    for number in range(5):
        say(conversation.session, f"question {number}")
    added = CompactionRun.objects.order_by("created_at")[before:]
    assert [run.error_code for run in added] == ["over_budget"]


def test_a_cancel_does_not_shorten_a_longer_pause(conversation):
    conversation.go_on(51)
    store(conversation.session, [user("one more")])
    run = check_branch(conversation.session)
    until = timezone.now() + timedelta(hours=1)
    CompactionState.objects.update(backoff_until=until)
    lifecycle.cancel_run(run)
    assert conversation.state.backoff_until == until


# --- by hand, everything -------------------------------------------------------------------------


def test_a_run_by_hand_takes_everything_whatever_failed(conversation, model_server):
    model_server.script = SHORT
    fill(conversation.session, 0, 200)
    check_branch(conversation.session)
    CompactionState.objects.update(failures=5)
    run = compact(conversation.session)
    assert SessionSummary.objects.get(run=run).message_count == 160


# --- nobody is forgotten -------------------------------------------------------------------------


def test_an_idle_session_that_gets_the_profile_is_looked_at(
    monkeypatch, model_server, owner, queued
):
    profile(**NEVER)
    conversation = Conversation(monkeypatch, owner=owner)
    conversation.go_on(45)
    save_profile(name="window", base="sliding_window", parameters={"prepare_ratio": 0.0})
    assign_profile(conversation.session, "window")
    assert sweep_runs().due_branches == 0
    conversation.seconds = 1000
    assert sweep_runs().due_branches == 1


def test_an_idle_session_whose_summary_was_restored_is_looked_at(conversation):
    window(restore_hold="0")
    conversation.go_on(44)
    conversation.seconds = 1000
    conversation.look()
    restore_summary(conversation.summaries()[0])
    # It is left alone for a quarter of an hour, so that somebody can read it.
    conversation.seconds = 1890
    assert sweep_runs().due_branches == 0
    conversation.seconds = 2000
    assert sweep_runs().due_branches == 1


def test_a_shorter_age_counts_for_those_that_wait_already(conversation):
    conversation.go_on(45)
    window(compression_cooldown_sec=60)
    assert sweep_runs().due_branches == 0
    conversation.seconds = 61
    assert sweep_runs().due_branches == 1


def test_a_branch_that_is_gone_back_to_is_looked_at(conversation, api):
    conversation.go_on(45)
    root = conversation.session.branch
    at = Message.objects.get(position=20_000_000)
    transcript.activate(conversation.session, transcript.fork(conversation.session, at=at))
    conversation.seconds = 901
    assert sweep_runs().due_branches == 0
    api.post(f"/api/v1/branches/{root.pk}/activate/", {}, format="json")
    assert CompactionRun.objects.get().reason == "maximum_age"


def test_a_turn_that_failed_sets_the_clock(conversation, model_server):
    conversation.go_on(43)
    refused = {"error": {"status": 400, "body": {"error": {"message": "no"}}}}
    model_server.script = [{"when": {"purpose": "chat"}, "reply": refused}]
    with pytest.raises(TurnFailedError):
        say(conversation.session, "a question")
    assert conversation.state.next_check_at == START + timedelta(seconds=900)


def test_a_branch_that_cannot_be_looked_at_keeps_no_other_waiting(conversation, monkeypatch, owner):
    conversation.go_on(45)
    second = Conversation(monkeypatch, owner=owner)
    second.go_on(45)
    for one in (conversation, second):
        one.seconds = 2500
    monkeypatch.setattr(timezone, "now", lambda: START + timedelta(seconds=2500))
    real = sweeping.check_branch

    def broken(session, branch):
        if session.pk == conversation.session.pk:
            raise RuntimeError("a fault of ours")
        return real(session, branch)

    monkeypatch.setattr(sweeping, "check_branch", broken)
    assert sweep_runs().due_branches == 1
    assert conversation.state.next_check_at == START + timedelta(seconds=2500 + 600)
    monkeypatch.setattr(sweeping, "check_branch", real)
    monkeypatch.setattr(timezone, "now", lambda: START + timedelta(seconds=3200))
    assert sweep_runs().due_branches == 1


def test_who_asked_while_no_run_held_the_branch_is_not_forgotten(conversation):
    conversation.go_on(51)
    lease = Lease.acquire_or_steal(conversation.session.branch.pk, uuid.uuid4())
    store(conversation.session, [user("one more")])
    assert check_branch(conversation.session) is None
    lease.release()
    conversation.seconds = 100
    assert sweep_runs().due_branches == 1


def test_a_run_by_hand_whose_worker_died_goes_on_although_another_took_the_branch(
    owner, model_server, queued
):
    row = profile(message_limit=10, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(6, marker=1))
    automatic = check_branch(session)
    manual = lifecycle.request_run(lifecycle.RunRequest(
        session=session, branch=session.branch, trigger="manual", reason="manual",
        profile=row, background=True, instructions="names first",
    ))  # fmt: skip
    worker, past = uuid.uuid4(), timezone.now() - timedelta(hours=1)
    lifecycle.claim(manual.pk, worker)
    Lease.acquire_or_steal(session.branch.pk, worker)
    CompactionState.objects.update(lease_expires_at=past)
    execute_run(automatic.pk)
    manual.refresh_from_db()
    assert (manual.status, manual.error_code) == ("failed", "interrupted")
    again = CompactionRun.objects.filter(trigger="manual").exclude(pk=manual.pk).get()
    assert (again.instructions, again.restarts) == ("names first", 1)


def test_a_draft_is_not_forgotten_when_no_more_are_to_be_kept(small):
    keeps = {"prepare_ratio": 0.7, "keep_last_n": 4}
    profile(**(NEVER | keeps | {"publish_when_needed": True}))
    execute_run(check_branch(small).pk)
    profile(**(NEVER | keeps))
    execute_run(check_branch(small).pk)
    assert [row.status for row in SessionSummary.objects.all()] == ["active"]


# --- what is known of the request ----------------------------------------------------------------


def test_a_large_prompt_counts_ahead_of_need_and_the_api_says_the_same(small, api):
    profile(**(NEVER | {"prepare_ratio": 0.7, "keep_last_n": 20}))
    small.system_prompt = "rule " * 500
    small.save()
    body = api.get(f"/api/v1/sessions/{small.pk}/compaction/").json()
    assert body["due"] == "ahead"
    (rule,) = [rule for rule in body["triggers"] if rule["reason"] == "ahead"]
    assert rule["left"] == 0
    assert check_branch(small).reason == "ahead"


def test_short_questions_stay_with_their_answers(conversation):
    """Where all replies are short, the cut need not go back to a longer one: none may be longer."""
    for number in range(52):
        question = f"{code(number)[: SHORT_REPLY_CHARS - 2]} ?"
        answer = f"{code(number)} the long answer" + " with a lot of words in it" * 4
        conversation.add(text=question if number % 2 == 0 else answer)
    assert conversation.fired == [(52, "message_window")]
    kept = [m for m in sent(conversation.session) if m["role"] != "system"]
    assert (kept[0]["role"], kept[0]["content"]) == (
        "user",
        f"{code(12)[: SHORT_REPLY_CHARS - 2]} ?",
    )


def test_no_call_is_made_when_the_time_is_up(conversation, model_server):
    fill(conversation.session, 0, 52)
    run = execute_run(check_branch(conversation.session).pk, seconds=0.0001)
    assert run.error_code == "out_of_time"
    assert model_server.of("summary") == []


def test_a_call_that_ends_after_its_time_counts(conversation, monkeypatch):
    """What is paid for and finished is not thrown away."""
    real = ModelSummarizer.summarize

    def long_call(self, request):
        answer = real(self, request)
        threading.Event().wait(0.6)
        return answer

    monkeypatch.setattr(ModelSummarizer, "summarize", long_call)
    fill(conversation.session, 0, 52)
    assert execute_run(check_branch(conversation.session).pk, seconds=0.5).status == "succeeded"
