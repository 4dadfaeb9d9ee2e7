"""Claude Code's sessions: a file of records, a tree of them, and the side chains of its agents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chatapp.formats import claude_records as records
from chatapp.formats.claude_records import holds_message
from chatapp.formats.file_records import Record, items_as_records, only_objects
from chatapp.formats.message_shelf import Keep, as_it_is
from chatapp.formats.reading import (
    DamagedError,
    Document,
    Wire,
    blocks_of,
    content_of,
    count,
    digest_of_line,
    is_block,
    joined,
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


@dataclass(slots=True)
class _AnswerPieces:
    """An answer of the model while its records are still coming in."""

    index: int
    records: list[Record] = field(default_factory=list)


class SessionReader:
    """Takes records one by one (`take`) and gives the messages in the end (`messages`)."""

    def __init__(self, keep: Keep = as_it_is) -> None:
        self._keep = keep
        self.problems = ProblemList()
        self.microcompactions: list[dict[str, Any]] = []
        self.model = ""
        self._messages: list[ImportedMessage] = []
        self._answers: list[_AnswerPieces] = []
        self._open_answers: dict[str, _AnswerPieces] = {}
        self._tail: str | None = None
        self._ends: set[str | None] = set()  # where the lines end that a rewind has left
        self._taken: set[str] = set()  # uuids of the records read so far
        self._keys: dict[str, int] = {}  # keys given out, and how many were made from each
        self._message_at: dict[str, str | None] = {}  # uuid of a record -> message it belongs to
        self._rewound_to: dict[str, str | None] = {}  # parent of a typed record -> message before
        self._typed: set[str] = set()  # uuids of what a person typed
        self._answered_at: dict[str, str | None] = {}  # typed record -> message before its answer
        self._boundary: Wire = {}
        self._moved: dict[str, list[ImportedMessage]] = defaultdict(list)
        self._left_out: dict[str, list[int]] = defaultdict(list)
        self._tool_names: dict[str, str] = {}

    def take(self, record: Record) -> None:
        """Reads the next record; what cannot be used becomes a problem."""
        value = record.value
        if reason := self._reason_to_leave_out(value):
            self._left_out[reason].append(record.line)
        elif value.get("isSidechain") is not True:
            self._follow(value)
            try:
                self._read(record)
            except DamagedError as error:
                text = f"The record was left out: {error}."
                self.problems.append(Problem(line=record.line, text=text))
        if uuid := text_or_empty(value.get("uuid")):
            self._message_at.setdefault(uuid, self._tail)

    def messages(self) -> tuple[ImportedMessage, ...]:
        """The finished messages; answers are put together from their records."""
        for item in self._answers:
            said = [record.value["message"] for record in item.records]
            whole = self._messages[item.index].changed(
                wire=records.answer(said),
                reasoning=records.reasoning(said),
                usage=records.usage(said),
                finish_reason=records.finish_reason(said),
            )
            self._messages[item.index] = self._keep(whole)
        return place_before(self._messages, self._moved)

    @property
    def leaf(self) -> str | None:
        """The key of the message that the last line ends on."""
        return self._tail

    def all_problems(self) -> ProblemList:
        """What was left out: one entry for each kind that was, and single records."""
        counted = ProblemList(
            Problem(line=lines[0], text=f"Left out: {reason} ({len(lines)}).")
            for reason, lines in self._left_out.items()
        )
        counted += self.problems
        return counted

    def _read(self, record: Record) -> None:
        value = record.value
        if value.get("subtype") == "compact_boundary":
            self._boundary = value
        elif value.get("subtype") == "microcompact_boundary":
            self._note_microcompaction(value)
        elif value.get("type") in ("user", "assistant"):
            self._read_message(record)

    def _read_message(self, record: Record) -> None:
        value = record.value
        if not records.holds_message(value):
            raise DamagedError("it has no message")
        for kind in unread_kinds(value["message"].get("content")):
            self._left_out[f"content blocks of the kind {kind}"].append(record.line)
        if value.get("isCompactSummary") is True:
            self._add_summary(record)
        elif value["type"] == "assistant":
            self._add_answer(record)
        else:
            self._add_user(record)

    def _reason_to_leave_out(self, value: Wire) -> str:
        if not records.holds_message(value):
            return ""
        uuid = text_or_empty(value.get("uuid"))
        if uuid and uuid in self._taken:
            return "records that repeat an earlier one"
        self._taken.add(uuid)
        return records.reason_to_leave_out(value)

    def _follow(self, value: Wire) -> None:
        """Goes back to a line that was left, if the record continues its end."""
        parent = value.get("parentUuid") or value.get("logicalParentUuid")
        if not self._ends or not isinstance(parent, str) or parent not in self._message_at:
            return
        if (end := self._message_at[parent]) in self._ends:
            self._ends.discard(end)
            self._ends.add(self._tail)
            self._tail = end

    def _rewind(self, value: Wire, before: dict[str, str | None]) -> None:
        """Goes back to where the first record under the same parent stood."""
        parent = value.get("parentUuid")
        if not isinstance(parent, str):
            return
        if parent not in before:
            before[parent] = self._tail
        elif self._tail != before[parent]:
            self._ends.add(self._tail)
            self._tail = before[parent]

    def _add_user(self, record: Record) -> None:
        content = record.value["message"].get("content")
        said = records.user_message(content)
        results = records.tool_results(content, self._tool_names)
        if not said and not results:
            raise DamagedError("it says nothing")
        if said and records.is_typed(content):
            self._rewind(record.value, self._rewound_to)
            self._typed.add(text_or_empty(record.value.get("uuid")))
        for wire, metadata in results:
            self._append(record, wire, metadata=metadata)
        if said:
            is_notice = not results and not records.is_typed(content)
            self._append(record, said, metadata={"type": "interruption"} if is_notice else {})

    def _add_answer(self, record: Record) -> None:
        message = record.value["message"]
        records.answer([message])  # raises when the record is damaged
        for block in blocks_of(message.get("content")):
            if is_block(block, "tool_use"):
                self._tool_names[text_or_empty(block.get("id"))] = block["name"]
        self.model = text_or_empty(message.get("model")) or self.model
        identifier = text_or_empty(message.get("id"))
        if identifier not in self._open_answers:
            if record.value.get("parentUuid") in self._typed:
                # A second answer to the same question: it was asked for again.
                self._rewind(record.value, self._answered_at)
            item = _AnswerPieces(index=len(self._messages))
            self._answers.append(item)
            self._append(record, {"role": "assistant", "content": ""})
            if identifier:
                self._open_answers[identifier] = item
        else:
            item = self._open_answers[identifier]
            if uuid := text_or_empty(record.value.get("uuid")):
                self._message_at[uuid] = self._messages[item.index].key
        item.records.append(record)

    def _add_summary(self, record: Record) -> None:
        """Puts a placeholder where the conversation was compacted, or before what was preserved."""
        content = content_of(record.value["message"].get("content"))
        parts = content if isinstance(content, list) else [{"text": content}]
        summary = joined(text_or_empty(part.get("text")) for part in parts)
        if not summary:
            raise DamagedError("it is a summary without text")
        compaction = _object(self._boundary.get("compactMetadata"))
        metadata: dict[str, Any] = {"tokens_before": count(compaction.get("preTokens"))}
        if trigger := text_or_empty(compaction.get("trigger")):
            metadata["trigger"] = trigger
        message = placeholder(
            key=self._key(record),
            parent=self._tail,
            summary=summary,
            created_at=moment(record.value.get("timestamp")),
            metadata=metadata,
        )
        head = _object(compaction.get("preservedSegment")).get("headUuid")
        kept = self._message_at.get(head) if isinstance(head, str) else None
        if kept is None:
            self._messages.append(self._keep(message))
            self._tail = message.key
        else:
            stood_after = {**message.metadata, "stood_after": self._tail}
            self._moved[kept].append(self._keep(message.changed(metadata=stood_after)))
        self._boundary = {}
        self._open_answers.clear()

    def _append(
        self, record: Record, wire: Wire, *, metadata: dict[str, Any] | None = None
    ) -> None:
        key = self._key(record)
        message = ImportedMessage(
            key=key,
            parent=self._tail,
            wire=wire,
            created_at=moment(record.value.get("timestamp")),
            metadata=metadata or {},
        )
        self._messages.append(self._keep(message))
        self._tail = key

    def _key(self, record: Record) -> str:
        base = text_or_empty(record.value.get("uuid")) or f"record:{len(self._keys) + 1}"
        key = base
        while key in self._keys:
            self._keys[base] += 1
            key = f"{base}:{self._keys[base]}"
        self._keys[key] = 1
        return key

    def _note_microcompaction(self, value: Wire) -> None:
        found = _object(value.get("microcompactMetadata"))
        ids = found.get("compactedToolIds")
        self.microcompactions.append(
            {
                "trigger": text_or_empty(found.get("trigger")),
                "tokens_before": count(found.get("preTokens")),
                "tokens_saved": count(found.get("tokensSaved")),
                "tool_call_ids": ids if isinstance(ids, list) else [],
                "stands_after": self._tail,
            }
        )


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


NAME = "claude_code"

RECORD_KEYS = {"cwd": "cwd", "git_branch": "gitBranch", "version": "version", "slug": "slug"}


def recognises(document: Document) -> bool:
    """Whether any record is a Claude Code message: its type, and a message object inside it."""
    return any(holds_message(record.value) for record in _records(document))


def parse(document: Document) -> ParsedFile:
    """One conversation for each session of the file; a session without messages is left out."""
    problems = ProblemList()
    records = only_objects(_records(document), problems)
    sessions = _sessions(records)
    titles = _titles(records, sessions)
    conversations = []
    for session_id, session in sessions.items():
        reader = SessionReader(document.keep)
        for record in session:
            reader.take(record)
        problems += reader.all_problems()
        if messages := reader.messages():
            title = titles.get(session_id, "")
            conversations.append(_conversation(session_id, session, reader, messages, title))
    return ParsedFile(format=NAME, conversations=tuple(conversations), problems=problems)


def _records(document: Document) -> Sequence[Record]:
    """The records of JSON lines; those of a web container are numbered from 1."""
    container = None if document.is_lines else document.records[0].value
    lines = container.get("loglines") if isinstance(container, dict) else None
    if not isinstance(lines, list):
        return document.records
    return list(items_as_records(lines))


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
        identity=f"{NAME}:{session_id}:{first or digest_of_line(items=Wires(messages))}",
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


FORMAT = Format(
    name=NAME,
    label="Claude Code sessions (JSONL, or its web export)",
    endings=(".json", ".jsonl"),
    recognises=recognises,
    parse=parse,
)
