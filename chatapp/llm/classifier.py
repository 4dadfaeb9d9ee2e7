"""Which kind an error is: rules in order, the first that holds decides.

The order is the knowledge: a status, code or type before a text, and what only looks like an
overflow (rate limits, quotas, limits of the answer) before the overflow (spec/model_errors.md 3b).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from chatapp.conf import chatapp_settings
from chatapp.llm import wordings
from chatapp.llm.error_bodies import Said
from chatapp.llm.error_kinds import ErrorKind
from chatapp.llm.error_numbers import rate_numbers

Rule = Callable[[Said], bool]

# Statuses under which a server may call a request too large; 500 was llama.cpp's.
_REFUSED = (None, 200, 400, 404, 413, 422, 500)
_UNCLEAR = (None, 200)
_PASSING = (408, 409, 425)


def classify(said: Said) -> ErrorKind:
    """Return what an error means for the turn."""
    return next((kind for kind, holds in _RULES if holds(said)), ErrorKind.REJECTED)


def _named(pattern: re.Pattern[str]) -> Rule:
    """Return a rule for codes and types."""
    return lambda said: _is_named(said, pattern)


def _is_named(said: Said, pattern: re.Pattern[str]) -> bool:
    return any(pattern.search(name) for name in said.names)


def _worded(*patterns: re.Pattern[str]) -> Rule:
    """Return a rule for texts; the place in the request that the error names belongs to them."""
    return lambda said: any(pattern.search(f"{said.param} {said.words}") for pattern in patterns)


_speaks_of_rate = _worded(wordings.RATE_WORDS, wordings.RATE_NAMES)
_speaks_of_quota = _worded(wordings.QUOTA_WORDS, wordings.QUOTA_NAMES)
_times_out = _named(wordings.TIMEOUT_NAMES)


def _is_limited_by_structure(said: Said) -> bool:
    return said.status == 429 or _is_named(said, wordings.RATE_NAMES)


def _is_over_rate(said: Said) -> bool:
    """Whether one request has more tokens than its limit for a time, so that waiting is in vain."""
    if not (_is_limited_by_structure(said) or _speaks_of_rate(said)):
        return False
    requested, limit = rate_numbers(said.words)
    if not requested or not limit or not wordings.PER_TIME_TOKENS.search(said.words):
        return False
    return requested > limit


def _is_out_of_quota(said: Said) -> bool:
    """Whether the account is used up: by status or code, or by the text of a 429.

    Google words a limit per minute like that, too; its status tells them apart.
    """
    if said.status == 402 or _is_named(said, wordings.QUOTA_NAMES):
        return True
    renewed = said.retry_after is not None or _is_named(said, wordings.RATE_NAMES)
    return said.status == 429 and not renewed and _speaks_of_quota(said)


def _has_more_than_fits(said: Said) -> bool:
    """Whether the numeric fields alone say so; llama.cpp's names, which others took over."""
    sent, window = said.numbers.get("n_prompt_tokens"), said.numbers.get("n_ctx")
    return sent is not None and window is not None and sent >= window > 0


def _is_added_by_operator(said: Said) -> bool:
    """Whether one of CHATAPP's OVERFLOW_WORDINGS occurs in the text or the codes."""
    wanted = chatapp_settings.overflow_wordings
    texts = [said.text.casefold(), *said.names]
    fragments = (wanted,) if isinstance(wanted, str) else wanted
    return any(
        fragment.strip().casefold() in text
        for fragment in fragments
        if fragment.strip()
        for text in texts
    )


def _has_lost_state(said: Said) -> bool:
    if _is_named(said, wordings.STATE_NAMES):
        return True
    place = f"{said.param} {said.words}"
    if wordings.STATE_WORDS.search(place) or wordings.STATE_NAMES.search(place):
        return True
    about = " ".join((place, *said.names))
    return bool(wordings.PREVIOUS_ID.search(place) and wordings.UNSUPPORTED.search(about))


def _has_too_many_messages(said: Said) -> bool:
    """Whether the list of messages is too long; lists of tools or parts have limits as well."""
    words = said.words
    if not (
        _is_named(said, wordings.MESSAGE_COUNT_NAMES) or wordings.MESSAGE_COUNT_WORDS.search(words)
    ):
        return False
    place = said.param or _quoted_place(words)
    return not place or bool(wordings.CONVERSATION.fullmatch(place))


def _has_too_long_message(said: Said) -> bool:
    """Whether a message's text is too long; names, ids and `user` have limits as well."""
    words = said.words
    if not (_is_named(said, wordings.STRING_NAMES) or wordings.STRING_WORDS.search(words)):
        return False
    place = said.param or _quoted_place(words)
    return not place or bool(wordings.MESSAGE_TEXT.search(place))


def _quoted_place(words: str) -> str:
    """Return the place in the request that a text quotes: Invalid 'messages[3].content': …."""
    found = re.search(r"invalid ['\"]([a-z_\[\]\d.]+)['\"]", words)
    return found[1] if found else ""


def _has_output_limit(said: Said) -> bool:
    place = f"{said.param} {said.words}"
    if wordings.ABOUT_THE_WINDOW.search(place):
        return False
    return bool(wordings.OUTPUT_LIMIT_WORDS.search(place))


def _is_overflow(said: Said) -> bool:
    """Whether the request is larger than the window, by its wording or by saying nothing."""
    if said.status not in _REFUSED:
        return False
    words = said.words
    if said.is_empty:  # Cerebras
        return said.status in (400, 413)
    if wordings.NO_BODY.match(words) or wordings.OVERFLOW_NAMES.search(words):
        return True
    if wordings.OTHER_LIMITS.search(words):
        return False
    if wordings.OVERFLOW_WORDS.search(words):
        return True
    invalid = any("invalid_argument" in name for name in said.names) or "invalid_argument" in words
    return invalid and bool(wordings.OVERFLOW_ARGUMENT.search(words))


def _is_body_too_large(said: Said) -> bool:
    place = f"{said.param} {said.words}"
    return (
        said.status == 413
        or _is_named(said, wordings.BODY_NAMES)
        or bool(wordings.BODY_NAMES.search(place) or wordings.BODY_WORDS.search(place))
    )


def _is_outage(said: Said) -> bool:
    status = said.status
    if status is not None and (status >= 500 or status in _PASSING):
        return True
    return status in _UNCLEAR and (
        _is_named(said, wordings.UNAVAILABLE_NAMES)
        or bool(wordings.UNAVAILABLE_WORDS.search(said.words))
    )


_RULES: tuple[tuple[ErrorKind, Rule], ...] = (
    (ErrorKind.REQUEST_OVER_RATE, _is_over_rate),
    (ErrorKind.QUOTA, _is_out_of_quota),
    (ErrorKind.RATE_LIMITED, _is_limited_by_structure),
    (ErrorKind.CONTEXT_OVERFLOW, _named(wordings.OVERFLOW_NAMES)),
    (ErrorKind.CONTEXT_OVERFLOW, _has_more_than_fits),
    (ErrorKind.RATE_LIMITED, _speaks_of_rate),
    (ErrorKind.CONTEXT_OVERFLOW, _is_added_by_operator),
    (ErrorKind.CONTENT_FILTER, _named(wordings.FILTER_NAMES)),
    (ErrorKind.CONTENT_FILTER, _worded(wordings.FILTER_WORDS)),
    (ErrorKind.QUOTA, _speaks_of_quota),
    (ErrorKind.AUTHENTICATION, lambda said: said.status in (401, 403)),
    (ErrorKind.AUTHENTICATION, _named(wordings.AUTHENTICATION_NAMES)),
    (ErrorKind.STATE_LOST, _has_lost_state),
    (ErrorKind.TOO_MANY_MESSAGES, _has_too_many_messages),
    (ErrorKind.MESSAGE_TOO_LONG, _has_too_long_message),
    (ErrorKind.REJECTED, _worded(wordings.NOT_ABOUT_SIZE, wordings.STRING_WORDS)),
    (ErrorKind.BROKEN_PAIRS, _worded(wordings.PAIR_WORDS)),
    (ErrorKind.PARTS_REFUSED, _worded(wordings.PARTS_WORDS)),
    (ErrorKind.OUTPUT_LIMIT, _has_output_limit),
    (ErrorKind.UNAVAILABLE, lambda said: bool(wordings.UNAVAILABLE_START.match(said.words))),
    (ErrorKind.CONTEXT_OVERFLOW, _is_overflow),
    (ErrorKind.BODY_TOO_LARGE, _is_body_too_large),
    (ErrorKind.TIMEOUT, lambda said: said.status in _UNCLEAR and _times_out(said)),
    (ErrorKind.UNAVAILABLE, _is_outage),
)
