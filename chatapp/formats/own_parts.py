"""What an export of ours holds beside the messages: one key, which other readers pass over.

    "palimpsest": {"version": 1, "pinned": [0], "notes": {"3": "branch_summary"}, "profile": "…"}

All but `version` may be missing. `pinned` are the messages that are always sent, `notes` those
that ask nothing, with their type. `left_out` says of answers what of the conversation they were
given without. Every other part is an app's own (chatapp.extensions.ExportPart). Indexes of messages
count from 0 and leave out the system prompt, which is no message of the session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chatapp.formats.reading import shown
from chatapp.formats.records import ImportedMessage, Wires
from chatapp.messages.pairing import answers
from chatapp.messages.wire import LEFT_OUT

OWN_KEY = "palimpsest"
VERSION = 1
_VERSION, _PINNED, _NOTES, _LEFT_OUT = "version", "pinned", "notes", LEFT_OUT
MOST_TYPE_CHARS = 40
_NUMBERS, _WORDS = ("messages", "tokens"), ("first", "last", "why")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnParts:
    """What was read: the indexes of pinned messages and of notes, what answers were given without,
    apps' parts, what was wrong.
    """

    pinned: frozenset[int] = frozenset()
    notes: Mapping[int, str] = field(default_factory=dict)
    left_out: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    parts: Mapping[str, Any] = field(default_factory=dict)
    problems: Sequence[str] = ()


def told_beside(row: Any) -> dict[str, Any]:
    """Return what an export says of a stored message beside its words.

    Of a note its type, of an answer what it was given without.
    """
    told = {"type": row.metadata.get("type", "")} if row.is_note else {}
    return told | ({LEFT_OUT: row.metadata[LEFT_OUT]} if LEFT_OUT in row.metadata else {})


class OwnPartsWriter:
    """Collects what messages say beside their words as they are written, one after the other."""

    def __init__(self) -> None:
        self._count = 0
        # System messages that open a conversation are pinned when they are stored.
        self._is_opening = True
        self._pinned: list[int] = []
        self._notes: dict[str, str] = {}
        self._left_out: dict[str, Any] = {}

    def note(self, message: ImportedMessage) -> None:
        """Take the next message."""
        index, self._count = self._count, self._count + 1
        self._is_opening = self._is_opening and message.wire["role"] == "system"
        if message.pinned and not self._is_opening:
            self._pinned.append(index)
        if message.kind == "note":
            self._notes[str(index)] = str(message.metadata.get("type", ""))
        if LEFT_OUT in message.metadata:
            self._left_out[str(index)] = message.metadata[LEFT_OUT]

    def written(self, parts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the key with its object; empty where there is nothing to say."""
        own = (
            ({_LEFT_OUT: self._left_out} if self._left_out else {})
            | ({_PINNED: self._pinned} if self._pinned else {})
            | ({_NOTES: self._notes} if self._notes else {})
            | dict(parts)
        )
        return {OWN_KEY: {_VERSION: VERSION} | own} if own else {}


def read_parts(
    value: Mapping[str, Any], messages: Sequence[ImportedMessage], *, is_whole: bool
) -> OwnParts:
    """Return what an object says beside its messages.

    `is_whole`: no message of the file was left out. Otherwise its indexes name other messages, and
    nothing is taken of it.
    """
    own = value.get(OWN_KEY)
    if own is None:
        return OwnParts()
    if not isinstance(own, dict):
        return _refused("it is no object")
    if own.get(_VERSION) != VERSION:
        return _refused(f"its version is {shown(own.get(_VERSION))}, and {VERSION} can be read")
    if not is_whole:
        return _refused("it counts messages, and not all of them could be read")
    ours = (_VERSION, _PINNED, _NOTES, _LEFT_OUT)
    parts = {name: part for name, part in own.items() if name not in ours}
    problems: list[str] = []
    pinned = own.get(_PINNED, [])
    if not _are_indexes(pinned, below=len(messages)):
        pinned = []
        what = "they are no list of messages of the file"
        problems.append(f"The pinned messages were left out: {what}.")
    notes = _notes(own.get(_NOTES, {}), messages)
    if notes is None:
        what = "they are no user's messages of the file with their types"
        problems.append(f"The marks of notes were left out: {what}.")
    left_out = _left_out(own.get(_LEFT_OUT, {}), messages)
    if left_out is None:
        what = "it says nothing of this kind of answers of the file"
        problems.append(f"What answers were given without was left out: {what}.")
    return OwnParts(
        parts=parts,
        pinned=_with_groups(pinned, messages),
        notes=notes or {},
        left_out=left_out or {},
        problems=problems,
    )


def _notes(value: Any, messages: Sequence[ImportedMessage]) -> dict[int, str] | None:
    """Return the types of notes by their index; None where the file's are no such thing."""
    if not isinstance(value, dict):
        return None
    users = {str(i): i for i, message in enumerate(messages) if message.wire["role"] == "user"}
    are_sound = all(
        key in users and isinstance(kind, str) and len(kind) <= MOST_TYPE_CHARS
        for key, kind in value.items()
    )
    return {users[key]: kind for key, kind in value.items()} if are_sound else None


def _left_out(
    value: Any, messages: Sequence[ImportedMessage]
) -> dict[int, Mapping[str, Any]] | None:
    """Return what answers were given without, by their index; None where the file's is no such."""
    if not isinstance(value, dict):
        return None
    replies = {
        str(i): i for i, message in enumerate(messages) if message.wire["role"] == "assistant"
    }
    if not all(key in replies and _is_told(told) for key, told in value.items()):
        return None
    return {replies[key]: told for key, told in value.items()}


def _is_told(told: Any) -> bool:
    """Whether it is {messages, first, last, tokens, why} as an answer's metadata has it."""
    if not isinstance(told, dict) or told.keys() != {*_NUMBERS, *_WORDS}:
        return False
    numbers = [told[name] for name in _NUMBERS]
    are_numbers = all(type(one) is int and 0 <= one < 1 << 31 for one in numbers)
    words = [told[name] for name in _WORDS]
    are_words = all(isinstance(one, str) and len(one) <= MOST_TYPE_CHARS for one in words)
    return are_numbers and are_words and told["messages"] > 0


def _refused(why: str) -> OwnParts:
    return OwnParts(problems=[f"“{OWN_KEY}” was left out: {why}."])


def _are_indexes(value: Any, *, below: int) -> bool:
    return isinstance(value, list) and all(
        isinstance(index, int) and not isinstance(index, bool) and 0 <= index < below
        for index in value
    )


def _with_groups(indexes: Sequence[int], messages: Sequence[ImportedMessage]) -> frozenset[int]:
    """Return the indexes with those of their groups: a call is pinned with its results."""
    callers = {result: caller for result, (caller, _) in answers(Wires(messages)).items()}
    heads = {callers.get(index, index) for index in indexes}
    return frozenset(i for i in range(len(messages)) if callers.get(i, i) in heads)
