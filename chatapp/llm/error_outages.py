"""Failures that pass: a server that is down or busy, and answers that it could not use itself.

What is asked again may do; what the request holds does not matter.
"""

from __future__ import annotations

from chatapp.llm.error_overflow import any_of
from chatapp.llm.error_parsing import Said
from chatapp.messages.patterns import lazy_pattern

_START = lazy_pattern(r"service unavailable\b")
_NAMES = any_of(r"overloaded", r"unavailable", r"server_?error", r"internal_?error", r"api_error")
_WORDS = any_of(
    r"\boverloaded\b", r"service (?:is )?unavailable", r"temporarily unavailable", r"bad gateway",
    r"internal server error", r"upstream (?:connect|request timeout)",
)  # fmt: skip
# What passes, under a status that says that it does not.
_PASSING_WORDS = any_of(
    r"\b(?:try|trying) (?:it )?again (?:later|shortly|soon|in (?:a|\d))",
    r"\bretry (?:later|shortly|in (?:a|\d))",
    r"\bat (?:full )?capacity\b",
    r"\boverloaded\b",
    r"\bmax(?:imum)? concurrency\b",
    r"\bdegraded\b",
    r"\bmodel (?:has |was )?(?:crashed|unloaded|reloaded)\b|\bloading model\b",
    r"\bsocket hang up\b|\beconn\w+|\bfetch failed\b|\bnetwork error\b",
    r"\bconnection (?:reset|refused|closed|aborted|timed out)\b",
    r"\binternal (?:network|server) (?:failure|error)\b",
    r"\bupstream[ _](?:error|failure|connect)",
    r"稍后(?:再试|重试)|负载(?:过高|已满)|(?:系统|服务)繁忙",
)
# How much of the server is taken just now, by others as well: no size of this request.
_BUSY_WORDS = any_of(
    r"\bin[- ]flight\b",
    r"\b(?:kv[ _-]?cache|cache) .{0,60}\b(?:left|free|remaining|in use|currently|available now)\b",
    r"\b(?:free|available|remaining|unused)\b.{0,20}\b(?:kv[ _-]?cache|cache|gpu) "
    r"(?:blocks?|pages?|slots?|space|memory)",
    r"\b(?:waiting|request|scheduler|scheduling|pending) queue\b|\bqueue is full\b",
    r"\b(?:running|concurrent|queued|waiting|pending|other) (?:requests|sequences)\b",
)
# What the model wrote and its own server could not use: another answer may do.
_SPOILED_NAMES = any_of(
    r"tool_?use_?failed", r"output_?parse_?failed", r"json_?validate_?failed",
    r"malformed_?function_?call", r"invalid_?model_?output",
)  # fmt: skip
_SPOILED_WORDS = any_of(
    r"\bfailed[_ ]generation\b",
    r"\bmodel (?:generated|produced|returned|output)\b.{0,40}"
    r"\b(?:invalid|malformed|could not|cannot|can't|unparse?able)",
    r"\berror parsing tool call\b",
    r"\bfailed to parse (?:the )?(?:model(?:'s)? )?(?:output|generation|input at pos)",
    r"\btool call validation failed\b",
)
_TIMEOUT_NAMES = any_of(r"time_?out")
# A status that says nothing about what went wrong.
_UNCLEAR = (None, 200)
# Too late, in conflict, something behind the server failed, too early, no capacity left (Groq), and
# given up by a proxy.
_PASSING = (408, 409, 424, 425, 498, 499)


def is_busy(said: Said) -> bool:
    """Whether the server is taken by others just now, or says first of all that it is down."""
    return bool(_START.match(said.words) or _BUSY_WORDS.search(f"{said.param} {said.words}"))


def is_outage(said: Said) -> bool:
    """Whether the server is down, by its words, its status or its codes."""
    if _PASSING_WORDS.search(said.words):
        return True
    status = said.status
    if status is not None and (status >= 500 or status in _PASSING):
        return True
    return status in _UNCLEAR and (said.is_named(_NAMES) or bool(_WORDS.search(said.words)))


def times_out(said: Said) -> bool:
    """Whether the server calls it a time-out, under a status that says nothing else."""
    return said.status in _UNCLEAR and said.is_named(_TIMEOUT_NAMES)


def is_spoiled(said: Said) -> bool:
    """Whether the model wrote what its own server could not use: another answer may do."""
    return said.is_named(_SPOILED_NAMES) or bool(_SPOILED_WORDS.search(said.words))
