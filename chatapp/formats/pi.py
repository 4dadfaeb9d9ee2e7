"""pi's sessions: a header, then a tree of entries, one a line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from chatapp.formats.file_records import Record, only_objects
from chatapp.formats.message_shelf import Keep, as_it_is
from chatapp.formats.pi_entries import is_empty_answer, message_of
from chatapp.formats.reading import (
    DamagedError,
    Document,
    Wire,
    count,
    digest_of_line,
    is_block,
    moment,
    text_or_empty,
    unread_kinds,
)
from chatapp.formats.records import (
    Conversation,
    ImportedMessage,
    ParsedFile,
    Problem,
    ProblemList,
    Wires,
    place_before,
    placeholder,
)
from chatapp.formats.registry import Format


@dataclass(frozen=True, slots=True, kw_only=True)
class PiEntry:
    """One line of a session: its place in the tree, and the message it holds, if any."""

    record: Record
    id: str
    parent: str | None
    message: ImportedMessage | None = None

    @property
    def line(self) -> int:
        """The line it stands on."""
        return self.record.line

    @property
    def value(self) -> Wire:
        """What the line says."""
        return cast(Wire, self.record.value)

    @property
    def is_compaction(self) -> bool:
        """Whether the entry marks a compaction and has a summary to show for it."""
        return self.value.get("type") == "compaction" and bool(self.summary)

    @property
    def summary(self) -> str:
        """The compaction's summary."""
        return text_or_empty(self.value.get("summary"))


def read_entries(
    records: Iterable[Record], problems: list[Problem], keep: Keep = as_it_is
) -> list[PiEntry]:
    """All entries in file order, each with an id of its own and a parent that comes before it."""
    entries: list[PiEntry] = []
    known: set[str] = set()
    stopped: list[int] = []
    unread: dict[str, list[int]] = defaultdict(list)
    for record in records:
        previous = entries[-1].id if entries else None
        if is_empty_answer(record.value):
            stopped.append(record.line)
        entry = PiEntry(
            record=record,
            id=_identifier(record, known, problems),
            parent=_parent(record, known, previous, problems),
            message=_message(record, problems, keep),
        )
        for kind in _unread_kinds(record.value):
            unread[kind].append(record.line)
        known.add(entry.id)
        entries.append(entry)
    if stopped:
        text = f"Answers that ended before they said anything were left out: {len(stopped)}."
        problems.append(Problem(line=stopped[0], text=text))
    problems += [
        Problem(line=lines[0], text=f"Left out: content blocks of the kind {kind} ({len(lines)}).")
        for kind, lines in unread.items()
    ]
    return entries


def _unread_kinds(value: Wire) -> list[str]:
    said = value.get("message") if is_block(value, "message") else None
    return unread_kinds(said.get("content")) if isinstance(said, dict) else []


def messages_of(entries: Sequence[PiEntry], *, header_line: int) -> tuple[ImportedMessage, ...]:
    """The messages as a tree, each compaction's summary right before the first kept message.

    A compaction whose first kept entry is not on its own line stays where the file has it.
    `header_line` is the line of the session's header, which version 1 counts entries from.
    """
    kept = _first_kept_messages(entries, _first_kept_entries(entries, header_line))
    nearest: dict[str | None, str | None] = {None: None}
    messages: list[ImportedMessage] = []
    moved: dict[str, list[ImportedMessage]] = defaultdict(list)
    for entry in entries:
        parent = nearest[entry.parent]
        message = entry.message
        if entry.is_compaction:
            message = _placeholder(entry, parent)
            if entry.id in kept:
                moved[kept[entry.id]].append(message)
                message = None
        if message is not None:
            messages.append(message.changed(key=entry.id, parent=parent))
        nearest[entry.id] = parent if message is None else entry.id
    return place_before(messages, moved)


def _identifier(record: Record, known: set[str], problems: list[Problem]) -> str:
    identifier = text_or_empty(record.value.get("id"))
    if identifier and identifier not in known:
        return identifier
    if identifier:
        text = "The entry repeats the id of an earlier one; it was kept under another."
        problems.append(Problem(line=record.line, text=text))
    identifier = f"line:{record.line}"
    while identifier in known:
        identifier += "+"
    return identifier


def _parent(
    record: Record, known: set[str], previous: str | None, problems: list[Problem]
) -> str | None:
    if "parentId" not in record.value:  # version 1: one line
        return previous
    parent = record.value["parentId"]
    if parent is None or (isinstance(parent, str) and parent in known):
        return parent
    text = "The entry names a parent that does not come before it; it was joined to the last entry."
    problems.append(Problem(line=record.line, text=text))
    return previous


def _message(record: Record, problems: list[Problem], keep: Keep) -> ImportedMessage | None:
    if is_empty_answer(record.value):
        return None
    try:
        found = message_of(record.value)
        return keep(found) if found is not None else None
    except DamagedError as error:
        problems.append(Problem(line=record.line, text=f"The entry was left out: {error}."))
        return None


def _first_kept_entries(entries: Sequence[PiEntry], header_line: int) -> dict[str, str]:
    """For each compaction the entry that it names as the first kept one."""
    by_line = {entry.line: entry.id for entry in entries}
    known = {entry.id for entry in entries}
    named: dict[str, str] = {}
    for entry in entries:
        if not entry.is_compaction:
            continue
        identifier = entry.value.get("firstKeptEntryId")
        index = entry.value.get("firstKeptEntryIndex")
        if isinstance(identifier, str) and identifier in known:
            named[entry.id] = identifier
        elif isinstance(index, int) and header_line + index in by_line:
            named[entry.id] = by_line[header_line + index]
    return named


def _first_kept_messages(entries: Sequence[PiEntry], named: Mapping[str, str]) -> dict[str, str]:
    """For each compaction the first message on its own line at or after the entry it names.

    One walk through the tree that knows the messages above the entry it stands on: the first kept
    one is then found by how many messages stand above the named entry.
    """
    children: dict[str | None, list[PiEntry]] = defaultdict(list)
    for entry in entries:
        children[entry.parent].append(entry)
    found: dict[str, str] = {}
    above: list[str] = []
    messages_above: dict[str, int] = {}
    stack = [(entry, False) for entry in children[None]]
    while stack:
        entry, is_done = stack.pop()
        if is_done:
            del messages_above[entry.id]
            del above[len(above) - (entry.message is not None) :]
            continue
        messages_above[entry.id] = len(above)
        start = messages_above.get(named.get(entry.id, ""))
        if start is not None and start < len(above):
            found[entry.id] = above[start]
        if entry.message is not None:
            above.append(entry.id)
        stack.append((entry, True))
        stack += [(child, False) for child in children[entry.id]]
    return found


def _placeholder(entry: PiEntry, parent: str | None) -> ImportedMessage:
    metadata: dict[str, Any] = {"tokens_before": count(entry.value.get("tokensBefore"))}
    if parent is not None:
        metadata["stood_after"] = parent
    details = entry.value.get("details")
    names = {"files_read": "readFiles", "files_modified": "modifiedFiles"}
    for ours, theirs in names.items():
        if isinstance(details, dict) and isinstance(details.get(theirs), list):
            metadata[ours] = details[theirs]
    return placeholder(
        key=entry.id,
        parent=parent,
        summary=entry.summary,
        created_at=moment(entry.value.get("timestamp")),
        metadata=metadata,
    )


NAME = "pi"

HEADER_KEYS = {
    "version": "version",
    "cwd": "cwd",
    "provider": "provider",
    "branched_from": "branchedFrom",
    "parent_session": "parentSession",
}


def recognises(document: Document) -> bool:
    """Whether the file is a pi session: a session header, or entries that hold its messages."""
    return any(
        _is_header(record.value) or _holds_message(record.value) for record in document.records
    )


def parse(document: Document) -> ParsedFile:
    """The session of the file (or several, if files were joined), each as a tree of messages."""
    problems = ProblemList()
    sessions = _sessions(only_objects(document.records, problems))
    conversations = tuple(_conversation(one, problems, document.keep) for one in sessions)
    return ParsedFile(format=NAME, conversations=conversations, problems=problems)


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


def _conversation(records: Sequence[Record], problems: list[Problem], keep: Keep) -> Conversation:
    header = records[0].value if _is_header(records[0].value) else {}
    entries = read_entries(records[1:] if header else records, problems, keep)
    messages = messages_of(entries, header_line=records[0].line if header else 0)
    session_id = text_or_empty(header.get("id"))
    return Conversation(
        format=NAME,
        identity=f"pi:{session_id or digest_of_line(items=Wires(messages))}",
        title=_last(entries, "session_info", "name"),
        messages=messages,
        leaf=messages[-1].key if messages else None,
        model=_model(header, entries, messages),
        created_at=moment(header.get("timestamp")),
        metadata=_metadata(header),
    )


def _model(header: Wire, entries: Sequence[PiEntry], messages: Sequence[ImportedMessage]) -> str:
    """The model that was chosen last, else the one of the header, else the one that answered."""
    chosen = _last(entries, "model_change", "modelId") or text_or_empty(header.get("modelId"))
    answered = (message.metadata.get("model") for message in reversed(messages))
    return chosen or next((text_or_empty(model) for model in answered if model), "")


def _last(entries: Sequence[PiEntry], kind: str, key: str) -> str:
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


FORMAT = Format(
    name=NAME,
    label="pi sessions (JSONL)",
    endings=(".jsonl",),
    recognises=recognises,
    parse=parse,
)
