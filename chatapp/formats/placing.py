"""Where messages stand in the tree, and where a stored summary is put into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from chatapp.formats.records import ImportedMessage


def placeholder(
    *,
    key: str,
    parent: str | None,
    summary: str,
    created_at: datetime | None,
    metadata: Mapping[str, Any],
) -> ImportedMessage:
    """The message that marks a stored summary; it goes right before the first kept message."""
    return ImportedMessage(
        key=key,
        parent=parent,
        wire={"role": "assistant", "content": summary},
        kind="placeholder",
        summary=summary,
        created_at=created_at,
        metadata={"type": "session_summary", **metadata},
    )


def place_before(
    messages: Sequence[ImportedMessage], placeholders: Mapping[str, Sequence[ImportedMessage]]
) -> tuple[ImportedMessage, ...]:
    """All messages, with each list of placeholders linked in before the message of its key.

    The order stays such that a parent comes before its children. Several summaries before one
    message keep their order, so the latest stands nearest to what it kept.
    """
    placed: list[ImportedMessage] = []
    for message in messages:
        parent = message.parent
        for summary in placeholders.get(message.key, ()):
            placed.append(replace(summary, parent=parent))
            parent = summary.key
        placed.append(message if parent == message.parent else replace(message, parent=parent))
    return tuple(placed)
