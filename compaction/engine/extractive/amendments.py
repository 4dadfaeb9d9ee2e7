"""A statement that has little but a new value, for one that was said just before.

"Rather 15:30" says no subject, so its value must be of the older one's kind and unit, and nothing
may have been asked in between, which it could answer. "I misspelled it: Meier" needs neither: what
it replaces is spelled alike.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.contrasts import is_supposed, is_unsure
from compaction.engine.extractive.corrections import AS_WELL
from compaction.engine.extractive.cues import is_question
from compaction.engine.extractive.replacing import Stated
from compaction.engine.extractive.sentences import HAN, KANA, remembered
from compaction.engine.extractive.subjects import ARTICLES, CALENDAR, PREPOSITIONS, TOKEN
from compaction.engine.extractive.terms import LONGEST_REMEMBERED
from compaction.engine.fidelity.entities import DATE, NAME, NUMBER, Entity, find_entities

MOST_WORDS = 4
"""Of what stands behind the words that say so: "auf den 14. Mai"."""
LETTERS_APART = 2
"""Between a value and the same one as it is spelled right: "4471" and "4417"."""
FEWEST_LETTERS_ALIKE = 3
FEWEST_BESIDE = 2
"""Characters that both have around the value, in scripts that part no words."""

_RATHER = lazy_pattern(
    r"^(?:(?:oh|ah|ach|hm+|no|nein|nee|non|нет)[,.]? )?"
    r"(?:rather|doch (?:lieber|eher|besser)|(?:lieber|besser|eher)(?: doch)?|vielmehr|"
    r"(?:disons )?plutôt|mejor|que sea|meglio|piuttosto|facciamo(?: piuttosto)?|melhor|liever|"
    rf"лучше|还是(?=[{HAN}\d])|やっぱり|やはり):? ?(?P<rest>[^,;!?。！？]{{1,40}}?)"
    r"(?:吧|で(?:お願いします)?)?[.!。！]?$",
    re.I,
)
_MISSPELLED = lazy_pattern(
    r"\b(?:meant to (?:write|type)|wollte schreiben|voulais écrire|quer[ií]a escribir|"
    r"quise escribir|volevo scrivere|quis escrever)\b"
    r"|(?:\b(?:mis-?spel(?:led|t)|mistyped|(?:spel(?:led|t)|wrote|typed) (?:\S{1,20} ){1,3}wrong|"
    r"vertippt|verschrieben|falsch geschrieben|mal (?:écrit|orthographié|tapé)e?|"
    r"(?:escribí|tecleé|he escrito) mal|scritto male|escrevi mal|"
    r"verkeerd (?:geschreven|gespeld)|опечатал\w{2}|написала? неправильно)\b"
    r"|写错|打错|拼错|書き間違え|打ち間違え)[^:,：，、]{0,30}[:,：，、]",
    re.I,
)
"""Without an object of its own only where what is meant follows a colon or a comma."""
_WIDE = lazy_pattern(rf"[{HAN}{KANA}]")


@remembered(longest=LONGEST_REMEMBERED)
def _amends(text: str) -> bool:
    match = _RATHER.match(text)
    if match is None and not _MISSPELLED.search(text):
        return False
    # "还" alone is "as well", too.
    adds = AS_WELL.search(match["rest"] if match else text)
    return not (adds or is_question(text) or is_supposed(text) or is_unsure(text))


def amended(said: Sequence[Stated], new: Stated, people: frozenset[str]) -> Stated | None:
    """Return which of the statements just before a new one amends; its value is `old_in` it."""
    if not _amends(new.unit.text):
        return None
    is_respelled = bool(_MISSPELLED.search(new.unit.text))
    for old in reversed(said):
        if not is_respelled and is_question(old.unit.text):
            return None
        is_older = old.unit.position < new.unit.position and old.unit.speaker in people
        if is_older and not old.gone and old_in(old.unit.text, new.unit.text):
            return old
    return None


def old_in(old: str, new: str) -> Entity | None:
    """Return the value of an older text that the newer one amends."""
    if match := _MISSPELLED.search(new):
        return _alike(old, new[match.end() :])
    match = _RATHER.match(new)
    return _other_value(old, match["rest"]) if match else None


def _values_of(text: str) -> list[Entity]:
    """Return the numbers, times and days of a text; names are what they count."""
    values = [one for one in find_entities(text) if one.kind in (NUMBER, DATE)]
    days = (day for day in TOKEN.finditer(text) if day[0].casefold() in CALENDAR)
    return values + [Entity(NAME, day[0], day[0].casefold(), *day.span()) for day in days]


def _alike(old: str, behind: str) -> Entity | None:
    """Return what an older text names that is spelled as the last word of a text, but for a bit."""
    words = TOKEN.findall(behind)
    named = find_entities(old)
    for token in TOKEN.finditer(old) if words else ():
        word = token[0]
        is_named = word[:1].isupper() or any(map(str.isdigit, word))
        is_named = is_named and word != words[-1]
        if is_named and _is_spelled_alike(_bare(word), _bare(words[-1])):
            key = next((one.key for one in named if one.text == word), "")
            return Entity(NAME, word, key, token.start(), token.end())
    return None


def _bare(word: str) -> str:
    """Return a word in small letters, without accents."""
    letters = unicodedata.normalize("NFD", word.casefold())
    return "".join(one for one in letters if not unicodedata.combining(one))


def _is_spelled_alike(one: str, other: str) -> bool:
    longest = max(len(one), len(other))
    start = _shared(one, other)
    end = _shared(one[start:][::-1], other[start:][::-1])
    is_long = min(len(one), len(other)) >= FEWEST_LETTERS_ALIKE + 1
    is_turned = sorted(one) == sorted(other)
    most = LETTERS_APART if is_turned else min(LETTERS_APART, longest - FEWEST_LETTERS_ALIKE)
    return is_long and longest - start - end <= most


def _shared(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _other_value(old: str, rest: str) -> Entity | None:
    """Return the value of an older text in whose place a bare value with its unit can stand."""
    values = _values_of(rest)
    if len(values) != 1:
        return None
    lead, behind = rest[: values[0].start].strip(), rest[values[0].end :].strip()
    older = [one for one in _values_of(old) if one.kind == values[0].kind]
    if len(older) != 1 or older[0].key == values[0].key:
        return None
    if _WIDE.search(rest):
        is_same = old[: older[0].start].endswith(lead) and old[older[0].end :].startswith(behind)
        return older[0] if is_same and len(lead + behind) >= FEWEST_BESIDE else None
    beside = {word.casefold() for word in TOKEN.findall(f"{lead} {behind}")}
    # A number alone may count anything, and answer what was not written as a question.
    counts = values[0].text.isdecimal() and not behind
    beside -= ARTICLES | PREPOSITIONS
    known = {word.casefold() for word in TOKEN.findall(old)}
    is_short = len(rest.split()) <= MOST_WORDS
    return older[0] if is_short and beside <= known and not counts else None
