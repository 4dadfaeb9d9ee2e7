"""The way in: everything set up, three conversations compacted, web and queue running."""

from __future__ import annotations

import json
import shlex
import textwrap
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connection

from chatapp.formatting import plural
from chatapp.management.console import (
    ProgressBar,
    TableColumn,
    columns_of,
    quiet_logs,
    shortened,
    stop_signals_interrupt,
    table_lines,
)
from compaction.demo.preparing import (
    ASKED_FILE,
    QUESTION,
    USERNAME,
    Compacted,
    Operator,
    Sample,
    calls_ahead,
    compact_sample,
    ensure_operator,
    every_call,
    load_encoding_quickly,
    store_samples,
)
from compaction.demo.serving import (
    HOST,
    Ended,
    PortTakenError,
    Processes,
    choose_port,
    web_and_queue,
)
from compaction.statistics.daily import refresh_figures

LABEL_CELLS = 11
TITLE_CELLS = 48
COLUMNS = (
    TableColumn(heading="Session", elastic=True),
    TableColumn(heading="Messages", right=True),
    TableColumn(heading="Request before → after", right=True),
    TableColumn(heading="Ratio", right=True),
    TableColumn(heading="Calls", right=True),
    TableColumn(heading="Seconds", right=True),
)


class Command(BaseCommand):
    """Each step is a method; all of them may be repeated."""

    help = (
        "Sets everything up, stores three sample conversations, compacts them without any model "
        "server, and serves web and queue until Ctrl-C. Running it again changes nothing."
    )
    # See check_configuration.
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--no-serve", action="store_true", help="end after the table, without serving"
        )
        parser.add_argument(
            "--port",
            type=int,
            metavar="PORT",
            help="where to serve (default: 8000, or the next free one; 0: any free one)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        with stop_signals_interrupt(), quiet_logs():
            try:
                self.run(serve=not options["no_serve"], port=options["port"])
            except KeyboardInterrupt:
                self.say("", "Stopped.")
            except PortTakenError as error:
                raise CommandError(str(error)) from error

    def run(self, *, serve: bool, port: int | None) -> None:
        """Do all steps in order; return when serving was stopped."""
        if serve:
            port = choose_port(port)
        self.say("Palimpsest demo", "")
        # First of all: a process decides once how it counts tokens, and the checks make it decide.
        self.note("Encodings", load_encoding_quickly())
        self.check_configuration()
        self.migrate()
        operator = self.set_up_account()
        samples = self.store_samples(operator)
        done = self.compact(samples)
        refresh_figures()
        self.show_table(done)
        if serve and port is not None:
            self.serve(port, operator, samples)
        failed = [item for item in done if item.has_failed]
        if failed:
            raise CommandError(
                f"{len(failed)} of {plural(len(done), 'conversation')} were not compacted."
            )

    def check_configuration(self) -> None:
        """Refuse a configuration that cannot work; hints that the demo needs not are left out."""
        found = [message for message in checks.run_checks() if not message.is_silenced()]
        errors = [message for message in found if message.is_serious()]
        if errors:
            lines = [f"{error.msg} {error.hint or ''}".rstrip() for error in errors]
            raise CommandError("\n".join(["The configuration cannot work:", *lines]))

    def migrate(self) -> None:
        """Bring the database up to date."""
        try:
            call_command("migrate", verbosity=0, interactive=False)
        except DatabaseError as error:
            raise CommandError(
                f"The database cannot be used: {str(error).strip()} Check DATABASE_URL, or leave "
                "it out: then a file is used."
            ) from error
        name = settings.DATABASES["default"]["NAME"]
        self.note("Database", f"{connection.display_name} {name} is up to date")

    def set_up_account(self) -> Operator:
        """Make the operator's account, or say that it is there."""
        operator = ensure_operator()
        if operator.password:
            self.note("Account", f"{USERNAME}, made now")
            self.note("Password", f"{operator.password}   (shown only this once)")
        else:
            self.note(
                "Account",
                f"{USERNAME} is there; new password: manage.py changepassword {USERNAME}",
            )
        self.note("API token", operator.token)
        return operator

    def store_samples(self, operator: Operator) -> list[Sample]:
        """Store the sample conversations."""
        samples = store_samples(operator.user)
        added = sum(sample.added for sample in samples)
        news = f"{plural(added, 'message')} stored" if added else "already stored"
        self.note("Samples", f"{plural(len(samples), 'conversation')}, {news}")
        return samples

    def compact(self, samples: list[Sample]) -> list[Compacted]:
        """Compact what needs it, with a bar that moves at every model call."""
        calls = sum(calls_ahead(sample.session) for sample in samples)
        if calls:
            self.note("Compacting", "with the embedded model: no key, no network")
        done = []
        bar = ProgressBar(self.stderr, total=calls, label="model calls")
        with bar, every_call(bar.advance):
            for sample in samples:
                item = compact_sample(sample.session)
                bar.clear()
                self.note("", f"{shortened(item.session.title, TITLE_CELLS)}: {_news(item)}")
                done.append(item)
        return done

    def show_table(self, done: list[Compacted]) -> None:
        """Write the figures of every session."""
        lines = table_lines(COLUMNS, [_row(item) for item in done], width=self.width)
        self.say("", *lines, "")

    def serve(self, port: int, operator: Operator, samples: list[Sample]) -> None:
        """Run web and queue until a stop signal; raise CommandError when one of them ends."""
        with Processes(web_and_queue(port)) as processes:
            ended = processes.wait_until_answering(port)
            if ended is None:
                self.show_addresses(port, operator, samples)
                ended = processes.wait_until_ended()
        raise CommandError(_ended_sentence(ended))

    def show_addresses(self, port: int, operator: Operator, samples: list[Sample]) -> None:
        """Write where to look, and requests that work as they are printed."""
        place = f"{HOST}:{port}"
        self.note("Admin", f"http://{place}/admin/   (log in as {USERNAME})")
        self.note("API docs", f"http://{place}/api/v1/docs/")
        for sample in samples:
            if sample.file == ASKED_FILE:
                address = f"{place}/api/v1/sessions/{sample.session.pk}"
                self.show_requests(address, sample.session.title, operator.token)
        self.say("", "Web and queue are running. Ctrl-C stops both.")

    def show_requests(self, address: str, title: str, token: str) -> None:
        """Write curl lines that work as they are, at 80 columns too."""
        header = f"  -H 'Authorization: Bearer {token}' \\"
        self.say(
            "",
            f"Ask about “{title}”",
            '(-N and "stream": true give a stream of events):',
            "",
            "curl -s \\",
            header,
            "  -H 'Content-Type: application/json' \\",
            f"  -d {shlex.quote(json.dumps({'content': QUESTION}))} \\",
            f"  {address}/turns/",
            "",
            "See exactly what the next request would send:",
            "",
            "curl -s \\",
            header,
            f"  {address}/context/",
        )

    @property
    def width(self) -> int:
        """How many cells a line may take."""
        return columns_of(self.stdout)

    def note(self, label: str, text: str) -> None:
        """Write one aligned line; a long text goes on below itself."""
        margin = " " * LABEL_CELLS
        lines = textwrap.wrap(text, self.width - LABEL_CELLS, break_on_hyphens=False)
        self.say(f"{label:<{LABEL_CELLS}}{lines[0]}", *(margin + line for line in lines[1:]))

    def say(self, *lines: str) -> None:
        """Write lines at once, also into a pipe."""
        for line in lines:
            self.stdout.write(line)
        self.stdout.flush()


def _news(item: Compacted) -> str:
    if item.is_elsewhere:
        return "another run has it; should that one be dead, it is taken over within minutes"
    if item.has_failed:
        return f"failed. {item.run.error}"
    if not item.succeeded:
        return item.run.error or "nothing to compact"
    if item.is_held:
        return "restored by somebody, and left so; its last compaction is told below"
    return "already compacted" if item.before else "compacted"


def _row(item: Compacted) -> list[str]:
    run = item.run
    return [
        item.session.title,
        f"{item.messages:,}",
        f"{run.tokens_before:,} → {run.tokens_after:,}" if item.succeeded else "–",
        f"{item.ratio:.2f}" if item.ratio is not None else "–",
        f"{run.model_calls:,}",
        f"{item.seconds:.2f}",
    ]


def _ended_sentence(ended: Ended) -> str:
    how = f"signal {-ended.status}" if ended.status < 0 else f"status {ended.status}"
    return (
        f"The {ended.name} process ended by itself ({how}); the other one was stopped too. "
        "Its last lines above say why."
    )
