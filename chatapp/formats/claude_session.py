"""Reads the records of one Claude Code session, in file order, into a tree of messages.

Parents in these files run through progress records and parallel calls, so the order of the file is
the line of the conversation. Only a rewind makes a fork: two typed user records under one parent.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

from chatapp.formats import claude_records as records
from chatapp.formats.json_lines import Record
from chatapp.formats.placing import place_before, placeholder
from chatapp.formats.records import ImportedMessage, Problem
from chatapp.formats.wire import (
    DamagedError,
    Wire,
    content_of,
    count,
    is_block,
    joined,
    moment,
    text_or_empty,
)


@dataclass(slots=True)
class _Answer:
    """An answer of the model while its records are still coming in."""

    index: int
    messages: list[Wire] = field(default_factory=list)


class SessionReader:
    """Takes records one by one (`take`) and gives the messages in the end (`messages`)."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.microcompactions: list[dict[str, Any]] = []
        self.model = ""
        self._messages: list[ImportedMessage] = []
        self._answers: list[_Answer] = []
        self._open_answers: dict[str, _Answer] = {}
        self._tail: str | None = None
        self._ends: set[str | None] = set()  # where the lines end that a rewind has left
        self._taken: set[str] = set()  # uuids of the records read so far
        self._keys: dict[str, int] = {}  # keys given out, and how many were made from each
        self._message_at: dict[str, str | None] = {}  # uuid of a record -> message it belongs to
        self._rewound_to: dict[str, str | None] = {}  # parent of a typed record -> message before
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
            self._messages[item.index] = replace(
                self._messages[item.index],
                wire=records.answer(item.messages),
                reasoning=records.reasoning(item.messages),
                usage=records.usage(item.messages),
                finish_reason=records.finish_reason(item.messages),
            )
        return place_before(self._messages, self._moved)

    @property
    def leaf(self) -> str | None:
        """The key of the message that the last line ends on."""
        return self._tail

    def all_problems(self) -> list[Problem]:
        """What was left out: single records, and one entry for each kind that was."""
        counted = [
            Problem(line=lines[0], text=f"Left out: {reason} ({len(lines)}).")
            for reason, lines in self._left_out.items()
        ]
        return self.problems + counted

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

    def _rewind(self, value: Wire) -> None:
        parent = value.get("parentUuid")
        if not isinstance(parent, str):
            return
        if parent not in self._rewound_to:
            self._rewound_to[parent] = self._tail
        elif self._tail != self._rewound_to[parent]:
            self._ends.add(self._tail)
            self._tail = self._rewound_to[parent]

    def _add_user(self, record: Record) -> None:
        content = record.value["message"].get("content")
        said = records.user_message(content)
        results = records.tool_results(content, self._tool_names)
        if not said and not results:
            raise DamagedError("it says nothing")
        if said and records.is_typed(content):
            self._rewind(record.value)
        for wire, metadata in results:
            self._append(record, wire, metadata=metadata)
        if said:
            is_notice = not results and not records.is_typed(content)
            self._append(record, said, metadata={"type": "interruption"} if is_notice else {})

    def _add_answer(self, record: Record) -> None:
        message = record.value["message"]
        records.answer([message])  # raises when the record is damaged
        for block in records.blocks_of(message):
            if is_block(block, "tool_use"):
                self._tool_names[text_or_empty(block.get("id"))] = block["name"]
        self.model = text_or_empty(message.get("model")) or self.model
        identifier = text_or_empty(message.get("id"))
        if identifier not in self._open_answers:
            item = _Answer(index=len(self._messages))
            self._answers.append(item)
            self._append(record, {"role": "assistant", "content": ""})
            if identifier:
                self._open_answers[identifier] = item
        else:
            item = self._open_answers[identifier]
            if uuid := text_or_empty(record.value.get("uuid")):
                self._message_at[uuid] = self._messages[item.index].key
        item.messages.append(message)

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
            self._messages.append(message)
            self._tail = message.key
        else:
            stood_after = {**message.metadata, "stood_after": self._tail}
            self._moved[kept].append(replace(message, metadata=stood_after))
        self._boundary = {}
        self._open_answers.clear()

    def _append(
        self, record: Record, wire: Wire, *, metadata: dict[str, Any] | None = None
    ) -> None:
        key = self._key(record)
        self._messages.append(
            ImportedMessage(
                key=key,
                parent=self._tail,
                wire=wire,
                created_at=moment(record.value.get("timestamp")),
                metadata=metadata or {},
            )
        )
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
