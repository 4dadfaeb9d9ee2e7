"""A small model on this machine: served on loopback until Ctrl-C, with the lines that connect."""

from __future__ import annotations

import os
import shlex
import threading
import time
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from chatapp.llm.local import (
    LocalModel,
    LocalModelError,
    Serving,
    answer_tokens,
    serve,
    usable_cores,
)
from chatapp.management.console import stop_signals_interrupt

DEFAULT_PORT = 8080
DEFAULT_CONTEXT_TOKENS = 4096


class Command(BaseCommand):
    """Loads the model and waits; the library answers requests in threads of its own."""

    help = (
        "Serves a GGUF file with llama.cpp (extra `local`) on loopback until Ctrl-C, and prints "
        "the environment variables that connect Palimpsest to it."
    )
    # It needs no database, and runs before the variables it prints are set.
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--gguf", type=Path, metavar="FILE", help="the model (default: LOCAL_MODEL_GGUF)"
        )
        parser.add_argument(
            "--port",
            type=_number(0, 65_535),
            default=DEFAULT_PORT,
            help="where to listen on 127.0.0.1 (default: %(default)s; 0: any free port)",
        )
        parser.add_argument(
            "--ctx",
            # llama.cpp rounds up to multiples of 256.
            type=_number(256, 1_048_576),
            default=DEFAULT_CONTEXT_TOKENS,
            metavar="TOKENS",
            help="the context window (default: %(default)s)",
        )
        parser.add_argument(
            "--threads",
            type=_number(1, 512),
            default=usable_cores(),
            help="threads that compute (default: one a core, here %(default)s)",
        )
        parser.add_argument("--alias", help="the model's name (default: the file's name)")

    def handle(self, *args: Any, **options: Any) -> None:
        model = _model(options)
        try:
            serving = self.load(model)
        except LocalModelError as error:
            raise CommandError(str(error)) from error
        try:
            with stop_signals_interrupt():
                self.show_variables(model, serving)
                threading.Event().wait()
        except KeyboardInterrupt:
            self.say("", "Stopped.")
            # The library would wait for the answers that it is writing.
            os._exit(0)

    def load(self, model: LocalModel) -> Serving:
        """Load the model, and say how long that took and where its window is another one."""
        self.say(f"Loading {model.gguf} …")
        started = time.monotonic()
        serving = serve(model)
        self.say(f"Ready after {time.monotonic() - started:.1f} s. Threads: {model.threads}.")
        if serving.window < model.context:
            self.say(
                f"The window is {serving.window} tokens, not {model.context}: the model was "
                f"trained on no more than {serving.trained}."
            )
        return serving

    def show_variables(self, model: LocalModel, serving: Serving) -> None:
        """Write the lines to paste: two variables connect, two more say how large the model is.

        Without the second line the product takes the window for 128 000 tokens, sends too much and
        leaves no room for an answer.
        """
        self.say(
            "",
            "Paste this where Palimpsest is started; the first line connects, the second tells it",
            "the window and leaves room for the answer:",
            "",
            f"export OPENAI_BASE_URL={serving.url} OPENAI_MODEL={shlex.quote(model.alias)}",
            f"export OPENAI_CONTEXT_WINDOW={serving.window} "
            f"OPENAI_MAX_OUTPUT={answer_tokens(serving.window)}",
            "",
            "Only this machine can reach it. Ctrl-C stops it.",
        )

    def say(self, *lines: str) -> None:
        """Write lines at once, also into a pipe."""
        for line in lines:
            self.stdout.write(line)
        self.stdout.flush()


def _number(least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise ArgumentTypeError(f"must be a whole number from {least} to {most}, not {text}.")
        return int(text)

    return number


def _model(options: dict[str, Any]) -> LocalModel:
    """Return what the arguments ask for."""
    named = options["gguf"] or settings.LOCAL_MODEL_GGUF
    if not named:
        raise CommandError("No model is named. Give a GGUF file: --gguf FILE, or LOCAL_MODEL_GGUF.")
    gguf = Path(named).expanduser().absolute()
    return LocalModel(
        gguf=gguf,
        port=options["port"],
        context=options["ctx"],
        threads=options["threads"],
        alias=options["alias"] or gguf.stem,
    )
