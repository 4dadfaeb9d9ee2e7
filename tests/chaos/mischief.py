"""Mischief: what is done to the processes, the database, the queue and the runs, by chance."""

from __future__ import annotations

import http.client
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import redis
from django.db import DatabaseError, connection
from django_q.tasks import async_task

from compaction.models import CompactionRun, SessionSummary
from compaction.runs.sweep import sweep_runs
from tests.chaos.ledger import Ledger
from tests.chaos.model import UnsteadyModel
from tests.chaos.processes import STOP_SECONDS, Part, children_at_work
from tests.chaos.surroundings import DRIVER, Surroundings
from tests.queue.processes import connected_to

PAUSE_SECONDS = (0.5, 2.0)
SWEEP_EVERY_SECONDS = 5
LOOK_SECONDS = 4.0
REDIS_CUTS = 2
BURST_SECONDS = 6.0
RUN_TASK = "compaction.tasks.run_compaction"
# A turn that one of these broke off holds its session for a lease: not shortly before the end.
COSTLY = ("kill_web", "cut_database")
COSTLY_UNTIL_SECONDS = 25
WEIGHTS = {
    "kill_worker": 6,
    "kill_cluster": 2,
    "kill_web": 3,
    "stop_cluster": 2,
    "cut_database": 5,
    "deliver_twice": 6,
    "cancel": 4,
    "ask_by_hand": 3,
    "undo": 2,
    "fail_burst": 2,
    "cut_redis": 1,
}


@dataclass(kw_only=True)
class Mischief:
    """Everything once, then by chance, until `end`; `done` counts, `faults` are sentences."""

    surroundings: Surroundings
    model: UnsteadyModel
    ledger: Ledger
    webs: Sequence[Part]
    clusters: Sequence[Part]
    seed: int
    seconds: float
    done: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chance = Random(f"{self.seed}/mischief")

    @property
    def kills(self) -> int:
        """How many processes or groups were killed."""
        return sum(self.done[name] for name in ("kill_worker", "kill_cluster", "kill_web"))

    def start(self) -> None:
        """Begin."""
        for work in (self._do_all, self._sweep_again_and_again):
            thread = threading.Thread(target=work, daemon=True)
            self._threads.append(thread)
            thread.start()

    def end(self) -> None:
        """Let the last deed end; afterwards every process is started again and is ready."""
        self._over.set()
        for thread in self._threads:
            thread.join(2 * STOP_SECONDS)
        for part in (*self.webs, *self.clusters):
            part.wait_until_ready()

    def _do_all(self) -> None:
        deeds, weights = list(WEIGHTS), list(WEIGHTS.values())
        first = list(deeds)
        self._chance.shuffle(first)
        costly_until = time.monotonic() + max(self.seconds / 2, self.seconds - COSTLY_UNTIL_SECONDS)
        while not self._over.wait(self._chance.uniform(*PAUSE_SECONDS)):
            name = first.pop() if first else self._chance.choices(deeds, weights)[0]
            if name in COSTLY and time.monotonic() > costly_until:
                continue
            deed: Callable[[], int] = getattr(self, name)
            try:
                self.done[name] += deed()
            except (DatabaseError, redis.RedisError, OSError) as error:
                # Whom the mischief itself cut off does not matter.
                self.done[f"{name} failed ({type(error).__name__})"] += 1
            finally:
                connection.close()
            if not self.done[name] and name not in first:
                # Nothing was there to be done to: later there may be.
                first.insert(0, name)

    def _sweep_again_and_again(self) -> None:
        while not self._over.wait(SWEEP_EVERY_SECONDS):
            self.sweep()

    def sweep(self) -> None:
        """Sweep here, as any machine may."""
        try:
            self.done.update(
                {f"swept: {name}": count for name, count in sweep_runs().as_dict().items()}
            )
        except (DatabaseError, redis.RedisError) as error:
            self.done[f"a sweep failed ({type(error).__name__})"] += 1
        finally:
            connection.close()

    # Every deed returns how often it was done.

    def kill_worker(self) -> int:
        """Kill one process of a cluster: if there is one, a worker that waits for a summary."""
        end = time.monotonic() + LOOK_SECONDS
        at_work: list[int] = []
        everybody: list[int] = []
        while not at_work and time.monotonic() < end:
            everybody = [pid for one in self.clusters for pid in children_at_work(one)]
            at_work = connected_to(everybody, self.model.port)
            time.sleep(0.05)
        chosen = at_work if at_work and self._chance.random() < 0.8 else everybody
        if not chosen:
            return 0
        with suppress(ProcessLookupError):
            os.kill(self._chance.choice(chosen), signal.SIGKILL)
            self.done["of them in the middle of a run"] += chosen is at_work
            return 1
        return 0

    def kill_cluster(self) -> int:
        """Kill a qcluster with all of its workers."""
        return self._kill_one(self.clusters)

    def kill_web(self) -> int:
        """Kill a web worker, with the requests that it answers."""
        return self._kill_one(self.webs)

    def _kill_one(self, parts: Sequence[Part]) -> int:
        ready = [part for part in parts if part.is_ready]
        if not ready:
            return 0
        part = self._chance.choice(ready)
        part.kill()
        part.start()
        return 1

    def stop_cluster(self) -> int:
        """Stop a qcluster as a supervisor does; it must end its work and go."""
        ready = [part for part in self.clusters if part.is_ready]
        if not ready:
            return 0
        part = self._chance.choice(ready)
        part.terminate()
        if not part.ends_within(STOP_SECONDS):
            self.faults.append(
                f"{part.name} had not ended {STOP_SECONDS} s after SIGTERM; see {part.log.name}."
            )
            part.kill()
        part.start()
        return 1

    def cut_database(self) -> int:
        """Close some connections of the product's processes from the server's side."""
        wanted = self._chance.randint(1, 4)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
                "current_database() AND application_name <> %s ORDER BY random() LIMIT %s",
                [DRIVER, wanted],
            )
            return len(cursor.fetchall())

    def deliver_twice(self) -> int:
        """Put runs into the queue that are there already, work, or ended long ago."""
        statuses = self._chance.sample(CompactionRun.Status.values, k=3)
        rows = CompactionRun.objects.filter(status__in=statuses).order_by("?")
        chosen = list(rows.values_list("pk", flat=True)[:4])
        for run_id in chosen:
            for _ in range(2):
                async_task(RUN_TASK, str(run_id))  # type: ignore[no-untyped-call]
        return 2 * len(chosen)

    def cancel(self) -> int:
        """Cancel runs that wait or work, over the API."""
        rows = CompactionRun.objects.filter(status__in=["queued", "running"]).order_by("?")
        tokens = {book.session_id: book.token for book in self.ledger.books}
        chosen = [(run, tokens[str(run.session_id)]) for run in rows[:3]]
        return sum(self._post(f"/api/v1/runs/{run.pk}/cancel/", token) for run, token in chosen)

    def ask_by_hand(self) -> int:
        """Ask for runs over the API, whatever the branch is doing."""
        books = self._chance.sample(self.ledger.books, k=min(3, len(self.ledger.books)))
        paths = [(f"/api/v1/sessions/{book.session_id}/compact/", book.token) for book in books]
        return sum(self._post(path, token) for path, token in paths)

    def undo(self) -> int:
        """Take summaries back over the API, with those that were built on them."""
        rows = SessionSummary.objects.filter(status=SessionSummary.Status.ACTIVE).order_by("?")
        tokens = {book.session_id: book.token for book in self.ledger.books}
        chosen = [(row, tokens[str(row.session_id)]) for row in rows[:2]]
        return sum(self._post(f"/api/v1/summaries/{row.pk}/restore/", key) for row, key in chosen)

    def fail_burst(self) -> int:
        """Have the summariser fail for some seconds, so that breakers open."""
        self.model.fail_for(self._chance.uniform(2.0, BURST_SECONDS))
        return 1

    def cut_redis(self) -> int:
        """Close all connections to this test's Redis database, once or twice altogether."""
        if self.done["cut_redis"] >= REDIS_CUTS:
            return 0
        with redis.from_url(self.surroundings.redis_url) as client:
            own: dict[str, Any] = client.client_info()
            for other in client.client_list():
                if other["db"] == str(own["db"]) and other["id"] != str(own["id"]):
                    client.client_kill_filter(_id=other["id"])
        return 1

    def _post(self, address: str, token: str) -> bool:
        """Send a POST without a body to a web worker; return whether it did what was asked."""
        port = self._chance.choice(self.webs).port
        connected = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connected.request("POST", address, headers={"Authorization": f"Token {token}"})
            return 200 <= connected.getresponse().status < 300
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connected.close()
