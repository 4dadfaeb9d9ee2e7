"""Which kind an error is: by status, code and numbers first, then by the words that servers use."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from chatapp.conf import chatapp_settings
from chatapp.llm.error_forms import form_of
from chatapp.llm.error_kinds import ErrorKind
from chatapp.llm.error_outages import is_busy, is_outage, is_spoiled, times_out
from chatapp.llm.error_overflow import LONG_REQUESTS, OVERFLOW_NAMES, any_of, is_overflow
from chatapp.llm.error_parsing import Said, rate_numbers
from chatapp.messages.patterns import lazy_pattern

if TYPE_CHECKING:
    from chatapp.llm.errors import ModelError


# --- what only looks like an overflow ----------------------------------------------------------

NOT_ABOUT_SIZE = any_of(
    r"context window.{0,60}(?:too small|minimum)",
    r"reasoning is (?:mandatory|required)",
    r"minimum token count",  # a cache that would be too small
)
RATE_NAMES = any_of(r"rate_?limit", r"throttl", r"too_?many_?requests", r"resource_?exhausted")
RATE_WORDS = any_of(
    r"rate.?limit",
    r"\bper.(?:minute|min|hour|day)\b",
    r"\b[tr]p[md]\b",
    r"too many requests",
    r"wait before trying",
    r"\bslow down\b",
    r"\b(?:daily|hourly)(?: token| request)? limit",
    r"频率|频繁|速率|并发|限流",
)
PER_TIME_TOKENS = any_of(r"\btp[md]\b", r"tokens? per")

QUOTA_NAMES = any_of(
    r"insufficient_?(?:quota|balance|credit|fund)", r"billing", r"payment_required",
    r"exceeded_?budget|^budget_?exceeded$", r"allocation_?quota", r"free_?tier_?only",
    r"^arrearage$", r"account_?overdue",
)  # fmt: skip
# One of money: what a model may think, or a request may hold, has a budget as well.
_BUDGET = "".join(
    rf"(?<!{other}[ _])"
    for other in (
        "thinking", "reasoning", "token", "tokens", "context", "image", "media", "input", "prompt",
        "output",
    )
) + r"(?<![a-z])budget\b"  # fmt: skip
QUOTA_WORDS = any_of(
    r"insufficient[ _](?:quota|balance|credits?|funds)",
    r"payment required",
    r"can only afford",
    r"credit balance",
    r"\bquota\b.{0,40}exceed",
    r"exceed.{0,40}\bquota\b",
    r"\b(?:monthly|weekly)\b.{0,30}\blimit",
    r"\busage limit",
    rf"{_BUDGET}.{{0,40}}exceed|exceed.{{0,20}}{_BUDGET}|\bover {_BUDGET}",
    r"\bkey limit exceeded",
    r"\b(?:free tier|credits?)\b.{0,40}(?:exhausted|used up)",
    r"\bout of credits\b",
    r"\bbalance\b.{0,20}\binsufficient",
    r"额度|余额|欠费|配额|用量上限|使用上限",
)
AUTHENTICATION_NAMES = any_of(
    r"invalid_?api_?key", r"authentication_?error", r"permission_?(?:error|denied)"
)
AUTHENTICATION_WORDS = any_of(
    r"\bapi[ _-]?key\b.{0,40}\b(?:not valid|invalid|incorrect|expired|missing|required)\b",
    r"\b(?:incorrect|invalid|missing|expired|wrong) "
    r"(?:api[ _-]?key|(?:access|bearer) token|credentials)\b",
    r"\binvalid token\b(?! (?:in|at|near)\b| ?['\"<{\[])",
    r"\bunauthori[sz]ed\b",
    r"无效的(?:令牌|密钥)|(?:令牌|密钥).{0,6}(?:无效|过期)",
)
REGION_NAMES = any_of(r"unsupported_?(?:country|region|territory|location)")
# Of who asks: a tool's parameter may be named `location`, too.
_PLACE = r"(?:country|region|territory|location|area)"
_DENIED = r"(?:not|un)[ -]?(?:supported|allowed|available|permitted|served|offered|authorized)"
REGION_WORDS = any_of(
    r"\bcountry, region,? or territory\b",
    rf"\b(?:user|your|client|this) {_PLACE}\b.{{0,30}}\b(?:{_DENIED}|blocked|restricted)",
    rf"\b(?:{_DENIED}|blocked|restricted|access)\b.{{0,20}}\b(?:in|from|for|to|within) "
    rf"(?:your|this|the user'?s?|the)(?: current)? {_PLACE}\b",
    r"(?:所在|您的|你的|该|当前)的?(?:地区|国家|区域).{0,10}(?:不支持|不可用|受限|无法|不能)",
)
FILTER_NAMES = any_of(
    r"content_?filter",
    r"content_?policy",
    r"responsible_?ai",
    r"data_?inspection_?failed",
    r"sensitive_?(?:content|information|words?)",
    r"prohibited_?content",
    r"moderation",
)
FILTER_WORDS = any_of(
    r"content (?:management )?policy",
    r"content filter",
    r"inappropriate content",
    r"input was flagged",
    r"requires moderation",
    r"\bguardrail",
    r"\bsafety (?:settings?|system|policy|policies|filters?)\b",
    r"\busage polic(?:y|ies)\b",
    r"\binfringement\b",
    r"content exists risk",
    r"considered high risk",
    r"(?<!case)(?<!case[- ])\bsensitive (?:information|content|words?|material|topics?)\b",
    r"[a-z]_sensitive\b",
    r"敏感|不安全|违规",
)

# --- refusals with a cure of their own -----------------------------------------------------------

STATE_NAMES = any_of(r"previous_response_not_found", r"invalid_encrypted_content")
STATE_WORDS = any_of(
    r"previous response.{0,100}not found",
    # Reasoning that the server did not keep, or that it misses beside what came of it.
    r"\bitem with id\b.{0,100}not found",
    r"provided without its required",
    r"encrypted content.{0,100}(?:could not|cannot|can't|failed|invalid)",
)
PREVIOUS_ID = lazy_pattern(r"previous_response_id")
NOT_FOUND = lazy_pattern(r"not[ _]found")
UNSUPPORTED = any_of(
    r"unsupported", r"not supported", r"unknown", r"unrecognized", r"unexpected", r"invalid",
    r"not permitted", r"unavailable", r"does not support",
)  # fmt: skip
PAIR_WORDS = any_of(
    r"tool_call_ids?\b.{0,80}(?:not found|did not have|do(?:es)? not|without|unexpected)",
    r"tool_use\b.{0,80}without.{0,20}tool_result",
    r"unexpected (?:tool_use_id|tool_result)",
    r"no tool (?:output|call) found",
    r"role '?\"?tool.{0,40}must be a response to",
    r"tool_calls.{0,20}must be followed by",
    r"insufficient tool messages",
    r"\btool[ _](?:call|result|message|response|output)s?\b.{0,60}\b(?:not follow|must "
    r"(?:follow|be preceded|have a matching)|no previous|not found|without a|no matching|"
    r"does not match)",
    r"\bmissing\b.{0,20}\btool_?(?:result|response|output)",
    r"\bfunction responses?\b.{0,30}\b(?:count|mismatch)",
    r"\btool role\b.{0,40}\bno previous",
    r"toolresult.{0,60}exceeds.{0,40}tooluse",
    r"unexpected role 'tool'",
    r"\btool_(?:use|call)_id: |\btool message\b.{0,40}\bno (?:corresponding|matching|preceding)\b",
    r"unexpected tool call id",
    r"number of function (?:response|call)",
    r"\btool_(?:use|call|result)s?\b.{0,60}\b(?:single|multiple|duplicated?|more than one)\b",
    r"\b(?:multiple|duplicated?|more than one) tool_(?:result|output|response)",
    r"function call turn comes immediately",
    r"expected toolresult",
)
PARTS_WORDS = any_of(
    r"invalid.{0,40}\b(?:in|out)put_(?:text|image|file)\b",
    r"\binput_text\b.{0,40}(?:invalid|not supported|unsupported|unknown)",
    r"(?:invalid|unknown|unsupported|unrecognized) (?:message )?(?:content|part)(?: part)? type",
    r"expected '?content'? to be",
    r"content(?: part)? type.{0,60}(?:not supported|unsupported|invalid|unknown)",
    r"unknown variant (?:image_url|input_text|output_text|input_image|text), expected",
    r"\bcontent\b.{0,40}(?:must|should) be (?:an? |of type )?(?:valid )?['\"]?string",
    # As validators of many languages tell the place and the two types.
    r"\bcontent\b.{0,60}\b(?:type mismatch|not of type|expected (?:an? )?string|received array)",
    r"\b(?:type mismatch|expected (?:an? )?string|received array)\b.{0,60}\bcontent\b",
    r"\bunmarshal\w*\b.{0,80}\bmessages?\.content\b",
    r"invalid type: (?:sequence|map), expected a string",
    r"content: invalid type: sequence",
    r"\bcontent\b.{0,40}\b(?:did|does) not match any (?:\w+ )?(?:variant|schema|type|form)s?\b",
    # Nothing beside calls: servers that want a text there.
    r"\bcontent\b.{0,80}(?:\bnull\b|\bnone\b|<nil>)",
    r"\bmessages?[\[.]\d+\]?(?:\.\w{1,20})?\.content\b.{0,40}\bfield required\b",
)

OUTPUT_LIMIT_WORDS = any_of(
    r"at most \S+ (?:completion|output) tokens",
    r"maximum allowed number of output tokens",
    r"(?:max_(?:completion_|output_|new_)?tokens|max ?output ?tokens|maxoutputtokens).{0,40}"
    r"(?:below minimum|too (?:large|high|low|small)|(?:must|should) be (?!greater)|> \d"
    r"|supported range|no more than|<= ?\d|above|greater than the|between \d"
    r"|less than|exceeds|valid range)",
    r"range of max_tokens",
    r"maximum tokens (?:you requested|value)",
)
# An answer's limit is named beside the window's by some servers; then it is the window's error.
ABOUT_THE_WINDOW = any_of(
    r"\bcontext\b", r"\binputs? tokens \+", r"max_tokens must be at least 1, got (?:-\d|0\b)"
)
MEDIA_NAMES = any_of(r"media_?budget", r"image_?too_?large", r"too_?many_?images")
MESSAGE_COUNT_NAMES = lazy_pattern(r"array_above_max_length|too_many_messages")
MESSAGE_COUNT_WORDS = any_of(
    r"\btoo many messages\b", r"\barray too long\b", r"\blist should have at most"
)
STRING_NAMES = lazy_pattern(r"string_above_max_length")
STRING_WORDS = any_of(
    r"\bstring (?:too long|should have at most)\b", r"\bmax_?length\b.{0,20}\bactual\b"
)
CONVERSATION = lazy_pattern(r"(?:messages|input)'?")
# Places whose text is a message's own; a name or an id that is too long is no such place.
MESSAGE_TEXT = lazy_pattern(
    r"\b(?:messages|input)(?:\[|\.)\d+\]?(?:$|\W*$|['\"]|\.(?:content|output|text|arguments)\b"
    r"|\.tool_calls.{0,8}\.function\.arguments)"
)

BODY_NAMES = any_of(r"request_?(?:entity_)?too_?large", r"payload_?too_?large", r"body_?too_?large")
BODY_WORDS = any_of(
    r"(?:payload|request|body|upload)(?: body| payload)? size exceeds",
    r"(?:request entity|payload|request body|content) too large",
    r"total text bytes",
    r"limit on max bytes",
    r"\b(?:too many|at most [1-9]\d*) (?:images?|pictures?|documents?)\b",
    r"exceeds the maximum (?:allowed )?(?:size|number of bytes)",
    r"exceeds upload limit",
    r"\bimage\b.{0,40}exceed.{0,40}(?:\bmb\b|bytes|size|pixels)",
    r"\b(?:image|picture|audio|video)s?(?: is| are| was)? too (?:large|long|big)\b",
)

MODEL_NAMES = any_of(r"model_?not_?found")


Rule = Callable[[Said], bool]


def classify(said: Said) -> ErrorKind:
    """Return what an error means for the turn."""
    first = _first_of(_FIRST_RULES, said)
    return first or form_of(said) or _first_of(_LAST_RULES, said) or ErrorKind.REJECTED


def _first_of(rules: Sequence[tuple[ErrorKind, Rule]], said: Said) -> ErrorKind | None:
    return next((kind for kind, holds in rules if holds(said)), None)


def _named(pattern: re.Pattern[str]) -> Rule:
    """Return a rule for codes and types."""
    return lambda said: said.is_named(pattern)


def _worded(*patterns: re.Pattern[str]) -> Rule:
    """Return a rule for texts; the place in the request that the error names belongs to them."""
    return lambda said: any(pattern.search(f"{said.param} {said.words}") for pattern in patterns)


_speaks_of_rate = _worded(RATE_WORDS, RATE_NAMES)
_speaks_of_quota = _worded(QUOTA_WORDS, QUOTA_NAMES)
_is_out_of_region = _worded(REGION_WORDS, REGION_NAMES)


def _is_limited_by_structure(said: Said) -> bool:
    return said.status == 429 or said.is_named(RATE_NAMES)


def _is_too_long_for_the_account(said: Said) -> bool:
    """Whether the account has no long requests; such requests may also have a rate of their own."""
    return bool(LONG_REQUESTS.search(said.words)) and not RATE_WORDS.search(said.words)


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
    if said.status == 402 or said.is_named(QUOTA_NAMES):
        return True
    renewed = said.retry_after is not None or said.is_named(RATE_NAMES)
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
    if said.is_named(STATE_NAMES):
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
    if not (said.is_named(MESSAGE_COUNT_NAMES) or MESSAGE_COUNT_WORDS.search(words)):
        return False
    place = said.param or _quoted_place(words)
    return not place or bool(CONVERSATION.fullmatch(place))


def _has_too_long_message(said: Said) -> bool:
    """Whether a message's text is too long; names, ids and `user` have limits as well."""
    words = said.words
    if not (said.is_named(STRING_NAMES) or STRING_WORDS.search(words)):
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


def _is_body_too_large(said: Said) -> bool:
    place = f"{said.param} {said.words}"
    return (
        said.status == 413
        or said.is_named(BODY_NAMES)
        or bool(BODY_NAMES.search(place) or BODY_WORDS.search(place))
    )


_FIRST_RULES: tuple[tuple[ErrorKind, Rule], ...] = (
    (ErrorKind.CONTEXT_OVERFLOW, _is_too_long_for_the_account),
    (ErrorKind.BODY_TOO_LARGE, _named(MEDIA_NAMES)),
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
    (ErrorKind.REGION_REFUSED, _named(REGION_NAMES)),
    (ErrorKind.REGION_REFUSED, lambda said: said.status == 451 or _is_out_of_region(said)),
    (ErrorKind.AUTHENTICATION, lambda said: said.status in (401, 403)),
    (ErrorKind.AUTHENTICATION, _named(AUTHENTICATION_NAMES)),
    (ErrorKind.BROKEN_ANSWER, is_spoiled),
    (ErrorKind.STATE_LOST, _has_lost_state),
    (ErrorKind.TOO_MANY_MESSAGES, _has_too_many_messages),
    (ErrorKind.MESSAGE_TOO_LONG, _has_too_long_message),
    (ErrorKind.BROKEN_PAIRS, _worded(PAIR_WORDS)),
    (ErrorKind.PARTS_REFUSED, _worded(PARTS_WORDS)),
    (ErrorKind.OUTPUT_LIMIT, _has_output_limit),
)
_LAST_RULES: tuple[tuple[ErrorKind, Rule], ...] = (
    (ErrorKind.REJECTED, _named(MODEL_NAMES)),
    (ErrorKind.REJECTED, _worded(NOT_ABOUT_SIZE, STRING_WORDS)),
    (ErrorKind.UNAVAILABLE, is_busy),
    (ErrorKind.CONTEXT_OVERFLOW, is_overflow),
    (ErrorKind.BODY_TOO_LARGE, _is_body_too_large),
    (ErrorKind.TIMEOUT, times_out),
    (ErrorKind.AUTHENTICATION, _worded(AUTHENTICATION_WORDS)),
    (ErrorKind.UNAVAILABLE, is_outage),
)
