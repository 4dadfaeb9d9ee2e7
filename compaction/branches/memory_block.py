"""The owner's memories as a request sends them: the newest lines that a profile's budget holds."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from django.db.models import Window
from django.db.models.aggregates import Count

from chatapp.context.assembly import text_tokens
from chatapp.llm.registry import ModelConfig
from chatapp.models import Session
from compaction.engine.memories import FRAME, block_of, bot_of, newest_that_fit
from compaction.engine.parameters import Profile
from compaction.models import Memory

# Of the block's digest, in the mark that tells requests with other memories apart.
DIGEST_CHARS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBlock:
    """The text that is sent, its tokens, and how many lines the budget left out."""

    text: str = ""
    tokens: int = 0
    lines: int = 0
    left_out: int = 0

    @property
    def mark(self) -> str:
        """What tells requests with these lines from others; nothing where none is sent."""
        digest = hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()
        return f"-m{digest[:DIGEST_CHARS]}" if self.text else ""


NO_MEMORIES = MemoryBlock()


def memory_block(session: Session, profile: Profile, model: ModelConfig) -> MemoryBlock:
    """Return the block of a session's owner and bot: no query without a budget, one with it.

    Lines that do not fit are left out, the oldest first. The same lines give the same text every
    time, so that a server's prompt cache holds.
    """
    budget = profile.memory_budget_tokens
    if budget <= 0:
        return NO_MEMORIES
    bots = {"", bot_of(session.metadata)}
    rows = Memory.objects.in_force(session.owner_id, bots).annotate(lines=Window(Count("pk")))
    # A line has a token at least; so many are read at most, the others only counted.
    found = list(rows.values_list("text", "tokens", "lines")[:budget])
    if not found:
        return NO_MEMORIES
    sizes = [tokens for _, tokens, _ in found]
    frame = text_tokens(model, FRAME)
    sent = newest_that_fit(sizes, frame=frame, budget=budget)
    return MemoryBlock(
        text=block_of([text for text, _, _ in found[:sent]][::-1]),
        tokens=frame + sum(sizes[:sent]) if sent else 0,
        lines=sent,
        left_out=found[0][2] - sent,
    )
