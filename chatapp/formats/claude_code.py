"""Claude Code sessions, as JSON lines or in the container of the web (spec/formats.md 1.5).

A file may be a slice from the middle of a session, and may hold several sessions. Left out and
counted: sub-agents, and what the program wrote itself. A stored summary becomes a placeholder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chatapp.formats.claude_records import holds_message
from chatapp.formats.claude_session import SessionReader
from chatapp.formats.json_lines import Document, Record, only_objects
from chatapp.formats.records import Conversation, ImportedMessage, ParsedFile, Problem
from chatapp.formats.wire import digest, text_or_empty

NAME = "claude_code"

RECORD_KEYS = {"cwd": "cwd", "git_branch": "gitBranch", "version": "version", "slug": "slug"}


def looks_like(document: Document) -> bool:
    """Whether any record is a Claude Code message: its type, and a message object inside it."""
    return any(holds_message(record.value) for record in _records(document))


def parse(document: Document) -> ParsedFile:
    """One conversation for each session of the file; a session without messages is left out."""
    problems: list[Problem] = []
    records = only_objects(_records(document), problems)
    sessions = _sessions(records)
    titles = _titles(records, sessions)
    conversations = []
    for session_id, session in sessions.items():
        reader = SessionReader()
        for record in session:
            reader.take(record)
        problems += reader.all_problems()
        if messages := reader.messages():
            title = titles.get(session_id, "")
            conversations.append(_conversation(session_id, session, reader, messages, title))
    return ParsedFile(format=NAME, conversations=tuple(conversations), problems=tuple(problems))


def _records(document: Document) -> Sequence[Record]:
    """The records of JSON lines; those of a web container are numbered from 1."""
    container = None if document.is_lines else document.records[0].value
    lines = container.get("loglines") if isinstance(container, dict) else None
    if not isinstance(lines, list):
        return document.records
    return [Record(line=number, value=line) for number, line in enumerate(lines, start=1)]


def _sessions(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Records by session id, in order of appearance; those that belong to none are not there."""
    sessions: dict[str, list[Record]] = {}
    for record in records:
        session_id = _text(record, "sessionId")
        if session_id or record.value.get("type") in ("user", "assistant"):
            sessions.setdefault(session_id, []).append(record)
    return sessions


def _conversation(
    session_id: str,
    session: Sequence[Record],
    reader: SessionReader,
    messages: tuple[ImportedMessage, ...],
    title: str,
) -> Conversation:
    uuids = (_text(record, "uuid") for record in session)
    first = next((uuid for uuid in uuids if uuid), "")
    metadata = _metadata(session)
    if reader.microcompactions:
        metadata["microcompactions"] = reader.microcompactions
    return Conversation(
        format=NAME,
        identity=f"{NAME}:{session_id}:{first or digest([m.wire for m in messages])}",
        title=title,
        messages=messages,
        leaf=reader.leaf,
        model=reader.model,
        created_at=next((m.created_at for m in messages if m.created_at), None),
        metadata=metadata,
    )


def _titles(records: Sequence[Record], sessions: Mapping[str, Sequence[Record]]) -> dict[str, str]:
    """Titles by session id: the name that the user gave, else the summary that points into it.

    A summary that points elsewhere may belong to another file: it counts if there is one session.
    """
    owners: dict[str, str] = {}
    for session_id, session in sessions.items():
        owners.update((_text(record, "uuid"), session_id) for record in session)
    owners.pop("", None)
    strays: dict[str, str] = {}
    titles: dict[str, str] = {}
    for record in records:
        if record.value.get("type") == "summary" and (summary := _text(record, "summary")):
            owner = owners.get(_text(record, "leafUuid"))
            if owner is not None:
                titles[owner] = summary
            elif len(sessions) == 1:
                strays.update(dict.fromkeys(sessions, summary))
    names = {
        _text(record, "sessionId"): name
        for record in records
        if (name := _text(record, "customTitle"))
    }
    return strays | titles | names


def _text(record: Record, key: str) -> str:
    return text_or_empty(record.value.get(key))


def _metadata(session: Sequence[Record]) -> dict[str, Any]:
    """Where the session ran, from the first record that says so."""
    found: dict[str, Any] = {}
    for record in session:
        for ours, theirs in RECORD_KEYS.items():
            if ours not in found and (value := _text(record, theirs)):
                found[ours] = value
    return found
