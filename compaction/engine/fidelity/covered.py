"""What the messages behind a summary say: what they name, their words, the user's rules."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from compaction.engine.extractive.cues import is_rule
from compaction.engine.extractive.sentences import HAN, HANGUL, KANA
from compaction.engine.extractive.terms import STOP_WORDS, pairs_of
from compaction.engine.fidelity.entities import (
    KIND_WEIGHTS,
    NAME,
    NUMBER,
    Entity,
    find_entities,
    key_of,
    small_words,
)
from compaction.engine.fidelity.languages import UNKNOWN, language_of
from compaction.engine.fidelity.spellings import SCALE_AFTER, Spellings, normal
from compaction.engine.provenance import Unit
from compaction.engine.types import Item

USER_FACTOR = 2.0
TOOL_FACTOR = 0.4
"""What only tools said, in their output or in the arguments that they were called with."""
OUTPUT_HEAD, OUTPUT_END = 4_000, 1_000
"""Of a tool's output, so many characters are read: results stand at its head or its end."""
ARGUMENT_CHARACTERS = 2_000
SAMPLED_MESSAGES = 12
SAMPLED_CHARACTERS = 300
LONGEST_RULE = 400
MOST_JUDGED = 1_000
"""So many sentences that could be rules are looked at."""
SHORTEST_WORD, LONGEST_WORD = 3, 40
EXCUSED_CHARACTERS = 80

# Gone before anything is looked for: references to messages, numbers of lists, hidden values.
_MARKS = re.compile(
    r"\[#?\d{1,6}(?:[-–,; .]{1,2}#?\d{1,6}){0,20}\]|\((?:asked in )?#\d{1,6}(?:\.\d{1,6})?\)"
    r"|^\s{0,20}\d{1,3}[.)](?=\s)"
    r"|\[REDACTED:[^\]\n]{0,40}\]|\[(?:read|run|modified)\]",
    re.MULTILINE,
)
_HEADING = re.compile(
    r"^\s{0,8}(?:#{1,6}\s.*|\*\*[^*\n]{1,60}\*\*:?\s*|[-*]?\s?\**[^\n:.,;]{1,40}:\**(?=\s))",
    re.MULTILINE,
)
_COUNTS = re.compile(
    r"\b\d{1,3} (?:more|other|further|messages?|turns?|lines?|items?|files?|times|calls?|steps?|"
    r"points?)\b"
)
_END_OF_SENTENCE = re.compile(r"[.!?](?=\s)|[。！？；\n]")


def _with_scale(one: Entity, text: str) -> Entity:
    """Return the number with the word that multiplies it: 3.4 is not 3.4 billion."""
    scale = SCALE_AFTER.match(text, one.end)
    if not scale:
        return one
    written = text[one.start : scale.end()]
    return Entity(NUMBER, written, key_of(written), one.start, scale.end())


@dataclass(slots=True)
class Fact:
    """An entity, once: where it was named first, the most that its speakers count, how often."""

    kind: str
    key: str
    text: str
    item: Item | None
    start: int
    end: int
    factor: float
    times: int = 1

    @property
    def weight(self) -> float:
        """What it counts in the measure."""
        return KIND_WEIGHTS[self.kind] * self.factor

    @property
    def is_users(self) -> bool:
        """Whether the user named it."""
        return self.factor == USER_FACTOR


def without_marks(text: str) -> str:
    """Return a summary without what is of the summary alone: references, numbers of its lists."""
    return _MARKS.sub(" ", text)


def facts_of_summary(text: str, factors: Mapping[str, float] | None = None) -> dict[str, Fact]:
    """Return what a summary names, each once; headings and labels name nothing."""
    text = without_marks(text)
    headings = [match.span() for match in _HEADING.finditer(text)]
    counts = {match.start() for match in _COUNTS.finditer(text)}
    facts: dict[str, Fact] = {}
    for one in find_entities(text, small=small_words((text,))):
        if one.kind == NAME and any(start <= one.start < end for start, end in headings):
            continue
        if one.kind == NUMBER and one.start in counts:
            continue
        if one.kind == NUMBER:
            one = _with_scale(one, text)
        factor = (factors or {}).get(one.key, 1.0)
        facts.setdefault(
            one.key, Fact(one.kind, one.key, one.text, None, one.start, one.end, factor)
        )
    return facts


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
        self._texts = [normal(item.text) for item in items]
        self._found = entities

    @cached_property
    def facts(self) -> dict[str, Fact]:
        """What the messages name, each once, by key."""
        facts: dict[str, Fact] = {}
        for item, entities in zip(self.items, self._entities(), strict=False):
            factor = _FACTORS.get(item.role, 1.0)
            for one in entities:
                known = facts.get(one.key)
                if known is None:
                    facts[one.key] = Fact(
                        one.kind, one.key, one.text, item, one.start, one.end, factor
                    )
                else:
                    known.times += 1
                    if factor > known.factor:
                        known.factor, known.item = factor, item
                        known.start, known.end, known.text = one.start, one.end, one.text
        for item in self.items:
            for call in item.tool_calls:
                for one in find_entities(call.arguments[:ARGUMENT_CHARACTERS]):
                    facts.setdefault(
                        one.key, Fact(one.kind, one.key, one.text, item, 0, 0, TOOL_FACTOR)
                    )
        return facts

    def _entities(self) -> Iterable[Sequence[Entity]]:
        if self._found is not None:
            return self._found
        small = small_words(item.text for item in self.items if item.role != "tool")
        return (find_entities(_piece(item), small=small) for item in self.items)

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
        return before + sum(
            fact.weight for key, fact in self.facts.items() if key not in self.older
        )

    @cached_property
    def written(self) -> Spellings:
        """All that somebody wrote."""
        calls = (call for item in self.items for call in item.tool_calls)
        return Spellings(
            "\n".join(
                (
                    *self._texts,
                    *(f"{call.name} {call.arguments}" for call in calls),
                    *(item.tool_name for item in self.items if item.tool_name),
                    self.previous,
                    *(f"{unit.speaker} {unit.text} {unit.note}" for unit in self.units),
                    self._instructions,
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
        return self._rare(_words_in(self._said_by_user))

    @cached_property
    def _counted(self) -> Counter[str]:
        pairs = zip(self.items, self._texts, strict=True)
        return _words_in("\n".join(text for item, text in pairs if item.role != "tool"))

    def _rare(self, words: Iterable[str]) -> dict[str, float]:
        counted = self._counted
        whole = counted.total() + 1
        return {word: math.log(1 + whole / counted[word]) for word in words}

    @cached_property
    def _said_by_user(self) -> str:
        pairs = zip(self.items, self._texts, strict=True)
        return "\n".join(text for item, text in pairs if item.role == "user")

    @cached_property
    def rules(self) -> list[str]:
        """What the user said must, or must never, be done; in small letters."""
        said = self._said_by_user
        judged: dict[str, bool] = {}
        for cue in _CUES if not said.isascii() else filter(str.isascii, _CUES):
            start = said.find(cue)
            while start >= 0 and len(judged) < MOST_JUDGED:
                sentence = _sentence_around(said, start)
                if sentence not in judged:
                    judged[sentence] = is_rule(sentence)
                start = said.find(cue, start + len(cue))
        return [sentence for sentence, rules in judged.items() if rules]

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
        texts = [_sample(self.items, role) for role in ("user", "assistant")]
        return frozenset(map(language_of, (*texts, self.previous))) - {UNKNOWN}


_FACTORS = {"user": USER_FACTOR, "tool": TOOL_FACTOR}


def _piece(item: Item) -> str:
    text = item.text
    if item.role == "tool" and len(text) > OUTPUT_HEAD + OUTPUT_END:
        # As long as before, so that offsets stay what they are.
        skipped = len(text) - OUTPUT_HEAD - OUTPUT_END
        text = f"{text[:OUTPUT_HEAD]}{' ' * skipped}{text[-OUTPUT_END:]}"
    return text


def _words_in(text: str) -> Counter[str]:
    for character in _BLANKED:
        text = text.replace(character, " ")
    words = Counter(text.split())
    wide = _WIDE.search(text) is not None
    kept = Counter(
        {
            word: times
            for word, times in words.items()
            if SHORTEST_WORD <= len(word) <= LONGEST_WORD
            and word not in STOP_WORDS
            and word.isalpha()
            and not (wide and _WIDE.search(word))
        }
    )
    if wide:
        kept.update(pairs_of(text))
    return kept


def _sample(items: Sequence[Item], role: str) -> str:
    texts = [item.text for item in items if item.role == role and item.text]
    step = max(1, len(texts) // SAMPLED_MESSAGES)
    return "\n".join(text[:SAMPLED_CHARACTERS] for text in texts[::step])


def _sentence_around(text: str, place: int) -> str:
    before = text[max(0, place - LONGEST_RULE) : place]
    after = text[place : place + LONGEST_RULE]
    start = max((match.end() for match in _END_OF_SENTENCE.finditer(before)), default=0)
    end = _END_OF_SENTENCE.search(after)
    return " ".join((before[start:] + (after[: end.end()] if end else after)).split())


_BLANKED = '.,;:!?()[]{}<>"“”‘`*_#|/\\=+~^…–—-，。；：！？、（）《》「」『』【】'
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
_TAKEN_BACK = re.compile(
    r"\b(?:remove|delete|drop|cancel|forget|scrap|skip|instead|rather than|no longer|not any ?more|"
    r"replace|was wrong|changed|take .{1,40} off|nicht mehr|statt|streich|entfern\w*|annul\w*|"
    r"plus de|"
    r"supprim\w*|ya no|elimin\w*|en lugar|cancel\w*|quita\w*)\b"
    r"|не нужно|больше не|вместо|удали|отмени|убери|取消|不再|不用|改为|改成|换成|删|去掉|やめ|"
    r"削除|대신|취소"
)
