"""Whether a value can be a secret, or only stands where one would be.

A placeholder (`<your-key>`, `${TOKEN}`, `changeme`, `***`) tells nothing, so it stays. Where the
name before a value is weak, the value itself must look drawn by a machine: letters and digits mixed
in one piece, or a long piece that is no word.
"""

from __future__ import annotations

import re
from string import digits
from typing import NamedTuple

from chatapp.messages.patterns import lazy_pattern


class Secret(NamedTuple):
    """Where a secret stands in a text, and which kind of secret it is."""

    start: int
    end: int
    kind: str


MARKER = "[REDACTED:"
# A marker that somebody typed must not shield what stands beside it: values are judged without any.
MARKERS = lazy_pattern(r"\[REDACTED(?:\]|:(?:[a-z-]{1,20}\])?)")
SHORTEST_RANDOM = 8
MOST_PLACEHOLDER_CHARACTERS = 48
SHORTEST_DIGITS = 12
LONGEST_WORD = 20
MOST_LETTERS_A_PART = 3.5
# Names of functions have a number or two, `base64UrlEncoderV2`; what is drawn has more.
FEWEST_NUMBERS = 3
LONGEST_SHORT_PIECE = 3

_FILLERS = frozenset("xX*.-_•…#?0: ")
_VARIABLE = lazy_pattern(
    r"\$[A-Za-z_]\w*|\$?\$[{(\[].*|<.*|\{.*|%[A-Za-z_]\w*%|%\(.*|%[sdr]|\[.*|"
    r"(?:os|process|import|std|env|ENV|secrets|settings|config|self|this|ctx|request|req|vars?|args?|"
    r"options?|params?|props|state|data|response|res|user|event|body|headers?)[.\[(].*"
    r"|(?:get)?env[.(\[].*",
    re.DOTALL,
)
# `sk-…`, `sk-ant-xxxx`: the prefix of a key, and nothing that opens anything.
_MASKED = lazy_pattern(r"(?:[A-Za-z]{1,6}[-_]){0,3}[xX*.…•]{2,}")
_FORMATTED = lazy_pattern(r"[{][^{}\n]{0,60}[}]|<[A-Za-z][^<>\n]{0,60}>|\$\(|%[sdr]\b")
_PLACEHOLDER_WORDS = (
    "your|my|mine|the|an?|some|any|this|that|new|old|test|testing|dummy|fake|example|sample|"
    "placeholder|change|changed|changeit|me|insert|replace|with|here|api|app|keys?|tokens?|secrets?|"
    "password|passwords|passwd|passwort|pwd|pass|passphrase|credentials?|value|string|str|text|bytes|int|"
    "integer|number|bool|boolean|object|function|none|null|nil|true|false|undefined|unknown|required|"
    "optional|hidden|redacted|masked|removed|omitted|empty|missing|invalid|incorrect|wrong|expired|"
    "unset|set|default|todo|fixme|tbd|foo|bar|baz|user|username|name|env|var|variable|enter|type|"
    "input|field|in|of|is|for|client|access|auth|bearer|basic|private|public|id|not|shown|as|same|"
    "provided|given|configured|generated|error|failed|failure|ok|yes|no|on|off|reset|protected|"
    "encrypted|plain|plaintext|hash|hashed|secure|strong|weak|correct|must|should|at|least|be|and|or|"
    "to|from|only|please|never|always|will|are|was|has|have|can|cannot|it|please|valid|model|"
    "authentication|authorization|authorized|based|support|header|json|yaml|list|dict|array|tuple|"
    "union|promise|void|admin_token|compat|files|live|prod|dev|real|actual|goes|used|using|ssh|aws|"
    "github|openai|pw|anthropic|rotated|leaked|deleted|created|updated|stored|sent|received|found"
)
_PLACEHOLDER = lazy_pattern(f"(?:(?:{_PLACEHOLDER_WORDS})[^A-Za-z]*)+")
_PIECE = lazy_pattern(r"[^\-_./:+=~@|\s]+")
_DIGITS = lazy_pattern(r"\d")
_NUMBERS = lazy_pattern(r"\d+")
_LETTERS = lazy_pattern(r"[A-Za-z]")
_PARTS = lazy_pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# `sha256`, `password2` are words with a number.
_NUMBERED_WORD = lazy_pattern(
    r"[A-Za-z]{4,}\d|(?i:sha|md|utf|base|v|u?int|float|oauth|http|rsa|aes|ed|ec|ipv|x|h|p|es|hs|rs)\d{1,5}"
    r"[a-z]{0,2}"
)
_MIXED = (_DIGITS, lazy_pattern(r"[a-z]"), lazy_pattern(r"[A-Z]"))
_PATH = lazy_pattern(r"(?:[~.]{0,2}|[A-Za-z]:)[/\\](?:[\w.-]{1,60}[/\\])+[\w.-]{0,80}")
_FILE = lazy_pattern(
    r"[\w-]{1,80}\.(?:pem|key|crt|cer|pub|txt|json|ya?ml|env|py|js|ts|go|md|html?)"
)
_ADDRESS = lazy_pattern(
    r"0x[0-9a-fA-F]{40}|\d{1,4}(?:[-/.:]\d{1,4}){2,12}|[\w.+-]{1,64}@[\w.-]{1,80}\.\w+"
)
_BETWEEN_WORDS = lazy_pattern(r"[^A-Za-z0-9]+")
_VOWEL = lazy_pattern(r"[aeiouyAEIOUY]")
_OF_A_NAME = lazy_pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_CALL = lazy_pattern(r"[A-Za-z_$][\w$]*(?:(?:\.|->|::|\?\.)[A-Za-z_$][\w$]*)+$")


def is_placeholder(value: str) -> bool:
    """Return whether a value stands where a secret would be, and is none."""
    if _FILLERS.issuperset(value) or _MASKED.fullmatch(value):
        return True
    if _VARIABLE.fullmatch(value) or _FORMATTED.search(value):
        return True
    if not value.isascii() and not any(one.isascii() and one.isalnum() for one in value):
        return True
    if len(value) > MOST_PLACEHOLDER_CHARACTERS or _DIGITS.search(value):
        return False
    return bool(_PLACEHOLDER.fullmatch(value.lower().strip("\"'`_-.:! ")))


def is_reference(value: str) -> bool:
    """Return whether a value is a path, an address, a date or a name out of a program."""
    return bool(
        "://" in value
        or _PATH.fullmatch(value)
        or _FILE.fullmatch(value)
        or _ADDRESS.fullmatch(value)
        or (_CALL.match(value) and not any(map(_is_key, value.split("."))))
    )


def _is_key(piece: str) -> bool:
    """Return whether a piece between dots was drawn: keys of several pieces look like calls."""
    is_mixed = len(piece) >= LONGEST_WORD and all(one.search(piece) for one in _MIXED)
    return is_mixed and len(_NUMBERS.findall(piece)) >= FEWEST_NUMBERS


def looks_random(value: str) -> bool:
    """Return whether a machine drew this value: no words, no number, no reference."""
    if len(value) < SHORTEST_RANDOM or " " in value or is_reference(value):
        return False
    if len(value) >= LONGEST_WORD and all(one.search(value) for one in _MIXED):
        return True
    pieces = _PIECE.findall(value)
    mixed = sum(len(piece) for piece in pieces if _is_mixed(piece))
    return mixed >= SHORTEST_RANDOM or any(_is_drawn(piece) for piece in pieces)


def _is_mixed(piece: str) -> bool:
    has_both = bool(_DIGITS.search(piece) and _LETTERS.search(piece))
    return has_both and not _NUMBERED_WORD.fullmatch(piece)


def _is_drawn(piece: str) -> bool:
    if piece.isdigit():
        return len(piece) >= SHORTEST_DIGITS
    if len(piece) < LONGEST_WORD or not piece.isalpha():
        return False
    # `CredentialCreateParameters` is words; capitals at random make short ones.
    parts = _PARTS.findall(piece)
    return len(parts) < 2 or len(piece) < MOST_LETTERS_A_PART * len(parts)


def reads_as_words(value: str) -> bool:
    """Return whether a value is a name that people made: words, or a file's name.

    Names of functions, classes, reports and files may begin as keys do, and are as long.
    """
    if _FILE.fullmatch(value):
        return True
    return all(_is_word(piece) for piece in _BETWEEN_WORDS.split(value))


def _is_word(piece: str) -> bool:
    """Return whether a piece of a name is one, as `report`, `v2`, `2026` or `ServiceAccounts`."""
    if len(piece) <= LONGEST_SHORT_PIECE:
        return True
    letters = piece.strip(digits)
    if not letters:
        return len(piece) <= SHORTEST_DIGITS
    # A number stands before or behind a word; what a machine draws has digits in its midst.
    parts = _OF_A_NAME.findall(letters)
    is_camel = len(letters) >= MOST_LETTERS_A_PART * len(parts)
    return is_camel and all(_is_spoken(part) for part in parts)


def _is_spoken(part: str) -> bool:
    is_short = part.isupper() and len(part) <= LONGEST_SHORT_PIECE + 1
    return 1 < len(part) <= LONGEST_WORD and bool(is_short or _VOWEL.search(part))
