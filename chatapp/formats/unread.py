"""What files are that cannot be read, as far as they tell, and what to do instead."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from chatapp.formats.reading import Document, is_block
from chatapp.formats.stored_json import Buffer

BYTES_LOOKED_AT = 2_000

ARCHIVE = (
    "is a ZIP archive; unpack it and send the JSON files in it, such as ChatGPT's "
    "conversations.json"
)
PAGE = "is a web page; of a ChatGPT export send conversations.json instead of chat.html"
TABLE = "is a Parquet table; save it as JSON lines, as OpenAssistant's trees also come"
DATABASE = "is an SQLite database; export the chats as JSON in the program that keeps them there"
TEXT_EXPORT = "is a LibreChat export as text, which does not keep who said what; export it as JSON"
ELSEWHERE = "which is not read; write it as OpenAI chat messages, or add a reader (FORMATS)"

_STARTS = (
    ("PK\x03\x04", ARCHIVE),
    ("\x1f", "is compressed (gzip); unpack it"),
    ("PAR1", TABLE),
    ("SQLite format 3", DATABASE),
    ("%PDF-", "is a PDF; export the conversation as JSON instead"),
    ("<!doctype html", PAGE),
    ("<html", PAGE),
)
"""How files begin that are no text of JSON, in small letters where it does not matter."""

_UTF_16 = re.compile(r"\ufffd{0,2}(?:[\[{]\x00|\x00[\[{])")
"""How JSON begins in UTF-16, read as if it were UTF-8, with its mark or without."""

_BROKEN = (
    (('"mapping"', '"content_type"'), "ChatGPT export"),
    (('"childrenIds"', '"parentId"'), "Open WebUI export"),
    (('"isCreatedByUser"', '"messageId"'), "LibreChat export"),
    (('"message_tree_id"', '"replies"'), "file of OpenAssistant trees"),
)
"""Keys that a text has which was JSON of some program before it was cut off or edited."""


def what_it_is(document: Document) -> str | None:
    """What a file that no reader knows is and what to do, to go on from “The file …”; or None."""
    start = document.file.read(0, BYTES_LOOKED_AT).decode("utf-8", "replace").lstrip(" \t\r\n")
    if _UTF_16.match(start):
        return "is text in UTF-16; save it as UTF-8"
    for beginning, sentence in _STARTS:
        if start.startswith(beginning) or start.lower().startswith(beginning):
            return sentence
    if start.startswith(("Conversation\n", "# Conversation\n")) and "conversationId" in start:
        return TEXT_EXPORT
    if document.is_lines and start.startswith(("{", "[")):
        content = document.file.mapped()
        found = next((name for keys, name in _BROKEN if _has(content, keys)), None)
        if found is not None:
            why = document.problems[0].text if document.problems else ""
            return f"is a {found} that is cut off or damaged; export it again. {why.rstrip('.')}"
    for value in _values(document):
        if value.get("mapping") == {}:
            return "is a ChatGPT export that holds no message"
        for name, is_one in _OTHERS.items():
            if is_one(value):
                return f"is {name}, {ELSEWHERE}"
    return None


def _has(content: Buffer, keys: tuple[str, ...]) -> bool:
    return all(content.find(key.encode()) >= 0 for key in keys)


def _values(document: Document) -> list[Any]:
    """The first values of a file, or the first items of its list."""
    values = [record.value for record in document.records[:3]]
    if not document.is_lines and values and isinstance(values[0], list):
        values = values[0][:3]
    return [value for value in values if isinstance(value, dict)]


def _is_claude_ai(value: dict[str, Any]) -> bool:
    return isinstance(value.get("chat_messages"), list)


def _is_codex(value: dict[str, Any]) -> bool:
    kinds = ("session_meta", "response_item", "turn_context", "event_msg")
    return isinstance(value.get("payload"), dict) and any(is_block(value, kind) for kind in kinds)


def _is_gemini_cli(value: dict[str, Any]) -> bool:
    return "projectHash" in value and isinstance(value.get("messages"), list)


def _is_share_gpt(value: dict[str, Any]) -> bool:
    turns = value.get("conversations")
    first = turns[0] if isinstance(turns, list) and turns else None
    return isinstance(first, dict) and {"from", "value"} <= first.keys()


def _is_grok(value: dict[str, Any]) -> bool:
    talks = value.get("conversations")
    first = talks[0] if isinstance(talks, list) and talks else None
    return isinstance(first, dict) and {"conversation", "responses"} <= first.keys()


def is_llama_web(value: Any) -> bool:
    """Whether a value is a chat of llama.cpp's web page, whose messages are a tree in a list."""
    chat = value.get("conv") if isinstance(value, dict) else None
    return isinstance(chat, dict) and "currNode" in chat


_OTHERS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "a claude.ai export": _is_claude_ai,
    "a session of Codex": _is_codex,
    "a session of Gemini CLI": _is_gemini_cli,
    "a ShareGPT data set": _is_share_gpt,
    "a Grok export": _is_grok,
    "an export of llama.cpp's web page": is_llama_web,
}
"""Formats of other programs, by what their values hold."""
