"""Totals add what is new, and are those that all rows together come to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.db.models import Sum
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from chatapp import transcript
from chatapp.models import Message, Session
from compaction.models import CompactionRun, CompactionState, DailyFigures, SessionFigures
from compaction.profiles import save_profile
from compaction.runs.resummarize import resummarize
from compaction.statistics import session_figures
from compaction.statistics.daily import refresh_figures
from compaction.statistics.session_figures import (
    changed_sessions,
    forget_figures,
    refresh_session_figures,
    totals,
)
from compaction.summaries.restore import restore_summary
from tests.compaction.support import NEVER, compact
from tests.compaction.test_report import run_row
from tests.factories import SessionFactory, profile, store, talk

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 27, 10, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def sessions(owner, model_server, queued) -> list[Session]:
    """Three sessions; the first one has a summary. Their figures are worked out."""
    profile(**NEVER, keep_last_n=2)
    found = [SessionFactory(owner=owner, wires=talk(6, marker=n)) for n in (1, 20, 40)]
    compact(found[0])
    refresh_figures()
    return found


def anew() -> dict[str, int]:
    """The totals that all sessions come to when none was ever looked at."""
    forget_figures()
    return totals()


def changed() -> list[Session]:
    return list(changed_sessions())


def test_with_nothing_new_nothing_is_worked_out_again(sessions):
    assert changed() == []
    assert refresh_session_figures() == 0
    with CaptureQueriesContext(connection) as captured:
        refresh_figures()
    assert len(captured) <= 20
    # Neither the messages nor the summaries are gone through.
    read = [query["sql"] for query in captured if 'FROM "messages"' in query["sql"]]
    assert read == []


def test_statements_do_not_grow_with_days_that_are_not_over(sessions):
    refresh_figures(now=NOW)
    with CaptureQueriesContext(connection) as few:
        refresh_figures(now=NOW)
    for days in range(2, 30, 3):
        run_row(sessions[0], "queued", created_at=NOW - days * DAY)
    refresh_figures(now=NOW, everything=True)
    assert DailyFigures.objects.filter(unfinished=1).count() == 10
    with CaptureQueriesContext(connection) as many:
        refresh_figures(now=NOW)
    assert len(many) == len(few) <= 20


def test_only_what_has_changed_is_worked_out(sessions):
    store(sessions[1], talk(2))
    assert changed() == [sessions[1]]
    assert totals() == anew()


def test_a_session_that_is_new_counts_however_old_it_says_it_is(sessions):
    session = SessionFactory(owner=sessions[0].owner, wires=talk(3))
    Session.objects.filter(pk=session.pk).update(
        created_at=NOW - 900 * DAY, updated_at=NOW - 900 * DAY
    )
    assert changed() == [session]
    before = SessionFigures.objects.aggregate(sum=Sum("messages"))["sum"]
    assert totals()["messages"] == before + 6
    assert totals() == anew()


def test_messages_that_come_late_into_an_old_session_count(sessions):
    store(sessions[2], talk(1))
    # As an import that keeps the time of the session.
    Session.objects.filter(pk=sessions[2].pk).update(updated_at=sessions[2].updated_at)
    assert changed() == [sessions[2]]
    assert totals() == anew()


def test_a_compaction_and_its_restore_change_what_is_sent(sessions):
    before = totals()
    compact(sessions[1])
    after = totals()
    assert after["tokens_sent"] < before["tokens_sent"]
    assert after == anew()
    sessions[1].refresh_from_db()
    restore_summary(sessions[1].summaries.get(), cascade=True, holds=False)
    assert totals() == anew()
    assert totals()["tokens_sent"] == before["tokens_sent"]


def test_a_new_version_of_a_summary_changes_it(sessions, model_server):
    totals()
    model_server.script = [{"when": {}, "reply": "Another text, which is much longer. " * 4}]
    resummarize(sessions[0].summaries.get())
    assert totals() == anew()


def test_another_branch_is_the_one_that_counts(sessions):
    row = Message.objects.filter(session=sessions[1]).order_by("position")[3]
    transcript.activate(sessions[1], transcript.fork(sessions[1], at=row))
    assert totals() == anew()


def test_messages_of_forks_count_and_those_they_share_count_once(sessions):
    row = Message.objects.filter(session=sessions[0]).order_by("position")[3]
    for marker in (60, 80):
        transcript.activate(sessions[0], transcript.fork(sessions[0], at=row))
        store(sessions[0], talk(marker // 20 - 2, marker=marker))
    refresh_session_figures()
    spoken = Message.objects.filter(session=sessions[0], kind__in=Message.SPOKEN)
    assert SessionFigures.objects.get(session=sessions[0]).messages == spoken.count() == 12 + 2 + 4


def test_no_message_of_a_long_conversation_is_counted_again(sessions):
    store(sessions[0], talk(1, marker=60))
    with CaptureQueriesContext(connection) as captured:
        refresh_session_figures()
    counts = [one["sql"] for one in captured if "COUNT" in one["sql"] and "messages" in one["sql"]]
    assert all('"parent_id" IS NOT NULL' in sql for sql in counts)


def test_what_is_erased_is_gone(sessions):
    Session.objects.filter(pk=sessions[0].pk).delete()
    assert SessionFigures.objects.count() == 2
    found = totals()
    assert (found["sessions"], found["messages"]) == (2, 24)
    assert found == anew()


def test_a_process_that_died_in_between_left_what_is_right(sessions, monkeypatch):
    for session in sessions:
        store(session, talk(1))
    monkeypatch.setattr(session_figures, "SESSIONS_AT_ONCE", 1)
    work, calls = session_figures._worked_out, []

    def killed(ids):
        calls.append(ids)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return work(ids)

    monkeypatch.setattr(session_figures, "_worked_out", killed)
    with pytest.raises(KeyboardInterrupt):
        totals()
    assert len(changed()) == 2
    monkeypatch.undo()
    assert totals() == anew()


def test_a_new_version_of_a_profile_is_a_figure_of_all_its_sessions(sessions):
    for session in sessions[1:]:
        store(session, talk(1))
        compact(session)
        store(session, talk(3))
        compact(session)
    refresh_figures()
    profile(**NEVER, keep_last_n=2, summary_limit=1)
    assert totals() == anew()


def test_a_session_that_gets_another_profile_is_worked_out(sessions):
    save_profile(name="other", parameters={"summary_limit": 1})
    refresh_figures(now=timezone.now() + timedelta(minutes=1))
    CompactionState.objects.filter(branch=sessions[0].branch).update(profile="other")
    assert changed() == [sessions[0]]


def test_the_first_roll_up_of_a_day_looks_at_all(sessions):
    refresh_figures(now=NOW)
    SessionFigures.objects.update(messages=99)
    refresh_figures(now=NOW)
    assert DailyFigures.objects.get(day=NOW.date()).messages == 297
    refresh_figures(now=NOW + DAY)
    assert DailyFigures.objects.get(day=(NOW + DAY).date()).messages == 36
    assert CompactionRun.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_session_that_is_deleted_meanwhile_costs_nobody_the_figures(sessions, monkeypatch):
    monkeypatch.setattr(session_figures, "SESSIONS_AT_ONCE", 1)
    forget_figures()
    gone = min(sessions, key=lambda session: session.pk.hex)
    work_out = session_figures._worked_out

    def then_delete(ids):
        rows = work_out(ids)
        if gone.pk in ids:
            transcript.delete_session(gone)
        return rows

    monkeypatch.setattr(session_figures, "_worked_out", then_delete)
    assert refresh_session_figures() == 2
    assert changed() == []
    assert SessionFigures.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_a_session_that_is_deleted_meanwhile_stops_nothing(sessions, monkeypatch):
    """A foreign key is checked when the rows are committed, long after the session was read."""
    forget_figures()
    work_out, gone = session_figures._worked_out, sessions[0]

    def deleted_meanwhile(ids):
        found = work_out(ids)
        Session.objects.filter(pk=gone.pk).delete()
        return found

    monkeypatch.setattr(session_figures, "_worked_out", deleted_meanwhile)
    assert totals() == {**anew(), "sessions": 2}
    assert set(SessionFigures.objects.values_list("session", flat=True)) == {
        one.pk for one in sessions[1:]
    }
