"""One thing that is wrong with a session, in words, and what repairs it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID


class Severity(enum.Enum):
    """Whether somebody has to do something about it."""

    ERROR = "error"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was found, where, and what it means.

    `repair` mends it in a transaction of its own, or raises one of services.errors where somebody
    works on the branch; None: there is nothing to repair, or it cannot be done by program.
    """

    code: str
    text: str
    session: UUID
    severity: Severity = Severity.ERROR
    branch: UUID | None = None
    row: UUID | None = None
    repair: Callable[[], None] | None = field(default=None, repr=False, compare=False)

    def as_dict(self) -> dict[str, Any]:
        """Return the finding for JSON."""
        return {
            "code": self.code,
            "severity": self.severity.value,
            "session": str(self.session),
            "branch": str(self.branch) if self.branch else None,
            "row": str(self.row) if self.row else None,
            "text": self.text,
            "can_be_fixed": self.repair is not None,
        }
