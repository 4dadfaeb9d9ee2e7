"""`/metrics`: what Prometheus reads, and what that costs."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from compaction.branches.snapshot import snapshot_of
from compaction.models import (
    CompactionRun,
    CompactionState,
    ModelBreaker,
    RunTotals,
    SessionSummary,
    SummaryQuality,
    WorkerHeartbeat,
)
from tests.compaction.scraping import AUTHORIZED, let_scrape
from tests.compaction.support import compact
from tests.factories import SessionFactory, profile, talk

parser = pytest.importorskip("prometheus_client.parser")
openmetrics = pytest.importorskip("prometheus_client.openmetrics.parser")

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def surroundings(settings, monkeypatch):
    let_scrape(settings, monkeypatch, tasks=5)


@pytest.fixture
def session(owner):
    profile(message_limit=0, max_context_tokens=0, keep_last_n=2)
    return SessionFactory(owner=owner, wires=talk(4))


def ago(seconds: float):
    return timezone.now() - timedelta(seconds=seconds)


def scrape() -> dict[str, dict[tuple[str, ...], float]]:
    """Return every sample by its name and the values of its labels, in order of their names."""
    response = Client().get("/metrics", headers=AUTHORIZED)
    assert response.status_code == 200, response.content
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in parser.text_string_to_metric_families(response.content.decode()):
        for sample in family.samples:
            values = tuple(sample.labels[label] for label in sorted(sample.labels))
            found.setdefault(sample.name, {})[values] = sample.value
    return found


def labels(name: str) -> set[str]:
    text = Client().get("/metrics", headers=AUTHORIZED).content.decode()
    return {
        label
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
        for label in sample.labels
    }


def total(status: str, reason: str, *, mode: str = "inline", **amounts) -> None:
    RunTotals.objects.create(status=status, reason=reason, mode=mode, **amounts)


def run(session, status: str = "queued", **columns) -> CompactionRun:
    columns = {"trigger": "manual", "reason": "manual", "mode": "background"} | columns
    return CompactionRun.objects.create(
        session=session, branch=session.branch, status=status,
        profile=snapshot_of(session).profile_row, **columns,
    )  # fmt: skip


def measured(session, score: float) -> None:
    summary = SessionSummary.objects.create(
        session=session, branch=session.branch, status="superseded", summary_text="A text.",
        trigger="manual", reason="manual", covers_from=1, covers_through=2,
    )  # fmt: skip
    SummaryQuality.objects.create(summary=summary, version=1, score=score)


def beat(kind: str, seconds: float) -> None:
    WorkerHeartbeat.objects.create(id=uuid4(), kind=kind, host="h", pid=1, beat_at=ago(seconds))


def test_an_empty_installation_shows_zeros():
    shown = scrape()
    assert shown["palimpsest_runs_unfinished"] == {("queued",): 0, ("running",): 0}
    assert shown["palimpsest_queue_age_seconds"] == {(): 0}
    assert shown["palimpsest_leases_held"] == {(): 0}
    assert shown["palimpsest_leases_expired"] == {(): 0}
    assert shown["palimpsest_workers"] == {("queue",): 0, ("web",): 0, ("command",): 0}
    assert "palimpsest_runs_total" not in shown


def test_ended_runs_are_counted_by_outcome_reason_and_mode():
    total("succeeded", "message_limit", mode="background", runs=7)
    total("failed", "overflow_retry", runs=2)
    assert scrape()["palimpsest_runs_total"] == {
        ("inline", "overflow_retry", "failed"): 2,
        ("background", "message_limit", "succeeded"): 7,
    }
    assert labels("palimpsest_runs_total") == {"status", "reason", "mode"}


def test_seconds_are_summed_by_outcome_and_mode_over_all_reasons():
    total("succeeded", "message_limit", runs=3, seconds=4.5)
    total("succeeded", "manual", runs=1, seconds=2.25)
    total("failed", "manual", runs=1, seconds=60.0)
    shown = scrape()
    assert shown["palimpsest_run_seconds_sum"] == {
        ("inline", "succeeded"): 6.75,
        ("inline", "failed"): 60.0,
    }
    assert shown["palimpsest_run_seconds_count"] == {
        ("inline", "succeeded"): 4,
        ("inline", "failed"): 1,
    }


def test_saved_tokens_are_summed_by_reason():
    total("succeeded", "manual", tokens_saved=1_000)
    total("succeeded", "manual", mode="background", tokens_saved=500)
    total("succeeded", "message_limit", tokens_saved=20)
    assert scrape()["palimpsest_tokens_saved_total"] == {
        ("manual",): 1_500,
        ("message_limit",): 20,
    }


def test_runs_that_wait_or_work_are_counted(session):
    run(session)
    run(session)
    run(session, "running")
    run(session, "succeeded")
    shown = scrape()["palimpsest_runs_unfinished"]
    assert shown == {("queued",): 2, ("running",): 1}


def age() -> float:
    return scrape()["palimpsest_queue_age_seconds"][()]


def test_the_queue_is_as_old_as_its_oldest_run(session):
    run(session, created_at=ago(300))
    run(session, created_at=ago(20))
    assert age() == pytest.approx(300, abs=15)


def test_runs_that_work_or_ended_are_not_in_the_queue(session):
    run(session, "running", created_at=ago(300))
    run(session, "failed", created_at=ago(300))
    assert age() == 0


def test_a_run_that_waits_for_something_else_does_not_make_the_queue_old(session):
    run(session, created_at=ago(300), waits_until=ago(-60))
    assert age() == 0


def test_a_run_whose_wait_is_over_has_been_in_the_queue_since_then(session):
    run(session, created_at=ago(3_000), waits_until=ago(200))
    assert age() == pytest.approx(200, abs=15)


def test_tasks_in_the_broker_are_shown():
    assert scrape()["palimpsest_queue_tasks"] == {(): 5}


@pytest.mark.parametrize("asked", ["ping", "waiting_tasks"])
def test_a_broker_that_does_not_answer_leaves_out_one_figure_only(monkeypatch, caplog, asked):
    def refuse() -> None:
        raise ConnectionError("no broker")

    monkeypatch.setattr(f"compaction.runs.queue.{asked}", refuse)
    shown = scrape()
    assert "palimpsest_queue_tasks" not in shown
    assert "palimpsest_leases_held" in shown
    assert "no broker" in caplog.text


def lease(owner, expires_at) -> None:
    branch = SessionFactory(owner=owner).branch
    CompactionState.objects.create(branch=branch, lease_owner=uuid4(), lease_expires_at=expires_at)


def test_leases_are_held_until_they_expire(owner):
    lease(owner, ago(-60))
    lease(owner, ago(-60))
    lease(owner, ago(5))
    CompactionState.objects.create(branch=SessionFactory(owner=owner).branch)
    shown = scrape()
    assert shown["palimpsest_leases_held"] == {(): 2}
    assert shown["palimpsest_leases_expired"] == {(): 1}


def test_a_breaker_is_0_closed_1_probing_2_open():
    ModelBreaker.objects.create(model="a", failures=2)
    ModelBreaker.objects.create(model="b", failures=5, opened_at=ago(1), probe=uuid4())
    ModelBreaker.objects.create(model="c", failures=7, opened_at=ago(1))
    shown = scrape()
    assert shown["palimpsest_breaker_state"] == {("a",): 0, ("b",): 1, ("c",): 2}
    assert shown["palimpsest_breaker_failures"] == {("a",): 2, ("b",): 5, ("c",): 7}


def test_workers_live_for_180_seconds_after_their_last_sign():
    beat("queue", 10)
    beat("queue", 170)
    beat("queue", 190)
    beat("web", 500)
    shown = scrape()
    assert shown["palimpsest_workers"] == {("queue",): 2, ("web",): 0, ("command",): 0}
    ages = shown["palimpsest_heartbeat_age_seconds"]
    assert set(ages) == {("queue",), ("web",)}
    assert ages["queue",] == pytest.approx(10, abs=8)
    assert ages["web",] == pytest.approx(500, abs=8)


def test_a_clock_that_is_ahead_makes_no_negative_age():
    beat("web", -120)
    assert scrape()["palimpsest_heartbeat_age_seconds"] == {("web",): 0}


def test_scores_are_counted_up_to_each_ten(session):
    for score in (9.5, 40.0, 40.5):
        measured(session, score)
    shown = scrape()
    buckets = shown["palimpsest_summary_score_bucket"]
    assert [buckets[most,] for most in ("10.0", "40.0", "50.0", "100.0")] == [1, 2, 3, 3]
    assert shown["palimpsest_summary_score_count"] == {(): 3}
    assert shown["palimpsest_summary_score_sum"] == {(): 90.0}


def test_refused_texts_are_counted_by_reason(session):
    one = run(session, "succeeded")
    codes = [("rejected", "language"), ("rejected", "language"), ("rejected", "empty"), ("ok", "")]
    for order, (outcome, code) in enumerate(codes):
        one.steps.create(kind="chunk", order=order, outcome=outcome, code=code)
    assert scrape()["palimpsest_summaries_rejected"] == {("language",): 2, ("empty",): 1}


def test_no_word_of_a_conversation_is_shown(session, queued):
    compact(session)
    body = Client().get("/metrics", headers=AUTHORIZED).content.decode()
    assert "question" not in body
    assert str(session.pk) not in body


def test_a_scraper_that_asks_for_openmetrics_gets_it():
    total("succeeded", "manual", runs=1, seconds=1.5, tokens_saved=3)
    accepted = {"Accept": "application/openmetrics-text;version=1.0.0"}
    response = Client().get("/metrics", headers=AUTHORIZED | accepted)
    assert response.headers["Content-Type"].startswith("application/openmetrics-text")
    families = openmetrics.text_string_to_metric_families(response.content.decode())
    assert "palimpsest_runs" in {family.name for family in families}


def test_every_figure_has_a_sentence_that_explains_it():
    text = Client().get("/metrics", headers=AUTHORIZED).content.decode()
    families = list(parser.text_string_to_metric_families(text))
    assert len(families) >= 10
    assert [one.name for one in families if not one.documentation.endswith(".")] == []


def test_a_scrape_costs_seven_queries_however_much_is_stored(session, django_assert_num_queries):
    for number in range(6):
        total("failed", f"reason {number}", runs=number)
        run(session, created_at=ago(number))
        beat("queue", number)
        ModelBreaker.objects.create(model=f"model {number}")
        lease(session.owner, ago(-60))
    with django_assert_num_queries(7):
        scrape()
