"""The numbers that an error names: what was sent, what is allowed, which message is meant.

`#` in a pattern is a number: digits, or groups of three with a comma, blank (also a thin one),
underscore or apostrophe between them, and perhaps k or m (read as 1 000 and 1 000 000: rather too
small than too large). Patterns are tried in order; the first that matches counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from chatapp.llm.error_bodies import Said
from chatapp.llm.error_kinds import ErrorKind

_NUMBER = r"((?<![\d.])(?:\d{1,3}(?:[,_' ]\d{3})+(?!\d)|\d+)(?:[km]\b)?)"
_SCALE = {"k": 1_000, "m": 1_000_000}


def _compiled(*templates: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(template.replace("#", _NUMBER)) for template in templates)


_OF = r"(?: is| of|:)?(?: only)? \(?"
_ALLOWED_TOKENS = _compiled(
    rf"maximum (?:model |allowed |context |prompt |input |sequence )*(?:length|window|size){_OF}#",
    r"# maximum",
    rf"maximum number of (?:input )?tokens(?: allowed)?{_OF}#",
    rf"context length{_OF}#",
    r"\bn_ctx\W{1,3}#",
    r"context (?:window|size|limit)(?: is| of)? (?:# tokens|\(# tokens)",
    r"context window of #",
    r"\bmax_(?:seq|model|prompt)_len(?:gth)? ?\(?#",
    r"must have less than #",
    r"only supports up to #",
    r"max length is #",
    r"range of input length should be \[\d+, ?#",
    r"<= ?#",
    r">=? ?#",
    r"(?:must be less than|cannot exceed|model maximum)(?: of)? \(?#",
    r"\blimit(?: is| of|:)? #",
    r"\bmax(?:imum)?(?: is| of|:)? #",
)
# Several numbers in one pattern are added: the prompt and the room for the answer.
_OBSERVED_TOKENS = _compiled(
    r"# ?\+ ?#(?: tokens)? >",
    r"requested # output tokens.{0,80}contains (?:at least )?# ",
    r"given: # inputs tokens and # ",
    r"passed # input tokens and requested # output",
    r"given: #",
    r"too large: #\..{0,100}has # input tokens",
    r"total of (?:at least |about )?# ",
    r"requested(?: token count| tokens)?(?: a total of| about| up to| is|:)? \(?#",
    r"resulted in #",
    r"too (?:long|large): #",
    r"# (?:input |prompt )?tokens? >",
    r"token count(?: of| is|:)? \(?#",
    r"_?tokens \(#\)",
    r"contains?(?: at least| about)? #",
    r"\bn_keep\W{1,3}#",
    r"\bfirst # tokens",
    r"\breceived #",
    r"\bhas # ",
    r"\(# tokens",
    r"\blength \(?#\)?",
)
_REQUESTED = _compiled(r"\brequested:? #")
_LIMIT = _compiled(r"\blimit:? #")
_ALLOWED_OUTPUT = _compiled(
    r"\[\d+, ?#\]",
    r"> #",
    r"(?:less than or equal to|<=|at most|up to) #",
    r"maximum(?: allowed)?(?: value| number of output tokens)?(?: is| of|:)? #",
)
_OBSERVED_OUTPUT = _compiled(r"# >", r"too large: #", r"\b(?:provided|got) #")
_ALLOWED_ENTRIES = _compiled(r"maximum length(?: is| of)? #", r"(?:at most|maximum of|limit of) #")
_OBSERVED_ENTRIES = _compiled(r"with length #", r"\b(?:got|has) #")
_BYTES = r" ?(?:bytes|(mb|mib|kb|kib))"
_ALLOWED_BYTES = _compiled(rf"> #{_BYTES}", rf"(?:limit|maximum|max)\D{{0,30}}#{_BYTES}")
_OBSERVED_BYTES = _compiled(rf"#{_BYTES} >", rf"(?:got|received) #{_BYTES}")
_BYTE_SCALE = {None: 1, "kb": 1_000, "kib": 1_024, "mb": 1_000_000, "mib": 1_048_576}
_BELOW_MINIMUM = re.compile(r"below minimum|at least|>= ?\d")
_MESSAGE = re.compile(r"\b(?:messages|input)(?:\[|\.)(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """What an error names; the unit is the kind's. None is what it does not name."""

    observed: int | None = None
    allowed: int | None = None
    message_index: int | None = None


def numbers_of(kind: ErrorKind, said: Said) -> Numbers:
    """Return the numbers of an error whose kind is known."""
    words = said.words
    if kind is ErrorKind.CONTEXT_OVERFLOW:
        return _of_overflow(said)
    if kind is ErrorKind.REQUEST_OVER_RATE:
        requested, limit = rate_numbers(words)
        return Numbers(observed=requested, allowed=limit)
    if kind is ErrorKind.OUTPUT_LIMIT:
        return _of_output(words)
    if kind is ErrorKind.BODY_TOO_LARGE:
        return Numbers(
            observed=_bytes(_OBSERVED_BYTES, words), allowed=_bytes(_ALLOWED_BYTES, words)
        )
    if kind in (ErrorKind.TOO_MANY_MESSAGES, ErrorKind.MESSAGE_TOO_LONG):
        found = _MESSAGE.search(said.param) or _MESSAGE.search(words)
        about_one = kind is ErrorKind.MESSAGE_TOO_LONG
        return Numbers(
            observed=_first(_OBSERVED_ENTRIES, words),
            allowed=_first(_ALLOWED_ENTRIES, words),
            message_index=number(found[1]) if found and about_one else None,
        )
    return Numbers()


def rate_numbers(words: str) -> tuple[int | None, int | None]:
    """Return what a rate limit's text says was requested and is allowed."""
    return _first(_REQUESTED, words), _first(_LIMIT, words)


def _of_overflow(said: Said) -> Numbers:
    fields, words = said.numbers, said.words
    allowed = _match(_ALLOWED_TOKENS, words)
    observed = _match(_OBSERVED_TOKENS, words, apart_from=allowed)
    return Numbers(
        observed=fields.get("n_prompt_tokens") or _sum(observed),
        allowed=fields.get("n_ctx") or _sum(allowed),
    )


def _of_output(words: str) -> Numbers:
    if _BELOW_MINIMUM.search(words):
        return Numbers(observed=_first(_OBSERVED_OUTPUT, words))
    return Numbers(observed=_first(_OBSERVED_OUTPUT, words), allowed=_first(_ALLOWED_OUTPUT, words))


def _match(
    patterns: Iterable[re.Pattern[str]], words: str, apart_from: re.Match[str] | None = None
) -> re.Match[str] | None:
    """Return the first match whose number is not the one of `apart_from`."""
    taken = apart_from.span(_filled(apart_from)[0]) if apart_from else None
    for pattern in patterns:
        for found in pattern.finditer(words):
            if all(found.span(group) != taken for group in _filled(found)):
                return found
    return None


def _filled(found: re.Match[str]) -> list[int]:
    return [number for number, text in enumerate(found.groups(), 1) if text is not None]


def _first(patterns: Iterable[re.Pattern[str]], words: str) -> int | None:
    return _sum(_match(patterns, words))


def _sum(found: re.Match[str] | None) -> int | None:
    if found is None:
        return None
    return sum(number(text) for text in found.groups() if text is not None) or None


def _bytes(patterns: Iterable[re.Pattern[str]], words: str) -> int | None:
    found = _match(patterns, words)
    return number(found[1]) * _BYTE_SCALE[found[2]] if found else None


def number(text: str) -> int:
    """Return a written number, with or without thousands separators, k or m."""
    scale = _SCALE.get(text[-1:], 1)
    digits = re.sub(r"\D", "", text)[:15]
    return int(digits or 0) * scale
