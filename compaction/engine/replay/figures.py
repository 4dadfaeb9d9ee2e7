"""What comes of a replay: the figures of one profile, over one conversation or over several."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

from compaction.engine.replay.running import ReplaySpent
from compaction.engine.replay.survival import Survival, joined_survival

# Points of a curve that are kept; of more turns each point stands for several.
MOST_POINTS = 120
# Sentences about failures that are kept.
MOST_SENTENCES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPoint:
    """A compaction: after so many messages, up to which one, and why; `mode` as a run has it."""

    messages: int
    covered: int
    reason: str
    mode: str


@dataclass(slots=True, kw_only=True)
class ReplayFigures:
    """What one profile made of conversations.

    `sent` are the tokens of each request in order, as the model counts them. `worst_use` is the
    largest part of the window that one took, `too_large` how many did not fit into it. `waited`
    are the seconds of calls that requests waited for. `problems` are sentences.
    """

    profile: str
    sent: array[int] = field(default_factory=partial(array, "q"))
    compactions: list[CompactionPoint] = field(default_factory=list)
    spent: ReplaySpent = field(default_factory=ReplaySpent)
    summarised: int = 0
    failures: int = 0
    worst_use: float = 0.0
    too_large: int = 0
    waited: float = 0.0
    waits: int = 0
    sending_cost: float = 0.0
    survival: Mapping[str, Survival] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def note(self, sentence: str) -> None:
        """Keep a sentence, each once and not too many."""
        if sentence not in self.problems and len(self.problems) < MOST_SENTENCES:
            self.problems.append(sentence)

    @property
    def sent_tokens(self) -> int:
        """The tokens of all requests."""
        return sum(self.sent)

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain values, the curve in at most MOST_POINTS points."""
        return {
            "profile": self.profile,
            "turns": len(self.sent),
            "compactions": len(self.compactions),
            "inline": sum(point.mode == "inline" for point in self.compactions),
            "failures": self.failures,
            "calls": self.spent.calls,
            "tokens_sent": self.sent_tokens,
            "largest_request": max(self.sent, default=0),
            "sent_per_turn": curve_of(self.sent),
            "tokens_summarised": self.summarised,
            "tokens_read": self.spent.read,
            "tokens_written": self.spent.written,
            "summarising_cost": round(self.spent.cost, 6),
            "sending_cost": round(self.sending_cost, 6),
            "worst_use": round(self.worst_use, 4),
            "too_large": self.too_large,
            "seconds_waited": round(self.waited, 3),
            "waits": self.waits,
            "survival": {
                kind: {"named": one.named, "held": one.held, "share": _rounded(one.share)}
                for kind, one in self.survival.items()
            },
            "points": [
                {
                    "messages": point.messages,
                    "covered": point.covered,
                    "reason": point.reason,
                    "mode": point.mode,
                }
                for point in self.compactions[:MOST_POINTS]
            ],
            "problems": list(self.problems),
        }


def total_of(profile: str, parts: Sequence[ReplayFigures]) -> ReplayFigures:
    """Return the sums over several conversations, one behind the other."""
    total = ReplayFigures(profile=profile)
    for part in parts:
        total.sent += part.sent
        total.compactions += part.compactions
        total.spent.add(part.spent)
        total.summarised += part.summarised
        total.failures += part.failures
        total.worst_use = max(total.worst_use, part.worst_use)
        total.too_large += part.too_large
        total.waited += part.waited
        total.waits += part.waits
        total.sending_cost += part.sending_cost
        for sentence in part.problems:
            total.note(sentence)
    total.survival = joined_survival(part.survival for part in parts)
    return total


def curve_of(values: Sequence[int]) -> list[int]:
    """Return at most MOST_POINTS values: the largest of each stretch, so that no peak is lost."""
    count = min(len(values), MOST_POINTS)
    bounds = [len(values) * number // count for number in range(count + 1)] if count else [0]
    return [max(values[start:end]) for start, end in pairwise(bounds)]


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)
