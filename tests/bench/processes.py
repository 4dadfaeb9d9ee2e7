"""Real processes of the product on the benchmark's database: a web server, a queue's cluster."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from django.db import connection

from tests.bench.instant import models
from tests.queue.processes import descendants

ROOT = Path(__file__).resolve().parent.parent.parent
START_SECONDS = 30
COMPACTING = "compaction.backend.CompactionBackend"
PLAIN = "chatapp.context.backend.FullHistoryBackend"


def environment(
    *, context: str = COMPACTING, known: dict[str, Any] | None = None
) -> dict[str, str]:
    """Return the environment of a process: our database and queue, its own models and backend.

    Without `known` models it has the one that answers at once.
    """
    from django_q.conf import Conf

    return os.environ | {
        "DATABASE_URL": database_url(),
        "DJANGO_SETTINGS_MODULE": "tests.bench.process_settings",
        "QUEUE_NAME": str(Conf.CLUSTER_NAME),
        "BENCH_MODELS": json.dumps(models() if known is None else known),
        "BENCH_CONTEXT": context,
    }


def database_url() -> str:
    """Return the address of the database that this process has open."""
    config = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{config['NAME']}"
    who = f"{config['USER']}:{config['PASSWORD']}" if config["PASSWORD"] else config["USER"]
    return f"postgres://{who}@{config['HOST']}:{config['PORT'] or 5432}/{config['NAME']}"


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process, children excluded; 0 where there is no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def family_seconds(pid: int) -> float:
    """Return the processor time of a process and of those that it and its children started."""
    return sum(map(processor_seconds, [pid, *descendants(pid)]))


@contextmanager
def web_server(surroundings: dict[str, str]) -> Iterator[tuple[int, int]]:
    """Run the product's server with one worker; yield its port and its process's id."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    connection.close()
    command = [sys.executable, "-m", "uvicorn", "chatapp.asgi:application"]
    process = subprocess.Popen(
        [*command, "--port", str(port), "--log-level", "warning", "--no-access-log"],
        cwd=ROOT,
        env=surroundings,
    )
    try:
        _wait_for(port, process)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(timeout=START_SECONDS)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError("The server did not start.")


@contextmanager
def own_queue() -> Iterator[None]:
    """Give the block a queue of its own, which other clusters of the same broker do not empty."""
    from django_q.conf import Conf

    name = f"bench-{uuid.uuid4().hex[:12]}"
    with patch.object(Conf, "CLUSTER_NAME", name), patch.object(Conf, "PREFIX", name):
        try:
            yield
        finally:
            empty_queue()


def empty_queue() -> None:
    """Forget the tasks that no worker has taken yet."""
    from django_q.brokers import get_broker

    get_broker().purge_queue()  # type: ignore[no-untyped-call]


@contextmanager
def cluster(surroundings: dict[str, str]) -> Iterator[int]:
    """Run a cluster as `manage.py qcluster` does; yield its process's id once it takes tasks."""
    from django_q.models import Success

    connection.close()
    process = subprocess.Popen(
        [sys.executable, "manage.py", "qcluster"],
        cwd=ROOT,
        env=surroundings,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _wait_for_an_answer(process, Success)
        yield process.pid
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for_an_answer(process: subprocess.Popen[bytes], done: Any) -> None:
    """Return when a worker has done its first task; it is one that does nothing."""
    from django_q.tasks import async_task

    task = async_task("math.sqrt", 4)  # type: ignore[no-untyped-call]
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if done.objects.filter(pk=task).exists():
            return
        time.sleep(0.05)
    raise RuntimeError("The queue did not start.")
