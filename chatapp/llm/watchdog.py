"""A time limit for a whole call: those of httpx2 are for each read, and a server may trickle."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any


class Line:
    """The connection that one client, used by one thread, talks through; another thread cuts it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.is_cut = False

    def follow(self, request: Any) -> None:
        """Be told of connections made for a request: an event hook of an httpx2 client."""
        request.extensions["trace"] = self._trace

    def _trace(self, event: str, details: dict[str, Any]) -> None:
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            with self._lock:
                self._socket = details["return_value"].get_extra_info("socket")
                if self.is_cut:
                    self._shut_down()

    def _cut(self) -> None:
        with self._lock:
            self.is_cut = True
            self._shut_down()

    def _shut_down(self) -> None:
        if self._socket is not None:
            # Closing would not wake the thread that reads; a socket that is gone needs neither.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    @contextlib.contextmanager
    def cut_after(self, seconds: float | None) -> Iterator[None]:
        """Cut the connection when the block takes longer; `is_cut` tells. None is no limit."""
        self.is_cut = False
        if seconds is None:
            yield
            return
        timer = threading.Timer(seconds, self._cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
