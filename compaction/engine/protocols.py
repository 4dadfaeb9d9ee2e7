"""What the engine asks of its surroundings; all three are passed in, never imported."""

from __future__ import annotations

from typing import Protocol

from compaction.engine.types import SummaryAnswer, SummaryRequest


class SummarizerOverflow(Exception):  # noqa: N818 - it is an outcome, not a fault
    """The summariser refused the request as larger than its window: halve it and go on."""


class SummarizerError(Exception):
    """The summariser could not answer for another reason; halving would not help."""


class Summarizer(Protocol):
    """Answers one request, or raises SummarizerOverflow or SummarizerError."""

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        """Return the answer to one request, unjudged."""
        ...

    def input_limit(self, target_tokens: int) -> int | None:
        """Tokens of transcript that one call can take, or None when nobody knows."""
        ...


class TokenCounter(Protocol):
    """Counts the tokens of a text."""

    def count(self, text: str) -> int:
        """Return 0 for the empty text and at least 1 for any other."""
        ...


class Clock(Protocol):
    """Monotonic seconds."""

    def __call__(self) -> float:
        """Return the seconds since some moment that never changes."""
        ...
