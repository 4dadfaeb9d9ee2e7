"""A process that dies in the middle of a switch leaves the session on one branch, and whole.

Either nothing of the switch is stored and another process does it, or all of it is.
"""

from __future__ import annotations

import pytest
from django.utils import timezone

from chatapp import transcript
from chatapp.models import Message, Session
from compaction.models import CompactionRun, SessionSummary
from compaction.runs.switching import SwitchWishes, request_switch
from compaction.runs.worker import execute_run
from tests.compaction.support import NEVER
from tests.compaction.test_killed_anywhere import LONG_AGO, every_death, nothing
from tests.factories import SessionFactory, profile, user
from tests.facts import code

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
WORDS = "words enough to be summarised by somebody"


@pytest.fixture
def begin(owner, model_server, queued):
    """begin() is a new session with six messages, and a branch that shares the first."""
    profile(**NEVER)

    def session_with() -> Session:
        # Said before time passes for the runs (test_killed_anywhere.others_go_on).
        long_ago = {"created_at": timezone.now() - 2 * LONG_AGO}
        wires = [user(f"{code(n)} {WORDS}") | {"meta": long_ago} for n in range(6)]
        session = SessionFactory(owner=owner, wires=wires)
        first = Message.objects.filter(session=session).order_by("position").first()
        transcript.fork(session, at=first, label="shares one")
        return session

    return session_with


def wanted(session: Session):
    """The branch to go to."""
    branch = session.branches.get(label="shares one")
    branch.session = session
    return branch


def is_whole(session: Session) -> bool:
    """Whether the session has switched; what it has of the switch is all or nothing."""
    notes = Message.objects.filter(session=session, kind="note").count()
    summaries = SessionSummary.objects.filter(session=session, kind="branch")
    has_moved = Session.objects.get(pk=session.pk).active_branch_id == wanted(session).pk
    assert notes == summaries.count() == int(has_moved)
    assert all(summary.links.count() == 5 for summary in summaries)
    return has_moved


def test_a_worker_that_dies_in_a_switch_has_a_successor(begin, queued):
    def prepare(session):
        wishes = SwitchWishes(summarize=True, wait=False)
        return request_switch(session, wanted(session), wishes)

    def work(session, run):
        execute_run(run.pk)

    for session, _ in every_death(queued, begin, prepare, work, every=2):
        assert is_whole(session)


def test_a_request_that_dies_in_a_switch_leaves_all_of_it_or_nothing(begin, queued):
    def work(session, _):
        request_switch(session, wanted(session), SwitchWishes(summarize=True))

    for session, _ in every_death(queued, begin, nothing, work, every=3):
        runs = CompactionRun.objects.filter(session=session)
        assert is_whole(session) == runs.filter(status="succeeded").exists()
