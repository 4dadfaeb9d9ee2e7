"""What a hostile client costs everybody else: memory of the server, and how long others wait.

One real worker with a model that never answers. Each row of docs/api.md's table of limits that
can cost memory or threads is tried against it.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from django.contrib.auth import get_user_model

from chatapp import transcript
from chatapp.keys import create_key
from chatapp.models import POSITION_STEP, Message, Session
from tests.bench.measure import Row
from tests.bench.processes import PLAIN, environment, own_queue, web_server
from tests.bench.sizes import Sizes
from tests.fakes.model_server import ModelServer

QUIET = "100 ms"
SILENCE_SECONDS = 20.0
"""Longer than the clients wait, and not so long that the server cannot be stopped."""
LONG = 2_000_000
FIRST = "Good morning, server."
ANNOUNCED = 800_000_000


def measure(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of this theme."""
    script = [
        {"when": {"contains": FIRST}, "reply": {"text": "Good morning."}},
        {"when": {}, "reply": {"text": "late", "delay_s": SILENCE_SECONDS}},
    ]
    with ModelServer(script) as silent:
        known = silent.models()
        with own_queue(), web_server(environment(context=PLAIN, known=known)) as (port, process):
            server = _Server(port=port, process=process)
            yield from _silent_turns(server, sizes.hostile_turns)
            yield from _large_pages(server, sizes.hostile_messages)
            yield from _large_bodies(server, sizes.hostile_bytes)
            yield from _large_files(server, sizes.hostile_lines)


class _Server:
    """A running server, asked by a user of its own for each kind of trouble."""

    def __init__(self, *, port: int, process: int) -> None:
        self.port, self.process = port, process

    def user(self, name: str) -> _Asker:
        """Return somebody with a key."""
        user = get_user_model()._default_manager.get_or_create(username=name)[0]
        return _Asker(port=self.port, user=user, secret=create_key(owner=user, name=name).secret)

    @contextmanager
    def peak(self) -> Iterator[list[float]]:
        """Measure by how many megabytes the process grows in the block, at most."""
        grown: list[float] = []
        with suppress(OSError):
            Path(f"/proc/{self.process}/clear_refs").write_text("5")
        before = self._megabytes("VmRSS")
        yield grown
        grown.append(max(0.0, self._megabytes("VmHWM") - before))

    def _megabytes(self, what: str) -> float:
        with suppress(OSError):
            for line in Path(f"/proc/{self.process}/status").read_text().splitlines():
                if line.startswith(what):
                    return int(line.split()[1]) / 1024
        return 0.0


class _Asker:
    """One user of the API."""

    def __init__(self, *, port: int, user: Any, secret: str) -> None:
        self._port, self.user = port, user
        self._headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}

    def ask(self, method: str, path: str, body: Any = None, *, seconds: float = 60) -> int:
        """Return the status of the answer, which is read to its end."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=seconds)
        text = body if isinstance(body, bytes | None) else json.dumps(body)
        try:
            connection.request(method, path, body=text, headers=self._headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()


def _session(asker: _Asker) -> Session:
    return transcript.create_session(owner=asker.user, title="Hostile")


def _worst(work: Callable[[], int], times: int) -> float:
    """Return the longest that any of several calls took, in milliseconds; all must succeed."""
    worst = 0.0
    for _ in range(times):
        started = time.perf_counter()
        status = work()
        worst = max(worst, (time.perf_counter() - started) * 1000)
        assert status == 200, status
    return worst


def _silent_turns(server: _Server, count: int) -> Iterator[Row]:
    """One user begins turns that a model never answers; others ask meanwhile."""
    hostile, other = server.user("hostile"), server.user("other")
    paths = [f"/api/v1/sessions/{_session(hostile).pk}/turns/" for _ in range(count)]
    theirs = f"/api/v1/sessions/{_session(other).pk}/"
    # What a process loads with its first turn, it loads once.
    other.ask("POST", f"{theirs}turns/", {"content": FIRST})
    answers: list[int] = []

    def turn(path: str) -> None:
        with suppress(OSError):
            answers.append(hostile.ask("POST", path, {"content": "hello"}, seconds=8))

    threads = [threading.Thread(target=turn, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    beginning = _worst(lambda: other.ask("GET", "/healthz"), 10)
    time.sleep(1)
    alive = _worst(lambda: other.ask("GET", "/healthz"), 50)
    reading = _worst(lambda: other.ask("GET", theirs), 20)
    for thread in threads:
        thread.join()
    for name, value in (
        ("/healthz, while silent turns begin, worst", beginning),
        ("/healthz, during silent turns, worst", alive),
        ("another user's GET session, worst", reading),
    ):
        yield Row(name=name, n=count, value=value, unit="ms", aim=QUIET)
    refused = answers.count(429)
    yield Row(name="silent turns that were refused", n=count, value=refused, unit="turns")


def _large_pages(server: _Server, count: int) -> Iterator[Row]:
    """The largest page of the longest messages, asked for by several clients at once."""
    asker = server.user("reader")
    session = _session(asker)
    for number in range(1, count + 1):
        # Not through the product: it would count the tokens of each.
        Message.objects.create(
            session=session,
            branch=session.branch,
            position=number * POSITION_STEP,
            role=Message.Role.USER,
            content="x" * LONG,
        )
    path = f"/api/v1/sessions/{session.pk}/messages/?page_size=200"
    with server.peak() as grown:
        threads = [threading.Thread(target=asker.ask, args=("GET", path)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    name = "memory, four pages of 2 MB messages at once"
    yield Row(name=name, n=count, value=grown[0], unit="MB more")


def _large_bodies(server: _Server, size: int) -> Iterator[Row]:
    """Bodies that are too large, too deep, or hide what is large."""
    asker = server.user("writer")
    path = f"/api/v1/sessions/{_session(asker).pk}/messages/"
    with server.peak() as grown:
        status = _announce(server.port, path, ANNOUNCED)
    yield Row(
        name=f"memory, a body announced as 800 MB ({status})", n=1, value=grown[0], unit="MB more"
    )
    bodies = {
        "a body of brackets": b"[" * size,
        "a body of braces": b'{"a":' * (size // 5),
        "a long field that nobody knows": json.dumps(
            {"messages": [{"role": "user", "content": "a", "own": "y" * size}]}
        ).encode(),
        "a long number": b'{"role": "user", "content": "a", "n": ' + b"1" * size + b"}",
        "a long key": json.dumps({"role": "user", "content": "a", "k" * size: 1}).encode(),
    }
    for name, body in bodies.items():
        with server.peak() as grown:
            started = time.perf_counter()
            status = asker.ask("POST", path, body)
            took = (time.perf_counter() - started) * 1000
        yield Row(name=f"{name} ({status})", n=len(body), value=took, unit="ms")
        yield Row(name=f"memory, {name}", n=len(body), value=grown[0], unit="MB more")


def _large_files(server: _Server, lines: int) -> Iterator[Row]:
    """Files of very many lines that hold nothing, or very much; no worker takes them in."""
    asker, other = server.user("importer"), server.user("other")
    talk = {"messages": [{"role": "user", "content": "Hi"}]}
    files = {
        "a file of empty objects": b"{}\n" * lines,
        "a list of empty objects": b"[" + b"{}," * lines + b"{}]",
        "a file of lines that are no JSON": b"x\n" * lines,
        "a file of conversations of one line": (json.dumps(talk).encode() + b"\n") * (lines // 150),
    }
    for name, content in files.items():
        waits: list[float] = []
        asked = threading.Thread(
            target=lambda waits=waits: waits.append(
                _worst(lambda: other.ask("GET", "/healthz"), 20)
            )
        )
        with server.peak() as grown:
            asked.start()
            started = time.perf_counter()
            status = asker.ask("POST", "/api/v1/sessions/import/", content)
            took = (time.perf_counter() - started) * 1000
            asked.join()
        yield Row(name=f"{name} ({status})", n=len(content), value=took, unit="ms")
        yield Row(name=f"memory, {name}", n=len(content), value=grown[0], unit="MB more")
        yield Row(name=f"/healthz, {name}", n=20, value=waits[0], unit="ms", aim=QUIET)


def _announce(port: int, path: str, size: int) -> str:
    """Announce a body to a server that does not know us, send a part; return its status."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(head.encode() + b"x" * 65_536)
        return client.recv(64).split(b" ")[1].decode()
