"""Conversations as OpenAI chat JSON and JSON lines, in a form that imports back equal.

What is written is the line that the conversation's leaf ends. Placeholders are left out: they stand
for summaries, which nobody said. Tree, times of messages and usage have no place in the format and
are not written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from chatapp.formats.records import Conversation, ImportedMessage


def to_openai_chat_json(conversation: Conversation) -> dict[str, Any]:
    """One object with `messages` (the system prompt first) and, where there are any, `tools`,
    `model`, `created_at` and `metadata`.
    """
    messages = [_written(message) for message in visible_line(conversation)]
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
    return written


def to_openai_chat_jsonl(conversations: Iterable[Conversation]) -> Iterator[str]:
    """One line of JSON for each conversation, with the line feed that ends it."""
    for conversation in conversations:
        yield f"{_line(to_openai_chat_json(conversation))}\n"


def _written(message: ImportedMessage) -> dict[str, Any]:
    reasoning = {"reasoning_content": message.reasoning} if message.reasoning else {}
    return dict(message.wire) | reasoning


def visible_line(conversation: Conversation) -> list[ImportedMessage]:
    """The messages from the first one to the leaf, without placeholders."""
    by_key = {message.key: message for message in conversation.messages}
    last = conversation.messages[-1].key if conversation.messages else None
    key = conversation.leaf if conversation.leaf is not None else last
    line: list[ImportedMessage] = []
    while key is not None:
        message = by_key.pop(key)  # popped, so that a loop of parents ends with a KeyError
        if message.kind != "placeholder":
            line.append(message)
        key = message.parent
    return line[::-1]


def _line(value: dict[str, Any]) -> str:
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate is legal in JSON, but only as an escape
        return json.dumps(value)
    return text
