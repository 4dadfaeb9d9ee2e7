"""Parameters of another system, from its JSON file into a profile."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from chatapp.conf import COMMAND_CHECKS
from compaction.engine.history_json import (
    LONGEST_JSON,
    HistoryJsonError,
    check_history_values,
    read_history_json,
)
from compaction.engine.profile import PRESETS
from compaction.models import CompactionProfile
from compaction.profiles import save_profile

PRESET = "abridged"
MOST_BYTES = 4 * LONGEST_JSON
"""A character has at most four."""


class Command(BaseCommand):
    """Reads the file, holds it against the profile and stores the profile's next version."""

    help = (
        "Takes the JSON in which other systems keep the parameters of abridged histories "
        "(trigger_on_history_size_chars …, abridged_history_params) into a profile: its next "
        "version has these values over its own, key by key; null gives a value back to the preset. "
        "Whatever is wrong is named by its path, and then nothing is stored."
    )
    requires_system_checks = COMMAND_CHECKS

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", help="the JSON file; - reads standard input")
        parser.add_argument(
            "--profile",
            metavar="NAME",
            default=PRESET,
            help=f"the profile (default: {PRESET}); a new name makes one of the preset {PRESET}",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        name = options["profile"]
        current = CompactionProfile.objects.filter(name=name, is_current=True).first()
        own = dict(current.parameters) if current is not None else {}
        base = current.base if current is not None else PRESET
        try:
            parameters = read_history_json(_text_of(options["file"])).over(own)
            check_history_values(PRESETS.get(base, PRESETS[PRESET]), parameters)
            saved = save_profile(
                name=name,
                base=base,
                parameters=parameters,
                opened=current.version if current is not None else 0,
            )
        except HistoryJsonError as error:
            raise CommandError(_refusal(error.sentences)) from error
        except ValidationError as error:
            raise CommandError(_refusal(error.messages)) from error
        if current is not None and saved.pk == current.pk:
            self.stdout.write(f"{saved} says all of this already; nothing was stored.")
        else:
            self.stdout.write(f"Stored as {saved}.")


def _text_of(file: str) -> str:
    """Return the file's text; raise CommandError where it cannot be read."""
    try:
        if file == "-":
            data = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(MOST_BYTES + 1)
        return data.decode("utf-8-sig")
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise CommandError(
            f"{file} is no UTF-8 text: byte {error.start} fits no letter."
        ) from error


def _refusal(sentences: list[str]) -> str:
    return "\n".join(["Nothing was stored.", *sentences])
