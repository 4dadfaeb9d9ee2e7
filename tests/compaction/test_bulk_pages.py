"""Bulk jobs as operators see them; pages of running work; rows as they are stored."""

from __future__ import annotations

import re
from datetime import timedelta
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from chatapp.admin.toolkit import html
from chatapp.models import ImportJob, Session
from compaction.models import (
    BulkItem,
    BulkJob,
    CompactionRun,
    DailyFigures,
    RecoveryStep,
    RunTotals,
    SessionSummary,
)
from compaction.runs.bulk_work import work_at_bulk
from tests.compaction.recoveries import recovery_step_of, run_of
from tests.compaction.support import compact
from tests.factories import SessionFactory, UserFactory, profile, talk

pytestmark = pytest.mark.django_db
LIST = "/admin/chatapp/session/"
LIVE_PARTS = ("breadcrumbs", "subtitle", "tools", "notices", "panels", "fields", "tables")


def new_url(**asked) -> str:
    query = "&".join(f"{name}={value}" for name, value in asked.items())
    return reverse("admin:compaction_bulk_new") + (f"?{query}" if query else "")


def act(client, job, name):
    data = {"action": name, "_selected_action": [str(job.pk)], "index": "0", "from_page": "1"}
    return client.post(html.list_url(BulkJob), data, follow=True)


def words_of(response) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", response.text).split())


def operator(*permissions: str) -> Client:
    person = UserFactory(is_staff=True)
    person.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(person)
    return client


@pytest.fixture
def sessions():
    """Two summarised sessions of one owner, one of another, one without a summary."""
    profile(summariser="extractive", keep_last_n=2)
    mine, other = UserFactory(username="mine"), UserFactory(username="other")
    made = [SessionFactory(owner=owner, wires=talk(6)) for owner in (mine, mine, other)]
    for session in made:
        compact(session)
    SessionFactory(owner=mine, wires=talk(1))
    return made


def test_a_filter_is_priced_started_and_rolled_back_from_its_pages(admin_client, sessions):
    mine = sessions[0].owner_id
    listed = admin_client.get(LIST, {"owner__id__exact": mine})
    address = new_url(owner__id__exact=mine)
    assert html.link("Re-summarise all of these…", address) in listed.text
    page = words_of(admin_client.get(address))
    # Three sessions of this owner, one of them without a summary.
    assert "2 sessions with summaries" in page
    assert "The list holds 3 sessions with this filter." in page
    admin_client.post(address, {})
    job = BulkJob.objects.get()
    assert BulkItem.objects.filter(job=job).count() == 2
    work_at_bulk(job.pk)
    shown = admin_client.get(html.change_url(BulkJob, job.pk))
    tokens = sum(row.approx_tokens for row in SessionSummary.objects.filter(session__owner=mine))
    assert f"Tokens read {tokens:,} 0" in words_of(shown)
    assert "Nothing is asked of a model yet" in shown.text
    assert "data-live>" not in shown.text
    act(admin_client, job, "start")
    running = admin_client.get(html.change_url(BulkJob, job.pk)).text
    assert 'role="status" aria-live="polite" data-live>0 of 2 sessions taken.' in running
    work_at_bulk(job.pk)
    assert "Done 2" in words_of(admin_client.get(html.change_url(BulkJob, job.pk)))
    assert "is not possible" not in act(admin_client, job, "roll_back").text
    work_at_bulk(job.pk)
    job.refresh_from_db()
    assert job.status == BulkJob.Status.ROLLED_BACK
    assert not SessionSummary.objects.filter(status="active", supersedes__isnull=False).exists()


def test_a_button_that_comes_too_late_says_so(admin_client, sessions):
    job = BulkJob.objects.create(status="done")
    told = act(admin_client, job, "pause")
    assert "That is not possible now: done. Nothing was changed." in words_of(told)


def test_an_address_that_asks_for_what_cannot_be_leads_to_the_list(admin_client, sessions):
    response = admin_client.get(new_url(created_at__gte="nonsense"))
    assert response.status_code in (302, 400)
    assert not BulkJob.objects.exists()


def test_nothing_to_do_is_said_and_no_job_is_stored(admin_client):
    SessionFactory(wires=talk(1))
    page = admin_client.post(new_url(), {})
    assert "None of these sessions has a summary" in page.text
    assert not BulkJob.objects.exists()


def test_only_who_may_start_runs_is_offered_and_may_do_it(sessions):
    watching = operator("view_session", "view_bulkjob")
    assert "Re-summarise all" not in watching.get(LIST).text
    assert watching.get(new_url()).status_code == 403
    assert watching.post(new_url(), {}).status_code == 403
    acting = operator("view_session", "add_compactionrun", "view_bulkjob")
    assert acting.get(new_url()).status_code == 200


def test_what_a_paused_job_says_is_a_text(sessions):
    job = BulkJob.objects.create(status="paused", note="The last one said: a secret.")
    address = html.change_url(BulkJob, job.pk)
    assert "a secret" not in operator("view_bulkjob").get(address).text
    assert "a secret" in operator("view_bulkjob", "read_texts").get(address).text


# --- running work ---------------------------------------------------------------------------------


def test_pages_of_running_work_refresh_and_those_of_finished_work_do_not(admin_client):
    session = SessionFactory(wires=talk(1))
    run = run_of(session, 1, status="running", trigger="manual")
    job = ImportJob.objects.create(owner=session.owner, status="working", conversations_total=4)
    pages = {
        html.change_url(CompactionRun, run.pk): "Running: 2 model calls so far.",
        html.change_url(Session, session.pk): "A run works: 2 model calls so far.",
        html.change_url(ImportJob, job.pk): "Working: 0 of 4 conversations.",
    }
    for address, told in pages.items():
        page = admin_client.get(address).text
        assert (
            f'<p class="live-status" role="status" aria-live="polite" data-live>{told}</p>' in page
        )
        assert 'src="/static/chatapp/live.js" type="module"' in page
        for part in LIVE_PARTS:
            assert page.count(f'data-live-part="{part}"') == 1
    CompactionRun.objects.update(status="succeeded")
    ImportJob.objects.update(status="done")
    for address in pages:
        assert "data-live>" not in admin_client.get(address).text


@pytest.mark.parametrize("status", ["paused", "cancelled"])
def test_a_stopped_jobs_page_refreshes_until_what_was_begun_is_finished(admin_client, status):
    """It said 2 of 6 for ever, while the third summary was being made."""
    ends = timezone.now() + timedelta(minutes=1)
    job = BulkJob.objects.create(status=status, worker=uuid4(), lease_expires_at=ends)
    address = html.change_url(BulkJob, job.pk)
    told = "The summary that is being made is finished first."
    assert f"data-live>{told}</p>" in admin_client.get(address).text
    # Its worker has died: nothing comes any more.
    BulkJob.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1))
    assert "data-live>" not in admin_client.get(address).text
    BulkJob.objects.update(worker=None, lease_expires_at=None)
    assert "data-live>" not in admin_client.get(address).text


# --- rows as they are stored ----------------------------------------------------------------------


def test_totals_figures_and_recovery_steps_are_seen_and_changed_by_nobody(admin_client):
    session = SessionFactory(title="The harbour", wires=talk(1))
    run = run_of(session, 1, status="failed")
    step = recovery_step_of(session, 2, run=run, action="compact", outcome="smaller", text="<i>")
    totals = RunTotals.objects.create(status="failed", reason="window", mode="inline", runs=1234)
    day = DailyFigures.objects.create(
        day="2026-11-01", succeeded=5, tokens_saved=98765, refreshed_at=timezone.now()
    )
    for row, told in ((totals, "1,234"), (day, "98,765"), (step, "&lt;i&gt;")):
        model = type(row)
        assert told in admin_client.get(html.list_url(model)).text
        page = admin_client.get(html.change_url(model, row.pk))
        assert page.status_code == 200
        assert told in page.text
        assert admin_client.post(html.change_url(model, row.pk), {}).status_code == 403
    linked = html.list_url(RecoveryStep, session__id__exact=session.pk)
    assert linked in admin_client.get(html.change_url(Session, session.pk)).text
    assert admin_client.get(linked).context["cl"].result_count == 1


def test_a_summarys_text_stands_before_its_figures(admin_client):
    profile(summariser="extractive", keep_last_n=2)
    session = SessionFactory(wires=talk(6))
    compact(session)
    summary = SessionSummary.objects.get(session=session)
    page = admin_client.get(html.change_url(SessionSummary, summary.pk)).text
    headings = re.findall(r"<h2[^>]*>(.*?)</h2>", page)
    assert headings.index("Text") < headings.index("How much smaller")
    assert page.index(summary.summary_text[:20]) < page.index("How much smaller")
