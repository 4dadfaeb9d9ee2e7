"""Words and numbers by which an error says that a request is larger than the model's window.

Servers word it as they like, in many languages, some in no more than two numbers. What is alike is
only: something that has a length, and that it is too much; or more tokens than a number that is
told as the most. error_classifier.py rules out before what only looks like it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from chatapp.llm.error_parsing import Said, number
from chatapp.messages.patterns import lazy_pattern


def any_of(*alternatives: str) -> re.Pattern[str]:
    """Return a pattern for any of the fragments."""
    return lazy_pattern("|".join(alternatives))


_EXCESS = (
    r"(?:exceed(?:s|ed|ing)?\b|too (?:large|long|big)\b|(?:greater|longer|larger|more) than\b"
    r"|surpass|超)"
)
_TOO_LONG = r"(?:too (?:long|large|big)\b|(?:longer|larger) than\b)"
_LENGTH = r"(?:window|length|size|limit|len)\b"

OVERFLOW_NAMES = any_of(
    r"context_?(?:(?:length|window|size)_?)?(?:limit_?)?exceeded",
    r"exceed_context_size",
    r"exceeds?_(?:the_)?context",
    r"(?:max_)?prompt_tokens_exceeded",
    r"tokens_limit_reached",
    r"(?:prompt|input|context|conversation|messages?)_(?:is_)?too_(?:long|large|big)",
    r"request_too_long",
)
OVERFLOW_WORDS = any_of(
    # A length and an excess, in either order.
    rf"(?:context|sequence|model)[ _]{_LENGTH}.{{0,60}}?{_EXCESS}",
    rf"{_EXCESS}.{{0,60}}?\b(?:context|sequence|model)[ _]{_LENGTH}",
    r"\bexceed(?:s|ed)?\b.{0,40}?\bcontext\b",
    rf"\b(?:prompt|conversation)s?\b.{{0,40}}?{_TOO_LONG}",
    r"\bprompt\b.{0,40}?\bexceed(?:s|ed)?\b",
    rf"\binputs?(?: text| prompt| sequence)?(?: is| are| was|:)? {_TOO_LONG}",
    r"\btoo (?:much input|large for (?:the |this )?model)\b",
    rf"\binput length\b.{{0,60}}?{_EXCESS}",
    r"\b(?:prompt|input|conversation)(?:'s)?\b.{0,30}\b(?:above|over|beyond) the\b.{0,20}"
    r"\b(?:limit|context|maximum|window|model)",
    r"\btoo (?:long|large|big) for (?:the |this |its )?(?:model|context|window)",
    rf"{_EXCESS}.{{0,40}}\b(?:max_model_len|model_max_length|max_seq_len|n_ctx)",
    # What is full.
    r"\bcontext (?:window |size |length )?(?:limit )?(?:is |has been |was )?"
    r"(?:full|reached|exhausted)\b",
    r"\bconversation\b.{0,40}\bmaximum length\b|\bmaximum length\b.{0,30}\bconversation\b",
    r"\bmaximum number of input tokens\b",
    rf"\btokens?\b.{{0,60}}?{_EXCESS}",
    rf"{_EXCESS}.{{0,60}}?\btokens?\b",
    r"exceed(?:s|ed)? the maximum (?:allowed )?(?:input |sequence )?length\b",
    # No room.
    r"(?:n't|\bnot) fit\b.{0,60}\b(?:context|window|model)\b",
    r"(?:n't|\bnot) fit\b.{0,40}\b(?:tokens?|prompt)\b",
    r"\b(?:no|not enough|insufficient|out of) (?:\w{1,12} )?(?:room|space|context)\b.{0,40}"
    r"\b(?:context|prompt|window)\b",
    # Lengths that nobody mentions otherwise.
    r"maximum context length\b",
    r"\bcontext length is only\b",
    r"maximum (?:allowed )?(?:prompt|input) length\b",
    r"\btoo many (?:input |prompt |total )?tokens\b",
    r"reduce the length of the (?:messages|prompt|input|conversation)",
    r"exceeds the limit of \d",
    r"\binputs? tokens \+ max_new_tokens",
    r"\binputs must have less than \S+ tokens",
    r"\binput token count\b.{0,40}only supports",
    r"\bn_(?:tokens|past) \(?\d+\)? >=? n_ctx\b",
    rf"\bmessages?(?: you submitted)?(?: is| are| was)? {_TOO_LONG}",
    r"tokens to keep from the initial prompt",
    r"when context the overflows",
    r"\bcontext overflow:",
    r"requested [\d,]+ output tokens.{0,120}?prompt contains.{0,80}?total of",
    r"must be less than max_seq_len",
    r"range of input length should be",
    # The room for the answer as vLLM computed it: what the prompt left of the window.
    r"max_tokens must be at least 1, got (?:-\d|0\b)",
)
# The same in other languages: what has a length, and that it is too much of it.
_CONTEXT = (
    r"(?:context[eo]|contesto|kontext|контекст|コンテキスト|文脈|컨텍스트|문맥|ngữ cảnh|bağlam"
    r"|上下文)"
)
_INPUT = (
    r"(?:\btokens?\b|jeton|トークン|토큰|токен|令牌|词元|入力|입력|프롬프트|输入|提示词|\bprompts?\b"
    r"|eingabe|entrada|entrée|consulta|ввод|запрос)"
)
_LENGTH_WORD = (
    r"(?:longueur|länge|longitud|tamanho|comprimento|lunghezza|длин|長|길이|长度|fenster|fenêtre"
    r"|ventana|janela|finestra|окн)"
)
_TOO_MUCH = (
    r"(?:dépass|excèd|exced[ea]|supera|eccede|überschr|übersteig|превы|超|초과"
    r"|過長|过长|过大|長すぎ|大きすぎ|너무 (?:길|깁|큽|크)|trop (?:long|grand)"
    r"|demasiado (?:larg|grand)|muito (?:long|grande)|troppo lung|слишком (?:длин|больш|велик)"
    r"|aşıyor|vượt|quá dài)"
)
FOREIGN_WORDS = any_of(
    rf"{_CONTEXT}.{{0,60}}?(?:{_LENGTH_WORD}|{_TOO_MUCH})",
    rf"(?:{_LENGTH_WORD}|{_TOO_MUCH}).{{0,60}}?{_CONTEXT}",
    rf"{_INPUT}.{{0,60}}?{_TOO_MUCH}",
    rf"{_TOO_MUCH}.{{0,60}}?{_INPUT}",
    r"(?:长度|对话|会话|提示).{0,20}(?:超过|超出|超限|过长|超长)",
    r"压缩上下文",
)
# What is counted, and that a number is the most of it.
_COUNTED = any_of(
    r"\btokens?\b", r"\bcontext\b", r"\bprompt\b", r"\bsequence\b", r"_tokens\b", r"\bn_ctx\b",
    r"\bmax_(?:seq|model|context)", r"model_max", r"\bjetons\b", r"トークン", r"토큰", r"токен",
)  # fmt: skip
_THE_MOST = any_of(
    r"[<>]", r"\bmax", r"\blimit", r"\bonly\b", r"\bconfigured\b", r"\bcapacity\b", r"\bsize\b",
    r"\bwindow\b", r"\bslot\b", r"\ballow", r"\bsupport", r"\bat most\b", r"\bup to\b",
    r"\bcannot\b", r"\bover\b", r"\babove\b", r"\bhandle",
)  # fmt: skip
_OTHER_UNITS = any_of(
    r"\b(?:bytes|[mk]i?b|pixels?|characters?|seconds?|minutes?|hours?|days?|images?|files?|pages?"
    r"|tools?|functions?|stop|vocabulary|json)\b|\bbudget(?:_tokens)?\b",
    r"\b(?:unexpected|invalid) token\b|\btoken[ _]ids?\b",
    r"\bthinking\b", r"\bminimum\b", r"\bat least\b(?! [\d,]+ (?:input |prompt )?tokens)",
)  # fmt: skip
# Names of models, and days: `claude-3-opus-20240229`, `2024-07-31`.
_VERSIONED = lazy_pattern(r"\b(?:[a-z][\w.]{0,40}(?:-[\w.]{1,40}){1,12}|\d{4}-\d\d-\d\d)\b")
_NUMBER = lazy_pattern(r"(?<![\w.])(?:\d{1,3}(?:[,_]\d{3}){1,3}|\d{3,9})(?![\w.,]?\d)")
SMALLEST_WINDOW = 256
"""No smaller window is meant: such a number is a code, a place, a size of something else."""


def has_too_many_tokens(words: str) -> bool:
    """Whether a text names more of what a request is made of than a number that is the most.

    For words that nobody has collected: "Prompt has 9,000 tokens, but the size is 8,192".
    """
    if not _COUNTED.search(words) or not _THE_MOST.search(words) or _OTHER_UNITS.search(words):
        return False
    found = sorted({one for one in _numbers(words) if one >= SMALLEST_WINDOW})
    return len(found) > 1


def _numbers(words: str) -> Iterable[int]:
    return (number(found[0]) for found in _NUMBER.finditer(_VERSIONED.sub(" ", words)))


NO_BODY = lazy_pattern(r"(?:400|413) ?(?:status code)? ?\(no body\)")
OVERFLOW_ARGUMENT = lazy_pattern(r"maximum number of (?:input )?tokens")
# Accounts that may send short requests and no long ones, under whatever status.
LONG_REQUESTS = lazy_pattern(r"\blong context (?:requests?|beta|window)\b")
# Limits on other things: uploads, the number of tools, a tool's name.
OTHER_LIMITS = any_of(
    r"\b(?:tool|function|file|stop|image|choice|schema)s?\b.{0,30}exceeds the limit of \d",
    r"\b(?:access|api|auth|bearer|csrf|id|jwt|licen[cs]e|login|oauth|refresh|security|session)"
    r" token\b",
    # A text's tokens do not age.
    r"\btoken\b.{0,40}\b(?:lifetime|max(?:imum)? age|expir\w+)",
    r"有效期",
    r"\b(?:image|picture|audio|video)s?(?: is| are| was)? too (?:large|long|big)\b",
)
# Statuses under which a server may call a request too large; 500 was llama.cpp's.
_REFUSED = (None, 200, 400, 404, 413, 422, 424, 500)


def is_overflow(said: Said) -> bool:
    """Whether the request is larger than the window, by its wording or by saying nothing."""
    if said.status not in _REFUSED:
        return False
    words = said.words
    if said.is_empty:  # Cerebras
        return said.status in (400, 413)
    if NO_BODY.match(words) or OVERFLOW_NAMES.search(words):
        return True
    if OTHER_LIMITS.search(words):
        return False
    if OVERFLOW_WORDS.search(words) or FOREIGN_WORDS.search(words):
        return True
    invalid = any("invalid_argument" in name for name in said.names) or "invalid_argument" in words
    if invalid and OVERFLOW_ARGUMENT.search(words):
        return True
    # What breaks inside a server names numbers, too.
    return said.status != 500 and has_too_many_tokens(words)
