"""Which kind an error is: by status, code and numbers first, then by the words that servers use."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from chatapp.conf import chatapp_settings
from chatapp.llm.error_forms import form_of
from chatapp.llm.error_kinds import ErrorKind
from chatapp.llm.error_parsing import Said, rate_numbers
from chatapp.messages.patterns import lazy_pattern

if TYPE_CHECKING:
    from chatapp.llm.errors import ModelError


def _any(*alternatives: str) -> re.Pattern[str]:
    return lazy_pattern("|".join(alternatives))


_EXCESS = (
    r"(?:exceed(?:s|ed|ing)?\b|too (?:large|long|big)\b|(?:greater|longer|larger|more) than\b"
    r"|surpass|超)"
)
_TOO_LONG = r"too (?:long|large|big)\b"

# --- overflow ---------------------------------------------------------------------------------

OVERFLOW_NAMES = _any(
    r"context_?(?:(?:length|window|size)_?)?(?:limit_?)?exceeded",
    r"exceed_context_size",
    r"max_prompt_tokens_exceeded",
    r"prompt_too_long",
)
OVERFLOW_WORDS = _any(
    # A length and an excess, in either order.
    rf"context[ _](?:window|length|size|limit)\b.{{0,60}}?{_EXCESS}",
    rf"{_EXCESS}.{{0,60}}?\bcontext[ _](?:window|length|size|limit)\b",
    r"\bexceed(?:s|ed)?\b.{0,40}?\bcontext\b",
    rf"\b(?:prompt|conversation)s?\b.{{0,40}}?{_TOO_LONG}",
    r"\bprompt\b.{0,40}?\bexceed(?:s|ed)?\b",
    rf"\binputs?(?: text| prompt| sequence)?(?: is| are| was|:)? {_TOO_LONG}",
    rf"\binput length\b.{{0,60}}?{_EXCESS}",
    rf"\btokens?\b.{{0,60}}?{_EXCESS}",
    rf"{_EXCESS}.{{0,60}}?\btokens?\b",
    r"exceed(?:s|ed)? the maximum (?:allowed )?(?:input |sequence )?length\b",
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
    r"\bn_tokens \(?\d+\)? >=? n_ctx\b",
    rf"\bmessages?(?: you submitted)?(?: is| are| was)? {_TOO_LONG}",
    r"tokens to keep from the initial prompt",
    r"when context the overflows",
    r"\bcontext overflow:",
    r"requested [\d,]+ output tokens.{0,120}?prompt contains.{0,80}?total of",
    r"must be less than max_seq_len",
    r"range of input length should be",
    # The room for the answer as vLLM computed it: what the prompt left of the window.
    r"max_tokens must be at least 1, got (?:-\d|0\b)",
    r"上下文.{0,20}(?:超|过长|过大)",
    r"(?:输入|提示词|长度).{0,20}(?:超过|超出|超限|过长)",
    r"超.{0,10}上下文",
    r"压缩上下文",
)
NO_BODY = lazy_pattern(r"(?:400|413) ?(?:status code)? ?\(no body\)")
OVERFLOW_ARGUMENT = lazy_pattern(r"maximum number of (?:input )?tokens")

# --- what only looks like an overflow ----------------------------------------------------------

NOT_ABOUT_SIZE = _any(
    r"context window.{0,60}(?:too small|minimum)",
    r"reasoning is (?:mandatory|required)",
    r"minimum token count",  # a cache that would be too small
)
# Limits on other things: uploads, the number of tools, a tool's name.
OTHER_LIMITS = _any(
    r"\b(?:tool|function|file|stop|image|choice|schema)s?\b.{0,30}exceeds the limit of \d",
    r"(?:access|api|auth|bearer|id) token\b",
)

RATE_NAMES = _any(r"rate_?limit", r"throttl", r"too_?many_?requests", r"resource_?exhausted")
RATE_WORDS = _any(
    r"rate.?limit",
    r"\bper.(?:minute|min|hour|day)\b",
    r"\b[tr]p[md]\b",
    r"too many requests",
    r"wait before trying",
    r"\bslow down\b",
    r"\b(?:daily|hourly)(?: token| request)? limit",
    r"频率|频繁|速率|并发|限流",
)
PER_TIME_TOKENS = _any(r"\btp[md]\b", r"tokens? per")

QUOTA_NAMES = _any(r"insufficient_?(?:quota|balance|credit|fund)", r"billing", r"payment_required")
QUOTA_WORDS = _any(
    r"insufficient[ _](?:quota|balance|credits?|funds)",
    r"payment required",
    r"can only afford",
    r"credit balance",
    r"\bquota\b.{0,40}exceed",
    r"exceed.{0,40}\bquota\b",
    r"\b(?:monthly|weekly)\b.{0,30}\blimit",
    r"\busage limit",
    r"额度|余额|欠费|配额",
)
AUTHENTICATION_NAMES = _any(
    r"invalid_?api_?key", r"authentication_?error", r"permission_?(?:error|denied)"
)
FILTER_NAMES = _any(
    r"content_?filter",
    r"content_?policy",
    r"responsible_?ai",
    r"data_?inspection_?failed",
    r"prohibited_?content",
    r"moderation",
)
FILTER_WORDS = _any(
    r"content (?:management )?policy",
    r"content filter",
    r"inappropriate content",
    r"input was flagged",
    r"requires moderation",
)

# --- refusals with a cure of their own -----------------------------------------------------------

STATE_NAMES = _any(r"previous_response_not_found", r"invalid_encrypted_content")
STATE_WORDS = _any(
    r"previous response.{0,100}not found",
    # Reasoning that the server did not keep, or that it misses beside what came of it.
    r"\bitem with id\b.{0,100}not found",
    r"provided without its required",
    r"encrypted content.{0,100}(?:could not|cannot|can't|failed|invalid)",
)
PREVIOUS_ID = lazy_pattern(r"previous_response_id")
NOT_FOUND = lazy_pattern(r"not[ _]found")
UNSUPPORTED = _any(
    r"unsupported", r"not supported", r"unknown", r"unrecognized", r"unexpected", r"invalid",
    r"not permitted", r"unavailable", r"does not support",
)  # fmt: skip
PAIR_WORDS = _any(
    r"tool_call_ids?\b.{0,80}(?:not found|did not have|do(?:es)? not|without|unexpected)",
    r"tool_use\b.{0,80}without.{0,20}tool_result",
    r"unexpected (?:tool_use_id|tool_result)",
    r"no tool (?:output|call) found",
    r"role '?\"?tool.{0,40}must be a response to",
    r"tool_calls.{0,20}must be followed by",
    r"insufficient tool messages",
    r"unexpected role 'tool'",
    r"unexpected tool call id",
    r"number of function (?:response|call)",
    r"function call turn comes immediately",
    r"expected toolresult",
)
PARTS_WORDS = _any(
    r"invalid.{0,40}\b(?:in|out)put_(?:text|image|file)\b",
    r"\binput_text\b.{0,40}(?:invalid|not supported|unsupported|unknown)",
    r"(?:invalid|unknown|unsupported|unrecognized) (?:content|part)(?: part)? type",
    r"content(?: part)? type.{0,60}(?:not supported|unsupported|invalid|unknown)",
    r"unknown variant (?:image_url|input_text|output_text|input_image|text), expected",
    r"\bcontent\b.{0,40}(?:must|should) be a (?:valid )?string",
    r"content: invalid type: sequence",
)

OUTPUT_LIMIT_WORDS = _any(
    r"at most \S+ (?:completion|output) tokens",
    r"maximum allowed number of output tokens",
    r"(?:max_(?:completion_|output_|new_)?tokens|max ?output ?tokens|maxoutputtokens).{0,40}"
    r"(?:below minimum|too (?:large|high|low|small)|(?:must|should) be (?!greater)|> \d"
    r"|supported range"
    r"|less than|exceeds|valid range)",
    r"range of max_tokens",
)
# An answer's limit is named beside the window's by some servers; then it is the window's error.
ABOUT_THE_WINDOW = _any(
    r"\bcontext\b", r"\binputs? tokens \+", r"max_tokens must be at least 1, got (?:-\d|0\b)"
)
MESSAGE_COUNT_NAMES = lazy_pattern(r"array_above_max_length|too_many_messages")
MESSAGE_COUNT_WORDS = _any(r"\btoo many messages\b", r"\barray too long\b")
STRING_NAMES = lazy_pattern(r"string_above_max_length")
STRING_WORDS = lazy_pattern(r"\bstring too long\b")
CONVERSATION = lazy_pattern(r"(?:messages|input)'?")
# Places whose text is a message's own; a name or an id that is too long is no such place.
MESSAGE_TEXT = lazy_pattern(
    r"\b(?:messages|input)(?:\[|\.)\d+\]?(?:$|\W*$|['\"]|\.(?:content|output|text|arguments)\b"
    r"|\.tool_calls.{0,8}\.function\.arguments)"
)

BODY_NAMES = _any(r"request_?(?:entity_)?too_?large", r"payload_?too_?large", r"body_?too_?large")
BODY_WORDS = _any(
    r"(?:payload|request|body|upload)(?: body| payload)? size exceeds",
    r"(?:request entity|payload|request body|content) too large",
    r"total text bytes",
    r"exceeds the maximum (?:allowed )?(?:size|number of bytes)",
    r"exceeds upload limit",
    r"\bimage\b.{0,40}exceed.{0,40}(?:\bmb\b|bytes|size|pixels)",
)

UNAVAILABLE_START = lazy_pattern(r"service unavailable\b")
UNAVAILABLE_NAMES = _any(
    r"overloaded", r"unavailable", r"server_?error", r"internal_?error", r"api_error"
)
UNAVAILABLE_WORDS = _any(
    r"\boverloaded\b", r"service (?:is )?unavailable", r"temporarily unavailable", r"bad gateway",
    r"internal server error", r"upstream (?:connect|request timeout)",
)  # fmt: skip
TIMEOUT_NAMES = _any(r"time_?out")


Rule = Callable[[Said], bool]

# Statuses under which a server may call a request too large; 500 was llama.cpp's.
_REFUSED = (None, 200, 400, 404, 413, 422, 500)
_UNCLEAR = (None, 200)
_PASSING = (408, 409, 425)


def classify(said: Said) -> ErrorKind:
    """Return what an error means for the turn."""
    first = _first_of(_FIRST_RULES, said)
    return first or form_of(said) or _first_of(_LAST_RULES, said) or ErrorKind.REJECTED


def _first_of(rules: Sequence[tuple[ErrorKind, Rule]], said: Said) -> ErrorKind | None:
    return next((kind for kind, holds in rules if holds(said)), None)


def _named(pattern: re.Pattern[str]) -> Rule:
    """Return a rule for codes and types."""
    return lambda said: _is_named(said, pattern)


def _is_named(said: Said, pattern: re.Pattern[str]) -> bool:
    return any(pattern.search(name) for name in said.names)


def _worded(*patterns: re.Pattern[str]) -> Rule:
    """Return a rule for texts; the place in the request that the error names belongs to them."""
    return lambda said: any(pattern.search(f"{said.param} {said.words}") for pattern in patterns)


_speaks_of_rate = _worded(RATE_WORDS, RATE_NAMES)
_speaks_of_quota = _worded(QUOTA_WORDS, QUOTA_NAMES)
_times_out = _named(TIMEOUT_NAMES)


def _is_limited_by_structure(said: Said) -> bool:
    return said.status == 429 or _is_named(said, RATE_NAMES)


def _is_over_rate(said: Said) -> bool:
    """Whether one request has more tokens than its limit for a time, so that waiting is in vain."""
    if not (_is_limited_by_structure(said) or _speaks_of_rate(said)):
        return False
    requested, limit = rate_numbers(said.words)
    if not requested or not limit or not PER_TIME_TOKENS.search(said.words):
        return False
    return requested > limit


def _is_out_of_quota(said: Said) -> bool:
    """Whether the account is used up: by status or code, or by the text of a 429.

    Google words a limit per minute like that, too; its status tells them apart.
    """
    if said.status == 402 or _is_named(said, QUOTA_NAMES):
        return True
    renewed = said.retry_after is not None or _is_named(said, RATE_NAMES)
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
    if _is_named(said, STATE_NAMES):
        return True
    place = f"{said.param} {said.words}"
    if STATE_WORDS.search(place) or STATE_NAMES.search(place):
        return True
    about = " ".join((place, *said.names))
    return bool(PREVIOUS_ID.search(place) and UNSUPPORTED.search(about))


def refuses_continuations(error: ModelError) -> bool:
    """Whether a server refuses to go on from any answer, and has not just lost the one named."""
    place = f"{error.param} {error.detail}".lower()
    about = f"{error.code.lower()} {place}"
    lost = NOT_FOUND.search(about)
    return bool(PREVIOUS_ID.search(place) and UNSUPPORTED.search(about) and not lost)


def _has_too_many_messages(said: Said) -> bool:
    """Whether the list of messages is too long; lists of tools or parts have limits as well."""
    words = said.words
    if not (_is_named(said, MESSAGE_COUNT_NAMES) or MESSAGE_COUNT_WORDS.search(words)):
        return False
    place = said.param or _quoted_place(words)
    return not place or bool(CONVERSATION.fullmatch(place))


def _has_too_long_message(said: Said) -> bool:
    """Whether a message's text is too long; names, ids and `user` have limits as well."""
    words = said.words
    if not (_is_named(said, STRING_NAMES) or STRING_WORDS.search(words)):
        return False
    place = said.param or _quoted_place(words)
    return not place or bool(MESSAGE_TEXT.search(place))


def _quoted_place(words: str) -> str:
    """Return the place in the request that a text quotes: Invalid 'messages[3].content': …."""
    found = re.search(r"invalid ['\"]([a-z_\[\]\d.]+)['\"]", words)
    return found[1] if found else ""


def _has_output_limit(said: Said) -> bool:
    place = f"{said.param} {said.words}"
    if ABOUT_THE_WINDOW.search(place):
        return False
    return bool(OUTPUT_LIMIT_WORDS.search(place))


def _is_overflow(said: Said) -> bool:
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
    if OVERFLOW_WORDS.search(words):
        return True
    invalid = any("invalid_argument" in name for name in said.names) or "invalid_argument" in words
    return invalid and bool(OVERFLOW_ARGUMENT.search(words))


def _is_body_too_large(said: Said) -> bool:
    place = f"{said.param} {said.words}"
    return (
        said.status == 413
        or _is_named(said, BODY_NAMES)
        or bool(BODY_NAMES.search(place) or BODY_WORDS.search(place))
    )


def _is_outage(said: Said) -> bool:
    status = said.status
    if status is not None and (status >= 500 or status in _PASSING):
        return True
    return status in _UNCLEAR and (
        _is_named(said, UNAVAILABLE_NAMES) or bool(UNAVAILABLE_WORDS.search(said.words))
    )


_FIRST_RULES: tuple[tuple[ErrorKind, Rule], ...] = (
    (ErrorKind.REQUEST_OVER_RATE, _is_over_rate),
    (ErrorKind.QUOTA, _is_out_of_quota),
    (ErrorKind.RATE_LIMITED, _is_limited_by_structure),
    (ErrorKind.CONTEXT_OVERFLOW, _named(OVERFLOW_NAMES)),
    (ErrorKind.CONTEXT_OVERFLOW, _has_more_than_fits),
    (ErrorKind.RATE_LIMITED, _speaks_of_rate),
    (ErrorKind.CONTEXT_OVERFLOW, _is_added_by_operator),
    (ErrorKind.CONTENT_FILTER, _named(FILTER_NAMES)),
    (ErrorKind.CONTENT_FILTER, _worded(FILTER_WORDS)),
    (ErrorKind.QUOTA, _speaks_of_quota),
    (ErrorKind.AUTHENTICATION, lambda said: said.status in (401, 403)),
    (ErrorKind.AUTHENTICATION, _named(AUTHENTICATION_NAMES)),
    (ErrorKind.STATE_LOST, _has_lost_state),
    (ErrorKind.TOO_MANY_MESSAGES, _has_too_many_messages),
    (ErrorKind.MESSAGE_TOO_LONG, _has_too_long_message),
    (ErrorKind.BROKEN_PAIRS, _worded(PAIR_WORDS)),
    (ErrorKind.PARTS_REFUSED, _worded(PARTS_WORDS)),
    (ErrorKind.OUTPUT_LIMIT, _has_output_limit),
)
_LAST_RULES: tuple[tuple[ErrorKind, Rule], ...] = (
    (ErrorKind.REJECTED, _worded(NOT_ABOUT_SIZE, STRING_WORDS)),
    (ErrorKind.UNAVAILABLE, lambda said: bool(UNAVAILABLE_START.match(said.words))),
    (ErrorKind.CONTEXT_OVERFLOW, _is_overflow),
    (ErrorKind.BODY_TOO_LARGE, _is_body_too_large),
    (ErrorKind.TIMEOUT, lambda said: said.status in _UNCLEAR and _times_out(said)),
    (ErrorKind.UNAVAILABLE, _is_outage),
)
