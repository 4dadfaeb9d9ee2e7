"""HTTP as our web server speaks it: a head that does not arrive is not waited for.

uvicorn gives a request's head as long as it takes, so a client that sends a byte now and then holds
a connection for ever; enough of them hold all that there are. `manage.py serve` uses this protocol.
The body has a limit of its own (chatapp.handler), which works under every server. Who goes on
sending a body that was answered already is read for a while, so that the answer arrives: a
connection that is closed while data comes in is reset, and what was written is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 60
"""A request's head, the first one's and each later one's, arrives within this time."""
LINGER_SECONDS = 30
"""What still comes of a body that was answered already is read, and dropped, for so long."""


class _ReadOnTransport:
    """A connection that is closed by its protocol: whoever still sends has to hear the answer."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self._transport = transport
        self.close = close
        self.is_read_on = False

    def is_closing(self) -> bool:
        """Whether nothing more is written."""
        return self.is_read_on or self._transport.is_closing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class TimedHeadProtocol(H11Protocol):
    """Answers 408 where the head of a request is not there in time, and closes the connection.

    Who sends on and on behind an answer is let go, too.
    """

    _head_timer: asyncio.TimerHandle | None = None
    _linger_timer: asyncio.TimerHandle | None = None
    _is_stopping = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        self._connection = transport
        self._read_on = _ReadOnTransport(transport, self._close)
        super().connection_made(cast(asyncio.Transport, self._read_on))
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Go on waiting while the head is not whole; of a later request from its first byte on."""
        if self._read_on.is_read_on:
            return
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self._wait_for_head()
        else:
            self._head_is_there()
        # What was no request may have begun the last wait just now.
        if self.conn.their_state is not h11.SEND_BODY and not self._read_on.is_read_on:
            self._body_is_over()

    def on_response_complete(self) -> None:
        """Begin to wait for the rest of a body that nobody reads."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            self._linger_timer = self.loop.call_later(LINGER_SECONDS, self._connection.close)

    def shutdown(self) -> None:
        """Have the server stop: nobody who was answered is waited for."""
        self._is_stopping = True
        if self._read_on.is_read_on:
            self._connection.close()
        else:
            super().shutdown()

    def _close(self) -> None:
        """Close the connection; where a body still comes, only once that ends or is too late.

        The client asked for the end, or h11 cannot go on: nothing more is written, and what comes
        is dropped.
        """
        may_come = self.conn.their_state in (h11.SEND_BODY, h11.ERROR)
        if not may_come or self._is_stopping or self._connection.is_closing():
            self._connection.close()
            return
        self._read_on.is_read_on = True
        self._body_is_over()
        self._linger_timer = self.loop.call_later(LINGER_SECONDS, self._connection.close)
        if self._connection.can_write_eof():
            self._connection.write_eof()
        self.flow.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._head_is_there()
        self._body_is_over()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _head_is_there(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _body_is_over(self) -> None:
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None

    def _give_up(self) -> None:
        """Say why the connection is closed, and close it."""
        self._head_timer = None
        if self.transport.is_closing():
            return
        # Not above: one of several processes loads this module before the apps are there.
        from chatapp.api.exceptions import plain_problem

        sentence = f"The request did not arrive within {HEAD_SECONDS} seconds. Send it again."
        response: Any = plain_problem(408, sentence)
        head = [
            "HTTP/1.1 408 Request Timeout",
            f"content-type: {response['Content-Type']}",
            f"content-length: {len(response.content)}",
            "connection: close",
        ]
        self.transport.write("\r\n".join([*head, "", ""]).encode("ascii") + response.content)
        # Who sends a byte now and then buys no time by it.
        self._connection.close()
