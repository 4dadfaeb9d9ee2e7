"""A pager for long output: fed line by line, so that the whole is in memory nowhere."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress

from django.core.management.base import OutputWrapper

DEFAULT_PAGER = "less -R"


def pager_command() -> list[str]:
    """Return the program that shows long output: $PAGER, or less with colours."""
    try:
        return shlex.split(os.environ.get("PAGER", "")) or shlex.split(DEFAULT_PAGER)
    except ValueError:  # a quotation mark that is never closed
        return shlex.split(DEFAULT_PAGER)


def write_lines(stream: OutputWrapper, lines: Iterable[str]) -> None:
    """Write lines as they come; ends quietly where the reader of a pipe went away (`| head`)."""
    try:
        for line in lines:
            stream.write(line)
        stream.flush()
    except BrokenPipeError:
        # What Python still flushes at its end would fail a second time.
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def page_lines(stream: OutputWrapper, lines: Iterable[str]) -> None:
    """Show lines in the pager and return when it is closed; without a pager they are written."""
    # -R for a PAGER that is plain `less`: else colours show as codes.
    environment = {"LESS": "R"} | dict(os.environ)
    try:
        pager = subprocess.Popen(  # noqa: S603 - the user's own choice of program
            pager_command(), stdin=subprocess.PIPE, text=True, encoding="utf-8", env=environment
        )
    except OSError:
        write_lines(stream, lines)
        return
    try:
        _feed(pager, lines)
    finally:
        _wait(pager)


def _feed(pager: subprocess.Popen[str], lines: Iterable[str]) -> None:
    """Write until all is written or the reader has seen enough."""
    pipe = pager.stdin
    if pipe is None:
        raise ValueError("The pager was started without a pipe.")
    try:
        with suppress(BrokenPipeError, KeyboardInterrupt):
            for line in lines:
                pipe.write(f"{line}\n")
    finally:
        # Also after a fault: else the pager waits for more.
        with suppress(BrokenPipeError):
            pipe.close()


def _wait(pager: subprocess.Popen[str]) -> None:
    # Ctrl-C belongs to the pager, which has the terminal until it ends.
    while pager.poll() is None:
        with suppress(KeyboardInterrupt):
            pager.wait()
