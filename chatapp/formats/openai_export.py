"""Conversations written as OpenAI chat JSON: one object each, in a list or one a line.

Messages are written as they are read, so that a conversation of any length takes no more memory
than a few of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from chatapp.formats.own_parts import OwnPartsWriter
from chatapp.formats.records import Conversation, ImportedMessage, visible_line
from chatapp.spooled_files import gathered


def to_openai_chat_json(conversation: Conversation) -> dict[str, Any]:
    """The line that the conversation's leaf ends, in a form that imports back equal.

    One object with `messages` (the system prompt first) and, where there are any, `tools`, `model`,
    `created_at`, `metadata`, and one key of our own for what other readers need not know (pins,
    and the parts of apps). Placeholders are left out: they stand for summaries, which nobody said.
    Tree, times of messages and usage have no place in the format and are not written.
    """
    return {
        key: list(value) if isinstance(value, Iterator) else value
        for key, value in _entries(conversation)
    }


def to_json(conversations: Iterable[Conversation]) -> Iterator[str]:
    """One object; a list of them for several conversations."""
    return gathered(_as_json(iter(conversations)))


def to_openai_chat_jsonl(conversations: Iterable[Conversation]) -> Iterator[str]:
    """One line of JSON for each conversation, with the line feed that ends it."""
    return gathered(_as_lines(conversations))


def _as_json(conversations: Iterator[Conversation]) -> Iterator[str]:
    first, second = next(conversations, None), next(conversations, None)
    if first is None:
        yield "[]\n"
        return
    yield "" if second is None else "[\n"
    yield from _object(first, indent=2)
    while second is not None:
        yield ",\n"
        yield from _object(second, indent=2)
        second = next(conversations, None)
        if second is None:
            yield "\n]"
    yield "\n"


def _as_lines(conversations: Iterable[Conversation]) -> Iterator[str]:
    for conversation in conversations:
        yield from _object(conversation)
        yield "\n"


def _entries(conversation: Conversation) -> Iterator[tuple[str, Any]]:
    """Yield keys and values in order. The messages are an iterator, to be read before going on."""
    yield "title", conversation.title
    # Tells the prompt, which stands first, from a system message that opened the conversation.
    yield "system_prompt", conversation.system_prompt
    beside = OwnPartsWriter()
    yield "messages", _messages(conversation, beside)
    if conversation.tools:
        yield "tools", list(conversation.tools)
    if conversation.model:
        yield "model", conversation.model
    if conversation.created_at:
        yield "created_at", conversation.created_at.isoformat()
    if conversation.metadata:
        yield "metadata", conversation.metadata
    yield from beside.written(conversation.parts).items()


def _messages(conversation: Conversation, beside: OwnPartsWriter) -> Iterator[dict[str, Any]]:
    if conversation.system_prompt:
        yield {"role": "system", "content": conversation.system_prompt}
    for message in visible_line(conversation):
        beside.note(message)
        yield _written(message)


def _written(message: ImportedMessage) -> dict[str, Any]:
    reasoning = {"reasoning_content": message.reasoning} if message.reasoning else {}
    return dict(message.wire) | reasoning


def _object(conversation: Conversation, *, indent: int | None = None) -> Iterator[str]:
    """Yield what `json.dumps` makes of the conversation, a message at a time."""
    before = "{"
    for key, value in _entries(conversation):
        yield f"{before}{_break(indent, 1)}{_json(key)}: "
        if isinstance(value, Iterator):
            yield from _list(value, indent)
        else:
            yield _json(value, indent, level=1)
        before = "," if indent else ", "
    yield f"{_break(indent, 0)}}}"


def _list(values: Iterator[Any], indent: int | None) -> Iterator[str]:
    before = "["
    for value in values:
        yield f"{before}{_break(indent, 2)}{_json(value, indent, level=2)}"
        before = "," if indent else ", "
    yield "[]" if before == "[" else f"{_break(indent, 1)}]"


def _break(indent: int | None, level: int) -> str:
    """Return what stands before an item or a bracket of a level."""
    return "\n" + " " * indent * level if indent else ""


def _json(value: Any, indent: int | None = None, *, level: int = 0) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate is legal in JSON, but only as an escape
        text = json.dumps(value, indent=indent)
    # Line feeds of texts are escaped; these are all between values.
    return text.replace("\n", _break(indent, level)) if indent else text
