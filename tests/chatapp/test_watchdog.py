"""A server that trickles: it always sends something, so no time-out of a single read ever fires."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from chatapp.llm import openai_client
from chatapp.llm.errors import ErrorKind, ModelError
from chatapp.llm.openai_client import OpenAIModel
from chatapp.llm.registry import all_models
from chatapp.llm.requests import ModelRequest

EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n"
CHUNK = b'data: {"id": "1", "choices": [{"index": 0, "delta": {"content": "so far"}}]}\n\n'


class TricklingServer:
    """Sends a beginning, then one more piece every 0.2 seconds until nobody listens."""

    def __init__(self, beginning: bytes, piece: bytes, *, first_answer: bytes = b"") -> None:
        self._beginning, self._piece = beginning, piece
        self._first_answer = first_answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.calls = 0
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.calls += 1
            threading.Thread(target=self._trickle, args=[connection], daemon=True).start()

    def _trickle(self, connection: socket.socket) -> None:
        try:
            self._receive(connection)
            if self._first_answer:
                connection.sendall(self._first_answer)
                self._receive(connection)
            connection.sendall(self._beginning)
            while True:
                time.sleep(0.2)
                connection.sendall(self._piece)
        except OSError:
            connection.close()

    def _receive(self, connection: socket.socket) -> None:
        """Read one request, whose head and body may come one by one."""
        while (piece := connection.recv(65536)) and not piece.endswith(b"}"):
            pass

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def models(server: TricklingServer) -> dict:
    entry = {
        "BACKEND": "chatapp.llm.openai_client.OpenAIModel",
        "NAME": "m",
        "CONTEXT_WINDOW": 8000,
        "BASE_URL": server.url,
    }
    return {"default": entry}


@pytest.fixture
def trickle(use_models) -> Iterator:
    """Ask a trickling server; return (the error, the server, seconds that it took)."""
    servers: list[TricklingServer] = []

    def ask(beginning: bytes, piece: bytes, *, deadline: float, **request):
        server = TricklingServer(beginning, piece)
        servers.append(server)
        use_models(models(server), MODEL_TIMEOUT_SECONDS=1)
        started = time.monotonic()
        with pytest.raises(ModelError) as caught:
            OpenAIModel(all_models()["default"]).complete(
                ModelRequest(
                    messages=[{"role": "user", "content": "hello"}],
                    deadline=started + deadline,
                    **request,
                )
            )
        return caught.value, server, time.monotonic() - started

    yield ask
    for server in servers:
        server.close()


@pytest.mark.parametrize(
    ("beginning", "piece"), [(JSON, b" "), (b"HTTP/1.1 200 OK\r\n", b"X-Wait: 1\r\n")]
)
def test_a_plain_call_ends_in_time_though_the_server_always_sends_something(
    trickle, beginning, piece
):
    error, server, seconds = trickle(beginning, piece, deadline=1.2)
    assert error.kind is ErrorKind.TIMEOUT
    assert seconds < 3
    assert server.calls == 1


def test_a_call_that_took_too_long_is_repeated_only_up_to_the_deadline(trickle):
    error, server, _ = trickle(JSON, b" ", deadline=2.5)
    assert error.kind is ErrorKind.TIMEOUT
    # A call has a second: the third one is cut short, and the fourth is not begun.
    assert 2 <= server.calls < openai_client.MAX_ATTEMPTS


@pytest.mark.parametrize("piece", [b"\n", b": still thinking\n\n"])
def test_a_stream_that_only_trickles_ends_at_the_deadline_with_what_had_come(trickle, piece):
    error, server, seconds = trickle(EVENTS + CHUNK, piece, deadline=2, stream=True)
    assert error.kind is ErrorKind.TIMEOUT
    assert error.partial.text == "so far"
    assert 1.5 < seconds < 3
    assert server.calls == 1


def test_a_connection_that_is_used_again_is_watched_too(use_models):
    body = b'{"id": "1", "choices": [{"message": {"role": "assistant", "content": "hi"}}]}'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    server = TricklingServer(JSON, b" ", first_answer=head % len(body) + body)
    use_models(models(server), MODEL_TIMEOUT_SECONDS=1)
    model = OpenAIModel(all_models()["default"])
    messages = [{"role": "user", "content": "hello"}]
    assert model.complete(ModelRequest(messages=messages)).text == "hi"
    started = time.monotonic()
    with pytest.raises(ModelError) as caught:
        model.complete(ModelRequest(messages=messages, deadline=started + 1.2))
    server.close()
    assert caught.value.kind is ErrorKind.TIMEOUT
    assert server.calls == 1
    assert time.monotonic() - started < 3
