"""Erases a person with everything they wrote."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from dataclasses import replace
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError

from chatapp.conf import COMMAND_CHECKS
from chatapp.database import rewrite_tables
from chatapp.erasure import Erased, erase_user, told, what_erasing_takes
from chatapp.formatting import plural
from chatapp.management.console import ProgressBar, printable, stop_signals_interrupt
from chatapp.models import Session


class Command(BaseCommand):
    """Says what there is, asks, erases, and says what went."""

    help = (
        "Erases a user: sessions with messages, summaries, runs and incidents, API keys, the "
        "account, and what the admin's log tells of them. It cannot be undone; backups keep what "
        "they hold. One that was broken off is finished by starting it again."
    )
    requires_system_checks = COMMAND_CHECKS

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username", metavar="USERNAME", nargs="?")
        parser.add_argument("--yes", action="store_true", help="do not ask")
        parser.add_argument(
            "--rewrite-tables",
            action="store_true",
            help="PostgreSQL: write every table anew (VACUUM FULL), so that no file holds what was "
            "deleted; nobody uses a table meanwhile. Without USERNAME only this is done",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        name, rewrites = options["username"], options["rewrite_tables"]
        if name is None and not rewrites:
            raise CommandError("Name the user to erase. Nothing was erased.")
        if name is not None:
            erased = self._erase(name, asks=not options["yes"])
            self.stdout.write(
                told(replace(erased, is_in_files=erased.is_in_files and not rewrites))
            )
        if rewrites:
            self._rewrite()

    def _rewrite(self) -> None:
        """Raise CommandError where a table is passed over."""
        written = rewrite_tables()
        left = [name for name, is_done in written.items() if not is_done]
        if left:
            raise CommandError(
                "Not written anew, so their files hold what was deleted: "
                f"{', '.join(left)}. Run this as the database user who owns the database and them."
            )
        count = plural(len(written), "table")
        done = f"{count} were written anew; logs and backups keep what they hold."
        self.stdout.write(done if written else "This database keeps nothing that was deleted.")

    def _erase(self, name: str, *, asks: bool) -> Erased:
        users = get_user_model()
        user = users._default_manager.filter(**{users.USERNAME_FIELD: name}).first()
        if user is None:
            raise CommandError(f"There is no user “{name}”. Nothing was erased.")
        shown = printable(name)
        self.stdout.write(f"Of {shown} there are: {what_erasing_takes(user)}.")
        if asks:
            self._ask(name)
        total = Session.objects.filter(owner=user).count()
        with (
            stop_signals_interrupt(),
            ProgressBar(self.stderr, total=total, label="sessions") as bar,
        ):
            return erase_user(user, on_session=bar.advance)

    def _ask(self, name: str) -> None:
        """Raise CommandError unless whoever is asked writes the name once more."""
        self.stdout.write("This cannot be undone. Write the user's name to erase them: ", ending="")
        self.stdout.flush()
        if sys.stdin.readline().strip() != name:
            raise CommandError("That is not the name. Nothing was erased.")
