"""Erases a person with everything they wrote."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError

from chatapp.conf import COMMAND_CHECKS
from chatapp.erasure import erase_user, told, what_erasing_takes
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
        parser.add_argument("username", metavar="USERNAME")
        parser.add_argument("--yes", action="store_true", help="do not ask")

    def handle(self, *args: Any, **options: Any) -> None:
        users = get_user_model()
        name = options["username"]
        user = users._default_manager.filter(**{users.USERNAME_FIELD: name}).first()
        if user is None:
            raise CommandError(f"There is no user “{name}”. Nothing was erased.")
        shown = printable(name)
        self.stdout.write(f"Of {shown} there are: {what_erasing_takes(user)}.")
        if not options["yes"]:
            self._ask(name)
        total = Session.objects.filter(owner=user).count()
        with (
            stop_signals_interrupt(),
            ProgressBar(self.stderr, total=total, label="sessions") as bar,
        ):
            erased = erase_user(user, on_session=bar.advance)
        self.stdout.write(told(erased))

    def _ask(self, name: str) -> None:
        """Raise CommandError unless whoever is asked writes the name once more."""
        self.stdout.write("This cannot be undone. Write the user's name to erase them: ", ending="")
        self.stdout.flush()
        if sys.stdin.readline().strip() != name:
            raise CommandError("That is not the name. Nothing was erased.")
