"""A compaction that reads and links everything, with a summariser that answers at once."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import partial
from typing import Any

from django.conf import settings
from django.test import override_settings

from chatapp.models import Session
from compaction.models import CompactionRun, SessionSummaryMessage
from compaction.runs.worker import compact_branch
from tests.bench.conversations import fresh, stored
from tests.bench.instant import ANSWER, MOST_NAMED, NAMED, STATE, WINDOW
from tests.bench.measure import Row, Spent, peak_megabytes, spending
from tests.bench.sizes import Sizes
from tests.bench.statements import counted
from tests.fakes.model_server import ModelServer

USAGE = {"prompt_tokens": 1000, "completion_tokens": 50, "total_tokens": 1050}
AIMS = {1_000: "<= 20", 10_000: "<= 180"}
# A summary names what stands in its messages, some of it: what nobody wrote would be refused, and
# a summary of ten thousand messages that names nothing, too.
NAMES = {"echo_markers": NAMED, "most": MOST_NAMED, "prefix": f"{STATE}- "}
SCRIPT: list[dict[str, Any]] = [
    *(
        {"when": {"purpose": one}, "reply": NAMES | {"usage": USAGE}}
        for one in ("summary", "merge")
    ),
    {"when": {}, "reply": {"text": ANSWER, "usage": USAGE}},
]


def measure(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of this theme."""
    for count in sizes.compactions:
        spent = [_spent(count, seed) for seed in range(sizes.compaction_repeats + 1)][1:]
        yield _row("compaction, in process", count, [one.thread for one in spent], AIMS.get(count))
        with counted() as asked:
            _compact(fresh(stored(count)))
        name = "compaction, in process"
        yield Row(name=name, n=count, value=asked.statements, unit="statements", aim="<= 25")
        yield Row(name=name, n=count, value=asked.transactions, unit="commits")
        with ModelServer(SCRIPT) as server, _models_of(server):
            spent = [_spent(count, seed) for seed in range(sizes.compaction_repeats + 1)][1:]
        yield _row("compaction, over HTTP", count, [one.thread for one in spent])
        servers = [one.process - one.thread for one in spent]
        yield _row("compaction, over HTTP: the fake server's part", count, servers)
        peak = peak_megabytes(partial(_compact, stored(count)))
        aim = "that of one call"
        yield Row(name="compaction, peak memory", n=count, value=peak, unit="MB", aim=aim)


def _row(name: str, count: int, milliseconds: list[float], aim: str | None = None) -> Row:
    value = statistics.median(milliseconds)
    return Row(name=name, n=count, value=value, unit="CPU ms", aim=aim or "")


def _models_of(server: ModelServer) -> override_settings:
    models = server.models(CONTEXT_WINDOW=WINDOW, ENCODING="o200k_base")
    return override_settings(CHATAPP=settings.CHATAPP | {"MODELS": models})


def _spent(count: int, seed: int) -> Spent:
    session = fresh(stored(count, seed=seed))
    with spending() as spent:
        run = _compact(session)
    assert run.status == CompactionRun.Status.SUCCEEDED, run.error
    read = SessionSummaryMessage.objects.filter(summary__run=run).count()
    assert read == session.branch.message_count == count
    return spent


def _compact(session: Session) -> CompactionRun:
    return compact_branch(
        session=session, trigger="manual", reason="manual", keep_last_n=0, seconds=600
    )
