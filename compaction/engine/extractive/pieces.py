"""Pieces of one sentence: put together where a summary has several, and found in such a line again.

A long sentence is parted so that its pieces can be chosen one by one. Where neighbours are chosen,
a reader gets them as one line; later passes choose from the pieces, as before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from compaction.engine.extractive.sentences import HAN, HANGUL, KANA, SMALLEST_SHARE, is_joined
from compaction.engine.extractive.units import longest_of
from compaction.engine.provenance import Unit, UnitKind

MAX_LINE_CHARACTERS = 400
"""Of pieces together: of a longer line, whoever reads a summary back makes several."""
_ENDS_SENTENCE = re.compile(r"[.!?。！？…][\"'”’」』）)\]*]{0,3}$")
_ENDS_CLAUSE = re.compile(r"[,;:—–，、；：]$|\s-$")
_WIDE = re.compile(f"[{HAN}{KANA}{HANGUL}]")
_SPEAKING = frozenset({"", "assistant", "system", "developer"})
"""What tools print stands in lines, and what is quoted as it was quoted."""
_CUT = re.compile(r"\S\.\.\.\S")
"""Where the middle of a message was left out (abridged.DOTS): it is stored otherwise than read."""
_KEY_CHARACTERS = 12


def continues(one: Unit, other: Unit) -> bool:
    """Whether a unit is what stands behind another one in the same sentence."""
    if one.message is None or other.message != one.message or one.speaker not in _SPEAKING:
        return False
    gap = other.start - one.end
    if gap not in (0, 1) or other.kind is not one.kind or one.kind is UnitKind.ACTION:
        return False
    if one.note or other.note or other.speaker != one.speaker or _ENDS_SENTENCE.search(one.text):
        return False
    if _CUT.search(one.text) or _CUT.search(other.text):
        # The next pass has both from where they are stored, and knows no neighbours there.
        return False
    longest = longest_of(one.kind)
    is_wide = 2 * len(_WIDE.findall(one.text)) > len(one.text)
    longest = longest // 2 if is_wide else longest
    # What is shorter was not parted: it is a line of its own, such as one rule of several.
    if len(one.text) < longest * SMALLEST_SHARE:
        return False
    if not gap or _ENDS_CLAUSE.search(one.text) or is_joined(other.text):
        return True
    return len(one.text) + 1 + len(other.text.split(" ", 1)[0]) > longest


def is_parted(one: Unit, other: Unit) -> bool:
    """Whether neither of two pieces of a sentence can stand without the other."""
    is_open = one.message == other.message and one.text[-1:].isalnum()
    return is_open and continues(one, other) and not is_joined(other.text)


def put_together(units: Iterable[Unit]) -> list[Unit]:
    """Return units with neighbouring pieces of a sentence as one; their text stands as written."""
    found: list[Unit] = []
    last: Unit | None = None
    for unit in units:
        longer = _joined(found[-1], unit) if last and continues(last, unit) else None
        if longer is not None and len(longer.text) <= MAX_LINE_CHARACTERS:
            found[-1] = longer
        else:
            found.append(unit)
        last = unit
    return found


def _joined(one: Unit, other: Unit) -> Unit:
    text = f"{one.text}{' ' * (other.start - one.end)}{other.text}"
    named = tuple(dict.fromkeys((*one.entities, *other.entities)))
    return one._replace(text=text, end=other.end, entities=named)


class Pieces:
    """Finds the units that a line was put together from."""

    def __init__(self, units: Iterable[Unit]) -> None:
        self._starting: dict[str, list[Unit]] = {}
        self._behind: dict[object, Unit] = {}
        for unit in units:
            if unit.message is not None and unit.speaker in _SPEAKING:
                self._starting.setdefault(unit.text[:_KEY_CHARACTERS], []).append(unit)
                self._behind[unit.message, unit.start] = unit

    def of(self, text: str) -> Sequence[Unit]:
        """Return the pieces of a line in order; nothing where it is no such line."""
        for first in self._starting.get(text[:_KEY_CHARACTERS], ()):
            if text.startswith(first.text) and (found := self._from(first, text)):
                return found
        return ()

    def _from(self, first: Unit, text: str) -> list[Unit]:
        found, whole = [first], first
        while len(whole.text) < len(text):
            places = ((first.message, whole.end + gap) for gap in (0, 1))
            nearest = next((self._behind[one] for one in places if one in self._behind), None)
            if nearest is None or not continues(found[-1], nearest):
                return []
            whole = _joined(whole, nearest)
            found.append(nearest)
        return found if whole.text == text else []
