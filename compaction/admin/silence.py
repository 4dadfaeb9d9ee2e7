"""Workers that fell silent: in the middle of a run that is a fault, while idle it tells nothing.

Of a queue's processes only the one that sweeps gives a sign of life while nothing is to do, and a
process that ended leaves its row behind for a day.
"""

from __future__ import annotations

from datetime import timedelta

from django.db.models import Q
from django.utils import timezone

from compaction.models import WorkerHeartbeat
from compaction.monitoring.health import ALIVE_SECONDS


def is_silent(worker: WorkerHeartbeat) -> bool:
    """Whether a process gave no sign of life for longer than several beats."""
    return timezone.now() - worker.beat_at > timedelta(seconds=ALIVE_SECONDS)


def silent_at_work() -> Q:
    """Return the condition for processes that fell silent in the middle of a run."""
    since = timezone.now() - timedelta(seconds=ALIVE_SECONDS)
    return Q(beat_at__lt=since, run__isnull=False)
