"""Reading a server's usage report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
