"""Writers: they post messages and turns over HTTP and repeat each until it is acknowledged."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from tests.chaos.ledger import Book, Ledger, Sent

CLIENT_SECONDS = 20
# Between two requests of one writer, and before one is repeated.
PAUSE_SECONDS = (0.05, 0.25)
REPEAT_SECONDS = 0.5
# What may go well when it is sent again: busy, too many, the server's fault.
WORTH_REPEATING = {408, 409, 425, 429}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came back: whether it counts, and where it never will, why."""

    counts: bool = False
    refusal: str = ""


@dataclass(kw_only=True)
class Writers:
    """The writers' threads: `start`, and later `finish`, which waits for the last requests."""

    ledger: Ledger
    ports: Sequence[int]
    seed: int
    count: int
    _finishing: threading.Event = field(default_factory=threading.Event)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Begin to write."""
        for number in range(self.count):
            thread = threading.Thread(
                target=self._write, args=(Random(f"{self.seed}/{number}"),), daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def finish(self, seconds: float) -> bool:
        """Send nothing new; return whether all that was sent is acknowledged within that time."""
        self._finishing.set()
        end = time.monotonic() + seconds
        while self.ledger.waiting() and time.monotonic() < end:
            time.sleep(0.2)
        self._stopped.set()
        for thread in self._threads:
            thread.join(CLIENT_SECONDS)
        return not self.ledger.waiting()

    def _write(self, chance: Random) -> None:
        while not self._stopped.is_set():
            book = self.ledger.take(chance, only_open=self._finishing.is_set())
            if book is None:
                time.sleep(0.1)
                continue
            sent = book.open or book.write(chance)
            sent.attempts += 1
            answer = post(chance.choice(self.ports), book, sent)
            if answer.refusal:
                self.ledger.refuse(book, f"Session {book.session_id}, {sent.key}: {answer.refusal}")
            sent.is_acknowledged = answer.counts
            self.ledger.give_back(book, seconds=0 if answer.counts else REPEAT_SECONDS)
            time.sleep(chance.uniform(*PAUSE_SECONDS))


def post(port: int, book: Book, sent: Sent) -> Answer:
    """Send a request to one web worker and read its answer to the end."""
    body: dict[str, object] = {"messages": sent.messages}
    if sent.is_turn:
        body["stream"] = sent.is_streamed
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=CLIENT_SECONDS)
    try:
        connection.request(
            "POST",
            f"/api/v1/sessions/{book.session_id}/{'turns' if sent.is_turn else 'messages'}/",
            body=json.dumps(body),
            headers={
                "Authorization": f"Token {book.token}",
                "Content-Type": "application/json",
                "Idempotency-Key": sent.key,
            },
        )
        response = connection.getresponse()
        text = response.read().decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return Answer()
    finally:
        connection.close()
    return judged(response.status, text, is_streamed=sent.is_streamed)


def judged(status: int, text: str, *, is_streamed: bool) -> Answer:
    """Return what an answer means: a stream counts when it ended as `done`."""
    if 200 <= status < 300:
        return Answer(counts=not is_streamed or "\nevent: done\n" in f"\n{text}")
    if status >= 500 or status in WORTH_REPEATING:
        return Answer()
    return Answer(refusal=f"the request was refused with {status}: {text[:300]}")
