"""What a sentence contains that is worth keeping: identifiers, numbers, names and words, weighed.

No dictionary and no corpus: identifiers and numbers are told by their shape, names by their
capitals (and by never being written small), Chinese by pairs of characters.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass
from itertools import pairwise

from compaction.engine.extractive.sentences import HAN, KANA, word_set

REFERENCE_WEIGHT = 20.0
"""MK-2417: somebody will ask for exactly this string."""
CODE_WEIGHT = 10.0
"""OF-SCM-W07, LC-SM420, IP66: part numbers and the like."""
IDENTIFIER_WEIGHT = 8.0
"""Mail addresses, handles, hashes, long digit runs. The second of a sentence weighs half."""
PATH_WEIGHT = 4.0
NUMBER_WEIGHT = 3.0
NAME_WEIGHT = 3.0
NUMBER_WORD_WEIGHT = 1.5
WORD_WEIGHT = 1.0
CHINESE_PAIR_WEIGHT = 0.6
NEIGHBOURS_WEIGHT = 0.7
"""Two words in a row: `owner Bob` is news even where `owner Ann` and `Bob` were said."""

_LETTER = rf"[^\W{HAN}{KANA}]"
_TOKEN = re.compile(
    r"(?P<url>https?://[^\s<>\"'，。；）)\]】]{1,200})"
    r"|(?P<mail>[A-Za-z0-9_.+-]{1,64}@[A-Za-z0-9-]{1,64}\.[A-Za-z0-9.-]{1,64})"
    r"|(?P<path>(?:[A-Za-z0-9_~.-]{0,64}[/\\]){1,12}[A-Za-z0-9_-]{1,64}\.[A-Za-z]\w{0,5})"
    r"|(?P<handle>@[A-Za-z][\w.]{2,40})"
    rf"|(?P<word>{_LETTER}+(?:[-./:'’&+#]{_LETTER}+)*)"
    rf"|(?P<cjk>[{HAN}{KANA}]+)"
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_QUANTITY = re.compile(r"\d[\d.,:/-]*-?[A-Za-z]{0,12}")
_CODE = re.compile(r"(?=[^A-Z]*[A-Z])(?=(?:\D*\d){2})[A-Z0-9][A-Z0-9_./#:-]{3,}")
_SHORT_CODE = re.compile(r"[A-Z]{2,10}-\d+")
_REFERENCE = re.compile(r"[A-Z]{2,6}-\d{4,}")
_HEXADECIMAL = re.compile(r"(?=[a-f-]*\d)(?=[0-9-]*[a-f])[0-9a-f-]{7,}")
_DIGITS = re.compile(r"\d{6,}|\d{3,}(?:-\d{3,})+")
_MIXED = re.compile(r"(?=[^_-]*[_-])(?=(?:\D*\d){3})[A-Za-z]\w*(?:-\w+)*")
_CAMEL = re.compile(r"[a-z][A-Z]|_")
_LETTERS = re.compile(rf"[^\W\d_{HAN}{KANA}]{{2,40}}")
_SPLIT = re.compile(r"[-./:'’&+#]+")
FIRST_WIDE_CHARACTER = "\u2e80"
_CHINESE_FILLERS = frozenset("的了是在和有就不也都很我你他她它这那们个吗呢吧啊把被与及请要会能可")
_SENTENCE_START = re.compile(r"[\s\"'“‘(\[*-]*")

STOP_WORDS = word_set(
    "a about above actually after again all almost also although always am an and another any "
    "anyone anything are around as at away back be because been before being below between both "
    "but by came can come could did do does doing done down each either else enough especially "
    "even ever every everything few for from further get gets getting give given go goes going "
    "gone good got great had has have having he her here hers him his how however i if in into is "
    "it its itself just keep kind know last least less let like likely little look lot lots made "
    "make makes many may maybe me might mine more most much must my myself need never new next no "
    "nor not nothing now of off often on once one only onto or other others our ours out over own "
    "perhaps please put quite rather really right said same say see seem seems shall she should "
    "since so some someone something soon sort still such sure take than that the their theirs "
    "them then there these they thing things think this those though through time to together too "
    "try under until up upon us use used very want was way we well went were what whatever when "
    "where whether which while who whole whom whose why will with within without won would yes "
    "yet you your yours yourself don't doesn't didn't i'm i've i'd i'll it's that's there's "
    "you're you've you'll we're we've we'll they're they've isn't wasn't aren't can't couldn't "
    "won't wouldn't shouldn't haven't hasn't ok okay hey hi hello thanks thank"
)
_NUMBER_WORDS = word_set(
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred "
    "thousand million billion half dozen twice first second third monday tuesday wednesday "
    "thursday friday saturday sunday january february march april june july august september "
    "october november december today tomorrow yesterday tonight"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The weighed terms of one sentence; `identifiers` are those to be kept literally."""

    weights: dict[str, float]
    codes: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()
    numbers: int = 0


def small_words(texts: Iterable[str]) -> frozenset[str]:
    """The words that occur in small letters: written large, they only start a sentence."""
    words: set[str] = set()
    for text in texts:
        words.update(word for word in _LETTERS.findall(text) if word.islower())
    return frozenset(words)


def extract_terms(sentence: str, *, small: Container[str] = ()) -> Terms:
    """The terms of a sentence of bounded length, each once, with what keeping it is worth."""
    weights: dict[str, float] = {}
    codes: list[str] = []
    identifiers: list[str] = []
    numbers = 0
    start = _SENTENCE_START.match(sentence)
    beginning = start.end() if start else 0
    for match in _TOKEN.finditer(sentence):
        token, shape = match[0].rstrip("_") or match[0], match.lastgroup
        if shape == "cjk":
            _add_pairs(token, weights)
        elif shape == "mail" or shape == "handle":
            identifiers.append(token)
            weights[token.casefold()] = IDENTIFIER_WEIGHT
        elif shape in ("url", "path"):
            weights[token.casefold()] = PATH_WEIGHT
        elif not any(character.isdigit() for character in token):
            _add_word(token, weights, starts=match.start() == beginning, small=small)
        elif is_code(token):
            codes.append(token)
            weights[token.casefold()] = _code_weight(token) / len(codes)
        elif is_identifier(token):
            identifiers.append(token)
            weights[token.casefold()] = IDENTIFIER_WEIGHT / len(identifiers)
        else:
            numbers += 1
            weights[token.casefold()] = NUMBER_WEIGHT
    _add_neighbours(weights)
    return Terms(
        weights=weights, codes=tuple(codes), identifiers=tuple(identifiers), numbers=numbers
    )


def is_code(token: str) -> bool:
    """Whether a token has the shape of a ticket, order or part number: capitals and digits."""
    if _SHORT_CODE.fullmatch(token):
        return True
    return bool(_CODE.fullmatch(token)) and not _is_quantity(token)


def is_identifier(token: str) -> bool:
    """Whether a token is a hash, a long number or a name with digits such as `user_1237`."""
    if _is_quantity(token) and not _DIGITS.fullmatch(token):
        return False
    return any(shape.fullmatch(token) for shape in (_DIGITS, _HEXADECIMAL, _MIXED))


def is_reference_number(token: str) -> bool:
    """Whether a code is of the kind people ask for: letters, a hyphen, four digits or more."""
    return bool(_REFERENCE.fullmatch(token))


def is_bare_identifier(text: str) -> bool:
    """Whether a text is one code or identifier and nothing else."""
    if not text or " " in text:
        return False
    terms = extract_terms(text)
    return text in terms.codes or text in terms.identifiers


def _is_quantity(token: str) -> bool:
    return bool(_QUANTITY.fullmatch(token) or _DATE.match(token))


def _code_weight(code: str) -> float:
    return REFERENCE_WEIGHT if is_reference_number(code) else CODE_WEIGHT


def _add_neighbours(weights: dict[str, float]) -> None:
    words = [term for term in weights if term[0] < FIRST_WIDE_CHARACTER]
    for first, second in pairwise(words):
        weights[f"{first} {second}"] = NEIGHBOURS_WEIGHT


def _add_pairs(run: str, weights: dict[str, float]) -> None:
    for first, second in pairwise(run):
        if first not in _CHINESE_FILLERS and second not in _CHINESE_FILLERS:
            weights[first + second] = CHINESE_PAIR_WEIGHT


def _add_word(
    token: str, weights: dict[str, float], *, starts: bool, small: Container[str]
) -> None:
    word = token.casefold()
    if word in STOP_WORDS:
        return
    if word in _NUMBER_WORDS:
        weights[word] = NUMBER_WORD_WEIGHT
    elif (token.isupper() and len(token) > 2) or _CAMEL.search(token):
        weights[word] = NAME_WEIGHT
    elif token[0].isupper() and (not starts or word not in small):
        weights[word] = NAME_WEIGHT if not starts else (NAME_WEIGHT + WORD_WEIGHT) / 2
    else:
        for part in _SPLIT.split(word):
            if len(part) > 2 and part not in STOP_WORDS:
                weights[part] = WORD_WEIGHT
