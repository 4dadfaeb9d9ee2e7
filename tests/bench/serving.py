"""Requests a second through one real worker over loopback."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from itertools import cycle

from chatapp.keys import create_key
from tests.bench.conversations import owner, stored, summarise_all_but
from tests.bench.instant import ANSWER
from tests.bench.measure import Row
from tests.bench.processes import environment, own_queue, processor_seconds, web_server
from tests.bench.sizes import Sizes

CLIENTS = 4
PAGE = 100
FLOOR = "/floor/"


def measure(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of this theme."""
    count = min(1_000, sizes.histories[-1])
    session = stored(count)
    summarise_all_but(session, min(6, count // 4))
    token = create_key(owner=owner(), name="bench").secret
    address = f"/api/v1/sessions/{session.pk}/messages/"
    bodies = cycle(json.dumps({"role": role, "content": ANSWER}) for role in ("user", "assistant"))
    newest = f"{address}?order=newest&page_size={PAGE}"
    with own_queue(), web_server(environment()) as (port, process):
        # Clients of their own: a worker hangs up on those that were silent for five seconds.
        idler, reader, writer = (_Client(port=port, token=token) for _ in range(3))
        works = (
            ("GET a constant (the floor)", lambda: idler.send("GET", FLOOR, "", 200)),
            ("GET last 100 messages", lambda: reader.send("GET", newest, "", 200)),
            ("POST one message", lambda: writer.send("POST", address, next(bodies), 201)),
        )
        for name, work in works:
            work()
            before = processor_seconds(process)
            requests, seconds = _hammer(work, sizes.requests)
            spent = 1000 * (processor_seconds(process) - before) / requests
            yield Row(name=name, n=count, value=requests / seconds, unit="requests/s")
            yield Row(name=f"{name}, the worker's part", n=count, value=spent, unit="CPU ms")


class _Client(threading.local):
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


def _hammer(work: Callable[[], None], requests: int) -> tuple[int, float]:
    """Send about that many requests from several clients; return their number and the seconds."""
    failures: list[BaseException] = []
    each = max(1, requests // CLIENTS)

    def ask() -> None:
        try:
            for _ in range(each):
                work()
        except BaseException as error:
            failures.append(error)

    started = time.perf_counter()
    _together(ask, count=CLIENTS)
    seconds = time.perf_counter() - started
    if failures:
        raise failures[0]
    return each * CLIENTS, seconds


def _together(work: Callable[[], None], *, count: int) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
