"""Needs a look: which things are listed, until when, what helps, and who may do what."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from uuid import uuid4

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from chatapp.admin.toolkit import html
from chatapp.audit import AuditEntry
from chatapp.formatting import short_id
from chatapp.models import AnswerRequest, Incident, Session
from compaction.attention.kinds import KIND_NAMES, KINDS
from compaction.attention.listing import LookCursor, needs_look, waiting
from compaction.attention.marks import bring_back, find_item, mark_done, set_aside, snooze
from compaction.errors import CompactionError
from compaction.models import (
    CompactionRun,
    CompactionState,
    LookMark,
    ModelBreaker,
    SessionSummary,
    SummaryQuality,
)
from compaction.statistics.daily import refresh_figures
from compaction.summaries.activating import activate_version
from compaction.summaries.restore import restore_summary
from tests.compaction.recoveries import run_of
from tests.compaction.support import NEVER, compact
from tests.factories import SessionFactory, UserFactory, profile, store, talk

pytestmark = pytest.mark.django_db

PAGE, DO = "/admin/needs-a-look/", "/admin/needs-a-look/do/"
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
SECRET = "What she said of the harbour"


@pytest.fixture
def session(owner, queued):
    profile(**NEVER, keep_last_n=2)
    return SessionFactory(owner=owner, title=SECRET, wires=talk(4))


def listed(**asked) -> list[tuple[str, str]]:
    """Return kind and subject of the first page."""
    return [(item.kind.name, item.subject) for item in needs_look(**asked).items]


def left_out(session, at=None):
    """Store an answer that was given without three messages."""
    (answer,) = store(session, [{"role": "assistant", "content": "ok"}])
    return AnswerRequest.objects.create(
        message=answer, session=session, digest="d", left_out=3,
        left_out_branch=answer.branch_id, created_at=at or timezone.now(),
    )  # fmt: skip


def failed_run(session, at=None, **columns):
    moment = at or timezone.now()
    told = {"status": "failed", "error_code": "bad_answer", "error": SECRET, "finished_at": moment}
    run = run_of(session, **(told | columns))
    CompactionRun.objects.filter(pk=run.pk).update(created_at=moment)
    return run


def overflow(session, at=None):
    return Incident.objects.create(
        session=session, branch=session.branch, kind="error", code="context_overflow",
        text=SECRET, created_at=at or timezone.now(),
    )  # fmt: skip


def failing_model(alias="default", **columns):
    told = {"failing_since": timezone.now(), "failing_code": "bad_answer"}
    return ModelBreaker.objects.create(model=alias, **(told | columns))


def stale(session, *, minutes=10):
    expired = timezone.now() - timedelta(minutes=minutes)
    CompactionState.objects.update_or_create(
        branch=session.branch,
        defaults={"lease_owner": uuid4(), "lease_expires_at": expired},
    )


def hold(session, *, by=None):
    """Have a person hold the first messages of a session."""
    CompactionState.objects.update_or_create(
        branch=session.branch,
        defaults={
            "hold_through": 5_000_000, "hold_end": "until_lifted", "held_by": by,
            "held_at": timezone.now(),
        },
    )  # fmt: skip


def of_kind(name, session):
    return (name, str(session.branch.pk))


# --- what is listed -------------------------------------------------------------------------------


def test_nothing_needs_a_look_of_a_sound_session(session):
    run_of(session, finished_at=timezone.now())
    assert listed() == []


def test_each_kind_is_listed_with_its_thing(session):
    left_out(session)
    overflow(session)
    failed_run(session)
    failing_model()
    stale(session)
    assert set(listed()) == {
        of_kind("left_out", session),
        of_kind("over_window", session),
        of_kind("compaction_failed", session),
        of_kind("stale_lease", session),
        ("summariser_failing", "default"),
    }


def test_a_hold_is_listed_until_it_is_over(session, owner):
    hold(session, by=owner)
    assert listed() == [of_kind("held", session)]
    past = timezone.now() - timedelta(minutes=1)
    CompactionState.objects.update(held_until=past)
    assert listed() == []
    CompactionState.objects.update(held_until=None, cursor=5_000_000)
    assert listed() == []


def test_a_hold_is_lifted_from_the_list(admin_client, session, queued):
    hold(session)
    response = do(admin_client, "held", session.branch.pk, "lift")
    assert "The hold is lifted" in response.text
    # It is off the list: the sentence leads to where it can be looked at and taken back.
    way = f'<a href="{html.change_url(Session, session.pk)}">Session {short_id(session.pk)}</a>'
    assert way in response.text
    assert listed() == []
    assert not CompactionState.objects.get(branch=session.branch).is_held


def test_a_hold_is_lifted_by_who_may_restore(session):
    hold(session)
    for codes in (("view_compactionstate",), ("view_compactionstate", "add_compactionrun")):
        assert do(staff(*codes), "held", session.branch.pk, "lift").status_code == 403
    client = staff("view_compactionstate", "change_sessionsummary")
    done = do(client, "held", session.branch.pk, "lift")
    assert done.status_code == 200
    assert "The hold is lifted" in done.text
    # Whoever may not see sessions is led to none.
    assert html.change_url(Session, session.pk) not in done.text
    assert listed() == []


def scored(session, score, **columns):
    """Store one more summary that is sent, with its score."""
    last = SessionSummary.objects.count() + 1
    summary = SessionSummary.objects.create(
        session=session, branch=session.branch, summary_text=SECRET, status="active",
        covers_from=last, covers_through=last, reason="manual", trigger="manual",
    )  # fmt: skip
    return SummaryQuality.objects.create(summary=summary, version=1, score=score, **columns)


def test_a_low_score_is_listed_until_somebody_has_judged_it(session):
    low = scored(session, 19.4)
    scored(session, 20.0)
    (item,) = needs_look().items
    assert (item.kind.name, item.subject) == of_kind("low_score", session)
    assert item.said.endswith("scored 19 of 100")
    assert item.row == str(low.pk)
    SummaryQuality.objects.filter(pk=low.pk).update(verdict="good")
    assert listed() == []


def test_the_list_has_a_low_score_and_the_front_page_its_figures(admin_client, session):
    scored(session, 12)
    assert "scored 12 of 100" in admin_client.get(PAGE).text
    refresh_figures()
    front = admin_client.get("/admin/").text
    assert "scored 12 of 100" not in front
    assert "1 summary scored low" in front


def test_a_low_score_that_is_not_sent_any_more_is_not_listed(session):
    low = scored(session, 3)
    SessionSummary.objects.filter(pk=low.pk).update(status="superseded")
    assert listed() == []


def test_of_several_low_scores_of_a_branch_the_newest_is_listed(session):
    scored(session, 3, created_at=timezone.now() - HOUR)
    newest = scored(session, 7)
    assert [item.row for item in needs_look().items] == [str(newest.pk)]


def test_a_shortened_summary_is_listed(session):
    run_of(session, truncated=True, finished_at=timezone.now())
    assert listed() == [of_kind("compaction_truncated", session)]


def test_a_thing_is_listed_once_however_often_it_happened(session):
    for hours in (3, 2, 1):
        left_out(session, timezone.now() - hours * HOUR)
        overflow(session, timezone.now() - hours * HOUR)
        failed_run(session, timezone.now() - hours * HOUR)
    assert sorted(kind for kind, _ in listed()) == ["compaction_failed", "left_out", "over_window"]


def test_an_answer_that_had_everything_is_none(session):
    record = left_out(session)
    AnswerRequest.objects.filter(pk=record.pk).update(left_out=None)
    assert listed() == []


@pytest.mark.parametrize("status", ["succeeded", "queued", "running"])
def test_a_later_run_ends_a_failure(session, status):
    failed_run(session, timezone.now() - HOUR)
    run_of(session, status=status)
    CompactionRun.objects.filter(status=status).update(created_at=timezone.now())
    assert listed() == []


def test_a_later_run_that_did_nothing_ends_no_failure(session):
    failed_run(session, timezone.now() - HOUR)
    run_of(session, status="skipped")
    CompactionRun.objects.filter(status="skipped").update(created_at=timezone.now())
    assert listed() == [of_kind("compaction_failed", session)]


def test_a_lost_race_is_no_failure(session):
    failed_run(session, error_code="lost_race")
    assert listed() == []


def test_a_compaction_since_ends_an_overflow_until_it_is_taken_back(owner):
    profile(summariser="extractive", keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(6))
    overflow(session, timezone.now() - HOUR)
    assert listed() == [of_kind("over_window", session)]
    assert compact(session).status == "succeeded"
    assert listed() == []
    summary = SessionSummary.objects.get(session=session)
    restore_summary(summary, by=owner)
    assert set(listed()) == {of_kind("over_window", session), of_kind("held", session)}
    activate_version(summary, by=owner)
    assert listed() == []


def test_a_lease_that_the_next_sweep_frees_is_not_listed(session):
    stale(session, minutes=4)
    assert listed() == []


def test_what_happened_more_than_thirty_days_ago_is_not_listed(session):
    for make in (left_out, overflow, failed_run):
        make(session, timezone.now() - 31 * DAY)
    assert listed() == []


# --- set aside ------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [left_out, overflow, failed_run])
def test_done_holds_until_it_happens_again(session, owner, make):
    make(session, timezone.now() - HOUR)
    (item,) = needs_look().items
    mark = mark_done(item, by=owner)
    assert listed() == []
    assert (mark.marked_by, [one.pk for one in set_aside()]) == (owner, [mark.pk])
    make(session)
    assert listed() == [(item.kind.name, item.subject)]


def test_done_of_one_kind_or_session_says_nothing_of_another(session, owner):
    other = SessionFactory(owner=owner, wires=talk(1))
    left_out(session)
    left_out(other)
    overflow(session)
    mark_done(find_item("left_out", str(session.branch.pk)), by=owner)
    assert set(listed()) == {of_kind("left_out", other), of_kind("over_window", session)}


def test_a_snooze_ends_at_its_time(session, owner):
    left_out(session)
    mark = snooze(needs_look().items[0], until=timezone.now() + HOUR, by=owner)
    assert listed() == []
    LookMark.objects.filter(pk=mark.pk).update(hidden_until=timezone.now() - HOUR)
    assert listed() == [of_kind("left_out", session)]
    assert list(set_aside()) == []


def test_nobody_snoozes_until_a_time_that_is_over(session, owner):
    left_out(session)
    with pytest.raises(CompactionError, match="That time is over"):
        snooze(needs_look().items[0], until=timezone.now() - HOUR, by=owner)


def test_what_is_brought_back_is_listed_again(session, owner):
    failing_model()
    mark = mark_done(needs_look().items[0], by=owner)
    bring_back(mark)
    assert listed() == [("summariser_failing", "default")]
    assert list(set_aside()) == []


def test_who_set_what_aside_stands_in_the_sessions_audit_log(session, owner):
    left_out(session)
    mark = mark_done(needs_look().items[0], by=owner)
    bring_back(mark, by=owner)
    snooze(needs_look().items[0], until=timezone.now() + HOUR, by=owner)
    entries = AuditEntry.objects.filter(session=session).order_by("created_at", "id")
    assert [one.action for one in entries] == ["look_done", "look_brought_back", "look_snoozed"]
    assert {one.actor for one in entries} == {owner}
    assert {one.branch_id for one in entries} == {session.branch.pk}
    label = KIND_NAMES["left_out"].label
    assert all(f"“{label}” of branch {str(session.branch.pk)[-8:]}" in e.text for e in entries)


def test_what_is_said_of_a_model_belongs_to_no_session(owner):
    failing_model()
    mark_done(needs_look().items[0], by=owner)
    assert not AuditEntry.objects.exists()


def test_a_model_that_fails_anew_is_back(owner):
    row = failing_model(failing_since=timezone.now() - HOUR)
    mark_done(needs_look().items[0], by=owner)
    ModelBreaker.objects.filter(pk=row.pk).update(failing_since=timezone.now())
    assert listed() == [("summariser_failing", "default")]


def test_marks_go_with_their_session(session, owner):
    left_out(session)
    mark_done(needs_look().items[0], by=owner)
    session.delete()
    assert not LookMark.objects.exists()


# --- pages ----------------------------------------------------------------------------------------


def many(owner, count: int) -> None:
    """Store things of two kinds, pairs of them at the same moment."""
    profile(**NEVER)
    now = timezone.now()
    for number in range(count):
        one = SessionFactory(owner=owner)
        moment = now - (number // 2) * timedelta(minutes=1)
        left_out(one, moment)
        overflow(one, moment)


def test_pages_hold_everything_once_and_newest_first(owner, queued):
    many(owner, 9)
    seen, behind = [], None
    while True:
        page = needs_look(behind=behind, most=4)
        seen += page.items
        behind = page.next_cursor
        if behind is None:
            break
        behind = LookCursor.read(str(behind))
    assert len(seen) == len({(item.kind.name, item.subject) for item in seen}) == 18
    assert [item.at for item in seen] == sorted((item.at for item in seen), reverse=True)


@pytest.mark.parametrize("text", ["", "yesterday~left_out~x", "2026-01-01T00:00:00~left_out~x",
                                  "2026-01-01T00:00:00+00:00~nothing~x",
                                  "2026-01-01T00:00:00+00:00~left_out~x"])  # fmt: skip
def test_what_is_no_cursor_begins_at_the_beginning(text):
    assert LookCursor.read(text) is None


def test_a_forged_cursor_breaks_no_page(admin_client, session):
    left_out(session)
    address = f"{PAGE}?behind=2030-01-01T00:00:00%2B00:00~left_out~x"
    assert admin_client.get(address).status_code == 200


def test_the_statements_are_the_same_at_any_number(admin_client, owner, queued):
    many(owner, 2)
    with CaptureQueriesContext(connection) as few:
        admin_client.get(PAGE)
    many(owner, 20)
    with CaptureQueriesContext(connection) as more:
        admin_client.get(PAGE)
    assert len(few) == len(more)


@pytest.mark.parametrize("name", [name for name in KIND_NAMES if name != "summariser_failing"])
def test_each_kind_reads_its_index(name, session):
    rows = waiting(KIND_NAMES[name]).order_by(f"-{KIND_NAMES[name].at}")
    told = rows.values("pk")[:26].explain()
    index = {
        "left_out": "request_incomplete", "over_window": "incident_overflow",
        "compaction_failed": "run_failed", "compaction_truncated": "run_truncated",
        "stale_lease": "state_leased", "held": "state_held", "low_score": "quality_new",
    }[name]  # fmt: skip
    if connection.vendor == "sqlite":
        assert index in told
    else:
        # A planner of an empty table may scan it; that the index fits is asked without that way.
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_seqscan = off")
        assert index in rows.values("pk")[:26].explain()


# --- what helps -----------------------------------------------------------------------------------


def do(client, kind, subject, act, **data):
    sent = {"kind": kind, "subject": str(subject), "act": act} | data
    return client.post(DO, sent, follow=True)


def test_compacting_is_queued_and_the_thing_is_done(admin_client, session):
    left_out(session)
    response = do(admin_client, "left_out", session.branch.pk, "compact", to="front")
    assert response.redirect_chain == [("/admin/", 302)]
    assert CompactionRun.objects.get().trigger == "manual"
    assert listed() == []


def test_a_failed_run_runs_again(admin_client, session):
    failed = failed_run(session, timezone.now() - HOUR)
    do(admin_client, "compaction_failed", session.branch.pk, "run_again")
    assert CompactionRun.objects.exclude(pk=failed.pk).get().status == "queued"
    assert listed() == []


def test_restarting_frees_a_branch_and_starts_its_run_again(admin_client, session):
    stale(session)
    state = CompactionState.objects.get(branch=session.branch)
    run_of(
        session, status="running", mode="background", trigger="manual",
        worker=state.lease_owner, started_at=timezone.now() - HOUR,
    )  # fmt: skip
    response = do(admin_client, "stale_lease", session.branch.pk, "restart")
    assert "The branch is free; 1 run started again." in unescape(response.text)
    state.refresh_from_db()
    assert state.lease_owner is None
    assert CompactionRun.objects.filter(status="queued").count() == 1


def test_re_summarising_without_a_summary_says_so(admin_client, session):
    run_of(session, truncated=True, finished_at=timezone.now())
    response = do(admin_client, "compaction_truncated", session.branch.pk, "summarise_again")
    assert "It has no active summary yet; compact it first." in response.text


def test_an_act_of_another_kind_is_none(admin_client, session):
    left_out(session)
    assert (
        "There is no such act." in do(admin_client, "left_out", session.branch.pk, "restart").text
    )


def test_what_needs_no_look_any_more_says_so(admin_client, session):
    for subject in (session.branch.pk, "x"):
        assert "It needs no look any more" in do(admin_client, "left_out", subject, "done").text


def test_done_snoozed_and_brought_back_by_hand(admin_client, admin_user, session):
    left_out(session)
    do(admin_client, "left_out", session.branch.pk, "done")
    mark = LookMark.objects.get()
    assert (mark.marked_by, mark.done_at is None) == (admin_user, False)
    aside = admin_client.get(f"{PAGE}?aside=1").text
    assert "Done until it happens again" in aside and admin_user.username in aside
    do(admin_client, "left_out", "", "back", mark=mark.pk)
    tomorrow = timezone.localtime(timezone.now() + DAY).strftime("%Y-%m-%dT%H:%M")
    do(admin_client, "left_out", session.branch.pk, "snooze", until=tomorrow)
    mark.refresh_from_db()
    assert timezone.localtime(mark.hidden_until).strftime("%Y-%m-%dT%H:%M") == tomorrow
    told = do(admin_client, "left_out", session.branch.pk, "snooze", until="soon").text
    assert "Name a time until which it may wait." in told


# --- who sees and does what -----------------------------------------------------------------------


def staff(*codes: str) -> Client:
    operator = UserFactory(is_staff=True)
    operator.user_permissions.set(Permission.objects.filter(codename__in=codes))
    client = Client()
    client.force_login(get_user_model().objects.get(pk=operator.pk))
    return client


def kinds_on(client) -> set[str]:
    return set(re.findall(r'data-kind="(\w+)"', client.get(PAGE).text))


def test_only_kinds_whose_rows_may_be_seen_are_listed(session):
    left_out(session)
    failed_run(session)
    failing_model()
    stale(session)
    assert kinds_on(staff("view_session")) == {"left_out"}
    assert kinds_on(staff("view_compactionrun")) == {"compaction_failed"}
    assert kinds_on(staff("view_modelbreaker")) == {"summariser_failing"}
    assert kinds_on(staff("view_compactionstate")) == {"stale_lease"}
    assert staff().get(PAGE).status_code == 403


def test_titles_are_shown_to_whoever_may_read_texts(session):
    left_out(session)
    assert SECRET in staff("view_session", "read_texts").get(PAGE).text
    assert SECRET not in staff("view_session").get(PAGE).text


def test_a_thing_leads_to_the_answer_or_the_turn_it_is_about(admin_client, session):
    first, record = left_out(session, timezone.now() - HOUR), left_out(session)
    assert first.message_id != record.message_id
    failed = overflow(session)
    page = admin_client.get(PAGE).text
    answer = f"/admin/chatapp/message/{record.message_id}/change/"
    turn = f"/admin/chatapp/incident/{failed.pk}/change/"
    for address in (answer, turn):
        assert page.count(f'href="{address}"') == 2
        assert admin_client.get(address).status_code == 200
    assert f"/admin/chatapp/session/{session.pk}/change/" not in page


def test_who_sees_no_answers_is_led_to_the_session(session):
    """What stands in the list leads to no page that is forbidden."""
    record, failed = left_out(session), overflow(session)
    reader = staff("view_session")
    page = reader.get(PAGE).text
    assert f"/admin/chatapp/message/{record.message_id}/" not in page
    assert f"/admin/chatapp/incident/{failed.pk}/" not in page
    assert page.count(f'href="/admin/chatapp/session/{session.pk}/change/"') == 4
    page = staff("view_session", "view_message").get(PAGE).text
    assert page.count(f'href="/admin/chatapp/message/{record.message_id}/change/"') == 2


def test_marking_and_running_take_their_permissions(session):
    left_out(session)
    reader, marker = staff("view_session"), staff("view_session", "change_lookmark")
    for act in ("done", "compact"):
        assert do(reader, "left_out", session.branch.pk, act).status_code == 403
    assert do(marker, "left_out", session.branch.pk, "compact").status_code == 403
    assert do(marker, "summariser_failing", "default", "done").status_code == 403
    assert do(marker, "left_out", session.branch.pk, "done").status_code == 200
    assert "Compact now" not in marker.get(PAGE).text
    assert LookMark.objects.count() == 1


def test_a_get_does_nothing(admin_client):
    assert admin_client.get(DO).status_code == 405


def test_the_list_stands_first_on_the_front_page(admin_client, session):
    left_out(session)
    page = admin_client.get("/admin/").text
    assert page.index("Needs a look") < page.index("Refresh now")
    assert f"Session {str(session.pk)[-8:]} was answered with messages left out" in page
    assert SECRET not in page


def test_every_kind_says_what_it_is_and_what_helps():
    for kind in KINDS:
        assert kind.label and kind.means.endswith(".")
