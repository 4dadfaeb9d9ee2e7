"""Sessions become files: their messages are read some at a time while they are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.utils.functional import SimpleLazyObject

from chatapp.extensions import export_parts
from chatapp.formats import Export
from chatapp.formats.own_parts import told_beside
from chatapp.formats.records import Conversation, ImportedMessage, MessageLine
from chatapp.messages.wire import WireMessage
from chatapp.models import Branch, Message, Session
from chatapp.selectors import NOT_READ, path_messages, rows_from, uncut

ROWS_AT_ONCE = 500


class SessionGoneError(Exception):
    """The session was deleted while it was being written: the file is not whole."""


def export_sessions(sessions: Iterable[Session], export: Export) -> Iterator[str]:
    """Yield sessions as text in one of `all_exports`, one session after the other.

    However long a session is, a few of its messages are in memory. No cursor of the database stays
    open between two pieces. Raises SessionGoneError where a session is deleted meanwhile.
    """
    return export.write(conversation_of(session) for session in sessions)


def conversation_of(session: Session) -> Conversation:
    """Return a session's active branch as importers and exporters know it; no placeholders.

    What apps know of it are its parts. Its messages are read whenever somebody goes through them.
    """
    branch = session.branch
    return Conversation(
        format="openai_chat",
        identity=f"palimpsest:{session.pk}",
        title=session.title,
        system_prompt=session.system_prompt,
        tools=tuple(session.tools),
        messages=MessageLine(lambda: _messages(branch)),
        parts=_written_parts(branch),
    )


def read_path(branch: Branch, rows: QuerySet[Message] | None = None) -> Iterator[list[Message]]:
    """Yield the messages and notes of a branch's path in order, some at a time.

    Of `rows` only those. Raises SessionGoneError where the branch is deleted meanwhile: the end of
    its rows would look like the end of the conversation.
    """
    wanted = Message.objects.all() if rows is None else rows
    wanted = wanted.filter(kind__in=Message.SPOKEN).defer(*NOT_READ)
    start = 0
    while True:
        found = rows_from(branch, wanted, start=start, most=ROWS_AT_ONCE)
        yield found
        if len(found) < ROWS_AT_ONCE:
            break
        start = found[-1].position + 1
    # Asked last, of short ones, too: what is looked up for the last rows may be gone as well.
    if not Branch.objects.filter(pk=branch.pk).exists():
        raise SessionGoneError("The session was deleted while it was being exported.")


def _messages(branch: Branch) -> Iterator[ImportedMessage]:
    parent: str | None = None
    for rows in read_path(branch):
        for row, whole in zip(rows, uncut(rows), strict=True):
            key = str(row.pk)
            yield ImportedMessage(
                key=key,
                parent=parent,
                wire=_whole(row, whole) | row.metadata.get("extra", {}),
                reasoning=row.reasoning,
                created_at=row.created_at,
                pinned=row.pinned,
                kind=row.kind,
                metadata=told_beside(row),
            )
            parent = key


def _whole(row: Message, whole: Message) -> WireMessage:
    """Return a row as it came in: what was cut of a tool result is in the file."""
    wire = row.wire()
    if whole is not row:
        wire["content"] = whole.content_with_files()
    return wire


def _written_parts(branch: Branch) -> dict[str, Any]:
    # Few apps ask for the ids, which are as many as there are messages.
    ids: Any = SimpleLazyObject(lambda: _ids_of(branch))
    said = ((name, part.written(branch, ids)) for name, part in export_parts().items())
    return {name: value for name, value in said if value is not None}


def _ids_of(branch: Branch) -> Sequence[UUID]:
    return list(path_messages(branch).values_list("pk", flat=True))
