"""What every importer produces and every exporter takes: a conversation before it has rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedMessage:
    """One message: `wire` is its OpenAI chat form, `key`/`parent` place it in the file's tree.

    `kind` is `message`, or `placeholder` for a summary that the source had stored: then `summary`
    holds its text and the row stands between the last summarised and the first kept message.
    """

    key: str
    parent: str | None
    wire: dict[str, Any]
    kind: str = "message"
    summary: str = ""
    reasoning: str = ""
    usage: dict[str, Any] | None = None
    finish_reason: str = ""
    created_at: datetime | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One part that was left out or mended: the line (or item) number, counted from 1, and why."""

    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One conversation of a file.

    `identity` names it across imports (format, native id, and where it starts). `leaf` is the key
    of the message that the visible line ends on; None means the last one.
    """

    format: str
    identity: str
    title: str
    messages: tuple[ImportedMessage, ...]
    leaf: str | None = None
    system_prompt: str = ""
    tools: tuple[dict[str, Any], ...] = ()
    model: str = ""
    created_at: datetime | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedFile:
    """All conversations of a file, and what was not sound in it."""

    format: str
    conversations: tuple[Conversation, ...]
    problems: tuple[Problem, ...] = ()


class UnknownFormatError(ValueError):
    """The content is none of the formats that can be imported."""
