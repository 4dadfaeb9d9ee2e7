"""Text cut into sentences, without a model and in one pass.

Everything returned is a piece of the text as it stands, with runs of white space folded into one
space: nothing is rewritten. All patterns look at a bounded number of characters, so that a
megabyte without a single space costs no more than any other megabyte.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

MAX_SENTENCE_CHARACTERS = 220
"""A longer sentence is parted at a clause, else at a space, else anywhere."""
MAX_CHINESE_CHARACTERS = 110
"""The same for a sentence that is mainly Chinese, where every character is a token."""

MIN_CLAUSE_CHARACTERS = 50
ELLIPSIS = "…"

HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
KANA = "\u3040-\u30ff\u31f0-\u31ff"
HANGUL = "\u1100-\u11ff\uac00-\ud7af"


def word_set(words: str) -> frozenset[str]:
    """The words of a text that lists them with spaces between."""
    return frozenset(words.split())


_UNPRINTABLE = re.compile(r"[\x00-\x08\x0e-\x1b\x7f\ud800-\udfff\ufffe\uffff]+")
_END = re.compile(
    r"[.!?][\"'”’)\]*]{0,3}(?=\s)"
    r"|[。！？；][”’」』）]{0,2}(?=[^.!?。！？；”’」』）])"
    rf"|[!?](?=[{HAN}{KANA}])"
)
_BULLET = re.compile(r"(?:[-*•+>|#]{1,6}\s+|\d{1,3}[.)]\s+|\[[ xX]\]\s+)")
_CLAUSE_END = re.compile(r"[;；，、：]|[,:](?=\s)|\s?[—–]|\s-\s")
_LAST_WORD = re.compile(r"(\w[\w.]*)\.$")
_ABBREVIATIONS = word_set(
    "mr mrs ms dr prof st no vs etc e.g i.e eg ie fig al inc ltd co corp approx jr sr u.s a.m p.m "
    "dept est jan feb mar apr jun jul aug sep sept oct nov dec"
)
_JSON_START = re.compile(r"\s{0,80}(?:\{\s{0,80}\"|\[\s{0,80}[\[{\"])")
_BRACKETS = re.compile(r"[\[\]{}]+")
_DANGLING_KEY = re.compile(r"(?:^|, ?)\"[^\"]{1,60}\":$")
_HAN = re.compile(f"[{HAN}]")
_KANA_OR_HANGUL = re.compile(f"[{KANA}{HANGUL}]")
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f]")

LATIN_LETTERS_PER_HAN = 3
"""A Chinese character says about as much as three letters: the measure for `mainly`."""


def fold(text: str) -> str:
    """The text with every run of white space as one space, and none at its ends."""
    return " ".join(text.split())


def encodable(text: str) -> str:
    """The text without lone surrogates, which no tokenizer and no database accepts."""
    if text.isascii():
        return text
    return text.encode("utf-8", "ignore").decode("utf-8")


def split_lines(text: str) -> Iterator[str]:
    """The folded lines of a text that are not blank; unprintable characters end a line, too."""
    for line in text.splitlines():
        for part in _UNPRINTABLE.split(line):
            if folded := fold(part):
                yield folded


def split_sentences(text: str) -> Iterator[str]:
    """The sentences of a text, folded, without list markers, at most MAX_SENTENCE_CHARACTERS."""
    for line in split_lines(text):
        for sentence in _sentences_of_line(without_bullet(line)):
            yield from split_long(sentence)


def split_fields(text: str) -> Iterator[str]:
    """The pieces of a JSON text, object by object, without the brackets around them."""
    for line in split_lines(text):
        for inside in _BRACKETS.split(line):
            piece = _DANGLING_KEY.sub("", inside.strip(" ,")).strip(" ,:")
            for part in split_long(piece):
                yield part.strip(" ,:")


def is_json(text: str) -> bool:
    """Whether a text looks like JSON, be it whole or cut off."""
    return bool(_JSON_START.match(text))


def without_bullet(line: str) -> str:
    """The line without the list, quotation or heading markers it starts with."""
    start = 0
    while match := _BULLET.match(line, start):
        start = match.end()
    return line[start:]


def split_long(sentence: str) -> Iterator[str]:
    """The sentence itself, or its pieces when it has more than MAX_SENTENCE_CHARACTERS."""
    start, longest = 0, _longest(sentence)
    while len(sentence) - start > longest:
        end = _cut(sentence, start, longest)
        if piece := sentence[start:end].strip():
            yield piece
        start = end
    if piece := sentence[start:].strip():
        yield piece


def shorten(text: str, limit: int) -> str:
    """The text, or its first words and an ellipsis: at most `limit` characters and at least one."""
    if len(text) <= limit:
        return text
    head = text[: max(1, limit - 1)]
    space = head.rfind(" ")
    if space > limit // 2:
        head = head[:space]
    return head.rstrip() + ELLIPSIS if limit > 1 else head


def is_mainly_chinese(texts: Iterable[str]) -> bool:
    """Whether Chinese characters carry most of the texts; Japanese and Korean are not Chinese."""
    han = other = latin = 0
    for text in texts:
        if text.isascii():
            latin += len(_LATIN.findall(text))
            continue
        han += len(_HAN.findall(text))
        other += len(_KANA_OR_HANGUL.findall(text))
        latin += len(_LATIN.findall(text))
    return han > 0 and other * 10 < han and han * LATIN_LETTERS_PER_HAN >= latin


def _sentences_of_line(line: str) -> Iterator[str]:
    start = 0
    for match in _END.finditer(line):
        if match[0][0] == "." and _is_abbreviation(line, start, match.start() + 1):
            continue
        if piece := line[start : match.end()].strip():
            yield piece
        start = match.end()
    if piece := line[start:].strip():
        yield piece


def _is_abbreviation(line: str, start: int, end: int) -> bool:
    word = _LAST_WORD.search(line[max(start, end - 12) : end])
    if not word:
        return False
    return (len(word[1]) == 1 and word[1].isupper()) or word[1].casefold() in _ABBREVIATIONS


def _longest(sentence: str) -> int:
    if len(sentence) <= MAX_CHINESE_CHARACTERS or sentence.isascii():
        return MAX_SENTENCE_CHARACTERS
    mainly = 2 * len(_HAN.findall(sentence)) > len(sentence)
    return MAX_CHINESE_CHARACTERS if mainly else MAX_SENTENCE_CHARACTERS


def _cut(sentence: str, start: int, longest: int) -> int:
    low, high = start + MIN_CLAUSE_CHARACTERS, start + longest
    clause = 0
    for match in _CLAUSE_END.finditer(sentence, low, high):
        clause = match.end()
    return clause or (sentence.rfind(" ", low, high) + 1) or high
