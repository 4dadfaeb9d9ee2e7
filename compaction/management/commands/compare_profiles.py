"""Shows what each profile would have made of stored conversations."""

from __future__ import annotations

import json
import logging
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error

from chatapp.conf import COMMAND_CHECKS
from chatapp.database import trouble_words
from chatapp.management.console import (
    INTERRUPTED_STATUS,
    ProgressBar,
    TableColumn,
    columns_of,
    find_by_id,
    one_line,
    quiet_logs,
    stop_signals_interrupt,
    table_lines,
    wrapped,
    write_lines,
)
from chatapp.models import Session
from compaction.comparison.candidates import (
    EMBEDDED,
    ComparedProfile,
    ComparedSummariser,
    candidates_of,
)
from compaction.comparison.comparing import ComparisonProgress, ProfileComparison, compare
from compaction.comparison.words import FIGURES, notes_of, price_of
from compaction.errors import CompactionError

# Profiles side by side in one table; more of them make another one.
PROFILES_A_TABLE = 4


class Command(BaseCommand):
    """Replays the sessions one after the other and adds up what came of them."""

    help = (
        "Replays stored conversations under several profiles, turn by turn, and shows what each "
        "would have sent, summarised and kept. Nothing is stored. With a model that costs money, "
        "the price is said first, and only --yes goes on."
    )
    requires_system_checks = COMMAND_CHECKS

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "sessions",
            nargs="+",
            metavar="SESSION",
            help="a session's id, its beginning or its end (4 digits or more)",
        )
        parser.add_argument(
            "--profiles",
            metavar="NAMES",
            default="",
            help="these profiles, with commas between (default: every preset)",
        )
        parser.add_argument(
            "--model",
            default=EMBEDDED,
            metavar="ALIAS",
            help="who summarises: a model's alias, or embedded, which chooses sentences and costs "
            "nothing (default)",
        )
        parser.add_argument(
            "--yes", action="store_true", help="ask the model, whatever it was said to cost"
        )
        parser.add_argument("--json", action="store_true", help="one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        sessions = _sessions(options["sessions"])
        candidates, summariser = _chosen(options)
        with ExitStack() as stack:
            stack.enter_context(stop_signals_interrupt())
            stack.enter_context(quiet_logs(logging.ERROR))
            try:
                found = self.compared(sessions, candidates, summariser)
            except KeyboardInterrupt:
                raise CommandError(
                    "Stopped; nothing was stored.", returncode=INTERRUPTED_STATUS
                ) from None
            except Error as error:
                if words := trouble_words(error):
                    raise CommandError(words) from error
                raise
        if options["json"]:
            self.stdout.write(json.dumps(found.as_dict(), ensure_ascii=True))
        else:
            write_lines(self.stdout, _lines(found.as_dict(), columns_of(self.stdout)))
        if all(one.problem for one in found.sessions):
            raise CommandError("No session could be replayed.")

    def compared(
        self,
        sessions: Sequence[Session],
        candidates: Sequence[ComparedProfile],
        summariser: ComparedSummariser,
    ) -> ProfileComparison:
        """Return what came of it, with a bar for whoever waits."""
        total = sum(session.branch.message_count for session in sessions) * len(candidates)
        with ProgressBar(self.stderr, total=total, label="messages") as bar:
            known = 0

            def tell(progress: ComparisonProgress) -> None:
                nonlocal known
                bar.advance(progress.done - known)
                known = progress.done

            return compare(sessions, candidates, summariser, on_progress=tell)


def _sessions(texts: Sequence[str]) -> list[Session]:
    rows = Session.objects.select_related("active_branch")
    found = [find_by_id(rows, text, noun="session") for text in texts]
    return list({session.pk: session for session in found}.values())


def _chosen(options: Mapping[str, Any]) -> tuple[list[ComparedProfile], ComparedSummariser]:
    names = [name.strip() for name in options["profiles"].split(",") if name.strip()]
    try:
        summariser = ComparedSummariser.of(options["model"], is_estimate=not options["yes"])
        return candidates_of(names), summariser
    except CompactionError as error:
        raise CommandError(str(error)) from error


def _lines(found: Mapping[str, Any], width: int) -> Iterator[str]:
    """Yield the table of figures, and sentences about what they count."""
    for one in found["sessions"]:
        if one["problem"]:
            yield f"{one['session']} was left out: {one_line(one['problem'])}"
    rows = found["profiles"]
    for start in range(0, len(rows), PROFILES_A_TABLE):
        some = rows[start : start + PROFILES_A_TABLE]
        columns = [TableColumn(heading="", elastic=True)]
        columns += [TableColumn(heading=one_line(row["profile"]), right=True) for row in some]
        cells = [[words, *(shown(row) for row in some)] for words, shown in FIGURES.items()]
        yield from table_lines(columns, cells, width=width)
        yield ""
    for row in rows:
        for sentence in row["problems"]:
            yield from wrapped(f"{one_line(row['profile'])}: {one_line(sentence)}", width)
    for sentence in notes_of(found):
        yield from wrapped(sentence, width)
    if found["is_estimate"]:
        yield from wrapped(f"{price_of(found)} Nothing was asked yet: --yes does.", width)
