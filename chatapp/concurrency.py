"""How many slow requests compute at one moment; the others wait without taking part.

Python runs one thread at a time. Seventy turns that begin together would pass the processor around
among seventy threads, thousands of times a second, and the event loop would stand in that line with
each step of a health check: a second and more. In turn they are done sooner, and nobody else waits.

A slow request computes from its beginning until it waits for a model, which every one of them tells
by giving its database connection back (chatapp.database.release_connection). One that computes for
long, as an import does, stops counting after a while, so that it keeps nobody from beginning.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

AT_ONCE = 4
"""More than one: what waits for the database computes nothing."""
MOST_SECONDS = 0.25
"""So long at most a request counts, and the next one waits for it."""


class ConcurrencyLimiter:
    """Lets so many threads begin at once; each counts until it is done, or for some seconds."""

    def __init__(self, *, at_once: int, seconds: float) -> None:
        self._at_once, self._seconds = at_once, seconds
        self._changed = threading.Condition()
        # When each thread that counts began, by time.monotonic(), the oldest first.
        self._since: dict[int, float] = {}

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Wait for a place; the block has it to its end, unless it is given back before."""
        me = threading.get_ident()
        with self._changed:
            while (wait := self._wait()) > 0:
                self._changed.wait(wait)
            self._since[me] = time.monotonic()
        try:
            yield
        finally:
            self.give_back()

    def give_back(self) -> None:
        """Stop counting this thread; nothing happens where it does not count."""
        with self._changed:
            if self._since.pop(threading.get_ident(), None) is not None:
                self._changed.notify()

    def _wait(self) -> float:
        """Return for how many seconds there will be no place, at most; 0 where there is one."""
        if len(self._since) < self._at_once:
            return 0
        thread, began = next(iter(self._since.items()))
        left = began + self._seconds - time.monotonic()
        if left <= 0:
            del self._since[thread]
        return max(left, 0)


slow_starts = ConcurrencyLimiter(at_once=AT_ONCE, seconds=MOST_SECONDS)
