"""A process that stores messages as fast as it can: `python -m tests.bench.writer`.

It reads jobs from its standard input, one JSON object a line, and answers each with one; the first
line it writes says that it is ready.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any
from uuid import UUID

import django

READY = "ready"
ROLES = ("user", "assistant")


class Writer:
    """The process as its starter sees it."""

    def __init__(self, surroundings: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.writer"],
            env=surroundings,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self, job: dict[str, Any]) -> None:
        """Have it do a job; `result` returns what came of it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()

    def line(self) -> str:
        """Return the next line that it writes."""
        assert self._process.stdout is not None
        found = self._process.stdout.readline().strip()
        if not found:
            raise RuntimeError("A writer of the benchmark ended; what it wrote stands above.")
        return found

    def result(self) -> dict[str, Any]:
        """Wait for the job's end; return `times` in ms, one a message, and processor ms."""
        return dict(json.loads(self.line()))

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def writers(count: int, surroundings: dict[str, str]) -> Iterator[list[Writer]]:
    """Start that many writers; they are ready when the block begins."""
    started = [Writer(surroundings) for _ in range(count)]
    try:
        for one in started:
            assert one.line() == READY
        yield started
    finally:
        for one in started:
            one.stop()


def main() -> None:
    """Do jobs until the input ends."""
    django.setup()
    print(READY, flush=True)
    for line in sys.stdin:
        print(json.dumps(_do(json.loads(line))), flush=True)


def _do(job: dict[str, Any]) -> dict[str, Any]:
    store = _over_http(job) if job.get("port") else _in_process(job)
    roles, times = cycle(ROLES), []
    store(next(roles))
    # All of them begin at the same moment.
    time.sleep(max(0.0, job["start"] - time.time()))
    processor, end = time.process_time(), time.monotonic() + job["seconds"]
    while (began := time.monotonic()) < end:
        store(next(roles))
        times.append(1000 * (time.monotonic() - began))
    return {"times": times, "cpu_ms": 1000 * (time.process_time() - processor)}


def _in_process(job: dict[str, Any]) -> Callable[[str], None]:
    """Return what the API's view does: read the session, append, tell the context backend."""
    from chatapp import transcript
    from chatapp.context.backend import context_backend, notify
    from chatapp.models import Session
    from chatapp.selectors import active_branch
    from chatapp.transcript.writing import NewMessage
    from tests.bench.conversations import fresh

    known = Session(pk=UUID(job["session"]))

    def store(role: str) -> None:
        session = fresh(known)
        drafts = [NewMessage(wire={"role": role, "content": job["text"]})]
        rows = transcript.append(active_branch(session), drafts)
        notify(context_backend.message_stored, session, rows[-1])

    return store


def _over_http(job: dict[str, Any]) -> Callable[[str], None]:
    client = http.client.HTTPConnection("127.0.0.1", job["port"], timeout=60)
    headers = {"Authorization": f"Token {job['token']}", "Content-Type": "application/json"}
    address = f"/api/v1/sessions/{job['session']}/messages/"

    def store(role: str) -> None:
        body = json.dumps({"role": role, "content": job["text"]})
        client.request("POST", address, body=body, headers=headers)
        answer = client.getresponse()
        text = answer.read()
        assert answer.status == 201, text[:500]

    return store


if __name__ == "__main__":
    main()
