"""The order in which branches are locked; everyone who locks several goes by it."""

from __future__ import annotations

from uuid import UUID

from django.db import connection

from chatapp.models import Branch


def lock_branches(session_id: UUID, *, for_deletion: bool = False) -> None:
    """Lock the session's branches, so that nobody appends while positions or sums are used.

    Everyone who locks several branches, or adds one to others, calls this: the oldest branch comes
    first and lets one of them in at a time, so none meets a branch that was not there when it
    began. On SQLite the transaction holds the write lock already (IMMEDIATE).
    """
    # Who deletes also waits for those that are about to name a branch in rows of their own.
    no_key = connection.features.has_select_for_no_key_update and not for_deletion
    rows = Branch.objects.select_for_update(no_key=no_key).filter(session_id=session_id)
    list(rows.order_by("created_at", "pk").values_list("pk", flat=True))
