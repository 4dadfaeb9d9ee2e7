"""Messages that are always sent verbatim."""

from __future__ import annotations

from chatapp.drafts import TranscriptError
from chatapp.models import Message
from chatapp.selectors import group_of


def set_pinned(message: Message, pinned: bool) -> list[Message]:
    """Pin or unpin a message and, with it, all of its group; return the rows.

    A pinned message is always sent verbatim, also when a summary covers it.
    """
    if message.kind != Message.Kind.MESSAGE:
        raise TranscriptError("A placeholder cannot be pinned: it only marks a summary's place.")
    members = group_of(message)
    Message.objects.filter(pk__in=[member.pk for member in members]).update(pinned=pinned)
    for member in members:
        member.pinned = pinned
    return members
