"""What is handed to the transcript to be stored, and why it may refuse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from chatapp.models import Message


class TranscriptError(Exception):
    """A write was refused; the text says why."""


class KeyReusedError(TranscriptError):
    """An Idempotency-Key came back with another body."""


class SessionDeletedError(TranscriptError):
    """The session was deleted while it was written to."""

    def __init__(self) -> None:
        super().__init__("The session was deleted meanwhile; nothing was stored.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A message to be stored: its OpenAI chat form and what the form has no place for."""

    wire: Mapping[str, Any]
    kind: str = Message.Kind.MESSAGE
    summary: str = ""
    reasoning: str = ""
    usage: Mapping[str, Any] | None = None
    finish_reason: str = ""
    response_id: str = ""
    pinned: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None
