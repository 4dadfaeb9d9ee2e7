"""How well a line reads alone: whole sentences before scraps, outcomes of tools before the rest."""

from __future__ import annotations

import re

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.sentences import HAN, HANGUL, KANA, word_set, words_in

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
_BOILERPLATE_WIDE = lazy_pattern(
    r"谢谢|感谢|不客气|没问题|您好|你好|随时告诉我|希望对你有帮助|好的[，。]|祝(?:您|你)"
)
# What a sentence says stands behind it: "This is left:", "**`hooks.go:574`** -".
_ANNOUNCEMENT = lazy_pattern(
    r"[:：][*_]{0,2}$|^\S{1,200} ?[-–—][*_]{0,2}$|^Traceback \(most recent"
)
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
_WIDE = lazy_pattern(f"[{HAN}{KANA}{HANGUL}]")


def outcome_worth(line: str) -> float:
    """The factor for a line of a tool's output: errors and outcomes before everything else."""
    if is_error(line) and not is_code_line(line):
        return ERROR_WORTH
    return ANSWER_WORTH if _ANSWER_KEY.search(line) else 1.0


def is_error(line: str) -> bool:
    """Whether a line of a tool's output says what went wrong."""
    small = line.casefold()
    if not any(part in small for part in _ERROR_PARTS):
        return False
    return bool(_ERROR.search(line)) and not _NO_ERROR.search(line)


def form_worth(sentence: str) -> float:
    """The factor for how well a line reads alone: 1 for a whole sentence, less for scraps."""
    if "|" in sentence:
        cells = _CELL_EDGE.split(sentence)
        if len(cells) > 2:
            wordy = max(map(count_words, cells)) >= WORDY_CELL_WORDS
            return 1.0 if wordy else ROW_WORTH
    if _ANNOUNCEMENT.search(sentence):
        return ANNOUNCEMENT_WORTH
    if is_code_line(sentence):
        return CODE_WORTH
    if _is_boilerplate(sentence):
        return BOILERPLATE_WORTH
    if sentence.startswith("```"):
        return FRAGMENT_WORTH
    return FRAGMENT_WORTH if count_words(sentence) < 3 else 1.0


def _is_boilerplate(sentence: str) -> bool:
    if not sentence.isascii() and _BOILERPLATE_WIDE.search(sentence):
        return True
    likely = not _BOILERPLATE_WORDS.isdisjoint(words_in(sentence))
    return likely and bool(_BOILERPLATE.search(sentence))


def is_code_line(sentence: str) -> bool:
    """Whether a line is a piece of a program rather than of a conversation."""
    if _WIDE.search(sentence):
        return False
    place = _PLACE.match(sentence)
    return bool(_CODE.match(sentence, place.end() if place else 0) or _LISTED.match(sentence))


def count_words(text: str) -> int:
    """How many words a text has, in a measure that serves scripts without spaces as well."""
    latin = len(_WORD.findall(text))
    return latin if text.isascii() else latin + len(_WIDE.findall(text)) // LETTERS_PER_WORD
