"""Brings the figures of the admin's front page up to date: what the queue's schedule does too."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from chatapp.conf import COMMAND_CHECKS
from compaction.statistics.daily import refresh_figures


class Command(BaseCommand):
    """Rolls up once and says which days were worked out."""

    help = (
        "Works out the figures of the admin's front page: today, yesterday, and every day that was "
        "not finished or not worked out yet. The queue does it every five minutes; harmless at any "
        "time."
    )
    requires_system_checks = COMMAND_CHECKS

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--all", action="store_true", help="every day from the first run's on, again"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        days = refresh_figures(everything=options["all"]).days
        count = "1 day" if len(days) == 1 else f"{len(days)} days"
        self.stdout.write(f"{count} worked out, {days[0]} to {days[-1]} (UTC).")
