"""The ledger: what the writers sent, in which order, and what of it was acknowledged."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.facts import draw_fact

# Every text begins with a mark of its own; the model server's answers name the question's. Behind
# it stands a fact of any shape in parentheses: with a mark alone, all texts would look alike.
MARK = re.compile(r"MK-[0-9]{3}-[0-9]{5}")
MARK_WITH_FACT = re.compile(rf"{MARK.pattern}(?: \([^()]*\))?")
ANSWER = "Answer to "
SPEAKER = {"system": "user"}
WORDS = str.split(
    "ledger branch window summary tail cursor lease queue worker batch report table index number "
    "river mountain kitchen garden letter station winter summer answer question paper copper"
)


@dataclass(kw_only=True)
class Sent:
    """One request of a writer: its messages under one Idempotency-Key, repeated until it counts."""

    key: str
    messages: list[dict[str, Any]]
    is_turn: bool = False
    is_streamed: bool = False
    is_acknowledged: bool = False
    attempts: int = 0

    @property
    def marks(self) -> list[str]:
        """What must be stored, in order: the messages' marks and, of a turn, its answer's."""
        marks = [mark_of(text_of(message)) for message in self.messages]
        return [*marks, ANSWER + marks[-1]] if self.is_turn else marks


@dataclass(kw_only=True)
class Book:
    """One session's page of the ledger. Only the last entry may be unacknowledged."""

    number: int
    session_id: str
    token: str
    sent: list[Sent] = field(default_factory=list)
    is_taken: bool = False
    is_refused: bool = False
    not_before: float = 0.0
    count: int = 0

    @property
    def open(self) -> Sent | None:
        """The request that still waits to be acknowledged."""
        return self.sent[-1] if self.sent and not self.sent[-1].is_acknowledged else None

    def write(self, chance: Random) -> Sent:
        """Enter the next request and return it."""
        kind = chance.choices(("one", "some", "tools", "turn"), (45, 15, 8, 32))[0]
        roles = {"one": ["user"], "turn": ["user"], "some": ["user", "assistant"] * 2}.get(kind)
        if kind == "one" and chance.random() < 0.4:
            roles = ["assistant"]
        messages = _tool_use(self, chance) if roles is None else _texts(self, roles, chance)
        if not self.sent and self.number % 3 == 0:
            # A rule of the conversation: never summarised.
            messages = [*_texts(self, ["system"], chance), *messages]
        sent = Sent(
            key=f"chaos-{self.number}-{len(self.sent)}",
            messages=messages,
            is_turn=kind == "turn",
            is_streamed=kind == "turn" and chance.random() < 0.5,
        )
        self.sent.append(sent)
        return sent

    def next_text(self, chance: Random, *, speaker: str = "user") -> str:
        """Return a text that no other message has, with a fact in the words of who speaks."""
        self.count += 1
        words = " ".join(chance.choices(WORDS, k=chance.randint(25, 60)))
        fact = draw_fact(chance, speaker=speaker).sentence
        return f"MK-{self.number:03d}-{self.count:05d} ({fact}) {words}."


class Ledger:
    """All books. A book is taken by one writer at a time, so that its order is defined."""

    def __init__(self, books: Sequence[Book]) -> None:
        self.books = list(books)
        self.refusals: list[str] = []
        self._lock = threading.Lock()

    def take(self, chance: Random, *, only_open: bool) -> Book | None:
        """Return a free book, or None; with `only_open` one that has something to repeat."""
        now = time.monotonic()
        with self._lock:
            free = [
                book
                for book in self.books
                if not (book.is_taken or book.is_refused or book.not_before > now)
                and (book.open is not None or not only_open)
            ]
            if not free:
                return None
            book = chance.choice(free)
            book.is_taken = True
            return book

    def give_back(self, book: Book, *, seconds: float = 0.0) -> None:
        """Let others have the book, after a while where something has to be repeated."""
        with self._lock:
            book.is_taken = False
            book.not_before = time.monotonic() + seconds

    def refuse(self, book: Book, sentence: str) -> None:
        """Note that a request was refused for good: nothing else is sent to that session."""
        with self._lock:
            book.is_refused = True
            self.refusals.append(sentence)

    def waiting(self) -> list[Book]:
        """Return the books with something unacknowledged."""
        return [book for book in self.books if book.open is not None and not book.is_refused]

    def acknowledged(self) -> Iterator[Sent]:
        """Yield every request that counts."""
        for book in self.books:
            yield from (sent for sent in list(book.sent) if sent.is_acknowledged)


def text_of(message: dict[str, Any]) -> str:
    """Return a message's text."""
    return message.get("content") or ""


def mark_of(text: str) -> str:
    """Return the mark that a text begins with; an answer's has ANSWER before it; else ""."""
    is_answer = text.startswith(ANSWER)
    found = MARK.match(text, len(ANSWER) if is_answer else 0)
    return (ANSWER if is_answer else "") + found.group() if found else ""


def _texts(book: Book, roles: Sequence[str], chance: Random) -> list[dict[str, Any]]:
    return [
        {"role": role, "content": book.next_text(chance, speaker=SPEAKER.get(role, role))}
        for role in roles
    ]


def _tool_use(book: Book, chance: Random) -> list[dict[str, Any]]:
    """Return a question, two calls in one message, their results, and what came of it."""
    ids = [f"call-{book.number}-{book.count}-{number}" for number in range(2)]
    calls = [
        {"id": one, "type": "function", "function": {"name": "look", "arguments": "{}"}}
        for one in ids
    ]
    question, asking, *rest = _texts(book, ["user", "assistant", "tool", "tool"], chance)
    results = [result | {"tool_call_id": one} for result, one in zip(rest, ids, strict=True)]
    end = _texts(book, ["assistant"], chance)
    return [question, asking | {"tool_calls": calls}, *results, *end]
