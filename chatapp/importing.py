"""Storing what an importer read: new sessions, or what is new in ones that were imported before."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from chatapp import transcript
from chatapp.conf import chatapp_settings
from chatapp.context import context_backend
from chatapp.formats import parse
from chatapp.formats.records import Conversation, ImportedMessage, ParsedFile, Problem
from chatapp.models import Branch, Message, Session
from chatapp.transcript import Draft
from chatapp.wire import InvalidMessageError, fields_of

MAX_TITLE_CHARS = 200
MAX_KEY_CHARS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What one conversation became: its session, how many rows were added, whether it is new."""

    session: Session
    format: str
    messages_added: int
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What a file became, and what was left out of it, line by line."""

    imported: list[Imported]
    problems: list[Problem]


def import_file(*, owner: Any, content: bytes, name: str = "", model: str = "default") -> ImportReport:
    """Store every conversation of a file; importing it twice adds nothing.

    Raises chatapp.formats.UnknownFormatError where the content is no known format. Each
    conversation is stored whole or not at all.
    """
    parsed: ParsedFile = parse(content, name=name)
    problems = list(parsed.problems)
    imported = [
        import_conversation(conversation, owner=owner, model=model, problems=problems)
        for conversation in parsed.conversations
    ]
    return ImportReport(imported=imported, problems=problems)


def import_conversation(
    conversation: Conversation, *, owner: Any, model: str, problems: list[Problem]
) -> Imported:
    """Store one conversation, or what it has more than the session made from it earlier."""
    messages = _storable(conversation, problems)
    key = _key(conversation.identity)
    known = Session.objects.select_related("active_branch").filter(owner=owner, import_key=key)
    session = known.first()
    if session is not None:
        return _import_rest(session, conversation, messages, problems)
    with transaction.atomic():
        session = transcript.create_session(
            owner=owner,
            import_key=key,
            title=fields_of({"role": "user", "content": conversation.title})["content"][
                :MAX_TITLE_CHARS
            ],
            model=model,
            system_prompt=fields_of({"role": "system", "content": conversation.system_prompt})[
                "content"
            ],
            tools=_cleaned(list(conversation.tools)),
            metadata=_cleaned(
                conversation.metadata
                | {"import": _fingerprint(messages) | {"format": conversation.format}}
                | ({"source_model": conversation.model} if conversation.model else {})
            ),
        )
        _Planting(session).plant(messages, conversation.leaf)
    _tell(session)
    return Imported(
        session=session, format=conversation.format, messages_added=len(messages), created=True
    )


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
            if len(fields["content"] or "") > chatapp_settings.max_message_chars:
                raise InvalidMessageError("its text is longer than MAX_MESSAGE_CHARS.")
        except InvalidMessageError as error:
            problems.append(Problem(line=number, text=f"Message {number} was left out: {error}"))
            replaced[message.key] = parent
            continue
        kept.append(_under(message, parent))
    return kept


def _under(message: ImportedMessage, parent: str | None) -> ImportedMessage:
    if parent == message.parent:
        return message
    from dataclasses import replace

    return replace(message, parent=parent)


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
    untouched = Message.objects.filter(session=session).count() == count
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
            planting = _Planting(session)
            planting.remember(messages[:count])
            planting.plant(added, conversation.leaf)
            session.metadata = session.metadata | {
                "import": _fingerprint(messages) | {"format": conversation.format}
            }
            session.save(update_fields=["metadata"])
        _tell(session)
    return Imported(
        session=session, format=conversation.format, messages_added=len(added), created=False
    )


class _Planting:
    """Stores a tree of imported messages: the line to the leaf is the root branch, others fork."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._rows: dict[str, Message] = {}

    def remember(self, messages: Sequence[ImportedMessage]) -> None:
        """Find the rows of messages that were imported before."""
        keys = [message.key for message in messages]
        for row in Message.objects.filter(session=self._session).select_related("branch"):
            key = row.metadata.get("import_key")
            if key in keys:
                self._rows[key] = row

    def plant(self, messages: Sequence[ImportedMessage], leaf: str | None) -> None:
        """Store the messages, branch by branch; the branch of the leaf becomes the active one."""
        by_key = {message.key: message for message in messages}
        end = leaf if leaf in by_key else (messages[-1].key if messages else None)
        line = _line_to(end, by_key)
        self._store_line(line, self._session.branch)
        active = self._rows[line[-1].key].branch if line else None
        done = {message.key for message in line}
        for message in messages:
            if message.key not in done:
                rest = self._line_from(message, messages, done)
                self._store_fork(rest)
                done |= {item.key for item in rest}
        if active is not None and active.pk != self._session.active_branch_id:
            transcript.activate(self._session, active)

    def _line_from(
        self, start: ImportedMessage, messages: Sequence[ImportedMessage], done: set[str]
    ) -> list[ImportedMessage]:
        """Return the message and its newest descendants, one a level."""
        children: dict[str | None, list[ImportedMessage]] = {}
        for message in messages:
            if message.key not in done:
                children.setdefault(message.parent, []).append(message)
        line = [start]
        while children.get(line[-1].key):
            line.append(children[line[-1].key][0])
        return line

    def _store_fork(self, line: list[ImportedMessage]) -> None:
        parent = self._rows.get(line[0].parent or "")
        if parent is None:
            branch = Branch.objects.create(session=self._session, kind=Branch.Kind.FORK)
        elif parent.position == parent.branch.head_position:
            branch = parent.branch
        else:
            branch = self._fork_at(parent)
        self._store_line(line, branch)

    def _fork_at(self, parent: Message) -> Branch:
        if parent.kind != Message.Kind.MESSAGE:
            earlier = Message.objects.filter(
                branch=parent.branch, position__lt=parent.position, kind=Message.Kind.MESSAGE
            ).order_by("-position")
            found = earlier.select_related("branch").first()
            if found is None:
                return Branch.objects.create(session=self._session, kind=Branch.Kind.FORK)
            parent = found
        members = transcript.group_of(parent)
        return transcript.fork(self._session, at=members[-1])

    def _store_line(self, line: Sequence[ImportedMessage], branch: Branch) -> None:
        rows = transcript.append(branch, [_draft(message) for message in line])
        for message, row in zip(line, rows, strict=True):
            self._rows[message.key] = row


def _line_to(
    end: str | None, by_key: dict[str, ImportedMessage]
) -> list[ImportedMessage]:
    """Return the messages from the root to `end`, in order."""
    line: list[ImportedMessage] = []
    seen: set[str] = set()
    while end is not None and end in by_key and end not in seen:
        seen.add(end)
        line.append(by_key[end])
        end = by_key[end].parent
    return list(reversed(line))


def _draft(message: ImportedMessage) -> Draft:
    return Draft(
        wire=message.wire,
        kind=message.kind,
        summary=message.summary,
        reasoning=message.reasoning,
        usage=message.usage,
        finish_reason=message.finish_reason,
        metadata=message.metadata | {"import_key": message.key},
        created_at=message.created_at,
    )


def _tell(session: Session) -> None:
    """Let the context backend look at the session once, as after any stored message."""
    newest = Message.objects.filter(branch=session.branch).order_by("-position").first()
    if newest is not None:
        newest.branch = session.branch
        context_backend.message_stored(session, newest)


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


def _cleaned(value: Any) -> Any:
    return fields_of({"role": "user", "content": [{"type": "x", "value": value}]})["parts"][0][
        "value"
    ]
