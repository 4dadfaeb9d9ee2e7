"""Finds dead workers and lost runs, and starts them again: what the queue's schedule does too."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from chatapp.conf import COMMAND_CHECKS
from compaction.runs.sweep import sweep_runs


class Command(BaseCommand):
    """Sweeps once and says what was found."""

    help = (
        "Frees branches whose worker died, starts their runs again, and queues runs again that no "
        "worker took. The queue does it every minute; harmless at any time."
    )
    requires_system_checks = COMMAND_CHECKS

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="the counts as one JSON line")

    def handle(self, *args: Any, **options: Any) -> None:
        counts = sweep_runs().as_dict()
        if options["json"]:
            self.stdout.write(json.dumps(counts))
            return
        for name, count in counts.items():
            self.stdout.write(f"{name.replace('_', ' ').capitalize():<16}{count:>6}")
