"""Whether a turn waits for the compaction of its session: its time with and without one.

Turns come at a steady pace, with a model that answers at once. Meanwhile a real cluster compacts
the same session with a summariser that takes its time. A turn is delayed when it compacted itself
before its request; one that only waited for the worker tells nothing, so those that were slow for
whatever reason are counted, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.utils import timezone

from chatapp.models import Session
from chatapp.transcript.writing import NewMessage
from chatapp.turns.service import Turn, run_turn
from compaction.models import CompactionRun
from tests.bench.compacting import SCRIPT
from tests.bench.conversations import fresh, summarise_next, windowed
from tests.bench.instant import WINDOW
from tests.bench.measure import Row, percentile
from tests.bench.processes import cluster, environment, own_queue
from tests.bench.sizes import Sizes
from tests.bench.states import QUESTION
from tests.fakes.model_server import ModelServer

AGE, TAIL = 300, 40
# Turns after which the messages that left the tail are put behind the cursor by hand.
UNTIL_SUMMARISED = 4
SLOW_MS = 100
NONE = "none"


@dataclass(kw_only=True)
class Taken:
    """A turn that was taken: its time, and whether it compacted before its request."""

    began: datetime
    ended: datetime | None = None
    milliseconds: float = 0.0
    compacted: bool = False

    def emit(self, name: str, payload: dict[str, Any]) -> None:
        """Hear what the turn tells whoever watches it."""
        self.compacted = self.compacted or name == "compaction"


@dataclass(kw_only=True)
class _Pace:
    """Turns that begin at equal distances, as far as they do not take longer."""

    seconds: float
    next: float = field(default_factory=time.monotonic)

    def wait(self) -> None:
        time.sleep(max(0.0, self.next - time.monotonic()))
        self.next = max(self.next, time.monotonic()) + self.seconds


def measure(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of this theme."""
    alone = _times(_undisturbed(sizes))
    yield from _percentiles("turn, nothing is compacted", alone)
    with own_queue():
        turns, runs = _while_compacting(sizes)
    during = _times(turn for turn in turns if _overlaps(turn, runs))
    yield from _percentiles("turn, compaction on", _times(turns))
    yield from _percentiles("turn, while its session is compacted", during)
    yield Row(name="runs meanwhile", n=len(turns), value=len(runs), unit="runs")
    name, waited = "turns delayed by compaction", sum(turn.compacted for turn in turns)
    yield Row(name=name, n=len(turns), value=waited, unit="turns", aim=NONE)
    limit = percentile(alone, 99) + SLOW_MS
    slow = sum(turn.milliseconds > limit for turn in turns)
    name = f"turns slower than p99 without + {SLOW_MS} ms"
    yield Row(name=name, n=len(turns), value=slow, unit="turns", aim=NONE)


def _times(turns: Iterable[Taken]) -> list[float]:
    return [turn.milliseconds for turn in turns]


def _percentiles(name: str, times: list[float]) -> Iterator[Row]:
    for share in (50, 99) if times else ():
        value = percentile(times, share)
        yield Row(name=f"{name}, p{share}", n=len(times), value=value, unit="ms")


def _undisturbed(sizes: Sizes) -> list[Taken]:
    """Take turns of which none finds a run due."""
    session, found = windowed(AGE, left=TAIL), []
    pace = _Pace(seconds=sizes.pace_seconds)
    _take(session)
    summarise_next(fresh(session), 2)
    for number in range(sizes.paced_turns):
        if number and number % UNTIL_SUMMARISED == 0:
            summarise_next(fresh(session), 2 * UNTIL_SUMMARISED)
        pace.wait()
        found.append(_take(session))
    return found


def _while_compacting(sizes: Sizes) -> tuple[list[Taken], list[CompactionRun]]:
    """Take turns while a cluster compacts their session whenever that is due."""
    session = windowed(AGE, left=TAIL)
    slow = [
        {**rule, "reply": rule["reply"] | {"delay_s": sizes.summariser_seconds}} for rule in SCRIPT
    ]
    with ModelServer(slow) as server:
        models = server.models(CONTEXT_WINDOW=WINDOW, ENCODING="o200k_base")
        with cluster(environment(known=models)):
            pace = _Pace(seconds=sizes.pace_seconds)
            _take(session)
            found = []
            for _ in range(sizes.paced_turns):
                pace.wait()
                found.append(_take(session))
            return found, list(CompactionRun.objects.filter(session=session))


def _take(session: Session) -> Taken:
    taken, started = Taken(began=timezone.now()), time.perf_counter()
    drafts = [NewMessage(wire={"role": "user", "content": QUESTION})]
    run_turn(Turn(session=fresh(session), drafts=drafts, emit=taken.emit))
    taken.milliseconds = 1000 * (time.perf_counter() - started)
    taken.ended = timezone.now()
    return taken


def _overlaps(turn: Taken, runs: list[CompactionRun]) -> bool:
    """Whether a run of the session was at work during the turn."""
    return any(
        run.started_at is not None
        and turn.ended is not None
        and run.started_at < turn.ended
        and (run.finished_at is None or run.finished_at > turn.began)
        for run in runs
    )
