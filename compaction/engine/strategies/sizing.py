"""How large a model's text may become: twice what was asked for, however much it wrote.

Whoever writes more is asked once more, shorter; then the text is cut so that its newest part stays
(shortening.py), and the summary says that it was (`truncated`). Room for the answer is another
matter: thoughts take of it, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from compaction.engine.fidelity.gate import TOO_LONG, Rejection
from compaction.engine.parameters import Profile
from compaction.engine.strategies.shortening import newest_within
from compaction.engine.types import (
    Outcome,
    Step,
    SummaryFailed,
    SummaryJob,
    SummaryRequest,
    TokenCounter,
)

MOST_TIMES_TARGET = 2
"""A text longer than so many times the size asked for is asked for once more, then cut."""


class Engine(Protocol):
    """What finishing needs of the strategy that asked for the text."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps so far."""
        ...

    def ask_again(self, missing: tuple[str, ...]) -> str:
        """Return another answer to the last call; empty where none is to be had."""
        ...

    def reject(self, code: str, sentence: str, text: str) -> None:
        """Record that a text was refused, and why."""
        ...

    def shortened(self, text: str, tokens: int) -> str:
        """Return the text, which is the last answer, cut to so many tokens."""
        ...


def longest_stored(profile: Profile) -> int:
    """Return the tokens that a stored summary has at most."""
    return MOST_TIMES_TARGET * max(1, profile.target_summary_tokens)


def merged_size(profile: Profile) -> int:
    """Return the tokens asked of a merge: never more than what may be stored."""
    return min(profile.merge_target, longest_stored(profile))


def longest_text(profile: Profile, *requests: SummaryRequest, carried: int = 0) -> int:
    """Return the tokens that the answers to some requests may have, with `carried` before them."""
    asked = sum(MOST_TIMES_TARGET * request.target_tokens for request in requests)
    return min(carried + asked, longest_stored(profile))


def too_long(limit: int) -> Rejection:
    """Return the refusal of a text of more tokens than a limit."""
    return Rejection(
        code=TOO_LONG,
        sentence=f"The summary is longer than {limit:,} tokens, which is the most that it may "
        "have: twice the size asked for.",
        missing=(f"At most {max(1, limit // MOST_TIMES_TARGET)} tokens.",),
    )


def shared_out(texts: Sequence[str], tokens: int, counter: TokenCounter) -> list[str]:
    """Return two texts cut to so many tokens together, the newest of each kept.

    The second may have half of them; what it does not need is the first one's.
    """
    first, second = texts
    half = min(tokens // 2, counter.count(second))
    older = newest_within(first, tokens - half, counter)
    return [older, newest_within(second, max(half, tokens - counter.count(older)), counter)]


def within_size(
    outcome: Outcome, engine: Engine, job: SummaryJob, *, limit: int
) -> tuple[Outcome, bool]:
    """Return an outcome whose text has at most so many tokens, and whether it was refused.

    It is asked for once more where it has more, then cut. One that is no smaller than what it was
    made of stays as it is: that is no summary, and whoever stores it refuses it.
    """
    count = job.counter.count
    if count(outcome.text) <= limit:
        return outcome, False
    refusal = too_long(limit)
    engine.reject(refusal.code, refusal.sentence, outcome.text)
    try:
        again = engine.ask_again(refusal.missing)
    except SummaryFailed:
        again = ""
    text = again if again.strip() else outcome.text
    was_cut = limit < count(text) < outcome.input_tokens
    if was_cut:
        text = engine.shortened(text, limit)
    return replace(outcome, text=text, truncated=outcome.truncated or was_cut), True
