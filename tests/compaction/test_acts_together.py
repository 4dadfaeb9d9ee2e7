"""Acts of people beside each other: holds, versions, bulk jobs, the list of sessions, erasing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from time import sleep

import pytest
from django.db import connection, transaction
from django.urls import reverse
from django.utils import timezone

from chatapp.audit import AuditEntry
from chatapp.erasure import erase_user, what_erasing_takes
from chatapp.formatting import short_id
from chatapp.models import AnswerRequest, Session
from chatapp.transcript import lock_branches
from compaction.attention.kinds import KIND_NAMES
from compaction.attention.listing import waiting
from compaction.attention.marks import bring_back
from compaction.branches.leases import ensure_state
from compaction.doctor.examine import examine
from compaction.models import BulkItem, BulkJob, CompactionState, LookMark, SessionSummary
from compaction.runs.bulk import make_bulk, roll_back_bulk, start_bulk
from compaction.runs.bulk_work import work_at_bulk
from compaction.runs.holding import lift_hold
from compaction.runs.resummarize import resummarize
from compaction.summaries.activating import Newer, activate_version
from compaction.summaries.restore import restore_summary
from tests.compaction.support import NEVER, compact, say, sent, state, texts
from tests.factories import SessionFactory, UserFactory, profile, store, talk
from tests.facts import code

pytestmark = pytest.mark.django_db
LIST = "/admin/chatapp/session/"


@pytest.fixture
def person(db):
    return UserFactory(username="operator")


@pytest.fixture
def session(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    return SessionFactory(owner=owner, wires=talk(6, marker=1))


@pytest.fixture
def two(session) -> list[SessionSummary]:
    """Two summaries, the second built on the first; together they cover 20 messages."""
    compact(session)
    store(session, talk(5, marker=20))
    compact(session)
    return list(SessionSummary.objects.order_by("covers_through"))


def acts(session) -> list[tuple[str, str | None]]:
    rows = AuditEntry.objects.filter(session=session).order_by("created_at", "id")
    return [(row.action, getattr(row.actor, "username", None)) for row in rows]


# --- holds and versions ---------------------------------------------------------------------------


def test_activating_is_an_act_in_the_audit_log(session, two, person):
    old = two[1]
    new = SessionSummary.objects.get(run=resummarize(old))
    activate_version(old, by=person)
    row = AuditEntry.objects.get(session=session)
    assert (row.action, row.actor, row.branch) == ("version_activated", person, old.branch)
    assert row.text == (
        f"Summary {short_id(old.pk)} counts again in the place of {short_id(new.pk)}."
    )


def test_newer_ones_that_are_taken_back_are_held_as_after_a_restore(session, person):
    compact(session)
    one = SessionSummary.objects.get()
    resummarize(one)
    store(session, talk(5, marker=20))
    compact(session)
    second = SessionSummary.objects.get(status="active", covers_from__gt=one.covers_through)
    done = activate_version(one, newer=Newer.RESTORE, by=person)
    row = state(session)
    assert (row.cursor, row.hold_through) == (one.covers_through, second.covers_through)
    assert (row.is_held, row.held_by) == (True, person)
    assert done.hold == "until somebody lifts it"
    text = AuditEntry.objects.get(session=session, action="version_activated").text
    assert text.endswith(
        "1 newer one taken back. What is sent verbatim again is held until somebody lifts it."
    )


def test_a_restored_version_that_counts_again_ends_the_hold_of_its_messages(session, two, person):
    restore_summary(two[1], by=person)
    assert state(session).is_held
    done = activate_version(two[1], by=person)
    assert (state(session).is_held, done.hold) == (False, "")
    assert state(session).hold_through is None
    assert acts(session) == [("restored", "operator"), ("version_activated", "operator")]


def test_what_is_held_behind_a_version_that_counts_again_stays_held(session, two, person):
    first, second = two
    restore_summary(first, cascade=True, by=person)
    done = activate_version(first, by=UserFactory(username="other"))
    row = state(session)
    assert (row.cursor, row.hold_through) == (first.covers_through, second.covers_through)
    assert (row.is_held, row.held_by.username) == (True, "operator")
    assert done.hold == "until somebody lifts it"
    assert [one.code for one in examine(session.pk)] == []


def test_a_hold_outlasts_an_exchange_of_versions_before_it(session, two, person):
    first, second = two
    resummarize(first)
    restore_summary(second, by=person)
    activate_version(SessionSummary.objects.get(pk=first.pk), newer=Newer.KEEP, by=person)
    row = state(session)
    assert (row.is_held, row.hold_through) == (True, second.covers_through)


def test_the_api_and_the_page_say_who_activated_and_until_when_it_is_held(
    api, owner, admin_client, session, two
):
    restore_summary(two[0], cascade=True, by=owner)
    answer = api.post(f"/api/v1/summaries/{two[0].pk}/activate/", {}, format="json")
    assert answer.status_code == 200
    assert answer.json()["hold"] == "until somebody lifts it"
    assert acts(session)[-1] == ("version_activated", owner.username)
    address = reverse("admin:compaction_sessionsummary_do", args=[two[1].pk, "activate"])
    admin_client.post(address, {"newer": ""})
    assert acts(session)[-1] == ("version_activated", "admin")
    assert not state(session).is_held
    timeline = admin_client.get(f"{LIST}{session.pk}/timeline/").text
    assert timeline.count(" counts again.") == 2
    assert "Version activated" in timeline


def test_a_held_branch_is_not_compacted_in_ten_turns_and_is_after_the_version_counts(
    owner, model_server, queued, person
):
    profile(name="lively", message_limit=8, keep_last_n=2, max_context_tokens=0, prepare_ratio=0.0)
    session = SessionFactory(owner=owner, wires=talk(6, marker=1))
    compact(session)
    summary = SessionSummary.objects.get()
    restore_summary(summary, by=person)
    for number in range(10):
        say(session, f"turn {number}")
    assert not SessionSummary.objects.filter(status="active").exists()
    assert any(code(1) in text for text in texts(sent(session), "user"))
    activate_version(summary, by=person)
    say(session, "And now?")
    # Nothing holds it: the rule counts again.
    assert SessionSummary.objects.filter(status="active").count() == 2


def test_after_a_restore_a_run_that_gained_nothing_before_holds_no_rule_back(
    owner, model_server, queued, person
):
    profile(name="lively", message_limit=8, keep_last_n=2, max_context_tokens=0, prepare_ratio=0.0)
    session = SessionFactory(owner=owner, wires=talk(6, marker=1, words=40))
    compact(session)
    session.branch.refresh_from_db()
    CompactionState.objects.filter(pk=session.active_branch_id).update(
        gainless_total=session.branch.token_total
    )
    restore_summary(SessionSummary.objects.get(), by=person)
    say(session, "It is held.")
    assert not SessionSummary.objects.filter(status="active").exists()
    assert lift_hold(session, by=person)
    say(session, "And now?")
    assert SessionSummary.objects.filter(status="active").exists()


# --- the list of sessions and what needs a look ---------------------------------------------------


def test_the_list_of_sessions_says_held_in_a_word_and_filters_by_it(admin_client, session, person):
    compact(session)
    restore_summary(SessionSummary.objects.get(), by=person)
    other = SessionFactory(title="Another", wires=talk(2))
    ensure_state(other.branch)
    assert '<span class="badge badge-busy">Held</span>' in admin_client.get(LIST).text
    found = admin_client.get(LIST, {"state": "held"}).context_data["cl"].result_list
    assert [row.pk for row in found] == [session.pk]
    held = waiting(KIND_NAMES["held"])
    assert [row.branch_id for row in held] == [session.active_branch_id]
    CompactionState.objects.filter(pk=session.active_branch_id).update(
        held_until=timezone.now() - timedelta(minutes=1)
    )
    assert ">Held</span>" not in admin_client.get(LIST).text
    assert not admin_client.get(LIST, {"state": "held"}).context_data["cl"].result_list
    assert not waiting(KIND_NAMES["held"]).exists()


def test_a_version_that_counts_again_takes_the_hold_off_the_list(session, two, person):
    restore_summary(two[1], by=person)
    assert waiting(KIND_NAMES["held"]).exists()
    activate_version(two[1], by=person)
    assert not waiting(KIND_NAMES["held"]).exists()


# --- bulk jobs ------------------------------------------------------------------------------------


def done_job(sessions, **given) -> BulkJob:
    job = make_bulk(sessions, force=True, **given)
    work_at_bulk(job.pk)
    job.refresh_from_db()
    start_bulk(job)
    assert work_at_bulk(job.pk) == "done"
    job.refresh_from_db()
    return job


def test_who_rolls_a_bulk_job_back_stands_in_each_sessions_audit_log(session, two, person):
    job = done_job(Session.objects.all(), requested_by=UserFactory(username="asked"))
    roll_back_bulk(job, by=person)
    assert work_at_bulk(job.pk) == "rolled_back"
    assert set(acts(session)) == {("version_activated", "operator")}
    assert len(acts(session)) == 2


def test_a_bulk_job_leaves_the_hold_of_a_session_as_it_is(session, two, person):
    restore_summary(two[1], by=person)
    before = state(session)
    job = done_job(Session.objects.all(), requested_by=person)
    roll_back_bulk(job, by=person)
    work_at_bulk(job.pk)
    after = state(session)
    assert after.is_held
    assert (after.cursor, after.hold_through) == (before.cursor, before.hold_through)


# --- erasing --------------------------------------------------------------------------------------


def test_erasing_leaves_nothing_in_any_of_the_tables_and_says_what_went(
    session, two, owner, person
):
    store(session, talk(1))
    say(session, "What is left of me?")
    restore_summary(two[1], by=owner)
    LookMark.objects.create(kind="held", branch=session.branch, marked_by=owner)
    job = done_job(
        Session.objects.all(), requested_by=person, chosen_by=f"q={owner.username}+the+tent"
    )
    BulkJob.objects.filter(pk=job.pk).update(note="Paused: the last one said: the tent")
    took = what_erasing_takes(owner).counts
    assert took["answer requests"] >= 2
    assert took["audit entries"] == 1
    assert took["sessions of bulk re-summarises"] == 1
    erased = erase_user(owner)
    assert erased.counts["answer requests"] == took["answer requests"]
    assert erased.counts["look marks"] == 1
    for table in (AnswerRequest, AuditEntry, LookMark, BulkItem):
        assert not table.objects.exists()
    job.refresh_from_db()
    assert (job.chosen_by, job.note) == ("", "")


def test_who_held_and_rolled_back_leaves_no_name_in_the_sessions_of_others(session, two, person):
    restore_summary(two[1], by=person)
    job = done_job(Session.objects.all(), requested_by=person, chosen_by="q=mine")
    roll_back_bulk(job, by=person)
    erase_user(person)
    row = state(session)
    assert (row.is_held, row.held_by) == (True, None)
    assert {actor for _, actor in acts(session)} == {None}
    job.refresh_from_db()
    assert (job.requested_by, job.rolled_back_by, job.chosen_by) == (None, None, "")


def waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        # What a transaction has seen of it once, it sees again.
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT COUNT(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return cursor.fetchone()[0] > 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite lets one at a time write")
def test_who_brings_a_thing_back_and_who_deletes_its_session_wait_in_one_order(owner):
    """Each would hold what the other one waits for, and the database end one of them."""
    session = SessionFactory(owner=owner)
    mark = LookMark.objects.create(kind="compaction_failed", branch=session.branch)
    with ThreadPoolExecutor(max_workers=1) as pool:
        with transaction.atomic():
            lock_branches(session.pk, for_deletion=True)
            brought = pool.submit(in_a_thread, partial(bring_back, mark, by=owner))
            for _ in range(500):
                if waits_for_a_lock():
                    break
                sleep(0.01)
            for row in Session.objects.select_for_update().filter(pk=session.pk):
                row.delete()
        assert brought.result(timeout=30) is None
    assert not AuditEntry.objects.exists()


def in_a_thread(work):
    try:
        return work()
    finally:
        connection.close()
