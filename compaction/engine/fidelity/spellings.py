"""Whether a text names something, however it spells it.

1,250 is 1250 and 1 250; 340M is 340 million and 0.34 billion; May 3, 2024 is 2024-05-03; 8 AM is
08:00. Everything else is found as it is written, but for capitals, with borders of words around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from functools import cached_property, lru_cache

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.sentences import HAN, HANGUL, KANA
from compaction.engine.fidelity.entities import DATE, IDENTIFIER, NAME, NUMBER, URL
from compaction.engine.fidelity.moments import Moment, moments_of, share_a_moment

LARGEST_COUNT = 12
"""Up to here a writer counts: "three files". Such a number is nobody's invention."""
MOST_TRIES = 200
"""So often a key is looked for behind a place where it is only part of a word."""
FEWEST_SQUEEZED = 4
STEM = 4
"""Names are declined: so many letters, at least, must be the same."""

_ALIKE = (("\u00a0", " "), ("\u202f", " "), ("\u2011", "-"), ("\u2019", "'"))
_JOINT = r"[-_](?=[^\W_])|\.(?=\d)"
_JOINING = lazy_pattern(_JOINT)
_BEHIND_JOINT = lazy_pattern(rf"[^\W_{HAN}{KANA}{HANGUL}][-_]\Z|\d\.\Z")
# Digits that stand as `Spellings.stands` looks for them.
_PLAIN_NUMBER = lazy_pattern(
    rf"[0-9](?<![^\W{HAN}{KANA}{HANGUL}][0-9])(?<![^\W_{HAN}{KANA}{HANGUL}][-_][0-9])"
    rf"(?<!\d\.[0-9])[0-9]*+(?![^\W{HAN}{KANA}{HANGUL}])(?!{_JOINT})"
)
_WIDE = lazy_pattern(f"[{HAN}{KANA}{HANGUL}]")
_WORD = lazy_pattern(rf"[^\W_{HAN}{KANA}{HANGUL}]+|[{HAN}{KANA}{HANGUL}]+")
_SQUEEZED = "-_ .,/\\:'#"
_SCHEME = lazy_pattern(r"^(?:https?://)?(?:www\.)?")
_PARTS = lazy_pattern(r"[^\W\d_]+|\d+")

_SCALES = {
    "k": 3, "thousand": 3, "tsd": 3, "tausend": 3, "тыс": 3, "mil": 3, "mille": 3, "千": 3,
    "万": 4, "萬": 4,
    "m": 6, "mn": 6, "mio": 6, "million": 6, "millions": 6, "millionen": 6, "millón": 6,
    "millones": 6,
    "milhão": 6, "milhões": 6, "milione": 6, "milioni": 6, "miljoen": 6, "млн": 6, "миллион": 6,
    "миллиона": 6, "миллионов": 6, "百万": 6, "亿": 8, "億": 8, "만": 4, "억": 8,
    "b": 9, "bn": 9, "billion": 9, "billions": 9, "mrd": 9, "milliarde": 9, "milliarden": 9,
    "milliard": 9,
    "milliards": 9, "miljard": 9, "млрд": 9, "миллиард": 9, "миллиарда": 9, "миллиардов": 9,
    "trillion": 12, "trillions": 12,
}  # fmt: skip
_SCALE = "|".join(sorted(_SCALES, key=len, reverse=True))
_AFTER = rf"[ \u00a0\u202f-]?(?P<scale>{_SCALE})(?![^\W\d_{HAN}{KANA}{HANGUL}])"
SCALE_AFTER = lazy_pattern(_AFTER, re.IGNORECASE)
# It begins with a digit whatever follows: so the search passes quickly over the rest.
_NUMBER = lazy_pattern(
    r"(?P<digits>[0-9](?:[0-9]{0,2}(?:[ ,.'’\u00a0\u202f][0-9]{3})+(?![0-9])"
    rf"(?:[.,][0-9]{{1,20}}(?![0-9]))?|[0-9]*(?:[.,][0-9]+)*))(?:{_AFTER})?"
)
_SEPARATOR = lazy_pattern(r"[^0-9]")
_COUNT_WORDS = "zero one two three four five six seven eight nine ten eleven twelve"
# One for each, so that the search can go from one such word to the next.
_COUNTED = {
    str(number): lazy_pattern(rf"{word}(?<!\w{word})\b")
    for number, word in enumerate(_COUNT_WORDS.split())
}


def normal(text: str) -> str:
    """Return the text without capitals and without the kinds of spaces and hyphens."""
    if text.isascii():
        return text.lower()
    # Many times quicker than `translate`, which looks at every character of such a text.
    text = text.casefold()
    for one, other in _ALIKE:
        text = text.replace(one, other)
    return text


def is_small_count(key: str) -> bool:
    """Whether a key is a plain number that counting alone can explain."""
    return len(key) < 3 and key.isdecimal() and int(key) <= LARGEST_COUNT


def values_of(text: str, *, asserted: bool = False) -> set[str]:
    """Return the numbers of a text, each in one spelling; all that an ambiguous one can mean.

    What is `asserted` must be known as it stands: 3.4 billion is not known where 3.4 is. `text` is
    `normal`.
    """
    if text.isascii() and text.isdecimal():
        # Most keys are plain numbers: they need not be looked through.
        return {_plain(text)}
    values: set[str] = set()
    for digits, scale in set(_NUMBER.findall(text)):
        for form in _forms(digits):
            if scale:
                scaled = _scaled(form, _SCALES[scale])
                values.update((scaled, f"{form}{scale}"))
            if not scale or not asserted:
                values.add(form)
    return values


def _forms(digits: str) -> Iterator[str]:
    """Yield what a number with separators can mean: 1.250 is 1250 here and 1.25 there."""
    if digits.isdecimal():
        yield _plain(digits)
        return
    parts = _SEPARATOR.split(digits)
    separators = _SEPARATOR.findall(digits)
    last = separators[-1]
    grouped = all(len(part) == 3 for part in parts[1:]) and len(parts[0]) < 4
    if grouped and len(set(separators)) == 1:
        yield _plain("".join(parts))
        if last == " ":
            yield from map(_plain, parts)
    if last in ".," and separators.count(last) == 1:
        yield _plain("".join(parts[:-1]), parts[-1])
    elif not grouped:
        yield digits


def _plain(whole: str, fraction: str = "") -> str:
    whole, fraction = whole.lstrip("0") or "0", fraction.rstrip("0")
    return f"{whole}.{fraction}" if fraction else whole


def _scaled(form: str, power: int) -> str:
    try:
        value = Decimal(form).scaleb(power)
    except InvalidOperation:
        return f"{form}e{power}"
    whole, _, fraction = f"{value:f}".partition(".")
    return _plain(whole, fraction)


class Sought:
    """An entity that is looked for, in however many texts: its spellings are worked out once."""

    def __init__(self, kind: str, key: str) -> None:
        self.kind = kind
        self.key = normal(key)

    @cached_property
    def values(self) -> set[str]:
        """What it can mean as a number."""
        return values_of(self.key)

    @cached_property
    def asserted(self) -> set[str]:
        """What must be known of it as a number, with what multiplies it."""
        return values_of(self.key, asserted=True)

    @cached_property
    def moments(self) -> set[Moment]:
        """The days and times that it can mean."""
        return moments_of(self.key)

    @cached_property
    def words(self) -> list[str]:
        """Its words."""
        return _WORD.findall(self.key)

    @cached_property
    def has_digits(self) -> bool:
        """Whether it is bounded as codes and numbers are."""
        return any(map(str.isdigit, self.key))


@lru_cache(maxsize=8192)
def sought_of(kind: str, key: str) -> Sought:
    """Return what is looked for; conversations name the same things again and again."""
    return Sought(kind, key)


class Spellings:
    """A text in which entities are looked for; it is `normal`."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def values(self) -> set[str]:
        """The numbers of the text, the small ones also where they are words."""
        counted = {number for number, word in _COUNTED.items() if word.search(self.text)}
        return values_of(self.text) | counted

    @cached_property
    def plain_numbers(self) -> frozenset[str]:
        """The runs of digits that are no part of a longer word, code or number."""
        return frozenset(_PLAIN_NUMBER.findall(self.text))

    @cached_property
    def moments(self) -> set[Moment]:
        """The days and times of the text."""
        return moments_of(self.text)

    @cached_property
    def squeezed(self) -> str:
        """The text without spaces and punctuation inside identifiers."""
        return _squeeze(self.text)

    def names(self, sought: Sought) -> bool:
        """Whether the entity stands in the text in any spelling."""
        kind, key = sought.kind, sought.key
        if kind == NUMBER:
            if not self.values.isdisjoint(sought.values):
                return True
            # The digits of a plain number stand in many a code: each place would be looked at.
            if key.isascii() and key.isdecimal():
                return key in self.plain_numbers
            return self._stands(sought)
        if self._stands(sought):
            return True
        if kind == DATE:
            return bool(self.moments) and share_a_moment(sought.moments, self.moments)
        if kind == NAME and " " in key:
            return self._has_line_with(sought.words)
        return kind == URL and self.stands(_SCHEME.sub("", key).rstrip("/"))

    def supports(self, sought: Sought, written: str) -> bool:
        """Whether somebody wrote in this text what `written` asserts; more lenient than `names`."""
        kind, key = sought.kind, sought.key
        if kind == NUMBER:
            return (
                is_small_count(key)
                # Nearly always enough, and far quicker than all numbers of a conversation.
                or self._stands(sought)
                or not self.values.isdisjoint(sought.asserted)
            )
        if kind == NAME:
            return self._stands(sought) or all(map(self._has_word_like, sought.words))
        if self.names(sought):
            return True
        if kind == IDENTIFIER:
            return self._has_squeezed(key) or self._has_parts(key, written)
        return False

    def stands(self, key: str) -> bool:
        """Whether the key is in the text as no part of a longer word, code or number."""
        return key in self.text and self._stands(Sought("", key))

    def _stands(self, sought: Sought) -> bool:
        text, key = self.text, sought.key
        if not key:
            return False
        start = text.find(key)
        for _ in range(MOST_TRIES):
            if start < 0:
                return False
            if self._is_bounded(sought, start):
                return True
            start = text.find(key, start + 1)
        return False

    def _is_bounded(self, sought: Sought, start: int) -> bool:
        text, key = self.text, sought.key
        end = start + len(key)
        before, after = text[max(0, start - 1) : start], text[end : end + 1]
        if _is_letter(key[0]) and (_is_letter(before) or before == "_"):
            return False
        if _is_letter(key[-1]) and (_is_letter(after) or after == "_"):
            return False
        if not sought.has_digits:
            return True
        return not (
            _JOINING.match(text, end) or _BEHIND_JOINT.search(text, max(0, start - 2), start)
        )

    def _has_line_with(self, words: Sequence[str]) -> bool:
        """Whether one line has all of the words, in whatever order."""
        text, rarest = self.text, max(words, key=len)
        if not all(word in text for word in words):
            return False
        place = text.find(rarest)
        while place >= 0:
            end = text.find("\n", place)
            end = len(text) if end < 0 else end
            if set(words).issubset(_WORD.findall(text, text.rfind("\n", 0, place) + 1, end)):
                return True
            place = text.find(rarest, end)
        return False

    def _has_word_like(self, word: str) -> bool:
        if len(word) < STEM or self.stands(word):
            return True
        stem = word[: max(STEM, len(word) - 3)]
        start = self.text.find(stem)
        for _ in range(MOST_TRIES):
            if start < 0:
                return False
            if not _is_letter(self.text[max(0, start - 1) : start]):
                return True
            start = self.text.find(stem, start + 1)
        return False

    def _has_squeezed(self, key: str) -> bool:
        squeezed = _squeeze(key)
        if len(squeezed) < FEWEST_SQUEEZED:
            return False
        start = self.squeezed.find(squeezed)
        for _ in range(MOST_TRIES):
            if start < 0:
                return False
            end = start + len(squeezed)
            inside_number = (squeezed[-1].isdigit() and self.squeezed[end : end + 1].isdigit()) or (
                squeezed[0].isdigit() and self.squeezed[max(0, start - 1) : start].isdigit()
            )
            if not inside_number:
                return True
            start = self.squeezed.find(squeezed, start + 1)
        return False

    def _has_parts(self, key: str, written: str) -> bool:
        """Whether it is an ordinary word and a number that were written: mid-2023, top-20."""
        parts = _PARTS.findall(key)
        letters = [part for part in parts if not part.isdigit()]
        return (
            written.islower()
            and all(len(part) > 2 for part in letters)
            and all(is_small_count(part) or part in self.values for part in parts if part.isdigit())
            and all(part.isascii() for part in letters)
            and "-" in key
        )


def _squeeze(text: str) -> str:
    # Quicker than `translate`, which looks at every character.
    for character in _SQUEEZED:
        text = text.replace(character, "")
    return text


def _is_letter(character: str) -> bool:
    return character.isalnum() and (character.isascii() or not _WIDE.match(character))
