"""Signs of life: while a worker works it renews its lease and its row, also during a long call.

A lease that is renewed every few seconds can be short, so that a killed worker's branch is free
soon. Who may write is decided by the lease alone; a heartbeat only tells.
"""

from __future__ import annotations

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

from chatapp.database import beating, database_now
from compaction.branches.leases import Lease
from compaction.conf import compaction_settings
from compaction.errors import LostRaceError
from compaction.models import CompactionRun, WorkerHeartbeat
from compaction.runs import queue

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
def working(lease: Lease, run: CompactionRun) -> Iterator[None]:
    """Renew a run's lease and this process's row until the block ends.

    A process that gave a sign of life within HEARTBEAT_SECONDS gives none for a run that is shorter
    than that. A lease that is lost is not taken again: the worker's own next look finds it gone.
    Inside a transaction (tests, callers with their own) nothing is written of that: nobody else
    sees its rows.
    """
    if connection.in_atomic_block:
        yield
        return
    has_beaten = threading.Event()

    def sign() -> bool:
        try:
            lease.renew()
        except LostRaceError:
            return False
        has_beaten.set()
        beat(run)
        return True

    seconds = compaction_settings.heartbeat_seconds
    last = _last_beat.get(os.getpid())
    if last is None or time.monotonic() - last >= seconds:
        has_beaten.set()
        beat(run)
    try:
        with beating(sign, seconds=seconds, who=f"Run {run.pk}"):
            yield
    finally:
        if has_beaten.is_set():
            with suppress(Error):
                beat()
