"""Conversations of a file, some at a time, each without what cannot be stored of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from chatapp.conf import chatapp_settings
from chatapp.formats.records import Conversation, ImportedMessage, Problem, ProblemList
from chatapp.import_trees import is_one_line
from chatapp.messages.wire import InvalidMessageError, check_size, fields_of

MAX_KEY_CHARS = 100
# What is stored in one transaction: between two of them an import can be stopped.
BATCH_CONVERSATIONS = 100
BATCH_MESSAGES = 1_000
BATCH_BYTES = 5_000_000
"""Of messages that lie in a file. A conversation that has more is stored row by row, as a tree."""


def batches(conversations: Sequence[Conversation]) -> Iterator[Sequence[Conversation]]:
    """Yield conversations in order, some at a time: many short ones, or a long one alone."""
    start, messages, size = 0, 0, 0
    for index, conversation in enumerate(conversations):
        count = len(conversation.messages)
        own = sum(message.size for message in conversation.messages)
        is_full = messages + count > BATCH_MESSAGES or index - start >= BATCH_CONVERSATIONS
        if (is_full or size + own > BATCH_BYTES) and index > start:
            yield conversations[start:index]
            start, messages, size = index, 0, 0
        messages, size = messages + count, size + own
    if start < len(conversations):
        yield conversations[start:]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadableConversation:
    """A conversation, those of its messages that can be stored, and the key of its session."""

    conversation: Conversation
    messages: list[ImportedMessage]
    key: str

    @property
    def is_nothing(self) -> bool:
        """Whether nothing of it can be stored although it has messages."""
        return bool(self.conversation.messages) and not self.messages

    @property
    def is_plain(self) -> bool:
        """Whether it can be stored together with others: it has no branches, and no parts."""
        one = self.conversation
        if self.is_nothing or one.parts or not is_one_line(self.messages, one.leaf):
            return False
        return sum(message.size for message in self.messages) <= BATCH_BYTES


def readable(conversation: Conversation, problems: ProblemList) -> ReadableConversation:
    """Return a conversation without what cannot be stored, which is added to the problems."""
    messages = _storable(conversation, problems)
    return ReadableConversation(
        conversation=conversation, messages=messages, key=_key(conversation.identity)
    )


def _storable(conversation: Conversation, problems: ProblemList) -> list[ImportedMessage]:
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
    return message if parent == message.parent else message.changed(parent=parent)


def _key(identity: str) -> str:
    if len(identity) <= MAX_KEY_CHARS:
        return identity
    return hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()
