"""Summarisers for the engine's tests: they refuse by number, by size, or answer by a script."""

from __future__ import annotations

from dataclasses import dataclass, field

from compaction.engine.types import (
    Item,
    SummarizerOverflow,
    SummaryAnswer,
    SummaryRequest,
    ToolCall,
)


class WordCounter:
    """One token a word, so that a test can count along."""

    def count(self, text: str) -> int:
        return len(text.split())


def size_of(request: SummaryRequest) -> int:
    """Messages of a request; a merge has two."""
    return len(request.items) or len(request.texts)


@dataclass
class Refusing:
    """Refuses more than `most` messages, as the worked vectors have it; keeps every request."""

    most: int = 10_000
    answer: str = "s"
    requests: list[SummaryRequest] = field(default_factory=list)

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        self.requests.append(request)
        if size_of(request) > self.most:
            raise SummarizerOverflow("context_length_exceeded")
        return SummaryAnswer(text=self.answer)

    def input_limit(self, target_tokens: int) -> int | None:
        return None

    @property
    def sizes(self) -> list[int]:
        return [size_of(request) for request in self.requests]


@dataclass
class Sized(Refusing):
    """Refuses more than `limit` tokens of messages and previous summary; takes every merge."""

    limit: int = 100

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        self.requests.append(request)
        tokens = sum(item.tokens for item in request.items) + len(request.previous.split())
        if tokens > self.limit:
            raise SummarizerOverflow("context_length_exceeded")
        return SummaryAnswer(text=self.answer)

    def input_limit(self, target_tokens: int) -> int | None:
        return self.limit


@dataclass
class Scripted(Refusing):
    """Plays answers and errors one after the other; the last one again and again."""

    script: list[SummaryAnswer | Exception] = field(default_factory=list)

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        self.requests.append(request)
        act = self.script[min(len(self.requests), len(self.script)) - 1]
        if isinstance(act, Exception):
            raise act
        return act


def plain(count: int, *, tokens: int = 10) -> list[Item]:
    """Return user messages with ids and positions 1, 2, …"""
    return [
        Item(id=n, role="user", text=f"message {n}", position=n, tokens=tokens)
        for n in range(1, count + 1)
    ]


def shaped(shape: str) -> list[Item]:
    """Return items by letters: u user, a assistant, s system, 1-9 a message with that many calls,

    t a result of the nearest open call, o a result of no call.
    """
    items: list[Item] = []
    waiting: list[str] = []
    for n, letter in enumerate(shape, 1):
        if letter.isdigit():
            calls = tuple(ToolCall(id=f"c{n}-{k}", name="run") for k in range(int(letter)))
            waiting = [call.id for call in calls] + waiting
            items.append(Item(id=n, role="assistant", position=n, tokens=10, tool_calls=calls))
        elif letter in "to":
            call_id = waiting.pop(0) if letter == "t" and waiting else f"none-{n}"
            items.append(
                Item(id=n, role="tool", text="r", position=n, tokens=10, tool_call_id=call_id)
            )
        else:
            role = {"u": "user", "a": "assistant", "s": "system"}[letter]
            items.append(Item(id=n, role=role, text=f"m{n}", position=n, tokens=10))
    return items
