"""OpenAI chat messages: one conversation or many, as JSON or JSON lines (spec/formats.md 1.1).

The containers: an object with `messages` (also a log of an SDK) or `traj` (tau-bench), a bare list
of messages, a list of conversations; as JSON lines a conversation or a message on each line.
"""

from __future__ import annotations

from typing import Any

from chatapp.formats.json_lines import Document, Record
from chatapp.formats.openai_conversation import Source, message_list, read_conversation
from chatapp.formats.openai_messages import is_foreign, is_message
from chatapp.formats.records import ParsedFile, Problem

NAME = "openai_chat"


def looks_like(document: Document) -> bool:
    """Whether the file holds OpenAI chat messages in any of the known containers."""
    return any(_is_readable(record.value) for record in document.records)


def parse(document: Document) -> ParsedFile:
    """The conversations of the file; damaged messages are left out and named as problems."""
    problems: list[Problem] = []
    sources = _sources(document, problems)
    conversations = tuple(read_conversation(source, problems) for source in sources)
    return ParsedFile(format=NAME, conversations=conversations, problems=tuple(problems))


def _is_readable(value: Any) -> bool:
    if isinstance(value, list):
        return any(is_message(item) or _is_conversation(item) for item in value)
    return is_message(value) or _is_conversation(value)


def _is_conversation(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(is_message, value)) and not any(map(is_foreign, value))
    if not isinstance(value, dict) or isinstance(value.get("history"), dict):
        return False  # with a history object the flat list is Open WebUI's copy of its tree
    messages = message_list(value)
    return messages == [] or _is_conversation(messages)


def _sources(document: Document, problems: list[Problem]) -> list[Source]:
    if document.is_lines:
        return _sources_of_lines(document, problems)
    value = document.records[0].value
    if is_message(value):
        return [_source([value], 1, numbered=True)]
    if _is_conversation(value):
        return [_source(value, 1, numbered=True)]
    sources = []
    for number, item in enumerate(value, start=1):
        if _is_conversation(item):
            sources.append(_source(item, number, numbered=False))
        else:
            problems.append(_holds_none(number, f"Item {number}"))
    return sources


def _sources_of_lines(document: Document, problems: list[Problem]) -> list[Source]:
    sources: list[Source] = []
    loose: list[Record] = []
    for record in document.records:
        if _is_conversation(record.value):
            sources += _gathered(loose)
            sources.append(_source(record.value, record.line, numbered=False))
        elif isinstance(record.value, dict) and "role" in record.value:
            loose.append(record)
        else:
            problems.append(_holds_none(record.line, "The line"))
    return sources + _gathered(loose)


def _gathered(loose: list[Record]) -> list[Source]:
    """One conversation from lines that hold one message each; empties the list."""
    if not loose:
        return []
    messages = [record.value for record in loose]
    numbers = [record.line for record in loose]
    loose.clear()
    return [Source(value={"messages": messages}, line=numbers[0], numbers=numbers)]


def _source(value: Any, line: int, *, numbered: bool) -> Source:
    if isinstance(value, list):
        value = {"messages": value}
    numbers = range(1, len(message_list(value) or ()) + 1) if numbered else None
    return Source(value=value, line=line, numbers=numbers)


def _holds_none(line: int, subject: str) -> Problem:
    return Problem(line=line, text=f"{subject} was left out: it holds no messages.")
