"""Stores answers that the database did not take when they came."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error

from chatapp.answer_files import AnswerFile, folder, sessions_waiting, waiting
from chatapp.conf import COMMAND_CHECKS
from chatapp.database import trouble_words
from chatapp.formatting import plural
from chatapp.late_answers import store_late_answers
from chatapp.management.console import printable


class Command(BaseCommand):
    """What the next turn of a session and the sweep do, at once and for all sessions."""

    help = (
        "Stores the answers that wait in ANSWER_DIR because the database did not take them when "
        "they came. The sweep does so each minute where a queue cluster shares that folder."
    )
    requires_system_checks = COMMAND_CHECKS

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--list", action="store_true", help="only say what waits, and why")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["list"]:
            self._list()
            return
        try:
            stored = store_late_answers()
        except Error as error:
            raise CommandError(trouble_words(error) or str(error)) from error
        self.stdout.write(f"{plural(stored, 'answer')} stored.")
        left = sum(1 for _ in _all_waiting())
        if left:
            raise CommandError(
                f"{plural(left, 'answer')} in {folder()} cannot be stored yet: the log says why. "
                "Run this again when the database takes them."
            )

    def _list(self) -> None:
        """Write a line for each answer that waits; its text is nobody's business here."""
        for kept in _all_waiting():
            self.stdout.write(
                f"{kept.made_at}  session {kept.session}  message {kept.message}  "
                f"{printable(kept.why)}"
            )


def _all_waiting() -> Iterator[AnswerFile]:
    """Yield one after the other: together they may be large."""
    for session in sessions_waiting():
        yield from waiting(session)
