"""pi coding agent sessions, versions 1 to 3 (spec/formats.md 1.4).

Version 1 is a line of entries without ids; from version 2 on entries form a tree by id and
parentId. A compaction's summary is placed right before the first message that it kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chatapp.formats.json_lines import Document, Record, only_objects
from chatapp.formats.pi_tree import Entry, messages_of, read_entries
from chatapp.formats.records import Conversation, ImportedMessage, ParsedFile, Problem
from chatapp.formats.wire import Wire, digest, is_block, moment, text_or_empty

NAME = "pi"

HEADER_KEYS = {
    "version": "version",
    "cwd": "cwd",
    "provider": "provider",
    "branched_from": "branchedFrom",
    "parent_session": "parentSession",
}


def looks_like(document: Document) -> bool:
    """Whether the file is a pi session: a session header, or entries that hold its messages."""
    return any(
        _is_header(record.value) or _holds_message(record.value) for record in document.records
    )


def parse(document: Document) -> ParsedFile:
    """The session of the file (or several, if files were joined), each as a tree of messages."""
    problems: list[Problem] = []
    sessions = _sessions(only_objects(document.records, problems))
    conversations = tuple(_conversation(session, problems) for session in sessions)
    return ParsedFile(format=NAME, conversations=conversations, problems=tuple(problems))


def _is_header(value: Any) -> bool:
    return is_block(value, "session")


def _holds_message(value: Any) -> bool:
    message = value.get("message") if is_block(value, "message") else None
    return isinstance(message, dict) and "role" in message


def _sessions(records: Sequence[Record]) -> list[list[Record]]:
    groups: list[list[Record]] = []
    for record in records:
        if _is_header(record.value) or not groups:
            groups.append([])
        groups[-1].append(record)
    return groups


def _conversation(records: Sequence[Record], problems: list[Problem]) -> Conversation:
    header = records[0].value if _is_header(records[0].value) else {}
    entries = read_entries(records[1:] if header else records, problems)
    messages = messages_of(entries, header_line=records[0].line if header else 0)
    session_id = text_or_empty(header.get("id"))
    return Conversation(
        format=NAME,
        identity=f"pi:{session_id or digest([message.wire for message in messages])}",
        title=_last(entries, "session_info", "name"),
        messages=messages,
        leaf=messages[-1].key if messages else None,
        model=_model(header, entries, messages),
        created_at=moment(header.get("timestamp")),
        metadata=_metadata(header),
    )


def _model(header: Wire, entries: Sequence[Entry], messages: Sequence[ImportedMessage]) -> str:
    """The model that was chosen last, else the one of the header, else the one that answered."""
    chosen = _last(entries, "model_change", "modelId") or text_or_empty(header.get("modelId"))
    answered = (message.metadata.get("model") for message in reversed(messages))
    return chosen or next((text_or_empty(model) for model in answered if model), "")


def _last(entries: Sequence[Entry], kind: str, key: str) -> str:
    values = (
        entry.value.get(key) for entry in reversed(entries) if entry.value.get("type") == kind
    )
    return next((value for value in values if isinstance(value, str) and value), "")


def _metadata(header: Wire) -> dict[str, Any]:
    return {
        ours: header[theirs]
        for ours, theirs in HEADER_KEYS.items()
        if isinstance(header.get(theirs), (str, int))
    }
