"""Requests a second through one real worker over loopback, beside views that do next to nothing.

Requests a second are wall-clock: they tell something on a machine that does nothing else. The
worker's part is its processor time, and so is the ratio to the floor, which is measured in the same
run.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

from chatapp.keys import create_key
from chatapp.models import Session
from tests.bench.conversations import owner, stored, summarise_all_but
from tests.bench.floor import CONSTANT, PAGE, ROWS
from tests.bench.instant import ANSWER
from tests.bench.measure import Row
from tests.bench.processes import environment, own_queue, processor_seconds, web_server
from tests.bench.sizes import Sizes
from tests.bench.states import QUESTION, WHOLE, put_in

CLIENTS = 4
Sent = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """One kind of request: what is sent each time, and what is aimed at."""

    name: str
    requests: Callable[[], Iterator[Sent]]
    status: int = 200
    floor: str = ""
    rate: str = ""
    cost: str = ""
    share: float = 1.0


def measure(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of this theme."""
    count = min(1_000, sizes.histories[-1])
    session = stored(count)
    summarise_all_but(session, min(6, count // 4))
    found: dict[str, float] = {}
    with own_queue(), web_server(environment()) as (port, process):
        for asking in _kinds(session, _talkers(count)):
            total = max(CLIENTS, int(sizes.requests * asking.share))
            client = Client(port=port, token=create_key(owner=owner(), name="bench").secret)
            lines = [asking.requests() for _ in range(CLIENTS)]
            client.send(*next(lines[0]), asking.status)
            before = processor_seconds(process)
            requests, seconds = hammer(client, lines, asking.status, total)
            spent = 1000 * (processor_seconds(process) - before) / requests
            rate, name = requests / seconds, asking.name
            found[name] = spent
            yield Row(name=name, n=count, value=rate, unit="requests/s", aim=asking.rate)
            worker = f"{name}, the worker's part"
            yield Row(name=worker, n=count, value=spent, unit="CPU ms", aim=asking.cost)
            if found.get(asking.floor):
                ratio = spent / found[asking.floor]
                yield Row(name=f"{name}, of its floor", n=count, value=ratio, unit="times")


def _talkers(count: int) -> list[Session]:
    """Return a session for each client in which turns are taken and nothing is due."""
    found = []
    for number in range(CLIENTS):
        session = put_in(WHOLE, stored(min(200, count), seed=number))
        summarise_all_but(session, min(10, count // 4))
        found.append(session)
    return found


def _kinds(session: Session, talkers: Sequence[Session]) -> Iterator[Asking]:
    of_floor, kept = stored(1), f"/api/v1/sessions/{session.pk}/messages/"
    said = {"session": str(of_floor.pk), "branch": str(of_floor.branch.pk)}
    answers = {"role": "assistant", "content": ANSWER}
    yield Asking(name="GET a constant (the floor)", requests=_same("GET", CONSTANT))
    yield Asking(
        name="GET by one SELECT (the floor)",
        requests=_same("GET", f"{ROWS}?branch={session.branch.pk}"),
    )
    yield Asking(
        name="POST by one INSERT (the floor)",
        requests=_same("POST", ROWS, said | answers),
        status=201,
    )
    yield Asking(
        name="GET last 100 messages",
        requests=_same("GET", f"{kept}?order=newest&page_size={PAGE}"),
        floor="GET by one SELECT (the floor)",
        rate="300 on a quiet machine",
        cost="<= 3.3",
    )
    yield Asking(
        name="POST one message",
        requests=_same("POST", kept, {"role": "user", "content": ANSWER}, answers),
        status=201,
        floor="POST by one INSERT (the floor)",
        rate="250 on a quiet machine",
        cost="<= 4",
    )
    addresses = iter([f"/api/v1/sessions/{one.pk}/turns/" for one in talkers])
    asked = {"messages": [{"role": "user", "content": QUESTION}]}
    yield Asking(
        name="turn over HTTP",
        # Each client in a session of its own: one turn of a session runs at a time.
        requests=lambda: _same("POST", next(addresses), asked)(),
        floor="POST by one INSERT (the floor)",
        rate="80 on a quiet machine",
        share=0.25,
    )


def _same(method: str, address: str, *bodies: object) -> Callable[[], Iterator[Sent]]:
    texts = [json.dumps(body) for body in bodies] or [""]
    return lambda: cycle((method, address, text) for text in texts)


class Client(threading.local):
    """A connection a thread, kept open as frontends keep theirs."""

    def __init__(self, *, port: int, token: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self._headers = {"Authorization": f"Token {token}", "Content-Type": "application/json"}

    def send(self, method: str, address: str, body: str, status: int) -> None:
        """Send one request and read its answer to the end."""
        self._connection.request(method, address, body=body or None, headers=self._headers)
        answer = self._connection.getresponse()
        text = answer.read()
        assert answer.status == status, text[:500]


def hammer(
    client: Client, lines: Sequence[Iterator[Sent]], status: int, requests: int
) -> tuple[int, float]:
    """Send about that many requests, each line by a client; return their number and the seconds."""
    failures: list[BaseException] = []
    each = max(1, requests // len(lines))

    def ask(line: Iterator[Sent]) -> None:
        try:
            for _ in range(each):
                client.send(*next(line), status)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=ask, args=(line,)) for line in lines]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - started
    if failures:
        raise failures[0]
    return each * len(lines), seconds
