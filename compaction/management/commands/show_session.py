"""A conversation and its summaries in a terminal."""

from __future__ import annotations

import contextlib
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from chatapp.conf import COMMAND_CHECKS
from chatapp.management.console import (
    columns_of,
    find_by_id,
    has_colour,
    page_lines,
    stop_signals_interrupt,
    write_lines,
)
from chatapp.messages.verbosity import Verbosity
from chatapp.models import Branch, Session
from compaction.management.conversation import ConversationText, Ink
from compaction.management.following import followed

LEAST_WIDTH = 30


class Command(BaseCommand):
    """Finds the session and shows it; how it looks is in compaction/management/conversation.py."""

    help = (
        "Shows a conversation with its summaries where they stand: place, role, time (UTC), tokens "
        "and text of every message. What a summary covers is dimmed and names it. Long output is "
        "paged on a terminal ($PAGER, or less -R). With --follow it shows no more than what is "
        "stored at the end of the conversation from now on."
    )
    requires_system_checks = COMMAND_CHECKS

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "session",
            metavar="ID",
            help="a session's id, its beginning or its end (4 digits or more)",
        )
        parser.add_argument(
            "--branch",
            metavar="ID",
            help="this branch (default: the one in use); its id, or the beginning or end of it",
        )
        parser.add_argument(
            "--compact", action="store_true", help="calls, results, answers on the way: a line each"
        )
        parser.add_argument(
            "--quiet", action="store_true", help="questions and last answers only; before --compact"
        )
        parser.add_argument(
            "--follow", action="store_true", help="show what comes from now on, until Ctrl-C"
        )
        parser.add_argument("--no-pager", action="store_true", help="write it out at once")
        parser.add_argument(
            "--width", type=int, metavar="N", help="cells a line (default: the terminal's, or 80)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        conversation = self.find(options)
        on_terminal = self.stdout.isatty()
        if options["follow"]:
            self.follow(conversation, is_fixed=options["branch"] is not None)
        elif on_terminal and not options["no_pager"]:
            page_lines(conversation.lines(), colour=conversation.ink.colour)
        else:
            write_lines(self.stdout, conversation.lines())

    def follow(self, conversation: ConversationText, *, is_fixed: bool) -> None:
        """Write what is stored from now on; a person who stops it has seen enough: no error."""
        with contextlib.suppress(KeyboardInterrupt), stop_signals_interrupt():
            for lines in followed(conversation, is_fixed=is_fixed):
                if not write_lines(self.stdout, lines):
                    return

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
            verbosity=_verbosity(options),
            is_followed=options["follow"],
        )


def _verbosity(options: dict[str, Any]) -> Verbosity:
    if options["quiet"]:
        return Verbosity.QUIET
    return Verbosity.COMPACT if options["compact"] else Verbosity.DEFAULT


def _branch(session: Session, text: str | None) -> Branch:
    branches = Branch.objects.filter(session=session)
    if text is not None:
        return find_by_id(branches, text, noun="branch of this session")
    if session.active_branch is None:
        raise CommandError("The session has no branch in use; name one with --branch.")
    return session.active_branch
