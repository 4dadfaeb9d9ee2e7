"""The one entry for importing: finds out what a file is from its content and has it read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from chatapp.formats import claude_code, openai_chat, pi
from chatapp.formats.reading import Document, read_document
from chatapp.formats.records import Conversation, ParsedFile, Problem, UnknownFormatError

KEYS_SHOWN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One readable format: its name, what people call it, and its two functions."""

    name: str
    label: str
    looks_like: Callable[[Document], bool]
    parse: Callable[[Document], ParsedFile]


FORMATS = (
    Format(name=pi.NAME, label="pi sessions (JSONL)", looks_like=pi.looks_like, parse=pi.parse),
    Format(
        name=claude_code.NAME,
        label="Claude Code sessions (JSONL, or its web export)",
        looks_like=claude_code.looks_like,
        parse=claude_code.parse,
    ),
    Format(
        name=openai_chat.NAME,
        label="OpenAI chat messages (JSON or JSONL)",
        looks_like=openai_chat.looks_like,
        parse=openai_chat.parse,
    ),
)
"""In the order in which they are asked; the most particular first."""


def parse(content: bytes | str, *, name: str = "") -> ParsedFile:
    """All conversations of a file in any readable format, and what was not sound in it.

    `name` is only used to speak of the file; the format is found from the content.
    Raises UnknownFormatError with a sentence for the user.
    """
    text, problems = decode(content)
    called = f"“{name}”" if name else "The file"
    if not text.strip():
        raise UnknownFormatError(f"{called} is empty. {_readable()}")
    document = read_document(text)
    for candidate in FORMATS:
        if candidate.looks_like(document):
            parsed = candidate.parse(document)
            found = (*problems, *document.problems, *parsed.problems)
            return replace(
                parsed,
                conversations=_told_apart(parsed.conversations),
                problems=tuple(sorted(found, key=lambda problem: problem.line)),
            )
    raise UnknownFormatError(f"{called} {_seen(document)}. {_readable()}")


def decode(content: bytes | str) -> tuple[str, tuple[Problem, ...]]:
    """The text of a file without its byte order mark; undecodable bytes are replaced and told."""
    if isinstance(content, str):
        return content.removeprefix("\ufeff"), ()
    try:
        return content.decode("utf-8-sig"), ()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
    sentence = "Bytes that are not UTF-8 were replaced by “\ufffd”; the first stand in this line."
    text = content.decode("utf-8-sig", errors="replace")
    return text, (Problem(line=line, text=sentence),)


def _told_apart(conversations: Iterable[Conversation]) -> tuple[Conversation, ...]:
    # Two conversations of one file may be word for word the same, and are still two.
    seen: dict[str, int] = {}
    result = []
    for conversation in conversations:
        times = seen[conversation.identity] = seen.get(conversation.identity, 0) + 1
        if times > 1:
            conversation = replace(conversation, identity=f"{conversation.identity}#{times}")
        result.append(conversation)
    return tuple(result)


def _readable() -> str:
    return f"These formats can be read: {', '.join(entry.label for entry in FORMATS)}."


def _seen(document: Document) -> str:
    if not document.records:
        why = f" Line {document.problems[0].line}: {document.problems[0].text}"
        return f"holds no readable JSON.{why.rstrip('.')}"
    value = document.records[0].value
    if document.is_lines:
        return f"holds JSON lines that are no conversation; the first is {_describe(value)}"
    return f"holds {_describe(value)}, which is no conversation in a known form"


def _describe(value: Any) -> str:
    if isinstance(value, dict):
        keys = ", ".join(str(key)[:40] for key in list(value)[:KEYS_SHOWN])
        more = ", …" if len(value) > KEYS_SHOWN else ""
        return f"an object with the keys {keys}{more}" if keys else "an empty object"
    if isinstance(value, list):
        if not value:
            return "an empty list"
        return f"a list of {len(value)} items that starts with {_kind(value[0])}"
    return _kind(value)


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return _describe(value)
    if value is None:
        return "null"
    names = {list: "a list", str: "a text", bool: "a truth value", int: "a number"}
    return names.get(type(value), "a number")
