"""How well a line reads alone: whole sentences before scraps, outcomes of tools before the rest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.sentences import HAN, HANGUL, KANA, word_set, words_in
from compaction.engine.extractive.terms import words_of
from compaction.engine.fidelity.entities import NAME, find_entities

ERROR_WORTH = 3.0
"""A line of a tool's output that says what went wrong."""
ANSWER_WORTH = 2.0
"""A field of a tool's output whose key says that it is the outcome."""
BOILERPLATE_WORTH = 0.4
FRAGMENT_WORTH = 0.05
"""A line of one or two words, such as a heading inside a message."""
ANNOUNCEMENT_WORTH = 0.3
"""A line that ends with a colon: what it announces stands in other lines."""
CODE_WORTH = 0.3
ROW_WORTH = 0.3
"""A row of a table, whose headings stand elsewhere; one long cell can explain itself."""
WORDY_CELL_WORDS = 6
LONGEST_FAREWELL = 12
"""Words; a longer sentence that begins with thanks says something else as well."""
MOST_BESIDE_THANKS = 1
"""Words, such as a name or what the thanks are for."""
WIDEST_RANGE = 500
"""Of numbers farther apart, such as those of a telephone, both say something."""
LETTERS_PER_WORD = 2
"""Chinese characters that say as much as one word."""

_ERROR = lazy_pattern(
    r"\b\w*(?:error|exception)\b(?! ?[:=] ?(?:0|none|null|false))"
    r"|\b(?:failed|failures?|traceback|fatal|panic|denied|timed? ?out|refused|not found|"
    r"crash(?:ed)?|no such|cannot|can['’]t|unable|invalid)\b"
    r"|exit(?:ed)?(?: with)?(?: code| status)? [1-9]"
    r"|错误|失败|异常|超时|拒绝|エラー|失敗|오류|실패|ошибка",
    re.I,
)
# Every error has one of these, in small letters: a look at them is quicker than the pattern.
_ERROR_PARTS = (
    "error", "exception", "fail", "traceback", "fatal", "panic", "denied", "timed", "timeout",
    "time out", "refused", "not found", "crash", "no such", "cannot", "can't", "can’t", "unable",
    "invalid", "exit",
    "错误", "失败", "异常", "超时", "拒绝", "エラー", "失敗", "오류", "실패", "ошибка",
)  # fmt: skip
_NO_ERROR = lazy_pattern(
    r"\"?(?:(?<!\w)\w*error\w*|fail\w*|warnings?)\"?: ?(?:null|false|none|0\b|\"\"|\[\])"
    r"|\b0 (?:fail|error)",
    re.I,
)
_ANSWER_KEY = lazy_pattern(
    r"^\"?(?:\w*status|result|error|reason|message|state|total\w*|\w*price|amount|balance|answer|"
    r"\w*_?id|code|exit_?code|confirmation\w*|reference|tracking\w*|eta|\w*date|summary|名称|评分|"
    r"地址|电话|价格|状态|结果)\"?\s*[:=]",
    re.I,
)
_BOILERPLATE = lazy_pattern(
    r"\b(?:thank(?:s| you)|looking forward|let me know|feel free|great question|"
    r"happy to (?:help|assist)|hope (?:you|this|that)|appreciate|you['’]re welcome|no problem|"
    r"sounds good|of course|any other questions|glad to|let me (?:check|look|see)|"
    r"give me a moment|i['’]m sorry|sorry (?:about|to hear)|good morning|"
    r"here (?:is|are) (?:the|some|a)|as an ai|nice to meet)\b"
    r"|^(?:hi|hello|hey|sure|certainly|absolutely)\b",
    re.I,
)
_BOILERPLATE_WORDS = word_set(
    "thank thanks looking let feel great happy hope appreciate you're problem sounds course "
    "questions glad give sorry morning here ai nice hi hello hey sure certainly absolutely"
)
# Every such phrase has, or is, one of these.
_BOILERPLATE_PARTS = (
    "thank", "looking forward", "let me ", "feel free", "great question", "happy to ", "hope ",
    "appreciate", "re welcome", "no problem", "sounds good", "of course", "any other question",
    "glad to", "give me", "sorry", "good morning", "here is", "here are", "as an ai",
    "nice to meet",
)  # fmt: skip
_BOILERPLATE_STARTS = ("hi", "hello", "hey", "sure", "certainly", "absolutely")
_BOILERPLATE_WIDE = lazy_pattern(
    r"谢谢|感谢|不客气|没问题|您好|你好|随时告诉我|希望对你有帮助|好的[，。]|祝(?:您|你)"
)
_LEAVE = lazy_pattern(
    r"\b(?:have a (?:great|nice|good)|good ?bye|bye|see you|take care|danke|vielen dank|tschüss|"
    r"auf wiedersehen|bis bald|gracias|adiós|hasta luego|merci|au revoir|bonne journée|grazie|"
    r"arrivederci|"
    r"obrigad[oa]|tchau|bedankt|dank je|tot ziens|спасибо|до свидания|всего доброго)\b"
    r"|谢谢|多谢|再见|拜拜|ありがと|さようなら|感謝|감사합니다|고마워|안녕히|شكرا|مع السلامة",
    re.I,
)
_PARTS = lazy_pattern(r"[,;:!?.，。！？、]+|\s[-–—]\s")
_SAYS = lazy_pattern(r"[^\W_]")
COURTESY = word_set(
    "help helping helpful assistance support service patience time understanding answer answers "
    "day evening morning night week weekend afternoon wonderful lovely amazing kind kindly quick "
    "forward looking hear hearing appreciate appreciated welcome problem bye goodbye care meet "
    "course sounds glad happy hope question questions everything today"
)
"""Words of thanks themselves."""
_MARKER = lazy_pattern(
    r"\A(?:[#|=~-]{2,8} ?[A-Z_]{2,24} ?[#|=~-]{2,8}|</?\|?[\w-]{1,40}\|?/?>|\[/?[A-Z_]{2,24}\])\Z"
)
_MARKER_BEHIND = lazy_pattern(r"(?:#{2,8}[A-Z_]{2,24}#{2,8}|<\|[\w-]{1,40}\|>|</s>)\Z")
# What a sentence says stands behind it: "This is left:", "**`hooks.go:574`** -".
LONGEST_ANNOUNCEMENT_END = 4
_ANNOUNCEMENT_END = lazy_pattern(r"[:：–—-][*_]{0,2}$")
_LABEL = lazy_pattern(r"\S{1,200} ?[-–—][*_]{0,2}$")
_TRACEBACK = "Traceback (most recent"
_CELL_EDGE = lazy_pattern(r"\s?\|\s?")
_CODE = lazy_pattern(
    r"(?:def|class) \w+[(:]|return\b.{0,200}[\w)\]}\"']$|import \w[\w.]*$|from [\w.]+ import "
    r"|assert .{0,200}(?:==| in |[(\[])|raise \w+|(?:except|elif|for|if|while|with)\b.{0,200}:$"
    r"|(?:try|else|finally):|self\.|@\w+(?:\(|$)|[+-]{3} |@@|diff --git|>>> |<\w"
    r"|(?:const|let|var|function|func|type|struct|pub|fn|impl|public|private|static) [\w(]"
    r"|t\.\w+\(|//|/\*|\* @|#include|fmt\.|panic\("
    r"|[\w.\"'\[\]]{1,60}(?:: \w[\w\[\], |]{0,60})? ?(?:[-+*/|]?=|<-|:=) ?\S"
    r"|[\w.]{1,60}\((?:.{0,200}\))?[,:;]?$"
    r"|.{0,200}[{;]$"
)
# "cli/agent.go:121: func …": where a search found a line, before the line.
_PLACE = lazy_pattern(r"(?:[\w./@-]{1,120}:)?\d{1,6}[:→-]\s?")
# A file in a list, a hunk of a patch.
_LISTED = lazy_pattern(r"[dl-][rwxsStT-]{9}[@+.]? |index [0-9a-f]{7,}|total \d+$")
_WORD = lazy_pattern(rf"[^\W_{HAN}{KANA}{HANGUL}]{{2,40}}")
# A class that lists its characters is looked at far more quickly.
_WORD_ASCII = lazy_pattern("[A-Za-z0-9]{2,40}")
_WIDE = lazy_pattern(f"[{HAN}{KANA}{HANGUL}]")


class Signs(NamedTuple):
    """What may tell of a line that it is an error or boilerplate: parts, one of which each has."""

    errors: tuple[str, ...]
    phrases: tuple[str, ...]


ALL_SIGNS = Signs(_ERROR_PARTS, _BOILERPLATE_PARTS)
# Of each part its first word, too: the others may be far behind it in an output.
_FIRST_WORDS = [[(part, part.split()[0]) for part in parts] for parts in ALL_SIGNS]


def signs_in(output: str) -> Signs:
    """Return the signs that are somewhere in an output: one look for all its lines."""
    small = output.lower() if output.isascii() else output.casefold()
    return Signs(*[tuple([part for part, word in one if word in small]) for one in _FIRST_WORDS])


def outcome_worth(line: str, signs: Signs = ALL_SIGNS) -> float:
    """The factor for a line of a tool's output: errors and outcomes before everything else.

    `signs` are those in the output.
    """
    if is_error(line, signs) and not is_code_line(line):
        return ERROR_WORTH
    return ANSWER_WORTH if _ANSWER_KEY.match(line) else 1.0


def is_error(line: str, signs: Signs = ALL_SIGNS) -> bool:
    """Whether a line of a tool's output says what went wrong."""
    if not signs.errors:
        return False
    if not any(map(line.casefold().__contains__, signs.errors)):
        return False
    return bool(_ERROR.search(line)) and not _NO_ERROR.search(line)


def form_worth(sentence: str, signs: Signs = ALL_SIGNS) -> float:
    """The factor for how well a line reads alone: 1 for a whole sentence, less for scraps."""
    if "|" in sentence:
        cells = _CELL_EDGE.split(sentence)
        if len(cells) > 2:
            wordy = max(map(count_words, cells)) >= WORDY_CELL_WORDS
            return 1.0 if wordy else ROW_WORTH
    if _announces(sentence):
        return ANNOUNCEMENT_WORTH
    if is_code_line(sentence):
        return CODE_WORTH
    if _is_boilerplate(sentence, signs.phrases):
        return BOILERPLATE_WORTH
    if sentence.startswith("```"):
        return FRAGMENT_WORTH
    return FRAGMENT_WORTH if count_words(sentence) < 3 else 1.0


def is_farewell(sentence: str) -> bool:
    """Whether a short sentence thanks, greets or takes leave, and names nobody but people.

    "Thanks, now delete the branch." says something else as well.
    """
    if count_words(sentence) > LONGEST_FAREWELL:
        return False
    if any(one.kind != NAME for one in find_entities(sentence)):
        return False
    parts = [part for part in _PARTS.split(sentence) if _SAYS.search(part)]
    others = [part for part in parts if not _is_polite(part)]
    words = [word for part in others for word in words_of(part)]
    is_more = len(words) > MOST_BESIDE_THANKS or any(map(_WIDE.search, others))
    return len(others) < len(parts) and not is_more


def _is_polite(part: str) -> bool:
    if _is_boilerplate(part, ALL_SIGNS.phrases):
        words = [word for word in words_of(part) if word not in COURTESY]
        return len(words) <= MOST_BESIDE_THANKS
    return bool(_LEAVE.search(part))


def marker_length(text: str) -> int:
    """How many characters at a text's end are a mark for programs: "###STOP###", "<|end|>"."""
    if text[-1] not in "#>]|=~-":
        return 0
    found = (_MARKER if text[0] in "#<[|=~-" else _MARKER_BEHIND).search(text)
    return len(found[0]) if found else 0


def _announces(sentence: str) -> bool:
    # Only an end or a beginning: what stands between need not be looked through.
    end = max(0, len(sentence) - LONGEST_ANNOUNCEMENT_END)
    found = _ANNOUNCEMENT_END.search(sentence, end)
    if found:
        return found[0][0] in ":：" or bool(_LABEL.match(sentence))
    return sentence.startswith(_TRACEBACK)


def _is_boilerplate(sentence: str, phrases: Sequence[str]) -> bool:
    if not sentence.isascii() and _BOILERPLATE_WIDE.search(sentence):
        return True
    if sentence.isascii():
        small = sentence.lower()
        starts = small.startswith(_BOILERPLATE_STARTS)
        if not (starts or any(map(small.__contains__, phrases))):
            return False
    likely = not _BOILERPLATE_WORDS.isdisjoint(words_in(sentence))
    return likely and bool(_BOILERPLATE.search(sentence))


def is_code_line(sentence: str) -> bool:
    """Whether a line is a piece of a program rather than of a conversation."""
    if not sentence.isascii() and _WIDE.search(sentence):
        return False
    place = _PLACE.match(sentence)
    return bool(_CODE.match(sentence, place.end() if place else 0) or _LISTED.match(sentence))


def is_range(key: str) -> bool:
    """Whether something is from one number to another near it, such as the lines 21-48."""
    first, _, last = key.partition("-")
    if not (first.isdecimal() and last.isdecimal() and len(first) <= len(last)):
        return False
    return 0 <= int(last) - int(first) <= WIDEST_RANGE


def count_words(text: str) -> int:
    """How many words a text has, in a measure that serves scripts without spaces as well."""
    if text.isascii():
        return len(_WORD_ASCII.findall(text))
    return len(_WORD.findall(text)) + len(_WIDE.findall(text)) // LETTERS_PER_WORD
