"""Text cut into sentences, without a model and in one pass.

Everything returned is a piece of the text as it stands, with runs of white space folded into one
space: nothing is rewritten. All patterns look at a bounded number of characters, so that a
megabyte without a single space costs no more than any other megabyte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache, wraps
from typing import Concatenate, ParamSpec, TypeVar, cast

from chatapp.messages.patterns import lazy_pattern

How = ParamSpec("How")
Found = TypeVar("Found")

MAX_SENTENCE_CHARACTERS = 220
"""A longer sentence is parted at a clause, else at a space, else anywhere."""
SMALLEST_SHARE = 1 / 3
"""Of the longest piece, what each one that another follows has at least."""

ELLIPSIS = "…"

HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
KANA = "\u3040-\u30ff\u31f0-\u31ff"
HANGUL = "\u1100-\u11ff\uac00-\ud7af"


def word_set(words: str) -> frozenset[str]:
    """The words of a text that lists them with spaces between."""
    return frozenset(words.split())


_UNPRINTABLE = r"\x00-\x08\n\x0b\x0c\r\x0e-\x1f\x7f\x85\u2028\u2029\ud800-\udfff\ufffe\uffff"
# Without white space at its ends.
_LINE = lazy_pattern(rf"[^\s{_UNPRINTABLE}](?:[^{_UNPRINTABLE}]*[^\s{_UNPRINTABLE}])?")
_END = lazy_pattern(
    r"[.!?][\"'”’)\]*]{0,3}(?=\s)"
    r"|[。！？；][”’」』）]{0,2}(?=[^.!?。！？；”’」』）])"
    rf"|[!?](?=[{HAN}{KANA}])"
)
# The same in a text of which only the first way can end a sentence.
_END_ASCII = lazy_pattern(r"[.!?][\"')\]*]{0,3}(?=\s)")
_BULLET = lazy_pattern(r"(?:[-*•+>|#]{1,6}\s+|\d{1,3}[.)]\s+|\[[ xX]\]\s+)")
_BULLET_STARTS = frozenset("-*•+>|#[")
_CLAUSE_END = lazy_pattern(r"[;；，、：]|[,:](?=\s)|\s?[—–]|\s-\s")
_JOINING = lazy_pattern(
    r"\s(?=(?:and|but|because|since|when|while|whereas|which|who|where|although|though|unless|until|"
    r"und|aber|weil|dass|wenn|obwohl|sondern|et|mais|parce|puisque|quand|lorsque|qui|pero|porque|"
    r"cuando|aunque|sino|ma|perché|quando|mentre|mas|porque|embora|en|maar|omdat|terwijl|и|но|что|"
    r"потому|когда|если|который|которая)\s)"
)
"""Before such a word, a clause is parted where no sign does."""
_MONTH_AFTER = lazy_pattern(
    r"\s(?:jan|feb|märz|mar|apr|mai|may|jun|jul|aug|sep|okt|oct|nov|dez|dec|\d)", re.IGNORECASE
)
_LAST_WORD = lazy_pattern(r"(\w[\w.]{0,20})\.$")
_ABBREVIATIONS = word_set(
    "mr mrs ms dr prof st vs etc e.g i.e eg ie fig al inc ltd co corp jr sr u.s a.m p.m "
    "dept est jan feb mar apr jun jul aug sep sept oct nov dec attn cf incl excl resp "
    "z.b d.h u.a u.u v.a i.d.r s.o s.u o.ä bzw evtl ggf inkl exkl zzgl bspw sog vgl dipl "
    "p.ex p.ej ej env p.es d.w.z i.p.v bijv m.b.t т.е т.к напр "
    "hr fr dhr mevr mme mlle sra srta sig sig.ra dott dott.ssa avv ing ул просп проф акад"
)
_BEFORE_NUMBERS = word_set(
    "no nos nr tel fax mob p pp pg ch sec sect vol ed ext fig figs art par app ref max min avg "
    "approx abs abt bd kap str ca hsg jh ziff anm pos mio mrd tsd hausnr plz "
    "tél núm num nro tfno pág págs págs ud uds aprox av avda pl cap apdo env réf éd "
    "pag blz ong ca n тел г д кв стр корп рис гл ст п пп пом оф каб тыс млн млрд №"
)
"""Abbreviations where a number follows; elsewhere some are words that end a sentence."""
_NUMBER_AFTER = lazy_pattern(r"\s?[+(#№°]?\s?\d|\s(?:[IVX]{1,5}|[A-Z])\b")
_LETTERS_AFTER = lazy_pattern(r"\s?[^\W\d_]{1,2}\.")
_LETTERS_BEFORE = lazy_pattern(r"(?<!\w)[^\W\d_]\. ?[^\W\d_]{1,2}\.$")
_JSON_START = lazy_pattern(r"\s{0,80}(?:\{\s{0,80}\"|\[\s{0,80}[\[{\"])")
_WIDE = lazy_pattern(f"[{HAN}{KANA}{HANGUL}]")
_FORM = lazy_pattern(r"[^\W\d_]+(?:'[^\W\d_]+)*")
# A class that lists its characters is looked at far more quickly.
_FORM_ASCII = lazy_pattern(r"[a-z]+(?:'[a-z]+)*")


def remembered(
    *, longest: int, most: int = 4096
) -> Callable[[Callable[Concatenate[str, How], Found]], Callable[Concatenate[str, How], Found]]:
    """Have a function of a text keep what it returns, which nobody may change, for a while.

    So many texts of at most `longest` characters: each pass over a conversation meets the clauses
    that were kept, and its newest messages, again.
    """

    def decorate(
        work: Callable[Concatenate[str, How], Found],
    ) -> Callable[Concatenate[str, How], Found]:
        # What it is called with is hashable: a text and plain values.
        known = cast(Callable[Concatenate[str, How], Found], lru_cache(maxsize=most)(work))

        @wraps(work)
        def look_up(text: str, /, *args: How.args, **kwargs: How.kwargs) -> Found:
            look = known if len(text) <= longest else work
            return look(text, *args, **kwargs)

        return look_up

    return decorate


@lru_cache(maxsize=1024)
def words_in(text: str) -> frozenset[str]:
    """The words of a text, casefolded: for a quick look before a slow pattern is tried."""
    if text.isascii():
        return frozenset(_FORM_ASCII.findall(text.lower()))
    return frozenset(_FORM.findall(text.casefold().replace("’", "'")))


def fold(text: str) -> str:
    """The text with every run of white space as one space, and none at its ends."""
    return " ".join(text.split())


def encodable(text: str) -> str:
    """The text without lone surrogates, which no tokenizer and no database accepts."""
    if text.isascii():
        return text
    return text.encode("utf-8", "ignore").decode("utf-8")


def line_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where the lines of a text that are not blank stand; unprintable characters end one, too."""
    for match in _LINE.finditer(text):
        yield match.span()


def split_lines(text: str) -> Iterator[str]:
    """The folded lines of a text that are not blank."""
    return (fold(text[start:end]) for start, end in line_spans(text))


def printable(text: str) -> str:
    """The text in one line, without what can neither be printed nor stored."""
    return " ".join(split_lines(encodable(text)))


def sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where the sentences of a text stand, without list markers and white space at their ends."""
    ends = _END_ASCII if text.isascii() else _END
    for line in _LINE.finditer(text):
        start, last = line.span()
        if text[start] in _BULLET_STARTS or text[start].isdecimal():
            start = _without_bullet(text, start, last)
        for match in ends.finditer(text, start, last):
            end = match.end()
            if text[match.start()] == "." and _is_abbreviation(text, start, match.start() + 1):
                continue
            # What ends a sentence is no white space, and no sentence begins with any.
            yield (start, end) if start < end else _stripped(text, start, end)
            start = end
            while start < last and text[start].isspace():
                start += 1
            if start < last and (text[start] in _BULLET_STARTS or text[start].isdecimal()):
                start = _without_bullet(text, start, last)
        if start < last:
            yield start, last


def clause_spans(
    text: str, start: int, end: int, *, longest: int, farther: int = 0
) -> Iterator[tuple[int, int]]:
    """Where the pieces of a sentence stand that have at most `longest` characters.

    It is parted at a clause, else at a space, else anywhere. So many characters `farther` a piece
    may go on to the end of its clause. Chinese says as much in half as many.
    """
    # Most are shorter than what even Chinese is parted at, and stand between no white space.
    if 2 * (end - start) <= longest:
        if start < end and not (text[start].isspace() or text[end - 1].isspace()):
            yield start, end
            return
    else:
        piece = text[start:end]
        wide = not piece.isascii() and 2 * len(_WIDE.findall(piece)) > end - start
        longest, farther = (longest // 2, farther // 2) if wide else (longest, farther)
        while end - start > longest:
            cut = _cut(text, start, end, longest, farther)
            first, last = _stripped(text, start, cut)
            if first < last:
                yield first, last
            start = cut
    first, last = _stripped(text, start, end)
    if first < last:
        yield first, last


def is_joined(clause: str) -> bool:
    """Whether a clause begins with a word that joins it to the one before it."""
    return bool(_JOINING.match(f" {clause}"))


def split_sentences(text: str) -> Iterator[str]:
    """The sentences of a text, folded, without list markers, at most MAX_SENTENCE_CHARACTERS."""
    for start, end in sentence_spans(text):
        for first, last in clause_spans(text, start, end, longest=MAX_SENTENCE_CHARACTERS):
            yield fold(text[first:last])


def is_json(text: str) -> bool:
    """Whether a text looks like JSON, be it whole or cut off."""
    return bool(_JSON_START.match(text))


def without_bullet(line: str) -> str:
    """The line without the list, quotation or heading markers it starts with."""
    return line[_without_bullet(line, 0, len(line)) :]


def _without_bullet(text: str, start: int, end: int) -> int:
    while start < end and (text[start] in _BULLET_STARTS or text[start].isdecimal()):
        match = _BULLET.match(text, start, end)
        if match is None:
            break
        start = match.end()
    return start


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span without white space at its ends."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, max(start, end)


def shorten(text: str, limit: int) -> str:
    """The text, or its first words and an ellipsis: at most `limit` characters and at least one."""
    if len(text) <= limit:
        return text
    head = text[: max(1, limit - 1)]
    space = head.rfind(" ")
    if space > limit // 2:
        head = head[:space]
    return head.rstrip() + ELLIPSIS if limit > 1 else head


def _is_abbreviation(line: str, start: int, end: int) -> bool:
    word = _LAST_WORD.search(line[max(start, end - 12) : end])
    if not word:
        return False
    if word[1].isdigit() and len(word[1]) < 3:
        # "am 12. März": an ordinal number, and no end.
        return bool(_MONTH_AFTER.match(line, end))
    found = word[1].casefold()
    if found in _ABBREVIATIONS or (len(found) == 1 and word[1].isupper()):
        return True
    if found in _BEFORE_NUMBERS and _NUMBER_AFTER.match(line, end):
        return True
    # "z. B.", "p. ej.", "т. е.": letters apart.
    is_first = len(found) == 1 and bool(_LETTERS_AFTER.match(line, end))
    return is_first or bool(_LETTERS_BEFORE.search(line, max(start, end - 8), end))


def _cut(text: str, start: int, end: int, longest: int, farther: int) -> int:
    """Return where to part: at the last clause end in reach, else before a word that joins clauses.

    Without either, at the first of them behind it, a little farther on: half a phrase says little.
    Else at a space, else anywhere.
    """
    low, high = start + int(longest * SMALLEST_SHARE), start + longest
    clause = _last_end(_CLAUSE_END, text, low, high) or _last_end(_JOINING, text, low, high)
    if clause:
        return clause
    far = min(end, high + farther)
    places = (one.search(text, high - 1, far) for one in (_CLAUSE_END, _JOINING))
    nearest = min((place.end() for place in places if place), default=0)
    if nearest or (far == end and farther):
        return nearest or end
    return text.rfind(" ", low, high) + 1 or high


def _last_end(pattern: re.Pattern[str], text: str, low: int, high: int) -> int:
    found = 0
    for match in pattern.finditer(text, low, high):
        found = match.end()
    return found
