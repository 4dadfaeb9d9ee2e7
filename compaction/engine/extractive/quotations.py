"""Where a message quotes somebody else: what stands there is no order of who sent the message.

Quoted are lines that begin with ">", fenced blocks, lines of JSON and of stack traces, which people
paste and do not write, and what stands in quotation marks beside a word that says so (`the page
said: "…"`). Whoever writes "I said" quotes themselves: that counts as said.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.mails import mail_spans
from compaction.engine.extractive.sentences import sentence_spans, word_set

QUOTED = "quoted"
"""The speaker of what a message quotes."""
LONGEST_QUOTATION = 2000
LONGEST_ATTRIBUTION = 60
"""Characters before a quotation mark that are looked at for a word such as "said"."""

_MARKED_LINE = lazy_pattern(r"^[ \t]{0,8}>[^\n]*", re.M)
_FENCE = lazy_pattern(r"^[ \t]{0,8}(`{3,}|~{3,})[^\n]*$", re.M)
_PASTED_LINE = lazy_pattern(
    r"^[ \t]{0,40}(?:"
    r"[\[{]{1,3}[ \t]{0,8}\"[^\n]{20,}"
    r"|\"[^\"\n]{1,60}\"[ \t]?:[ \t]?(?:[\"\d\[{-]|true\b|false\b|null\b)[^\n]*"
    r"|at [^\n]{1,200}:\d{1,9}:\d{1,9}\)?[ \t]{0,8}$"
    r"|File \"[^\"\n]{1,400}\", line \d[^\n]*"
    r")",
    re.M,
)
LONGEST_STRUCTURED = 50_000
"""Characters of a message that is JSON as a whole; more is a paste."""
_RULES_KEY = lazy_pattern(
    r"\"(?:[^\W_]{1,20}[ _-])?(?:rules?|constraints?|regeln?|reglas?|règles?|правила|规则|ルール"
    r"|규칙|القواعد)\"\s{0,8}:\s{0,8}(?=[\[\"])",
    re.I,
)
_STRING = lazy_pattern(r"\"((?:[^\"\\]|\\.){1,400})\"")
_CLOSING = {'"': '"', "“": "”", "„": "“”", "«": "»", "「": "」", "『": "』"}
_WORDS = lazy_pattern(r"[^\W\d_]+")
_WORDS_ASCII = lazy_pattern(r"[a-z]+")
_OPENING = lazy_pattern("[" + "".join(_CLOSING) + "]")
_SAID_WORDS = word_set(
    "said says say saying told tells wrote write writes stated state states replied answered asked "
    "warned claim claims claimed read reads show shows showed print prints printed quote quotes "
    "quoted quoting contain contains contained sagt sagte schrieb schreibt steht dice dijo decía "
    "escribió dit disait écrit сказал сказала написал написала пишет قال"
)
_SAID = f"(?:{'|'.join(sorted(_SAID_WORDS))})"
_BEFORE = lazy_pattern(
    rf"\b(?P<who>i )?{_SAID}(?: (?:to )?\w+)?(?: (?:that|this|dass|que|что|أن|the following))?"
    r"[ \t]?[,:]?\s{0,3}\Z",
    re.I,
)
_REPORTING_WORDS = _SAID_WORDS - word_set(
    "say saying tell write state claim read show print quote quotes quoting contain"
)
"""Those that report what somebody said: "it must show: …" and "please read: …" are the user's."""
_OWN_RULES = (
    r"our (?:\w+ ){0,2}(?:policy|policies|rules?|guidelines?|guide|conventions?|standards?)\b"
)
_ANNOUNCEMENT = lazy_pattern(
    rf"\b(?P<who>(?:(?:i|we|ich|wir|j|je|nous|yo|io|eu|ik|я)\b(?:['’]\w{{1,3}})?|{_OWN_RULES})"
    r"(?: [\w'’]{1,12}){0,2} )?"
    rf"(?:{'|'.join(sorted(_REPORTING_WORDS))})(?: (?:me|us|him|her|them))?"
    r"(?P<rest> as follows| the following)?\Z",
    re.I,
)
_ANNOUNCEMENT_ENDS = _REPORTING_WORDS | word_set("me us him her them follows following")
LONGEST_WORD = 16
_SENT = lazy_pattern(
    r"^(?P<what>[^\n]{0,80}\b(?:sent|wrote|posted|published|forwarded|got (?:this|that)?|received|"
    r"pasted|copied|e-?mail|mail|letter|newsletter|article|review|message (?:from|of|by)|"
    r"(?:text|page|terms|policy|manual|notice|advert) (?:from|of|by)|geschickt|schrieb|geschrieben|"
    r"bekommen|brief|envoyé|écrit|reçu|courrier|lettre|enviado|escribió|recibido|correo|carta|"
    r"mandato|scritto|ricevuto|lettera|enviou|escreveu|recebi|stuurde|schreef|ontvangen|"
    r"прислал|прислала|написал|написала|получил|получила|письмо)\b[^\n:]{0,40}):[ \t]*\n\s*",
    re.I | re.M,
)
_BY_US = lazy_pattern(
    r"\b(?:(?:i|we|ich|wir|je|nous|yo|io|eu|ik|я|мы)(?:['’]\w+)? (?:\w+ )?(?:sent|wrote|posted|"
    r"published|"
    r"forwarded|schrieb|habe|haben|ai|avons)|(?:my|our) (?:\w+ )?(?:e-?mail|mail|letter|"
    r"message|reply|policy|rules?)|rules? for|write|draft|reply|answer|schreib|écris|escribe)\b",
    re.I,
)
"""What the user sends or wants written has rules of the user."""
_BEFORE_WIDE = lazy_pattern(
    r"(?:说|说道|写道|写着|写的是|回复|回答|显示|言った|書いて|말했|썼)[^\s\w]{0,2}\s?\Z"
)
_AFTER = lazy_pattern(rf"[,.!?]?\s?(?:(?!i\b)[^\W\d_]{{1,20}} ){{1,3}}{_SAID}\b", re.I)
_AFTER_WIDE = lazy_pattern(r"\s?(?:と(?:言|書)|이?라고)")


def quoted_spans(text: str) -> list[tuple[int, int]]:
    """Return where a text quotes somebody, in order and without overlaps."""
    found = sorted(
        (
            *_marked(text),
            *_fenced(text),
            *_pasted(text),
            *_attributed(text),
            *_announced(text),
        )
    )
    spans: list[tuple[int, int]] = []
    for start, end in found:
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    return spans


def stated_rules(text: str) -> list[tuple[int, int]]:
    """Return where the rules of a message that is JSON as a whole stand, each without its marks.

    Who writes such a message says by a key such as "rules" what is a rule: the strings of its value
    are their own. JSON within a text is a paste.
    """
    if len(text) > LONGEST_STRUCTURED or not text.lstrip().startswith("{"):
        return []
    if not _RULES_KEY.search(text):
        return []
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return []
    found: list[tuple[int, int]] = []
    for key in _RULES_KEY.finditer(text):
        value, end = json.JSONDecoder().raw_decode(text, key.end())
        strings = value if isinstance(value, list) else [value]
        if all(isinstance(one, str) for one in strings):
            found += [match.span(1) for match in _STRING.finditer(text, key.end(), end)]
    return found


def is_quoted(spans: Sequence[tuple[int, int]], start: int, end: int) -> bool:
    """Whether a piece of a text has something quoted in it."""
    before = bisect_left(spans, (end, 0))
    return before > 0 and spans[before - 1][1] > start


def _announced(text: str) -> Iterator[tuple[int, int]]:
    """Yield the sentence behind "the letter says:", and mails with a head.

    Behind it, the user speaks again: only what "reads as follows" goes on to the line's end. Where
    quotation marks open there, they say where it ends (_attributed).
    """
    yield from _sent(text)
    colon = text.find(": ")
    while colon >= 0:
        if (match := _announcement(text, colon)) and text[colon + 2 : colon + 3] not in _CLOSING:
            end = text.find("\n", colon)
            end = end if end >= 0 else len(text)
            if not match["rest"]:
                end = _end_of_sentence(text, colon + 2, end)
            yield colon + 2, end
            colon = max(colon, end - 1)
        colon = text.find(": ", colon + 1)
    if "@" in text:
        yield from mail_spans(text)


def _sent(text: str) -> Iterator[tuple[int, int]]:
    """Yield the paragraph behind a line such as "Here is what the vendor sent:"."""
    if ":\n" not in text:
        return
    for match in _SENT.finditer(text):
        if not _BY_US.search(match["what"]):
            end = text.find("\n\n", match.end())
            yield match.end(), end if end >= 0 else len(text)


def _announcement(text: str, colon: int) -> re.Match[str] | None:
    """Return what says that somebody else's words stand behind a colon, if anything does."""
    # A look at one word first: colons are many.
    words = _WORDS.findall(text, max(0, colon - LONGEST_WORD), colon)
    if not words or words[-1].casefold() not in _ANNOUNCEMENT_ENDS:
        return None
    match = _ANNOUNCEMENT.search(text, max(0, colon - LONGEST_ATTRIBUTION), colon)
    return match if match and not match["who"] else None


def _end_of_sentence(text: str, start: int, end: int) -> int:
    first = next(sentence_spans(text[start : min(end, start + LONGEST_QUOTATION)]), None)
    return start + first[1] if first else end


def _marked(text: str) -> Iterator[tuple[int, int]]:
    if ">" in text:
        for match in _MARKED_LINE.finditer(text):
            yield match.span()


def _fenced(text: str) -> Iterator[tuple[int, int]]:
    """Yield the blocks between two fences; one that nobody closed goes to the end."""
    if "```" not in text and "~~~" not in text:
        return
    opened: re.Match[str] | None = None
    for match in _FENCE.finditer(text):
        if opened is None:
            opened = match
        elif match[1].startswith(opened[1]):
            yield opened.start(), match.end()
            opened = None
    if opened is not None:
        yield opened.start(), len(text)


def _pasted(text: str) -> Iterator[tuple[int, int]]:
    """Yield the lines of JSON and of stack traces."""
    if '"' in text or "at " in text:
        for match in _PASTED_LINE.finditer(text):
            yield match.span()


def _attributed(text: str) -> Iterator[tuple[int, int]]:
    """Yield what stands in quotation marks where the words beside them say whose it is.

    A quotation that nobody closed ends with its line.
    """
    after = 0
    # Small letters stand where the large ones do in ASCII alone.
    small = text.lower() if text.isascii() else ""
    for mark in _OPENING.finditer(text):
        start = mark.start()
        if start < after:
            continue
        end = _closed(text, start)
        if _is_attributed(text, small, start, end, since=after):
            yield start, end
        after = end


def _is_attributed(text: str, small: str, start: int, end: int, *, since: int) -> bool:
    """Whether the words before or behind a quotation say that somebody else's words stand there.

    `small` is the text in small letters where it is ASCII.
    """
    first, last = max(since, start - LONGEST_ATTRIBUTION), end + LONGEST_ATTRIBUTION
    # A look at the words first: the patterns are slow where quotation marks are many.
    if _says_so(text, small, first, start) and (match := _BEFORE.search(text[first:start])):
        return not match["who"]
    if _says_so(text, small, end, last) and _AFTER.match(text[end:last]):
        return True
    return not small and bool(
        _BEFORE_WIDE.search(text[first:start]) or _AFTER_WIDE.match(text[end:last])
    )


def _says_so(text: str, small: str, start: int, end: int) -> bool:
    """Whether a piece of a text has one of the words that say whose words stand beside it."""
    if small:
        return not _SAID_WORDS.isdisjoint(_WORDS_ASCII.findall(small, start, end))
    return not _SAID_WORDS.isdisjoint(_WORDS.findall(text[start:end].casefold()))


def _closed(text: str, start: int) -> int:
    """Return where the quotation that starts here ends."""
    limit = start + 1 + LONGEST_QUOTATION
    places = [text.find(mark, start + 1, limit) for mark in _CLOSING[text[start]]]
    found = [place for place in places if place >= 0]
    if found:
        return min(found) + 1
    line = text.find("\n", start, limit)
    return line if line >= 0 else min(len(text), limit)
