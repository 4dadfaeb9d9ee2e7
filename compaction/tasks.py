"""What workers execute: thin, a run id in, the run's row is the result."""

from __future__ import annotations

from uuid import UUID

from compaction import queue
from compaction.services.compact import execute_run
from compaction.services.errors import RunGoneError
from compaction.services.figures import refresh_figures
from compaction.services.sweep import sweep_runs


def run_compaction(run_id: str) -> str:
    """Execute a run; return its status for the queue's own list.

    A worker that is to stop leaves the run to the next one.
    """
    if queue.is_stopping():
        queue.enqueue_run(UUID(run_id))
        return "left to another worker"
    try:
        return str(execute_run(UUID(run_id)).status)
    except RunGoneError:
        return "gone"


def sweep() -> dict[str, int]:
    """Find what died or never started; return how many of each."""
    return sweep_runs().as_dict()


def roll_up() -> int:
    """Bring the figures of the front page up to date; return how many days were worked out."""
    return len(refresh_figures().days)
