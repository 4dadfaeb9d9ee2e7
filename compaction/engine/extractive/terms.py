"""What a clause says, as weighed terms: the things that it names, and its words.

No dictionary and no corpus. What a text names is told by its form (compaction.engine.fidelity),
Chinese, Japanese and Korean by pairs of characters; how rare a term is, by this conversation alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.sentences import HAN, HANGUL, KANA, word_set

ENTITY_WEIGHT = 9.0
"""One weight for whatever a clause names: 24 ways of writing a code are worth the same."""
WORD_WEIGHT = 1.0
PAIR_WEIGHT = 0.5
"""Two neighbouring characters of a script without spaces: about half of a word."""

_WORD = lazy_pattern(rf"[^\W\d_{HAN}{KANA}{HANGUL}]{{3,40}}(?:['’-][^\W\d_]{{1,40}})*")
# A class that lists its characters is looked at far more quickly.
_WORD_ASCII = lazy_pattern(r"[a-z]{3,40}(?:['-][a-z]{1,40})*")
_WIDE_RUN = lazy_pattern(f"[{HAN}{KANA}{HANGUL}]{{2,}}")
_FILLERS = frozenset(
    "的了是在和有就不也都很我你他她它这那们个吗呢吧啊把被与及请要会能可のにはをがでともへやかねよ은는이가을를에의도로"
)
_NOUNS = frozenset({"会议", "会議", "机会", "要求", "要点", "社会"})
"""With a character that is a filler elsewhere: what a talk about a meeting is about."""

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

# Characters of a clause whose words are remembered for a while.
LONGEST_REMEMBERED = 400


def words_of(text: str) -> list[str]:
    """Return the words of a clause that are no stop words, casefolded, in order."""
    return list(_remembered(text) if len(text) <= LONGEST_REMEMBERED else _looked_for(text))


@lru_cache(maxsize=4096)
def _remembered(text: str) -> tuple[str, ...]:
    """Return the words of a clause: each pass over a conversation meets the kept ones again."""
    return tuple(_looked_for(text))


def _looked_for(text: str) -> list[str]:
    if text.isascii():
        found = _WORD_ASCII.findall(text.lower())
    else:
        found = [word.casefold() for word in _WORD.findall(text)]
    return [word for word in found if word not in STOP_WORDS]


def pairs_of(text: str) -> list[str]:
    """Return the neighbouring characters of Chinese, Japanese and Korean that carry meaning."""
    if text.isascii():
        return []
    return [
        run[index : index + 2]
        for run in _WIDE_RUN.findall(text)
        for index in range(len(run) - 1)
        if run[index : index + 2] in _NOUNS
        or (run[index] not in _FILLERS and run[index + 1] not in _FILLERS)
    ]


def terms_of(text: str, entities: Iterable[str]) -> dict[str, float]:
    """Return the terms of a clause, each once, with what it weighs before rarity is looked at."""
    terms = {} if text.isascii() else dict.fromkeys(pairs_of(text), PAIR_WEIGHT)
    terms.update(dict.fromkeys(words_of(text), WORD_WEIGHT))
    terms.update(dict.fromkeys(entities, ENTITY_WEIGHT))
    return terms


def rarity(documents: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return for each term how rare it is among the clauses of this conversation: log(1 + N/n)."""
    # One long row is counted many times more quickly than many short ones.
    counts = Counter(chain.from_iterable(documents))
    whole = len(documents) + 1
    rarities = {count: math.log(1 + whole / count) for count in set(counts.values())}
    return {term: rarities[count] for term, count in counts.items()}
