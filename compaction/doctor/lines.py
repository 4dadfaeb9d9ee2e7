"""A session's branches as the checks look at them: every one with its path and its state."""

from __future__ import annotations

from dataclasses import dataclass

from chatapp.models import Branch, Session
from chatapp.selectors import Segment, segments
from compaction.models import CompactionState


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One branch: `path` its stretches, its own first; `state` is None where none was stored."""

    branch: Branch
    path: list[Segment]
    state: CompactionState | None

    @property
    def shared(self) -> list[Segment]:
        """The stretches that belong to other branches."""
        return self.path[1:]

    @property
    def fork(self) -> int:
        """The position behind which the branch's own messages stand; 0 without a parent."""
        return (self.branch.fork_position or 0) if self.shared else 0


def lines_of(session: Session) -> list[Line]:
    """Return the session's branches, the oldest first; two queries, however deep they fork."""
    branches = list(Branch.objects.filter(session=session).order_by("created_at", "pk"))
    known = {branch.pk: branch for branch in branches}
    for branch in branches:
        branch.session = session
        if branch.parent_id in known:
            branch.parent = known[branch.parent_id]
    states = CompactionState.objects.in_bulk(list(known))
    return [
        Line(branch=branch, path=segments(branch), state=states.get(branch.pk))
        for branch in branches
    ]
