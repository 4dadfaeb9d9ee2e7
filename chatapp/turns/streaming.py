"""Turns for streaming responses: a bounded thread pool and a queue of events.

The turn runs in a thread of its own pool and knows nothing of the client: one that goes away loses
nothing. Events cross to the event loop through `call_soon_threadsafe`
(docs/decisions/0020-requests-in-one-thread.md).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

from django.db import connections

from chatapp.concurrency import slow_starts
from chatapp.conf import chatapp_settings
from chatapp.database import trouble_of
from chatapp.late_answers import AnswerNotStoredError
from chatapp.transcript.writing import TranscriptError
from chatapp.turns.attempts import NothingToAnswerError
from chatapp.turns.lease import TurnInProgressError
from chatapp.turns.service import StartedTurn, TurnFailedError, finish_turn

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One piece of news for the client. `last` ends the stream."""

    name: str
    payload: dict[str, Any]
    last: bool = False

    def joined(self, later: Event) -> Event | None:
        """Return one event that says what this one and the next one say; None where none can."""
        of_texts = _TEXTS.get(self.name)
        if of_texts is None or later.name != self.name or self.last or later.last:
            return None
        said, more = self.payload, later.payload
        text = f"{said[of_texts]}{more[of_texts]}"
        if len(text) > _LONGEST_JOINED or said.get("index") != more.get("index"):
            return None
        return Event(name=self.name, payload={**more, of_texts: text})


_TEXTS = {"delta": "text", "reasoning": "text", "tool_call": "arguments_delta"}
"""The events that come in pieces of any size, each with its field that goes on."""
_LONGEST_JOINED = 1_000


class EventQueue:
    """Events from one thread to one reader in an event loop; put() never blocks.

    Pieces that wait are joined: an answer of five characters a piece took sixty times its size.
    """

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._lock = Lock()
        self._reader: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._abandoned = False

    def put(self, event: Event) -> None:
        """Add an event; after the reader has gone it is dropped."""
        with self._lock:
            if self._abandoned:
                return
            # Whoever has something to read already was told so.
            reader = None if self._events else self._reader
            joined = self._events[-1].joined(event) if self._events else None
            if joined is None:
                self._events.append(event)
            else:
                self._events[-1] = joined
        if reader is not None:
            loop, ready = reader
            try:
                loop.call_soon_threadsafe(ready.set)
            except RuntimeError:  # the loop was closed: nobody reads any more
                self.abandon()

    def abandon(self) -> None:
        """Forget the reader and what is waiting for it."""
        with self._lock:
            self._abandoned = True
            self._events.clear()

    async def read(self, *, heartbeat: float) -> AsyncGenerator[Event | None, None]:
        """Yield events until the last; None when `heartbeat` seconds passed without one."""
        ready = asyncio.Event()
        with self._lock:
            self._reader = (asyncio.get_running_loop(), ready)
        try:
            while True:
                ready.clear()
                event = self._pop()
                if event is not None:
                    yield event
                    if event.last:
                        return
                    continue
                try:
                    await asyncio.wait_for(ready.wait(), heartbeat)
                except TimeoutError:
                    yield None
        finally:
            self.abandon()

    def _pop(self) -> Event | None:
        with self._lock:
            return self._events.popleft() if self._events else None


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(
        max_workers=chatapp_settings.stream_threads, thread_name_prefix="turn"
    )


def start_turn(started: StartedTurn, queue: EventQueue) -> None:
    """Finish the turn in the pool; its end is put into the queue as `done` or `error`, always."""
    try:
        _pool().submit(_run, started, queue)
    except BaseException:
        started.lease.give_back()
        raise


def _run(started: StartedTurn, queue: EventQueue) -> None:
    try:
        with slow_starts.computing():
            queue.put(_end(started))
    finally:
        connections.close_all()


def _end(started: StartedTurn) -> Event:
    try:
        # It may have waited for a free thread longer than its lease lasts.
        if started.answered is None:
            started.lease.renew()
        return Event(name="done", payload={"result": finish_turn(started)}, last=True)
    except TurnFailedError as failure:
        return _error(failure.error.kind.value, str(failure))
    except AnswerNotStoredError as failure:
        # Whole, once more: what came in pieces may have begun anew.
        started.turn.emit("not_stored", {"answer": failure.answer, "is_kept": failure.is_kept})
        return _error("answer_not_stored", str(failure))
    except NothingToAnswerError as failure:
        return _error("nothing_to_answer", str(failure))
    except TurnInProgressError as failure:
        return _error("turn_in_progress", str(failure))
    except TranscriptError as failure:
        return _error("conflict", str(failure))
    except BaseException as failure:  # the tokenizer's panics are no Exception; the client waits
        if (trouble := trouble_of(failure)) is not None:
            logger.warning("A streamed turn ended with the database: %s", failure)
            return _error(trouble.code, trouble.sentence)
        logger.exception("A streamed turn of session %s failed.", started.turn.session.pk)
        return _error(
            "internal_error",
            "The server failed while answering. What you sent is stored; "
            'a turn of {"continue": true} tries again.',
        )


def _error(code: str, detail: str) -> Event:
    return Event(name="error", payload={"code": code, "detail": detail}, last=True)
