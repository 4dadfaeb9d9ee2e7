"""What the services make once is what later tests get, for their own owner."""

from __future__ import annotations

import pytest
from django.db import transaction

from chatapp.models import Session
from compaction.models import CompactionProfile, SessionSummary
from tests.compaction.support import NEVER, compact, sent
from tests.factories import SessionFactory, UserFactory, profile, store, talk
from tests.made_once import all_rows, made_once

pytestmark = pytest.mark.django_db


@pytest.fixture
def compacted(model_server, queued):
    made = []

    @made_once
    def make(owner) -> Session:
        made.append(owner)
        profile(**NEVER, keep_last_n=2)
        session = SessionFactory(owner=owner, wires=talk(6))
        compact(session)
        store(session, talk(2))
        return session

    make.made = made
    return make


def taken_back(work):
    """Do the work, and let nothing of it stay, as a test does."""
    with transaction.atomic():
        outcome = work()
        transaction.set_rollback(True)
    return outcome


def test_a_copy_holds_the_same_rows_and_works_like_them(compacted, owner):
    def look():
        session = compacted(owner=owner)
        return session.pk, all_rows(), sent(session)

    assert taken_back(look) == taken_back(look)
    assert len(compacted.made) == 1


def test_a_copy_belongs_to_who_asks_for_it(compacted, owner):
    taken_back(lambda: compacted(owner=owner))
    other = UserFactory()
    session = compacted(owner=other)
    assert (session.owner, compacted.made) == (other, [owner])
    assert SessionSummary.objects.get().session == session


def test_where_other_rows_were_there_before_they_are_made_anew(compacted, owner):
    taken_back(lambda: compacted(owner=owner))
    CompactionProfile.objects.filter(name="bisect").delete()
    compacted(owner=owner)
    assert len(compacted.made) == 2
