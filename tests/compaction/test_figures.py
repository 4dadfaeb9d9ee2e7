"""The roll-up: every figure against rows whose sums were worked out by hand."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, timedelta

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from chatapp.models import Branch
from compaction import tasks
from compaction.branches.leases import ensure_state
from compaction.branches.snapshot import snapshot_of
from compaction.models import CompactionRun, CompactionState, DailyFigures
from compaction.profiles import save_profile
from compaction.runs import queue
from compaction.statistics import daily as services
from compaction.statistics.daily import oldest_waiting, refresh_figures, totals, waiting_runs
from compaction.statistics.ratios import distribution
from tests.compaction.support import NEVER, compact
from tests.compaction.test_report import run_row, step_row, summary_row
from tests.factories import SessionFactory, profile, store, talk

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 27, 10, tzinfo=UTC)
TODAY = date(2026, 11, 27)
DAY = timedelta(days=1)


@pytest.fixture
def session(owner, queued):
    profile(**NEVER)
    return SessionFactory(owner=owner)


def row(day: date = TODAY) -> DailyFigures:
    return DailyFigures.objects.get(day=day)


def days(refreshed) -> list[str]:
    return [day.isoformat() for day in refreshed.days]


# --- what a day's figures are -------------------------------------------------


def test_a_days_runs_are_counted_by_outcome_and_summed(session):
    saved = {"tokens_before": 1000, "tokens_after": 400, "model_calls": 2, "cost": 0.5}
    run_row(session, created_at=NOW, **saved)
    less = {"tokens_before": 500, "tokens_after": 450, "model_calls": 1, "cost": 0.25}
    run_row(session, created_at=NOW, **less)
    failed = run_row(session, "failed", created_at=NOW, model_calls=3, tokens_before=900)
    step_row(failed, cost=0.125)
    for status in ("skipped", "skipped", "cancelled", "queued", "running"):
        run_row(session, status, created_at=NOW)

    refresh_figures(now=NOW)

    today = row()
    assert (today.succeeded, today.skipped, today.failed, today.cancelled) == (2, 2, 1, 1)
    assert today.unfinished == 2
    assert today.tokens_saved == 650
    assert today.model_calls == 6
    assert today.cost == 0.875
    assert today.refreshed_at == NOW


def test_a_day_is_a_day_of_utc_from_midnight_to_midnight(session, settings):
    settings.TIME_ZONE = "Asia/Tokyo"
    midnight = datetime(2026, 11, 27, tzinfo=UTC)
    for moment in (midnight - timedelta(microseconds=1), midnight, midnight + DAY):
        run_row(session, created_at=moment)
    refresh_figures(now=NOW)
    assert (row(TODAY - DAY).succeeded, row().succeeded) == (1, 1)


def test_ratios_fall_into_twenty_steps_of_five_per_cent(session):
    run = run_row(session, created_at=NOW)
    for ratio in (0.0, 0.01, 0.0499, 0.05, 0.15, 0.9499, 0.95, 1.0, 1.7):
        summary_row(run, ratio, created_at=NOW)
    summary_row(run, 0.5, created_at=NOW - 9 * DAY)
    refresh_figures(now=NOW)
    assert row().ratios == [2, 1, 0, 1, *[0] * 14, 1, 3]


@pytest.mark.parametrize("percent", range(5, 100, 5))
def test_a_ratio_on_a_border_belongs_to_the_step_above(session, percent):
    run = run_row(session)
    summary = summary_row(run, percent / 100)
    found = distribution(type(summary).objects.all())
    assert found.index(1) == percent // 5


# --- which days are worked out ------------------------------------------------


def test_without_any_row_it_starts_at_the_first_run(session):
    run_row(session, created_at=NOW - 3 * DAY)
    done = refresh_figures(now=NOW)
    assert days(done) == ["2026-11-24", "2026-11-25", "2026-11-26", "2026-11-27"]
    assert list(DailyFigures.objects.values_list("succeeded", flat=True)) == [0, 0, 0, 1]


def test_an_empty_installation_has_today(db):
    assert days(refresh_figures(now=NOW)) == ["2026-11-27"]
    assert (row().sessions, row().messages, row().tokens_sent) == (0, 0, 0)


def test_later_it_works_out_today_and_yesterday(session):
    run_row(session, created_at=NOW - 5 * DAY)
    refresh_figures(now=NOW)
    assert days(refresh_figures(now=NOW)) == ["2026-11-26", "2026-11-27"]


def test_after_a_pause_it_works_out_what_is_missing_and_the_last_day_again(session):
    run_row(session, created_at=NOW)
    refresh_figures(now=NOW)
    run_row(session, created_at=NOW + timedelta(hours=2))
    run_row(session, created_at=NOW + 2 * DAY)
    done = refresh_figures(now=NOW + 4 * DAY)
    assert days(done) == ["2026-11-27", "2026-11-28", "2026-11-29", "2026-11-30", "2026-12-01"]
    assert row().succeeded == 2
    assert row(date(2026, 11, 29)).succeeded == 1


def test_a_run_that_ends_late_changes_its_old_day(session):
    run = run_row(session, "running", created_at=NOW - 6 * DAY)
    run_row(session, created_at=NOW - 7 * DAY)
    refresh_figures(now=NOW)
    old = date(2026, 11, 21)
    assert (row(old).unfinished, row(old).failed) == (1, 0)

    CompactionRun.objects.filter(pk=run.pk).update(status="failed")
    done = refresh_figures(now=NOW)

    assert days(done) == ["2026-11-21", "2026-11-26", "2026-11-27"]
    assert (row(old).unfinished, row(old).failed) == (0, 1)
    assert days(refresh_figures(now=NOW)) == ["2026-11-26", "2026-11-27"]


def test_everything_is_worked_out_again_on_demand(session):
    run_row(session, created_at=NOW - 3 * DAY)
    refresh_figures(now=NOW)
    DailyFigures.objects.update(succeeded=99)
    assert len(refresh_figures(now=NOW, everything=True).days) == 4
    assert list(DailyFigures.objects.values_list("succeeded", flat=True)) == [0, 0, 0, 1]


# --- repeated, and at once ----------------------------------------------------


def figures() -> list[dict]:
    return list(DailyFigures.objects.values())


def test_two_refreshes_say_the_same(session):
    run = run_row(session, created_at=NOW - DAY, tokens_before=100, tokens_after=10)
    summary_row(run, 0.1, created_at=NOW)
    refresh_figures(now=NOW)
    once = figures()
    refresh_figures(now=NOW)
    assert figures() == once
    assert len(once) == 2


def test_a_worker_that_stores_the_same_days_meanwhile_does_no_harm(session, monkeypatch):
    run_row(session, created_at=NOW - DAY)

    def overtaken() -> dict[str, int]:
        monkeypatch.setattr(services, "totals", totals)
        refresh_figures(now=NOW)
        return totals()

    monkeypatch.setattr(services, "totals", overtaken)
    refresh_figures(now=NOW)
    assert DailyFigures.objects.count() == 2
    assert (row().sessions, row(TODAY - DAY).succeeded) == (1, 1)


def test_totals_of_an_old_day_stay_as_they_were_at_their_time(session):
    refresh_figures(now=NOW)
    SessionFactory(owner=session.owner)
    run_row(session, created_at=NOW)
    refresh_figures(now=NOW + DAY)
    assert (row().sessions, row().succeeded, row().refreshed_at) == (1, 1, NOW)
    assert row(TODAY + DAY).sessions == 2


def test_the_number_of_queries_does_not_grow_with_the_runs(session):
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            refresh_figures(now=NOW)
        return len(captured)

    run_row(session, created_at=NOW)
    refresh_figures(now=NOW)
    few = queries()
    for number in range(30):
        run = run_row(session, created_at=NOW - timedelta(minutes=number), model="m", cost=0.1)
        summary_row(run, 0.3, created_at=NOW)
    assert queries() == few
    assert few <= 26


# --- totals -------------------------------------------------------------------


def branch_of(owner, *, tokens: int, covered: int | None = None, **state) -> Branch:
    """A session whose branch has so many tokens; `covered` of them behind the cursor 10."""
    branch = SessionFactory(owner=owner).branch
    Branch.objects.filter(pk=branch.pk).update(token_total=tokens)
    if covered is not None:
        CompactionState.objects.create(branch=branch, cursor=10, covered_tokens=covered, **state)
    return branch


def active_summary(branch: Branch, through: int, tokens: int, **fields) -> None:
    run = run_row(branch.session)
    fields = {"status": "active", "covers_through": through, "summary_tokens": tokens} | fields
    summary_row(run, 0.1, **fields)


def test_what_is_sent_is_what_is_not_covered_and_the_newest_summaries(owner, queued):
    profile(**NEVER, summary_limit=2)
    save_profile(name="single", parameters={"summary_limit": 1})
    two = branch_of(owner, tokens=1000, covered=600)
    one = branch_of(owner, tokens=300, covered=250, profile="single")
    for branch in (two, one):
        active_summary(branch, 3, 10)
        active_summary(branch, 7, 20)
        active_summary(branch, 10, 40)
        active_summary(branch, 12, 1000)
        active_summary(branch, 9, 1000, status="restored")
    branch_of(owner, tokens=77)
    found = totals()
    assert (found["sessions"], found["tokens_stored"]) == (3, 1377)
    # 400 + (20 + 40), 50 + 40, and 77 of a branch without a state.
    assert found["tokens_sent"] == 627


def test_branches_that_are_not_in_use_do_not_count(owner, queued):
    profile(**NEVER)
    used = branch_of(owner, tokens=100, covered=90)
    other = Branch.objects.create(session=used.session, token_total=5000)
    active_summary(used, 10, 5)
    run = run_row(used.session)
    summary_row(run, 0.1, branch=other, status="active", covers_through=10, summary_tokens=999)
    assert (totals()["tokens_stored"], totals()["tokens_sent"]) == (100, 15)


def test_of_a_compacted_conversation_it_is_what_its_next_request_says(owner, queued, model_server):
    profile(**NEVER, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(6, marker=1))
    compact(session)
    store(session, talk(1))
    ensure_state(session.branch)
    now = snapshot_of(session)
    assert now.summary_tokens > 0
    assert totals()["tokens_sent"] == now.summary_tokens + now.facts.tokens
    # Twelve messages and two later ones; the placeholder is none.
    assert totals()["messages"] == 14
    assert totals()["tokens_stored"] == now.branch.token_total


# --- the queue ----------------------------------------------------------------


def test_the_oldest_waiting_run_is_found(session):
    assert oldest_waiting(NOW) is None
    run_row(session, "running", created_at=NOW - 2 * DAY)
    run_row(session, "queued", created_at=NOW)
    run_row(session, "queued", created_at=NOW - DAY)
    assert oldest_waiting(NOW) == NOW - DAY


def test_a_run_that_was_put_off_waits_for_a_worker_since_its_time_came(session):
    run_row(session, "queued", created_at=NOW - DAY, waits_until=NOW + DAY)
    assert oldest_waiting(NOW) is None
    run_row(session, "queued", created_at=NOW - 2 * DAY, waits_until=NOW - timedelta(minutes=1))
    assert oldest_waiting(NOW) == NOW - timedelta(minutes=1)


@pytest.mark.skipif(connection.vendor != "sqlite", reason="reads the plan of SQLite")
def test_it_is_found_on_the_index_of_unfinished_runs(session):
    assert "run_unfinished" in waiting_runs().explain()


# --- who calls it -------------------------------------------------------------


def roll_up(*arguments: str) -> str:
    out = io.StringIO()
    call_command("roll_up", *arguments, stdout=out)
    return out.getvalue()


def test_the_command_says_which_days_it_worked_out(session, monkeypatch):
    monkeypatch.setattr(services.timezone, "now", lambda: NOW)
    run_row(session, created_at=NOW - 2 * DAY)
    assert roll_up() == "3 days worked out, 2026-11-25 to 2026-11-27 (UTC).\n"
    assert roll_up() == "2 days worked out, 2026-11-26 to 2026-11-27 (UTC).\n"
    assert roll_up("--all").startswith("3 days")


def test_one_day_is_one_day(monkeypatch):
    monkeypatch.setattr(services.timezone, "now", lambda: NOW)
    assert roll_up() == "1 day worked out, 2026-11-27 to 2026-11-27 (UTC).\n"


def test_the_task_rolls_up(session):
    assert tasks.roll_up() == 1
    assert DailyFigures.objects.count() == 1


def test_the_queue_does_it_every_five_minutes_beside_its_other_tasks():
    from django_q.models import Schedule

    queue.ensure_schedules()
    queue.ensure_schedules()
    found = Schedule.objects.order_by("func", "name").values_list("func", "minutes", "repeats")
    assert list(found) == [
        ("compaction.tasks.delete_orphans", 1440, -1),
        ("compaction.tasks.look_at_caches", 1, -1),
        ("compaction.tasks.look_at_caches", 1, -1),
        ("compaction.tasks.roll_up", 5, -1),
        ("compaction.tasks.sweep", 1, -1),
    ]


def test_the_demo_has_figures_at_once(queued, monkeypatch):
    monkeypatch.setattr(
        "compaction.management.commands.demo.load_encoding_quickly", lambda: "as they are"
    )
    call_command("demo", "--no-serve", stdout=io.StringIO(), stderr=io.StringIO())
    today = DailyFigures.objects.get()
    assert (today.sessions, today.succeeded) == (3, 3)
    assert 0 < today.tokens_sent < today.tokens_stored


def test_a_first_run_in_the_future_leaves_today_alone(owner):
    session = SessionFactory(owner=owner)
    noon = datetime(2026, 11, 27, 12, tzinfo=UTC)
    run_row(session, created_at=noon + timedelta(days=2))
    assert refresh_figures(now=noon).days == (date(2026, 11, 27),)
    assert refresh_figures(now=noon, everything=True).days == (date(2026, 11, 27),)


def test_a_run_of_long_ago_makes_no_endless_work(owner, monkeypatch):
    monkeypatch.setattr(services, "MOST_DAYS", 3)
    run_row(SessionFactory(owner=owner), created_at=datetime(1970, 1, 1, tzinfo=UTC))
    noon = datetime(2026, 11, 27, 12, tzinfo=UTC)
    assert [day.day for day in refresh_figures(now=noon).days] == [24, 25, 26, 27]


@pytest.mark.parametrize("odd", [{"base": "of-tomorrow"}, {"parameters": [1, 2]}])
def test_a_profile_of_another_version_of_the_program_stops_no_roll_up(owner, odd):
    row = profile()
    SessionFactory(owner=owner, wires=talk(1))
    type(row).objects.filter(pk=row.pk).update(**odd)
    refresh_figures()
    assert DailyFigures.objects.get().messages == 2
