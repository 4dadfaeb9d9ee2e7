"""Clauses that a summary may be made of: cut from messages, or read back from an older summary."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from compaction.engine.extractive.cues import classify, kind_worth
from compaction.engine.extractive.forms import (
    ANNOUNCEMENT_WORTH,
    form_worth,
    marker_length,
    outcome_worth,
    signs_in,
)
from compaction.engine.extractive.outcomes import leaf_spans, outcome_units
from compaction.engine.extractive.pleasantries import worth_of_kindness
from compaction.engine.extractive.quotations import QUOTED, is_quoted, quoted_spans, stated_rules
from compaction.engine.extractive.sentences import (
    MAX_SENTENCE_CHARACTERS,
    clause_spans,
    encodable,
    fold,
    is_json,
    sentence_spans,
)
from compaction.engine.fidelity.entities import NAME, Entity, find_entities, small_words
from compaction.engine.provenance import Unit, UnitKind
from compaction.engine.tool_actions import COMMAND, use_of
from compaction.engine.types import Item

CLAUSE_CHARACTERS = 90
"""Of a statement. Shorter pieces lose what they are about, longer ones carry what nobody asks for:
between 60 and 240 this kept most answers of two of three sets of memory questions."""
FARTHER_CHARACTERS = 22
"""A statement goes on so far to the end of its clause: half a phrase says little. Between 0 and 90,
memory questions of two sets were answered best by this, and as well as without."""
LONGEST_HEADING = 200
"""Characters, on either side of one of its sentences."""
LONGEST_RULE = 400
"""Characters: half a rule is another rule. As long as a line that is read back whole."""
ROLE_WORTH = {"user": 1.0, "assistant": 0.75, "tool": 0.45}
OTHER_ROLE_WORTH = 0.75
OPERATORS = frozenset({"assistant", "system", "developer", "other", "tool", QUOTED})
"""Speakers that are no people."""
HEAD_CHARACTERS = 160
"""The worth of a clause falls with its distance from its message's head: 1 + e^(-place/160)."""
FILE_WORTH = 0.3
"""What stands in a file that was read or written is no result; it can be read again."""
COMMAND_WORTH = 0.6
"""What came of a command has a line of its own (outcomes.py)."""
FIELD_WORTH = 0.5
"""A field of a result in JSON; those that answer stand in the action's line, too."""
NAMED_AGAIN_WORTH = 1.5
"""What a tool printed and somebody names again later was needed. Of what was said it says nothing:
there, what is repeated is what everybody knows."""
REPEATED_FORM_LIMIT = 3
"""So many lines of a tool's output, or of a message, that differ in their values only keep it."""
MAX_OUTPUT_CHARACTERS = 400_000
"""Of a tool's output, the head and the end are read: no summary needs the middle of a megabyte."""

# Read once: a member of an enumeration is found slowly, and most clauses are facts.
_FACT = UnitKind.FACT
_LONGEST = {_FACT: CLAUSE_CHARACTERS, UnitKind.RULE: LONGEST_RULE}
_DIGITS = re.compile(r"\d+")
# Conversations repeat themselves, and each pass over one meets its kept clauses again.
_worth_of_form = lru_cache(maxsize=4096)(form_worth)
_SAYS = re.compile(r"[^\W_]")
_HEADING = re.compile(r"\s{0,3}(?:#{1,6}\s+|\*\*)\S{0,4}\s?")
_HEADING_LINE = re.compile(r"#{1,6}\s[^\n]*|\*\*[^*\n]+\*\*[:：]?")
_BEHIND_TITLE = re.compile(r"\s[—–-]\s|[:：]")
_FIRST_OF_OTHER_SCRIPTS = "\u0250"
_LETTERS = re.compile(r"[^\W\d_][\w./-]*")
_SPEAKER = re.compile(r"([^\W\d_][\w.'’-]{0,20}(?: [^\W\d_][\w.'’-]{0,20})?) ?[:：] ?(?=\S)")
# What closes a string of a list in JSON, and what parts it from the next.
_BEHIND_RULE = re.compile(r"\"\s{0,80}(?:\]\s{0,80})?(?:,\s{0,80}|\}|$)")
_LABEL = re.compile(r"[^\W\d_][\w.-]{0,39}")


def entities_of(items: Sequence[Item]) -> list[list[Entity]]:
    """Return what each message names; of a tool's output, as much of it as units are made of."""
    small = small_words(item.text for item in items if item.role != "tool")
    return [find_entities(_read(item), small=small) for item in items]


def _read(item: Item) -> str:
    return item.text[:MAX_OUTPUT_CHARACTERS] if item.role == "tool" else item.text


def units_of(
    items: Sequence[Item], entities: Sequence[Sequence[Entity]] | None = None
) -> list[Unit]:
    """Return the clauses of messages in order, each with its place, its kind and its worth.

    `entities` are those of each message (`entities_of`), where somebody has found them already.
    """
    if entities is None:
        entities = entities_of(items)
    speakers = speakers_of(items)
    last_asked = max((n for n, item in enumerate(items) if item.is_question), default=-1)
    units: list[Unit] = []
    earned: dict[str, float] = {}
    for number, item in enumerate(items):
        if item.role == "tool":
            units += _units_of_output(item, entities[number], earned)
        else:
            last = number >= last_asked
            units += _units_of_message(item, entities[number], last=last, speakers=speakers)
    units += outcome_units(items)
    units.sort(key=lambda unit: (unit.position, unit.start))
    return _named_again(units, people=speakers | {"", "assistant"})


def speakers_of(items: Sequence[Item]) -> frozenset[str]:
    """Return the names that start the user's messages where several people speak there."""
    found = Counter(
        match[1] for item in items if item.is_question and (match := _SPEAKER.match(item.text))
    )
    names = {name for name, times in found.items() if times > 1}
    # On the wire a user's message may have a name of its own.
    given = {item.tool_name for item in items if item.is_question and item.tool_name}
    names |= given
    return frozenset(names) if len(names) > 1 else frozenset()


def longest_of(kind: UnitKind) -> int:
    """Return how many characters a piece of a sentence has at most, in letters of an alphabet."""
    return _LONGEST.get(kind, MAX_SENTENCE_CHARACTERS)


def people_of(units: Iterable[Unit]) -> frozenset[str]:
    """Return who asks for things or sets rules, by name: a user, whatever their name is.

    The user without a name is "", as in `Unit.speaker`.
    """
    asking = (UnitKind.RULE, UnitKind.REQUEST)
    return frozenset(unit.speaker for unit in units if unit.kind in asking) - OPERATORS | {""}


def _units_of_message(
    item: Item, entities: Sequence[Entity], *, last: bool, speakers: frozenset[str]
) -> Iterator[Unit]:
    text = item.text
    speaker, begin = _speaker_of(item, speakers)
    voice, is_assistants = item.voice, item.role == "assistant"
    starts = [entity.start for entity in entities]
    quoted, alike = quoted_spans(text), Counter[str]()
    has_headings = "#" in text or "**" in text
    base = ROLE_WORTH.get(voice, OTHER_ROLE_WORTH)
    rules = stated_rules(text) if item.is_question else []
    if rules:
        quoted = _without(quoted, rules)
    is_storable, has_digits = text.isascii(), bool(_DIGITS.search(text))
    sentences = sentence_spans(text)
    for start, end in _with_pieces(sentences, rules) if rules else sentences:
        if end <= begin:
            continue
        start = max(start, begin)
        if rules and (mark := _BEHIND_RULE.match(text, start, end)):
            start = mark.end()
        said = fold(text[start:end])
        # What quotes somebody orders and asks nothing.
        is_others, begun = quoted and is_quoted(quoted, start, end), said[:MAX_SENTENCE_CHARACTERS]
        kind = _FACT if is_others else classify(begun, role=voice, last=last)
        if has_headings and _is_title(said, kind, voice) and _is_heading(text, start, end):
            if not _names_exactly(said):
                continue  # "Goal" names what follows, and says nothing without it.
            kind = _FACT
        longest, of_kind, farther = _how_parted(kind)
        for first, final in clause_spans(text, start, end, longest=longest, farther=farther):
            # Most sentences are one clause.
            is_whole = is_storable and first == start and final == end
            clause = said if is_whole else fold(encodable(text[first:final]))
            if not (clause[:1].isalnum() or _SAYS.search(clause)):
                continue
            if length := marker_length(clause):
                clause, final = clause[:-length].rstrip(), final - length
                if not clause:
                    continue
                while text[final - 1].isspace():
                    final -= 1
            worth = base * (1 + math.exp(-first / HEAD_CHARACTERS))
            if has_digits and len(_DIGITS.findall(clause)) > 1:
                worth /= _times_too_often(clause, alike)
            if has_headings and _HEADING.fullmatch(text, text.rfind("\n", 0, first) + 1, first):
                worth *= ANNOUNCEMENT_WORTH
            is_own = is_assistants or rules or not (quoted and is_quoted(quoted, first, final))
            named = _between(entities, starts, first, final) if entities else ()
            place, worth = (item.position, item.id, first, final), worth * of_kind
            worth *= _worth_of_form(clause) * (worth_of_kindness(clause) if is_assistants else 1.0)
            yield Unit(clause, kind, speaker if is_own else QUOTED, *place, named, worth)


def _is_title(said: str, kind: UnitKind, voice: str) -> bool:
    """Whether a heading only names what follows, and orders nothing: "Constraints — never break".

    In other scripts than Latin nobody can tell.
    """
    if any(one >= _FIRST_OF_OTHER_SCRIPTS for one in said if one.isalpha()):
        return False
    title = _BEHIND_TITLE.split(said, maxsplit=1)[0].strip("#* ")
    return kind is not UnitKind.RULE or classify(title, role=voice) is not UnitKind.RULE


def _is_heading(text: str, start: int, end: int) -> bool:
    """Whether a sentence stands in a line that is marked as a heading."""
    # A longer line is none: each of its sentences would look through all of it.
    low, high = max(0, start - LONGEST_HEADING), min(len(text), end + LONGEST_HEADING)
    first, last = text.rfind("\n", low, start) + 1, text.find("\n", end, high)
    if (not first and low) or (last < 0 and high < len(text)):
        return False
    line = text[first : last if last >= 0 else high]
    return _HEADING_LINE.fullmatch(line.strip()) is not None


def _names_exactly(heading: str) -> bool:
    """Whether a heading names more than its words: a number, a date, an identifier, a name."""
    plain = heading.strip("*# :：")
    return any(one.kind != NAME or one.start for one in find_entities(plain))


def _with_pieces(
    spans: Iterable[tuple[int, int]], pieces: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Yield the spans in order, parted so that each of the pieces stands alone."""
    borders = sorted({border for piece in pieces for border in piece})
    for start, end in spans:
        inside = borders[bisect_right(borders, start) : bisect_left(borders, end)]
        yield from pairwise((start, *inside, end))


def _without(
    spans: Iterable[tuple[int, int]], pieces: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return the spans less the pieces."""
    own = set(pieces)
    return [span for span in _with_pieces(spans, pieces) if span not in own]


def _speaker_of(item: Item, speakers: frozenset[str]) -> tuple[str, int]:
    """Return who says a message, and where it begins behind the name."""
    match = _SPEAKER.match(item.text) if speakers else None
    if match and match[1] in speakers:
        return match[1], match.end()
    is_named = item.is_question and item.tool_name in speakers
    return (item.tool_name if is_named else label_of(item)), 0


def _times_too_often(clause: str, alike: Counter[str]) -> int:
    """Return how often too many a message has a clause that differs in its values; at least 1.

    Of pasted output, such as a list of files, no summary needs every line.
    """
    shape = _LETTERS.sub("a", _DIGITS.sub("0", clause))
    alike[shape] += 1
    return max(1, alike[shape] - REPEATED_FORM_LIMIT)


def _how_parted(kind: UnitKind) -> tuple[int, float, int]:
    """Return the longest piece of a sentence, what its kind is worth, and how far a piece goes on.

    Most are facts, and a look at one in a dictionary takes long.
    """
    return _AS_FACT if kind is _FACT else (longest_of(kind), kind_worth(kind), 0)


_AS_FACT = (CLAUSE_CHARACTERS, kind_worth(_FACT), FARTHER_CHARACTERS)


def label_of(item: Item) -> str:
    """Return who says a message, as a summary names them; empty for the user."""
    if item.is_question:
        return ""
    name = item.tool_name if item.role == "tool" else item.voice
    return name if _LABEL.fullmatch(name) else "tool" if item.role == "tool" else "other"


def _between(
    entities: Sequence[Entity], starts: list[int], first: int, final: int
) -> tuple[str, ...]:
    begin = bisect_left(starts, first)
    if begin == len(starts) or starts[begin] > final:
        return ()
    inside = entities[begin : bisect_right(starts, final, begin)]
    return tuple(dict.fromkeys([one.key for one in inside if one.end <= final]))


def _units_of_output(
    item: Item, entities: Sequence[Entity], earned: dict[str, float]
) -> Iterator[Unit]:
    """Yield the lines of a tool's output, or the fields of one in JSON.

    `earned` is what lines are known to be worth by their words: outputs repeat each other's.
    """
    worth = ROLE_WORTH["tool"]
    use = use_of(item.tool_name)
    if use is not None:
        worth *= COMMAND_WORTH if use.does == COMMAND else FILE_WORTH
    label, alike = label_of(item), Counter[str]()
    has_fields = is_json(item.text)
    starts = [entity.start for entity in entities]
    text = _read(item)
    storable = encodable(text)
    signs, is_storable = signs_in(storable), len(storable) == len(text)
    has_digits = bool(_DIGITS.search(text))
    for start, end in _output_spans(text):
        line = fold(text[start:end] if is_storable else encodable(text[start:end]))
        if not (line[:1].isalnum() or _SAYS.search(line)):
            continue
        shape = _DIGITS.sub("0", line) if has_digits else line
        alike[shape] += 1
        if has_fields:
            factor = FIELD_WORTH
        elif (factor := earned.get(line, 0.0)) == 0.0:
            factor = earned[line] = outcome_worth(line, signs) * form_worth(line, signs)
        repeated = alike[shape] - REPEATED_FORM_LIMIT
        repeated = 1 if repeated < 1 else repeated
        named = _between(entities, starts, start, end) if entities else ()
        own_worth = worth * factor * (1 + math.exp(-start / HEAD_CHARACTERS)) / repeated
        yield Unit(line, _FACT, label, item.position, item.id, start, end, named, own_worth)


def _output_spans(text: str) -> Iterator[tuple[int, int]]:
    if is_json(text):
        yield from leaf_spans(text)
        return
    for start, end in sentence_spans(text):
        yield from clause_spans(text, start, end, longest=2 * CLAUSE_CHARACTERS)


def _named_again(units: list[Unit], *, people: frozenset[str]) -> list[Unit]:
    """Raise what a tool printed or somebody quoted, where a person or a model names it later."""
    last: dict[str, int] = {}
    for unit in units:
        if unit.entities and unit.speaker in people:
            for key in unit.entities:
                last[key] = unit.position
    return [
        unit._replace(worth=unit.worth * NAMED_AGAIN_WORTH)
        if unit.entities
        and unit.speaker not in people
        and any(last.get(key, -1) > unit.position for key in unit.entities)
        else unit
        for unit in units
    ]
