"""Stores transcript files as sessions; what was imported before is not imported again."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError

from chatapp.conf import COMMAND_CHECKS
from chatapp.formats import Problem, UnknownFormatError, all_formats, file_endings
from chatapp.formatting import plural
from chatapp.llm.registry import UnknownModelError, get_model
from chatapp.management.console import ProgressBar
from chatapp.messages.wire import InvalidMessageError
from chatapp.spooled_files import SpooledFile
from chatapp.transcript.writing import TranscriptError
from chatapp.transfer import Imported, import_file

STDIN = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileResult:
    """What one file became; `error` says why nothing could be read from it."""

    file: str
    imported: Sequence[Imported] = ()
    problems: Sequence[Problem] = ()
    error: str = ""

    @property
    def added(self) -> int:
        """Messages that were stored."""
        return sum(item.messages_added for item in self.imported)

    @property
    def known(self) -> int:
        """Conversations that were there already, whole."""
        return sum(not item.created and not item.messages_added for item in self.imported)

    def as_dict(self) -> dict[str, Any]:
        """Return the result as a JSON line shows it."""
        return {
            "file": self.file,
            "sessions": [item.as_dict() for item in self.imported],
            "messages_added": self.added,
            "already_there": self.known,
            "problems": [asdict(problem) for problem in self.problems],
            "error": self.error,
        }


class Command(BaseCommand):
    """Imports each file in turn; a file that cannot be read stops none of the others."""

    help = (
        "Imports transcripts of the formats below. Importing a file twice adds nothing; one that "
        "has grown adds what is new. "
        "The exit status is 1 when a file could not be imported."
    )
    requires_system_checks = COMMAND_CHECKS

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.epilog = f"Formats: {'; '.join(found.label for found in all_formats())}."
        parser.add_argument(
            "files",
            nargs="+",
            metavar="FILE",
            help=f"a transcript, a folder (its {' and '.join(_patterns())}, subfolders too), "
            "or - for stdin",
        )
        parser.add_argument(
            "--owner",
            metavar="USERNAME",
            help="whose sessions they become (default: the only superuser)",
        )
        parser.add_argument(
            "--model",
            default="default",
            metavar="ALIAS",
            help="the model that goes on with them (default: %(default)s)",
        )
        parser.add_argument("--json", action="store_true", help="one JSON line per file")

    def handle(self, *args: Any, **options: Any) -> None:
        owner = find_owner(options["owner"])
        _check_model(options["model"])
        files = list(found_files(options["files"]))
        results = []
        with ProgressBar(self.stderr, total=len(files), label="files") as bar:
            for name in files:
                result = self.import_one(name, owner=owner, model=options["model"])
                bar.clear()
                self.show(result, as_json=options["json"])
                bar.advance()
                results.append(result)
        failed = sum(bool(result.error) for result in results)
        if failed:
            raise CommandError(f"{failed} of {plural(len(results), 'file')} could not be imported.")

    def import_one(self, name: str, *, owner: Any, model: str) -> FileResult:
        """Import one file and return what became of it."""
        try:
            content = _content_of(name)
            report = import_file(owner=owner, content=content, name=name, model=model)
        except UnknownFormatError as error:
            return FileResult(file=name, error=str(error))
        except (TranscriptError, InvalidMessageError) as error:
            return FileResult(file=name, error=f"It could not be stored: {error}")
        except OSError as error:
            return FileResult(file=name, error=f"It could not be read: {error.strerror or error}.")
        return FileResult(file=name, imported=report.imported, problems=report.problems.told())

    def show(self, result: FileResult, *, as_json: bool) -> None:
        """Write one file's result: counts on stdout, problems and errors on stderr."""
        if as_json:
            self.stdout.write(json.dumps(result.as_dict(), ensure_ascii=False))
            return
        for problem in result.problems:
            place = f"{result.file}:{problem.line}" if problem.line else result.file
            self.stderr.write(f"{place}: {problem.text}", style_func=str)
        if result.error:
            self.stderr.write(f"{result.file}: {result.error}")
            return
        self.stdout.write(
            f"{result.file}: {plural(len(result.imported), 'session')}, "
            f"{plural(result.added, 'message')} added, {result.known} already there"
        )


def _content_of(name: str) -> SpooledFile:
    if name == STDIN:
        return SpooledFile.read_from(sys.stdin.buffer)
    with Path(name).open("rb") as file:
        return SpooledFile.read_from(file)


def found_files(names: Sequence[str]) -> Iterator[str]:
    """Return the files that are meant: a folder stands for the transcripts in it, sorted."""
    for name in names:
        if name == STDIN or not Path(name).is_dir():
            yield name
            continue
        endings = file_endings()
        files = sorted(path for path in Path(name).rglob("*") if path.suffix in endings)
        if not files:
            *others, last = _patterns()
            raise CommandError(f"The folder {name} holds no {', '.join(others)} or {last} file.")
        yield from (str(path) for path in files if path.is_file())


def _patterns() -> list[str]:
    return [f"*{ending}" for ending in file_endings()]


def find_owner(username: str | None) -> Any:
    """Return the user of that name; without a name the only superuser. Raises CommandError."""
    users = get_user_model().objects
    if username:
        user = users.filter(**{get_user_model().USERNAME_FIELD: username}).first()
        if user is None:
            raise CommandError(
                f"There is no user “{username}”. Make one with manage.py createsuperuser or in the "
                "admin, or name another with --owner."
            )
        return user
    superusers = list(users.filter(is_superuser=True)[:2])
    if len(superusers) == 1:
        return superusers[0]
    why = "there are several superusers" if superusers else "there is no superuser yet"
    raise CommandError(f"Say whose sessions they become with --owner USERNAME: {why}.")


def _check_model(alias: str) -> None:
    try:
        get_model(alias)
    except UnknownModelError as error:
        raise CommandError(str(error)) from error
