"""What an older statement said in the place where a correction has something else.

The value is marked ("not Monday", "from Redis to Memcached"), or stands where both statements are
about the same. A word in common is not enough: what is replaced is gone from every later summary.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.sentences import shorten
from compaction.engine.extractive.terms import words_of
from compaction.engine.fidelity.entities import Entity, find_entities
from compaction.engine.provenance import Unit

MOST_POINTING_WORDS = 2
"""A correction with more words than a value has a subject of its own."""
MOST_VALUE_WORDS = 2
"""Of a value that is no entity, such as "green"."""
MOST_VALUE_CHARACTERS = 12
"""Of a value in a script without spaces."""
MOST_NEW_WORDS = 3
MOST_BEFORE_TAKEN_BACK = 40
"""Characters, in which what takes a value back stands before it."""
MAX_REPLACED_CHARACTERS = 60

_STRONG = lazy_pattern(
    r"^(?:\w+[,.!]? ){0,2}(?:sorry|actually|correction|wait|scratch|forget|make (?:that|it)|"
    r"on second thought|change of plan|i (?:meant|misspoke)|no[,:]|entschuldig|vergiss|perdón|"
    r"olvida|pardon|désolé|oublie|извини|прости|забудь|其实|更正|说错|不对|忘掉|抱歉|对不起|訂正|忘れて|정정|미안)",
    re.I,
)
"""What says that a statement changes an older one, even where no entity shows the value."""
_POINTING = lazy_pattern(r"\b(?:make (?:that|it)|i meant)\b", re.I)
_MOVED = (
    r"(?:moved|changed|switched|renamed|migrated|rescheduled|postponed|replaced|bumped|went|"
    r"corrected)"
)
_TAKEN_BACK = lazy_pattern(
    r"(?:\b(?:not|no longer(?: \w+){0,3}?|instead of|rather than|statt|вместо|"
    r"en (?:lugar|vez) de|au lieu de|"
    rf"{_MOVED}(?: [\w'’]+){{0,4}}? from|(?:move|change|switch|migrate) from)"
    r"(?: the| in| on| at)?|不是|而非) ?\Z",
    re.I,
)
"""What stands before a value that does not hold any longer; a bare "from" is a journey's start."""
_GONE = lazy_pattern(r"(?: is| are| was)? (?:no longer|not any ?more)\b", re.I)
"""What stands behind one."""


@dataclass(slots=True)
class Stated:
    """A unit with what it is compared by."""

    unit: Unit
    words: frozenset[str]
    entities: list[Entity]
    gone: bool = False


def points(new: Stated) -> bool:
    """Whether a statement has nothing but a value: its subject is what was said just before."""
    return len(new.words) <= MOST_POINTING_WORDS and bool(_POINTING.search(new.unit.text))


def old_value(old: Stated, new: Stated) -> tuple[str, str]:
    """Return what the older statement said, as it wrote it, and the key of that; "" without one."""
    named = find_entities(old.unit.text)
    known = {*old.unit.entities, *(one.key for one in named)}
    for one in new.entities:
        before = new.unit.text[max(0, one.start - MOST_BEFORE_TAKEN_BACK) : one.start]
        if one.key in known and (_TAKEN_BACK.search(before) or _GONE.match(new.unit.text, one.end)):
            taken = [other for other in new.entities if other.key in known]
            return _with_neighbours(one, taken, new.unit.text), one.key
    keys = {one.key for one in new.entities}
    kinds = {one.kind for one in new.entities if one.key not in known}
    # What the newer one says, too, in whatever letters, holds.
    said = new.unit.text.casefold()
    others = [one for one in named if one.key not in keys and one.text.casefold() not in said]
    same = [one for one in others if one.kind in kinds]
    if same:
        value = _with_neighbours(same[-1], others, old.unit.text)
        is_meant = points(new) or _has_subject_of(old, new, value)
        return (value, same[-1].key) if is_meant else ("", "")
    if others or not _STRONG.search(new.unit.text):
        return "", ""  # it is about something else
    return _old_words(old, new), ""


def _with_neighbours(value: Entity, among: Sequence[Entity], text: str) -> str:
    """Return a value with what belongs to it: the 8 of "MySQL 8" is none alone."""
    start, end = value.start, value.end
    for one in reversed(among):
        if one.end == start - 1 and text[one.end] == " ":
            start = one.start
    for one in among:
        if one.start == end + 1 and text[end] == " ":
            end = one.end
    return text[start:end]


def _has_subject_of(old: Stated, new: Stated, value: str) -> bool:
    """Whether more than half of what a statement is about, beside its value, is the other's, too.

    A word in common is not enough: what is replaced is gone from every later summary.
    """
    older = old.words - set(words_of(value))
    newer = new.words - {
        word
        for one in new.entities
        if one.key not in old.unit.entities
        for word in words_of(one.text)
    }
    if not older or not newer:
        return not newer  # "Sorry, 9 May" has no subject of its own
    return 2 * len(older & newer) > min(len(older), len(newer))


def _old_words(old: Stated, new: Stated) -> str:
    """Return the words that an older statement has in place of the newer one's."""
    if " " not in old.unit.text:
        return _differing(old.unit.text, new.unit.text)
    if points(new):
        return shorten(old.unit.text, MAX_REPLACED_CHARACTERS)
    said = old.words - new.words
    if len(new.words - old.words) > MOST_NEW_WORDS or not old.words & new.words:
        return ""
    words = [word.casefold().strip(".,") for word in old.unit.text.split()]
    places = [n for n, word in enumerate(words) if word in said]
    if not places or len(places) > MOST_VALUE_WORDS or places[-1] - places[0] >= len(places):
        return ""
    # What stands beside the value is said again beside the new one.
    first, behind = places[0], places[-1] + 1
    beside = words[first - 1 : first] or words[behind : behind + 1]
    if not {*beside} <= {*new.unit.text.casefold().split()}:
        return ""
    return " ".join(old.unit.text.split()[first:behind])


def _differing(old: str, new: str) -> str:
    """Return what stands in an older text without spaces where the newer one differs."""
    old, new = old.rstrip("。！."), new.rstrip("。！.")
    head = next((n for n in range(len(old), 0, -1) if old[:n] in new), 0)
    tail = next((n for n in range(len(old) - head, 0, -1) if new.endswith(old[-n:])), 0)
    value = old[head : len(old) - tail]
    return value if head and 0 < len(value) <= MOST_VALUE_CHARACTERS else ""
