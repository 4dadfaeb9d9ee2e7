"""What commands and processes take before they do anything, and of sessions that are very large."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path

from django.core.management import call_command

from chatapp.keys import create_key
from chatapp.models import Session
from tests.bench.conversations import owner, stored, summarise_all_but
from tests.bench.measure import Row, peak_megabytes, spending
from tests.bench.million import Filled, fill
from tests.bench.processes import ROOT, environment, own_queue, web_server
from tests.bench.serving import Client
from tests.bench.sizes import Sizes
from tests.bench.states import QUESTION

STARTED = (["check"], ["doctor", "--help"], ["api_key", "--help"], ["show_session", "--help"])
START_AIM = "<= 0.5"


def measure(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of this theme."""
    large = fill(0, backlog=sizes.looked_at, summarised=sizes.commanded, salt="commanding")
    yield from _dry_run(large, sizes)
    yield from _doctor(large, sizes)
    with own_queue():
        for command in STARTED:
            value = _start_seconds(command)
            name = f"manage.py {' '.join(command)}"
            yield Row(name=name, n=1, value=value, unit="CPU s", aim=START_AIM)
        yield from _web_worker()


def _dry_run(large: Filled, sizes: Sizes) -> Iterator[Row]:
    def run() -> None:
        said = StringIO()
        call_command("resummarize", session=[str(large.summarised)], dry_run=True, stdout=said)

    name = "resummarize --dry-run of a session"
    with spending() as spent:
        run()
    value = spent.process / 1000
    yield Row(name=name, n=sizes.commanded, value=value, unit="CPU s", aim="<= 0.2")
    yield Row(name=name, n=sizes.commanded, value=peak_megabytes(run), unit="MB more", aim="flat")


def _doctor(large: Filled, sizes: Sizes) -> Iterator[Row]:
    """Examine ordinary sessions, of 500 messages each, and say what one of them takes."""
    chosen = Session.objects.filter(owner__in=large.owners).exclude(
        pk__in=(large.backlog, large.summarised)
    )
    ids = [str(pk) for pk in chosen.values_list("pk", flat=True)[: sizes.examined]]
    call_command("doctor", session=ids[:1], stdout=StringIO())
    with spending() as spent:
        call_command("doctor", session=ids, stdout=StringIO())
    value = spent.process / len(ids)
    yield Row(name="doctor, a session of 500", n=len(ids), value=value, unit="CPU ms", aim="<= 2")


def _start_seconds(command: Sequence[str]) -> float:
    """Return the processor seconds of a command that does nothing else than begin."""
    surroundings = environment()
    spent = []
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "manage.py", *command],
            cwd=ROOT,
            env=surroundings,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    # The first one finds nothing compiled.
    return min(spent)


def _web_worker() -> Iterator[Row]:
    """Yield what a web worker holds when it has read pages, and when it has taken a turn."""
    session = stored(20)
    summarise_all_but(session, 4)
    address = f"/api/v1/sessions/{session.pk}"
    turn = '{"messages": [{"role": "user", "content": "' + QUESTION + '"}]}'
    with web_server(environment()) as (port, process):
        client = Client(port=port, token=create_key(owner=owner(), name="bench").secret)
        for _ in range(5):
            client.send("GET", f"{address}/messages/", "", 200)
        size = _resident_megabytes(process)
        yield Row(name="web worker that reads", n=1, value=size, unit="MB", aim="<= 110")
        client.send("POST", f"{address}/turns/", turn, 200)
        size = _resident_megabytes(process)
        yield Row(name="web worker that took a turn", n=1, value=size, unit="MB")


def _resident_megabytes(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
