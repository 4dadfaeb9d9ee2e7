"""Transcripts in and out: parsed files become sessions, sessions become files."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction

from chatapp import transcript
from chatapp.conf import chatapp_settings
from chatapp.context.backend import context_backend, notify
from chatapp.extensions import ExportPart, registered
from chatapp.formats import Export, UnknownFormatError, parse
from chatapp.formats.records import Conversation, ImportedMessage, ParsedFile, Problem
from chatapp.messages.wire import (
    CUT_FROM,
    Cleaner,
    InvalidMessageError,
    WireMessage,
    check_size,
    fields_of,
)
from chatapp.models import Branch, Message, Session
from chatapp.selectors import group_of, path_messages, whole_content
from chatapp.transcript.writing import NewMessage

logger = logging.getLogger(__name__)
MAX_TITLE_CHARS = 200
MAX_KEY_CHARS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What one conversation became: its session, how many rows were added, whether it is new."""

    session: Session
    format: str
    messages_added: int
    created: bool

    def as_dict(self) -> dict[str, Any]:
        """Return it as the API and the command's JSON lines show it."""
        return {
            "session": str(self.session.pk),
            "title": self.session.title,
            "format": self.format,
            "messages_added": self.messages_added,
            "created": self.created,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What a file became, and what was left out of it, line by line."""

    imported: list[Imported]
    problems: list[Problem]


def import_file(
    *, owner: Any, content: bytes, name: str = "", model: str = "default"
) -> ImportReport:
    """Store every conversation of a file; importing it twice adds nothing.

    Raises chatapp.formats.UnknownFormatError where the content is no known format, or nothing of it
    can be stored. Each conversation is stored whole or not at all.
    """
    parsed: ParsedFile = parse(content, name=name)
    problems = list(parsed.problems)
    done = [
        import_conversation(conversation, owner=owner, model=model, problems=problems)
        for conversation in parsed.conversations
    ]
    imported = [one for one in done if one is not None]
    if not imported:
        why = problems[0].text if problems else ""
        raise UnknownFormatError(f"Nothing of the file can be stored. {why}".strip())
    return ImportReport(imported=imported, problems=problems)


def import_conversation(
    conversation: Conversation, *, owner: Any, model: str, problems: list[Problem]
) -> Imported | None:
    """Store one conversation, or what it has more than the session made from it earlier.

    None where it has messages, and none of them can be stored: no empty session is made.
    """
    messages = _storable(conversation, problems)
    if conversation.messages and not messages:
        return None
    key = _key(conversation.identity)
    known = Session.objects.select_related("active_branch").filter(owner=owner, import_key=key)
    session = known.first()
    if session is None:
        try:
            return _import_new(
                conversation, messages, problems, owner=owner, import_key=key, model=model
            )
        except IntegrityError:  # another import of the same file was a moment faster
            session = known.first()
            if session is None:
                raise
    return _import_rest(session, conversation, messages, problems)


def _import_new(
    conversation: Conversation,
    messages: list[ImportedMessage],
    problems: list[Problem],
    *,
    owner: Any,
    import_key: str,
    model: str,
) -> Imported:
    clean = Cleaner()
    about = _imported(conversation, messages) | (
        {"source_model": conversation.model} if conversation.model else {}
    )
    with transaction.atomic():
        session = transcript.create_session(
            owner=owner,
            import_key=import_key,
            title=clean.text(conversation.title)[:MAX_TITLE_CHARS],
            model=model,
            system_prompt=clean.text(conversation.system_prompt),
            tools=clean.json(list(conversation.tools)),
            metadata=clean.json(conversation.metadata | about),
        )
        importer = _TreeImporter(session, messages)
        importer.plant(conversation.leaf)
        found = _take_back(session, conversation, importer.ids())
    problems += [Problem(line=0, text=sentence) for sentence in found]
    _tell(session)
    return Imported(
        session=session, format=conversation.format, messages_added=len(messages), created=True
    )


def _take_back(session: Session, conversation: Conversation, ids: Sequence[UUID]) -> list[str]:
    """Hand the parts of apps to those that wrote them; return what they could not take.

    Before anybody is told of the session: what they say is part of it.
    """
    if not conversation.parts:
        return []
    if len(ids) != len(conversation.messages):
        named = ", ".join(sorted(conversation.parts.keys() & _parts().keys()))
        return [f"Not all messages could be stored, and so nothing of: {named}."] if named else []
    sentences: list[str] = []
    for name, part in _parts().items():
        if name not in conversation.parts:
            continue
        try:
            with transaction.atomic():
                sentences += part.take_back(session.branch, ids, conversation.parts[name])
        # Whatever an app does with what a stranger wrote: the messages are stored.
        except Exception:
            logger.exception("The part %s of session %s was not taken back.", name, session.pk)
            sentences.append(f"“{name}” was left out: it could not be stored. The log says why.")
    return sentences


def _parts() -> dict[str, ExportPart]:
    return {name: part for each in registered() for name, part in each.parts.items()}


def _imported(conversation: Conversation, messages: Sequence[ImportedMessage]) -> dict[str, Any]:
    """Return what a session's metadata remembers of the file it came from."""
    return {"import": _fingerprint(messages) | {"format": conversation.format}}


def _storable(conversation: Conversation, problems: list[Problem]) -> list[ImportedMessage]:
    """Return the messages that can be stored; children of others hang under what is above."""
    kept: list[ImportedMessage] = []
    replaced: dict[str, str | None] = {}
    for number, message in enumerate(conversation.messages, 1):
        parent = message.parent
        while parent in replaced:
            parent = replaced[parent]
        try:
            fields = fields_of(message.wire)
            check_size(
                fields,
                most_chars=chatapp_settings.max_message_chars,
                most_part_chars=chatapp_settings.max_part_chars,
            )
        except InvalidMessageError as error:
            problems.append(Problem(line=number, text=f"Message {number} was left out: {error}"))
            replaced[message.key] = parent
            continue
        kept.append(_under(message, parent))
    return kept


def _under(message: ImportedMessage, parent: str | None) -> ImportedMessage:
    return message if parent == message.parent else replace(message, parent=parent)


def _import_rest(
    session: Session,
    conversation: Conversation,
    messages: list[ImportedMessage],
    problems: list[Problem],
) -> Imported:
    """Append what a grown file has more, if nobody went on with the session meanwhile."""
    before = session.metadata.get("import", {})
    count = int(before.get("messages", 0))
    same = _fingerprint(messages[:count])["digest"] == before.get("digest")
    added = messages[count:]
    # Placeholders are not counted: a session that was made smaller meanwhile may still grow.
    stored = Message.objects.filter(session=session, kind=Message.Kind.MESSAGE).count()
    untouched = stored == sum(m.kind == Message.Kind.MESSAGE for m in messages[:count])
    if not same or (added and not untouched):
        why = "other messages came in here" if same else "its earlier messages differ"
        problems.append(
            Problem(
                line=0,
                text=f"“{session.title}” was imported before and {why}; nothing was added to it.",
            )
        )
        added = []
    if added:
        with transaction.atomic():
            importer = _TreeImporter(session, added)
            importer.remember_parents()
            importer.plant(conversation.leaf)
            session.metadata = session.metadata | _imported(conversation, messages)
            session.save(update_fields=["metadata"])
        _tell(session)
    return Imported(
        session=session, format=conversation.format, messages_added=len(added), created=False
    )


class _TreeImporter:
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

    def remember_parents(self) -> None:
        """Find the rows, stored by an earlier import, that the new messages hang under."""
        parents = {message.parent for message in self._messages} - set(self._by_key) - {None}
        rows = Message.objects.filter(
            session=self._session, metadata__import_key__in=sorted(filter(None, parents))
        )
        for row in rows.select_related("branch"):
            self._rows[row.metadata["import_key"]] = row

    def plant(self, leaf: str | None) -> None:
        """Store the messages, branch by branch; the branch of the leaf becomes the active one."""
        if not self._messages:
            return
        end = leaf if leaf in self._by_key else self._messages[-1].key
        line = _line_to(end, self._by_key)
        self._store_line(line)
        active = self._rows[end].branch
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
        rows = transcript.append(branch, [_draft(message) for message in line])
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


def _draft(message: ImportedMessage) -> NewMessage:
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


def _tell(session: Session) -> None:
    """Let the context backend look at the session once, as after any stored message."""
    newest = Message.objects.filter(branch=session.branch).order_by("-position").first()
    if newest is not None:
        newest.branch = session.branch
        notify(context_backend.message_stored, session, newest)


def _key(identity: str) -> str:
    if len(identity) <= MAX_KEY_CHARS:
        return identity
    return hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()


def _fingerprint(messages: Iterable[ImportedMessage]) -> dict[str, Any]:
    """Return how many messages there are and a digest of them, in the file's order."""
    digest, count = hashlib.sha256(), 0
    for message in messages:
        text = json.dumps([message.wire, message.summary], sort_keys=True, default=str)
        digest.update(text.encode("utf-8", "replace"))
        count += 1
    return {"messages": count, "digest": digest.hexdigest()}


def conversation_of(session: Session) -> Conversation:
    """Return a session's active branch as importers and exporters know it; no placeholders.

    What apps know of it are its parts.
    """
    messages: list[ImportedMessage] = []
    ids: list[UUID] = []
    parent: str | None = None
    for row in path_messages(session.branch).iterator(chunk_size=1000):
        key = str(row.pk)
        messages.append(
            ImportedMessage(
                key=key,
                parent=parent,
                wire=_whole(row) | row.metadata.get("extra", {}),
                reasoning=row.reasoning,
                created_at=row.created_at,
                pinned=row.pinned,
            )
        )
        ids.append(row.pk)
        parent = key
    return Conversation(
        format="openai_chat",
        identity=f"palimpsest:{session.pk}",
        title=session.title,
        system_prompt=session.system_prompt,
        tools=tuple(session.tools),
        messages=tuple(messages),
        parts=_written_parts(session.branch, ids),
    )


def _written_parts(branch: Branch, ids: Sequence[UUID]) -> dict[str, Any]:
    said = ((name, part.written(branch, ids)) for name, part in _parts().items())
    return {name: value for name, value in said if value is not None}


def _whole(row: Message) -> WireMessage:
    """Return a row as it came in: what was cut of a tool result is in the file."""
    wire = row.wire()
    if CUT_FROM in row.metadata:
        wire["content"] = whole_content(row)
    return wire


def export_sessions(sessions: Iterable[Session], export: Export) -> Iterator[str]:
    """Yield sessions as text in one of `all_exports`, one session after the other."""
    return export.write(conversation_of(session) for session in sessions)
