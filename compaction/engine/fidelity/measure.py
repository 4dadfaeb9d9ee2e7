"""How much of a conversation a summary still knows, told without a model.

What messages name is looked for in the summary, and what the summary names in the messages. All of
it is comparing of texts: the same input gives the same figures, whoever wrote the summary.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any

from compaction.engine.extractive.sentences import encodable
from compaction.engine.extractive.terms import LONGEST_REMEMBERED, pairs_of, words_of
from compaction.engine.fidelity.covered import Covered, tokens_of
from compaction.engine.fidelity.entities import IDENTIFIER, MAIL, NAME, PATH, Entity
from compaction.engine.fidelity.facts import Fact, facts_named, without_marks
from compaction.engine.fidelity.languages import UNKNOWN, language_of
from compaction.engine.fidelity.spellings import Spellings, is_small_count, normal
from compaction.engine.provenance import Unit
from compaction.engine.strategies.acceptance import repeated_share
from compaction.engine.types import Item, TokenCounter

# 3: what the messages have nothing of leaves its weight to the rest of the score. 2: words with
# hyphens, the language of a long text's beginning, Korean particles behind a code.
QUALITY_VERSION = 3
# Of texts of equal size, the better one should hold the answers to more questions about the
# conversation (bfcl_memory). The weight of words was chosen on the customer and finance sets, where
# many answers are ordinary words. On the notetaker set it is better where texts are thinned out
# with filler and slightly worse where they are not. The answers tell little about clauses that are
# only chosen differently: two halves of the questions agree on the order of such texts at 0.1 to
# 0.4. Only users speak there: how entities of users and of all share the rest is set, not fitted.
SHARES = (0.4, 0.2, 0.4)
"""Of the user's entities, of all entities, of the user's words."""
CONTEXT_CHARACTERS = 25
MOST_LOST = 100
MOST_FACTS = 400
MOST_LINES = 1_000
"""So many lines of a summary are looked through for the user's rules."""
RULE_WORDS_SHARE = 0.66
STEM = 5
SHORTEST_CONTENT = 4
"""Shorter words are mostly articles and the like, in all the languages."""
LONGEST_LOOK = 3_000
"""Characters of a summary that tell its language: a model's prose stands before the ledger."""
FEWEST_LETTERS = 60
"""A summary shorter than that is of no language that could be wrong."""

# A key of these kinds is in a text that names it, to the letter.
_SPELLED_ONCE = frozenset({IDENTIFIER, PATH, MAIL})
_DIGITS = re.compile(r"[0-9]+")
_NOT = re.compile(
    r"\b(?:not|never|no|cannot|avoid|without|forbidden|prohibited|nicht|nie|niemals|kein\w*|ne|"
    r"pas|jamais|"
    r"interdit\w*|nunca|prohibid\w*|не|нельзя|никогда|запрещ\w*|non|mai|não|geen|niet|nooit)\b|"
    r"n't\b|\bn'"
    r"|不|别|禁|勿|没|ない|ません|마|금지|않|لا |ممنوع|أبدا"
)
_BOUND = re.compile(
    r"\b(?:must|always|only|ensure|sure|ha(?:ve|s) to|needs? to|required|should|shall|strictly|"
    r"most|least|"
    r"immer|nur|muss|müssen|soll\w*|toujours|seulement|uniquement|doit|doivent|faut|siempre|sólo|"
    r"solo|"
    r"debe\w*|sempre|deve|всегда|только|обязательно|долж\w*)\b"
    r"|必|务|一定|只|仅|一律|应|需|だけ|のみ|반드시|만|يجب|دائما|فقط"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LostFact:
    """One thing that a message names and the summary does not; offsets are code points.

    Both offsets are 0 where it stands in the arguments of a tool call. `weight` is what it counts
    in the measure, `context` what stands around it.
    """

    text: str
    kind: str
    speaker: str
    message: Any
    start: int
    end: int
    context: str
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """What one summary knows. Shares are from 0 to 1, scores from 0 to 100; pairs are kept, all.

    `yardstick` is the score of another text of the same size, 0 where there is none. `words` are
    all words of the conversation by rarity, `user_words` the user's. `unsupported` is what the
    summary names and nobody wrote. `carried` counts what the summary before named: lost, all.
    `cumulative` is the share of everything since the first message, None where nothing was named;
    `named_weight` is what the next summary is given as `named_before`.
    """

    version: int
    score: float
    yardstick: float
    entities: Mapping[str, tuple[int, int]]
    user_entities: tuple[float, float]
    all_entities: tuple[float, float]
    user_identifiers: tuple[int, int]
    words: float
    user_words: float
    rules: tuple[int, int]
    unsupported: tuple[str, ...]
    unsupported_share: float
    repeated: float
    language_matches: bool
    language: str
    compression: float
    carried: tuple[int, int]
    carried_lost: tuple[str, ...]
    cumulative: float | None
    named_weight: float
    lost: tuple[LostFact, ...]
    facts: tuple[tuple[str, bool, float], ...]


def measure(
    text: str,
    *,
    items: Sequence[Item],
    previous: str = "",
    previous_units: Sequence[Unit] = (),
    named_before: float = 0.0,
    instructions: str = "",
    counter: TokenCounter | None = None,
    yardstick_text: str = "",
    entities: Sequence[Sequence[Entity]] | None = None,
) -> Quality:
    """Return what a summary of `items`, which continues `previous`, knows of them.

    `entities` are those of each item's text, where somebody has found them already. Without a
    `counter`, characters are counted for the compression.
    """
    covered = Covered(
        items,
        previous=previous,
        previous_units=previous_units,
        instructions=instructions,
        entities=entities,
    )
    return measure_against(
        text,
        covered,
        named_before=named_before,
        counter=counter,
        yardstick_text=yardstick_text,
    )


def measure_against(
    text: str,
    covered: Covered,
    *,
    named_before: float = 0.0,
    counter: TokenCounter | None = None,
    yardstick_text: str = "",
) -> Quality:
    """Return the same for messages that were read before, for as many texts as there are."""
    found = Findings(text, covered)
    if yardstick_text == text:
        yardstick = found.score if text.strip() else 0.0
    else:
        yardstick = Findings(yardstick_text, covered).score if yardstick_text.strip() else 0.0
    carried = [fact for fact in covered.carried if not is_small_count(fact.key)]
    carried_lost = [fact for fact in carried if not found.excuses(fact)]
    named = covered.named_weight(named_before)
    return Quality(
        version=QUALITY_VERSION,
        score=round(found.score, 2),
        yardstick=round(yardstick, 2),
        entities=found.by_kind(),
        user_entities=found.weights(user=True),
        all_entities=found.weights(),
        user_identifiers=found.user_identifiers(),
        words=round(found.word_share(covered.words), 4),
        user_words=round(found.word_share(covered.user_words), 4),
        rules=(found.rules_kept(), len(covered.rules)),
        unsupported=tuple(dict.fromkeys(one.text for one in found.unsupported)),
        unsupported_share=round(found.unsupported_share, 4),
        repeated=round(repeated_share(text), 4),
        language_matches=found.language_matches(),
        language=found.language,
        compression=_compression(text, covered.items, covered.previous, counter),
        carried=(len(carried_lost), len(carried)),
        carried_lost=tuple(fact.text for fact in carried_lost[:MOST_LOST]),
        cumulative=min(1.0, found.known_weight() / named) if named else None,
        named_weight=round(named, 2),
        lost=found.lost(),
        facts=found.facts(),
    )


def _compression(
    text: str, items: Sequence[Item], previous: str, counter: TokenCounter | None
) -> float:
    """Return the size of the summary as a share of what it stands for."""
    if counter is None:
        size = len(text)
        whole = sum(len(item.text) for item in items) + len(previous)
    else:
        size = counter.count(encodable(text))
        whole = sum(item.tokens for item in items) + counter.count(encodable(previous))
    return round(size / whole, 4) if whole else 0.0


class Findings:
    """One text beside the messages that it stands for."""

    def __init__(self, text: str, covered: Covered) -> None:
        self._covered = covered
        self._plain = without_marks(text)
        self._text = Spellings(normal(self._plain))
        self._named = facts_named(self._plain)
        self._older_known: dict[str, bool] = {}

    @cached_property
    def known(self) -> frozenset[str]:
        """The keys of the messages' entities that stand in the text."""
        named, text, names = self._named, self._text.text, self._text.names
        return frozenset(
            key
            for key, fact in self._covered.facts.items()
            # Most that is known is spelled as it was, and of most kinds there is no other spelling.
            if key in named
            or ((fact.kind not in _SPELLED_ONCE or key in text) and names(fact.sought))
        )

    @cached_property
    def unsupported(self) -> list[Fact]:
        """What the text names and nobody wrote."""
        supports, facts = self._covered.supports, self._covered.facts
        return [
            fact
            for key, fact in self._named.items()
            if key not in facts
            # Every German noun has a capital.
            and not (fact.kind == NAME and self.language == "de")
            and not supports(fact)
        ]

    @cached_property
    def unsupported_share(self) -> float:
        """The part of what the text names that nobody wrote."""
        whole = sum(fact.weight for fact in self._named.values())
        return sum(fact.weight for fact in self.unsupported) / whole if whole else 0.0

    @cached_property
    def language(self) -> str:
        """The language of the text, where it is sure and the text long enough."""
        head = self._plain[:LONGEST_LOOK]
        letters = sum(map(str.isalpha, head))
        if letters + 2 * len(pairs_of(head)) < FEWEST_LETTERS:
            return UNKNOWN
        return language_of(head)

    def language_matches(self) -> bool:
        """Whether the language is one of the conversation's, or not known."""
        language = self.language
        if not language or language == self._covered.users_language:
            return True
        expected = self._covered.languages
        return not expected or language in expected

    @cached_property
    def score(self) -> float:
        """From 0 to 100. What the messages have nothing of leaves its weight to the rest."""
        words = self._covered.user_words
        of_words = (self.word_share(words), float(bool(words)))
        places = (self.weights(user=True), self.weights(), of_words)
        parts = [(share, *pair) for share, pair in zip(SHARES, places, strict=True)]
        most = sum(weight for weight, _, whole in parts if whole)
        known = sum(weight * kept / whole for weight, kept, whole in parts if whole)
        return 100 * (known / most if most else 1.0) * (1 - self.unsupported_share)

    def weights(self, *, user: bool = False) -> tuple[float, float]:
        """Return the weight of the entities that are kept, and of all."""
        return self._weights[user]

    @cached_property
    def _weights(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """What is kept and all, of everybody and of the user alone."""
        kept, whole, users_kept, users = 0.0, 0.0, 0.0, 0.0
        found, weights = self.known, self._covered.weights
        for key, fact in self._covered.facts.items():
            known = weights[key] if key in found else 0.0
            whole, kept = whole + weights[key], kept + known
            if fact.is_users:
                users, users_kept = users + weights[key], users_kept + known
        return (round(kept, 2), round(whole, 2)), (round(users_kept, 2), round(users, 2))

    def by_kind(self) -> dict[str, tuple[int, int]]:
        """Return how many entities of each kind are kept, and how many there are."""
        counts: dict[str, tuple[int, int]] = {}
        for key, fact in self._covered.facts.items():
            kept, whole = counts.get(fact.kind, (0, 0))
            counts[fact.kind] = kept + (key in self.known), whole + 1
        return counts

    def user_identifiers(self) -> tuple[int, int]:
        """Return how many of the user's identifiers are kept, and how many there are."""
        facts = self._covered.facts.values()
        keys = [fact.key for fact in facts if fact.is_users and fact.kind == IDENTIFIER]
        return sum(key in self.known for key in keys), len(keys)

    def word_share(self, words: Mapping[str, float]) -> float:
        """Return the part of the words, by weight, that stand in the text; 1 of none."""
        whole = sum(words.values())
        if not whole:
            return 1.0
        kept = sum(weight for word, weight in words.items() if word in self._words)
        return kept / whole

    @cached_property
    def _words(self) -> Set[str]:
        # Those that say nothing are not looked for.
        tokens = set(tokens_of(self._text.text))
        wide = (token for token in tokens if not token.isascii())
        return tokens.union(pair for token in wide for pair in pairs_of(token))

    def rules_kept(self) -> int:
        """Return how many of the user's rules a line says: what they are about, and that they bind.

        A line stands for one rule, unless it has every word of others, too.
        """
        lines, taken, kept = self._lines, set[int](), 0
        lines_with: dict[str, list[int]] = {}
        for index, line in enumerate(lines):
            for word in line.content:
                lines_with.setdefault(word, []).append(index)
        for rule in map(_line, self._covered.rules):
            wanted = rule.content
            shared = Counter(index for word in wanted for index in lines_with.get(word, ()))
            most, first = max(
                ((n, -index) for index, n in shared.items() if lines[index].says_as_much_as(rule)),
                default=(0, 0),
            )
            is_enough = most >= RULE_WORDS_SHARE * len(wanted) and -first not in taken
            if most == len(wanted) or is_enough:
                kept += 1
                taken.add(-first)
        return kept

    @cached_property
    def _lines(self) -> list[_Line]:
        lines = (line for line in self._text.text.splitlines() if line.strip())
        return [_line(line) for line in islice(lines, MOST_LINES)]

    def excuses(self, fact: Fact) -> bool:
        """Whether what the summary before named is here too, or was taken back."""
        return self._names(fact) or self._covered.was_taken_back(fact)

    def _names(self, fact: Fact) -> bool:
        """Whether the text names something that earlier passes knew."""
        known = self._older_known.get(fact.key)
        if known is None:
            known = self._older_known[fact.key] = self._text.names(fact.sought)
        return known

    def known_weight(self) -> float:
        """Return what everything counts that the text still names, from the first message on."""
        found, weights, names = self.known, self._covered.weights, self._names
        # In the order of the messages: a sum of floats differs with the order.
        return sum(weight for key, weight in weights.items() if key in found) + sum(
            fact.weight for fact in self._covered.only_older if names(fact)
        )

    def lost(self) -> tuple[LostFact, ...]:
        """Return what the text does not name: the user's first, then what is heavy and rare."""
        gone = (fact for fact in self._covered.ranked if fact.key not in self.known)
        return tuple(map(_lost, islice(gone, MOST_LOST)))

    def facts(self) -> tuple[tuple[str, bool, float], ...]:
        """Return what is looked for in later messages: key, whether it is known, weight.

        What earlier passes knew is among it: a summary stands for everything before it.
        """
        facts, names = self._covered.facts, self._names
        return tuple(
            (
                fact.key,
                fact.key in self.known if fact.key in facts else names(fact),
                round(fact.weight, 2),
            )
            for fact in self._covered.heaviest[:MOST_FACTS]
        )


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a summary: what it is about, and whether it forbids or binds."""

    content: frozenset[str]
    forbids: bool
    binds: bool

    def says_as_much_as(self, rule: _Line) -> bool:
        """Whether it forbids where the rule does, and binds where that does."""
        if rule.forbids:
            return self.forbids
        return not rule.binds or self.binds or self.forbids


def _line(text: str) -> _Line:
    return _judged(text) if len(text) <= LONGEST_REMEMBERED else _judge(text)


@lru_cache(maxsize=2048)
def _judged(text: str) -> _Line:
    """Return what is told of a short line: rules are compared with text after text."""
    return _judge(text)


def _judge(text: str) -> _Line:
    # Most lines neither forbid nor bind: then nothing is taken out of them.
    forbids = bool(_NOT.search(text))
    binds = bool(_BOUND.search(text))
    plain = _NOT.sub(" ", text) if forbids else text
    return _Line(_content(_BOUND.sub(" ", plain) if forbids or binds else plain), forbids, binds)


def _content(plain: str) -> frozenset[str]:
    """Return what a sentence is about: its words by their stems, its numbers, pairs of Chinese."""
    words = (word[:STEM] for word in words_of(plain) if len(word) >= SHORTEST_CONTENT)
    return frozenset((*words, *pairs_of(plain), *_DIGITS.findall(plain)))


def _lost(fact: Fact) -> LostFact:
    text = fact.item.text if fact.item else ""
    start, end = fact.start, fact.end
    context = text[max(0, start - CONTEXT_CHARACTERS) : end + CONTEXT_CHARACTERS] if end else ""
    return LostFact(
        text=fact.text,
        kind=fact.kind,
        speaker=fact.item.role if fact.item else "",
        message=fact.item.id if fact.item else None,
        start=start,
        end=end,
        context=context,
        weight=round(fact.weight, 2),
    )
