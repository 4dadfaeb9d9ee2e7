"""Asks a model's server six small questions, and says what it takes and what it taught."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from chatapp.conf import COMMAND_CHECKS
from chatapp.llm.adaptations import in_words
from chatapp.llm.learned_limits import with_learned_limits
from chatapp.llm.probing import ProbeResult, answered, probe
from chatapp.llm.registry import UnknownModelError, all_models, get_model
from chatapp.management.console import printable, quiet_logs, stop_signals_interrupt, wrapped

WIDTH = 96


class Command(BaseCommand):
    """Prints a line a question; fails where the server answered none of them."""

    help = (
        "Asks the server of a model six small questions and says what it takes, what was learnt "
        "of it and what that cost. What is learnt holds for every later request."
    )
    requires_system_checks = COMMAND_CHECKS

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "alias", nargs="?", help="the model's alias in CHATAPP['MODELS'] (default: all)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        with quiet_logs(), stop_signals_interrupt():
            failed = [alias for alias in _aliases(options["alias"]) if not self._check(alias)]
        if failed:
            raise CommandError(
                f"No answer at all from: {', '.join(failed)}. Check OPENAI_BASE_URL, "
                "OPENAI_API_KEY and the model's name."
            )

    def _check(self, alias: str) -> bool:
        """Ask one model and say what came of it; return whether anything was answered."""
        model = get_model(alias)
        where = model.base_url or ("this machine" if model.is_embedded else "OpenAI")
        self.stdout.write(f"{alias}: {printable(model.name)} at {printable(where)}")
        known = sorted(with_learned_limits(model).adaptations)
        for code in known:
            self.stdout.write(f"  known before: {in_words(code)}")
        results = []
        for result in probe(model):
            results.append(result)
            self._tell(result)
        self.stdout.write(f"  {answered(results)}")
        learnt = sorted(with_learned_limits(model).adaptations - set(known))
        for code in learnt:
            self.stdout.write(f"  learnt: {in_words(code)}")
        return any(not one.sentence for one in results)

    def _tell(self, result: ProbeResult) -> None:
        verdict = "no" if result.sentence else "yes"
        called = ", and it called the tool" if result.calls_tool else ""
        line = f"  {result.title}: {verdict}{called} ({result.seconds:.1f} s)"
        self.stdout.write(line, self.style.ERROR if result.sentence else self.style.SUCCESS)
        for change in result.changes:
            self.stdout.write(f"    first refused. {printable(change.text)}")
        for piece in wrapped(printable(result.sentence), WIDTH) if result.sentence else ():
            self.stdout.write(f"    {piece}")


def _aliases(alias: str | None) -> list[str]:
    if alias is None:
        return list(all_models())
    try:
        get_model(alias)
    except UnknownModelError as error:
        raise CommandError(str(error)) from error
    return [alias]
