"""Placeholders: those that mark no summary. Requests do not depend on them: notes, all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

from chatapp.management.console import counted
from chatapp.models import Message, Session
from compaction.doctor.findings import NOTHING, Finding, Severity
from compaction.doctor.lines import Line
from compaction.models import SessionSummary


def check_placeholders(session: Session, lines: Sequence[Line]) -> Iterator[Finding]:
    """Yield, a branch each, placeholders whose summary is gone and those that never had one."""
    known = {
        str(pk)
        for pk in SessionSummary.objects.filter(session=session).values_list("pk", flat=True)
    }
    for line in lines:
        alone: list[UUID] = []
        bare: list[UUID] = []
        for pk, named in _marks(line):
            if named is None:
                bare.append(pk)
            elif str(named) not in known:
                alone.append(pk)
        yield from _alone(line, alone)
        yield from _bare(line, bare)


def _marks(line: Line) -> Iterator[tuple[UUID, object]]:
    rows = Message.objects.filter(branch=line.branch, kind=Message.Kind.PLACEHOLDER)
    pairs = rows.order_by("position").values_list("pk", "metadata__summary_id")
    yield from pairs.iterator(chunk_size=2000)


def _alone(line: Line, marks: Sequence[UUID]) -> Iterator[Finding]:
    if marks:
        yield Finding(
            code="placeholder_alone",
            text=f"{counted(len(marks), 'placeholder')} for a summary that does not exist. None is "
            "ever sent; what was summarised there is sent verbatim.",
            severity=Severity.NOTE,
            remedy=NOTHING,
            session=line.branch.session_id,
            branch=line.branch.pk,
            message=marks[0],
        )


def _bare(line: Line, marks: Sequence[UUID]) -> Iterator[Finding]:
    if marks:
        yield Finding(
            code="placeholder_bare",
            text=f"{counted(len(marks), 'placeholder')} without a summary row, from an import or "
            "old data. The text in the placeholder is sent until the branch is summarised.",
            severity=Severity.NOTE,
            remedy=NOTHING,
            session=line.branch.session_id,
            branch=line.branch.pk,
            message=marks[0],
        )
