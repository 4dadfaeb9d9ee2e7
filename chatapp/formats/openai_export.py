"""Conversations written as OpenAI chat JSON: one object each, in a list or one a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from chatapp.formats.own_parts import written_parts
from chatapp.formats.records import Conversation, ImportedMessage, visible_line


def to_openai_chat_json(conversation: Conversation) -> dict[str, Any]:
    """The line that the conversation's leaf ends, in a form that imports back equal.

    One object with `messages` (the system prompt first) and, where there are any, `tools`, `model`,
    `created_at`, `metadata`, and one key of our own for what other readers need not know (pins,
    and the parts of apps). Placeholders are left out: they stand for summaries, which nobody said.
    Tree, times of messages and usage have no place in the format and are not written.
    """
    line = visible_line(conversation)
    messages = [_written(message) for message in line]
    if conversation.system_prompt:
        messages.insert(0, {"role": "system", "content": conversation.system_prompt})
    written: dict[str, Any] = {
        "title": conversation.title,
        # Tells the prompt, which stands first, from a system message that opened the conversation.
        "system_prompt": conversation.system_prompt,
        "messages": messages,
    }
    if conversation.tools:
        written["tools"] = list(conversation.tools)
    if conversation.model:
        written["model"] = conversation.model
    if conversation.created_at:
        written["created_at"] = conversation.created_at.isoformat()
    if conversation.metadata:
        written["metadata"] = conversation.metadata
    return written | written_parts(line, conversation.parts)


def to_json(conversations: Iterable[Conversation]) -> Iterator[str]:
    """One object; a list of them for several conversations."""
    texts = (_json(to_openai_chat_json(found), indent=2) for found in conversations)
    first, second = next(texts, "[]"), next(texts, None)
    if second is None:
        yield f"{first}\n"
        return
    yield f"[\n{first},\n{second}"
    for text in texts:
        yield f",\n{text}"
    yield "\n]\n"


def to_openai_chat_jsonl(conversations: Iterable[Conversation]) -> Iterator[str]:
    """One line of JSON for each conversation, with the line feed that ends it."""
    for conversation in conversations:
        yield f"{_json(to_openai_chat_json(conversation))}\n"


def _written(message: ImportedMessage) -> dict[str, Any]:
    reasoning = {"reasoning_content": message.reasoning} if message.reasoning else {}
    return dict(message.wire) | reasoning


def _json(value: dict[str, Any], *, indent: int | None = None) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate is legal in JSON, but only as an escape
        return json.dumps(value, indent=indent)
    return text
