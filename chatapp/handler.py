"""The ASGI handler: one request, one thread, from pools whose threads come back.

Django's own handler passes a request from the event loop to a new thread and back again at every
seam between what is synchronous and what is not: middleware, signals, the view, closing. All of
ours is synchronous but the bodies of streams, and each new thread opens a database connection of
its own. That took more of the processor than the answer itself. Here a request goes to a thread
once, as it would under WSGI; only streams go on in the event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, MutableMapping
from contextlib import asynccontextmanager
from functools import cached_property
from typing import IO, Any
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.db import close_old_connections, connections
from django.http.response import FileResponse, HttpResponseBase
from django.urls import set_script_prefix

from chatapp.api.exceptions import plain_problem
from chatapp.concurrency import slow_starts
from chatapp.conf import chatapp_settings
from chatapp.health import ALIVE_PATHS, alive
from chatapp.pools import CLIENT_LEFT, Pool, ThreadPools, pool_of

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


BODY_SECONDS = 60
"""A body that takes longer to arrive is not waited for."""
IMPORTS = "/sessions/import/"


class BodyRefused(Exception):  # noqa: N818
    """The body is not read, or no further; `response` says why."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.response = plain_problem(status, sentence)


def _largest_body(path: str) -> int:
    """Return the bytes that a request to this address may bring."""
    if path.endswith(IMPORTS):
        return chatapp_settings.max_import_bytes
    return chatapp_settings.max_body_bytes


def _path_info(scope: Scope) -> str:
    """Return the address below the prefix under which the product is mounted."""
    return str(scope["path"]).removeprefix(scope.get("root_path") or "")


def _told_length(scope: Scope) -> int:
    """Return what the client says of the body's length; 0 where it says nothing readable."""
    told = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(told) if told.isdigit() else 0


def _too_large(limit: int) -> str:
    return f"The body has more than the {limit:,} bytes that are allowed. Send it in parts."


class ThreadPoolHandler(ASGIHandler):
    """Answers each request in one thread of its pool, and streams from the event loop."""

    @cached_property
    def _beginning(self) -> MutableMapping[asyncio.AbstractEventLoop, asyncio.Lock]:
        """Held while a slow request begins; for each event loop."""
        return WeakKeyDictionary()

    @cached_property
    def pools(self) -> ThreadPools:
        """The threads of this process."""
        return ThreadPools()

    def load_middleware(self, is_async: bool = False) -> None:
        """Build the chain of middleware for threads, without a way back to the event loop."""
        super().load_middleware(is_async=False)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body, have a thread answer, send the answer."""
        path = _path_info(scope)
        if path in ALIVE_PATHS and scope["method"] in ("GET", "HEAD"):
            await self.send_response(alive(), send)
            return
        try:
            body = await self._bounded_body(scope, receive)
        except RequestAborted:
            return
        except BodyRefused as refusal:
            await self.send_response(refusal.response, send)
            return
        pool = pool_of(path)
        async with _watching(scope, self.listen_for_disconnect(receive), pool):
            if pool is Pool.SLOW:
                response = await self._answered_slowly(scope, body)
            else:
                loop, threads = asyncio.get_running_loop(), self.pools.of(pool)
                response = await loop.run_in_executor(threads, self._answer, scope, body)
        if not response.streaming:
            await self.send_response(response, send)
            return
        try:
            await self._stream(response, receive, send)
        finally:
            await sync_to_async(_close_stream)(response)

    async def _bounded_body(self, scope: Scope, receive: Receive) -> IO[bytes]:
        """Return the body; raise BodyRefused before more than may be of it is kept anywhere.

        What the client says of its length is judged first, then what really comes is counted.
        """
        limit = _largest_body(scope["path"])
        if _told_length(scope) > limit:
            raise BodyRefused(413, _too_large(limit))
        counted = 0

        async def counting() -> Any:
            nonlocal counted
            message = await receive()
            counted += len(message.get("body", b""))
            if counted > limit:
                raise BodyRefused(413, _too_large(limit))
            return message

        try:
            async with asyncio.timeout(BODY_SECONDS):
                return await self.read_body(counting)
        except TimeoutError as error:
            raise BodyRefused(
                408, f"The body did not arrive within {BODY_SECONDS} seconds. Send it again."
            ) from error

    async def _answered_slowly(self, scope: Scope, body: IO[bytes]) -> Any:
        """Have a thread answer a slow request.

        Where a pool has no thread left it starts one, and waits until it has run behind every
        thread that computes. For seventy turns at one moment the event loop did nothing else for
        seconds, so another thread waits for it; one after the other, for they share a lock.
        """
        loop, threads = asyncio.get_running_loop(), self.pools.of(Pool.SLOW)
        async with self._beginning.setdefault(loop, asyncio.Lock()):
            answer = await loop.run_in_executor(
                self.pools.starter, threads.submit, self._answer_slowly, scope, body
            )
        return await asyncio.wrap_future(answer)

    def _answer_slowly(self, scope: Scope, body: IO[bytes]) -> Any:
        """Return the response once few enough others compute (chatapp/concurrency.py)."""
        with slow_starts.computing():
            return self._answer(scope, body)

    def _answer(self, scope: Scope, body: IO[bytes]) -> Any:
        """Return the response; one that is whole has been closed, as nothing is left to read."""
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=type(self), scope=scope)
        request, refusal = self.create_request(scope, body)
        response: Any = refusal if request is None else self.get_response(request)
        response._handler_class = type(self)
        if isinstance(response, FileResponse):
            response.block_size = self.chunk_size
        if response.streaming:
            # It ends elsewhere: what this thread has open is not kept for as long as it lasts.
            close_old_connections()
        else:
            response.close()
            body.close()
        return response

    async def _stream(self, response: HttpResponseBase, receive: Receive, send: Send) -> None:
        """Send a stream to its end, or until the client goes away."""
        sending = asyncio.ensure_future(self.send_response(response, send))
        leaving = asyncio.ensure_future(self.listen_for_disconnect(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            ended = await asyncio.gather(sending, leaving, return_exceptions=True)
        if isinstance(ended[0], Exception):
            raise ended[0]


@asynccontextmanager
async def _watching(
    scope: Scope, disconnect: Coroutine[Any, Any, None], pool: Pool
) -> AsyncIterator[None]:
    """Have whoever works at a slow request know, inside the block, that its client went away."""
    if pool is not Pool.SLOW:
        disconnect.close()
        yield
        return
    left = scope[CLIENT_LEFT] = threading.Event()
    leaving = asyncio.ensure_future(disconnect)

    def note(ended: asyncio.Future[None]) -> None:
        if not ended.cancelled() and isinstance(ended.exception(), RequestAborted):
            left.set()

    leaving.add_done_callback(note)
    try:
        yield
    finally:
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)


def _close_stream(response: HttpResponseBase) -> None:
    """Close a stream and the connections of the thread that wrote it, which does not come back."""
    response.close()
    connections.close_all()
