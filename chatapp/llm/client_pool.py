"""SDK clients of a process: one pool for all its threads, and the line that a client talks through.

A client is used by one thread at a time. Afterwards it waits, with its open connection, for the
next call to the same server, whichever thread makes it; MODEL_CONNECTIONS says how many may wait.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from chatapp.conf import chatapp_settings
from chatapp.llm.bounded import ENCODINGS, bound_response
from chatapp.llm.errors import ErrorKind, ModelError


@dataclass(frozen=True, slots=True)
class _Pooled:
    """A client, its line, and the key and address that it was made for."""

    made_for: tuple[str, str]
    client: Any
    line: Line


class _ClientPool:
    """Clients that wait for a call, the one that was used last behind the others."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew without closing anything: in a fork the connections are the parent's."""
        self._lock = threading.Lock()
        self._waiting: list[_Pooled] = []

    def take(self, api_key: str, base_url: str) -> _Pooled:
        """Return the client of that server that was used last, or a new one."""
        made_for = api_key, base_url
        with self._lock:
            for number in range(len(self._waiting) - 1, -1, -1):
                if self._waiting[number].made_for == made_for:
                    return self._waiting.pop(number)
        return _new_client(api_key, base_url)

    def give_back(self, pooled: _Pooled) -> None:
        """Keep a client for the next call; the one that waits longest is closed for it."""
        with self._lock:
            self._waiting.append(pooled)
            too_many = len(self._waiting) - chatapp_settings.model_connections
            closed, self._waiting[: max(0, too_many)] = self._waiting[: max(0, too_many)], []
        for one in closed:
            one.client.close()


_pool = _ClientPool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.forget)


@contextlib.contextmanager
def client_for(api_key: str, base_url: str) -> Iterator[tuple[Any, Line]]:
    """Lend an SDK client and its line for one call. Raises ModelError where none can be made."""
    process, pooled = os.getpid(), _pool.take(api_key, base_url)
    try:
        yield pooled.client, pooled.line
    finally:
        if os.getpid() == process:
            _pool.give_back(pooled)


def _new_client(api_key: str, base_url: str) -> _Pooled:
    import openai

    line = Line()
    try:
        client = openai.OpenAI(
            api_key=api_key or ("none" if base_url else None),
            base_url=base_url or None,
            max_retries=0,
            http_client=openai.DefaultHttpx2Client(
                headers={"Accept-Encoding": ENCODINGS},
                event_hooks={"request": [line.follow], "response": [_bound]},
                # A server that sends us elsewhere would be told the conversation and the key.
                follow_redirects=False,
                verify=_certificates(),
            ),
        )
    except openai.OpenAIError as error:
        raise ModelError(ErrorKind.NOT_CONFIGURED, str(error)) from error
    return _Pooled((api_key, base_url), client, line)


@lru_cache(maxsize=1)
def _certificates() -> Any:
    """Return the certificates that servers are checked with: reading them takes 0.1 seconds."""
    import httpx2

    return httpx2.create_ssl_context()


def _bound(response: Any) -> None:
    bound_response(response, characters=chatapp_settings.max_answer_chars)


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
