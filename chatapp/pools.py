"""Which threads answer a request: quick ones, slow ones, and those that tell whether we live.

A request that waits for a model, or reads or writes a file, holds its thread for up to minutes.
In threads of their own such requests delay neither each other's neighbours nor a health check; and
what one user may have of them at once is bounded, so that nobody else waits for that user
(docs/decisions/0020-requests-in-one-thread.md).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import StrEnum
from functools import cache, cached_property
from typing import Any, TypeVar

from django.http import Http404
from django.urls import ResolverMatch, resolve

from chatapp.conf import chatapp_settings

View = TypeVar("View", bound=Callable[..., Any])
HEALTH_THREADS = 4
CLIENT_LEFT = "client_left"
"""Key in the scope of a slow request: a threading.Event that is set when its client goes away."""
# The attribute of a view, or of its class, that names its pool.
_MARK = "thread_pool"


class Pool(StrEnum):
    """A pool of threads; the value is the beginning of its threads' names."""

    QUICK = "request"
    SLOW = "slow"
    HEALTH = "health"


class TooMuchAtOnceError(Exception):
    """A user has as much slow work under way as may be; `retry_after` is in seconds."""

    retry_after = 5


def answered_in(pool: Pool) -> Callable[[View], View]:
    """Have a view, a function or a class, answered by the threads of that pool."""

    def mark(view: View) -> View:
        setattr(view, _MARK, pool)
        return view

    return mark


def match_of(path: str) -> ResolverMatch | None:
    """Return the view behind an address with what the address says; None where there is none."""
    try:
        return resolve(path)
    except (Http404, ValueError):
        return None


def pool_of(path: str) -> Pool:
    """Return the pool of the view behind an address; what has no view is answered quickly."""
    return pool_of_match(match_of(path))


def pool_of_match(match: ResolverMatch | None) -> Pool:
    """Return the pool of a view."""
    if match is None:
        return Pool.QUICK
    found: Pool = getattr(getattr(match.func, "view_class", match.func), _MARK, Pool.QUICK)
    return found


class ThreadPools:
    """The pools of one process; each is made when its first request comes."""

    def __init__(self) -> None:
        self.of = cache(self._make)

    @cached_property
    def starter(self) -> ThreadPoolExecutor:
        """One thread that gives work to other pools where the event loop must not wait for it."""
        return ThreadPoolExecutor(max_workers=1, thread_name_prefix="starter")

    def _make(self, pool: Pool) -> ThreadPoolExecutor:
        threads = {
            Pool.QUICK: chatapp_settings.request_threads,
            Pool.SLOW: chatapp_settings.slow_threads,
            Pool.HEALTH: HEALTH_THREADS,
        }
        return ThreadPoolExecutor(max_workers=threads[pool], thread_name_prefix=pool.value)

    def shutdown(self) -> None:
        """End the threads, when they have done what they do."""
        self.starter.shutdown()
        for pool in Pool:
            self.of(pool).shutdown()


class SlowWork:
    """How much slow work each user has under way in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: Counter[Any] = Counter()

    @contextmanager
    def of(self, user: Any) -> Iterator[None]:
        """Count one more while the block runs; raise TooMuchAtOnceError where that is too many.

        Turns are counted by their leases instead, in all processes together.
        """
        limit = chatapp_settings.turns_per_owner
        with self._lock:
            if self._under_way[user.pk] >= limit:
                raise TooMuchAtOnceError(
                    f"{limit} compactions of yours are waited for, which is as many as "
                    "may be at once. Wait for one of them, then send this again."
                )
            self._under_way[user.pk] += 1
        try:
            yield
        finally:
            with self._lock:
                self._under_way[user.pk] -= 1
                self._under_way += Counter()  # forgets those who have none


slow_work = SlowWork()
