"""What happens by the clock: the sweep that finds dead workers, the figures of the front page."""

from __future__ import annotations

from compaction import queue


def install() -> None:
    """Store the schedules in the queue's own table."""
    queue.ensure_schedules()
