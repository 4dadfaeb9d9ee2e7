"""Examining sessions one by one, and repairing what was found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from django.db import DatabaseError

from chatapp.drafts import TranscriptError
from chatapp.models import Branch, Session
from compaction.doctor.coverage import check_coverage
from compaction.doctor.findings import Finding, Severity
from compaction.doctor.leases import check_session
from compaction.doctor.pairs import check_pairs
from compaction.doctor.sums import check_sums
from compaction.services.errors import CompactionError


def examine(session: Session) -> Iterator[Finding]:
    """Yield everything that is wrong with a session, parents before forks; changes nothing."""
    yield from check_session(session)
    for branch in Branch.objects.filter(session=session).order_by("created_at", "pk"):
        yield from check_sums(branch)
        yield from check_coverage(branch)
        yield from check_pairs(branch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """What came of one repair; `problem` is the sentence of one that failed."""

    finding: Finding
    problem: str = ""


def repair(finding: Finding) -> Repaired:
    """Mend a finding; a branch that somebody works on is left alone and said so."""
    if finding.repair is None:
        return Repaired(finding=finding, problem="This cannot be repaired by program.")
    try:
        finding.repair()
    except (CompactionError, TranscriptError, DatabaseError) as error:
        return Repaired(finding=finding, problem=str(error))
    return Repaired(finding=finding)


def is_error(finding: Finding) -> bool:
    """Whether a finding is more than a note."""
    return finding.severity is Severity.ERROR
