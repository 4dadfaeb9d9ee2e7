"""Chatbot UI's export: a `history` of conversations, each one line of messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chatapp.formats.answers import chained
from chatapp.formats.message_shelf import Keep
from chatapp.formats.reading import (
    DamagedError,
    Document,
    Wire,
    content_of,
    digest,
    shown,
    text_or_empty,
)
from chatapp.formats.records import Conversation, ImportedMessage, ParsedFile, Problem, ProblemList
from chatapp.formats.registry import Format
from chatapp.formats.trees import items_of

NAME = "chatbot_ui"
ROLES = ("system", "user", "assistant")
_BESIDE = {"version", "folders", "prompts"}
"""Keys of an export beside its history."""


def recognises(document: Document) -> bool:
    """Whether the file is an export: a history, and the version, folders or prompts beside it."""
    return any(_is_export(value) for _, value in items_of(document))


def _is_export(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("history"), list):
        return False
    return bool(_BESIDE & value.keys()) and all(map(_may_be_conversation, value["history"]))


def _may_be_conversation(value: Any) -> bool:
    """Whether an item of a history is no message, which histories of other programs hold."""
    return not isinstance(value, dict) or "role" not in value


def parse(document: Document) -> ParsedFile:
    """The conversations of the histories; what cannot be read is left out and told."""
    problems = ProblemList()
    conversations = tuple(_conversations(document, problems))
    return ParsedFile(format=NAME, conversations=conversations, problems=problems)


def _conversations(document: Document, problems: list[Problem]) -> Iterator[Conversation]:
    for line, value in items_of(document):
        if not _is_export(value):
            problems.append(Problem(line=line, text="It was left out: it is no export."))
            continue
        for number, item in enumerate(value["history"], start=1):
            try:
                yield _conversation(item, number, problems, document.keep)
            except DamagedError as error:
                text = f"Conversation {number} of the history was left out: {error}."
                problems.append(Problem(line=number, text=text))


def _conversation(value: Any, number: int, problems: list[Problem], keep: Keep) -> Conversation:
    if not isinstance(value, dict):
        raise DamagedError(f"it is not an object but {shown(value)}")
    if not isinstance(value.get("messages"), list):
        raise DamagedError("it has no list of messages")
    read: list[ImportedMessage] = []
    for place, item in enumerate(value["messages"], start=1):
        try:
            read.append(keep(_message(item)))
        except DamagedError as error:
            text = f"Message {place} of conversation {number} was left out: {error}."
            problems.append(Problem(line=number, text=text))
    messages = chained(read)
    model = value.get("model")
    native = value.get("id")
    is_id = isinstance(native, (str, int)) and native not in ("", True, False)
    first = digest([message.wire for message in messages[:1]])
    return Conversation(
        format=NAME,
        identity=f"{NAME}:{native if is_id else first}",
        title=text_or_empty(value.get("name")),
        messages=messages,
        leaf=messages[-1].key if messages else None,
        system_prompt=text_or_empty(value.get("prompt")),
        model=text_or_empty(model.get("id") if isinstance(model, dict) else model),
        metadata=_settings(value),
    )


def _message(value: Any) -> ImportedMessage:
    if not isinstance(value, dict):
        raise DamagedError(f"it is not an object but {shown(value)}")
    role = value.get("role")
    if role not in ROLES:
        raise DamagedError(f"its role is {shown(role)}")
    content = content_of(value.get("content"))
    if not content or (isinstance(content, str) and not content.strip()):
        raise DamagedError("it has no text")
    return ImportedMessage(key="", parent=None, wire={"role": role, "content": content})


def _settings(value: Wire) -> dict[str, Any]:
    temperature = value.get("temperature")
    is_number = isinstance(temperature, (int, float)) and not isinstance(temperature, bool)
    return {"temperature": temperature} if is_number else {}


FORMAT = Format(
    name=NAME,
    label="Chatbot UI exports (JSON)",
    endings=(".json",),
    recognises=recognises,
    parse=parse,
)
