"""A whole stored turn with a model that answers at once: what it takes, asks for and leaves behind.

It is measured in each state of a session: summarised but for its end, with work that waits for the
queue, and with the whole history in every request.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from django.db import connection
from django.test.utils import CaptureQueriesContext

from chatapp.models import Session
from compaction.profiles import save_profile
from compaction.runs.scheduling import assign_profile
from tests.bench.conversations import fresh, stored, summarise_all_but
from tests.bench.measure import Row, Spent, cpu, repeat, wall
from tests.bench.processes import own_queue
from tests.bench.sizes import Sizes
from tests.bench.statements import rows_of
from tests.bench.states import FLAT, LEFT, SUMMARISED, WHOLE, put_in, take_turn, works

TRIPS = {"turn": "<= 10", "POST": "<= 5"}


def measure(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of this theme."""
    with own_queue():
        for count in sizes.turns:
            session = stored(count)
            for state in (*FLAT, WHOLE):
                if state == WHOLE and count > sizes.largest_unsummarised:
                    continue
                yield from _in_state(state, session, count, sizes)
            yield from _beside(put_in(SUMMARISED, session), count, sizes)


def _in_state(state: str, session: Session, count: int, sizes: Sizes) -> Iterator[Row]:
    spent: list[Spent] = []
    for _ in range(4):
        # Not one of these turns may be the one that compacts.
        put_in(state, session)
        spent += repeat(partial(take_turn, session), sizes.turns_measured)
    name, aim = f"stored turn, {state}", "<= 6, the same at any age" if state in FLAT else ""
    yield Row(name=name, n=count, value=cpu(spent), unit="CPU ms", aim=aim)
    yield Row(name=f"{name}, by the clock", n=count, value=wall(spent), unit="ms")
    for work, act in works(put_in(state, session)):
        put_in(state, session)
        trips = TRIPS.get(work, "") if state in FLAT else ""
        commits = "<= 2" if work == "turn" else ""
        yield from rows_of(f"{work}, {state}", count, act, commits=commits, trips=trips)


def _beside(session: Session, count: int, sizes: Sizes) -> Iterator[Row]:
    clock = _statements_of_clock(session)
    name, aim = "prompt cache's clock, a turn", "<= 1"
    yield Row(name=name, n=count, value=clock, unit="queries", aim=aim)
    yield Row(name="stored turn, on disk", n=count, value=_growth(session, sizes), unit="bytes")


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
        take_turn(session)
        with CaptureQueriesContext(connection) as found:
            take_turn(session)
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
        take_turn(session)
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
