"""A tree of imported messages, stored as branches: the line to the leaf first, then the others."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from chatapp import transcript
from chatapp.formats.records import ImportedMessage
from chatapp.models import Branch, Message, Session
from chatapp.selectors import group_of
from chatapp.transcript.writing import NewMessage

KEYS_AT_ONCE = 1_000
"""Keys in one query."""


class TreeImporter:
    """Stores a tree of imported messages: the line to the leaf first, then what branches off."""

    def __init__(self, session: Session, messages: Sequence[ImportedMessage]) -> None:
        self._session = session
        self._messages = messages
        self._by_key = {message.key: message for message in messages}
        self._children: dict[str | None, list[ImportedMessage]] = {}
        for message in messages:
            self._children.setdefault(message.parent, []).append(message)
        self._rows: dict[str, Message] = {}

    def ids(self) -> list[UUID]:
        """Return the ids of the stored rows in the file's order."""
        return [self._rows[message.key].pk for message in self._messages]

    def remember_stored(self, leaf: str | None) -> None:
        """Find the rows of an earlier import that new messages hang under, and the leaf."""
        wanted = {message.parent for message in self._messages} | {leaf}
        keys = sorted(key for key in wanted - self._by_key.keys() if key is not None)
        for start in range(0, len(keys), KEYS_AT_ONCE):
            rows = Message.objects.filter(
                session=self._session,
                metadata__import_key__in=keys[start : start + KEYS_AT_ONCE],
            )
            for row in rows.select_related("branch"):
                self._rows[row.metadata["import_key"]] = row

    def plant(self, leaf: str | None) -> None:
        """Store the messages, branch by branch; the branch of the leaf becomes the active one."""
        if not self._messages:
            return
        shown = leaf if leaf in self._by_key or leaf in self._rows else self._messages[-1].key
        if shown in self._by_key:
            self._store_line(_line_to(shown, self._by_key))
        active = self._rows[str(shown)].branch
        for message in self._messages:
            if message.key not in self._rows:
                self._store_line(self._line_from(message))
        if active.pk != self._session.active_branch_id:
            transcript.activate(self._session, active)

    def _line_from(self, start: ImportedMessage) -> list[ImportedMessage]:
        """Return the message and, level by level, the first child that is not stored."""
        line = [start]
        while children := self._children.get(line[-1].key):
            line.append(children[0])
        return line

    def _store_line(self, line: Sequence[ImportedMessage]) -> None:
        branch = self._branch_for(line[0])
        rows = transcript.append(branch, [draft_of(message) for message in line])
        for message, row in zip(line, rows, strict=True):
            self._rows[message.key] = row

    def _branch_for(self, first: ImportedMessage) -> Branch:
        """Return the branch that a line goes into: its parent's, if nothing follows there yet."""
        parent = self._rows.get(first.parent or "")
        root: Branch = self._session.branch
        if parent is None:
            empty = not root.head_position
            return (
                root
                if empty
                else Branch.objects.create(session=self._session, kind=Branch.Kind.FORK)
            )
        later = Message.objects.filter(branch=parent.branch_id, position__gt=parent.position)
        if later.filter(kind=Message.Kind.MESSAGE).exists():
            return self._fork_at(parent)
        return parent.branch

    def _fork_at(self, parent: Message) -> Branch:
        if parent.kind != Message.Kind.MESSAGE:
            earlier = Message.objects.filter(
                branch=parent.branch, position__lt=parent.position, kind=Message.Kind.MESSAGE
            ).order_by("-position")
            found = earlier.select_related("branch").first()
            if found is None:
                return Branch.objects.create(session=self._session, kind=Branch.Kind.FORK)
            parent = found
        members = group_of(parent)
        return transcript.fork(self._session, at=members[-1])


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
    stored = set(rows.values_list("metadata__import_key", flat=True).iterator())
    return (
        [message for message in messages if message.key in stored],
        [message for message in messages if message.key not in stored],
    )
