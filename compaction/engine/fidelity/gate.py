"""Which summaries are not good enough to be stored as they are, and what they must add.

Only what is plain is rejected: a second call costs time, and every rejection ends with a summary
all the same. A summary that reports an apology, a plan or a refusal is a summary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.sentences import line_spans, sentence_spans
from compaction.engine.extractive.terms import words_of
from compaction.engine.fidelity.entities import IDENTIFIER, NAME, NUMBER, find_entities
from compaction.engine.fidelity.measure import Quality
from compaction.engine.fidelity.replies import FEWEST_NAMED, speaks_to_user

MOST_MISSING = 30
FEWEST_IDENTIFIERS = 3
FEWEST_CARRIED = 3
FEWEST_WORDS = 8

OTHER_LANGUAGE = "other_language"
UNSUPPORTED = "unsupported"
IDENTIFIERS_LOST = "identifiers_lost"
BELOW_YARDSTICK = "below_yardstick"
CARRIED_LOST = "carried_lost"
ONLY_NONE = "only_none"
NOT_A_SUMMARY = "not_a_summary"
TOO_LONG = "too_long"
CODES = (
    OTHER_LANGUAGE,
    UNSUPPORTED,
    IDENTIFIERS_LOST,
    BELOW_YARDSTICK,
    CARRIED_LOST,
    ONLY_NONE,
    NOT_A_SUMMARY,
    TOO_LONG,
)

_NOTHING = lazy_pattern(
    r"(?:[-*•]\s*)?\W{0,3}(?:none|n/?a|nothing|no|not applicable|none (?:so far|yet|mentioned|"
    r"stated|given)|"
    r"no (?:\w+ ){0,3}(?:mentioned|specified|stated|provided|given|identified|recorded)|keine?|"
    r"nichts|"
    r"aucune?|rien|ningun[oa]|nada|nessun[oa]?|niente|nenhuma?|geen|нет|ничего|无|無|没有|沒有|"
    r"暂无|なし|"
    r"ありません|없음|لا شيء|لا يوجد)?\W{0,3}$",
    re.IGNORECASE,
)
_TEXT = r"(?:conversation|messages?|transcript|text|content|information|input|history|dialogue)"
_NOTHING_TO_SAY = lazy_pattern(
    r"\W{0,4}(?:"
    r"(?:so )?there (?:is|was) nothing (?:to (?:summari[sz]e|report|add|note|say|condense)|here)\b"
    rf"|there (?:is|are|was|were) (?:no|not enough) (?:\w+ ){{0,2}}{_TEXT}\b"
    rf"|nothing (?:to (?:summari[sz]e|report|add|note)|(?:of note|relevant|new|else) (?:was|has))\b"
    rf"|no (?:\w+ ){{0,2}}{_TEXT} (?:to summari[sz]e|(?:was|were|is|has been|have been) (?:\w+ )?"
    r"(?:provided|given|supplied|included|found|available|shared))\b"
    rf"|(?:the|this) (?:\w+ ){{0,2}}{_TEXT} (?:is|was|appears to be|seems to be) (?:\w+ )?"
    r"(?:empty|blank)\b"
    rf"|(?:the|this) (?:\w+ ){{0,2}}{_TEXT} (?:contains?|has|had|does not contain|doesn['’]t "
    r"contain) (?:no|any|nothing)\b"
    r"|(?:es gibt|gibt es) (?:hier )?nichts (?:zusammen\w+|zu \w+)|il n['’]y a rien à \w+"
    r"|no hay nada que \w+|non c['’]è (?:nulla|niente) da \w+|não há nada (?:a|para) \w+"
    r"|er is niets (?:om )?(?:te|samen)\b|(?:здесь )?нечего (?:суммир|подыт|обобщ|резюм)\w+"
    r"|(?:没有|無|无)(?:任何)?(?:可|需要)?(?:总结|概括|摘要)|(?:对话|内容)(?:为空|是空的)"
    r"|要約(?:する|できる)(?:内容|もの)は|요약할 (?:내용|것)이 없"
    r")[^\n]{0,120}$",
    re.IGNORECASE,
)
"""How a sentence says that there is nothing to summarise. A conversation may say it, too: only a
text of which every sentence does is none."""
_TITLE = lazy_pattern(r"(?:#{1,6}\s.*|\*\*[^*]{1,60}\*\*:?|[^:：]{1,40}[:：])$")
_LABELLED = lazy_pattern(r"^\W{0,4}[^\W\d_][^:：\n]{0,40}[:：]\W{0,3}(?=\S)")


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLimits:
    """What a summary must reach; shares from 0 to 1. A profile's parameters have the same names.

    `min_user_identifiers`: of the user's identifiers, where there are three. `min_score_share`: of
    the yardstick's score. `max_carried_lost`: of what the summary before named, where it is three.
    """

    min_user_identifiers: float = 0.3
    min_score_share: float = 0.6
    max_carried_lost: float = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """One reason why a summary is not stored as it is.

    `missing` is what the summariser should name; for UNSUPPORTED, what it must not name.
    """

    code: str
    sentence: str
    missing: tuple[str, ...] = ()


def rejections(text: str, quality: Quality, *, limits: GateLimits) -> tuple[Rejection, ...]:
    """Return why a summary is rejected, the plainest reason first; nothing where it is accepted."""
    return (*_reasons_of_form(text, quality), *_reasons_of_content(quality, limits))


def _reasons_of_form(text: str, quality: Quality) -> Iterator[Rejection]:
    """Yield why a text is no summary of this conversation, whatever it knows."""
    if says_nothing(text):
        yield Rejection(
            code=ONLY_NONE,
            sentence="Every section of the summary says that there is nothing: the model left out "
            "the whole conversation.",
            missing=_lost(quality),
        )
    elif speaks_to_user(text):
        yield Rejection(
            code=NOT_A_SUMMARY,
            sentence="The text answers, apologises or announces something instead of summarising: "
            "the model took the conversation for a request to itself.",
            missing=_lost(quality),
        )
    if not quality.language_matches:
        yield Rejection(
            code=OTHER_LANGUAGE,
            sentence=f"The summary is written in another language ({quality.language}) than the "
            "conversation: the model that goes on from it may change its language, too.",
        )
    if invented := _exact(quality.unsupported):
        yield Rejection(
            code=UNSUPPORTED,
            sentence=f"The summary names {_invented(len(invented))} that nobody wrote, "
            f"{invented[0][:60]} for example: what is made up would be taken for facts.",
            missing=invented[:MOST_MISSING],
        )


def _invented(count: int) -> str:
    return "a number or identifier" if count == 1 else f"{count} numbers or identifiers"


def _reasons_of_content(quality: Quality, limits: GateLimits) -> Iterator[Rejection]:
    """Yield what a summary should know and does not."""
    kept, whole = quality.user_identifiers
    if whole >= FEWEST_IDENTIFIERS and kept < limits.min_user_identifiers * whole:
        yield Rejection(
            code=IDENTIFIERS_LOST,
            sentence=f"The summary names {kept} of the user's {whole} identifiers; at least "
            f"{limits.min_user_identifiers:.0%} are asked for: what they stand for can no longer "
            "be looked up.",
            missing=_lost(quality, kind=IDENTIFIER),
        )
    if quality.yardstick and quality.score < limits.min_score_share * quality.yardstick:
        yield Rejection(
            code=BELOW_YARDSTICK,
            sentence=f"The summary scores {quality.score:.1f}, sentences chosen without a model "
            f"score {quality.yardstick:.1f} at the same size; at least "
            f"{limits.min_score_share:.0%} of that is asked for: too many facts were left out.",
            missing=_lost(quality),
        )
    elif named := _named_of_none(quality):
        yield Rejection(
            code=BELOW_YARDSTICK,
            sentence=f"The summary names none of the {named} names, identifiers, dates and "
            "addresses of what it replaces: it is too short to be compared with chosen sentences, "
            "and says nothing of the conversation.",
            missing=_lost(quality),
        )
    lost, carried = quality.carried
    if carried >= FEWEST_CARRIED and lost > limits.max_carried_lost * carried:
        yield Rejection(
            code=CARRIED_LOST,
            sentence=f"The summary drops {lost} of {carried} facts of the summary before it; at "
            f"most {limits.max_carried_lost:.0%} may go: nothing else that is sent has them.",
            missing=quality.carried_lost[:MOST_MISSING],
        )


def _named_of_none(quality: Quality) -> int:
    """Return how many things the messages name, where they are many and the text has none of them.

    Numbers do not count: they stand everywhere.
    """
    pairs = [pair for kind, pair in quality.entities.items() if kind != NUMBER]
    named = sum(whole for _, whole in pairs)
    return named if named >= FEWEST_NAMED and not any(kept for kept, _ in pairs) else 0


def says_nothing(text: str) -> bool:
    """Whether all sections of a text are empty or say None."""
    lines = [text[start:end] for start, end in line_spans(text)]
    bodies = [_LABELLED.sub("", line) for line in lines if not _TITLE.match(line)]
    return all(_NOTHING.match(body) or _is_of_nothing(body) for body in bodies)


def _is_of_nothing(body: str) -> bool:
    """Whether each sentence of a line says that there is nothing, and names nothing itself."""
    said = [body[start:end] for start, end in sentence_spans(body)]
    return all(_NOTHING_TO_SAY.match(one) and not _exact((one,)) for one in said)


def takes_in(text: str, previous: str, quality: Quality | None, *, most_lost: float) -> bool:
    """Whether a text says what the summary before it says, so that nobody need send both.

    By what that one names, where it is three things or more, else by its words, where they are
    enough to tell: of either no more than the share `most_lost` may be missing.
    """
    if not previous.strip():
        return False
    if previous.strip() in text:
        return True
    lost, carried = quality.carried if quality is not None else (0, 0)
    if carried >= FEWEST_CARRIED:
        return lost <= most_lost * carried
    words = set(words_of(previous))
    missing = words.difference(words_of(text))
    return len(words) >= FEWEST_WORDS and len(missing) <= most_lost * len(words)


def _lost(quality: Quality, *, kind: str = "") -> tuple[str, ...]:
    texts = (fact.text for fact in quality.lost if not kind or fact.kind == kind)
    return tuple(dict.fromkeys(texts))[:MOST_MISSING]


def _exact(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return those that are no names: numbers, dates, identifiers, addresses and paths."""
    return tuple(
        text
        for text in texts
        if any(character.isdigit() for character in text)
        or any(one.kind != NAME for one in find_entities(text))
    )
