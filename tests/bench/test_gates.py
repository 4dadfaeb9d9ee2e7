"""What a turn, a message and a page may ask of the database: counts that CI holds.

They are today's, so that nothing gets worse unseen; GOALS is what they shall come to. Whoever
makes one smaller writes the smaller number here. Times are in no test: they differ from machine to
machine.
"""

from __future__ import annotations

from operator import add

import pytest
from django.conf import settings
from django.db import connection

from chatapp.models import Session
from tests.bench.conversations import grow, stored, summarise_all_but
from tests.bench.floor import ROWS
from tests.bench.instant import models
from tests.bench.statements import Asked, counted, most_asked, round_trips
from tests.bench.states import BACKLOG, FLAT, SUMMARISED, UNSUMMARISED, put_in, works

pytestmark = pytest.mark.django_db(transaction=True)
SHORT, LONG = 150, 1_500
ON_POSTGRESQL = pytest.mark.skipif(
    settings.DATABASES["default"]["ENGINE"] != "django.db.backends.postgresql",
    reason="only PostgreSQL is asked over a network",
)
# (statements, commits, rows) at most. PostgreSQL locks the owner's row for a turn's lease: one
# statement and one row more.
MOST = {
    (SUMMARISED, "turn"): (15, 2, 31),
    (UNSUMMARISED, "turn"): (15, 2, 70),
    (BACKLOG, "turn"): (17, 2, 71),
    (SUMMARISED, "POST"): (8, 1, 6),
    (UNSUMMARISED, "POST"): (8, 1, 6),
    (BACKLOG, "POST"): (8, 1, 6),
    # Two rows a message: its place for the page's tag, and its columns where the tag is another.
    (SUMMARISED, "GET of the last 100"): (4, 0, 203),
    (UNSUMMARISED, "GET of the last 100"): (4, 0, 203),
    (BACKLOG, "GET of the last 100"): (4, 0, 203),
    (SUMMARISED, "context/"): (9, 0, 19),
    (UNSUMMARISED, "context/"): (12, 0, 134),
    (BACKLOG, "context/"): (13, 0, 142),
}
LEASE_ON_POSTGRESQL = (1, 0, 1)
MOST_ROUND_TRIPS = {
    (SUMMARISED, "turn"): 9, (UNSUMMARISED, "turn"): 9, (BACKLOG, "turn"): 9,
    (SUMMARISED, "POST"): 5, (UNSUMMARISED, "POST"): 5, (BACKLOG, "POST"): 5,
    (SUMMARISED, "GET of the last 100"): 4, (SUMMARISED, "context/"): 9,
}  # fmt: skip
GOALS = {"turn": "10 round trips, 2 commits", "POST": "5 round trips"}


@pytest.fixture(autouse=True)
def instant_model(settings, queued):
    """Answer at once, let runs wait, and have the benchmark's addresses."""
    settings.CHATAPP = settings.CHATAPP | {"MODELS": models()}
    settings.ROOT_URLCONF = "tests.bench.floor"


def asked_in(state: str, session: Session) -> dict[str, Asked]:
    """Return what each kind of work asks for, each of them in that state."""
    found = {}
    for name, work in works(session):
        put_in(state, session)
        found[name] = most_asked(work)
    return found


@pytest.mark.parametrize("state", FLAT)
def test_work_asks_for_no_more_than_today_and_for_the_same_at_any_age(state):
    # The same messages again and again: both end alike.
    short, long = (asked_in(state, grow(stored(SHORT), count)) for count in (SHORT, LONG))
    for name, asked in long.items():
        takes_lease = name == "turn" and connection.vendor == "postgresql"
        more = LEASE_ON_POSTGRESQL if takes_lease else (0, 0, 0)
        most = tuple(map(add, MOST[state, name], more))
        counts = (asked.statements, asked.transactions, asked.rows)
        assert [n for n in range(3) if counts[n] > most[n]] == [], (
            f"{name}: (statements, commits, rows) are {counts}, at most {most} are allowed; "
            f"goal: {GOALS.get(name, 'no more')}"
        )
        before = short[name]
        assert (asked.statements, asked.rows) == (before.statements, before.rows), name


@ON_POSTGRESQL
@pytest.mark.parametrize("state", FLAT)
def test_work_waits_for_the_database_no_more_often_than_today(state):
    session = stored(SHORT)
    for name, work in works(session):
        most = MOST_ROUND_TRIPS.get((state, name))
        if most is not None:
            put_in(state, session)
            assert (found := round_trips(work)) <= most, (
                f"{found}: {name}, goal: {GOALS.get(name, 'no more')}"
            )


def test_the_floor_is_one_statement(client):
    """What rows are compared with in the benchmark does as little as it says."""
    session = stored(10)
    said = {"session": session.pk, "branch": session.branch.pk, "role": "user", "content": "Hi"}
    with counted() as reading:
        assert client.get(f"{ROWS}?branch={session.branch.pk}").status_code == 200
    with counted() as writing:
        assert client.post(ROWS, said, content_type="application/json").status_code == 201
    assert (reading.statements, reading.transactions, reading.rows) == (1, 0, 10)
    assert (writing.statements, writing.transactions) == (1, 0)


@ON_POSTGRESQL
def test_a_proxy_counts_what_is_waited_for():
    def ask() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.execute("SELECT generate_series(1, 100000)")

    assert round_trips(ask) == 2


def test_a_profile_that_is_summarised_leaves_nothing_due():
    """The states are what they are called: nothing of a turn's cost is a compaction."""
    session = put_in(SUMMARISED, stored(SHORT))
    summarise_all_but(session, 10)
    asked = asked_in(SUMMARISED, session)
    assert not any('INSERT INTO "session_summaries"' in sql for sql in asked["turn"].sql)
