"""What an error of a model server means for the turn: one classifier for every path.

Structured fields are looked at first (status, code, type), then the error's text; the
conversation never is. `spec/model_errors.md` has the servers and their wordings.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Any

from chatapp.wire import Cleaner


class ErrorKind(enum.Enum):
    """The reactions differ, so the kinds do."""

    CONTEXT_OVERFLOW = "context_overflow"
    RATE_LIMITED = "rate_limited"
    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"
    AUTHENTICATION = "authentication"
    NOT_CONFIGURED = "not_configured"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    BAD_ANSWER = "bad_answer"


_RETRIED = {ErrorKind.RATE_LIMITED, ErrorKind.UNAVAILABLE, ErrorKind.TIMEOUT}

_SENTENCES = {
    ErrorKind.CONTEXT_OVERFLOW: "The request is larger than the model's context window.",
    ErrorKind.RATE_LIMITED: "The model server asks to slow down. Try again in a while.",
    ErrorKind.UNAVAILABLE: "The model server cannot be reached or is overloaded. Try again later.",
    ErrorKind.TIMEOUT: "The model server did not answer in time. Try again later.",
    ErrorKind.AUTHENTICATION: "The model server refused the key. Check OPENAI_API_KEY.",
    ErrorKind.NOT_CONFIGURED: "No key for the model server is set. Set OPENAI_API_KEY.",
    ErrorKind.REJECTED: "The model server refused the request.",
    ErrorKind.CANCELLED: "The turn was cancelled.",
    ErrorKind.BAD_ANSWER: "The model server's answer cannot be read.",
}


class ModelError(Exception):
    """A model call failed. `detail` is the server's own text, `partial` what had arrived."""

    def __init__(
        self,
        kind: ErrorKind,
        detail: str = "",
        *,
        status: int | None = None,
        code: str = "",
        retry_after: float | None = None,
    ) -> None:
        self.kind = kind
        # Stored and shown later, so it must be text that can be.
        self.detail = Cleaner().text(detail)[:2000]
        self.status = status
        self.code = Cleaner().text(code)
        self.retry_after = retry_after
        self.partial: Any = None
        super().__init__(f"{self.sentence} {self.detail}".strip())

    @property
    def sentence(self) -> str:
        """What happened and what to do, for people; without the server's text."""
        return _SENTENCES[self.kind]

    @property
    def is_overflow(self) -> bool:
        """Whether sending less would help."""
        return self.kind is ErrorKind.CONTEXT_OVERFLOW

    @property
    def is_temporary(self) -> bool:
        """Whether waiting and sending the same again may help."""
        return self.kind in _RETRIED


_OVERFLOW_CODES = {
    "context_length_exceeded",
    "exceed_context_size_error",
    "model_max_prompt_tokens_exceeded",
    "context_window_exceeded",
    "contextwindowexceedederror",
}
_OVERFLOW_PHRASES = re.compile(
    "|".join(
        (
            r"context_length_exceeded",
            r"maximum context length",
            r"exceeds? (?:the )?(?:available |model'?s? )?context (?:window|size|length|limit)",
            r"context (?:window|length|size).{0,60}exceed",
            r"exceed.{0,60}context (?:window|length|size|limit)",
            r"longer than the model'?s context length",
            r"prompt is too long",
            r"input is too long",
            r"input token count.{0,40}exceeds",
            r"maximum prompt length is",
            r"maximum allowed input length",
            r"exceeds the maximum allowed length",
            r"too large for model with",
            r"exceeded max(?:imum)? context length",
            r"exceeded model token limit",
            r"token limit exceeded",
            r"reduce the length of the messages",
            r"inputs?`? tokens \+ `?max_new_tokens`? must be",
            r"too long to fit into the model",
            r"tokens to keep from the initial prompt",
            r"when context the overflows",
            r"exceed model maximum",
            r"exceed the configured limit",
            r"must be less than max_seq_len",
            r"range of input length should be",
            r"max_tokens must be at least 1, got -\d+",
            r"上下文.{0,20}(?:超|过长)",
        )
    ),
    re.IGNORECASE | re.DOTALL,
)
_RATE_PHRASES = re.compile(
    r"rate.?limit|per.minute|tokens? per (?:min|day)|\btpm\b|\brpm\b|too many requests|throttl"
    r"|quota|resource_exhausted",
    re.IGNORECASE,
)


def classify(*, status: int | None, code: Any, kind: Any, message: str) -> ErrorKind:
    """Return what a server's error means.

    `code` and `kind` are the error body's `code` and `type`; servers send numbers there too.
    """
    names = {str(value).lower() for value in (code, kind) if value}
    if status == 429 or names & {"rate_limit_exceeded", "insufficient_quota", "rate_limit_error"}:
        return ErrorKind.RATE_LIMITED
    if status in (401, 403) or "invalid_api_key" in names:
        return ErrorKind.AUTHENTICATION
    if names & _OVERFLOW_CODES:
        return ErrorKind.CONTEXT_OVERFLOW
    if status is None or status in (200, 400, 413, 422, 500):
        rate = _RATE_PHRASES.search(" ".join([*names, message]))
        if not rate and _OVERFLOW_PHRASES.search(message):
            return ErrorKind.CONTEXT_OVERFLOW
        if rate and status != 500:
            return ErrorKind.RATE_LIMITED
    if status is not None and (status >= 500 or status in (408, 409, 425)):
        return ErrorKind.UNAVAILABLE
    return ErrorKind.REJECTED


def from_body(
    body: Any, *, status: int | None, fallback: str = "", retry_after: float | None = None
) -> ModelError:
    """Return the ModelError for an error body: an object with code, type, message, or a text."""
    if isinstance(body, list) and body:  # Gemini's compatible interface sends a list of one
        body = body[0]
    error = body.get("error", body) if isinstance(body, Mapping) else body
    if isinstance(error, Mapping):
        message = str(error.get("message") or fallback)
        code, kind = error.get("code"), error.get("type")
        param = error.get("status")
        found = classify(status=status, code=code or param, kind=kind, message=message)
        name = str(code or kind or "")
    else:
        message = str(error or fallback)
        found, name = classify(status=status, code=None, kind=None, message=message), ""
    return ModelError(found, message, status=status, code=name[:100], retry_after=retry_after)
