"""What the doctor finds, and how it looks for it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db.models import Q

from chatapp.models import Branch, Session
from chatapp.selectors import has_ancestors, shared_q
from compaction.models import CompactionState

BY_HAND = "No program can repair this: compare it with a backup."
NOTHING = "Nothing has to be repaired."


class Severity(enum.Enum):
    """Whether somebody has to do something about it."""

    ERROR = "error"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was found, where, and what it means; `remedy` says what a repair does.

    `repair` mends it in transactions of its own, or raises one of services.errors where somebody
    works on the branch; None: there is nothing to repair, or no program can.
    """

    code: str
    text: str
    session: UUID
    severity: Severity = Severity.ERROR
    remedy: str = BY_HAND
    branch: UUID | None = None
    message: UUID | None = None
    summary: UUID | None = None
    run: UUID | None = None
    repair: Callable[[], object] | None = field(default=None, repr=False, compare=False)

    @property
    def is_error(self) -> bool:
        """Whether the finding is more than a note."""
        return self.severity is Severity.ERROR

    @property
    def key(self) -> tuple[object, ...]:
        """What tells the finding from others of its session, however often it is looked for.

        Which message comes first may change while others are repaired.
        """
        return (self.code, self.branch, self.summary, self.run)

    def as_dict(self) -> dict[str, Any]:
        """Return the finding for JSON."""
        places = ("session", "branch", "message", "summary", "run")
        ids = {name: getattr(self, name) for name in places}
        return {
            "code": self.code,
            "severity": self.severity.value,
            **{name: str(value) if value else None for name, value in ids.items()},
            "text": self.text,
            "remedy": self.remedy,
            "can_be_fixed": self.repair is not None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchPath:
    """One branch; `state` is None where none was stored."""

    branch: Branch
    state: CompactionState | None

    @property
    def shared(self) -> Q | None:
        """The filter for the rows that belong to other branches; None without a parent."""
        return shared_q(self.branch)

    @property
    def fork(self) -> int:
        """The position behind which the branch's own messages stand; 0 without a parent."""
        return (self.branch.fork_position or 0) if has_ancestors(self.branch) else 0


def branch_paths(session: Session) -> list[BranchPath]:
    """Return the session's branches, the oldest first; two queries, however deep they fork."""
    branches = list(Branch.objects.filter(session=session).order_by("created_at", "pk"))
    known = {branch.pk: branch for branch in branches}
    for branch in branches:
        branch.session = session
        if branch.parent_id in known:
            branch.parent = known[branch.parent_id]
    states = CompactionState.objects.in_bulk(list(known))
    return [BranchPath(branch=branch, state=states.get(branch.pk)) for branch in branches]
