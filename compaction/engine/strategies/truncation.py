"""Texts cut to a number of tokens, when nothing better is left."""

from __future__ import annotations

from compaction.engine.types import SummaryRequest, TokenCounter

# The smallest budget of a text that is cut by force.
FORCED_MINIMUM_TOKENS = 128
LONGEST_TOKEN = 16
_SENTENCE_ENDS = ".!?。！？\n"


def forced_truncation(request: SummaryRequest, *, counter: TokenCounter, depth: int) -> str:
    """Return the head of the text, one line a message, within max(target, 128) tokens.

    The summary that came before stands first, so it is the last thing to be lost.
    """
    lines = [request.previous] if request.previous else []
    lines += [f"{item.role}: {item.text}" for item in request.items]
    lines += request.texts
    notice = f"[Shortened by force at level {depth}; the messages themselves are stored.]\n"
    budget = max(request.target_tokens, FORCED_MINIMUM_TOKENS)
    return cut_to_tokens(notice + "\n".join(lines), budget, counter)


def cut_to_tokens(text: str, tokens: int, counter: TokenCounter) -> str:
    """Return the longest head of a text within `tokens`; never splits a character."""
    if (
        counter.count(text[: tokens * LONGEST_TOKEN]) <= tokens
        and len(text) <= tokens * LONGEST_TOKEN
    ):
        return text
    low, high = 0, min(len(text), tokens * LONGEST_TOKEN)
    while low < high:
        middle = (low + high + 1) // 2
        if counter.count(text[:middle]) <= tokens:
            low = middle
        else:
            high = middle - 1
    return text[:low]


def cut_at_sentence(text: str, tokens: int, counter: TokenCounter) -> str:
    """Return the whole sentences at the start of a text that have room, or at least its head."""
    head = cut_to_tokens(text, tokens, counter)
    end = max(head.rfind(mark) for mark in _SENTENCE_ENDS)
    return head[: end + 1].rstrip() if end > len(head) // 2 else head.rstrip()
