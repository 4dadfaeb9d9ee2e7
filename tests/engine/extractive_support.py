"""What the tests of the extractive summariser share."""

from __future__ import annotations

import random
from collections.abc import Sequence

from compaction.engine.extractive.material import gather_units
from compaction.engine.extractive.summarizer import ExtractiveSummarizer
from compaction.engine.provenance import Unit
from compaction.engine.types import Item, SummaryAnswer, SummaryRequest

CHATTER = "The weather was rather pleasant over the old harbour and everybody walked slowly home. "

THINGS = [
    "locker",
    "parcel",
    "ticket",
    "ledger",
    "engine",
    "bottle",
    "garden",
    "bridge",
    "lamp",
    "wagon",
    "kettle",
    "ladder",
    "mirror",
    "barrel",
    "anchor",
    "basket",
    "candle",
    "hammer",
    "pillow",
    "saddle",
    "shovel",
    "teapot",
    "violin",
    "window",
]
"""Twenty-four subjects, one a planted fact."""

# A stands for a capital, a for a small letter, 0 for a digit; no two of them look alike.
CODE_FORMS = (
    "AA-0000",
    "A0A-A0A-00A",
    "aa_000a",
    "000.000.00",
    "0aa00a0a",
    "#00000",
    "Aa00-aaa",
    "AA/0000/000",
    "aaa-000-aaa",
    "AAAA0000AA",
    "aaaa-aaaa_aaa",
    "00A0",
)


class QuarterCounter:
    """A token is four bytes, begun ones included; `calls` says how often somebody asked."""

    def __init__(self) -> None:
        self.calls = 0

    def count(self, text: str) -> int:
        self.calls += 1
        return max(1, -(-len(text.encode()) // 4))


def item(text: str, *, role: str = "user", position: int = 0, **more: object) -> Item:
    return Item(id=position, role=role, text=text, position=position, **more)


def talk(*texts: str | Item) -> tuple[Item, ...]:
    """Messages in order: a text is a user's, `assistant: …` its answer."""
    made = []
    for number, text in enumerate(texts, start=1):
        if isinstance(text, Item):
            made.append(text)
            continue
        role = "assistant" if text.startswith("assistant: ") else "user"
        made.append(item(text.removeprefix("assistant: "), role=role, position=number))
    return tuple(made)


def summarize(
    *items: Item, ratio: float = 0.4, window: int | None = None, **request: object
) -> SummaryAnswer:
    request.setdefault("kind", "chunk")
    summarizer = ExtractiveSummarizer(counter=QuarterCounter(), ratio=ratio, window=window)
    return summarizer.summarize(SummaryRequest(items=items, **request))


def in_passes(
    items: Sequence[Item], passes: int, *, target_tokens: int, keeps_units: bool = True
) -> list[SummaryAnswer]:
    """The answers of so many passes; each carries the one before, or without units its text."""
    answers: list[SummaryAnswer] = []
    previous, units = "", ()
    for number in range(passes):
        part = items[number * len(items) // passes : (number + 1) * len(items) // passes]
        answer = summarize(
            *part, previous=previous, units=units, target_tokens=target_tokens, ratio=0.4
        )
        previous, units = answer.text, answer.units if keeps_units else ()
        answers.append(answer)
    return answers


def units_in(*items: Item) -> list[Unit]:
    return gather_units(SummaryRequest(kind="chunk", items=items))


def section(text: str, heading: str) -> list[str]:
    """The lines under a heading."""
    _, _, after = f"\n{text}".partition(f"\n## {heading}\n")
    return after.split("\n## ")[0].splitlines() if after else []


def code_of(form: str, rng: random.Random) -> str:
    letters = {"A": "BCDFGHJKLMNPQRSTVWXZ", "a": "bcdfghjklmnpqrstvwxz", "0": "123456789"}
    return "".join(rng.choice(letters[one]) if one in letters else one for one in form)
