"""What comes of a replay: the figures of one profile, over one conversation or over several."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from compaction.engine.replay.running import ReplaySpent
from compaction.engine.replay.survival import Survival, joined_survival

# Points of a curve that are kept, an even number; of more requests each point stands for several.
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


class SentCurve:
    """The tokens of requests in order: their number, their sum, and the largest of each stretch.

    Each of `points` stands for `width` requests, the last one for those that have come. Where there
    are MOST_POINTS, two become one: so no peak is lost, and the curve of any number of requests
    takes the same memory.
    """

    def __init__(self) -> None:
        self.count = self.total = 0
        self.width = 1
        self.points = array("q")

    def add(self, tokens: int) -> None:
        """Put one request behind the others."""
        if self.count == self.width * MOST_POINTS:
            self.points = array("q", map(max, self.points[::2], self.points[1::2]))
            self.width *= 2
        if self.count % self.width:
            self.points[-1] = max(self.points[-1], tokens)
        else:
            self.points.append(tokens)
        self.count += 1
        self.total += tokens

    @property
    def largest(self) -> int:
        """The tokens of the largest request; 0 where there is none."""
        return max(self.points, default=0)


@dataclass(slots=True, kw_only=True)
class ReplayFigures:
    """What one profile made of conversations, one behind the other.

    `sent` are the tokens of each request, as the model counts them. Of `compactions` those before
    a request are `inline`, and the first MOST_POINTS are `points`. `worst_use` is the largest part
    of the window that a request took, `too_large` how many did not fit into it. `waited` are the
    seconds of calls that requests waited for. `problems` are sentences.
    """

    profile: str
    sent: SentCurve = field(default_factory=SentCurve)
    compactions: int = 0
    inline: int = 0
    points: list[CompactionPoint] = field(default_factory=list)
    spent: ReplaySpent = field(default_factory=ReplaySpent)
    summarised: int = 0
    failures: int = 0
    worst_use: float = 0.0
    too_large: int = 0
    waited: float = 0.0
    waits: int = 0
    sending_cost: float = 0.0
    survival: Mapping[str, Survival] = field(default_factory=partial(joined_survival, ()))
    problems: list[str] = field(default_factory=list)

    def note(self, sentence: str) -> None:
        """Keep a sentence, each once and not too many."""
        if sentence not in self.problems and len(self.problems) < MOST_SENTENCES:
            self.problems.append(sentence)

    def compacted(self, point: CompactionPoint) -> None:
        """Count a compaction."""
        self.compactions += 1
        self.inline += point.mode == "inline"
        if len(self.points) < MOST_POINTS:
            self.points.append(point)

    def survived(self, survival: Mapping[str, Survival]) -> None:
        """Add what survives of one conversation to what does of those before it."""
        self.survival = joined_survival([self.survival, survival])

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain values, the curve in at most MOST_POINTS points."""
        return {
            "profile": self.profile,
            "turns": self.sent.count,
            "compactions": self.compactions,
            "inline": self.inline,
            "failures": self.failures,
            "calls": self.spent.calls,
            "tokens_sent": self.sent.total,
            "largest_request": self.sent.largest,
            "sent_per_turn": list(self.sent.points),
            "turns_per_point": self.sent.width,
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
            "points": [asdict(point) for point in self.points],
            "problems": list(self.problems),
        }


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)
