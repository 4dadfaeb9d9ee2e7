"""What a text names exactly: addresses, paths, identifiers, dates, numbers and names.

No dictionary of shapes that somebody's codes happen to have: a token is an identifier because it
mixes digits with letters or has a form that words do not have. Names are told by their capitals,
where the script has them, and by quotation marks where it has none.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from functools import lru_cache
from typing import NamedTuple

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.sentences import HAN, HANGUL, KANA

URL, MAIL, PATH, IDENTIFIER = "url", "mail", "path", "identifier"
DATE, NUMBER, NAME = "date", "number", "name"

# What an entity of a kind is worth in the measures; the least forgiving kinds count most.
KIND_WEIGHTS = {URL: 2.0, MAIL: 2.0, PATH: 2.0, IDENTIFIER: 3.0, DATE: 2.0, NAME: 2.0, NUMBER: 1.0}

_LETTER = rf"[^\W\d_{HAN}{KANA}{HANGUL}]"
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?|januar|februar|märz|mai|juni|"
    r"juli|oktober|dezember|enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|"
    r"noviembre|diciembre|janvier|février|mars|avril|juin|juillet|août|septembre|octobre|novembre|"
    r"décembre|января|февраля|марта|апреля|мая|июня|июля|августа|сентября|октября|ноября|декабря)"
)
_MONTHS_BEGIN = "adefjmnosадимносфя"
# No token begins with one of these, and none that began goes on with one.
_APART = r"[^\w\s~./\\@+$€£¥₽₹:'’&#%‰-]"


def _tokens(*, first: str, part: str, apart: str) -> re.Pattern[str]:
    """Return what finds tokens: words of characters that are a `part`, the `first` of them too.

    Ordinary words are passed over without a look at each, and so is what stands `apart` from all
    tokens; then comes a token, or any other character.
    """
    return lazy_pattern(
        r"(?:[a-z]++(?:['’-][a-z]++)*+(?:\s++|[,.;:!?)\"]++(?:\s++|$)|(?=" + apart + r"))"
        rf"|{apart}++|\s++)*+(?:"
        r"(?P<url>\bhttps?://[^\s<>\"'`，。；）)\]】]{1,300})"
        r"|(?P<mail>[A-Za-z0-9_.+-]{1,64}+@[A-Za-z0-9-]{1,64}(?:\.[A-Za-z0-9-]{1,64}){1,5})"
        # Nearly no token begins with a digit or with a month's first letter: one look tells.
        r"|(?P<date>(?=\d)(?:\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?"
        r"|\d{1,2}[./]\d{1,2}[./]\d{2,4}(?!\d)"
        rf"|\b\d{{1,2}}(?:st|nd|rd|th|\.)? (?:of |de )?(?i:{_MONTH})\b(?:,? \d{{4}}\b)?"
        r"|(?:\d{4}年)?\d{1,2}月\d{1,2}[日号]"
        r"|(?<![\d:])\d{1,2}:\d\d(?::\d\d)?(?:\s?(?i:[ap]\.?m)\b\.?)?"
        r"|\b\d{1,2}\s?(?i:[ap]\.?m)\b\.?)"
        rf"|\b(?i:(?=[{_MONTHS_BEGIN}]){_MONTH})\.? \d{{1,2}}(?:st|nd|rd|th)?\b(?!:)"
        r"(?:,? \d{4}\b)?)"
        r"|(?P<path>(?:~|\.{1,2}|[A-Za-z]:)?"
        r"(?:[A-Za-z0-9_.@+-]{0,80}+[/\\]){1,12}[A-Za-z0-9_.@+-]{1,80}"
        r"|\b[A-Za-z0-9_-]{1,60}+\.(?:py|js|ts|tsx|md|json|ya?ml|toml|txt|csv|html?|css|sh|sql|go|"
        r"rs|java|cpp|h|rb|php|cfg|ini|lock|log|pdf|docx?|xlsx?|png|jpe?g|zip)\b)"
        r"|(?P<money>[$€£¥₽₹]\s?\d[\d.,\u00a0\u202f]*"
        r"(?:\s?(?i:[kmb]|million|billion|trillion)\b)?)"
        rf"|(?P<word>{first}(?:{part}|[-.:'’&+#@](?={part})"
        r"|(?<=\d)[,\u00a0\u202f](?=\d{3}(?!\d)))*[%‰]?)"
        rf"|[{HAN}{KANA}{HANGUL}]++|\S|$)"
    )


_TOKEN = _tokens(
    first=rf"[^\W_{HAN}{KANA}{HANGUL}]", part=rf"[^\W{HAN}{KANA}{HANGUL}]", apart=_APART
)
# The same for a text of ASCII: a class that lists its characters is looked at far more quickly.
_TOKEN_ASCII = _tokens(
    first="[A-Za-z0-9]", part="[A-Za-z0-9_]", apart=r"[\x00-\x08\x0e-\x1b!\"()*,;<=>?[\]^`{|}\x7f]"
)
_WIDE = lazy_pattern(f"[{HAN}{KANA}{HANGUL}]")
_QUOTED = lazy_pattern(r"[《「『“]([^《》「」『』“”\n]{2,40})[》」』”]")
_PURE_NUMBER = lazy_pattern(
    r"[\d.,:\u00a0\u202f]+(?:%|‰|st|nd|rd|th|s|x|k|m|mm|cm|km|kg|g|mg|ml|l|gb|mb|kb|tb|ms|min|h|hz|"
    r"ghz|px|eur|usd|bn)?(?:-(?:day|year|month|week|hour|minute|minutes|person|page|point))?$",
    re.IGNORECASE,
)
LONG_NUMBER = 7
"""A number of so many digits, and no separator, is a code."""
_LONG_DIGITS = lazy_pattern(r"\d{2,}(?:-\d{2,}){2,}")
_DIGIT = lazy_pattern(r"\d")
_FORMULA = lazy_pattern(r"[a-z][-+]\d{1,2}|\d{1,3}:[a-z]+")
"""`n-1` and `7:version`: a step of a count, and a word behind its number in a listing."""
_CAMEL = lazy_pattern(r"[a-z][A-Z]|[A-Za-z]_[A-Za-z]")
_SENTENCE_BREAK = lazy_pattern(
    r"(?:^|[.!?:;。！？\n•*#>\"“„‘‚«‹「『(\[|-]|(?<=\s)')\s{0,8}[\"'“„‘‚«‹(\[*_#>-]{0,8}\s{0,8}$"
)
_BETWEEN_NAMES = lazy_pattern(r" (?:(?:of|de|the|von|van|del|la|di|du) )?\Z|-\Z")
_TRAILING = ".,:;!?'’-&+#"
MAX_NAME_WORDS = 4
_NO_NAMES = {
    *("I", "OK", "Ok"),
    *(f"I{mark}{end}" for mark in "'’" for end in ("m", "ve", "d", "ll")),
}
# Characters of a text whose entities are remembered for a while.
LONGEST_REMEMBERED = 400


class Entity(NamedTuple):
    """One thing that a text names, where it stands, and its `key`: the form to compare by."""

    kind: str
    text: str
    key: str
    start: int
    end: int


def key_of(text: str) -> str:
    """Return the form in which two spellings of an entity are the same."""
    if text.isascii():
        return text.lower().strip(_TRAILING)
    return text.casefold().replace("\u00a0", " ").replace("\u202f", " ").strip(_TRAILING)


def find_entities(text: str, *, small: Container[str] = ()) -> list[Entity]:
    """Return the entities of a text in the order in which they stand, in one pass.

    `small` are words that are written small elsewhere: at the start of a sentence they are no
    names. A name of several words is one entity.
    """
    if small or len(text) > LONGEST_REMEMBERED:
        return _looked_for(text, small)
    return list(_remembered(text))


@lru_cache(maxsize=4096)
def _remembered(text: str) -> tuple[Entity, ...]:
    """Return the entities of a clause: each pass over a conversation meets the kept ones again."""
    return tuple(_looked_for(text, ()))


def _looked_for(text: str, small: Container[str]) -> list[Entity]:
    found: list[Entity] = []
    tokens = _TOKEN_ASCII if text.isascii() else _TOKEN
    for match in tokens.finditer(text):
        shape = match.lastgroup
        if shape is None:
            continue
        token = match[shape].rstrip(_TRAILING)
        # Most are ordinary words behind all.
        if not token or (token.isalpha() and token.islower()):
            continue
        start = match.start(shape)
        end = start + len(token)
        if shape == "word" or (shape == PATH and not _is_path(token)):
            kind = _of_token(token, text, start, small)
            if not kind:
                continue
        else:
            kind = _KINDS[shape]
        if kind == NAME and found and _continues(found[-1], text, start):
            start = found.pop().start
            token = text[start:end]
        found.append(Entity(kind, token, key_of(token), start, end))
    if not text.isascii():
        found += _quoted(text)
        found.sort(key=lambda one: one.start)
    return [one for one in found if one.key]


_KINDS = {"url": URL, "mail": MAIL, "date": DATE, "money": NUMBER, "path": PATH}


def _is_path(token: str) -> bool:
    if "/" not in token and "\\" not in token:
        return True
    parts = [part for part in re.split(r"[/\\]", token) if part]
    if not parts:
        return False
    # `and/or`, `24/7`, `km/h` are words; a path has a root, a dot or three parts.
    return (
        token[0] in "/~."
        or "." in parts[-1].strip(".")
        or len(parts) > 2
        or any(one in part for part in parts for one in "_.")
    ) and any(character.isalpha() for character in token)


def _of_token(token: str, text: str, start: int, small: Container[str]) -> str:
    """Return the kind of a token; empty for an ordinary word."""
    is_plain = token.isalpha()
    if token.isdecimal():
        return IDENTIFIER if len(token) >= LONG_NUMBER else NUMBER
    if not is_plain and _DIGIT.search(token):
        if _LONG_DIGITS.fullmatch(token):
            return IDENTIFIER
        if _FORMULA.fullmatch(token):
            return ""
        return NUMBER if _PURE_NUMBER.match(token) or "/" in token else IDENTIFIER
    # Nearly all words are small behind their first letter: no pattern need look at them.
    is_camel = not token[1:].islower() and bool(_CAMEL.search(token))
    if "_" in token or "::" in token or (is_camel and token[0].islower()):
        return IDENTIFIER
    if len(token) < 2 or not token[0].isupper():
        return ""
    if is_camel:
        return NAME
    starts = _starts_sentence(text, start) and not _is_title(text, start, token)
    if starts and (token.casefold() in small or not token.isupper()):
        # Alone at the start of a sentence, capitals say nothing.
        return (
            NAME if token.casefold() not in small and _next_is_capital(text, start, token) else ""
        )
    return "" if token in _NO_NAMES else NAME


def _starts_sentence(text: str, start: int) -> bool:
    if start > 1 and text[start - 1] == " " and text[start - 2].isalpha():
        return False
    return start == 0 or bool(_SENTENCE_BREAK.search(text, max(0, start - 8), start))


def _is_title(text: str, start: int, token: str) -> bool:
    """Whether a word stands alone in single quotation marks: ‘Dune’."""
    end = start + len(token)
    return text[start - 1 : start] in ("‘", "'") and text[end : end + 1] in ("’", "'")


def _next_is_capital(text: str, start: int, token: str) -> bool:
    after = start + len(token)
    return (
        text[after : after + 1] == " "
        and text[after + 1 : after + 2].isupper()
        and (text[after + 1 : after + 3] not in ("I ", "I'", "I’"))
    )


def _continues(previous: Entity, text: str, start: int) -> bool:
    between = text[previous.end : start]
    return (
        previous.kind == NAME
        and bool(_BETWEEN_NAMES.fullmatch(between))
        and previous.text.count(" ") + 1 < MAX_NAME_WORDS
    )


def _quoted(text: str) -> list[Entity]:
    """Return what stands in Chinese or Japanese quotation marks: the names of books and places."""
    return [
        Entity(NAME, match[1], key_of(match[1]), match.start(1), match.end(1))
        for match in _QUOTED.finditer(text)
        if _WIDE.search(match[1])
    ]


def small_words(texts: Iterable[str]) -> frozenset[str]:
    """Return the words that occur in small letters: written large, they only start a sentence."""
    words: set[str] = set()
    for text in texts:
        words.update((_WORDS_ASCII if text.isascii() else _WORDS).findall(text))
    return frozenset(filter(str.islower, words))


_WORDS = lazy_pattern(rf"{_LETTER}{{2,40}}")
_WORDS_ASCII = lazy_pattern("[A-Za-z]{2,40}")
