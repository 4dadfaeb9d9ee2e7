"""The only importer of django_q: what runs off the request path goes through here.

Tasks are enqueued when the transaction commits and carry ids only (spec/stack.md Q6, Q10).
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import transaction

RUN_TASK = "compaction.tasks.run_compaction"
SWEEP_TASK = "compaction.tasks.sweep"
SWEEP_MINUTES = 1
ROLL_UP_TASK = "compaction.tasks.roll_up"
ROLL_UP_MINUTES = 5


def enqueue_run(run_id: UUID) -> None:
    """Have a worker execute a run, once the current transaction has committed.

    A queue that cannot be reached is logged and fails nobody: the sweep delivers the row later.
    """

    def deliver() -> None:
        _put(RUN_TASK, str(run_id))

    transaction.on_commit(deliver, robust=True)


def _put(task: str, *arguments: Any) -> None:
    from django_q.tasks import async_task

    async_task(task, *arguments)  # type: ignore[no-untyped-call]


def ensure_schedules() -> None:
    """Store the schedules; safe to call again and from two processes."""
    _ensure_schedule("compaction sweep", SWEEP_TASK, SWEEP_MINUTES)
    _ensure_schedule("compaction figures", ROLL_UP_TASK, ROLL_UP_MINUTES)


def _ensure_schedule(name: str, task: str, minutes: int) -> None:
    from django_q.models import Schedule

    Schedule.objects.update_or_create(
        name=name,
        defaults={
            "func": task,
            "schedule_type": Schedule.MINUTES,
            "minutes": minutes,
            "repeats": -1,
        },
    )


def waiting_tasks() -> int:
    """Return how many tasks wait for a worker."""
    from django_q.brokers import get_broker

    return int(get_broker().queue_size())  # type: ignore[no-untyped-call]
