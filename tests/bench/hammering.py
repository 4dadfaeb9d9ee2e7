"""Many clients at once while the database cuts every connection again and again.

Trouble with the database is told as such (503, with a time to come back); a 500 is a fault of ours.
What was acknowledged is there, once. On SQLite, which has no connections to cut, it is only busy.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from django.db import DatabaseError, connection

from chatapp import transcript
from chatapp.keys import create_key
from chatapp.models import Message
from tests.bench.conversations import owner
from tests.bench.measure import Row
from tests.bench.processes import environment, own_queue, web_server
from tests.bench.sizes import Sizes
from tests.facts import seed

CUT_EVERY_SECONDS = 0.7
SESSIONS = 10
NONE = "none"


def measure(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of this theme."""
    sessions = [
        transcript.create_session(owner=owner(), title=f"Hammered {number}").pk
        for number in range(SESSIONS)
    ]
    secret = create_key(owner=owner(), name="hammer").secret
    hammer = _Hammer(secret=secret, paths=[f"/api/v1/sessions/{key}/" for key in sessions])
    with own_queue(), web_server(environment()) as (port, _):
        cuts = hammer.strike(port, threads=sizes.hammering_threads, seconds=sizes.hammering_seconds)
    requests = sum(hammer.statuses.values())
    for name, value, unit, aim in (
        ("requests that were answered", requests, "requests", ""),
        ("connections that were cut", cuts, "cuts", ""),
        ("answers that are 500", hammer.count(500), "answers", NONE),
        ("answers that are 503", hammer.count(503), "answers", ""),
        ("answers of 503 without Retry-After", hammer.hasty, "answers", NONE),
        ("clients that were hung up on", hammer.count(0), "answers", NONE),
        ("acknowledged messages that are missing", hammer.missing(), "messages", NONE),
        ("messages that are stored twice", hammer.doubled(), "messages", NONE),
    ):
        yield Row(name=name, n=sizes.hammering_threads, value=value, unit=unit, aim=aim)


@dataclass(kw_only=True)
class _Hammer:
    """What the clients did and were told."""

    secret: str
    paths: list[str]
    statuses: Counter[int] = field(default_factory=Counter)
    hasty: int = 0
    acknowledged: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, status: int) -> int:
        """Return how many answers had that status; 0 stands for none at all."""
        return self.statuses[status]

    def strike(self, port: int, *, threads: int, seconds: float) -> int:
        """Send requests for that long; return how many connections were cut meanwhile."""
        end = time.monotonic() + seconds
        clients = [
            threading.Thread(target=self._client, args=(port, number, end))
            for number in range(threads)
        ]
        for client in clients:
            client.start()
        cuts = 0
        while time.monotonic() < end:
            time.sleep(CUT_EVERY_SECONDS)
            cuts += _cut_all()
        for client in clients:
            client.join()
        return cuts

    def _client(self, port: int, number: int, end: float) -> None:
        chance = Random(f"{seed()}/{number}")
        while time.monotonic() < end:
            path, marker = chance.choice(self.paths), uuid.uuid4().hex
            message = {"role": "user", "content": f"This is {marker}."}
            kind = chance.choice(("read", "page", "append", "append", "turn", "list", "state"))
            if kind == "append":
                # As a client should: again with the same key, until it is told.
                while (status := self._ask(port, "POST", f"{path}messages/", message, marker)) in (
                    503,
                    0,
                ) and time.monotonic() < end:
                    time.sleep(0.05)
                if status == 201:
                    with self._lock:
                        self.acknowledged.add(message["content"])
            elif kind == "turn":
                self._ask(port, "POST", f"{path}turns/", {"content": "And now?"}, marker)
            else:
                ends = {"read": "", "page": "messages/?page_size=20", "state": "compaction/"}
                where = "/api/v1/sessions/" if kind == "list" else path + ends[kind]
                self._ask(port, "GET", where)

    def _ask(
        self, port: int, method: str, path: str, body: object = None, key: str | None = None
    ) -> int:
        headers = {"Authorization": f"Bearer {self.secret}", "Content-Type": "application/json"}
        if key:
            headers["Idempotency-Key"] = key
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            client.request(method, path, json.dumps(body) if body else None, headers)
            answer = client.getresponse()
            answer.read()
            status = answer.status
            hasty = status == 503 and not answer.getheader("Retry-After")
        except (OSError, http.client.HTTPException):
            status, hasty = 0, False
        finally:
            client.close()
        with self._lock:
            self.statuses[status] += 1
            self.hasty += hasty
        return status

    def missing(self) -> int:
        """Return how many acknowledged messages are not stored."""
        stored = Message.objects.filter(content__startswith="This is ")
        return len(self.acknowledged - set(stored.values_list("content", flat=True)))

    def doubled(self) -> int:
        """Return how many messages are stored more than once."""
        stored = Message.objects.filter(content__startswith="This is ")
        counts = Counter(stored.values_list("content", flat=True))
        return sum(count > 1 for count in counts.values())


def _cut_all() -> int:
    """End every other connection to the database; return how many there were."""
    if connection.vendor != "postgresql":
        return 0
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            return int(cursor.fetchone()[0])
    except DatabaseError:
        connection.close()
        return 0
