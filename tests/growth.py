"""Whether work costs more than in proportion to its input, told safely beside other work.

No time is compared with a clock on the wall: what a thread's own processor time says is doubled at
most by what runs beside it, and work that grows with the square of its input is told apart by more
than that. Nothing but a growth of several tries one after another counts.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import thread_time

QUICK_SECONDS = 0.01
"""What takes less for the larger input cannot be measured well, and does no harm."""
TRIES = 6


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the processor seconds this thread takes for a piece of work, without the collector.

    The collector looks through all that lives, which in a process of tests is a lot.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        begun = thread_time()
        work()
        return thread_time() - begun
    finally:
        if collects:
            gc.enable()


def takes_longer(work: Callable[[], object], seconds: float, tries: int = TRIES) -> bool:
    """Whether each of several tries takes longer than so many processor seconds."""
    return all(cpu_seconds(work) > seconds for _ in range(tries))


def grows_too_fast(
    work: Callable[[int], object],
    few: int,
    *,
    times: int = 4,
    quick: float = QUICK_SECONDS,
    tries: int = TRIES,
) -> bool:
    """Whether work of `few * times` takes out of all proportion longer than work of `few`.

    In the middle between `times`, which is linear, and its square lies its power of one and a half:
    what takes longer than that in each try, compared with the least time for `few`, is too fast.
    """
    most = times**1.5
    short = long = float("inf")
    for _ in range(tries):
        short = min(short, *(cpu_seconds(lambda: work(few)) for _ in range(3)))
        long = min(long, cpu_seconds(lambda: work(few * times)))
        if long < max(quick, most * short):
            return False
    return True
