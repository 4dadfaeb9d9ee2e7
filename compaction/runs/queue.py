"""The only importer of django_q: what runs off the request path goes through here.

Tasks are enqueued when the transaction commits and carry ids only
(docs/decisions/0006-one-module-knows-the-queue.md).
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from datetime import datetime, timedelta
from queue import Empty
from typing import Any
from uuid import UUID

from django.apps import apps
from django.db import transaction
from django.db.models import Model
from django.utils import timezone

from chatapp.conf import chatapp_settings
from compaction.engine.policy.cache_clock import LOOK_MS

logger = logging.getLogger(__name__)
RUN_TASK = "compaction.tasks.run_compaction"
IMPORT_TASK = "compaction.tasks.import_file"
MEMORY_TASK = "compaction.tasks.work_at_memories"
BULK_TASK = "compaction.tasks.work_at_bulk_job"
COMPARE_TASK = "compaction.tasks.compare_profiles"
MEASURE_TASK = "compaction.tasks.measure_own_text"
SWEEP_TASK = "compaction.tasks.sweep"
# A change takes effect with the next `migrate`, which stores the schedules anew.
SWEEP_MINUTES = 1
CLOCK_TASK = "compaction.tasks.look_at_caches"
CLOCK_MINUTES = 1
ROLL_UP_TASK = "compaction.tasks.roll_up"
ROLL_UP_MINUTES = 5
ORPHANS_TASK = "compaction.tasks.delete_orphans"
ORPHANS_MINUTES = 24 * 60
# Who waits for a ping is a load balancer with little patience.
PING_SECONDS = 1
# A worker that was told to stop leaves the queue this long to take its last result.
LAST_RESULT_SECONDS = 1
# How much longer than a model call a worker may go on that was told to stop.
STOP_SLACK_SECONDS = 60
# Longest time that a worker holds the lock of the queue that it reads.
READ_SECONDS = 0.1


def enqueue_run(run_id: UUID) -> None:
    """Have a worker execute a run, once the current transaction has committed.

    A queue that cannot be reached is logged and fails nobody: the sweep delivers the row later.
    """
    _put_on_commit(RUN_TASK, run_id)


def enqueue_import(job_id: UUID) -> None:
    """Have a worker go on with an import, in the same way."""
    _put_on_commit(IMPORT_TASK, job_id)


def enqueue_memory_run(run_id: UUID) -> None:
    """Have a worker do a memory run, in the same way."""
    _put_on_commit(MEMORY_TASK, run_id)


def enqueue_bulk(job_id: UUID) -> None:
    """Have a worker go on with a bulk job, in the same way."""
    _put_on_commit(BULK_TASK, job_id)


def enqueue_measuring(summary_id: UUID) -> None:
    """Have a worker measure a text that a person wrote, in the same way."""
    _put_on_commit(MEASURE_TASK, summary_id)


def enqueue_comparison(key: str) -> None:
    """Have a worker compare profiles for an operator who waits; the key is the cache's."""
    _put_on_commit(COMPARE_TASK, key)


def _put_on_commit(task: str, row_id: UUID | str) -> None:
    def deliver() -> None:
        _put(task, str(row_id))

    transaction.on_commit(deliver, robust=True)


def _put(task: str, *arguments: Any) -> None:
    from django_q.tasks import async_task

    async_task(task, *arguments)  # type: ignore[no-untyped-call]


def ensure_schedules() -> None:
    """Store the schedules; safe to call again and from two processes."""
    _ensure_schedule("compaction sweep", SWEEP_TASK, SWEEP_MINUTES)
    ensure_clock_schedules()
    _ensure_schedule("compaction figures", ROLL_UP_TASK, ROLL_UP_MINUTES)
    _ensure_schedule("orphans of the part store", ORPHANS_TASK, ORPHANS_MINUTES)


def ensure_clock_schedules() -> None:
    """Store the two schedules of the prompt caches' clock, half a minute apart.

    The library knows no shorter interval than a minute, and looks at its schedules twice a minute.
    """
    first = _ensure_schedule("prompt caches", CLOCK_TASK, CLOCK_MINUTES)
    then = first + timedelta(milliseconds=LOOK_MS)
    _ensure_schedule("prompt caches, half a minute later", CLOCK_TASK, CLOCK_MINUTES, first_at=then)


def _ensure_schedule(
    name: str, task: str, minutes: int, *, first_at: datetime | None = None
) -> datetime:
    """Store one schedule; return when it is due next. `first_at` moves that."""
    from django_q.models import Schedule

    row, _ = Schedule.objects.update_or_create(
        name=name,
        defaults={
            "func": task,
            "schedule_type": Schedule.MINUTES,
            "minutes": minutes,
            "repeats": -1,
        }
        | ({"next_run": first_at} if first_at is not None else {}),
    )
    return row.next_run or timezone.now()


def waiting_tasks() -> int:
    """Return how many tasks wait for a worker."""
    from django_q.brokers import get_broker

    return int(get_broker().queue_size())  # type: ignore[no-untyped-call]


def tables_with_pages() -> list[type[Model]]:
    """Return the library's own tables that have a page in the admin; loads those pages."""
    from django.contrib.admin import site
    from django_q import admin as pages

    found = apps.get_app_config(pages.__package__).get_models()
    return [model for model in found if site.is_registered(model)]


def ping() -> None:
    """Return when the broker answers; raise its client's error soon when it does not.

    Redis is asked once and waited for PING_SECONDS, for the connection and for the answer; its
    client would try again for much longer. A broker in the database is asked for its size.
    """
    from django_q.brokers import get_broker

    broker: Any = get_broker()
    pool = getattr(broker.connection, "connection_pool", None)
    if pool is None:
        broker.queue_size()
        return
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    pool.connection_kwargs.update(socket_connect_timeout=PING_SECONDS, socket_timeout=PING_SECONDS)
    with broker.connection as client:
        client.set_retry(Retry(NoBackoff(), 0))
        client.ping()


class _Worker:
    """What a process of the cluster knows of itself; in all other processes nothing is set."""

    pid = 0
    is_busy = False
    is_told_to_stop = False


def is_worker() -> bool:
    """Whether this process is a worker of the queue."""
    return _Worker.pid == os.getpid()


def is_stopping() -> bool:
    """Whether this worker should end its work soon: its cluster is being stopped, or it itself.

    The cluster's master hears SIGTERM and waits for its workers without telling them; that it waits
    stands in the status that it keeps in the broker or the cache.
    """
    if not is_worker():
        return False
    return _Worker.is_told_to_stop or _cluster_is_stopping()


def _cluster_is_stopping() -> bool:
    from django_q.conf import Conf
    from django_q.status import Stat

    try:
        clusters: Any = Stat.get_all()
    except Exception:
        # Any broker's own error. A status that cannot be read stops nobody.
        logger.debug("The status of the clusters cannot be read.", exc_info=True)
        return False
    return any(
        cluster.status == Conf.STOPPING
        and cluster.host == socket.gethostname()
        and os.getpid() in cluster.workers
        for cluster in clusters
    )


def watch_workers() -> None:
    """Have every worker know that it is one, and end gracefully on SIGTERM.

    Some supervisors send the signal to all processes of a cluster; its default would kill a worker
    in the middle of a run. (The library's master may hang then: docs/operations.md#run-the-queue.)
    """
    from django_q import signals

    _hold_no_lock_while_idle()
    signals.post_spawn.connect(_begin, dispatch_uid="compaction.runs.queue.begin")
    signals.pre_execute.connect(_take_up, dispatch_uid="compaction.runs.queue.take_up")
    signals.post_execute_in_worker.connect(_lay_down, dispatch_uid="compaction.runs.queue.lay_down")


def _hold_no_lock_while_idle() -> None:
    """Have a cluster's processes wait for their next task without the lock that reads it.

    Who waits in `multiprocessing.Queue.get` holds it, and takes it into the grave: a killed idle
    worker would leave a cluster whose other workers never get a task again, and which never stops.
    """
    from django_q.queues import Queue

    if getattr(Queue.get, "waits_without_lock", False):
        return
    read: Any = Queue.get

    def get(self: Any, block: bool = True, timeout: float | None = None) -> Any:
        if not block or timeout is not None:
            return read(self, block, timeout)
        while True:
            self._reader.poll(None)
            # Another one may have been quicker.
            with suppress(Empty):
                return read(self, True, READ_SECONDS)

    get.waits_without_lock = True  # type: ignore[attr-defined]
    setattr(Queue, "get", get)  # noqa: B010  # to a type checker, methods are not assigned


def _begin(**kwargs: Any) -> None:
    _Worker.pid = os.getpid()
    signal.signal(signal.SIGTERM, _told_to_stop)
    # What starting made stays for ever: searching it for garbage took a tenth of a compaction.
    gc.freeze()


def _told_to_stop(number: int, frame: Any) -> None:
    if not _Worker.is_busy:
        sys.exit(0)
    if not _Worker.is_told_to_stop:
        _Worker.is_told_to_stop = True
        # One that hangs must not outlive the cluster, which sends this signal to such a one, too.
        seconds = chatapp_settings.model_timeout_seconds + STOP_SLACK_SECONDS
        last = threading.Timer(seconds, os._exit, [1])
        last.daemon = True
        last.start()


def _take_up(**kwargs: Any) -> None:
    _Worker.is_busy = True


def _lay_down(**kwargs: Any) -> None:
    _Worker.is_busy = False
    if _Worker.is_told_to_stop:
        # Whoever hands out tasks may be gone: the worker would wait for the next one for ever.
        threading.Timer(LAST_RESULT_SECONDS, os._exit, [0]).start()
