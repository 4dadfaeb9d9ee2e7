"""Makes the summaries of many sessions again: after a better prompt, model or profile."""

from __future__ import annotations

import json
import logging
import math
import statistics
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError
from django.db import Error
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime

from chatapp.conf import COMMAND_CHECKS
from chatapp.database import trouble_words
from chatapp.formatting import plural, span_words
from chatapp.management.console import (
    INTERRUPTED_STATUS,
    ProgressBar,
    quiet_logs,
    stop_signals_interrupt,
)
from compaction.errors import CompactionError
from compaction.models import CompactionStep
from compaction.profiles import find_profile
from compaction.runs.redo import (
    BUSY,
    FAILED,
    PLANNED,
    QUEUED,
    Redo,
    SessionResult,
    ids_of,
    sessions_with_summaries,
)

# Calls whose pace an estimate goes by.
LAST_CALLS = 100
GO_ON = "Start the same command again: it goes on where it stopped."


class Command(BaseCommand):
    """Takes one session after the other (`take_step`) and adds up what came of them."""

    help = (
        "Summarises again the messages behind every active summary; the new version replaces the "
        "old one, which stays stored. What was done already with the same profile version and "
        "prompts is skipped, so a run that was broken off goes on when it is started again. Texts "
        "that people wrote are left alone, unless --replace-edited. "
        "The exit status is 1 when a session failed."
    )
    requires_system_checks = COMMAND_CHECKS

    def add_arguments(self, parser: ArgumentParser) -> None:
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("--session", nargs="+", metavar="ID", help="these sessions")
        which.add_argument("--all", action="store_true", help="every session that has summaries")
        which.add_argument(
            "--since",
            type=_moment,
            metavar="DATE",
            help="sessions with an active summary made on or after this day or time (ISO 8601), "
            "whenever their messages were written",
        )
        parser.add_argument(
            "--profile", metavar="NAME", help="with this profile (default: each session's own)"
        )
        parser.add_argument(
            "--queue",
            action="store_true",
            help="let the queue's workers do it, instead of this process",
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="say what would be done; write nothing"
        )
        parser.add_argument(
            "--limit",
            type=_positive,
            metavar="N",
            help="stop after N sessions in which there was something to do",
        )
        parser.add_argument(
            "--force", action="store_true", help="also what was done already; starts from the front"
        )
        parser.add_argument(
            "--replace-edited",
            action="store_true",
            help="also texts that people wrote; they stay stored as versions",
        )
        parser.add_argument("--json", action="store_true", help="one JSON line per session")

    def handle(self, *args: Any, **options: Any) -> None:
        self.redo = _redo(options)
        self.as_json: bool = options["json"]
        self.totals = _ResultTotals()
        ids, total = _chosen(options)
        with ExitStack() as stack:
            stack.enter_context(stop_signals_interrupt())
            # Failed runs are told as results; a traceback of a fault still comes through.
            stack.enter_context(quiet_logs(logging.WARNING))
            self.bar = stack.enter_context(ProgressBar(self.stderr, total=total, label="sessions"))
            try:
                self.take_steps(ids, limit=options["limit"])
            except KeyboardInterrupt:
                self.bar.clear()
                raise CommandError(
                    f"Stopped after {plural(self.totals.sessions, 'session')}. {GO_ON}",
                    returncode=INTERRUPTED_STATUS,
                ) from None
            except Error as error:
                self.bar.clear()
                if words := trouble_words(error):
                    raise CommandError(f"{words} {GO_ON}") from error
                raise
        self.show_totals()

    def take_steps(self, ids: Iterator[str | UUID], *, limit: int | None) -> None:
        """Take sessions until there is none left, or `limit` of them had something to do."""
        for session_id in ids:
            self.take_step(session_id)
            if limit is not None and self.totals.with_work >= limit:
                return

    def take_step(self, session_id: str | UUID) -> SessionResult:
        """Do one session, show it and return what came of it."""
        result = self.redo.take(session_id)
        self.totals.add(result)
        self.bar.clear()
        self.show(result)
        self.bar.advance()
        return result

    def show(self, result: SessionResult) -> None:
        """Write one session's line; sessions without work have one only as JSON."""
        if self.as_json:
            self.stdout.write(json.dumps(result.as_dict()))
        elif result.status == FAILED:
            self.stderr.write(f"{result.session}: failed. {result.error}")
        elif result.status == BUSY:
            self.stdout.write(f"{result.session}: busy. {result.error}")
        elif result.had_work:
            self.stdout.write(f"{result.session}: {result.status}, {_figures(result)}")

    def show_totals(self) -> None:
        """Write the sums; raise CommandError when a session failed."""
        totals = self.totals
        stream = self.stderr if self.as_json else self.stdout
        stream.write(totals.sentence() + self.time_words(), style_func=str)
        if totals.failed:
            raise CommandError(
                f"{totals.failed} of {plural(totals.sessions, 'session')} failed; the admin's "
                "list of runs says why. Start the same command again to try them once more."
            )

    def time_words(self) -> str:
        """Say how long the calls of a dry run would take, by the last ones; or nothing."""
        calls = self.totals.sums.calls
        seconds = seconds_of_calls(calls) if self.redo.dry_run and calls else None
        if seconds is None:
            return ""
        took = span_words(timedelta(seconds=math.ceil(seconds)))
        return f" One after the other, the calls would take about {took}, as the last ones did."


def seconds_of_calls(calls: int) -> float | None:
    """Return how long so many calls take at the pace of the last ones; None before the first."""
    last = CompactionStep.objects.filter(duration_ms__gt=0).order_by("-pk")
    took = list(last.values_list("duration_ms", flat=True)[:LAST_CALLS])
    return calls * statistics.median(took) / 1000 if took else None


class _ResultTotals:
    """Sums over all sessions of one call; never more than a few numbers."""

    def __init__(self) -> None:
        self.sessions = self.with_work = self.busy = self.failed = 0
        self.sums = SessionResult(session="")

    def add(self, result: SessionResult) -> None:
        self.sessions += 1
        self.with_work += result.had_work
        self.failed += result.status == FAILED
        self.busy += result.status == BUSY
        if result.had_work and result.status not in (BUSY, FAILED):
            self.sums.status = result.status
        self.sums.summaries += result.summaries
        self.sums.edited += result.edited
        self.sums.messages += result.messages
        self.sums.tokens += result.tokens
        self.sums.calls += result.calls
        self.sums.cost += result.cost

    def sentence(self) -> str:
        done = self.with_work - self.failed - self.busy
        busy = f"{self.busy:,} busy with another run, " if self.busy else ""
        verb = {PLANNED: "would be summarised again", QUEUED: "queued"}.get(
            self.sums.status, "summarised again"
        )
        return (
            f"{plural(self.sessions, 'session')}: {done:,} {verb}, "
            f"{self.sessions - self.with_work:,} with nothing to do, {busy}"
            f"{self.failed:,} failed; "
            f"{_figures(self.sums)}.{self._left_alone()}"
        )

    def _left_alone(self) -> str:
        if not self.sums.edited:
            return ""
        are = "is" if self.sums.edited == 1 else "are"
        return (
            f" {plural(self.sums.edited, 'text')} that people wrote {are} left alone "
            "(--replace-edited makes summaries in their place)."
        )


def _figures(result: SessionResult) -> str:
    figures = f"{plural(result.messages, 'message')} ({plural(result.tokens, 'token')})"
    figures += f" in {result.summaries} summar{'y' if result.summaries == 1 else 'ies'}"
    if result.status != QUEUED:
        figures += f", {plural(result.calls, 'call')}, cost {result.cost:.4f}"
    return figures


def _redo(options: dict[str, Any]) -> Redo:
    try:
        profile = find_profile(options["profile"]) if options["profile"] else None
    except CompactionError as error:
        raise CommandError(str(error)) from error
    return Redo(
        profile=profile,
        force=options["force"],
        replace_edited=options["replace_edited"],
        queue=options["queue"],
        dry_run=options["dry_run"],
    )


def _chosen(options: dict[str, Any]) -> tuple[Iterator[str | UUID], int]:
    """Return the ids to take and how many they are."""
    if options["session"]:
        named = dict.fromkeys(options["session"])
        return iter(named), len(named)
    sessions = sessions_with_summaries(options["since"])
    return iter(ids_of(sessions)), sessions.count()


def _moment(text: str) -> datetime:
    try:
        day = parse_date(text)
        moment = datetime(day.year, day.month, day.day) if day else parse_datetime(text)
    except ValueError:
        moment = None
    if moment is None:
        raise ArgumentTypeError(f"“{text}” is no date; write 2026-11-27 or 2026-11-27T18:00Z.")
    return moment if timezone.is_aware(moment) else timezone.make_aware(moment)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError("must be a whole number from 1 on.")
    return int(text)
