"""What a stored message costs with preset `sliding_window`, at any age of its session.

Sixteen messages are stored behind a tail of 40: none makes a run due until the twelfth queues one,
and the last four find that one waiting. Then all sixteen are summarised and it begins anew.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from itertools import chain

from django.conf import settings
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from chatapp import transcript
from chatapp.context.backend import context_backend, notify
from chatapp.models import Session
from chatapp.selectors import active_branch
from chatapp.transcript.writing import NewMessage
from compaction.models import CompactionRun
from tests.bench.conversations import fresh, summarise_next, windowed
from tests.bench.instant import ANSWER
from tests.bench.measure import Row, spending
from tests.bench.processes import PLAIN, empty_queue, own_queue
from tests.bench.sizes import Sizes

TAIL = 40
PARTS = {"none due": range(11), "it queues a run": range(11, 12), "a run waits": range(12, 16)}
LENGTH = 16
FLAT = "flat"


def measure(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of this theme."""
    with own_queue():
        for age in sizes.ages:
            session = windowed(age, left=TAIL)
            queries = _window(session, _queries)
            spent = [_window(session, _processor) for _ in range(sizes.windows + 1)][1:]
            for part, places in PARTS.items():
                name = f"stored message, window on, {part}"
                counted = statistics.mean(queries[at] for at in places)
                yield Row(name=name, n=age, value=counted, unit="queries", aim=FLAT)
                took = statistics.median(window[at] for window in spent for at in places)
                yield Row(name=name, n=age, value=took, unit="CPU ms", aim=FLAT)
            with override_settings(CHATAPP=settings.CHATAPP | {"CONTEXT": {"BACKEND": PLAIN}}):
                queries = _window(session, _queries)
                spent = [_window(session, _processor) for _ in range(sizes.windows + 1)][1:]
            name = "stored message, compaction off"
            yield Row(name=name, n=age, value=statistics.mean(queries), unit="queries")
            yield Row(name=name, n=age, value=statistics.median(chain(*spent)), unit="CPU ms")


def _window(session: Session, cost_of: Callable[[Session], float]) -> list[float]:
    """Return what each message of one window cost."""
    costs = [cost_of(session) for _ in range(LENGTH)]
    CompactionRun.objects.filter(session=session).delete()
    empty_queue()
    summarise_next(fresh(session), LENGTH)
    return costs


def _queries(session: Session) -> float:
    with CaptureQueriesContext(connection) as found:
        _store(session)
    return len(found)


def _processor(session: Session) -> float:
    with spending() as spent:
        _store(session)
    return spent.thread


def _store(session: Session) -> None:
    """Do what the API's view does: read the session, append, tell the context backend."""
    current = fresh(session)
    drafts = [NewMessage(wire={"role": "user", "content": ANSWER})]
    rows = transcript.append(active_branch(current), drafts)
    notify(context_backend.message_stored, current, rows[-1])
