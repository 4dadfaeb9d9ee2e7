"""Sessions as a whole: creating one, deleting one that may be in use."""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, OperationalError, transaction

from chatapp.drafts import TranscriptError
from chatapp.models import Branch, Session
from chatapp.transcript.locking import lock_branches

DELETE_ATTEMPTS = 3


def create_session(*, owner: Any, import_key: str | None = None, **fields: Any) -> Session:
    """Return a new session with its root branch, both or neither."""
    with transaction.atomic():
        session = Session.objects.create(owner=owner, import_key=import_key, **fields)
        branch = Branch.objects.create(session=session)
        session.active_branch = branch
        session.save(update_fields=["active_branch"])
    return session


def delete_session(session: Session) -> None:
    """Delete a session with everything that belongs to it, also while somebody works on it.

    Branches are locked before the session, in the order of append(). Rows of other apps may arrive
    between looking and deleting; then it looks again. Raises TranscriptError when that never ends.
    """
    for _ in range(DELETE_ATTEMPTS):
        try:
            with transaction.atomic():
                lock_branches(session.pk, for_deletion=True)
                # Deleting the row that was read keeps the caller's object as it is.
                for row in Session.objects.select_for_update().filter(pk=session.pk):
                    row.delete()
            return
        except (IntegrityError, OperationalError):
            continue
    raise TranscriptError("The session is being worked on. Wait for its turn to end, then delete.")
