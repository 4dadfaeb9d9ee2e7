"""What happens by the clock: the sweep that finds dead workers and lost runs."""

from __future__ import annotations

from compaction import queue


def install() -> None:
    """Store the schedules in the queue's own table."""
    queue.ensure_schedule()
