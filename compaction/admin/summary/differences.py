"""What two texts differ in, word by word, within a bounded time.

Lines are compared first, then sentences, and only what differs there word by word; a stretch that
is too long for that is told as a whole. So two long texts take well under a second, whatever is in
them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

# Scripts without spaces between words: compared letter by letter.
_LETTERS = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORDS = re.compile(rf"[{_LETTERS}]\s*|(?:(?![{_LETTERS}])\w)+\s*|[^\w\s]\s*|\s+")
_SENTENCES = re.compile(r"[^.!?。！？]*[.!?。！？]+\s*|[^.!?。！？]+")
# Pairs of equal pieces that a comparison may look at; so many take half a second at worst.
MOST_PAIRS = 400_000


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
        self._pairs_left = MOST_PAIRS

    def descend(self, old: str, new: str, *, level: int) -> None:
        """Compare two stretches piece by piece, and what differs by smaller pieces."""
        if old == new:
            self._add(old, new, is_equal=True)
        elif not old or not new or level == len(_LEVELS):
            self._add(old, new, is_equal=False)
        else:
            self._compare(_LEVELS[level](old), _LEVELS[level](new), level)

    def _compare(self, old: Sequence[str], new: Sequence[str], level: int) -> None:
        pairs = _pairs(old, new)
        if pairs > self._pairs_left:
            if level + 1 < len(_LEVELS):
                self.descend("".join(old), "".join(new), level=level + 1)
                return
            self.is_coarse = True
            self._add("".join(old), "".join(new), is_equal=False)
            return
        self._pairs_left -= pairs
        matcher = SequenceMatcher(None, old, new, autojunk=False)
        for tag, old_from, old_to, new_from, new_to in matcher.get_opcodes():
            before, after = "".join(old[old_from:old_to]), "".join(new[new_from:new_to])
            if tag == "replace":
                self.descend(before, after, level=level + 1)
            else:
                self._add(before, after, is_equal=tag == "equal")

    def _add(self, old: str, new: str, *, is_equal: bool) -> None:
        if old or new:
            self.changes.append(Change(old=old, new=new, is_equal=is_equal))


def _pairs(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many equal pairs there are: what the comparison's time grows with."""
    counted = Counter(new)
    return len(old) + sum(counted[piece] for piece in old)


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
