"""Writes stored sessions as transcript files that import back equal."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from chatapp.conf import COMMAND_CHECKS
from chatapp.exports import export_sessions
from chatapp.formats import Export, all_exports
from chatapp.formatting import plural
from chatapp.models import Session


class Command(BaseCommand):
    """Exports the active branch of each session; nothing is written when one of them is missing."""

    help = (
        "Exports sessions, whole: as json (OpenAI chat messages in one object, a list of them for "
        "several sessions), jsonl (one session a line), or another form that is installed. "
        "import_transcript reads json and jsonl."
    )
    requires_system_checks = COMMAND_CHECKS

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("sessions", nargs="+", metavar="SESSION_ID")
        parser.add_argument(
            "--as",
            dest="form",
            default="json",
            metavar="FORM",
            help=f"{', '.join(all_exports())} (default: %(default)s)",
        )
        parser.add_argument(
            "--jsonl",
            dest="form",
            action="store_const",
            const="jsonl",
            help="the same as --as jsonl",
        )
        parser.add_argument(
            "--output", type=Path, metavar="FILE", help="write to this file (default: stdout)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        export = _export_called(options["form"])
        ids = list(dict.fromkeys(map(_session_id, options["sessions"])))
        _check_all_exist(ids)
        parts = export_sessions(_sessions(ids), export)
        path: Path | None = options["output"]
        if path is None:
            for part in parts:
                self.stdout.write(part, ending="")
            return
        try:
            _write(path, parts)
        except OSError as error:
            raise CommandError(f"{path} cannot be written: {error.strerror}.") from error
        self.stderr.write(f"{plural(len(ids), 'session')} written to {path}", style_func=str)


def _write(path: Path, parts: Iterator[str]) -> None:
    """Have the file hold all parts; where one cannot be made, what was there stays as it was."""
    target = path.resolve()
    if target.exists() and not target.is_file():  # a pipe or a terminal
        with target.open("w", encoding="utf-8") as stream:
            stream.writelines(parts)
        return
    unfinished = target.with_name(f"{target.name}.unfinished")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            file.writelines(parts)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _export_called(form: str) -> Export:
    exports = all_exports()
    if form not in exports:
        raise CommandError(f"“{form}” is no form to export. There are: {', '.join(exports)}.")
    return exports[form]


def _session_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise CommandError(
            f"“{text}” is no session id. Ids look like 0f8b…-…; the API and the admin show them."
        ) from None


def _check_all_exist(ids: Sequence[UUID]) -> None:
    """Raise CommandError that names every session that is not there."""
    known = set(Session.objects.filter(pk__in=ids).values_list("pk", flat=True))
    missing = [str(session_id) for session_id in ids if session_id not in known]
    if missing:
        raise CommandError(f"There is no session {', '.join(missing)}. Nothing was written.")


def _sessions(ids: Sequence[UUID]) -> Iterator[Session]:
    # One at a time: a session may be large, and all of them together need not fit in memory.
    for session_id in ids:
        yield Session.objects.select_related("active_branch").get(pk=session_id)
