"""The admin of compaction: runs, summaries, profiles, and what operators can do with them."""

from __future__ import annotations

import re
from datetime import timedelta
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from chatapp.models import POSITION_STEP, Branch, Message, Session
from compaction.engine.profile import PRESETS
from compaction.models import (
    CompactionProfile,
    CompactionRun,
    CompactionState,
    CompactionStep,
    ModelBreaker,
    SessionSummary,
    SessionSummaryMessage,
    WorkerHeartbeat,
)
from compaction.profiles import find_profile, save_profile
from compaction.runs.worker import compact_branch
from tests.compaction.support import as_shown
from tests.factories import SessionFactory, profile, talk
from tests.made_once import made_once

pytestmark = pytest.mark.django_db

ATTACK = "<script>alert(1)</script>"
MODELS = (
    CompactionProfile,
    CompactionRun,
    CompactionState,
    CompactionStep,
    ModelBreaker,
    SessionSummary,
    SessionSummaryMessage,
    WorkerHeartbeat,
)
# Rows of the installation, not of a session.
OF_NO_SESSION = (CompactionProfile, ModelBreaker, WorkerHeartbeat)
LONG_COLUMNS = {
    "messages": ("content", "parts", "tool_calls", "reasoning", "summary", "metadata", "usage"),
    "sessions": ("system_prompt", "tools", "metadata"),
    "session_summaries": ("summary_text", "summary_prompt", "abridged", "metadata"),
    "compaction_runs": ("error", "instructions"),
    "compaction_steps": ("error", "output"),
    "compaction_profiles": ("parameters",),
    "compaction_breakers": ("last_error",),
}


def name_of(model) -> str:
    return f"{model._meta.app_label}_{model._meta.model_name}"


def list_of(model, **query) -> str:
    address = reverse(f"admin:{name_of(model)}_changelist")
    return address + (f"?{urlencode(query)}" if query else "")


def page_of(row) -> str:
    return reverse(f"admin:{name_of(type(row))}_change", args=[row.pk])


def rows_in(response) -> list:
    return list(response.context["cl"].result_list)


def long_columns_in(queries) -> list[str]:
    """Return the long columns that some query selects whole; the beginning of one is no such."""
    found = []
    for query in queries:
        selected = query["sql"].split(" FROM ")[0].removeprefix("SELECT ")
        columns = [column.strip() for column in re.split(r", (?=\")", selected)]
        for table, names in LONG_COLUMNS.items():
            found += [c for c in columns for n in names if c == f'"{table}"."{n}"']
    return found


class Grown:
    """Rows of every model in one session, made without the services: only pages look at them."""

    def __init__(self, owner, *, text: str = "x", session: Session | None = None) -> None:
        self.text = text
        self.session = session or SessionFactory(owner=owner, title=text)
        self.profile = find_profile()
        self.rows = 0

    def grow(self, count: int) -> None:
        numbers = range(self.rows + 1, self.rows + count + 1)
        self.rows += count
        session, text = self.session, self.text
        branches = Branch.objects.bulk_create(Branch(session=session) for _ in numbers)
        CompactionState.objects.bulk_create(CompactionState(branch=b) for b in branches)
        messages = Message.objects.bulk_create(
            Message(
                session=session,
                branch=session.branch,
                position=number * POSITION_STEP,
                role="user",
                content=text,
            )
            for number in numbers
        )
        runs = CompactionRun.objects.bulk_create(
            CompactionRun(
                session=session,
                branch=session.branch,
                trigger="manual",
                reason="manual",
                mode="background",
                status="failed",
                error=text,
                instructions=text,
                profile=self.profile,
            )
            for _ in numbers
        )
        CompactionStep.objects.bulk_create(
            CompactionStep(
                run=run,
                kind="chunk",
                order=1,
                outcome="error",
                error=text,
                output=text,
                first_message=message,
                last_message=message,
            )
            for run, message in zip(runs, messages, strict=True)
        )
        summaries = SessionSummary.objects.bulk_create(
            SessionSummary(
                session=session,
                branch=session.branch,
                run=run,
                profile=self.profile,
                summary_text=text,
                summary_prompt=text,
                instructions=text,
                abridged=text,
                files_read=[text],
                metadata={text: text},
                trigger="manual",
                reason="manual",
                covers_from=1,
                covers_through=number,
                status="superseded",
                first_message=message,
                last_message=message,
            )
            for number, run, message in zip(numbers, runs, messages, strict=True)
        )
        SessionSummaryMessage.objects.bulk_create(
            SessionSummaryMessage(summary=summary, message=message)
            for summary, message in zip(summaries, messages, strict=True)
        )
        CompactionProfile.objects.bulk_create(
            CompactionProfile(name=f"p{number}", description=text, parameters={}, is_current=True)
            for number in numbers
        )
        ModelBreaker.objects.bulk_create(
            ModelBreaker(model=f"{text} {number}", last_error=text, opened_at=timezone.now())
            for number in numbers
        )
        WorkerHeartbeat.objects.bulk_create(
            WorkerHeartbeat(id=uuid4(), kind="queue", host=text, pid=7, run=run) for run in runs
        )


@pytest.fixture
def nasty(owner) -> Session:
    """A session in which every text of every row is markup."""
    grown = Grown(owner, text=ATTACK)
    grown.grow(2)
    return grown.session


@pytest.fixture
@made_once
def compacted(owner, model_server, queued) -> Session:
    """A session with one active summary."""
    profile(message_limit=100, keep_last_n=2)
    session = SessionFactory(owner=owner, title="Boots", wires=talk(6))
    run = compact_branch(session=session, trigger="manual", reason="manual")
    assert run.status == "succeeded"
    return session


def act(client, model, action: str, *rows, **more):
    data = {"action": action, "_selected_action": [str(row.pk) for row in rows], "index": "0"}
    return client.post(list_of(model), data | more, follow=True)


def told(response) -> str:
    return " ".join(str(message) for message in response.context["messages"])


# --- every list and page --------------------------------------------------------------------------


def test_every_model_of_both_apps_is_in_the_admin():
    registered = set(admin.site._registry)
    assert {*MODELS, Session, Branch, Message} <= registered


@pytest.mark.parametrize("model", MODELS)
def test_every_list_and_page_opens_and_escapes_what_was_stored(admin_client, nasty, model):
    rows = model.objects.all()
    row = rows.exclude(name__in=PRESETS).first() if model is CompactionProfile else None
    row = row or model.objects.first()
    for address in (list_of(model), page_of(row)):
        response = admin_client.get(address)
        assert response.status_code == 200
        assert ATTACK not in response.text
        assert "&lt;script&gt;alert(1)" in response.text
        assert not re.search(r"\sstyle=|<style|\son\w+=", response.text)
        assert not [s for s in re.findall(r"<script[^>]*>", response.text) if "src=" not in s]


def test_the_session_page_escapes_what_runs_and_summaries_hold(admin_client, nasty):
    response = admin_client.get(page_of(nasty))
    assert response.status_code == 200
    assert ATTACK not in response.text


def test_a_list_costs_the_same_for_10_and_for_1000_rows(admin_client, owner):
    grown = Grown(owner)
    counts: dict[type, list[int]] = {model: [] for model in (*MODELS, Session)}
    for rows in (10, 990):
        grown.grow(rows)
        Session.objects.bulk_create(Session(owner=owner) for _ in range(rows))
        for model, found in counts.items():
            with CaptureQueriesContext(connection) as queries:
                assert admin_client.get(list_of(model)).status_code == 200
            found.append(len(queries))
            assert long_columns_in(queries) == [], model
            assert not [q for q in queries if "COUNT(" in q["sql"]], model
    assert {model: found for model, found in counts.items() if len(set(found)) > 1} == {}
    assert {model: found for model, found in counts.items() if max(found) > 12} == {}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("text", ["not-an-id", "%", "12345678", "f" * 80, "text: x"])
def test_searching_for_anything_never_fails(admin_client, nasty, model, text):
    assert admin_client.get(list_of(model, q=text)).status_code == 200


@pytest.mark.parametrize("model", [m for m in MODELS if m not in OF_NO_SESSION])
def test_the_search_finds_rows_by_the_sessions_title(admin_client, owner, model):
    grown = Grown(owner, text="Boots and a tent pole")
    grown.grow(1)
    Grown(owner, text="Else", session=SessionFactory(owner=owner, title="Else"))
    assert len(rows_in(admin_client.get(list_of(model, q="tent pole")))) == 1
    assert rows_in(admin_client.get(list_of(model, q="nothing like it"))) == []


@pytest.mark.parametrize("model", [m for m in MODELS if m is not CompactionProfile])
def test_nothing_is_added_changed_or_deleted_here(admin_client, nasty, model):
    row = model.objects.first()
    assert admin_client.get(reverse(f"admin:{name_of(model)}_add")).status_code == 403
    assert admin_client.post(page_of(row), {}).status_code == 403
    address = reverse(f"admin:{name_of(model)}_delete", args=[row.pk])
    assert admin_client.post(address, {"post": "yes"}).status_code == 403
    assert "delete_selected" not in admin_client.get(list_of(model)).text


# --- filters --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"ratio": "10"}, [0.05]),
        ({"ratio": "25"}, [0.1]),
        ({"ratio": "50"}, [0.3]),
        ({"ratio": "more"}, [0.7]),
        ({"ratio": "junk"}, [0.05, 0.1, 0.3, 0.7]),
        ({"trigger": "proactive"}, [0.3]),
        ({"reason": "window"}, [0.7]),
        ({"truncated__exact": "1"}, [0.1]),
        ({"status__exact": "restored"}, [0.05]),
    ],
)
def test_summaries_are_filtered_by_columns(admin_client, owner, query, found):
    session = SessionFactory(owner=owner)
    base = {"session": session, "branch": session.branch, "covers_from": 1, "summary_text": "x"}
    kinds = [
        {"compression_ratio": 0.05, "status": "restored"},
        {"compression_ratio": 0.1, "truncated": True},
        {"compression_ratio": 0.3, "trigger": "proactive"},
        {"compression_ratio": 0.7, "reason": "window"},
    ]
    for place, kind in enumerate(kinds):
        words = {"trigger": "manual", "reason": "manual", "covers_through": place}
        SessionSummary.objects.create(**(base | words | kind))
    rows = rows_in(admin_client.get(list_of(SessionSummary, **query)))
    assert sorted(row.compression_ratio for row in rows) == found


def test_rows_of_one_session_are_found_by_its_id(admin_client, nasty, owner):
    other = Grown(owner, session=SessionFactory(owner=owner, title="Else"))
    other.rows = 100
    other.grow(3)
    for model in (CompactionRun, SessionSummary):
        rows = rows_in(admin_client.get(list_of(model, session__id__exact=nasty.pk)))
        assert {row.session_id for row in rows} == {nasty.pk}
    states = rows_in(
        admin_client.get(list_of(CompactionState, branch__session__id__exact=nasty.pk))
    )
    assert {state.branch.session_id for state in states} == {nasty.pk}


def test_new_rows_are_told_from_old_ones(admin_client, nasty):
    old = CompactionRun.objects.first()
    CompactionRun.objects.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(days=8))
    rows = rows_in(admin_client.get(list_of(CompactionRun, since="7")))
    assert old.pk not in [row.pk for row in rows]
    assert len(rows) == CompactionRun.objects.count() - 1


# --- runs -----------------------------------------------------------------------------------------


def a_run(session: Session, **fields) -> CompactionRun:
    words = {"trigger": "proactive", "reason": "token_limit", "mode": "background"}
    return CompactionRun.objects.create(
        session=session, branch=session.branch, profile=find_profile(), **(words | fields)
    )


def test_a_run_whose_worker_stopped_reads_interrupted(admin_client, owner):
    session = SessionFactory(owner=owner)
    lost = a_run(session, status="failed", error_code="interrupted", error="The worker stopped.")
    failed = a_run(session, status="failed", error_code="not_smaller", error="Not smaller.")
    page = admin_client.get(list_of(CompactionRun)).text
    assert ">Interrupted</span>" in page
    assert "The worker stopped." in page
    assert rows_in(admin_client.get(list_of(CompactionRun, status="interrupted"))) == [lost]
    assert rows_in(admin_client.get(list_of(CompactionRun, status="failed"))) == [failed]


def test_a_runs_page_shows_the_tree_of_its_calls(admin_client, owner):
    session = SessionFactory(owner=owner, wires=talk(1))
    first, last = session.branch.messages.order_by("position")
    run = a_run(session, status="failed", error="The model refused everything.")
    for order, depth, outcome in ((1, 0, "overflow"), (2, 1, "ok"), (3, 12, "error")):
        CompactionStep.objects.create(
            run=run,
            kind="chunk",
            order=order,
            depth=depth,
            outcome=outcome,
            first_message=first,
            last_message=last,
            message_count=2,
            input_tokens=4321,
            output_tokens=123,
            duration_ms=1500,
            error="context_length_exceeded" if outcome == "overflow" else "",
        )
    page = admin_client.get(page_of(run)).text
    assert "The model refused everything." in page
    assert 'class="step step-0">1. chunk' in page
    assert 'class="step step-1">2. chunk' in page
    assert 'class="step step-8">3. chunk' in page
    for words in ("4,321", "123", "1.5 s", "Too large", "context_length_exceeded"):
        assert words in page
    assert page_of(first) in page
    assert page_of(last) in page


def test_a_run_with_1000_calls_shows_200_and_the_way_to_all(admin_client, owner):
    run = a_run(SessionFactory(owner=owner))
    CompactionStep.objects.bulk_create(
        CompactionStep(run=run, kind="chunk", order=n, outcome="ok") for n in range(1000)
    )
    page = admin_client.get(page_of(run)).text
    assert page.count("step step-0") == 200
    assert f"run__id__exact={run.pk}" in page


def test_a_failed_run_is_run_again_from_its_page(
    admin_client, owner, queued, django_capture_on_commit_callbacks
):
    run = a_run(SessionFactory(owner=owner), status="failed", instructions="Keep names.")
    assert "Run again" in admin_client.get(page_of(run)).text
    with django_capture_on_commit_callbacks(execute=True):
        response = act(admin_client, CompactionRun, "retry", run, from_page="1")
    again = CompactionRun.objects.exclude(pk=run.pk).get()
    assert (again.status, again.instructions) == ("queued", "Keep names.")
    assert again.requested_by.is_superuser
    assert queued == [("compaction.tasks.run_compaction", str(again.pk))]
    assert page_of(again) in told(response)
    assert response.request["PATH_INFO"] == page_of(run)


def test_a_queued_run_is_cancelled_and_a_finished_one_is_not(admin_client, owner, queued):
    session = SessionFactory(owner=owner)
    waiting, ended = a_run(session), a_run(session, status="succeeded")
    response = act(admin_client, CompactionRun, "cancel", waiting, ended)
    waiting.refresh_from_db()
    ended.refresh_from_db()
    assert (waiting.status, ended.status) == ("cancelled", "succeeded")
    assert "The run has ended already (succeeded)." in told(response)
    assert response.request["PATH_INFO"] == list_of(CompactionRun)


def test_a_succeeded_run_offers_nothing(admin_client, owner):
    page = admin_client.get(page_of(a_run(SessionFactory(owner=owner), status="succeeded"))).text
    assert "tool-button" not in page


# --- summaries ------------------------------------------------------------------------------------


def test_a_summary_with_5000_messages_opens_with_50_of_them(admin_client, owner):
    session = SessionFactory(owner=owner)
    messages = Message.objects.bulk_create(
        Message(
            session=session,
            branch=session.branch,
            position=number * POSITION_STEP,
            role="user",
            content=f"text {number} " + "y" * 300,
        )
        for number in range(1, 5001)
    )
    summary = SessionSummary.objects.create(
        session=session,
        branch=session.branch,
        summary_text="The summary.",
        trigger="manual",
        reason="manual",
        covers_from=1,
        covers_through=5000 * POSITION_STEP,
        message_count=5000,
    )
    SessionSummaryMessage.objects.bulk_create(
        [SessionSummaryMessage(summary=summary, message=m) for m in messages], batch_size=2000
    )
    with CaptureQueriesContext(connection) as queries:
        page = admin_client.get(page_of(summary)).text
    assert len(queries) <= 20
    assert len(page) < 100_000
    assert page.count("stored-preview") == 50
    assert page.count("<option") < 10
    assert "5,000 messages" in page
    assert "text 1 y" in page
    assert "text 51 y" not in page
    address = list_of(SessionSummaryMessage, summary__id__exact=summary.pk)
    assert address in page
    with CaptureQueriesContext(connection) as queries:
        links = admin_client.get(address)
    assert len(queries) <= 12
    assert len(rows_in(links)) == 50


def test_a_summarys_page_says_why_and_what_it_became(admin_client, compacted):
    summary = SessionSummary.objects.get()
    page = admin_client.get(page_of(summary)).text
    assert "By hand" in page
    assert f"{summary.tokens_before:,} → {summary.tokens_after:,}" in page
    assert f"{100 * summary.compression_ratio:.1f} %" in page
    assert page_of(summary.run) in page
    assert "The first 50" not in page
    assert page.count("stored-preview") == 10


def test_a_summary_is_made_again_and_the_pages_lead_from_one_to_the_other(
    admin_client, compacted, queued, django_capture_on_commit_callbacks
):
    old = SessionSummary.objects.get()
    with django_capture_on_commit_callbacks(execute=True):
        response = act(admin_client, SessionSummary, "resummarise", old, from_page="1")
    run = CompactionRun.objects.get(status="queued")
    assert (run.trigger, run.replaces) == ("resummarize", old)
    assert ("compaction.tasks.run_compaction", str(run.pk)) in queued
    assert page_of(run) in told(response)
    SessionSummary.objects.filter(pk=old.pk).update(status="superseded")
    old.refresh_from_db()
    new = SessionSummary.objects.get()
    new.pk, new.supersedes, new.status = None, old, "active"
    new.id = run.pk
    new.save(force_insert=True)
    assert page_of(new) in admin_client.get(page_of(old)).text
    assert page_of(old) in admin_client.get(page_of(new)).text


def test_a_summary_is_taken_back_once(admin_client, compacted):
    summary = SessionSummary.objects.get()
    asked = act(admin_client, SessionSummary, "restore", summary)
    assert "1 summary would count no more" in asked.text
    summary.refresh_from_db()
    assert summary.status == "active"
    response = act(admin_client, SessionSummary, "restore", summary, **as_shown(asked))
    summary.refresh_from_db()
    assert summary.status == "restored"
    assert "sent verbatim again" in told(response)
    assert CompactionState.objects.get(branch=compacted.branch).cursor == 0
    again = act(admin_client, SessionSummary, "restore", summary, **as_shown(asked))
    assert "Only an active summary can be restored" in again.text
    again = act(admin_client, SessionSummary, "restore", summary, **as_shown(again))
    assert "Only an active summary can be restored" in told(again)
    assert "Restore the messages" not in admin_client.get(page_of(summary)).text


# --- sessions -------------------------------------------------------------------------------------


def test_the_session_page_shows_state_account_runs_and_summaries(admin_client, compacted):
    page = admin_client.get(page_of(compacted)).text
    assert "10 messages" in page
    assert "Tokens of the next request" in page
    assert 'class="share"' in page
    assert page_of(CompactionRun.objects.get()) in page
    assert page_of(SessionSummary.objects.get()) in page
    assert list_of(CompactionState, branch__session__id__exact=compacted.pk) in page


def test_the_session_page_reads_no_message_texts(admin_client, compacted):
    with CaptureQueriesContext(connection) as queries:
        admin_client.get(page_of(compacted))
    # Of the newest answer, what its server reported.
    figures = {'"messages"."metadata"', '"messages"."usage"'}
    assert {c for c in long_columns_in(queries) if '"messages"' in c} <= figures


def test_the_session_page_says_when_its_model_is_gone(admin_client, owner):
    session = SessionFactory(owner=owner, model="retired")
    response = admin_client.get(page_of(session))
    assert response.status_code == 200
    assert "No model is called" in response.text


def test_a_session_without_a_branch_says_so(admin_client, owner):
    broken = Session.objects.create(owner=owner, title="Broken")
    assert "has no active branch" in admin_client.get(page_of(broken)).text
    response = act(admin_client, Session, "compact_now", broken)
    assert "has no active branch" in told(response)


def test_selected_sessions_are_compacted_in_the_background(
    admin_client, owner, queued, django_capture_on_commit_callbacks
):
    sessions = [SessionFactory(owner=owner, title=ATTACK), SessionFactory(owner=owner)]
    with django_capture_on_commit_callbacks(execute=True):
        response = act(admin_client, Session, "compact_now", *sessions)
    runs = CompactionRun.objects.all()
    assert {(run.trigger, run.status, run.mode) for run in runs} == {
        ("manual", "queued", "background")
    }
    assert sorted(queued) == sorted(
        ("compaction.tasks.run_compaction", str(run.pk)) for run in runs
    )
    for run in runs:
        assert page_of(run) in told(response)
    assert ATTACK not in response.text


def test_the_newest_summary_of_a_session_is_made_again(admin_client, compacted, owner, queued):
    bare = SessionFactory(owner=owner)
    response = act(admin_client, Session, "resummarise", compacted, bare)
    assert CompactionRun.objects.get(status="queued").replaces == SessionSummary.objects.get()
    assert "It has no active summary yet; compact it first." in told(response)


def test_more_than_100_sessions_at_once_are_refused(admin_client, owner, queued):
    Session.objects.bulk_create(Session(owner=owner) for _ in range(101))
    one = Session.objects.first()
    response = act(admin_client, Session, "compact_now", one, select_across="1")
    assert "more than 100 rows are selected" in told(response)
    assert not CompactionRun.objects.exists()


def test_operators_need_permission_to_start_runs(client, admin_client, compacted):
    summary = SessionSummary.objects.get()
    shown = as_shown(act(admin_client, SessionSummary, "restore", summary))
    staff = get_user_model().objects.create_user("staff", password="x", is_staff=True)
    codes = ["view_session", "view_sessionsummary", "view_compactionrun"]
    staff.user_permissions.set(Permission.objects.filter(codename__in=codes))
    client.force_login(staff)
    assert "Compact now" not in client.get(page_of(compacted)).text
    act(client, Session, "compact_now", compacted)
    act(client, SessionSummary, "restore", summary, **shown)
    assert not CompactionRun.objects.filter(status="queued").exists()
    assert SessionSummary.objects.get().status == "active"
    more = Permission.objects.get(codename="add_compactionrun")
    staff.user_permissions.add(more)
    client.force_login(get_user_model().objects.get(pk=staff.pk))
    assert "Compact now" in client.get(page_of(compacted)).text


# --- profiles -------------------------------------------------------------------------------------


def saved(client, row, parameters, **more):
    data = {"base": row.base, "description": row.description}
    return client.post(page_of(row), data | parameters | more, follow=True)


def test_saving_a_profile_makes_the_next_version(admin_client):
    first = save_profile(name="mine", parameters={"message_limit": 50})
    response = saved(admin_client, first, {"message_limit": "60"}, _continue="1")
    second = find_profile("mine")
    first.refresh_from_db()
    assert (first.version, first.is_current, first.parameters) == (1, False, {"message_limit": 50})
    assert (second.version, second.parameters) == (2, {"message_limit": 60})
    assert response.request["PATH_INFO"] == page_of(second)
    assert "mine v2" in told(response)


def test_the_next_version_of_the_default_profile_is_the_default(admin_client):
    first = find_profile()
    saved(admin_client, first, {"message_limit": "60"})
    assert find_profile().version == first.version + 1
    assert CompactionProfile.objects.filter(is_default=True).count() == 1


def test_a_new_profile_is_made_and_a_known_name_is_refused(admin_client):
    address = reverse("admin:compaction_compactionprofile_add")
    assert admin_client.get(address).status_code == 200
    data = {"name": "fresh", "base": "bisect", "keep_last_n": "3"}
    admin_client.post(address, data)
    assert find_profile("fresh").parameters == {"keep_last_n": 3}
    response = admin_client.post(address, data)
    assert "There is a profile &#x27;fresh&#x27; already." in response.text
    assert find_profile("fresh").version == 1


def test_an_old_version_can_only_be_read(admin_client):
    first = save_profile(name="mine", parameters={"message_limit": 50})
    second = save_profile(name="mine", parameters={})
    page = admin_client.get(page_of(first))
    assert "An old version can only be read" in page.text
    assert 'name="message_limit"' not in page.text
    assert "message_limit" in page.text
    assert "was saved meanwhile" in saved(admin_client, first, {"message_limit": "7"}).text
    assert find_profile("mine") == second


def test_a_profile_is_made_the_default(admin_client):
    mine = save_profile(name="mine", parameters={})
    response = act(admin_client, CompactionProfile, "make_default", mine)
    assert find_profile() == mine
    assert "mine v1" in told(response)


def test_an_old_version_or_two_profiles_cannot_be_the_default(admin_client):
    before = find_profile()
    old = save_profile(name="mine", parameters={})
    new = save_profile(name="mine", parameters={"message_limit": 50})
    response = act(admin_client, CompactionProfile, "make_default", old)
    assert "Only the current version" in told(response)
    response = act(admin_client, CompactionProfile, "make_default", new, before)
    assert "Select one profile" in told(response)
    assert find_profile() == before


def test_a_profile_is_never_deleted(admin_client):
    row = find_profile()
    address = reverse("admin:compaction_compactionprofile_delete", args=[row.pk])
    assert admin_client.post(address, {"post": "yes"}).status_code == 403


def test_a_profiles_page_explains_every_parameter(admin_client):
    page = admin_client.get(page_of(find_profile())).text
    assert "keep_last_n" in page
    assert "Messages that stay verbatim" in page
    assert "0 to 10,000 messages" in page
