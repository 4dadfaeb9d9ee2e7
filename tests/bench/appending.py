"""Messages a second from several writers, while the queue compacts what they store, or without.

Every writer is a process with a session of its own. The runs are done by a real cluster, which asks
a scripted model server over HTTP: so client, budget and breaker are in the figures, and choosing
sentences is not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from django.db.models import Sum

from chatapp.keys import create_key
from chatapp.models import Session
from compaction.models import CompactionRun, SessionSummary
from compaction.runs.scheduling import assign_profile
from tests.bench.compacting import SCRIPT
from tests.bench.conversations import owner, windowed
from tests.bench.instant import ANSWER, WINDOW
from tests.bench.measure import Row, percentile
from tests.bench.processes import (
    COMPACTING,
    PLAIN,
    cluster,
    empty_queue,
    environment,
    family_seconds,
    own_queue,
    processor_seconds,
    web_server,
)
from tests.bench.sizes import Sizes
from tests.bench.writer import Writer, writers
from tests.fakes.model_server import ModelServer

TAIL, LENGTH = 40, 60
# From the order to the first message: writers warm up meanwhile.
WARM_UP_SECONDS = 0.5
PUT_AWAY_SECONDS = 20


def measure(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of this theme."""
    with own_queue():
        yield from _measure(sizes, state="compaction off", context=PLAIN)
        with ModelServer(SCRIPT) as server:
            models = server.models(CONTEXT_WINDOW=WINDOW, ENCODING="o200k_base")
            with cluster(environment(known=models)) as queue:
                yield from _measure(sizes, state="compaction on", context=COMPACTING, queue=queue)


def _measure(sizes: Sizes, *, state: str, context: str, queue: int = 0) -> Iterator[Row]:
    surroundings = environment(context=context)
    with ExitStack() as stack:
        ready = stack.enter_context(writers(max(sizes.writers), surroundings))
        for way in ("in process", "over HTTP"):
            port, server = 0, 0
            if way == "over HTTP":
                port, server = stack.enter_context(web_server(surroundings))
            # The first requests and runs load what later ones find loaded.
            _together(ready, port, server, queue, min(1.0, sizes.writing_seconds))
            for count in sizes.writers:
                found = _together(ready[:count], port, server, queue, sizes.writing_seconds)
                yield from found.rows(f"appends {way}, {state}", count)


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What came of one stretch of writing: milliseconds a message, and what the queue did."""

    times: list[float]
    seconds: float
    cpu_ms: float
    runs: int
    summarised: int
    queue_ms: float

    def rows(self, name: str, writers: int) -> Iterator[Row]:
        """Yield the rows of the stretch."""
        rate = len(self.times) / self.seconds
        yield Row(name=name, n=writers, value=rate, unit="messages/s")
        yield Row(name=f"{name}, p50", n=writers, value=percentile(self.times, 50), unit="ms")
        yield Row(name=f"{name}, p99", n=writers, value=percentile(self.times, 99), unit="ms")
        cost = self.cpu_ms / max(1, len(self.times))
        yield Row(name=f"{name}, a message", n=writers, value=cost, unit="CPU ms")
        if self.queue_ms:
            done = self.summarised / self.seconds
            yield Row(name=f"{name}, read", n=writers, value=done, unit="summarised/s")
            cost = self.queue_ms / max(1, self.runs)
            yield Row(name=f"{name}, a run", n=writers, value=cost, unit="CPU ms")


def _together(
    hands: Sequence[Writer], port: int, server: int, queue: int, seconds: float
) -> _Found:
    """Have the writers store as fast as they can, all at once."""
    sessions = [windowed(LENGTH, left=TAIL) for _ in hands]
    token = create_key(owner=owner(), name="bench").secret
    job = {"text": ANSWER, "seconds": seconds, "port": port, "token": token}
    start = time.time() + WARM_UP_SECONDS
    for hand, session in zip(hands, sessions, strict=True):
        hand.begin(job | {"session": str(session.pk), "start": start})
    time.sleep(max(0.0, start - time.time()))
    web, workers = _seconds_of(server), _family_of(queue)
    results = [hand.result() for hand in hands]
    web, workers = _seconds_of(server) - web, _family_of(queue) - workers
    cpu_ms = 1000 * web if server else sum(one["cpu_ms"] for one in results)
    runs = CompactionRun.objects.filter(session__in=sessions, status="succeeded")
    read = SessionSummary.objects.filter(run__in=runs).aggregate(n=Sum("message_count"))["n"]
    found = _Found(
        times=[taken for one in results for taken in one["times"]],
        seconds=seconds,
        cpu_ms=cpu_ms,
        runs=runs.count(),
        summarised=read or 0,
        queue_ms=1000 * workers,
    )
    _put_away(sessions)
    return found


def _seconds_of(process: int) -> float:
    return processor_seconds(process) if process else 0.0


def _family_of(process: int) -> float:
    return family_seconds(process) if process else 0.0


def _put_away(sessions: Sequence[Session]) -> None:
    """Leave the sessions as they are: nothing of them is compacted any more."""
    for session in sessions:
        assign_profile(session, "")
    empty_queue()
    ours = CompactionRun.objects.filter(session__in=sessions)
    deadline = time.monotonic() + PUT_AWAY_SECONDS
    while time.monotonic() < deadline:
        ours.filter(status="queued").update(status="cancelled")
        if not ours.filter(status__in=("queued", "running")).exists():
            return
        time.sleep(0.05)
