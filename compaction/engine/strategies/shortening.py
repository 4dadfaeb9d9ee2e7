"""A text that is too long, cut so that its newest part stays.

Summaries tell things in their order, under headings or without: what came in last stands last, and
whoever goes on from a summary needs that most. So every heading stays with the end of what stands
under it, short sections whole; a text without headings keeps its opening, which says what all is
about, and its end. Cuts are at sentences; what has none is cut at a clause or a space.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.sentences import clause_spans, sentence_spans
from compaction.engine.strategies.halving import LONGEST_TOKEN, cut_to_tokens
from compaction.engine.types import TokenCounter

OPENING_SHARE = 4
"""One part in so many of a text without headings is its opening."""
HEADINGS_SHARE = 2
"""Headings that take more than one part in so many of the room are no headings worth their room."""
CLAUSE_CHARACTERS = 80
MOST_TRIES = 8
_HEADING = lazy_pattern(r"^[ \t]*(?:#{1,6}[ \t][^\n]*|\*\*[^*\n]{1,80}\*\*:?[ \t]*)$", 8)
_SENTENCE_ENDS = ".!?。！？\n"


class _Section(NamedTuple):
    """A heading, empty for what stands before the first one, and where its text stands."""

    heading: str
    start: int
    end: int


def newest_within(text: str, tokens: int, counter: TokenCounter) -> str:
    """Return at most so many tokens of a text: its headings, and the end of what each is about."""
    text = text.rstrip()
    if counter.count(text) <= tokens:
        return text
    sections = _sections(text)
    room, found = tokens, ""
    for _ in range(MOST_TRIES):
        # Of pieces that are counted apart, the sum is not quite what the whole has.
        found = _shortened(text, sections, room, counter)
        excess = counter.count(found) - tokens
        if excess <= 0:
            break
        room -= excess
    # What has no place to cut it at is cut anywhere.
    return cut_to_tokens(found or text, tokens, counter).rstrip()


def _sections(text: str) -> list[_Section]:
    sections: list[_Section] = []
    heading, start = "", 0
    for match in _HEADING.finditer(text):
        sections.append(_Section(heading, start, match.start()))
        heading, start = match[0].strip(), match.end()
    sections.append(_Section(heading, start, len(text)))
    return [one for one in sections if one.heading or text[one.start : one.end].strip()]


def _shortened(text: str, sections: Sequence[_Section], tokens: int, counter: TokenCounter) -> str:
    headings = sum(counter.count(f"{one.heading}\n\n") for one in sections if one.heading)
    if headings == 0 or headings * HEADINGS_SHARE > tokens:
        return _opening_and_end(text, tokens, counter)
    bodies = [text[one.start : one.end].strip() for one in sections]
    shares = _shares([counter.count(body) for body in bodies], tokens - headings)
    kept = [_end_of(body, share, counter) for body, share in zip(bodies, shares, strict=True)]
    pairs = zip(sections, kept, strict=True)
    return "\n\n".join(filter(None, (f"{one.heading}\n{body}".strip() for one, body in pairs)))


def _shares(sizes: Sequence[int], tokens: int) -> list[int]:
    """Return what each of several texts may have: small ones all, the others equally much."""
    shares = [0] * len(sizes)
    for left, index in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
        shares[index] = min(sizes[index], max(0, tokens) // (len(sizes) - left))
        tokens -= shares[index]
    return shares


def _opening_and_end(text: str, tokens: int, counter: TokenCounter) -> str:
    head = cut_to_tokens(text, tokens // OPENING_SHARE, counter)
    opening = head[: max(head.rfind(mark) for mark in _SENTENCE_ENDS) + 1].rstrip()
    end = _end_of(text[len(opening) :], tokens - counter.count(opening), counter)
    is_one_line = "\n" not in text[len(opening) : len(text) - len(end)]
    return f"{opening}{' ' if is_one_line else chr(10)}{end}".strip()


def _end_of(text: str, tokens: int, counter: TokenCounter) -> str:
    """Return the last sentences of a text that have room; of a longer one, its last clauses."""
    if counter.count(text) <= tokens:
        return text.strip()
    # Of more characters, no end has room.
    first = max(0, len(text) - tokens * LONGEST_TOKEN)
    spans = list(sentence_spans(text[first:]))
    pieces = [
        piece
        for start, end in spans
        for piece in clause_spans(text[first:], start, end, longest=CLAUSE_CHARACTERS)
    ]

    def has_room(start: int) -> bool:
        return counter.count(text[first + start :].strip()) <= tokens

    for starts in ([span[0] for span in spans], [piece[0] for piece in pieces]):
        fits = bisect_left(starts, True, key=has_room)
        if fits < len(starts):
            return text[first + _with_marker(text, first, starts[fits]) :].strip()
    return ""


def _with_marker(text: str, first: int, start: int) -> int:
    """Return where a line starts that has nothing but its list marker before its sentence."""
    line = text.rfind("\n", 0, first + start) + 1
    marker = text[line : first + start].strip()
    return line - first if len(marker) <= 3 and not marker.isalpha() else start
