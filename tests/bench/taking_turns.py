"""A whole stored turn with a model that answers at once: time, and bytes on disk."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from django.db import connection
from django.test.utils import CaptureQueriesContext

from chatapp.models import Session
from chatapp.transcript.writing import NewMessage
from chatapp.turns.service import Turn, run_turn
from compaction.profiles import save_profile
from compaction.runs.scheduling import assign_profile
from tests.bench.conversations import fresh, stored, summarise_all_but
from tests.bench.measure import Row, Spent, cpu, repeat, wall
from tests.bench.sizes import Sizes

QUESTION = "Please look at the report again and tell me which of the checks took longest. " * 3
LEFT = 10


def measure(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of this theme."""
    for count in sizes.turns:
        session = stored(count)
        spent: list[Spent] = []
        for _ in range(4):
            # Not one of these turns may be the one that compacts.
            summarise_all_but(session, LEFT)
            spent += repeat(partial(_turn, session), sizes.turns_measured)
            session = fresh(session)
        yield Row(name="stored turn", n=count, value=cpu(spent), unit="CPU ms")
        yield Row(name="stored turn", n=count, value=wall(spent), unit="ms")
        clock = _statements_of_clock(session)
        aim = "<= 1"
        yield Row(
            name="prompt cache's clock, a turn", n=count, value=clock, unit="queries", aim=aim
        )
        yield Row(name="stored turn, on disk", n=count, value=_growth(session, sizes), unit="bytes")


def _turn(session: Session) -> None:
    """Read the session as a view does, and take the turn."""
    run_turn(
        Turn(
            session=fresh(session), drafts=[NewMessage(wire={"role": "user", "content": QUESTION})]
        )
    )


def _statements_of_clock(session: Session) -> int:
    """Return how many statements more a turn takes whose profile watches the prompt cache."""
    counts = []
    for ttl in (0, 300_000):
        parameters = {
            "trigger_on_history_size_chars_when_cache_expiring": 30_000,
            "cache_ttl_ms": ttl,
            "buffer_time_before_cache_expiration_ms": 30_000 if ttl else 0,
        }
        save_profile(name="bench-clock", parameters=parameters)
        assign_profile(session, "bench-clock")
        summarise_all_but(fresh(session), LEFT)
        # The first turn also notes that the profile is another one.
        _turn(session)
        with CaptureQueriesContext(connection) as found:
            _turn(session)
        counts.append(len(found))
    assign_profile(session, "")
    return counts[1] - counts[0]


def _growth(session: Session, sizes: Sizes) -> float:
    """Return by how much the database grows a turn."""
    turns = 10 * sizes.turns_measured
    before = _bytes()
    for number in range(turns):
        if number % 10 == 0:
            summarise_all_but(fresh(session), LEFT)
        _turn(session)
    return (_bytes() - before) / turns


def _bytes() -> int:
    """Return the size of the database: pages in use, as far as SQLite counts them."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT pg_database_size(current_database())")
            return int(cursor.fetchone()[0])
        cursor.execute(
            "SELECT (page_count - freelist_count) * page_size "
            "FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
        )
        return int(cursor.fetchone()[0])
