"""Budgets of an hour: what counts, for whom, and when it goes on.

Every test has its own clock: `NOW`, which `overspent` is given.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from chatapp.models import Session
from compaction.limits.budget import overspent
from compaction.models import CompactionRun
from compaction.profiles import find_profile
from tests.factories import SessionFactory, UserFactory

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 28, 10, 0, 0, tzinfo=UTC)
NO_LIMITS = {
    "SESSION_CALLS_PER_HOUR": 0,
    "SESSION_TOKENS_PER_HOUR": 0,
    "OWNER_CALLS_PER_HOUR": 0,
    "OWNER_TOKENS_PER_HOUR": 0,
}


@pytest.fixture
def limit(settings):
    """Set these limits and no others: limit(SESSION_CALLS_PER_HOUR=10)."""

    def set_limits(**limits: int) -> None:
        settings.COMPACTION = settings.COMPACTION | NO_LIMITS | limits

    return set_limits


@pytest.fixture
def session(owner) -> Session:
    return SessionFactory(owner=owner)


def spend(session: Session, *, ago: int, calls: int = 1, tokens: int = 1) -> CompactionRun:
    """Store a run that began `ago` minutes before NOW."""
    return CompactionRun.objects.create(
        session=session, branch=session.branch, profile=find_profile(), trigger="manual",
        reason="manual", mode="background", status="succeeded", model_calls=calls,
        spent_tokens=tokens, started_at=NOW - timedelta(minutes=ago),
    )  # fmt: skip


# --- what counts ----------------------------------------------------------------------------------


def test_it_lets_a_session_go_on_that_has_spent_nothing(session):
    assert overspent(session, now=NOW) is None


@pytest.mark.parametrize(("calls", "is_reached"), [(9, False), (10, True), (11, True)])
def test_a_limit_of_calls_is_reached_when_as_many_were_made(session, limit, calls, is_reached):
    limit(SESSION_CALLS_PER_HOUR=10)
    spend(session, ago=5, calls=calls)
    assert (overspent(session, now=NOW) is not None) == is_reached


@pytest.mark.parametrize(("tokens", "is_reached"), [(999, False), (1000, True)])
def test_a_limit_of_tokens_is_reached_when_as_many_were_spent(session, limit, tokens, is_reached):
    limit(SESSION_TOKENS_PER_HOUR=1000)
    spend(session, ago=5, tokens=tokens)
    assert (overspent(session, now=NOW) is not None) == is_reached


def test_it_adds_up_the_runs_of_the_hour(session, limit):
    limit(SESSION_CALLS_PER_HOUR=10)
    spend(session, ago=50, calls=4)
    spend(session, ago=20, calls=6)
    assert overspent(session, now=NOW) is not None


@pytest.mark.parametrize(("ago", "is_reached"), [(59, True), (60, False), (61, False)])
def test_what_began_an_hour_ago_counts_no_longer(session, limit, ago, is_reached):
    limit(SESSION_CALLS_PER_HOUR=1)
    spend(session, ago=ago)
    assert (overspent(session, now=NOW) is not None) == is_reached


def test_sentences_chosen_without_a_model_cost_nothing(session, limit):
    limit(SESSION_CALLS_PER_HOUR=1, OWNER_CALLS_PER_HOUR=1)
    spend(session, ago=5, calls=7, tokens=0)
    assert overspent(session, now=NOW) is None


def test_a_run_that_waits_has_spent_nothing(session, limit):
    limit(SESSION_CALLS_PER_HOUR=1)
    CompactionRun.objects.filter(pk=spend(session, ago=5).pk).update(started_at=None)
    assert overspent(session, now=NOW) is None


def test_a_failed_run_counts_like_any_other(session, limit):
    limit(SESSION_CALLS_PER_HOUR=1)
    CompactionRun.objects.filter(pk=spend(session, ago=5).pk).update(status="failed")
    assert overspent(session, now=NOW) is not None


def test_0_means_no_limit(session, limit):
    limit()
    spend(session, ago=5, calls=10**6, tokens=10**9)
    assert overspent(session, now=NOW) is None


# --- whose budget ---------------------------------------------------------------------------------


def test_two_sessions_of_one_owner_share_the_owners_budget(session, owner, limit):
    limit(OWNER_CALLS_PER_HOUR=10)
    spend(session, ago=5, calls=5)
    spend(SessionFactory(owner=owner), ago=5, calls=5)
    assert overspent(session, now=NOW) is not None


def test_another_owners_spending_does_not_count(session, limit):
    limit(OWNER_CALLS_PER_HOUR=10, OWNER_TOKENS_PER_HOUR=10)
    spend(SessionFactory(owner=UserFactory()), ago=5, calls=50, tokens=50)
    assert overspent(session, now=NOW) is None


@pytest.mark.parametrize("further", [{}, {"OWNER_CALLS_PER_HOUR": 100}])
def test_another_session_of_the_owner_does_not_use_up_the_sessions_budget(
    session, owner, limit, further
):
    limit(SESSION_CALLS_PER_HOUR=10, **further)
    spend(SessionFactory(owner=owner), ago=5, calls=50)
    assert overspent(session, now=NOW) is None


# --- when it goes on ------------------------------------------------------------------------------


def test_it_goes_on_when_enough_is_older_than_an_hour(session, limit):
    limit(SESSION_CALLS_PER_HOUR=10)
    for ago, calls in ((50, 3), (40, 4), (10, 9)):
        spend(session, ago=ago, calls=calls)
    # 16 calls; 13 without the oldest; 9 without the two oldest.
    found = overspent(session, now=NOW)
    assert found.frees_at == NOW + timedelta(minutes=20)
    assert overspent(session, now=found.frees_at) is None
    assert overspent(session, now=found.frees_at - timedelta(seconds=1)) is not None


def test_a_run_that_spent_more_than_the_limit_alone_holds_it_for_an_hour(session, limit):
    limit(SESSION_TOKENS_PER_HOUR=1000)
    spend(session, ago=50, tokens=10)
    spend(session, ago=10, tokens=5000)
    assert overspent(session, now=NOW).frees_at == NOW + timedelta(minutes=50)


def test_runs_of_other_sessions_move_the_end_of_the_owners_budget_alone(session, owner, limit):
    limit(SESSION_CALLS_PER_HOUR=5, OWNER_CALLS_PER_HOUR=1000)
    spend(SessionFactory(owner=owner), ago=1, calls=5)
    spend(SessionFactory(owner=UserFactory()), ago=0, calls=5)
    spend(session, ago=30, calls=5)
    assert overspent(session, now=NOW).frees_at == NOW + timedelta(minutes=30)
    limit(OWNER_CALLS_PER_HOUR=5)
    assert overspent(session, now=NOW).frees_at == NOW + timedelta(minutes=59)


def test_of_several_reached_limits_it_tells_the_one_that_holds_longest(session, owner, limit):
    limit(SESSION_CALLS_PER_HOUR=2, OWNER_TOKENS_PER_HOUR=100)
    spend(session, ago=50, calls=2, tokens=10)
    spend(SessionFactory(owner=owner), ago=10, tokens=100)
    found = overspent(session, now=NOW)
    assert found.frees_at == NOW + timedelta(minutes=50)
    assert "COMPACTION_OWNER_TOKENS_PER_HOUR" in found.sentence


# --- what the operator reads ----------------------------------------------------------------------


def test_the_sentence_of_a_sessions_budget(session, limit):
    limit(SESSION_CALLS_PER_HOUR=1200)
    spend(session, ago=15, calls=1234)
    assert overspent(session, now=NOW).sentence == (
        "The budget of the session is used up: summarising this session took 1,234 model calls "
        "within an hour, and the limit is 1,200. Nothing was summarised. It goes on at "
        "28 Nov 2026, 10:45:00 UTC, or at once when COMPACTION_SESSION_CALLS_PER_HOUR is raised."
    )


def test_the_sentence_of_an_owners_budget_names_the_owner(limit):
    session = SessionFactory(owner=UserFactory(username="ana"))
    limit(OWNER_TOKENS_PER_HOUR=5000)
    spend(session, ago=15, tokens=5000)
    assert overspent(session, now=NOW).sentence == (
        "The budget of the owner (ana) is used up: summarising all sessions of this owner took "
        "5,000 tokens within an hour, and the limit is 5,000. Nothing was summarised. It goes on "
        "at 28 Nov 2026, 10:45:00 UTC, or at once when COMPACTION_OWNER_TOKENS_PER_HOUR is raised."
    )


# --- what it costs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "queries"),
    [
        ({}, 0),
        ({"SESSION_CALLS_PER_HOUR": 100}, 1),
        ({"SESSION_TOKENS_PER_HOUR": 100, "OWNER_CALLS_PER_HOUR": 100}, 1),
    ],
    ids=["none", "session", "both"],
)
def test_the_good_path_costs_one_query_at_most(
    owner, limit, django_assert_num_queries, limits, queries
):
    stored = SessionFactory(owner=owner)
    for ago in range(1, 30):
        spend(stored, ago=ago)
    limit(**limits)
    session = Session.objects.get(pk=stored.pk)
    with django_assert_num_queries(queries):
        assert overspent(session, now=NOW) is None


def test_on_sqlite_the_good_path_reads_the_index_of_what_was_spent(session, limit):
    if connection.vendor != "sqlite":
        pytest.skip("needs SQLite: the plan of a small table says nothing on PostgreSQL")
    limit(SESSION_CALLS_PER_HOUR=100, OWNER_CALLS_PER_HOUR=100)
    with CaptureQueriesContext(connection) as queries:
        overspent(session, now=NOW)
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {queries[0]['sql']}".replace("%", "%%"))
        plan = [row[3] for row in cursor.fetchall()]
    assert plan[0] == "SEARCH compaction_runs USING INDEX run_spent (started_at>?)"


def test_a_reached_limit_costs_one_more_query_however_many_runs_there_were(
    owner, limit, django_assert_num_queries
):
    stored = SessionFactory(owner=owner)
    for ago in range(1, 30):
        spend(stored, ago=ago)
    limit(SESSION_CALLS_PER_HOUR=3, SESSION_TOKENS_PER_HOUR=3)
    session = Session.objects.get(pk=stored.pk)
    with django_assert_num_queries(2):
        assert overspent(session, now=NOW) is not None
