"""A process that dies while a version is activated, or a person's text stored, leaves it whole."""

from __future__ import annotations

import json

import pytest

from chatapp.models import Message, Session
from compaction.models import SessionSummary
from compaction.runs.resummarize import resummarize
from compaction.summaries.activating import Newer, activate_version
from compaction.summaries.editing import edit_summary
from compaction.summaries.restore import restore_summary
from tests.compaction.support import NEVER, compact, sent
from tests.compaction.test_killed_anywhere import every_death
from tests.factories import SessionFactory, profile, store, talk

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def begin(owner, model_server, queued):
    """begin() is a new session with six turns; no rule summarises any."""
    profile(**NEVER, keep_last_n=2, target_summary_tokens=300)
    return lambda: SessionFactory(owner=owner, wires=talk(6, marker=1))


def bytes_of(session: Session) -> bytes:
    return json.dumps(sent(Session.objects.get(pk=session.pk))).encode()


def two_versions(session: Session) -> tuple[SessionSummary, SessionSummary]:
    """Compact, and let another text take the first one's place."""
    compact(session)
    old = SessionSummary.objects.get(session=session)
    run = resummarize(old)
    new = SessionSummary.objects.get(run=run)
    SessionSummary.objects.filter(pk=new.pk).update(summary_text="Another text.")
    return old, new


def counting(session: Session) -> list[SessionSummary]:
    rows = SessionSummary.objects.filter(session=session, status="active")
    return list(rows.order_by("covers_through"))


def test_activating_a_version(begin, queued):
    def work(_, versions):
        activate_version(versions[0])

    ends = set()
    for session, versions in every_death(queued, begin, two_versions, work):
        old, new = versions
        [counts] = counting(session)
        ends.add(counts == old)
        text = counts.summary_text.encode()
        assert text in bytes_of(session)
        placeholders = Message.objects.filter(session=session, kind="placeholder").count()
        assert (placeholders, counts in (old, new), counts.links.count()) == (2, True, 10)
    assert ends == {False, True}


def test_activating_a_version_and_taking_newer_ones_back(begin, queued):
    def prepare(session):
        old, _ = two_versions(session)
        store(session, talk(3, marker=20))
        assert compact(session).status == "succeeded"
        return old, counting(session)

    def work(_, given):
        activate_version(given[0], newer=Newer.RESTORE)

    ends = set()
    for session, (old, both) in every_death(queued, begin, prepare, work, every=2):
        left = counting(session)
        ends.add(len(left))
        # Either all of it, or nothing.
        assert left in ([old], both)
    assert ends == {1, 2}


def test_letting_a_restored_summary_count_again(begin, queued):
    def prepare(session):
        compact(session)
        summary = SessionSummary.objects.get(session=session)
        before = bytes_of(session)
        restore_summary(summary)
        return summary, before, bytes_of(session)

    def work(_, given):
        activate_version(given[0])

    for session, (summary, with_it, without) in every_death(queued, begin, prepare, work, every=2):
        expected = with_it if counting(session) == [summary] else without
        assert bytes_of(session) == expected


def test_storing_a_persons_text(begin, queued, owner):
    def prepare(session):
        compact(session)
        return SessionSummary.objects.get(session=session)

    def work(_, summary):
        edit_summary(summary, text="Three poles.", author=owner)

    ends = set()
    for session, summary in every_death(queued, begin, prepare, work):
        [counts] = counting(session)
        ends.add(counts == summary)
        own = SessionSummary.objects.filter(session=session, reason="edited")
        assert own.count() == int(counts != summary)
        assert counts.links.count() == 10
    assert ends == {False, True}
