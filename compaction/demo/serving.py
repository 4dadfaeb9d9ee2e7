"""Web and queue as child processes: started together, stopped together."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType

from django.conf import settings

HOST = "127.0.0.1"
DEFAULT_PORT = 8000
# How many ports after a taken one are tried.
PORTS_TRIED = 20
START_SECONDS = 30.0
STOP_SECONDS = 10.0
POLL_SECONDS = 0.1


class PortTakenError(Exception):
    """The port cannot be used; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A child that ended by itself."""

    name: str
    status: int


def choose_port(wanted: int | None) -> int:
    """Return the port to serve on: the wanted one (0: any), or the first free one from 8000 on.

    Raises PortTakenError.
    """
    if wanted is not None:
        found = _bound_port(wanted)
        if found is None:
            raise PortTakenError(
                f"Port {wanted} is taken or not allowed. Choose another one with --port, or leave "
                "--port out: then a free one is found."
            )
        return found
    for port in range(DEFAULT_PORT, DEFAULT_PORT + PORTS_TRIED):
        if _bound_port(port):
            return port
    raise PortTakenError(
        f"The ports from {DEFAULT_PORT} to {DEFAULT_PORT + PORTS_TRIED - 1} are all taken. "
        "Choose one with --port."
    )


def _bound_port(port: int) -> int | None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except (OSError, OverflowError):
            return None
        return int(listener.getsockname()[1])


def web_and_queue(port: int) -> dict[str, list[str]]:
    """Return the command lines of both processes by name."""
    manage = str(settings.BASE_DIR / "manage.py")
    web = [manage, "serve", "--host", HOST, "--port", str(port), "--skip-checks"]
    web += ["--log-level", "warning", "--graceful-seconds", "3"]
    queue = [manage, "qcluster", "--skip-checks"]
    return {"web": [sys.executable, *web], "queue": [sys.executable, *queue]}


class Processes:
    """Child processes for the length of a `with` block; none of them outlives it.

    Each has a process group of its own, so that Ctrl-C reaches only the parent, which then stops
    them in order, and so that the children of a child go with it.
    """

    def __init__(self, commands: Mapping[str, Sequence[str]]) -> None:
        self._commands = commands
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Processes:
        try:
            for name, command in self._commands.items():
                self._running[name] = subprocess.Popen(  # noqa: S603 - command lines of this module
                    command,
                    cwd=settings.BASE_DIR,
                    env=_environment(),
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def ended(self) -> Ended | None:
        """Return the first child that has ended by itself, or None."""
        for name, process in self._running.items():
            if (status := process.poll()) is not None:
                return Ended(name=name, status=status)
        return None

    def wait_until_ended(self) -> Ended:
        """Return when a child has ended by itself."""
        while (ended := self.ended()) is None:
            time.sleep(POLL_SECONDS)
        return ended

    def wait_until_answering(self, port: int, seconds: float = START_SECONDS) -> Ended | None:
        """Return when the port answers HTTP (or `seconds` are over), or a child that has ended."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not _answers(port):
            if (ended := self.ended()) is not None:
                return ended
            time.sleep(POLL_SECONDS)
        return self.ended()

    def stop(self) -> None:
        """Ask every child to stop, wait, and kill what is left of its group.

        Interrupted once more (a second Ctrl-C) it kills at once.
        """
        try:
            for process in self._running.values():
                if process.poll() is None:
                    process.terminate()
            deadline = time.monotonic() + STOP_SECONDS
            for process in self._running.values():
                process.wait(max(0.0, deadline - time.monotonic()))
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            pass
        finally:
            for process in self._running.values():
                _kill_group(process)
            self._running = {}


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    # Errors mean that nobody is left; macOS says it with PermissionError.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _environment() -> dict[str, str]:
    # The demo's terminal shows faults only; whoever sets one of these in the shell sees more.
    return {
        "DJANGO_SETTINGS_MODULE": "chatapp.settings",
        "LOG_LEVEL": "ERROR",
        "PYTHONWARNINGS": "ignore",
        **os.environ,
    }


def _answers(port: int) -> bool:
    # http.client, because it asks no proxy.
    connection = http.client.HTTPConnection(HOST, port, timeout=2)
    try:
        connection.request("GET", "/health/")
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True
