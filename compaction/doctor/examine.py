"""Examining a session: every check, and a second look before anything is called wrong."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from django.db import transaction

from chatapp.models import Session
from chatapp.transcript import lock_branches
from compaction.doctor.branches import check_cursor, check_leases, check_runs
from compaction.doctor.findings import Finding, lines_of
from compaction.doctor.summaries import check_placeholders, check_summaries
from compaction.doctor.transcript import (
    check_active_branch,
    check_pairs,
    check_places,
    check_sums,
    check_tokens,
)


def examine(session_id: UUID, *, recount: bool = False) -> list[Finding]:
    """Return everything that is wrong with a session, in the order of repair; changes nothing.

    Rows that are read one after another may differ because somebody writes meanwhile: where an
    error shows, it is looked for again while the session's branches are locked. With `recount` the
    tokens of every message are counted again, which reads all texts. A session that was deleted has
    no findings.
    """
    findings = list(_look(session_id))
    if any(finding.is_error for finding in findings):
        with transaction.atomic():
            lock_branches(session_id)
            findings = list(_look(session_id))
    if recount:
        findings = [*_count(session_id), *findings]
    return findings


def _look(session_id: UUID) -> Iterator[Finding]:
    session = Session.objects.filter(pk=session_id).first()
    if session is None:
        return
    lines = lines_of(session)
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
    yield from check_placeholders(session, lines)
    for line in lines:
        yield from check_pairs(line)


def _count(session_id: UUID) -> Iterator[Finding]:
    session = Session.objects.filter(pk=session_id).first()
    for line in lines_of(session) if session else ():
        yield from check_tokens(line)
