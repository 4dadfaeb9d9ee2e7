"""What a measurement is: a named number with a unit; and how processor time is taken."""

from __future__ import annotations

import gc
import math
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table. `n` is the size it was measured at: messages, mostly.

    `aim` is what was asked for, in words, where something was.
    """

    name: str
    n: int
    value: float
    unit: str
    aim: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class Spent:
    """Milliseconds that a stretch of code took: processor of its thread, of the process, clock."""

    thread: float = 0.0
    process: float = 0.0
    wall: float = 0.0


@contextmanager
def spending() -> Iterator[Spent]:
    """Measure what stands below; the result is filled in at its end."""
    spent = Spent()
    wall, process, thread = time.perf_counter(), time.process_time(), time.thread_time()
    yield spent
    spent.thread = (time.thread_time() - thread) * 1000
    spent.process = (time.process_time() - process) * 1000
    spent.wall = (time.perf_counter() - wall) * 1000


def repeat(work: Callable[[], object], times: int) -> list[Spent]:
    """Return what each call spent, after one that is not counted."""
    work()
    found = []
    # What earlier benchmarks left behind is not searched while this one is timed.
    gc.collect()
    gc.freeze()
    for _ in range(times):
        with spending() as spent:
            work()
        found.append(spent)
    gc.unfreeze()
    return found


def cpu(spent: list[Spent]) -> float:
    """Return the median of the thread's processor milliseconds."""
    return statistics.median(one.thread for one in spent)


def wall(spent: list[Spent]) -> float:
    """Return the median of the clock's milliseconds."""
    return statistics.median(one.wall for one in spent)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` percent of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered) / 100) - 1)]


def peak_megabytes(work: Callable[[], object]) -> float:
    """Return the most that Python held at once beyond what it held before."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        return (tracemalloc.get_traced_memory()[1] - before) / 1e6
    finally:
        tracemalloc.stop()
