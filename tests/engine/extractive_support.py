"""What the tests of the extractive summariser share."""

from __future__ import annotations

from compaction.engine.extractive.summarizer import ExtractiveSummarizer
from compaction.engine.types import Item, SummaryRequest


class QuarterCounter:
    """A token is four bytes; `calls` says how often somebody asked."""

    def __init__(self) -> None:
        self.calls = 0

    def count(self, text: str) -> int:
        self.calls += 1
        return max(1, len(text.encode()) // 4)


def item(text: str, *, role: str = "user", position: int = 0, **more: object) -> Item:
    return Item(id=position, role=role, text=text, position=position, **more)


def summarize(*items: Item, ratio: float = 0.4, window: int | None = None, **request: object):
    request.setdefault("kind", "chunk")
    summarizer = ExtractiveSummarizer(counter=QuarterCounter(), ratio=ratio, window=window)
    return summarizer.summarize(SummaryRequest(items=items, **request))


def section(text: str, heading: str) -> list[str]:
    """The lines under a heading."""
    _, _, after = text.partition(f"## {heading}\n")
    return after.split("\n## ")[0].splitlines() if after else []


CHATTER = "The weather was rather pleasant over the old harbour and everybody walked slowly home. "
