"""A small model on this machine: served on loopback until Ctrl-C, with the lines that connect."""

from __future__ import annotations

import shlex
import time
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from chatapp.llm.local import (
    DEFAULT_CONTEXT_TOKENS,
    DEFAULT_PORT,
    LocalModel,
    LocalModelError,
    answer_tokens,
    free_port,
    require_gguf,
    require_library,
    require_processor,
    require_sensible,
    usable_cores,
)
from chatapp.llm.local_server import LocalServer, Serving
from chatapp.management.console import stop_signals_interrupt


class Command(BaseCommand):
    """Checks everything that can be known before, then runs the server."""

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
            type=int,
            default=DEFAULT_PORT,
            help="where to listen on 127.0.0.1 (default: %(default)s; 0: any free port)",
        )
        parser.add_argument(
            "--ctx",
            type=int,
            default=DEFAULT_CONTEXT_TOKENS,
            metavar="TOKENS",
            help="the context window (default: %(default)s)",
        )
        parser.add_argument(
            "--threads",
            type=int,
            default=usable_cores(),
            help="threads that compute (default: one a core, here %(default)s)",
        )
        parser.add_argument("--alias", help="the model's name (default: the file's name)")

    def handle(self, *args: Any, **options: Any) -> None:
        with stop_signals_interrupt():
            try:
                self.serve(_checked_model(options))
            except KeyboardInterrupt:
                self.say("", "Stopped.")
            except LocalModelError as error:
                raise CommandError(str(error)) from error

    def serve(self, model: LocalModel) -> None:
        """Run the server until a stop signal; raise LocalModelError when it ends by itself."""
        started = time.monotonic()
        self.say(f"Loading {model.gguf} …")
        with LocalServer(model) as server:
            serving = server.wait_until_ready()
            self.say(f"Ready after {time.monotonic() - started:.1f} s. Threads: {model.threads}.")
            self.show_window(model, serving)
            self.show_variables(model, server.url, serving)
            server.wait_until_ended()

    def show_window(self, model: LocalModel, serving: Serving) -> None:
        """Say where the window is another one than was asked for."""
        if serving.window < model.context:
            self.say(
                f"The window is {serving.window} tokens, not {model.context}: the model was "
                f"trained on no more than {serving.trained}."
            )

    def show_variables(self, model: LocalModel, url: str, serving: Serving) -> None:
        """Write the lines to paste: two variables connect, two more say how large the model is.

        Without the second line the product takes the window for 128 000 tokens, sends too much and
        leaves no room for an answer.
        """
        self.say(
            "",
            "Paste this where Palimpsest is started; the first line connects, the second tells it",
            "the window and leaves room for the answer:",
            "",
            f"export OPENAI_BASE_URL={url} OPENAI_MODEL={shlex.quote(model.alias)}",
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


def _checked_model(options: dict[str, Any]) -> LocalModel:
    """Return what the arguments ask for; raise LocalModelError for what cannot work."""
    named = options["gguf"] or settings.LOCAL_MODEL_GGUF
    if not named:
        raise LocalModelError(
            "No model is named. Give a GGUF file: --gguf FILE, or LOCAL_MODEL_GGUF."
        )
    gguf = Path(named).expanduser().absolute()
    model = LocalModel(
        gguf=gguf,
        port=options["port"],
        context=options["ctx"],
        threads=options["threads"],
        alias=options["alias"] or gguf.stem,
    )
    require_gguf(gguf)
    require_sensible(model)
    require_processor()
    require_library()
    return replace(model, port=free_port(model.port))
