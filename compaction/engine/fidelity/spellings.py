"""Whether a text names something, however it spells it.

1,250 is 1250 and 1 250; 340M is 340 million and 0.34 billion; May 3, 2024 is 2024-05-03; 8 AM is
08:00. Everything else is found as it is written, but for capitals, with borders of words around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from functools import cached_property

from compaction.engine.extractive.sentences import HAN, HANGUL, KANA
from compaction.engine.fidelity.entities import DATE, IDENTIFIER, NAME, NUMBER, URL

LARGEST_COUNT = 12
"""Up to here a writer counts: "three files". Such a number is nobody's invention."""
MOST_TRIES = 200
"""So often a key is looked for behind a place where it is only part of a word."""
FEWEST_SQUEEZED = 4
STEM = 4
"""Names are declined: so many letters, at least, must be the same."""

_ALIKE = (("\u00a0", " "), ("\u202f", " "), ("\u2011", "-"), ("\u2019", "'"))
_JOINING = re.compile(r"[-_](?=[^\W_])|\.(?=\d)")
_BEHIND_JOINT = re.compile(rf"[^\W_{HAN}{KANA}{HANGUL}][-_]\Z|\d\.\Z")
_WIDE = re.compile(f"[{HAN}{KANA}{HANGUL}]")
_WORD = re.compile(rf"[^\W_{HAN}{KANA}{HANGUL}]+|[{HAN}{KANA}{HANGUL}]+")
_SQUEEZED = str.maketrans(dict.fromkeys("-_ .,/\\:'#", ""))
_SCHEME = re.compile(r"^(?:https?://)?(?:www\.)?")
_PARTS = re.compile(r"[^\W\d_]+|\d+")

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
SCALE_AFTER = re.compile(_AFTER, re.IGNORECASE)
_NUMBER = re.compile(
    r"(?P<digits>[0-9]{1,3}(?:[ ,.'’\u00a0\u202f][0-9]{3})+(?![0-9])(?:[.,][0-9]{1,20}(?![0-9]))?"
    rf"|[0-9]+(?:[.,][0-9]+)*)(?:{_AFTER})?",
    re.IGNORECASE,
)
_COUNT_WORDS = "zero one two three four five six seven eight nine ten eleven twelve"
_COUNTED = {word: str(number) for number, word in enumerate(_COUNT_WORDS.split())}
_COUNT_WORD = re.compile(rf"\b(?:{'|'.join(_COUNTED)})\b")

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "jan january januar enero janvier января",
            "feb february februar febrero février февраля",
            "mar march märz marzo mars марта",
            "apr april abril avril апреля",
            "may mai mayo мая",
            "jun june juni junio juin июня",
            "jul july juli julio juillet июля",
            "aug august agosto août августа",
            "sep sept september septiembre septembre сентября",
            "oct october oktober octubre octobre октября",
            "nov november noviembre novembre ноября",
            "dec december dezember diciembre décembre декабря",
        ),
        start=1,
    )
    for name in names.split()
}
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_ISO_DAY = re.compile(r"(?<![0-9])([0-9]{4})[-/]([0-9]{1,2})[-/]([0-9]{1,2})(?![0-9])")
_DOTTED_DAY = re.compile(r"(?<![0-9])([0-9]{1,2})[./]([0-9]{1,2})[./]([0-9]{4}|[0-9]{2})(?![0-9])")
_DAY_FIRST = re.compile(
    rf"(?<![0-9])([0-9]{{1,2}})(?:st|nd|rd|th|\.)? (?:of |de )?({_MONTH})\b\.?(?:,? ([0-9]{{4}}))?"
)
_MONTH_FIRST = re.compile(
    rf"\b({_MONTH})\.? ([0-9]{{1,2}})(?:st|nd|rd|th)?(?![0-9:])(?:,? ([0-9]{{4}}))?"
)
_WIDE_DAY = re.compile(r"(?:([0-9]{4})年)?([0-9]{1,2})月([0-9]{1,2})[日号]")
_CLOCK = re.compile(r"(?<![0-9:])([0-9]{1,2}):([0-9]{2})(?::[0-9]{2})?(?:\s?([ap])\.?m\b)?")
_HOUR = re.compile(r"(?<![0-9:])([0-9]{1,2})\s?([ap])\.?m\b")

Moment = tuple[int, int, int]
"""Year, month and day, with 0 for a year that nobody says and ANY_YEAR beside each that is said;
or CLOCK, hour and minute."""
ANY_YEAR = -1
CLOCK = -2


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
    values: set[str] = set()
    for match in _NUMBER.finditer(text):
        scale = match["scale"]
        for form in _forms(match["digits"]):
            if scale:
                scaled = _scaled(form, _SCALES[scale])
                values.update((scaled, f"{form}{scale}"))
            if not scale or not asserted:
                values.add(form)
    return values


def _forms(digits: str) -> Iterator[str]:
    """Yield what a number with separators can mean: 1.250 is 1250 here and 1.25 there."""
    parts = re.split(r"[^0-9]", digits)
    separators = re.findall(r"[^0-9]", digits)
    if not separators:
        yield _plain(digits)
        return
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


def moments_of(text: str) -> set[Moment]:
    """Return the days and times that a text names. `text` is `normal`."""
    found: set[Moment] = set()
    for year, month, day in _days_in(text):
        found.add((year, month, day))
        if year:
            found.add((ANY_YEAR, month, day))
    for match in _CLOCK.finditer(text):
        found |= _clock(match[1], match[2], match[3])
    for match in _HOUR.finditer(text):
        found |= _clock(match[1], "0", match[2])
    return found


def _days_in(text: str) -> Iterator[Moment]:
    for match in _ISO_DAY.finditer(text):
        yield int(match[1]), int(match[2]), int(match[3])
    for match in _DOTTED_DAY.finditer(text):
        year = int(match[3]) + (2000 if len(match[3]) == 2 else 0)
        first, second = int(match[1]), int(match[2])
        yield year, first, second
        yield year, second, first
    for match in _DAY_FIRST.finditer(text):
        yield int(match[3] or 0), _MONTHS[match[2]], int(match[1])
    for match in _MONTH_FIRST.finditer(text):
        yield int(match[3] or 0), _MONTHS[match[1]], int(match[2])
    for match in _WIDE_DAY.finditer(text):
        yield int(match[1] or 0), int(match[2]), int(match[3])


def _clock(hour: str, minute: str, half: str | None) -> set[Moment]:
    if not half:
        # Half of the people who write 5:30 mean the afternoon.
        return {(CLOCK, int(hour), int(minute)), (CLOCK, int(hour) + 12, int(minute))}
    return {(CLOCK, int(hour) % 12 + (12 if half == "p" else 0), int(minute))}


def share_a_moment(some: set[Moment], others: set[Moment]) -> bool:
    """Whether both name the same day or time; a year that one of them leaves out fits any."""
    return any(
        moment in others
        or (moment[0] > 0 and (0, *moment[1:]) in others)
        or (moment[0] == 0 and (ANY_YEAR, *moment[1:]) in others)
        for moment in some
        if moment[0] != ANY_YEAR
    )


class Spellings:
    """A text in which entities are looked for."""

    def __init__(self, text: str) -> None:
        self.text = normal(text)

    @cached_property
    def values(self) -> set[str]:
        """The numbers of the text, the small ones also where they are words."""
        counted = {_COUNTED[word] for word in _COUNT_WORD.findall(self.text)}
        return values_of(self.text) | counted

    @cached_property
    def moments(self) -> set[Moment]:
        """The days and times of the text."""
        return moments_of(self.text)

    @cached_property
    def squeezed(self) -> str:
        """The text without spaces and punctuation inside identifiers."""
        return self.text.translate(_SQUEEZED)

    @cached_property
    def lines(self) -> list[frozenset[str]]:
        """The words of each line."""
        return [frozenset(_WORD.findall(line)) for line in self.text.splitlines()]

    def names(self, kind: str, key: str) -> bool:
        """Whether the entity stands in the text in any spelling."""
        if kind == NUMBER:
            return not self.values.isdisjoint(values_of(normal(key))) or self.stands(normal(key))
        key = normal(key)
        if self.stands(key):
            return True
        if kind == DATE:
            return share_a_moment(moments_of(key), self.moments)
        if kind == NAME and " " in key:
            words = _WORD.findall(key)
            return any(line.issuperset(words) for line in self.lines)
        return kind == URL and self.stands(_SCHEME.sub("", key).rstrip("/"))

    def supports(self, kind: str, key: str, written: str) -> bool:
        """Whether somebody wrote in this text what `written` asserts; more lenient than `names`."""
        folded = normal(key)
        if kind == NUMBER:
            if is_small_count(folded):
                return True
            asserted = values_of(folded, asserted=True)
            return not self.values.isdisjoint(asserted) or self.stands(folded)
        if kind == NAME:
            return self.stands(folded) or all(map(self._has_word_like, _WORD.findall(folded)))
        if self.names(kind, key):
            return True
        if kind == IDENTIFIER:
            return self._has_squeezed(folded) or self._has_parts(folded, written)
        return False

    def stands(self, key: str) -> bool:
        """Whether the key is in the text as no part of a longer word, code or number."""
        text = self.text
        if not key:
            return False
        start = text.find(key)
        for _ in range(MOST_TRIES):
            if start < 0:
                return False
            if self._is_bounded(key, start):
                return True
            start = text.find(key, start + 1)
        return False

    def _is_bounded(self, key: str, start: int) -> bool:
        text, end = self.text, start + len(key)
        before, after = text[max(0, start - 1) : start], text[end : end + 1]
        if _is_letter(key[0]) and (_is_letter(before) or before == "_"):
            return False
        if _is_letter(key[-1]) and (_is_letter(after) or after == "_"):
            return False
        if not any(character.isdigit() for character in key):
            return True
        return not (
            _JOINING.match(text, end) or _BEHIND_JOINT.search(text, max(0, start - 2), start)
        )

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
        squeezed = key.translate(_SQUEEZED)
        if len(squeezed) < FEWEST_SQUEEZED:
            return False
        start = self.squeezed.find(squeezed)
        while start >= 0:
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


def _is_letter(character: str) -> bool:
    return character.isalnum() and not _WIDE.match(character)
