"""What an older statement said in the place where a correction has something else.

The value is marked ("not Monday", "from Redis to Memcached"), or stands where both statements are
about the same. A word in common is not enough: what is replaced is gone from every later summary.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.contrasts import DENIES, Denied
from compaction.engine.extractive.corrections import AROUND, CUE_WORDS, shifted
from compaction.engine.extractive.sentences import HAN, HANGUL, KANA, shorten
from compaction.engine.extractive.subjects import (
    CALENDAR,
    PREPOSITIONS,
    are_alike,
    have_other_topics,
    is_subject,
    shared_words,
    subject_words,
)
from compaction.engine.extractive.terms import pairs_of, words_of
from compaction.engine.fidelity.entities import IDENTIFIER, NAME, NUMBER, Entity, find_entities
from compaction.engine.fidelity.languages import FUNCTION_WORDS
from compaction.engine.provenance import Unit

MOST_POINTING_WORDS = 2
"""A correction with more words than a value has a subject of its own."""
MOST_VALUE_WORDS = 2
"""Of a value that is no entity, such as "green"."""
MOST_VALUE_CHARACTERS = 12
"""Of a value in a script without spaces."""
MOST_NEW_WORDS = 3
MOST_LEADING_WORDS = 3
MOST_OPENING_WORDS = 7
"""Of a name and the verb behind it: "The new Onyx server has taken the place of"."""
MOST_BEFORE_TAKEN_BACK = 40
"""Characters, in which what takes a value back stands before it."""
MOST_BEFORE_DENIED = 24
"""Characters, in which what denies a value stands before it."""
MOST_WORDS_BEHIND_DENIAL = 2
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
_CAPITAL = lazy_pattern(r"(?<=[^.!?] )[A-ZÀ-ÞА-Я]")
_POSSESSIVE = ("'s", "’s")
_ENDS = lazy_pattern(r"\s*(?:[.,;!?]|$)")
_LETTER = lazy_pattern(rf"[^\W{HAN}{KANA}{HANGUL}]")
_OF_ONESELF = lazy_pattern(r"(?:^i|\b(?:I|[Ii]ch|[Jj]e|[Yy]o|[Ii]o|[Ee]u|[Ii]k|[Яя]))\b")
_OF_US = lazy_pattern(r"\b(?:we|our|wir|uns\w{0,4}|nous|notre|nosotros|noi|nós|wij|мы)\b", re.I)
_MINE = lazy_pattern(r"\b(?:my|mein\w{0,2}|mon|ma|mi|mio|mia|meu|minha|mijn|мо[йяё])\b", re.I)
_OWNED = lazy_pattern(
    r"\b(?:my|our|your|his|her|their|meine?[rnsm]?|unsere?[rnsm]?|seine?[rnsm]?|ihre?[rnsm]?|mon|ma|"
    r"mes|notre|son|sa|leur|mis?|nuestr[oa]s?|sus?|mi[oa]|nostr[oa]|suo|sua|meu|minha|noss[oa]|"
    r"seu|mijn|onze|zijn|haar|мо[йяё]|наш\w?|его|её|их)\b|['’]s\b",
    re.I,
)
"""Whose a thing is."""
_MOVES_HOUSE = lazy_pattern(r"\b(?:relocated|umgezogen|verhuisd|переехали?)\b", re.I)
_OF_SOMEBODY = lazy_pattern(
    r"\b(?:(?:step)?(?:sister|brother|mother|father)|mum|mom|dad|grand(?:ma|pa)|aunt|uncle|cousin|"
    r"wife|husband|partner|son|daughter|friend|colleague|boss|neighbou?r|schwester|bruder|mutter|"
    r"vater|tante|onkel|frau|mann|freund|freundin|kollegin?|chefin?|nachbar|sœur|soeur|frère|mère|"
    r"père|femme|mari|amie?|hermana|hermano|madre|padre|esposa|marido|amig[ao]|sorella|fratello|"
    r"moglie|marito|amic[ao]|irmã|irmão|mãe|pai|zus|broer|moeder|vader|сестра|брат|мать|отец|муж|"
    r"жена|друг|подруга|lives?|works at|wohnt|lebt|arbeitet|habite|travaille|vive|trabaja|abita|"
    r"lavora|mora|trabalha|woont|werkt|жив[её]т|работает)\b",
    re.I,
)
"""What somebody has, or where they live and work, is theirs alone."""
_CODES = frozenset({IDENTIFIER, NAME})
_GONE = lazy_pattern(r"(?: is| are| was)? (?:no longer|not any ?more)\b", re.I)
"""What stands behind one."""


@dataclass(slots=True)
class Stated:
    """A unit with what it is compared by."""

    unit: Unit
    words: frozenset[str]
    entities: list[Entity]
    gone: bool = False


def opens_surely(text: str) -> bool:
    """Whether a statement opens with words that say that it changes an older one."""
    return bool(_STRONG.match(text))


def points(new: Stated) -> bool:
    """Whether a statement has nothing but a value: its subject is what was said just before."""
    return len(new.words) <= MOST_POINTING_WORDS and bool(_POINTING.search(new.unit.text))


def old_value(old: Stated, new: Stated) -> tuple[str, str]:
    """Return what the older statement said, as it wrote it, and the key of that; "" without one."""
    named = find_entities(old.unit.text)
    known = {*old.unit.entities, *(one.key for one in named)}
    for one in new.entities:
        before = new.unit.text[max(0, one.start - MOST_BEFORE_TAKEN_BACK) : one.start]
        if not (_TAKEN_BACK.search(before) or _GONE.match(new.unit.text, one.end)):
            continue
        if one.kind == NUMBER and one.key not in known:
            return "", ""  # Another number was given up than the one that this statement has.
        if one.key in known:
            taken = [other for other in new.entities if other.key in known]
            if not _takes_back(old, new, one):
                return "", ""
            return _with_neighbours(one, taken, new.unit.text), one.key
    keys = {one.key for one in new.entities}
    unknown = [one for one in new.entities if one.key not in known]
    news = [one for one in unknown if not _is_denied(new, one)]
    kinds = {one.kind for one in news}
    if not kinds.issuperset(one.kind for one in unknown):
        return "", ""  # It says only what the value is not.
    # What the newer one says, too, in whatever letters, holds.
    said = new.unit.text.casefold()
    others = [
        one for one in named if one.key not in keys and _place_of(one.text.casefold(), said) < 0
    ]
    same = [one for one in others if one.kind in kinds]
    if same:
        # Of several, the one that stands where the new one does: "runs on Redis since May".
        places = {_word_before(one, new.unit.text) for one in news}
        alike = [one for one in same if _word_before(one, old.unit.text) in places]
        meant = (alike or same)[-1]
        value = _with_neighbours(meant, others, old.unit.text)
        # Another train to another town at another time is another train.
        is_other = any(one.kind != meant.kind and one.text not in value for one in alike)
        is_other = is_other or is_subject(meant, old.unit.text)
        is_meant = points(new) or (not is_other and _has_subject_of(old, new, value))
        return (value, meant.key) if is_meant else ("", "")
    if others or not _STRONG.search(new.unit.text):
        return "", ""  # it is about something else
    return _old_words(old, new), ""


def _is_denied(stated: Stated, one: Entity) -> bool:
    """Whether a statement says of a thing that it is not the value: "the port is not 9443"."""
    before = stated.unit.text[max(0, one.start - MOST_BEFORE_DENIED) : one.start]
    words = before.rsplit(None, MOST_WORDS_BEHIND_DENIAL)
    return any(map(DENIES.fullmatch, words[-MOST_WORDS_BEHIND_DENIAL:]))


def denied_value(
    old: Stated, new: Stated, part: Denied, inside: Sequence[Entity]
) -> tuple[str, str]:
    """Return what the older statement said, and its key, where it is what a part denies.

    `inside` are the things that the part names. "" where the two are about something else.
    """
    text = new.unit.text
    outside = [one for one in new.entities if one.end <= part.start or one.start >= part.end]
    held = {one.key for one in outside}
    known = [one for one in inside if one.key not in held and _names(old, one)]
    known = known or _within(old, held, text, part)
    if known:
        if text.startswith(_POSSESSIVE, known[-1].end):
            return "", ""  # "It is not Tom's, it is Ann's" says nothing of Tom
        value, key = _with_neighbours(known[-1], known, text), known[-1].key
        place = known[-1].start
    else:
        value, key = _last_words(text[part.start : part.end], old.unit.text), ""
        place = text.casefold().rfind(value.casefold(), part.start, part.end)
        if value and _is_of_name(value, old.unit.text):
            # What opens a sentence has a capital in any case: the older statement tells a name.
            known = [Entity(NAME, value, value.casefold(), place, place + len(value))]
            key = known[0].key
    named = [one for one in outside if one.key not in old.unit.entities]
    if not value or (part.rest >= 0 and not _is_parallel(text, part, place, named)):
        return "", ""
    if have_other_topics(old.unit.text, text):
        return "", ""
    denied = {*words_of(value), *pairs_of(value)}
    rest = f"{text[: part.start]} {text[part.end :]}"
    opening = _opening_value(text, part)
    denied_or_held = denied | {*words_of(opening), *pairs_of(opening)}
    older, newer = old.words - denied, new.words - denied_or_held
    if key:
        instead = _holding(named, part)
        newer = newer - {*words_of(instead.text), *pairs_of(instead.text)} if instead else newer
        named = [instead] if instead else []
        is_meant = _alike(known[-1].kind, {one.kind for one in named}) or (
            not named and known[-1].kind in _CODES and _has_name(rest, part)
        )
        is_meant = is_meant and _is_about_same(old, older, new, newer)
    else:
        newer = newer - {word for one in named for word in words_of(one.text)}
        shared = len(older & newer)
        holds = {*words_of(rest), *pairs_of(rest)}
        says_another = not denied <= holds and bool(holds - old.words)
        fewest = min(len(older), len(newer)) or text[0] != old.unit.text[0]
        is_meant = says_another and fewest < max(1, 2 * shared)
    return (value, key) if is_meant else ("", "")


def _names(old: Stated, one: Entity) -> bool:
    """Whether an older statement names a thing, be it as a part of a longer name."""
    if one.key in old.unit.entities:
        return True
    return one.kind in _CODES and _place_of(one.key, old.unit.text.casefold()) >= 0


def _is_of_name(value: str, text: str) -> bool:
    """Whether a value is one of the words of a name in a text."""
    names = (one.key.split() for one in find_entities(text) if one.kind == NAME)
    return any(value.casefold() in words for words in names)


def _opening_value(text: str, part: Denied) -> str:
    """Return what a sentence opens with where that replaces the part; "" for anything longer."""
    lead = text[: part.start].split() if part.opens else []
    is_name = len(lead) <= MOST_OPENING_WORDS and text[0].isupper()
    is_name = is_name and lead[0].casefold() not in PREPOSITIONS if lead else False
    return " ".join(lead) if is_name else ""


def _has_name(rest: str, part: Denied) -> bool:
    """Whether a statement has a name beside the part that does not hold."""
    return bool(_CAPITAL.search(rest)) or (part.opens and rest[:1].isupper())


def _takes_back(old: Stated, new: Stated, value: Entity) -> bool:
    """Whether a value that a statement gives up is the one of this older statement."""
    taken = {*words_of(value.text), *pairs_of(value.text)}
    others = (one for one in new.entities if one.key not in old.unit.entities)
    holds = {word for one in others for word in (*words_of(one.text), *pairs_of(one.text))}
    # With the words of the cue: "we moved the fee from" says what it is about.
    words = {*words_of(new.unit.text), *pairs_of(new.unit.text)} - CUE_WORDS
    return _is_about_same(old, old.words - taken, new, words - taken - holds)


def _holding(named: Sequence[Entity], part: Denied) -> Entity | None:
    """Return which of the things that a part does not name holds in its place: the nearest."""
    behind = [one for one in named if one.start >= part.end]
    return behind[0] if behind else named[-1] if named else None


def _is_about_same(old: Stated, older: Set[str], new: Stated, newer: Set[str]) -> bool:
    """Whether a denial is about the subject of an older statement, or points at it."""
    if have_other_topics(old.unit.text, new.unit.text):
        return False
    about, denies = subject_words(older, old.unit.text), subject_words(newer, new.unit.text)
    if denies:
        return bool(about) and are_alike(about, denies)
    # "Not Onyx but Amber" is about what was said; "I do not live in Oslo" about nobody else.
    return not about or (not newer and not _is_of_another(old.unit.text, new.unit.text))


def _is_of_another(older: str, newer: str) -> bool:
    """Whether people say of themselves what an older statement says of somebody else.

    "We switched" may be said of whatever a team has, but where others live and work is their own.
    """
    is_others = bool(_OF_SOMEBODY.search(older))
    is_own = _OF_ONESELF.search(newer) or (
        _OF_US.search(newer) and (is_others or _MOVES_HOUSE.search(newer))
    )
    if not is_own or _OF_ONESELF.search(older) or _OF_US.search(older):
        return False
    return is_others or not _MINE.search(older)


def _within(old: Stated, held: Set[str], text: str, part: Denied) -> list[Entity]:
    """Return what an older statement names and a part has, too, where it is told by no form."""
    low = text.casefold()
    if len(low) != len(text):
        return []
    return [
        one._replace(start=place, end=place + len(one.key))
        for one in find_entities(old.unit.text)
        if one.key not in held and (place := _place_of(one.key, low, part.start, part.end)) >= 0
    ]


def _place_of(words: str, text: str, start: int = 0, end: int | None = None) -> int:
    """Return where words stand that are no part of longer ones, before `end`; -1 for nowhere.

    A pattern for each of them would take a hundred times as long to make as the look takes.
    """
    end = len(text) if end is None else end
    place = text.find(words, start, end)
    while place >= 0:
        behind = place + len(words)
        is_part = place > 0 and _LETTER.match(text, place - 1)
        if not is_part and not _LETTER.match(text, behind, end):
            return place
        place = text.find(words, place + 1, end)
    return place


def _is_parallel(text: str, part: Denied, place: int, named: Sequence[Entity]) -> bool:
    """Whether what is denied stands as what holds does: "not on X but on Y", "non usa X ma Y"."""
    lead, behind = (
        [word for word in piece.casefold().split() if word.strip(".,") not in CALENDAR]
        for piece in (text[part.start : place], text[part.rest :])
    )
    if (lead and behind and lead[-1] == behind[0]) or set(lead) <= FUNCTION_WORDS:
        return True
    follows = next(
        (
            one
            for one in named
            if text[part.rest : one.start].strip(" .,").casefold() in {"", *CALENDAR}
        ),
        None,
    )
    # With a verb before the one, no verb may stand behind the other.
    return (
        follows is not None
        and len(lead) <= MOST_LEADING_WORDS
        and bool(_ENDS.match(text, follows.end))
    )


def _word_before(one: Entity, text: str) -> str:
    words = text[: one.start].casefold().split()
    return words[-1] if words else ""


def _alike(kind: str, kinds: Set[str]) -> bool:
    """Whether one of the kinds can take the place of a kind: a code is a name, too."""
    return kind in kinds or (kind in _CODES and not _CODES.isdisjoint(kinds))


def _last_words(part: str, old: str) -> str:
    """Return the last words of a part that stand in an older text, as that one wrote them."""
    part, low = part.strip(" ,\"'“”«»"), old.casefold()
    if " " not in part and not part.isascii():
        return part if part and part.casefold() in low else ""
    words = part.split()
    for first in range(max(0, len(words) - MOST_NEW_WORDS), len(words)):
        value = " ".join(words[first:]).casefold()
        place = _place_of(value, low)
        is_word = len(words[first]) > 2 and words[first].casefold() not in FUNCTION_WORDS
        if place >= 0 and is_word and len(low) == len(old):
            return old[place : place + len(value)]
    return ""


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
    is_most = 2 * shared_words(older, newer) > min(len(older), len(newer))
    about, other = subject_words(older, old.unit.text), subject_words(newer, new.unit.text)
    if (moved := shifted(new.unit.text)) and not opens_surely(new.unit.text):
        # "The budget for travel was raised" says nothing of the budget, nor her train of mine, nor
        # the talk with Omar of the one with Lena: names before the verb are no new values.
        said = {word.strip(AROUND) for word in old.unit.text.casefold().split()}
        is_more = shared_words(about, other) < len(other) or shared_words(said, moved) < len(moved)
        if is_more or _OWNED.findall(old.unit.text) != _OWNED.findall(new.unit.text):
            return False
    return is_most and (not (about and other) or are_alike(about, other))


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
