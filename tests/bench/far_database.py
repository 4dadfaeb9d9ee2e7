"""What a database in another building costs: a millisecond for each round trip, by a proxy.

Milliseconds here are the clock's, for waiting takes no processor. The proxy counts the round trips
of a web worker, with what its pool of connections asks when it lends one. On SQLite there is
nothing to travel: the rows say how many statements would have.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from itertools import cycle

from django.db import connection

from chatapp.keys import create_key
from chatapp.models import Session
from tests.bench.conversations import fresh, owner, stored, summarise_all_but
from tests.bench.measure import Row, percentile
from tests.bench.processes import environment, own_queue, web_server
from tests.bench.proxy import Proxy, database_behind_proxy, proxy
from tests.bench.serving import Client
from tests.bench.sizes import Sizes
from tests.bench.statements import most_asked
from tests.bench.states import LEFT, QUESTION, WHOLE, put_in, works

DELAY_SECONDS = 0.001
AIMS = {"turn": "<= 10", "POST": "<= 5"}
MESSAGES = 200


def measure(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of this theme."""
    count = min(MESSAGES, sizes.turns[0])
    with own_queue():
        for name, work in works(_quiet_session(count)):
            yield from _in_process(name, work, count, sizes)
        if connection.vendor == "postgresql":
            yield from _over_http(_quiet_session(count), count, sizes)


def _quiet_session(count: int) -> Session:
    """Return a session that is summarised but for its end, and in which nothing gets due."""
    session = put_in(WHOLE, stored(count))
    summarise_all_but(session, min(LEFT, count // 2))
    return fresh(session)


def _in_process(name: str, work: Callable[[], None], count: int, sizes: Sizes) -> Iterator[Row]:
    aim = AIMS.get(name, "")
    if connection.vendor != "postgresql":
        yield Row(name=name, n=count, value=most_asked(work).statements, unit="statements")
        return
    for label, delay in (("", 0.0), (", 1 ms to the database", DELAY_SECONDS)):
        with database_behind_proxy(delay_seconds=delay) as found:
            trips, took = _taken(work, found, sizes)
        yield Row(name=f"{name}{label}", n=count, value=took, unit="ms by the clock")
    yield Row(name=f"{name}, in process", n=count, value=trips, unit="round trips", aim=aim)


def _taken(work: Callable[[], None], found: Proxy, sizes: Sizes) -> tuple[float, float]:
    """Return the mean of the round trips and the median milliseconds of some calls."""
    for _ in range(3):
        work()
    before, times = found.round_trips, []
    for _ in range(sizes.turns_measured):
        started = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - started))
    return (found.round_trips - before) / len(times), percentile(times, 50)


def _over_http(session: Session, count: int, sizes: Sizes) -> Iterator[Row]:
    """Do the same with a real web worker behind the proxy: its pool and its keys cost, too."""
    config = connection.settings_dict
    host, port = config["HOST"] or "127.0.0.1", int(config["PORT"] or 5432)
    token = create_key(owner=owner(), name="bench").secret
    address = f"/api/v1/sessions/{session.pk}"
    message = {"role": "user", "content": QUESTION}
    with proxy(host, port, delay_seconds=DELAY_SECONDS) as found:
        surroundings = environment()
        here, there = f":{port}/", f":{found.listens_on}/"
        surroundings["DATABASE_URL"] = (
            surroundings["DATABASE_URL"].replace(host, "127.0.0.1").replace(here, there)
        )
        with web_server(surroundings) as (web, _):
            for name, lines in (
                ("turn", _lines("POST", f"{address}/turns/", {"messages": [message]}, 200)),
                ("POST", _lines("POST", f"{address}/messages/", message, 201)),
                ("GET", _lines("GET", f"{address}/messages/?page_size=100", None, 200)),
            ):
                client = Client(port=web, token=token)
                trips, took = _taken(
                    lambda client=client, lines=lines: client.send(*next(lines)), found, sizes
                )
                title = f"{name} over HTTP, 1 ms to the database"
                aim = AIMS.get(name, "")
                yield Row(name=title, n=count, value=trips, unit="round trips", aim=aim)
                yield Row(name=title, n=count, value=took, unit="ms by the clock")


def _lines(
    method: str, address: str, body: object, status: int
) -> Iterator[tuple[str, str, str, int]]:
    return cycle([(method, address, json.dumps(body) if body else "", status)])
