"""What a person took back: the newer statement takes the older one's place and says so.

A correction is a user's statement with words that say so ("sorry", "instead of", "no longer"), or
one that repeats an older statement word by word up to its last value. The older statement leaves
the material, so that it can never stand alone or last; the newer one names what it replaces.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.amendments import amended, old_in
from compaction.engine.extractive.contrasts import Denied, is_supposed, is_unsure, parts_taken_back
from compaction.engine.extractive.corrections import is_correction, is_removal, subjects_of
from compaction.engine.extractive.cues import is_question
from compaction.engine.extractive.renewals import renewed, renews, said_instead, says_now
from compaction.engine.extractive.replacing import (
    MAX_REPLACED_CHARACTERS,
    MOST_POINTING_WORDS,
    Stated,
    denied_value,
    old_value,
    opens_surely,
    points,
)
from compaction.engine.extractive.sentences import remembered, shorten
from compaction.engine.extractive.subjects import SubjectIndex, are_alike, subject_words
from compaction.engine.extractive.terms import LONGEST_REMEMBERED, pairs_of, words_of
from compaction.engine.fidelity.entities import Entity, find_entities
from compaction.engine.provenance import Unit, UnitKind

REMEMBERED = 24
"""Of the statements that have a word in common with a correction, the newest are looked at."""
LOOKED_AT_BEFORE = 24
"""A correction that shares no word with what it corrects means something said just before: so many
statements are looked at."""
ENOUGH_IN_COMMON = 1.5
FEWEST_IN_BOTH = 2
"""Things that a statement names which says a value and the one that it had before."""
TOPIC_MENTIONS = 6
"""What was named more often is a subject of the conversation, not one value of one statement."""
MOST_WORDS_BEHIND_VALUE = 2
_ADDED = lazy_pattern(
    r"\b(?:add|added|put|include|append|list|order|buy|cart|plan|agenda|menu|scope)\b|加|放|买|列",
    re.I,
)
# What a note begins with: units have it in English, a summary in the conversation's language.
_NOTE_WORDS = ("replaces", "removes", "later removed:")
_NOTE_WORDS_IN = {
    "zh": ("取代", "取消", "后来取消："),
    "ja": ("変更前：", "削除：", "後に削除："),
    "ko": ("변경 전:", "삭제:", "나중에 삭제:"),
    "ru": ("вместо", "убирает", "позже убрано:"),
    "es": ("reemplaza a", "quita", "quitado después:"),
    "de": ("ersetzt", "entfernt", "später entfernt:"),
    "fr": ("remplace", "retire", "retiré ensuite :"),
    "ar": ("بدلا من", "يزيل", "أزيل لاحقا:"),
}
_ENGLISH = {
    word: english
    for words in (_NOTE_WORDS, *_NOTE_WORDS_IN.values())
    for word, english in zip(words, _NOTE_WORDS, strict=True)
}
_NOTE = lazy_pattern(
    rf" \(({'|'.join(map(re.escape, sorted(_ENGLISH, key=len, reverse=True)))}) ([^()]{{1,140}})\)$"
)
_END = ".!。！"
_NOW = lazy_pattern(r"(?:^|\s)(?:now|actually|instead|today)$", re.I)
_CLAUSES = lazy_pattern(r"[,;:.] \S+ \S+ \S")
_STATED = lazy_pattern(
    r" (?:is|are|was|ist|sind|war|lautet|beträgt|kostet|beginnt|heißt|est|es|è|é|это)\b", re.I
)
"""What stands behind a subject: in German it has a capital, as names have."""
_BRACKETS = lazy_pattern(r"[()\n]")
_COPULA = lazy_pattern(
    r"\b(?:is|are|will be|equals|costs?|(?:runs?|lives?|works?|sits?|stays?) (?:on|in|at|for|with)|"
    r"uses?|ist|sind|es|está|est|son)(?: now)?"
    r"(?: (?:on|at|in|by|the|at the|set to|called|named))? $"
    r"|[是为=:：] ?$|(?:это|=) $",
    re.I,
)


def with_note(unit: Unit, language: str = "") -> str:
    """Return a unit's text, with what it replaces or removes where it does."""
    if not unit.note:
        return unit.text
    note = unit.note
    for english, word in zip(_NOTE_WORDS, _NOTE_WORDS_IN.get(language, ()), strict=False):
        if note.startswith(f"{english} "):
            note = word + note[len(english) :]
            break
    return f"{unit.text.rstrip(_END)} ({note})"


def without_note(text: str) -> tuple[str, str]:
    """Return a line's text and its note in English; the reverse of `with_note`."""
    match = _NOTE.search(text)
    return (text[: match.start()], f"{_ENGLISH[match[1]]} {match[2]}") if match else (text, "")


@dataclass(slots=True)
class _Past:
    """The statements so far, found by their words and by what they name."""

    people: frozenset[str]
    statements: list[Stated] = field(default_factory=list)
    by_frame: dict[str, int] = field(default_factory=dict)
    _by_word: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    _by_entity: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    _by_subject: defaultdict[str, SubjectIndex] = field(
        default_factory=lambda: defaultdict(SubjectIndex)
    )
    _words_known: int = 0
    _entities_known: int = 0

    def naming(self, key: str) -> Sequence[int]:
        """Return which statements name a thing."""
        # What was said is noted when it is first asked for: few conversations correct any of it.
        for index in range(self._entities_known, len(self.statements)):
            for named in self.statements[index].unit.entities:
                self._by_entity[named].append(index)
        self._entities_known = len(self.statements)
        return self._by_entity.get(key, ())

    def about(self, key: str, subject: frozenset[str]) -> list[tuple[int, frozenset[str]]]:
        """Return what names a thing, still holds and can have a subject in common, or has none."""
        mentions, subjects = self.naming(key), self._by_subject[key]
        for index in mentions[subjects.known :]:
            subjects.add(index, _subject(self.statements[index], key))
        subjects.known = len(mentions)
        return subjects.near(subject, lambda index: self.statements[index].gone)

    def is_said(self, unit: Unit) -> bool:
        """Whether a person or a model said it: what tools print is not taken back."""
        return unit.speaker == "assistant" or unit.speaker in self.people

    def alike(self, words: Iterable[str]) -> Iterator[int]:
        """Yield the newest statements that have any of the words and still hold."""
        by_word = self._by_word
        for index in range(self._words_known, len(self.statements)):
            for word in self.statements[index].words:
                by_word[word].append(index)
        self._words_known = len(self.statements)
        found = {index for word in words for index in by_word.get(word, ())[-REMEMBERED:]}
        return (index for index in found if not self.statements[index].gone)


def with_changes(units: Sequence[Unit], *, people: Iterable[str] = ()) -> list[Unit]:
    """Return the units, in time order, without those that a later one replaces or removes.

    `people` are the speakers who can take something back, beside the user who has no name.
    """
    past = _Past(people=frozenset(("", *people)))
    corrects: int | None = None
    about: frozenset[str] = frozenset()
    for unit in units:
        if unit.kind is UnitKind.ACTION or not past.is_said(unit):
            past.statements.append(Stated(unit, frozenset(), []))
            continue
        by_person = unit.speaker in past.people and not unit.note
        is_cued = by_person and is_correction(unit.text) and not is_supposed(unit.text)
        is_cued = is_cued and not (is_unsure(unit.text) and not opens_surely(unit.text))
        is_renewing = by_person and renews(unit)
        words = subjects_of(unit.text, cued=is_cued or is_renewing)
        statement = Stated(unit, words, [])
        if by_person:
            goes_on = corrects == unit.position
            if goes_on and not is_cued:
                # "I got the room wrong. It is D07": the one before says what this is about.
                statement.words |= about
            corrects = None
            is_done = _contrasted(statement, past) or _says_instead(statement, past)
            is_done = is_done or (is_renewing and not goes_on and _renew(statement, past))
            is_done = is_done or (not goes_on and _amend(statement, past))
            if is_done:
                pass
            elif is_cued or goes_on:
                statement = _corrected(statement, past)
                # The value may stand in the clause behind a cue that says nothing itself.
                says_nothing = len(words) <= MOST_POINTING_WORDS or not unit.entities
                says_nothing = is_cued and says_nothing and not statement.unit.note
                corrects, about = (unit.position, words) if says_nothing else (None, about)
            elif not is_renewing:
                statement = _restated(statement, past)
        past.statements.append(statement)
        _remember_frame(statement, past)
    return [one.unit for one in past.statements if not one.gone]


def _corrected(statement: Stated, past: _Past) -> Stated:
    statement.entities = find_entities(statement.unit.text)
    target = _target(statement, past)
    if target is None:
        return statement
    old = past.statements[target]
    if is_removal(statement.unit.text):
        note = f"removes {_clean(_removed(old, statement))}"
    else:
        value, key = old_value(old, statement)
        if not value:
            return statement
        # "Make that Tuesday" alone does not say what.
        where = not statement.words & old.words
        _replace(old, statement, value, key, past, where=where)
        return statement
    statement.unit = statement.unit._replace(kind=UnitKind.CHANGE, note=note)
    return statement


def _renew(new: Stated, past: _Past) -> bool:
    """Have a statement of what holds now take the place of the one that said what held before."""
    words, statements = new.words, past.statements
    nearest = sorted(past.alike(words), key=lambda n: (len(words & statements[n].words), n))
    for index in nearest[-REMEMBERED:][::-1]:
        old = statements[index]
        is_older = old.unit.position < new.unit.position and old.unit.speaker in past.people
        value = renewed(old.unit.text, new.unit.text) if is_older else None
        if value is not None:
            return _replace(old, new, value.text, value.key, past)
    return False


def _says_instead(new: Stated, past: _Past) -> bool:
    """Whether a clause says again what was said, beside the value that it was said with."""
    unit = new.unit
    if len(unit.entities) < FEWEST_IN_BOTH or not _CLAUSES.search(unit.text):
        return False
    if is_question(unit.text):
        return False
    found = {index for key in unit.entities for index in past.naming(key)[-REMEMBERED:]}
    for index in sorted(found, reverse=True):
        old = past.statements[index]
        is_older = old.unit.position < unit.position and old.unit.speaker in past.people
        if old.gone or not is_older:
            continue
        value = said_instead(old.unit.text, unit.text)
        if value is not None:
            return _replace(old, new, value.text, value.key, past)
    return False


def _amend(new: Stated, past: _Past) -> bool:
    """Have a statement with little but a value take the place of the one that it amends."""
    old = amended(past.statements[-LOOKED_AT_BEFORE:], new, past.people)
    if old is None or (value := old_in(old.unit.text, new.unit.text)) is None:
        return False
    return _replace(old, new, value.text, value.key, past, where=True)


def _replace(
    old: Stated, new: Stated, value: str, key: str, past: _Past, *, where: bool = False
) -> bool:
    """Have a statement take the place of an older one, whose value it names in a note."""
    _forget(old, value, key, past)
    note = f"replaces {_clean(value)}"
    if where and _clean(value) != _clean(old.unit.text):
        note += f" in: {_clean(old.unit.text)}"
    new.unit = new.unit._replace(kind=UnitKind.CHANGE, note=note)
    return True


def _contrasted(new: Stated, past: _Past) -> bool:
    """Whether the statement says which older value does not hold: then it takes its place."""
    if is_question(new.unit.text):
        return False
    parts = _parts_of(new.unit.text)
    if not parts:
        return False
    new.entities = find_entities(new.unit.text)
    for part in parts:
        inside = [one for one in new.entities if part.start <= one.start < part.end]
        for index in _with_value(new, part, inside, past):
            old = past.statements[index]
            value, key = denied_value(old, new, part, inside)
            if value:
                return _replace(old, new, value, key, past)
    return False


@remembered(longest=LONGEST_REMEMBERED)
def _parts_of(text: str) -> tuple[Denied, ...]:
    return tuple(parts_taken_back(text))


def _with_value(new: Stated, part: Denied, inside: Sequence[Entity], past: _Past) -> list[int]:
    """Return which older statements can have the value, the one with most in common first."""
    found = {index for one in inside for index in past.naming(one.key)[-REMEMBERED:]}
    statements, text = past.statements, new.unit.text[part.start : part.end]
    words = new.words.union(words_of(text), pairs_of(text))
    return sorted(
        (
            index
            for index in found or past.alike(words)
            if statements[index].unit.speaker in past.people
            and not statements[index].gone
            and statements[index].unit.position < new.unit.position
        ),
        key=lambda index: (len(statements[index].words & words), index),
        reverse=True,
    )


def _clean(value: str) -> str:
    """Return a value that can stand in brackets."""
    return _BRACKETS.sub("", value).strip(" .,;")[:MAX_REPLACED_CHARACTERS]


def _target(statement: Stated, past: _Past) -> int | None:
    """Return which older statement is meant: the one with most in common, else one just before."""
    unit = statement.unit
    keys, removes = set(unit.entities), is_removal(unit.text)
    best, most = None, 0.0
    for index in past.alike(statement.words):
        old = past.statements[index]
        if old.unit.position >= unit.position or (removes and not _ADDED.search(old.unit.text)):
            continue
        shared = len(statement.words & old.words) / (1 + abs(len(old.words) - 6) / 12)
        differs = removes or bool(set(old.unit.entities) - keys)
        score = shared + (0.5 if differs else 0.0) + (0.3 if old.unit.speaker in past.people else 0)
        if score > most or (score == most and best is not None and index > best):
            best, most = index, score
    if best is not None and most >= ENOUGH_IN_COMMON:
        return best
    text = unit.text
    values = (one for one in statement.entities if not _STATED.match(text, one.end))
    named = {word for one in values for word in words_of(one.text)}
    if removes or statement.words <= named or points(statement):
        return _just_before(statement, past)
    return best if most >= 1 else None


def _just_before(new: Stated, past: _Past) -> int | None:
    """Return the statement that one without a subject of its own means ("make that Tuesday")."""
    removes = is_removal(new.unit.text)
    kinds = {one.kind for one in new.entities}
    last = len(past.statements) - 1
    for index in range(last, max(-1, last - LOOKED_AT_BEFORE), -1):
        old = past.statements[index]
        if old.gone or old.unit.position >= new.unit.position or not old.words:
            continue
        if old.unit.speaker not in past.people:
            continue
        if removes:
            is_meant = bool(_ADDED.search(old.unit.text))
        elif kinds:
            is_meant = bool(kinds & {one.kind for one in find_entities(old.unit.text)})
        else:
            is_meant = points(new)
        if is_meant:
            return index
    return None


def _removed(old: Stated, new: Stated) -> str:
    """Return what is taken off; the older statement stays where it says more than that."""
    named = new.words & old.words
    if named and len(old.words - named) > 1:
        text = " ".join(
            word for word in old.unit.text.split() if word.casefold().strip(".,") in named
        )
        old.unit = old.unit._replace(note=f"later removed: {_clean(text)}")
        return text
    old.gone = True
    return shorten(old.unit.text, MAX_REPLACED_CHARACTERS)


def _forget(old: Stated, value: str, key: str, past: _Past) -> None:
    """Take the older statement out, and with it what else says the value that does not hold now."""
    old.gone = True
    if not key:
        for index in past.alike(words_of(value)):
            answer = past.statements[index]
            if answer.unit.speaker == "assistant" and answer.unit.position > old.unit.position:
                answer.gone = True
        return
    mentions = past.naming(key)
    is_topic = len(mentions) > TOPIC_MENTIONS
    subject = _subject(old, key)
    for index, about in past.about(key, subject):
        other = past.statements[index]
        # "Then NATS it is" has no subject of its own, and is about what was said before.
        is_same = are_alike(subject, about) if about else other.unit.position > old.unit.position
        if is_same and (not is_topic or (other.words & old.words)):
            other.gone = True


def _subject(one: Stated, value: str) -> frozenset[str]:
    """Return what a statement is about beside its value."""
    return subject_words(one.words - set(words_of(value)), one.unit.text)


def _frame_and_value(unit: Unit) -> tuple[str, str]:
    """Return a statement of the form "X is V" without its value, and the value; "" for others.

    At most two words may follow the value, such as its unit.
    """
    return _framed(unit.text) if unit.entities else ("", "")


@remembered(longest=LONGEST_REMEMBERED)
def _framed(text: str) -> tuple[str, str]:
    entities = find_entities(text)
    if not entities:
        return "", ""
    value = entities[-1]
    for entity in reversed(entities):
        if _COPULA.search(text, 0, entity.start):
            value = entity
            break
    else:
        return "", ""
    after = _NOW.sub("", text[value.end :].rstrip(".!。 "))
    if after.count(" ") > MOST_WORDS_BEHIND_VALUE:
        return "", ""
    before = [word for word in text[: value.start].casefold().split() if word != "now"]
    if not words_of(" ".join(before)) and not pairs_of(text[: value.start]):
        return "", ""  # "It is 5" is about nothing that can be told apart
    return " ".join([*before, "…", after]), value.text


def _restated(statement: Stated, past: _Past) -> Stated:
    """Have a statement that says "X is V" again with another value take the older one's place."""
    frame, value = _frame_and_value(statement.unit)
    index = past.by_frame.get(frame) if frame else None
    if index is None or past.statements[index].gone:
        return statement
    old = past.statements[index]
    old_value = _frame_and_value(old.unit)[1]
    if old_value == value or old.unit.position >= statement.unit.position:
        return statement
    old.gone = True
    kind = UnitKind.CHANGE if says_now(statement.unit.text) else statement.unit.kind
    statement.unit = statement.unit._replace(kind=kind, note=f"replaces {_clean(old_value)}")
    return statement


def _remember_frame(statement: Stated, past: _Past) -> None:
    if statement.unit.speaker in past.people:
        frame, _ = _frame_and_value(statement.unit)
        if frame:
            past.by_frame[frame] = len(past.statements) - 1
