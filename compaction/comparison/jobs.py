"""A comparison that a worker of the queue makes for an operator's page; kept in the cache alone.

The page says how far it is, and may cancel it. Nobody but who asked finds it, and after
KEPT_SECONDS nobody does. What the cache loses is gone: it can be asked for again.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from django.core.cache import cache

from chatapp.models import Session
from compaction.comparison.candidates import ComparedSummariser, candidates_of
from compaction.comparison.comparing import ComparisonCancelled, ComparisonProgress, compare
from compaction.conf import compaction_settings
from compaction.errors import CompactionError
from compaction.runs import queue

logger = logging.getLogger(__name__)
KEPT_SECONDS = 15 * 60
# How often a worker writes how far it is, and looks whether it is to go on.
SECONDS_BETWEEN = 1.0
QUEUED, RUNNING, DONE, FAILED, CANCELLED = "queued", "running", "done", "failed", "cancelled"
_KEY, _STOP = "compaction-comparison:{}", "compaction-comparison-stop:{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonJob:
    """What is asked for and how far it is; `result` is a ProfileComparison as plain values.

    `is_estimate`: a model is only priced. `is_confirmed`: somebody has seen the price.
    """

    key: str
    user: int
    sessions: tuple[str, ...]
    profiles: tuple[str, ...]
    model: str
    is_confirmed: bool = False
    status: str = QUEUED
    done: int = 0
    total: int = 0
    at: str = ""
    seen: float = 0.0
    error: str = ""
    result: Mapping[str, Any] | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it."""
        return self.status in (DONE, FAILED, CANCELLED)


def begin(
    *,
    user: int,
    sessions: Sequence[str],
    profiles: Sequence[str],
    model: str,
    is_confirmed: bool = False,
) -> ComparisonJob:
    """Have a worker compare profiles; a model is only priced unless somebody `is_confirmed`."""
    job = ComparisonJob(
        key=uuid.uuid4().hex,
        user=user,
        sessions=tuple(sessions),
        profiles=tuple(profiles),
        model=model,
        is_confirmed=is_confirmed,
        seen=time.time(),
    )
    _keep(job)
    queue.enqueue_comparison(job.key)
    return job


def find(key: str, *, user: int) -> ComparisonJob | None:
    """Return an operator's own comparison, or None where it is gone or somebody else's."""
    job = _read(key)
    return job if job is not None and job.user == user else None


def cancel(job: ComparisonJob) -> None:
    """End a comparison; a worker that makes it stops within a second or after its call."""
    cache.set(_STOP.format(job.key), True, KEPT_SECONDS)
    if not job.is_over:
        _keep(replace(job, status=CANCELLED))


def work(key: str, *, is_stopping: Callable[[], bool]) -> str:
    """Make a comparison that waits; return its status for the queue's own list."""
    job = _read(key)
    if job is None or job.status != QUEUED or _is_stopped(key):
        return "gone" if job is None else job.status
    watch = _Watch(job, is_stopping)
    try:
        found = _compared(watch)
        ended = replace(watch.job, status=DONE, done=watch.job.total, result=found)
    except ComparisonCancelled as stopped:
        said = str(stopped)
        ended = replace(watch.job, status=FAILED if said else CANCELLED, error=said)
    except CompactionError as error:
        ended = replace(watch.job, status=FAILED, error=str(error))
    except Exception as error:
        logger.exception("The comparison %s failed", key)
        sentence = f"The comparison failed ({type(error).__name__}: {error})."
        ended = replace(watch.job, status=FAILED, error=sentence)
    if _is_stopped(key):
        ended = replace(ended, status=CANCELLED, result=None)
    _keep(ended)
    return ended.status


def _compared(watch: _Watch) -> Mapping[str, Any]:
    job = watch.job
    sessions = Session.objects.select_related("active_branch").filter(pk__in=job.sessions)
    found = {str(session.pk): session for session in sessions}
    chosen = [found[key] for key in job.sessions if key in found]
    if not chosen:
        raise CompactionError("The sessions were deleted meanwhile.")
    summariser = ComparedSummariser.of(job.model, is_estimate=not job.is_confirmed)
    candidates = candidates_of(job.profiles)
    watch.look("")
    return compare(chosen, candidates, summariser, on_progress=watch).as_dict()


class _Watch:
    """Writes how far a comparison is, and ends it where it is to end."""

    def __init__(self, job: ComparisonJob, is_stopping: Callable[[], bool]) -> None:
        self.job = replace(job, status=RUNNING, seen=time.time())
        self._is_stopping = is_stopping
        self._deadline = time.monotonic() + compaction_settings.run_seconds
        self._last = 0.0

    def __call__(self, progress: ComparisonProgress) -> None:
        if time.monotonic() - self._last < SECONDS_BETWEEN:
            return
        self.job = replace(self.job, done=progress.done, total=progress.total, at=progress.profile)
        self.look(progress.profile)

    def look(self, at: str) -> None:
        """Write where the comparison is; raise ComparisonCancelled where it is to end."""
        self._last = time.monotonic()
        if _is_stopped(self.job.key):
            raise ComparisonCancelled
        if self._is_stopping():
            raise ComparisonCancelled("The worker was stopped. Ask for it again.")
        if self._last > self._deadline:
            raise ComparisonCancelled(
                "It took longer than a worker may (COMPACTION_RUN_SECONDS). Compare fewer profiles "
                "or sessions, or use the command compare_profiles, which has no limit."
            )
        self.job = replace(self.job, seen=time.time(), at=at)
        _keep(self.job)


def _is_stopped(key: str) -> bool:
    return bool(cache.get(_STOP.format(key)))


def _keep(job: ComparisonJob) -> None:
    cache.set(_KEY.format(job.key), asdict(job), KEPT_SECONDS)


def _read(key: str) -> ComparisonJob | None:
    found = cache.get(_KEY.format(key))
    return None if found is None else ComparisonJob(**found)
