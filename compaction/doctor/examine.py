"""Examining a session: every check, and a second look before anything is called wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db import DatabaseError, transaction

from chatapp.models import Session
from chatapp.transcript import lock_branches
from chatapp.transcript.part_files import sessions_naming_files
from chatapp.transcript.writing import TranscriptError
from compaction.doctor.branches import (
    check_cursor,
    check_leases,
    check_listed_size,
    check_runs,
)
from compaction.doctor.findings import Finding, branch_paths
from compaction.doctor.records import check_records
from compaction.doctor.screening import screen
from compaction.doctor.summaries import (
    check_branch_summaries,
    check_placeholders,
    check_summaries,
    check_versions,
)
from compaction.doctor.transcript import (
    check_active_branch,
    check_pairs,
    check_part_files,
    check_places,
    check_sums,
    check_tokens,
)
from compaction.errors import CompactionError

# A repair may bring others to light: sums after tokens, cursors after summaries.
ROUNDS = 4


STILL_THERE = "It is still there after the repair."


def examine(session_id: UUID, *, recount: bool = False, work_alone: bool = False) -> list[Finding]:
    """Return everything that is wrong with a session, in the order of repair; changes nothing.

    Rows that are read one after another may differ because somebody writes meanwhile: where an
    error shows, it is looked for again while the session's branches are locked. With `recount` the
    tokens of every message are counted again and files of parts compared with what was stored,
    which reads all of them. A session that was deleted has no findings. `work_alone`: a screening
    found nothing but runs or leases, and nothing else is looked at.
    """
    look = _look_at_work if work_alone else _look
    findings = list(look(session_id))
    if any(finding.is_error for finding in findings):
        with transaction.atomic():
            lock_branches(session_id)
            findings = list(look(session_id))
    if work_alone:
        return findings
    if recount:
        findings = [*_count(session_id), *findings]
    # Neither locks nor repairs reach the store.
    return [*findings, *check_part_files(session_id, are_read=recount)]


def to_examine(session_ids: Sequence[UUID]) -> dict[UUID, bool]:
    """Return those of the sessions in which `examine` may find something, by two dozen statements.

    With each, whether that is work alone. The others have no finding, however many branches and
    messages they have. A few hundred sessions at a time take little memory.
    """
    found = screen(session_ids)
    whole = found.suspected | sessions_naming_files(session_ids)
    return dict.fromkeys(found.at_work, True) | dict.fromkeys(whole, False)


def _look_at_work(session_id: UUID) -> Iterator[Finding]:
    session = Session.objects.filter(pk=session_id).first()
    if session is None:
        return
    yield from check_runs(session)
    yield from check_leases(session, branch_paths(session))


def _look(session_id: UUID) -> Iterator[Finding]:
    session = Session.objects.filter(pk=session_id).first()
    if session is None:
        return
    lines = branch_paths(session)
    yield from check_runs(session)
    yield from check_leases(session, lines)
    yield from check_active_branch(session, lines)
    for line in lines:
        yield from check_places(line)
        yield from check_sums(line)
    for line in lines:
        yield from check_summaries(line)
    for line in lines:
        yield from check_cursor(line)
    for line in lines:
        yield from check_versions(line)
    yield from check_placeholders(session, lines)
    yield from check_branch_summaries(session)
    yield from check_records(session)
    for line in lines:
        yield from check_pairs(line)


def _count(session_id: UUID) -> Iterator[Finding]:
    session = Session.objects.filter(pk=session_id).first()
    if session is None:
        return
    for line in branch_paths(session):
        yield from check_tokens(line)
    yield from check_listed_size(session)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """What came of one finding: `done`, or the `problem` in a sentence; a note may have neither."""

    finding: Finding
    done: bool = False
    problem: str = ""

    @property
    def is_left(self) -> bool:
        """Whether an error is still there."""
        return self.finding.is_error and not self.done


def repair_findings(
    session_id: UUID, findings: Sequence[Finding], *, recount: bool = False
) -> list[Repaired]:
    """Repair the findings of a session, and what comes to light by it; return what came of each.

    A branch that somebody works on is left alone, and its finding says so.
    """
    seen: dict[object, Finding] = {}
    problems: dict[object, str] = {}
    for _ in range(ROUNDS):
        todo = [one for one in findings if _is_due(one, seen, problems)]
        seen |= {one.key: one for one in findings if one.key not in seen}
        if not todo:
            break
        for finding in todo:
            if problem := _problem_of(finding):
                problems[finding.key] = problem
        findings = examine(session_id, recount=recount)
    left = {one.key for one in findings}
    return [_outcome(one, problems.get(key, ""), key in left) for key, one in seen.items()]


def _is_due(finding: Finding, seen: dict[object, Finding], problems: dict[object, str]) -> bool:
    """Whether to try a repair: errors again after others were repaired, notes once."""
    if finding.repair is None or finding.key in problems:
        return False
    return finding.is_error or finding.key not in seen


def _problem_of(finding: Finding) -> str:
    """Repair one finding and return why that was refused; empty where it was not."""
    try:
        if finding.repair is not None:
            finding.repair()
    except (CompactionError, TranscriptError) as refused:
        return str(refused)
    except DatabaseError as error:
        return f"The database refused it: {error}"
    return ""


def _outcome(finding: Finding, problem: str, is_left: bool) -> Repaired:
    if finding.is_error and not is_left:
        # Perhaps by another repair, or by the worker that held the branch.
        return Repaired(finding=finding, done=True)
    if finding.repair is None:
        return Repaired(finding=finding, problem=finding.remedy if finding.is_error else "")
    if finding.is_error and not problem:
        problem = STILL_THERE
    return Repaired(finding=finding, done=not problem, problem=problem)
