"""What forks, switches, requests and the tree cost at any depth: 100 messages, then one a fork.

The last row is the admin's page of a tree of 2,000 branches.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import partial

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from chatapp import transcript
from chatapp.context.backend import context_backend
from chatapp.models import Branch, Message, Session
from chatapp.outline import outline_of
from chatapp.outline_pages import node_page
from chatapp.selectors import rows_before
from compaction.models import CompactionState
from tests.bench.conversations import fresh, owner
from tests.bench.measure import Row, repeat
from tests.bench.sizes import Sizes
from tests.deep_forks import TOKENS, deep_session
from tests.tree_pictures import store_wide_tree

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
        yield from _switching(session, depth, sizes)
        yield from _outlining(session, depth, sizes)
    yield _page(sizes)


def _switching(session: Session, depth: int, sizes: Sizes) -> Iterator[Row]:
    """Measure a switch without a summary, to a branch beside the deepest one and back."""
    beside = transcript.fork(session, at=rows_before(session.branch, Message.objects, most=2)[0])
    beside.session = session
    both = [beside, session.branch]

    def switch() -> None:
        both.reverse()
        transcript.switch(session, both[1])

    switch()
    with CaptureQueriesContext(connection) as found:
        switch()
    name = "switch without a summary at that depth"
    yield Row(name=name, n=depth, value=len(found), unit="queries")
    took = statistics.median(one.process for one in repeat(switch, 2 * sizes.repeats))
    yield Row(name=name, n=depth, value=took, unit="CPU ms")


def _outlining(session: Session, depth: int, sizes: Sizes) -> Iterator[Row]:
    with CaptureQueriesContext(connection) as found:
        outline_of(session)
    yield Row(name="outline of the tree of that depth", n=depth, value=len(found), unit="queries")
    spent = repeat(partial(outline_of, session), sizes.repeats)
    took = statistics.median(one.process for one in spent)
    yield Row(name="outline of the tree of that depth", n=depth, value=took, unit="CPU ms")
    page = partial(node_page, session, size=50)
    took = statistics.median(one.process for one in repeat(page, sizes.repeats))
    yield Row(name="page of the tree of that depth", n=depth, value=took, unit="CPU ms")


def _page(sizes: Sizes) -> Row:
    """Measure the admin's page of a tree of very many branches."""
    session = store_wide_tree(owner())
    client = Client(SERVER_NAME="localhost")
    people = get_user_model()._default_manager
    client.force_login(
        people.create_superuser(username="drawer"), backend=settings.AUTHENTICATION_BACKENDS[-1]
    )
    address = f"/admin/chatapp/session/{session.pk}/tree/"
    assert client.get(address).status_code == 200
    took = statistics.median(
        one.wall for one in repeat(partial(client.get, address), sizes.repeats)
    )
    branches = Branch.objects.filter(session=session).count()
    return Row(name="tree page in the admin, branches", n=branches, value=took, unit="ms")


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
