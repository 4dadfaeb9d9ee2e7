"""Many new sessions at once, as a file brings them: a few statements for all of them.

One by one, each would take a dozen. What takes time, cleaning and counting, is done before the
transaction that stores them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from chatapp.llm.tokens import ModelTokenCounter
from chatapp.models import POSITION_STEP, Branch, Message, Session
from chatapp.selectors import counter_of
from chatapp.titles import opening_of
from chatapp.transcript.placing import INSERT_BATCH, store_originals
from chatapp.transcript.request_size import whole_request
from chatapp.transcript.sums import PathSums, give_places, set_totals
from chatapp.transcript.writing import (
    NewMessage,
    row_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSession:
    """A session to be stored: its columns, and its messages, in one line."""

    columns: Mapping[str, Any]
    messages: Sequence[NewMessage]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedSessions:
    """Sessions with their root branches and messages, in order, not stored yet."""

    sessions: Sequence[Session]
    rows: Sequence[Message]

    def store(self) -> Sequence[Session]:
        """Store all of them or none; raises IntegrityError where one was imported meanwhile."""
        if not self.sessions:
            return []
        with transaction.atomic():
            # Each names its branch before that is there: the database compares them at the end.
            Session.objects.bulk_create(self.sessions, batch_size=INSERT_BATCH)
            branches = [session.branch for session in self.sessions]
            Branch.objects.bulk_create(branches, batch_size=INSERT_BATCH)
            Message.objects.bulk_create(self.rows, batch_size=INSERT_BATCH)
            store_originals(self.rows)
        return self.sessions


def prepare_sessions(drafts: Sequence[NewSession]) -> PreparedSessions:
    """Return sessions as they are to be stored: messages cleaned, counted, in their places.

    Raises chatapp.messages.wire.InvalidMessageError for a message that cannot be stored.
    """
    counters: dict[str, ModelTokenCounter] = {}
    sessions, rows = [], []
    for draft in drafts:
        session = Session(**draft.columns)
        if session.model not in counters:
            counters[session.model] = counter_of(session)
        branch = Branch(session=session)
        session.active_branch = branch
        own = [row_of(branch, message, counters[session.model]) for message in draft.messages]
        set_totals(branch, give_places(own, after=0, through=PathSums(), is_empty=True))
        branch.head_position = len(own) * POSITION_STEP
        branch.message_count = sum(row.is_spoken for row in own)
        session.title = session.title or opening_of(own)
        session.request_tokens = whole_request(session, branch)
        sessions.append(session)
        rows += own
    return PreparedSessions(sessions=sessions, rows=rows)
