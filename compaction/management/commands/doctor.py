"""Looks for what is wrong in stored sessions, and repairs it when told to."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError
from django.db.models import QuerySet

from chatapp.admin.cells import short_id
from chatapp.management.ids import find_by_id
from chatapp.management.printable import one_line
from chatapp.management.terminal import ProgressBar, counted
from chatapp.models import Session
from compaction.doctor.examine import Repaired, examine, is_error, repair
from compaction.doctor.findings import Finding

READ_AT_ONCE = 200


class Command(BaseCommand):
    """Examines, tells, repairs; exit status 1 while an error is left."""

    help = (
        "Looks for what is wrong in stored sessions: sums, cursors, summaries without their "
        "messages, leases and runs that nobody holds, tool calls without results. It changes "
        "nothing unless --fix is given, and then no text of any message. Exit status 0: nothing is "
        "wrong (notes do not count); 1: something is; 2: wrong usage."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--session", action="append", metavar="ID", help="only this session; may be repeated"
        )
        parser.add_argument("--owner", metavar="NAME", help="only this user's sessions")
        parser.add_argument("--fix", action="store_true", help="repair what can be repaired")
        parser.add_argument("--json", action="store_true", help="one JSON line a finding")

    def handle(self, *args: Any, **options: Any) -> None:
        sessions = _sessions(options)
        total, errors, notes, left, mended = sessions.count(), 0, 0, 0, 0
        with ProgressBar(self.stderr, total=total, label="sessions") as bar:
            for session in sessions.iterator(chunk_size=READ_AT_ONCE):
                for finding in list(examine(session)):
                    errors += is_error(finding)
                    notes += not is_error(finding)
                    outcome = repair(finding) if options["fix"] and finding.repair else None
                    mended += outcome is not None and not outcome.problem
                    left += is_error(finding) and (outcome is None or bool(outcome.problem))
                    bar.clear()
                    self._tell(finding, outcome, as_json=options["json"])
                bar.advance()
        if not options["json"]:
            self.stdout.write(_result(total, errors, notes, mended, fix=options["fix"]))
        if left:
            sys.exit(1)

    def _tell(self, finding: Finding, outcome: Repaired | None, *, as_json: bool) -> None:
        if as_json:
            entry = finding.as_dict() | {
                "fixed": None if outcome is None else not outcome.problem,
                "problem": outcome.problem if outcome else "",
            }
            self.stdout.write(json.dumps(entry, ensure_ascii=False))
            return
        where = f"session {short_id(finding.session)}"
        if finding.branch:
            where += f", branch {short_id(finding.branch)}"
        self.stdout.write(f"{finding.severity.value:<6}{finding.code:<20}{where}")
        self.stdout.write(f"      {one_line(finding.text)}")
        if outcome is not None:
            said = f"not repaired: {outcome.problem}" if outcome.problem else "repaired"
            self.stdout.write(f"      {one_line(said)}")


def _sessions(options: dict[str, Any]) -> QuerySet[Session]:
    sessions = Session.objects.order_by("created_at", "id")
    if options["owner"]:
        owner = get_user_model().objects.filter(username=options["owner"]).first()
        if owner is None:
            raise CommandError(f"There is no user “{options['owner']}”.", returncode=2)
        sessions = sessions.filter(owner=owner)
    if options["session"]:
        found = [find_by_id(sessions, text, noun="session").pk for text in options["session"]]
        sessions = sessions.filter(pk__in=found)
    return sessions


def _result(total: int, errors: int, notes: int, mended: int, *, fix: bool) -> str:
    looked = f"{counted(total, 'session')} examined: {counted(errors, 'error')}, "
    looked += counted(notes, "note")
    if fix:
        return f"{looked}, {mended:,} repaired."
    return f"{looked}. Nothing was changed; --fix repairs." if errors else f"{looked}."
