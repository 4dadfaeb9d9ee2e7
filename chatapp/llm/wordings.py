"""How servers word their errors: patterns, and nothing decided.

All are for lower-case text with single blanks (error_bodies.Said.words) or for codes and types.
Overflows are mostly found by a word for a length beside a word for too much, because whole phrases
change from version to version (spec/model_errors.md 3c).
"""

from __future__ import annotations

import re


def _any(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives))


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
NO_BODY = re.compile(r"(?:400|413) ?(?:status code)? ?\(no body\)")
OVERFLOW_ARGUMENT = re.compile(r"maximum number of (?:input )?tokens")

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
PREVIOUS_ID = re.compile(r"previous_response_id")
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
MESSAGE_COUNT_NAMES = re.compile(r"array_above_max_length|too_many_messages")
MESSAGE_COUNT_WORDS = _any(r"\btoo many messages\b", r"\barray too long\b")
STRING_NAMES = re.compile(r"string_above_max_length")
STRING_WORDS = re.compile(r"\bstring too long\b")
CONVERSATION = re.compile(r"(?:messages|input)'?")
# Places whose text is a message's own; a name or an id that is too long is no such place.
MESSAGE_TEXT = re.compile(
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

UNAVAILABLE_START = re.compile(r"service unavailable\b")
UNAVAILABLE_NAMES = _any(
    r"overloaded", r"unavailable", r"server_?error", r"internal_?error", r"api_error"
)
UNAVAILABLE_WORDS = _any(
    r"\boverloaded\b", r"service (?:is )?unavailable", r"temporarily unavailable", r"bad gateway",
    r"internal server error", r"upstream (?:connect|request timeout)",
)  # fmt: skip
TIMEOUT_NAMES = _any(r"time_?out")
