"""What workers execute: thin, a run id in, the run's row is the result."""

from __future__ import annotations

from uuid import UUID

from chatapp.imports import continue_import
from chatapp.transcript import part_files
from compaction.attention.alerts import send_alerts
from compaction.attention.marks import raise_floors
from compaction.comparison import jobs
from compaction.errors import RunGoneError
from compaction.memories.execution import execute_memory_run
from compaction.runs import queue
from compaction.runs.bulk_work import work_at_bulk
from compaction.runs.heartbeat import beat
from compaction.runs.measuring import measure_edited
from compaction.runs.sweep import look_at_clocks, sweep_runs
from compaction.runs.worker import execute_run
from compaction.statistics.daily import refresh_figures
from compaction.statistics.hindsight import note_waiting


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


def import_file(job_id: str) -> str:
    """Go on with an import for a while; return its status for the queue's own list.

    What is not done then is in the queue again, behind what others wait for.
    """
    if queue.is_stopping():
        queue.enqueue_import(UUID(job_id))
        return "left to another worker"
    beat()
    return continue_import(UUID(job_id), is_stopping=queue.is_stopping)


def work_at_memories(run_id: str) -> str:
    """Do a memory run; return its status for the queue's own list.

    A worker that is to stop leaves the run to the next one.
    """
    if queue.is_stopping():
        queue.enqueue_memory_run(UUID(run_id))
        return "left to another worker"
    beat()
    return execute_memory_run(UUID(run_id), is_stopping=queue.is_stopping)


def work_at_bulk_job(job_id: str) -> str:
    """Go on with a bulk job for a while; return its status for the queue's own list.

    A worker that is to stop leaves the job to the next one.
    """
    if queue.is_stopping():
        queue.enqueue_bulk(UUID(job_id))
        return "left to another worker"
    beat()
    return work_at_bulk(UUID(job_id), is_stopping=queue.is_stopping)


def measure_own_text(summary_id: str) -> str:
    """Measure a text that a person wrote; return what came of it for the queue's own list."""
    beat()
    return measure_edited(UUID(summary_id))


def compare_profiles(key: str) -> str:
    """Compare profiles for an operator's page; return how it ended for the queue's own list."""
    return jobs.work(key, is_stopping=queue.is_stopping)


def sweep() -> dict[str, int]:
    """Find what died or never started, and tell of what needs a look; return how many of each."""
    swept = sweep_runs().as_dict()
    return swept | {"alerted_things": send_alerts().things}


def look_at_caches() -> int:
    """Look at the branches whose prompt cache is about to expire; return how many got a run."""
    beat()
    return look_at_clocks()


def delete_orphans() -> int:
    """Delete the files of parts that no message names any more; return how many."""
    return part_files.delete_orphans()


def roll_up() -> int:
    """Bring the figures of the front page up to date; return how many days were worked out.

    Summaries whose turns have come get their hindsight, too, and lists of what needs a look their
    floors.
    """
    note_waiting()
    raise_floors()
    return len(refresh_figures().days)
