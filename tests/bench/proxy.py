"""A proxy in front of PostgreSQL that counts round trips and makes each of them take longer.

A round trip is a burst of bytes from the client that comes after the server has answered the last
one: several statements of a pipeline are one. What opens a connection is counted apart, by the
connections. The delay is spent once a burst, before it goes on: half of a network's way there and
back would be spent on each side, and the client waits for both.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

CHUNK = 65_536
# The first byte of every server message that ends its answer: ready for the next query.
READY = b"Z\x00\x00\x00\x05"


@dataclass(kw_only=True)
class Proxy:
    """A running proxy: where it listens, how slow it is, what it has counted so far."""

    host: str
    port: int
    delay_seconds: float = 0.0
    listens_on: int = 0
    round_trips: int = 0
    connections: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _open: list[socket.socket] = field(default_factory=list, repr=False)

    def serve(self, listener: socket.socket) -> None:
        """Take connections until the listener is closed."""
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._join, args=(client,), daemon=True).start()

    def _join(self, client: socket.socket) -> None:
        """Open the other half of a connection, log in undelayed, then copy both ways."""
        try:
            server = socket.create_connection((self.host, self.port))
        except OSError:
            client.close()
            return
        pair = _Pair(proxy=self, client=client, server=server)
        with self._lock:
            self.connections += 1
            self._open += [client, server]
        for work in (pair.upwards, pair.downwards):
            threading.Thread(target=work, daemon=True).start()

    def count(self) -> None:
        """Count one round trip."""
        with self._lock:
            self.round_trips += 1

    def close(self) -> None:
        """End every connection."""
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@dataclass(kw_only=True)
class _Pair:
    """One connection through the proxy. Logging in is over with the server's first "ready"."""

    proxy: Proxy
    client: socket.socket
    server: socket.socket
    logged_in: bool = False
    answered: bool = True

    def __post_init__(self) -> None:
        for one in (self.client, self.server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def upwards(self) -> None:
        """Copy from the client; the first bytes after an answer begin a round trip."""
        with suppress(OSError):
            while given := self.client.recv(CHUNK):
                # "X" is the client's farewell, which nothing answers.
                if self.logged_in and self.answered and given[:1] != b"X":
                    self.answered = False
                    self.proxy.count()
                    time.sleep(self.proxy.delay_seconds)
                self.server.sendall(given)
        self._end()

    def downwards(self) -> None:
        """Copy from the server."""
        with suppress(OSError):
            while given := self.server.recv(CHUNK):
                self.answered = True
                # Its "ready" ends an answer, and comes with it or by itself.
                self.logged_in = self.logged_in or READY in given
                self.client.sendall(given)
        self._end()

    def _end(self) -> None:
        for one in (self.client, self.server):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxy(host: str, port: int, *, delay_seconds: float = 0.0) -> Iterator[Proxy]:
    """Run a proxy on a free port of loopback in front of that server."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        made = Proxy(host=host, port=port, delay_seconds=delay_seconds)
        made.listens_on = listener.getsockname()[1]
        threading.Thread(target=made.serve, args=(listener,), daemon=True).start()
        try:
            yield made
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            made.close()


@contextmanager
def database_behind_proxy(*, delay_seconds: float = 0.0) -> Iterator[Proxy]:
    """Lead the default database's connections of this process through a proxy, PostgreSQL's only.

    The connection of this thread is opened anew on the way in and closed on the way out; statements
    of an open transaction would be lost, so there must be none.
    """
    from django.db import connection

    assert connection.vendor == "postgresql" and not connection.in_atomic_block
    before = {name: connection.settings_dict[name] for name in ("HOST", "PORT", "OPTIONS")}
    # A pool keeps connections that lead elsewhere; one is shared as soon as an application is made.
    alone = {name: value for name, value in before["OPTIONS"].items() if name != "pool"}
    host, port = before["HOST"] or "127.0.0.1", int(before["PORT"] or 5432)
    with proxy(host, port, delay_seconds=delay_seconds) as made:
        connection.close()
        here = {"HOST": "127.0.0.1", "PORT": str(made.listens_on), "OPTIONS": alone}
        connection.settings_dict.update(here)
        try:
            connection.ensure_connection()
            yield made
        finally:
            connection.close()
            connection.settings_dict.update(before)
