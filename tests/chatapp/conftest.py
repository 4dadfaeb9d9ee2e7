"""A real ASGI server for what no test client can show: streams that arrive piece by piece.

And a store of parts of its own for a test of it.
"""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest
import uvicorn

from tests.chatapp.part_shapes import CountingStorage, use_store


class AsgiServer:
    """The product under uvicorn on a free port of loopback, in a thread of this process."""

    def __init__(self) -> None:
        from chatapp.asgi import application

        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(
            application,
            log_level="warning",
            lifespan="off",
            ws="none",
            http="chatapp.http_protocol:TimedHeadProtocol",
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), daemon=True
        )

    def start(self) -> None:
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(10)
        self._socket.close()


@pytest.fixture
def asgi_server(transactional_db):
    server = AsgiServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def part_folder(settings, tmp_path) -> Path:
    """The folder of a part store; what is longer than LONGEST bytes goes there."""
    return use_store(settings, tmp_path, CountingStorage)
