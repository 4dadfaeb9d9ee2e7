"""The size that lists show follows what compaction does to the next request."""

from __future__ import annotations

import pytest

from chatapp import transcript
from chatapp.context.backend import context_backend
from chatapp.models import Message, Session
from compaction.models import SessionSummary
from compaction.summaries.restore import restore_summary
from tests.compaction.support import compact
from tests.factories import SessionFactory, profile, store, talk, user

pytestmark = pytest.mark.django_db


def listed(session) -> int:
    return Session.objects.get(pk=session.pk).request_tokens


def sent(session) -> int:
    """Return what the next request would really take."""
    return context_backend.preview(Session.objects.get(pk=session.pk)).account.used


@pytest.fixture
def session():
    profile(summariser="extractive", keep_last_n=2, target_summary_tokens=100)
    made = SessionFactory(wires=talk(8, words=60), system_prompt="Be brief.")
    assert listed(made) == sent(made)
    return made


def test_a_compaction_takes_away_what_it_saved(session, django_capture_on_commit_callbacks):
    before = listed(session)
    with django_capture_on_commit_callbacks(execute=True):
        assert compact(session).status == "succeeded"
    assert listed(session) == sent(session) < before
    # What comes in afterwards is added.
    store(session, [user("And now?")])
    assert listed(session) == sent(session)


def test_a_summary_that_is_taken_back_gives_it_back(session, django_capture_on_commit_callbacks):
    before = listed(session)
    with django_capture_on_commit_callbacks(execute=True):
        compact(session)
    restore_summary(SessionSummary.objects.get(session=session))
    assert listed(session) == sent(session) == before


def test_a_switch_tells_the_size_of_the_branch_as_it_is_sent(
    session, django_capture_on_commit_callbacks
):
    with django_capture_on_commit_callbacks(execute=True):
        compact(session)
        newest = Message.objects.filter(session=session, kind="message").order_by("position").last()
        branch = transcript.fork(session, at=newest)
        store(session, [user("Only on the old branch.")])
        transcript.switch(session, branch)
    # The fork rests on the same summary: it is not sent whole.
    assert listed(session) == sent(session) < branch.token_total
