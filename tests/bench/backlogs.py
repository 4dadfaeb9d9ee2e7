"""Many messages that no summary has read: working them off, and looking at their session.

Batches are executed here, one after the other, as a worker of the queue does: each run asks when it
has ended whether another one is due. The summariser answers at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from chatapp.models import Session
from compaction.models import CompactionRun
from compaction.runs.scheduling import assign_profile, check_branch
from compaction.runs.worker import execute_run
from tests.bench.conversations import fresh, grow, stored
from tests.bench.measure import Row, cpu, peak_megabytes, repeat, spending
from tests.bench.process_limits import PLENTIFUL
from tests.bench.processes import own_queue
from tests.bench.sizes import Sizes
from tests.bench.states import Frontend

GROWN_FROM = 1_000
AIMS = {10_000: "<= 6", 30_000: "<= 18, linear"}


def measure(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of this theme."""
    with own_queue(), override_settings(COMPACTION=settings.COMPACTION | PLENTIFUL):
        for count in sizes.backlogs:
            yield from _working_off(count)
        yield from _looking_at(sizes)


def _backlog(count: int) -> Session:
    session = grow(stored(min(count, GROWN_FROM)), count)
    assign_profile(session, "sliding_window")
    return fresh(session)


def _working_off(count: int) -> Iterator[Row]:
    session = _backlog(count)
    check_branch(session, session.branch)
    runs = CompactionRun.objects.filter(session=session)
    batches, statements, name = 0, 0, "working off a backlog in batches"
    with spending() as spent:
        while (waiting := runs.filter(status="queued").first()) is not None:
            if batches == 1:
                with CaptureQueriesContext(connection) as asked:
                    execute_run(waiting.pk)
                statements = len(asked)
            else:
                execute_run(waiting.pk)
            batches += 1
    assert batches and not runs.filter(status="failed").exists()
    yield Row(name=name, n=count, value=spent.thread / 1000, unit="CPU s", aim=AIMS.get(count, ""))
    yield Row(name=name, n=count, value=batches, unit="runs")
    yield Row(name="one batch of a backlog", n=count, value=spent.thread / batches, unit="CPU ms")
    if batches > 1:
        yield Row(name="one batch of a backlog", n=count, value=statements, unit="statements")


def _looking_at(sizes: Sizes) -> Iterator[Row]:
    """Ask for what a request would send, and for the operators' page of the session."""
    count = sizes.looked_at
    session = _backlog(count)
    people = get_user_model()._default_manager
    client = Client(SERVER_NAME="localhost")
    client.force_login(
        people.create_superuser(username="backlog-viewer"),
        backend=settings.AUTHENTICATION_BACKENDS[-1],
    )
    address = reverse("admin:chatapp_session_change", args=[session.pk])
    looks: dict[str, Callable[[], object]] = {
        "context/ with a backlog": Frontend(session).context,
        "session page with a backlog": partial(client.get, address),
    }
    for name, look in looks.items():
        took = cpu(repeat(look, max(1, sizes.repeats // 6)))
        yield Row(name=name, n=count, value=took, unit="CPU ms", aim="<= 30")
        yield Row(name=name, n=count, value=peak_megabytes(look), unit="MB", aim="flat")
