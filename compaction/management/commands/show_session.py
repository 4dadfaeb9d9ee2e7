"""A conversation and its summaries in a terminal."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from chatapp.management.console import columns_of, find_by_id, has_colour, page_lines, write_lines
from chatapp.models import Branch, Session
from compaction.management.conversation import ConversationText, Ink

LEAST_WIDTH = 30


class Command(BaseCommand):
    """Finds the session and shows it; how it looks is in compaction/management/conversation.py."""

    help = (
        "Shows a conversation with its summaries where they stand: place, role, time (UTC), tokens "
        "and text of every message. What a summary covers is dimmed and names it. Long output is "
        "paged on a terminal ($PAGER, or less -R)."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "session", metavar="ID", help="a session's id, or its beginning (4 digits or more)"
        )
        parser.add_argument(
            "--branch", metavar="ID", help="this branch (default: the one in use); id or beginning"
        )
        parser.add_argument("--no-pager", action="store_true", help="write it out at once")
        parser.add_argument(
            "--width", type=int, metavar="N", help="cells a line (default: the terminal's, or 80)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        conversation = self.find(options)
        on_terminal = self.stdout.isatty()
        if on_terminal and not options["no_pager"]:
            page_lines(conversation.lines(), colour=conversation.ink.colour)
        else:
            write_lines(self.stdout, conversation.lines())

    def find(self, options: dict[str, Any]) -> ConversationText:
        """Return what is to be shown; raise CommandError where it is not there."""
        width = columns_of(self.stdout) if options["width"] is None else options["width"]
        if width < LEAST_WIDTH:
            raise CommandError(f"--width must be at least {LEAST_WIDTH}; it is {width}.")
        sessions = Session.objects.select_related("owner", "active_branch")
        session = find_by_id(sessions, options["session"], noun="session")
        return ConversationText(
            session=session,
            branch=_branch(session, options["branch"]),
            width=width,
            ink=Ink(colour=has_colour(self.stdout, options)),
        )


def _branch(session: Session, text: str | None) -> Branch:
    branches = Branch.objects.filter(session=session)
    if text is not None:
        return find_by_id(branches, text, noun="branch of this session")
    if session.active_branch is None:
        raise CommandError("The session has no branch in use; name one with --branch.")
    return session.active_branch
