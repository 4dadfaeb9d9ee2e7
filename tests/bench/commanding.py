"""What commands and processes take before they do anything, and of sessions that are very large."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path

from django.core.management import call_command

from chatapp.keys import create_key
from chatapp.models import Session
from tests.bench.conversations import owner, stored, summarise_all_but
from tests.bench.measure import Row, spending
from tests.bench.million import PER_SESSION, Filled, fill
from tests.bench.processes import ROOT, environment, own_queue, web_server
from tests.bench.serving import Client
from tests.bench.sizes import Sizes
from tests.bench.states import QUESTION

STARTED = (["check"], ["doctor", "--help"], ["api_key", "--help"], ["show_session", "--help"])
START_AIM = "<= 0.5"


def measure(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of this theme."""
    large = fill(
        sizes.looked_at + sizes.commanded + sizes.examined * PER_SESSION,
        backlog=sizes.looked_at,
        summarised=sizes.commanded,
        salt="commanding",
    )
    yield from _dry_run(large, sizes)
    yield from _doctor(large, sizes)
    with own_queue():
        for command in STARTED:
            # The first one finds nothing compiled.
            value = min(_of_child(command)[0] for _ in range(2))
            name = f"manage.py {' '.join(command)}"
            yield Row(name=name, n=1, value=value, unit="CPU s", aim=START_AIM)
        yield from _web_worker()


def _dry_run(large: Filled, sizes: Sizes) -> Iterator[Row]:
    """Ask in a process of its own, so that its memory is known, and take off what beginning costs.

    It is asked once: a session of a million messages takes minutes where every text is read.
    """
    begun, _ = _of_child(["resummarize", "--help"])
    command = ["resummarize", "--session", str(large.summarised), "--dry-run"]
    seconds, megabytes = _of_child(command)
    name, value = "resummarize --dry-run of a session", max(0.0, seconds - begun)
    yield Row(name=name, n=sizes.commanded, value=value, unit="CPU s", aim="<= 0.2")
    yield Row(name=name, n=sizes.commanded, value=megabytes, unit="MB", aim="flat")


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


def _of_child(command: Sequence[str]) -> tuple[float, float]:
    """Return the processor seconds and the most megabytes of a command of manage.py."""
    # As on a server: what was loaded once is compiled.
    surroundings = {
        name: value for name, value in environment().items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    process = subprocess.Popen(
        [sys.executable, "manage.py", *command],
        cwd=ROOT,
        env=surroundings,
        stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    # Kilobytes, on Linux.
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


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
