"""Budgets and breakers as runs meet them: what is skipped, what waits, what goes on."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from compaction.limits.circuit_breaker import close
from compaction.models import CompactionRun, CompactionState, ModelBreaker, SessionSummary
from compaction.profiles import save_profile
from compaction.runs.scheduling import check_branch
from compaction.runs.sweep import sweep_runs
from compaction.runs.worker import execute_run
from tests.compaction.support import compact, say, state
from tests.factories import SessionFactory, UserFactory, profile, store, talk, user
from tests.facts import code

pytestmark = pytest.mark.django_db
DOWN = {"error": {"status": 401, "body": {"error": {"message": "wrong key"}}}}


@pytest.fixture
def session(owner, model_server, queued):
    profile(message_limit=10, keep_last_n=2)
    return SessionFactory(owner=owner, wires=talk(6, marker=1))


def another(session):
    return SessionFactory(owner=session.owner, wires=talk(6))


@pytest.fixture
def limits(settings):
    def set_limits(**values):
        settings.COMPACTION = settings.COMPACTION | values

    return set_limits


def broken(server) -> None:
    server.script = [
        {"when": {"purpose": "summary"}, "reply": DOWN},
        {"when": {"purpose": "chat"}, "reply": {"text": "ok"}},
    ]


# --- budgets -------------------------------------------------------------------------------------


def test_a_run_tells_what_it_spent(session):
    run = compact(session)
    (step,) = run.steps.all()
    assert run.spent_tokens == step.input_tokens + step.output_tokens > 0


def test_choosing_sentences_spends_nothing(session):
    profile(message_limit=10, keep_last_n=2, summariser="extractive")
    assert compact(session).spent_tokens == 0


def test_what_was_too_large_to_be_sent_spends_nothing(owner, model_server, use_models, queued):
    use_models(model_server.models(CONTEXT_WINDOW=2_000, MAX_OUTPUT=400))
    profile(message_limit=10, keep_last_n=2)
    run = compact(SessionFactory(owner=owner, wires=talk(12, words=200)))
    unsent = run.steps.filter(outcome="overflow")
    sent = run.steps.filter(outcome="ok")
    assert unsent and all("It was not sent." in step.error for step in unsent)
    # One stands for each call; those that were sent tell their tokens.
    told = sum(step.input_tokens + step.output_tokens for step in sent)
    assert run.spent_tokens == told + len(unsent)
    assert run.cached_tokens + run.uncached_tokens == sum(step.input_tokens for step in sent)


@pytest.mark.parametrize(
    "limit", ["SESSION_CALLS_PER_HOUR", "OWNER_CALLS_PER_HOUR", "SESSION_TOKENS_PER_HOUR"]
)
def test_past_its_budget_a_run_is_skipped_with_a_reason(session, limits, model_server, limit):
    execute_run(check_branch(session).pk)
    store(session, talk(6))
    limits(**{limit: 1})
    calls = len(model_server.calls)
    run = execute_run(check_branch(session).pk)
    assert (run.status, run.error_code) == ("skipped", "over_budget")
    assert f"COMPACTION_{limit}" in run.error
    assert len(model_server.calls) == calls
    after = state(session)
    assert after.failures == 0
    # No storm of skipped runs: the branch waits until the budget is free again.
    assert after.backoff_until > timezone.now() + timedelta(minutes=59)
    assert after.next_check_at == after.backoff_until
    assert check_branch(session) is None


def test_another_owners_spending_is_no_matter(session, limits):
    compact(session)
    limits(OWNER_CALLS_PER_HOUR=1)
    other = SessionFactory(owner=UserFactory(), wires=talk(6))
    assert compact(other).status == "succeeded"


def test_an_owner_who_asks_by_hand_has_the_same_budget(session, limits, owner):
    compact(session)
    store(session, talk(6))
    limits(SESSION_CALLS_PER_HOUR=1)
    run = compact(session, requested_by=owner)
    assert (run.status, run.error_code) == ("skipped", "over_budget")


def test_an_operator_who_asks_by_hand_has_none(session, limits):
    compact(session)
    store(session, talk(6))
    limits(SESSION_CALLS_PER_HOUR=1)
    assert compact(session, requested_by=UserFactory(is_staff=True)).status == "succeeded"


def test_a_turn_whose_compaction_is_over_budget_goes_out_all_the_same(session, limits):
    compact(session)
    store(session, talk(6))
    limits(SESSION_CALLS_PER_HOUR=1)
    assert say(session, "a question").answer.content == "ok"
    assert CompactionRun.objects.latest("created_at").error_code == "over_budget"


# --- breakers ------------------------------------------------------------------------------------


def opened(session, limits, server) -> None:
    """Open the default model's breaker with two failed runs of other sessions."""
    limits(BREAKER_FAILURES=2)
    good = server.script
    broken(server)
    for one in (another(session), another(session)):
        assert execute_run(check_branch(one).pk).error_code == "summariser_error"
    server.script = good
    assert ModelBreaker.objects.get(pk="default").state == "open"


def test_after_some_failures_in_a_row_runs_wait_and_call_nobody(session, limits, model_server):
    opened(session, limits, model_server)
    calls = len(model_server.calls)
    run = execute_run(check_branch(session).pk)
    assert (run.status, run.error_code) == ("queued", "breaker_open")
    assert run.waits_until > timezone.now()
    assert "default" in run.error
    assert len(model_server.calls) == calls
    assert state(session).failures == 0
    # Delivered early, twice, or by the next message: it waits.
    assert execute_run(run.pk).status == "queued"
    assert check_branch(session) == run
    assert CompactionRun.objects.filter(session=session).count() == 1


def test_when_its_time_is_over_one_run_tries_and_closes_the_breaker(session, limits, model_server):
    opened(session, limits, model_server)
    run = execute_run(check_branch(session).pk)
    ModelBreaker.objects.update(retry_at=timezone.now())
    CompactionRun.objects.filter(pk=run.pk).update(waits_until=timezone.now())
    assert sweep_runs().requeued_runs >= 1
    other = execute_run(check_branch(another(session)).pk)
    assert (other.status, other.error_code) == ("succeeded", "")
    done = execute_run(run.pk)
    assert (done.status, done.error_code, done.error) == ("succeeded", "", "")
    assert ModelBreaker.objects.get().state == "closed"


def test_a_probe_that_fails_opens_it_for_longer(session, limits, model_server):
    opened(session, limits, model_server)
    broken(model_server)
    run = execute_run(check_branch(session).pk)
    ModelBreaker.objects.update(retry_at=timezone.now())
    CompactionRun.objects.filter(pk=run.pk).update(waits_until=timezone.now())
    assert execute_run(run.pk).error_code == "summariser_error"
    row = ModelBreaker.objects.get()
    assert row.state == "open"
    assert row.retry_at > timezone.now() + timedelta(seconds=100)


def test_an_inline_run_does_not_wait_and_the_turn_goes_out(session, limits, model_server):
    opened(session, limits, model_server)
    assert say(session, "a question").answer.content == "ok"
    run = CompactionRun.objects.get(session=session, mode="inline")
    assert (run.status, run.error_code) == ("skipped", "breaker_open")


def test_what_would_fall_out_is_archived_while_the_model_is_left_alone(
    session, limits, model_server
):
    opened(session, limits, model_server)
    save_profile(
        name="window", base="sliding_window", parameters={"prepare_ratio": 0.0}, make_default=True
    )
    store(session, [user(f"{code(n)} words to be kept somewhere") for n in range(100, 190)])
    say(session, "a question")
    assert SessionSummary.objects.filter(session=session, is_digest=True).exists()
    assert state(session).covered_messages >= 28


def test_an_overflow_of_the_summariser_is_no_outage(session, limits, model_server):
    limits(BREAKER_FAILURES=1)
    too_long = {"error": {"code": "context_length_exceeded", "message": "too long"}}
    model_server.script = [
        {
            "when": {"purpose": "summary", "call": 1},
            "reply": {"error": {"status": 400, "body": too_long}},
        },
        *model_server.script,
    ]
    assert compact(session).status == "succeeded"
    assert not ModelBreaker.objects.exclude(opened_at=None).exists()


def test_nonsense_is_no_outage(session, limits, model_server):
    limits(BREAKER_FAILURES=1)
    model_server.script = [{"when": {"purpose": "summary"}, "reply": {"text": ""}}]
    assert compact(session).error_code == "bad_answer"
    assert not ModelBreaker.objects.exclude(opened_at=None).exists()


def test_the_embedded_model_has_no_breaker(session, limits, use_models):
    use_models(
        {
            "default": {
                "BACKEND": "chatapp.llm.embedded.EmbeddedModel",
                "NAME": "embedded",
                "CONTEXT_WINDOW": 8192,
            }
        }
    )
    ModelBreaker.objects.create(
        model="default", failures=9, opened_at=timezone.now(),
        retry_at=timezone.now() + timedelta(hours=1),
    )  # fmt: skip
    assert compact(session).status == "succeeded"


def test_an_operator_closes_it_by_hand_and_what_waits_is_delivered(session, limits, model_server):
    opened(session, limits, model_server)
    run = execute_run(check_branch(session).pk)
    assert run.waits_until > timezone.now()
    close("default")
    assert sweep_runs().requeued_runs == 1
    assert execute_run(run.pk).status == "succeeded"


def test_a_second_automatic_run_takes_the_place_of_one_that_would_wait(
    session, limits, model_server
):
    """Two queued automatic runs of one branch cannot be: the one that is put back ends."""
    opened(session, limits, model_server)
    waiting = check_branch(session)
    CompactionRun.objects.filter(pk=waiting.pk).update(status="running")
    other = check_branch(session)
    CompactionRun.objects.filter(pk=waiting.pk).update(status="queued", trigger="manual")
    assert other != waiting
    CompactionRun.objects.filter(pk=waiting.pk).update(trigger="manual")
    run = execute_run(waiting.pk)
    assert run.error_code == "breaker_open"
    assert CompactionState.objects.get(pk=session.branch.pk).lease_owner is None
