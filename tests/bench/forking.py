"""What forking and a request cost at any depth of forks: 100 messages, then one a fork."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import partial

from django.db import connection
from django.test.utils import CaptureQueriesContext

from chatapp import transcript
from chatapp.context.backend import context_backend
from chatapp.models import Message, Session
from chatapp.selectors import rows_before
from compaction.models import CompactionState
from tests.bench.conversations import fresh, owner
from tests.bench.measure import Row, repeat
from tests.bench.sizes import Sizes
from tests.deep_forks import TOKENS, deep_session

BEFORE_FORKS = 100
LEFT = 20
AT_MOST = "10 at most"


def measure(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of this theme; the conversation has the same length at every depth."""
    messages = BEFORE_FORKS + max(sizes.fork_depths)
    for depth in sizes.fork_depths:
        session = _summarised(depth, messages)
        newest = rows_before(session.branch, Message.objects.all(), most=1)[0]
        spent = repeat(partial(transcript.fork, session, at=newest), sizes.repeats)
        took = statistics.median(one.process for one in spent)
        yield Row(name="fork at that depth", n=depth, value=took, unit="CPU ms", aim=AT_MOST)
        with CaptureQueriesContext(connection) as found:
            _prepare(session)
        yield Row(name="prepare at that depth of forks", n=depth, value=len(found), unit="queries")
        spent = repeat(partial(_prepare, session), sizes.repeats)
        took = statistics.median(one.process for one in spent)
        yield Row(name="prepare at that depth of forks", n=depth, value=took, unit="CPU ms")


def _prepare(session: Session) -> None:
    context_backend.prepare(fresh(session))


def _summarised(depth: int, messages: int) -> Session:
    """Return a deep session that is summarised up to its last messages."""
    session = deep_session(owner(), depth=depth, messages=messages)
    cursor = rows_before(session.branch, Message.objects.all(), most=LEFT + 1)[0].position
    CompactionState.objects.create(
        branch=session.branch,
        cursor=cursor,
        covered_messages=messages - LEFT,
        covered_tokens=TOKENS * (messages - LEFT),
    )
    return session
