"""A server that is connected to and says nothing, as one does whose machine hangs."""

from __future__ import annotations

import contextlib
import socket


class SilentServer:
    """Listens on a port of this machine. Nobody accepts: the system connects whoever calls."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=16)
        self.port: int = self._listening.getsockname()[1]

    def __enter__(self) -> SilentServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self._listening.close()

    def calls(self) -> int:
        """Return how many connections were made since it was asked last."""
        self._listening.setblocking(False)
        count = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                self._listening.accept()[0].close()
                count += 1
        return count
