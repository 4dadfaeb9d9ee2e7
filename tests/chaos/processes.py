"""The product's processes, each in a session of its own, so that nothing outlives the test."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.queue.processes import descendants

ROOT = Path(__file__).resolve().parent.parent.parent
START_SECONDS = 60
# A pusher that has just lost its Redis waits for ten of them before it looks up.
STOP_SECONDS = 20
# The sentinel, the pusher, the monitor and two workers.
WHOLE_CLUSTER = 5


@dataclass(kw_only=True)
class Part:
    """One process with its children; it can be killed, stopped, and started again."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    is_up: Callable[[Part], bool]
    port: int = 0
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def pid(self) -> int:
        """The id of the process, which is that of its group; 0 before the start."""
        return self._process.pid if self._process else 0

    @property
    def is_ready(self) -> bool:
        """Whether it runs and does its work."""
        return self._process is not None and self._process.poll() is None and self.is_up(self)

    def start(self) -> None:
        """Start it; see wait_until_ready."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                cwd=ROOT,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_until_ready(self) -> None:
        """Return when it does its work; raise RuntimeError with the end of its log otherwise."""
        end = time.monotonic() + START_SECONDS
        while not self.is_ready:
            if time.monotonic() > end or (self._process and self._process.poll() is not None):
                tail = self.log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{self.name} did not start:\n{tail}")
            time.sleep(0.1)

    def kill(self) -> None:
        """Kill the whole group at once."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()

    def terminate(self) -> None:
        """Ask it to stop."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def ends_within(self, seconds: float) -> bool:
        """Wait that long; return whether the process and all of its children have ended."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self._process is None:
                return True
            if self._process.poll() is not None and not group_members(self.pid):
                return True
            time.sleep(0.1)
        return False


def group_members(group: int) -> list[int]:
    """Return the processes of a group that have not ended."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] not in "ZX":
                found.append(int(folder.name))
    return found


def children_at_work(cluster: Part) -> list[int]:
    """Return a cluster's workers, its pusher and its monitor: those that have no children."""
    return [pid for pid in descendants(cluster.pid) if not descendants(pid)]


def web_worker(number: int, environment: Mapping[str, str], folder: Path) -> Part:
    """Return a web worker on a free port; it is not started yet."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "chatapp.asgi:application", "--port", str(port)]
    return Part(
        name=f"web worker {number}",
        command=[*command, "--log-level", "warning", "--no-access-log"],
        environment=environment,
        log=folder / f"web-{number}.log",
        is_up=_listens,
        port=port,
    )


def cluster(number: int, environment: Mapping[str, str], folder: Path) -> Part:
    """Return a qcluster; it is not started yet."""
    return Part(
        name=f"qcluster {number}",
        command=[sys.executable, "manage.py", "qcluster"],
        environment=environment,
        log=folder / f"qcluster-{number}.log",
        is_up=_is_whole,
    )


def _listens(part: Part) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", part.port), timeout=1):
        return True
    return False


def _is_whole(part: Part) -> bool:
    return len(descendants(part.pid)) >= WHOLE_CLUSTER
