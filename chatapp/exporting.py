"""Stored sessions as transcript files that import back equal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chatapp.formats.export import to_openai_chat_json, to_openai_chat_jsonl
from chatapp.formats.records import Conversation, ImportedMessage
from chatapp.messages.wire import CUT_FROM
from chatapp.models import Message, Session
from chatapp.selectors import path_messages, whole_content


def conversation_of(session: Session) -> Conversation:
    """Return a session's active branch as importers and exporters know it; no placeholders."""
    messages: list[ImportedMessage] = []
    parent: str | None = None
    for row in path_messages(session.branch).iterator(chunk_size=1000):
        key = str(row.pk)
        messages.append(
            ImportedMessage(
                key=key,
                parent=parent,
                wire=_whole(row) | row.metadata.get("extra", {}),
                reasoning=row.reasoning,
                created_at=row.created_at,
            )
        )
        parent = key
    return Conversation(
        format="openai_chat",
        identity=f"palimpsest:{session.pk}",
        title=session.title,
        system_prompt=session.system_prompt,
        tools=tuple(session.tools),
        messages=tuple(messages),
    )


def _whole(row: Message) -> dict[str, Any]:
    """Return a row as it came in: what was cut of a tool result is in the file."""
    return row.wire() | {"content": whole_content(row)} if CUT_FROM in row.metadata else row.wire()


def export_json(session: Session) -> dict[str, Any]:
    """Return a session as one OpenAI chat object."""
    return to_openai_chat_json(conversation_of(session))


def export_jsonl(sessions: Iterable[Session]) -> str:
    """Return sessions as OpenAI chat JSONL, one a line."""
    return "".join(to_openai_chat_jsonl(conversation_of(session) for session in sessions))
