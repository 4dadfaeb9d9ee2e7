"""Summaries of long conversations, several times as fast: about as long, and of less.

What a comparison is about is when a profile compacts, and how much it sends then. For that a
summary has to have the size that it would have; of what was said long ago it may say less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from compaction.engine.extractive.headings import SummarySection, section_of_title
from compaction.engine.extractive.summarizer import ExtractiveSummarizer
from compaction.engine.types import Item, SummaryAnswer, SummaryRequest

# Of a text so many characters are read, at its head and at its end; of a tool's output fewer.
HEAD, END = 900, 300
OUTPUT_HEAD, OUTPUT_END = 400, 200


class QuickSummarizer(ExtractiveSummarizer):
    """Chooses from what is new alone, and puts it behind the summary before.

    Where that grows too long, lines of the summary before are left out, evenly from all of its
    length: what was said first fades, as it does where each summary is made of the one before.
    """

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        """Return chosen sentences; no clause is kept for the next pass."""
        items = tuple(map(_shortened, request.items))
        request = replace(request, items=items, units=())
        continues = items and request.previous and not request.texts
        answer = self._continued(request) if continues else super().summarize(request)
        return replace(answer, units=())

    def _continued(self, request: SummaryRequest) -> SummaryAnswer:
        sizes = [self._size_of(item) for item in request.items]
        carried = self._count(request.previous)
        self._check_window(request, sizes, carried)
        answer = super().summarize(replace(request, previous=""))
        budget = self._budget(request, new=sum(sizes), carried=carried)
        text = joined_lines(request.previous, answer.text, budget, self._count)
        return replace(
            answer,
            text=text,
            input_tokens=sum(sizes) + carried,
            output_tokens=self._count(text),
        )

    def _size_of(self, item: Item) -> int:
        """Return what was counted when the message was stored."""
        return item.read_tokens


def joined_lines(previous: str, new: str, budget: int, count: Callable[[str], int]) -> str:
    """Return both texts under common headings, in at most `budget` tokens.

    Lines of `previous` are left out for it, evenly from all of its length, and then the last lines
    of `new`. How things stood is said by `new` alone, where it says so.
    """
    known, added = list(_lines_of(previous)), list(_lines_of(new))
    if any(_is_state(heading) for heading, _ in added):
        known = [one for one in known if not _is_state(one[0])]
    fresh = set(added)
    known = [one for one in known if one not in fresh]
    while True:
        text = _under_headings([*known, *added])
        excess = count(text) - budget
        if excess <= 0 or not (known or added):
            return text
        if not known:
            added.pop()
            continue
        mean = sum(count(f"{line}\n") for _, line in known) / len(known)
        dropped = min(len(known), math.ceil(excess / max(1.0, mean)))
        places = {(2 * place + 1) * len(known) // (2 * dropped) for place in range(dropped)}
        known = [one for place, one in enumerate(known) if place not in places]


def _lines_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield each line of a summary with the heading that it stands under."""
    heading = ""
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line
        elif line.strip():
            yield heading, line


def _under_headings(lines: list[tuple[str, str]]) -> str:
    sections: dict[str, list[str]] = {}
    for heading, line in lines:
        sections.setdefault(heading, []).append(line)
    parts = ["\n".join(filter(None, [heading, *found])) for heading, found in sections.items()]
    return "\n\n".join(parts)


def _is_state(heading: str) -> bool:
    return section_of_title(heading) is SummarySection.STATE


def _shortened(item: Item) -> Item:
    head, end = (OUTPUT_HEAD, OUTPUT_END) if item.role == "tool" else (HEAD, END)
    if len(item.text) <= head + end:
        return item
    return replace(item, text=f"{item.text[:head]}\n{item.text[-end:]}")
