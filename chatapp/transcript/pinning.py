"""Messages that are always sent verbatim."""

from __future__ import annotations

from django.db import transaction

from chatapp.drafts import TranscriptError
from chatapp.models import Message
from chatapp.selectors import copies_of, group_of
from chatapp.transcript.locking import lock_branches


def set_pinned(message: Message, pinned: bool) -> list[Message]:
    """Pin or unpin a message and, with it, all of its group; return the rows.

    A pinned message is always sent verbatim, also when a summary covers it. Rows that repeat them
    in replayed branches go along: a client may know only the older ids.
    """
    if message.kind != Message.Kind.MESSAGE:
        raise TranscriptError("A placeholder cannot be pinned: it only marks a summary's place.")
    with transaction.atomic():
        lock_branches(message.session_id)
        members = group_of(message)
        rows = [*members, *copies_of(members)]
        Message.objects.filter(pk__in=[row.pk for row in rows]).update(pinned=pinned)
    for member in members:
        member.pinned = pinned
    return members
