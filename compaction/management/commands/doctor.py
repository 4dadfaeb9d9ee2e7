"""Looks for what is wrong in stored sessions, and repairs it when told to."""

from __future__ import annotations

import json
import logging
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError
from django.db import Error
from django.db.models import QuerySet

from chatapp.conf import COMMAND_CHECKS
from chatapp.database import trouble_words
from chatapp.formatting import plural, short_id
from chatapp.management.console import (
    INTERRUPTED_STATUS,
    ProgressBar,
    columns_of,
    ids_named,
    quiet_logs,
    stop_signals_interrupt,
    wrapped,
)
from chatapp.models import Session
from compaction.doctor.examine import Repaired, examine, repair_findings, to_examine
from compaction.doctor.findings import Finding
from compaction.runs.redo import ids_of

ERRORS_STATUS, USAGE_STATUS = 1, 2
MOST_SESSIONS_NAMED = 5
INDENT = " " * 6
# Sessions that are screened together, and how few are examined without it.
SCREENED_AT_ONCE, LEAST_SCREENED = 200, 3


class Command(BaseCommand):
    """Takes one session after the other (`take_step`); exit status 1 while an error is left."""

    help = (
        "Looks for what is wrong in stored sessions: places and sums of messages, cursors, "
        "summaries without their messages, leases and runs that nobody holds, tool calls without "
        "results. It changes nothing unless --fix is given, and then no text of any message. Exit "
        "status 0: nothing is wrong, or all of it was repaired (notes do not count); 1: an error "
        "is there; 2: wrong usage, or no database."
    )
    requires_system_checks = COMMAND_CHECKS

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--session", nargs="+", action="extend", metavar="ID", help="only these sessions"
        )
        parser.add_argument("--owner", metavar="NAME", help="only this user's sessions")
        parser.add_argument(
            "--after",
            metavar="ID",
            help="go on behind this session: what was stopped says where it got to",
        )
        parser.add_argument("--fix", action="store_true", help="repair what can be repaired")
        parser.add_argument(
            "--recount",
            action="store_true",
            help="count the tokens of every message again, which reads all texts; else the stored "
            "counts are believed and only their sums are checked",
        )
        parser.add_argument("--json", action="store_true", help="one JSON line a finding")
        parser.add_argument(
            "--quiet", action="store_true", help="neither notes nor totals: only errors"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        self.fix: bool = options["fix"]
        self.recount: bool = options["recount"]
        self.as_json: bool = options["json"]
        self.quiet: bool = options["quiet"]
        self.totals = _FindingTotals()
        self.last: UUID | None = None
        self.notes: dict[str, _NoteGroup] = {}
        try:
            sessions = _sessions(options)
            self.take_steps(sessions)
        except Error as error:
            if words := trouble_words(error):
                raise CommandError(words, returncode=USAGE_STATUS) from error
            raise
        self.show_notes()
        if not self.quiet:
            stream = self.stderr if self.as_json else self.stdout
            stream.write(self.totals.sentence(fix=self.fix), style_func=str)
        if self.totals.left:
            sys.exit(ERRORS_STATUS)

    def take_steps(self, sessions: QuerySet[Session]) -> None:
        """Examine every session; what was repaired stays repaired when somebody stops it."""
        with ExitStack() as stack:
            stack.enter_context(stop_signals_interrupt())
            stack.enter_context(quiet_logs(logging.WARNING))
            bar = ProgressBar(self.stderr, total=sessions.count(), label="sessions")
            self.bar = stack.enter_context(bar)
            try:
                for ids in chunks_of(ids_of(sessions)):
                    self.take_chunk(ids)
            except KeyboardInterrupt:
                self.bar.clear()
                self.show_notes()
                raise CommandError(
                    f"Stopped after {plural(self.totals.sessions, 'session')}.{self.way_on}",
                    returncode=INTERRUPTED_STATUS,
                ) from None

    @property
    def way_on(self) -> str:
        """How to go on behind the last session that was examined; empty before the first."""
        return f" Go on with --after {self.last}." if self.last else ""

    def take_chunk(self, ids: Sequence[UUID]) -> None:
        """Screen some sessions by a dozen statements and examine those that may have a fault.

        A few that somebody named are examined at once, and so is everything that is counted again.
        """
        doubted = dict.fromkeys(ids, False)
        if len(ids) >= LEAST_SCREENED and not self.recount:
            doubted = to_examine(ids)
        for session_id in ids:
            if session_id in doubted:
                self.take_step(session_id, work_alone=doubted[session_id])
            else:
                self.totals.add([])
                self.bar.advance()
            self.last = session_id

    def take_step(self, session_id: UUID, *, work_alone: bool = False) -> list[Repaired]:
        """Examine one session, repair it when told to, show and return what came of it.

        `work_alone`: a screening found nothing but runs or leases (examine).
        """
        findings = examine(session_id, recount=self.recount, work_alone=work_alone)
        if self.fix:
            outcomes = repair_findings(session_id, findings, recount=self.recount)
        else:
            outcomes = [Repaired(finding=finding) for finding in findings]
        self.totals.add(outcomes)
        notes = [] if self.quiet else [one for one in outcomes if not one.finding.is_error]
        shown = [one for one in outcomes if one.finding.is_error]
        if self.as_json:
            shown += notes
        else:
            for one in notes:
                self.notes.setdefault(one.finding.code, _NoteGroup(first=one)).add(one)
        if shown:
            self.bar.clear()
            for outcome in shown:
                self.stdout.writelines(f"{line}\n" for line in self._lines(outcome))
        self.bar.advance()
        return outcomes

    def show_notes(self) -> None:
        """Write the notes, those of one kind together: a big database has many that are alike."""
        for code in sorted(self.notes):
            self.stdout.writelines(f"{line}\n" for line in self._group_lines(self.notes[code]))

    def _group_lines(self, group: _NoteGroup) -> Iterator[str]:
        if group.count == 1:
            yield from self._lines(group.first)
            return
        finding = group.first.finding
        yield f"{finding.severity.value:<6}{finding.code:<25}{group.words}"
        texts = [f"In the first one: {finding.text}", self._end(group.first)]
        texts += [f"session {session}" for session in group.sessions]
        if group.more:
            texts.append(f"and {plural(group.more, 'session')} more; --json names all")
        width = columns_of(self.stdout) - len(INDENT)
        for text in texts:
            yield from (f"{INDENT}{line}" for line in wrapped(text, width))

    def _lines(self, outcome: Repaired) -> Iterator[str]:
        finding = outcome.finding
        if self.as_json:
            tried = self.fix and (outcome.done or bool(outcome.problem))
            entry = finding.as_dict() | {
                "fixed": outcome.done if tried else None,
                "problem": outcome.problem,
            }
            yield json.dumps(entry, ensure_ascii=False)
            return
        yield f"{finding.severity.value:<6}{finding.code:<25}{_where(finding)}"
        for text in (finding.text, self._end(outcome)):
            width = columns_of(self.stdout) - len(INDENT)
            yield from (f"{INDENT}{line}" for line in wrapped(text, width))

    def _end(self, outcome: Repaired) -> str:
        """Return what was done about a finding, or would be."""
        finding = outcome.finding
        if outcome.done:
            return f"Repaired. {finding.remedy}"
        if outcome.problem:
            return f"Not repaired. {outcome.problem}"
        return f"With --fix: {finding.remedy}" if finding.repair else finding.remedy


@dataclass(slots=True)
class _NoteGroup:
    """The notes of one kind: how many there are, the first one, and a few of their sessions."""

    first: Repaired
    count: int = 0
    session_count: int = 0
    sessions: list[UUID] = field(default_factory=list)
    _last: UUID | None = None

    def add(self, outcome: Repaired) -> None:
        self.count += 1
        session = outcome.finding.session
        # Sessions come one after the other: a new one was never counted before.
        if session != self._last:
            self._last = session
            self.session_count += 1
            if len(self.sessions) < MOST_SESSIONS_NAMED:
                self.sessions.append(session)

    @property
    def more(self) -> int:
        """How many sessions are not named."""
        return self.session_count - len(self.sessions)

    @property
    def words(self) -> str:
        """How many notes there are, in how many sessions."""
        return f"{plural(self.count, 'note')} in {plural(self.session_count, 'session')}"


class _FindingTotals:
    """Sums over all sessions of one call; never more than a few numbers."""

    def __init__(self) -> None:
        self.sessions = self.errors = self.notes = self.mended = self.left = 0

    def add(self, outcomes: list[Repaired]) -> None:
        self.sessions += 1
        for outcome in outcomes:
            self.errors += outcome.finding.is_error
            self.notes += not outcome.finding.is_error
            self.mended += outcome.done
            self.left += outcome.is_left

    def sentence(self, *, fix: bool) -> str:
        looked = (
            f"{plural(self.sessions, 'session')} examined: {plural(self.errors, 'error')}, "
            f"{plural(self.notes, 'note')}"
        )
        if fix:
            return f"{looked}; {self.mended:,} repaired, {plural(self.left, 'error')} left."
        return f"{looked}.{' Nothing was changed; --fix repairs.' if self.errors else ''}"


def chunks_of(ids: Iterator[UUID]) -> Iterator[list[UUID]]:
    """Yield the ids in lists of at most SCREENED_AT_ONCE."""
    while chunk := list(islice(ids, SCREENED_AT_ONCE)):
        yield chunk


def _where(finding: Finding) -> str:
    """Return the ids of a finding; the session's whole, so that it can be given to --session."""
    parts = [f"session {finding.session}"]
    for name in ("branch", "message", "summary", "run"):
        if (value := getattr(finding, name)) is not None:
            parts.append(f"{name} {short_id(value)}")
    return ", ".join(parts)


def _sessions(options: dict[str, Any]) -> QuerySet[Session]:
    sessions = Session.objects.all()
    if options["owner"] is not None:
        owner = get_user_model().objects.filter(username=options["owner"]).first()
        if owner is None:
            raise CommandError(f"There is no user “{options['owner']}”.", returncode=USAGE_STATUS)
        sessions = sessions.filter(owner=owner)
    if options["session"]:
        try:
            found = ids_named(sessions, options["session"], noun="session")
        except CommandError as wrong:
            raise CommandError(str(wrong), returncode=USAGE_STATUS) from wrong
        sessions = sessions.filter(pk__in=found)
    if options["after"]:
        try:
            sessions = sessions.filter(pk__gt=UUID(options["after"]))
        except ValueError:
            sentence = f"“{options['after']}” is no id of a session."
            raise CommandError(sentence, returncode=USAGE_STATUS) from None
    return sessions
