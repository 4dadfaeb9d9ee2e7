"""Signs of life: while a worker works it renews its lease and its row, also during a long call.

A lease that is renewed every few seconds can be short, so that a killed worker's branch is free
soon. Who may write is decided by the lease alone; a heartbeat only tells.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from django.db import Error, connection

from chatapp.database import close_connection, database_now
from compaction.branches.leases import Lease
from compaction.conf import compaction_settings
from compaction.errors import LostRaceError
from compaction.models import CompactionRun, WorkerHeartbeat
from compaction.runs import queue

logger = logging.getLogger(__name__)
Kind = WorkerHeartbeat.Kind
HOST_CHARS = 100
# Rows of processes that have been silent for so long are removed.
FORGOTTEN_AFTER = timedelta(days=1)
# When this process last said that it lives, by its number: a fork of it has not said so yet.
_last_beat: dict[int, float] = {}


def beat(run: CompactionRun | None = None) -> None:
    """Say that this process lives, and what it works on."""
    now, pid, host = database_now(), os.getpid(), socket.gethostname()[:HOST_CHARS]
    _last_beat[pid] = time.monotonic()
    kind = _kind()
    # A process that starts on the same machine with the same number goes on with the row.
    key = uuid.uuid5(uuid.NAMESPACE_OID, f"{kind}:{host}:{pid}")
    told = {"beat_at": now, "run": run}
    if WorkerHeartbeat.objects.filter(pk=key).update(**told):
        return
    row = WorkerHeartbeat(pk=key, kind=kind, host=host, pid=pid, started_at=now, **told)
    WorkerHeartbeat.objects.bulk_create([row], ignore_conflicts=True)


def forget_silent() -> int:
    """Remove the rows of processes that fell silent long ago; return how many."""
    silent = WorkerHeartbeat.objects.filter(beat_at__lt=database_now() - FORGOTTEN_AFTER)
    return silent.delete()[0]


def _kind() -> str:
    if queue.is_worker():
        return Kind.QUEUE.value
    is_command = Path(sys.argv[0]).name in ("manage.py", "django-admin")
    return (Kind.COMMAND if is_command else Kind.WEB).value


@contextmanager
def beating(lease: Lease, run: CompactionRun) -> Iterator[None]:
    """Renew a run's lease and this process's row until the block ends.

    A process that gave a sign of life within HEARTBEAT_SECONDS gives none for a run that is shorter
    than that. A lease that is lost is not taken again: the worker's own next look finds it gone.
    Inside a transaction (tests, callers with their own) nothing beats, as nobody else sees its
    rows.
    """
    if connection.in_atomic_block:
        yield
        return
    done, has_beaten = threading.Event(), threading.Event()
    last = _last_beat.get(os.getpid())
    if last is None or time.monotonic() - last >= compaction_settings.heartbeat_seconds:
        has_beaten.set()
        beat(run)
    thread = threading.Thread(
        target=_keep_beating, args=(lease, run, done, has_beaten), name="heartbeat", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        if has_beaten.is_set():
            with suppress(Error):
                beat()


def _keep_beating(
    lease: Lease, run: CompactionRun, done: threading.Event, has_beaten: threading.Event
) -> None:
    while not done.wait(compaction_settings.heartbeat_seconds):
        try:
            lease.renew()
            has_beaten.set()
            beat(run)
        except LostRaceError:
            return
        except Error:
            # The database may be back for the next beat; if not, the lease runs out, as it should.
            logger.warning("Run %s could not give a sign of life.", run.pk, exc_info=True)
        finally:
            close_connection()
