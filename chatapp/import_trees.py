"""A tree of imported messages, stored as branches: the line to the leaf first, then the others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from uuid import UUID

from django.db.models.fields.json import KT

from chatapp import transcript
from chatapp.formats.records import ImportedMessage
from chatapp.llm.tokens import ModelTokenCounter, count_message
from chatapp.models import Message, Session
from chatapp.transcript.writing import NewMessage

LONG_TEXT_CHARS = 1_000


class CountedAhead:
    """A token counter that was asked before the transaction: it remembers long texts by digests.

    The transaction, in which nobody else writes to SQLite, then counts short texts only, and what
    is stored otherwise than it came in.
    """

    def __init__(self, counter: ModelTokenCounter) -> None:
        self.name, self.exact = counter.name, counter.exact
        self._counter = counter
        self._known: dict[bytes, int] = {}

    def count_all(self, messages: Iterable[ImportedMessage]) -> None:
        """Count those messages of a large file that are long."""
        for message in messages:
            if message.size >= LONG_TEXT_CHARS:
                count_message(message.wire, self)

    def count(self, text: str) -> int:
        """Return what the counter says, or said of the same text."""
        if len(text) < LONG_TEXT_CHARS:
            return self._counter.count(text)
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if key not in self._known:
            self._known[key] = self._counter.count(text)
        return self._known[key]


class TreeImporter:
    """Stores a tree of imported messages: the line to the leaf first, then what branches off."""

    def __init__(
        self,
        session: Session,
        messages: Sequence[ImportedMessage],
        counter: ModelTokenCounter | None = None,
    ) -> None:
        """Take the messages; without `counter` the session's model counts their tokens."""
        self._session = session
        self._counter = counter
        self._messages = messages
        self._by_key = {message.key: message for message in messages}
        self._children: dict[str | None, list[ImportedMessage]] = {}
        for message in messages:
            self._children.setdefault(message.parent, []).append(message)
        self._places: dict[str, transcript.Place] = {}

    def ids(self) -> list[UUID]:
        """Return the ids of the stored rows in the file's order."""
        return [self._places[message.key].pk for message in self._messages]

    def plant(self, leaf: str | None) -> None:
        """Store all messages of a new session; the branch of the leaf becomes the active one."""
        self._plant(transcript.SessionTree(self._session, self._counter), leaf)

    def plant_rest(self, leaf: str | None) -> None:
        """Store messages that hang under those that an earlier import stored."""
        tree = transcript.SessionTree.loaded(self._session)
        wanted = {message.parent for message in self._messages} | {leaf}
        for place in tree.places():
            if place.key in wanted and place.key not in self._by_key:
                self._places[str(place.key)] = place
        self._plant(tree, leaf)

    def _plant(self, tree: transcript.SessionTree, leaf: str | None) -> None:
        if not self._messages:
            return
        shown = leaf if leaf in self._by_key or leaf in self._places else self._messages[-1].key
        if shown in self._by_key:
            self._add_line(tree, _line_to(shown, self._by_key))
        active = self._places[str(shown)].branch
        for message in self._messages:
            if message.key not in self._places:
                self._add_line(tree, self._line_from(message))
        tree.store()
        if active.pk != self._session.active_branch_id:
            transcript.activate(self._session, active)
        transcript.tell_of_tree(self._session)

    def _line_from(self, start: ImportedMessage) -> list[ImportedMessage]:
        """Return the message and, level by level, the first child that is not stored."""
        line = [start]
        while children := self._children.get(line[-1].key):
            line.append(children[0])
        return line

    def _add_line(self, tree: transcript.SessionTree, line: Sequence[ImportedMessage]) -> None:
        parent = self._places.get(line[0].parent or "")
        # One at a time: a message of a large file is read when its row is made.
        places = tree.add_line(parent, map(draft_of, line))
        for message, place in zip(line, places, strict=True):
            self._places[message.key] = place


def _line_to(end: str | None, by_key: dict[str, ImportedMessage]) -> list[ImportedMessage]:
    """Return the messages from the root to `end`, in order."""
    line: list[ImportedMessage] = []
    seen: set[str] = set()
    while end is not None and end in by_key and end not in seen:
        seen.add(end)
        line.append(by_key[end])
        end = by_key[end].parent
    return list(reversed(line))


def is_one_line(messages: Sequence[ImportedMessage], leaf: str | None) -> bool:
    """Whether each message follows the one before it, and the last one is the leaf."""
    before = None
    for message in messages:
        if message.parent != before:
            return False
        before = message.key
    return leaf in (None, before)


def draft_of(message: ImportedMessage) -> NewMessage:
    """Return the message as the transcript stores it; its key stays in its metadata."""
    return NewMessage(
        wire=message.wire,
        kind=message.kind,
        summary=message.summary,
        reasoning=message.reasoning,
        usage=message.usage,
        finish_reason=message.finish_reason,
        metadata=message.metadata | {"import_key": message.key},
        created_at=message.created_at,
        pinned=message.pinned,
    )


def parted_by_stored(
    session: Session, messages: Sequence[ImportedMessage]
) -> tuple[list[ImportedMessage], list[ImportedMessage]]:
    """Return the messages that the session has, and those that it has not.

    In a tree that has grown, what is new may stand before what was there, in another branch.
    """
    rows = Message.objects.filter(session=session)
    # As a text: SQLite would tell the key "7" as a number.
    stored = set(rows.values_list(KT("metadata__import_key"), flat=True).iterator())
    return (
        [message for message in messages if message.key in stored],
        [message for message in messages if message.key not in stored],
    )
