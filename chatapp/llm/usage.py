"""Reading a server's usage report, which may hold anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# More tokens, bytes or messages than any request has: what is larger is nonsense.
LARGEST_NUMBER = 10**12


def plausible(value: Any) -> int | None:
    """Return a whole number that a server may have counted; None for every other value."""
    if isinstance(value, float) and value == value and abs(value) <= LARGEST_NUMBER:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= LARGEST_NUMBER else None


def cleaned(usage: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a usage report whose numbers can be stored and calculated with."""
    if not usage:
        return None
    return {
        name: cleaned(value)
        if isinstance(value, Mapping)
        else (plausible(value) if isinstance(value, int | float) else value)
        for name, value in usage.items()
    }


def context_tokens(usage: Mapping[str, Any] | None) -> int | None:
    """Return how many tokens the context held after an answer, or None when nothing was reported.

    Cached and reasoning tokens are parts of the prompt's and the answer's, so they are never added.
    """
    if not usage:
        return None
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if isinstance(prompt, int) and isinstance(completion, int):
        return prompt + completion or None
    total = usage.get("total_tokens")
    return total if isinstance(total, int) and total > 0 else None
