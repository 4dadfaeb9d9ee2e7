"""What two texts differ in, word by word, within a bounded time.

Lines are compared first, then sentences, and only what differs there word by word; a stretch that
is too long for that is told as a whole. So two long texts take well under a second, whatever is in
them.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import Match, SequenceMatcher

# Scripts without spaces between words: compared letter by letter.
_LETTERS = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORDS = re.compile(rf"[{_LETTERS}]\s*|(?:(?![{_LETTERS}])\w)+\s*|[^\w\s]\s*|\s+")
_SENTENCES = re.compile(r"[^.!?。！？]*[.!?。！？]+\s*|[^.!?。！？]+")
# Pairs of equal pieces that a comparison may look at; so many take about half a second.
MOST_STEPS = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A stretch of both texts: equal, or what the older one had and the newer one has instead."""

    old: str
    new: str
    is_equal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """All stretches in order; `is_coarse`: some were too long to be compared word by word."""

    changes: tuple[Change, ...]
    is_coarse: bool = False


def differences_of(old: str, new: str) -> Differences:
    """Return what two texts differ in; joined, the stretches give both texts back."""
    compared = _Comparison()
    compared.descend(old, new, level=0)
    return Differences(changes=tuple(_joined(compared.changes)), is_coarse=compared.is_coarse)


def lines_of(text: str) -> list[str]:
    """Return the lines with their ends."""
    return text.splitlines(keepends=True)


def sentences_of(text: str) -> list[str]:
    """Return the sentences with the spaces behind them."""
    return _SENTENCES.findall(text)


def words_of(text: str) -> list[str]:
    """Return words with the spaces behind them; Chinese and Japanese letter by letter."""
    return _WORDS.findall(text)


_LEVELS = (lines_of, sentences_of, words_of)


class _Comparison:
    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.is_coarse = False
        self._steps_left: float = MOST_STEPS

    def descend(self, old: str, new: str, *, level: int) -> None:
        """Compare two stretches piece by piece, and what differs by smaller pieces."""
        if old == new:
            self._add(old, new, is_equal=True)
        elif not old or not new or level == len(_LEVELS):
            self._add(old, new, is_equal=False)
        else:
            self._compare(_LEVELS[level](old), _LEVELS[level](new), level)

    def _compare(self, old: Sequence[str], new: Sequence[str], level: int) -> None:
        at_old = at_new = 0
        for block in [*self._blocks(old, new), Match(len(old), len(new), 0)]:
            before, after = "".join(old[at_old : block.a]), "".join(new[at_new : block.b])
            self.descend(before, after, level=level + 1)
            at_old, at_new = block.a + block.size, block.b + block.size
            same = "".join(old[block.a : at_old])
            self._add(same, same, is_equal=True)

    def _blocks(self, old: Sequence[str], new: Sequence[str]) -> list[Match]:
        """Return the stretches that are equal, in order, as far as the budget goes.

        Every search costs the pieces it looks at times how often each stands in the other text, so
        that is what it is charged. The large stretches come first; what is not searched any more
        counts as different.
        """
        matcher = SequenceMatcher(None, old, new, autojunk=False)
        each = 1 + _pairs(old, new) / max(1, len(old))
        todo, found = deque([(0, len(old), 0, len(new))]), []
        while todo:
            old_from, old_to, new_from, new_to = todo.popleft()
            if old_from == old_to or new_from == new_to:
                continue
            cost = (old_to - old_from) * each
            if cost > self._steps_left:
                self.is_coarse = True
                continue
            self._steps_left -= cost
            block = matcher.find_longest_match(old_from, old_to, new_from, new_to)
            if block.size:
                found.append(block)
                todo.append((old_from, block.a, new_from, block.b))
                todo.append((block.a + block.size, old_to, block.b + block.size, new_to))
        return sorted(found)

    def _add(self, old: str, new: str, *, is_equal: bool) -> None:
        if old or new:
            self.changes.append(Change(old=old, new=new, is_equal=is_equal))


def _pairs(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many equal pairs there are."""
    counted = Counter(new)
    return sum(counted[piece] for piece in old)


def _joined(changes: Sequence[Change]) -> list[Change]:
    """Return neighbours of one kind as one."""
    joined: list[Change] = []
    for change in changes:
        if joined and joined[-1].is_equal == change.is_equal:
            last = joined.pop()
            change = Change(
                old=last.old + change.old, new=last.new + change.new, is_equal=last.is_equal
            )
        joined.append(change)
    return joined
