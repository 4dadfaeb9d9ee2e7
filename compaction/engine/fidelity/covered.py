"""What the messages behind a summary say: what they name, their words, the user's rules."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice

from compaction.engine.extractive.cues import is_rule
from compaction.engine.extractive.sentences import HAN, HANGUL, KANA
from compaction.engine.extractive.terms import STOP_WORDS, pairs_of
from compaction.engine.fidelity.entities import DATE, NUMBER, Entity, find_entities, small_words
from compaction.engine.fidelity.facts import USER_FACTOR, Fact, facts_of_summary
from compaction.engine.fidelity.languages import UNKNOWN, language_of
from compaction.engine.fidelity.moments import Moment, share_a_moment
from compaction.engine.fidelity.spellings import Spellings, is_small_count, normal
from compaction.engine.provenance import Unit
from compaction.engine.types import Item

TOOL_FACTOR = 0.4
"""What only tools said, in their output or in the arguments that they were called with."""
OUTPUT_HEAD, OUTPUT_END = 4_000, 1_000
"""Of a tool's output, so many characters are read: results stand at its head or its end."""
HEAD, END = 20_000, 5_000
"""Of any other message; nobody but a paste is longer."""
ARGUMENT_CHARACTERS = 2_000
SAMPLED_MESSAGES = 12
SAMPLED_CHARACTERS = 300
LONGEST_RULE = 400
MOST_JUDGED = 1_000
"""So many sentences that could be rules are looked at."""
MOST_PLACES = 5_000
"""So many words that begin a rule are looked at."""
MOST_RULES = 300
MOST_NAMED = 20_000
"""About so many things that messages name are told apart; real conversations have 3,000 at most."""
SHORTEST_WORD, LONGEST_WORD = 3, 40
EXCUSED_CHARACTERS = 80

_END_OF_SENTENCE = re.compile(r"[.!?](?=\s)|[。！？；\n]")
_LAST_END_OF_SENTENCE = re.compile(rf".*(?:{_END_OF_SENTENCE.pattern})", re.DOTALL)

# Two identifiers with what stands between the first and the last of several.
_RANGE = re.compile(r"([A-Za-z]+\d+)[-–—]([A-Za-z]+\d+)")


class Covered:
    """The messages that a summary stands for, read once for as many texts as are measured."""

    def __init__(
        self,
        items: Sequence[Item],
        *,
        previous: str = "",
        previous_units: Sequence[Unit] = (),
        instructions: str = "",
        entities: Sequence[Sequence[Entity]] | None = None,
    ) -> None:
        self.items = items
        self.previous = previous
        self.units = previous_units
        self._instructions = instructions
        self._found = entities

    @cached_property
    def facts(self) -> dict[str, Fact]:
        """What the messages name, each once, by key."""
        facts = self._facts_of_texts()
        for item in self.items if len(facts) < MOST_NAMED else ():
            for call in item.tool_calls:
                for one in find_entities(call.arguments[:ARGUMENT_CHARACTERS]):
                    facts.setdefault(
                        one.key, Fact(one.kind, one.key, one.text, item, 0, 0, TOOL_FACTOR)
                    )
            if len(facts) >= MOST_NAMED:
                break
        return facts

    def _facts_of_texts(self) -> dict[str, Fact]:
        facts: dict[str, Fact] = {}
        # Most is named again and again: then nothing but how often is new.
        factors, named = dict[str, float](), list[str]()
        for item, entities in zip(self.items, self._entities(), strict=False):
            if not entities:
                continue
            factor = _FACTORS.get(item.voice, 1.0)
            for one in entities:
                key = one.key
                named.append(key)
                if factors.get(key, 0.0) >= factor:
                    continue
                factors[key] = factor
                known = facts.get(key)
                if known is None:
                    facts[key] = Fact(one.kind, key, one.text, item, one.start, one.end, factor)
                else:
                    known.factor, known.item = factor, item
                    known.start, known.end, known.text = one.start, one.end, one.text
            if len(facts) >= MOST_NAMED:
                break
        # Counted at once: one long list takes many times less than many short ones.
        times = Counter(named)
        for key, fact in facts.items():
            fact.times = times[key]
        return facts

    def _entities(self) -> Iterable[Sequence[Entity]]:
        if self._found is not None:
            return map(_looked_at, self.items, self._found)
        spoken = "\n".join(_piece(item, item.text) for item in self.items if item.role != "tool")
        # Each word once: there are many times fewer of them.
        small = small_words((" ".join(set(spoken.split())),))
        return (_entities_of(item, small) for item in self.items)

    @cached_property
    def weights(self) -> dict[str, float]:
        """What each of the facts counts, by key: as many texts are measured ask for it again."""
        return {key: fact.weight for key, fact in self.facts.items()}

    @cached_property
    def ranked(self) -> list[Fact]:
        """What is to be known, but for small counts: the user's first, then heavy and rare."""
        whole = len(self.items) + 1
        rarity = {
            times: math.log(1 + whole / times)
            for times in {fact.times for fact in self.facts.values()}
        }
        weights = self.weights
        return sorted(
            self._telling,
            key=lambda fact: (fact.is_users, weights[fact.key] * rarity[fact.times]),
            reverse=True,
        )

    @cached_property
    def _telling(self) -> list[Fact]:
        """What the messages name, but for small counts."""
        return [fact for key, fact in self.facts.items() if not is_small_count(key)]

    @cached_property
    def only_older(self) -> list[Fact]:
        """What was named before these messages, and not in them."""
        return [fact for key, fact in self.older.items() if key not in self.facts]

    @cached_property
    def heaviest(self) -> list[Fact]:
        """All that was named since the first message, but for small counts; the heaviest first."""
        older = [fact for fact in self.only_older if not is_small_count(fact.key)]
        return sorted(
            (*self._telling, *older), key=lambda fact: round(fact.weight, 2), reverse=True
        )

    @cached_property
    def carried(self) -> list[Fact]:
        """What the summary before named."""
        users = {
            key: USER_FACTOR for unit in self.units if not unit.speaker for key in unit.entities
        }
        return list(facts_of_summary(self.previous, users).values())

    @cached_property
    def older(self) -> dict[str, Fact]:
        """What was named before these messages, as far as it is known."""
        facts = {fact.key: fact for fact in self.carried}
        for unit in self.units:
            factor = 1.0 if unit.speaker else USER_FACTOR
            factor = factor if unit.speaker in ("", "assistant", "system") else TOOL_FACTOR
            for one in find_entities(unit.text):
                known = facts.setdefault(
                    one.key, Fact(one.kind, one.key, one.text, None, 0, 0, factor)
                )
                known.factor = max(known.factor, factor)
        return facts

    def named_weight(self, named_before: float) -> float:
        """Return what everything counts that was named since the first message."""
        before = named_before or sum(fact.weight for fact in self.older.values())
        older = self.older
        return before + sum(weight for key, weight in self.weights.items() if key not in older)

    def supports(self, fact: Fact) -> bool:
        """Whether somebody wrote what a text asserts."""
        sought = fact.sought
        # What was found in the messages says most; all that was written is long.
        if fact.kind == DATE and share_a_moment(sought.moments, self._moments):
            return True
        if fact.kind == NUMBER and not self._values.isdisjoint(sought.asserted):
            return True
        return self._written.supports(sought, fact.text)

    def composes(self, text: str) -> bool:
        """Whether a text only puts together what was written.

        Alternatives and folders (`reset/compact`), or a range of identifiers (`WP14-WP20`). A file
        is not put together: its name has to be written as it stands.
        """
        ends = _RANGE.fullmatch(text)
        parts = ends.groups() if ends else tuple(text.split("/"))
        if len(parts) < 2 or (not ends and "." in parts[-1]):
            return False
        return all(part and self._written.stands(part.casefold()) for part in parts)

    @cached_property
    def _moments(self) -> frozenset[Moment]:
        dates = (fact.sought.moments for fact in self.facts.values() if fact.kind == DATE)
        return frozenset().union(*dates)

    @cached_property
    def _values(self) -> frozenset[str]:
        numbers = (fact.sought.values for fact in self.facts.values() if fact.kind == NUMBER)
        return frozenset().union(*numbers)

    @cached_property
    def _texts(self) -> list[str]:
        """What each message says, without capitals."""
        return [normal(item.text) for item in self.items]

    @cached_property
    def _written(self) -> Spellings:
        """All that somebody wrote, to its last character: the middle of a paste was written."""
        calls = (call for item in self.items for call in item.tool_calls)
        return Spellings(
            "\n".join(
                (
                    *self._texts,
                    *(normal(f"{call.name} {call.arguments}") for call in calls),
                    *(normal(item.tool_name) for item in self.items if item.tool_name),
                    normal(self.previous),
                    *(normal(f"{unit.speaker} {unit.text} {unit.note}") for unit in self.units),
                    normal(self._instructions),
                )
            )
        )

    @cached_property
    def words(self) -> dict[str, float]:
        """The words of people and models, weighed by their rarity in the conversation."""
        return self._rare(self._counted)

    @cached_property
    def user_words(self) -> dict[str, float]:
        """The user's words, weighed in the same way."""
        if self._said_by_user.isascii():
            # Which of its tokens are words was told among all that was said.
            return self._rare(filter(self._counted.__contains__, self._users_tokens))
        return self._rare(words_among(self._users_tokens))

    @cached_property
    def _users_tokens(self) -> Counter[str]:
        return Counter(tokens_of(self._said_by_user))

    @cached_property
    def _counted(self) -> Counter[str]:
        others = self._said_by(lambda item: item.voice not in ("user", "tool"))
        tokens = self._users_tokens.copy()
        tokens.update(tokens_of(others))
        return words_among(tokens)

    def _rare(self, words: Iterable[str]) -> dict[str, float]:
        counted = self._counted
        whole = counted.total() + 1
        # Thousands of words share a few counts.
        rarity = {times: math.log(1 + whole / times) for times in set(counted.values())}
        return {word: rarity[counted[word]] for word in words}

    @cached_property
    def _said_by_user(self) -> str:
        return self._said_by(lambda item: item.is_question)

    def _said_by(self, speaks: Callable[[Item], bool]) -> str:
        """Return what is read of some messages, without capitals."""
        pairs = zip(self.items, self._texts, strict=True)
        return "\n".join([_piece(item, text) for item, text in pairs if speaks(item)])

    @cached_property
    def rules(self) -> list[str]:
        """What the user said must, or must never, be done; in small letters."""
        said = self._said_by_user
        # A look at each word once tells of nearly all cues that they are nowhere.
        tokens = " ".join(self._users_tokens)
        cues = [cue for cue, parts in _PARTS_OF_CUES if all(part in tokens for part in parts)]
        judged: dict[str, bool] = {}
        after = 0
        for place in sorted(islice(_places_of(cues, said), MOST_PLACES)):
            if place < after:
                continue  # It stands in the sentence before.
            sentence, after = _sentence_around(said, place)
            if sentence not in judged:
                judged[sentence] = is_rule(sentence)
            if len(judged) == MOST_JUDGED:
                break
        return [sentence for sentence, rules in judged.items() if rules][:MOST_RULES]

    def was_taken_back(self, fact: Fact) -> bool:
        """Whether the user named it in these messages beside a word such as "remove"."""
        said, key = self._said_by_user, normal(fact.key)
        start = said.find(key)
        if start < 0:
            return False
        near = said[max(0, start - EXCUSED_CHARACTERS) : start + len(key) + EXCUSED_CHARACTERS]
        return bool(_TAKEN_BACK.search(near))

    @cached_property
    def languages(self) -> frozenset[str]:
        """The languages of the user, of the model and of the summary before, where sure."""
        others = (_sample(self.items, "assistant"), self.previous)
        return frozenset((self.users_language, *map(language_of, others))) - {UNKNOWN}

    @cached_property
    def users_language(self) -> str:
        """The language of the user, where it is sure."""
        return language_of(_sample(self.items, "user"))


# Wider than whatever stands between the parts of one entity.
_GAP = " " * 16
_FACTORS = {"user": USER_FACTOR, "tool": TOOL_FACTOR}


def _limits(item: Item) -> tuple[int, int]:
    return (OUTPUT_HEAD, OUTPUT_END) if item.role == "tool" else (HEAD, END)


def _piece(item: Item, text: str) -> str:
    """Return what is read of a message, in whatever letters: its head and its end, apart."""
    if len(text) <= OUTPUT_HEAD + OUTPUT_END:
        return text
    head, end = _limits(item)
    return text if len(text) <= head + end else f"{text[:head]}{_GAP}{text[-end:]}"


def _looked_at(item: Item, entities: Sequence[Entity]) -> Sequence[Entity]:
    """Return those at the head and at the end of a message."""
    if len(item.text) <= OUTPUT_HEAD + OUTPUT_END or not entities:
        return entities
    head, end = _limits(item)
    if len(item.text) <= head + end:
        return entities
    last = len(item.text) - end
    return [one for one in entities if one.start < head or one.start >= last]


def _entities_of(item: Item, small: Container[str]) -> Sequence[Entity]:
    found = find_entities(_piece(item, item.text), small=small)
    head, end = _limits(item)
    skipped = len(item.text) - head - end - len(_GAP)
    if skipped <= 0:
        return found
    return [
        one._replace(start=one.start + skipped, end=one.end + skipped) if one.start >= head else one
        for one in found
    ]


def tokens_of(text: str) -> list[str]:
    """Return what stands between spaces and punctuation of a `normal` text, in order."""
    # Many times quicker in bytes than in characters; lone surrogates stay what they are.
    blanked = text.encode(errors="surrogatepass").translate(_BLANKING)
    text = blanked.decode(errors="surrogatepass")
    if not text.isascii():
        for character in _BLANKED_WIDE:
            text = text.replace(character, " ")
    return text.split()


def words_among(tokens: Mapping[str, int]) -> Counter[str]:
    """Return the words among tokens that say something, and pairs of Chinese; how often each."""
    words = Counter(
        {
            token: times
            for token, times in tokens.items()
            if SHORTEST_WORD <= len(token) <= LONGEST_WORD
            and token.isalpha()
            and token not in STOP_WORDS
        }
    )
    wide = [token for token in tokens if not token.isascii() and _WIDE.search(token)]
    for token in wide:
        words.pop(token, None)
    for token in wide:
        times = tokens[token]
        for pair in pairs_of(token):
            words[pair] += times
    return words


def _sample(items: Sequence[Item], role: str) -> str:
    texts = [item.text for item in items if item.voice == role and item.text]
    step = max(1, len(texts) // SAMPLED_MESSAGES)
    return "\n".join(text[:SAMPLED_CHARACTERS] for text in texts[::step])


def _places_of(cues: Iterable[str], text: str) -> Iterator[int]:
    """Yield where the cues stand in a text."""
    for cue in cues:
        place = text.find(cue)
        while place >= 0:
            yield place
            place = text.find(cue, place + len(cue))


def _sentence_around(text: str, place: int) -> tuple[str, int]:
    """Return the sentence that a place is in, and where it ends."""
    first = max(0, place - LONGEST_RULE)
    # A line's end is a sentence's: what stands before the last one need not be looked through.
    before = text[max(first, text.rfind("\n", first, place) + 1) : place]
    after = text[place : place + LONGEST_RULE]
    ended = _LAST_END_OF_SENTENCE.match(before)
    start = ended.end() if ended else 0
    found = _END_OF_SENTENCE.search(after)
    end = found.end() if found else len(after)
    return " ".join((before[start:] + after[:end]).split()), place + end


_BLANKED = '.,;:!?()[]{}<>"`*_#|/\\=+~^-'
_BLANKED_WIDE = "“”‘…–—，。；：！？、（）《》「」『』【】"
_BLANKING = bytes.maketrans(_BLANKED.encode(), b" " * len(_BLANKED))
_WIDE = re.compile(f"[{HAN}{KANA}{HANGUL}]")
# Where `is_rule` is asked: each of its words begins with, or has, one of these.
_CUES = (
    "must", "may not", "shall not", "never", "do not", "don't", "always", "make sure", "ensure",
    "avoid",
    "under no circumstances", "not allowed", "not permitted", "no more than", "no later than",
    "at most",
    "at least one", "only ", "forbidden", "allergic", "off-limits", "off limits", "strictly",
    "必须", "不要", "不能", "不得", "不可", "只能", "禁止", "务必", "一定要", "不许", "一律",
    "切勿", "千万别",
    "絶対に", "しないで", "必ず", "だけ", "반드시", "절대", "하지", "금지",
    "niemals", "auf keinen fall", "immer", "darf", "dürfen", "muss", "müssen",
    "jamais", "toujours", "il faut", "interdit", " ne ",
    "nunca", "siempre", "debe", "prohibid", "solo ",
    "никогда", "всегда", "нельзя", "обязательно", "запрещено", "только",
    "لا تستخدم", "يجب", "ممنوع", "أبدا", "دائما",
)  # fmt: skip
_PARTS_OF_CUES = [(cue, cue.replace("-", " ").split()) for cue in _CUES]
_TAKEN_BACK = re.compile(
    r"\b(?:remove|delete|drop|cancel|forget|scrap|skip|instead|rather than|no longer|not any ?more|"
    r"replace|was wrong|changed|take .{1,40} off|nicht mehr|statt|streich|entfern\w*|annul\w*|"
    r"plus de|"
    r"supprim\w*|ya no|elimin\w*|en lugar|cancel\w*|quita\w*)\b"
    r"|не нужно|больше не|вместо|удали|отмени|убери|取消|不再|不用|改为|改成|换成|删|去掉|やめ|"
    r"削除|대신|취소"
)
