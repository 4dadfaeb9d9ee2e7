"""Noting what did not go as planned, so that operators can see it.

Why: docs/architecture.md#every-failure-is-a-row.
"""

from __future__ import annotations

from typing import Any

from chatapp.messages.wire import Cleaner
from chatapp.models import Incident, Session

Kind = Incident.Kind


def note(session: Session, kind: str, code: str, text: str, **details: Any) -> None:
    """Store an incident of the session's active branch; a warning is stored once a session.

    `details` are numbers and the server's own words; what the conversation says is never put there.
    """
    cleaner = Cleaner()
    row = Incident(
        session=session,
        branch_id=session.active_branch_id,
        kind=kind,
        code=code[:40],
        text=cleaner.text(text),
        details=cleaner.json({name: value for name, value in details.items() if value is not None}),
    )
    Incident.objects.bulk_create([row], ignore_conflicts=kind == Kind.WARNING)
