"""Writes stored sessions as transcript files that import back equal."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from chatapp.models import Session
from chatapp.transfer import export_json, export_jsonl


class Command(BaseCommand):
    """Exports the active branch of each session; nothing is written when one of them is missing."""

    help = (
        "Exports sessions in the form of OpenAI chat messages: one JSON object (a list of them for "
        "several sessions), or JSONL with one session a line. import_transcript reads both."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("sessions", nargs="+", metavar="SESSION_ID")
        parser.add_argument("--jsonl", action="store_true", help="one session a line")
        parser.add_argument(
            "--output", type=Path, metavar="FILE", help="write to this file (default: stdout)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        ids = list(dict.fromkeys(map(_session_id, options["sessions"])))
        _check_all_exist(ids)
        parts = _as_jsonl(ids) if options["jsonl"] else _as_json(ids)
        path: Path | None = options["output"]
        if path is None:
            for part in parts:
                self.stdout.write(part, ending="")
            return
        try:
            with path.open("w", encoding="utf-8") as file:
                file.writelines(parts)
        except OSError as error:
            raise CommandError(f"{path} cannot be written: {error.strerror}.") from error
        noun = "session" if len(ids) == 1 else "sessions"
        self.stderr.write(f"{len(ids)} {noun} written to {path}", style_func=str)


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


def _as_jsonl(ids: Sequence[UUID]) -> Iterator[str]:
    for session in _sessions(ids):
        yield export_jsonl([session])


def _as_json(ids: Sequence[UUID]) -> Iterator[str]:
    texts = (
        json.dumps(export_json(session), ensure_ascii=False, indent=2) for session in _sessions(ids)
    )
    if len(ids) == 1:
        yield f"{next(texts)}\n"
        return
    for number, text in enumerate(texts):
        yield f"{',' if number else '['}\n{text}"
    yield "\n]\n"
