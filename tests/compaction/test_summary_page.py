"""A summary's page: how much smaller, its versions, and the forms that make it again or undo it."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from compaction.admin.summary_panels import became
from compaction.models import CompactionRun, SessionSummary
from compaction.profiles import save_profile
from compaction.runs.resummarize import resummarize
from tests.compaction.support import NEVER, as_shown, compact, state
from tests.factories import SessionFactory, profile, store, talk
from tests.made_once import made_once

pytestmark = pytest.mark.django_db

ATTACK = "<script>alert(1)</script></svg>\u202e"


def page_of(row) -> str:
    name = f"{row._meta.app_label}_{row._meta.model_name}"
    return reverse(f"admin:{name}_change", args=[row.pk])


def compared(first, second) -> str:
    return reverse("admin:compaction_sessionsummary_compare", args=[first.pk, second.pk])


def do(client, summary, name: str, **data):
    url = reverse("admin:compaction_sessionsummary_do", args=[summary.pk, name])
    return client.post(url, data, follow=True)


def told(response) -> str:
    return " ".join(str(message) for message in response.context["messages"])


@pytest.fixture
@made_once
def session(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(6, marker=1))
    assert compact(session).status == "succeeded"
    return session


def test_a_sentence_says_what_became_of_the_tokens():
    assert became(14_500, 1_900) == "14,500 tokens became 1,900: 13 %"
    assert became(0, 0) == "0 tokens became 0"
    assert became(2_290, 9) == "2,290 tokens became 9: 0.4 %"


def test_a_request_that_became_no_smaller_is_said(admin_client, session):
    summary = SessionSummary.objects.get()
    for before, after, is_said in ((40, 80, True), (80, 80, True), (80, 40, False), (0, 0, False)):
        SessionSummary.objects.update(tokens_before=before, tokens_after=after)
        page = admin_client.get(page_of(summary)).text
        assert ("It is no smaller: a summary is sent in a frame" in page) == is_said


def test_the_bars_are_drawn_on_one_scale_and_said_in_words(admin_client, session):
    summary = SessionSummary.objects.get()
    SessionSummary.objects.update(
        tokens_before=14_500,
        tokens_after=2_900,
        approx_tokens=7_250,
        summary_tokens=675,
        compression_ratio=725 / 7_250,
    )
    page = admin_client.get(page_of(summary)).text
    drawing = re.search(r'<svg[^>]*class="ratio-bars".*?</svg>', page, re.S)[0]
    # 230 points for 14,500 tokens.
    widths = re.findall(r'class="ratio-(before|after)" [^>]*?width="([\d.]+)"', drawing)
    assert widths == [("before", "115"), ("after", "11.5"), ("before", "230"), ("after", "46")]
    assert "Of what was read, 7,250 tokens became 725: 10 %, as it is sent." in page
    assert "14,500 tokens became 2,900: 20 %." in page
    assert 'aria-label="Messages read 7,250 tokens, Summary as sent 725 tokens; Request' in drawing


def test_the_page_says_why_by_whom_and_at_what_cost(admin_client, session):
    SessionSummary.objects.update(cost=0.0123, prompt_version="2026-11-27.2")
    page = admin_client.get(page_of(SessionSummary.objects.get())).text
    assert "By hand (By hand); made by scripted, prompts of 2026-11-27.2, " in page
    assert "cost 0.0123" in page
    assert page_of(CompactionRun.objects.get()) in page
    assert "Run and its tree" in page


def test_versions_lead_to_each_other_and_to_their_comparison(admin_client, session):
    old = SessionSummary.objects.get()
    assert resummarize(old, instructions="Numbers.").status == "succeeded"
    new = SessionSummary.objects.get(status="active")
    later = admin_client.get(page_of(new)).text
    assert "Compare with the version it replaces" in later
    assert compared(old, new) in later
    assert "replaced by this one" in later
    earlier = admin_client.get(page_of(old)).text
    assert "Compare with" not in earlier
    assert compared(old, new) in earlier
    assert "replaces this one" in earlier


def test_without_an_older_version_the_previous_summary_is_offered(admin_client, session):
    first = SessionSummary.objects.get()
    store(session, talk(4, marker=50))
    compact(session)
    second = SessionSummary.objects.get(previous=first)
    page = admin_client.get(page_of(second)).text
    assert "Compare with the previous summary" in page
    assert compared(first, second) in page
    assert "Line of continuation" in page
    assert "continued by this one" in page
    assert "continues this one" in admin_client.get(page_of(first)).text


def test_it_is_made_again_with_instructions_and_another_profile(admin_client, session):
    other = save_profile(name="other", parameters={"target_summary_tokens": 300})
    old = SessionSummary.objects.get()
    page = admin_client.get(page_of(old)).text
    assert f'<option value="{other.pk}">other v1</option>' in page
    response = do(
        admin_client, old, "resummarise", instructions="Keep names.", profile=str(other.pk)
    )
    run = CompactionRun.objects.get(status="queued")
    assert (run.trigger, run.replaces, run.profile) == ("resummarize", old, other)
    assert run.instructions == "Keep names."
    assert run.requested_by.is_superuser
    assert page_of(run) in told(response)
    assert response.request["PATH_INFO"] == page_of(old)


def test_instructions_that_are_too_long_stay_in_the_form(admin_client, session):
    old = SessionSummary.objects.get()
    response = do(admin_client, old, "resummarise", instructions="x" * 4001)
    assert "Ensure this value has at most 4000 characters" in response.text
    assert '<details class="page-form" id="form-resummarise" open>' in response.text
    assert not CompactionRun.objects.filter(status="queued").exists()


def test_a_summary_that_others_rest_on_is_taken_back_with_them(admin_client, session):
    first = SessionSummary.objects.get()
    store(session, talk(4, marker=50))
    compact(session)
    refused = do(admin_client, first, "restore")
    assert "1 newer summary was built on this one." in refused.text
    assert SessionSummary.objects.filter(status="active").count() == 2
    shown = as_shown(do(admin_client, first, "restore", cascade="on"))
    done = do(admin_client, first, "restore", cascade="on", **shown)
    assert "and 1 newer summary no longer cover their 18 messages" in told(done)
    assert SessionSummary.objects.filter(status="restored").count() == 2
    assert state(session).cursor == 0


def test_a_summary_that_does_not_count_offers_to_count_again_and_nothing_else(
    admin_client, session
):
    summary = SessionSummary.objects.get()
    forms = re.compile(r' id="form-(\w+)"')
    assert "restore" in forms.findall(admin_client.get(page_of(summary)).text)
    SessionSummary.objects.update(status="restored")
    # Its instructions count for the next summary of its messages.
    found = forms.findall(admin_client.get(page_of(summary)).text)
    assert sorted(found) == ["activate", "instructions"]
    SessionSummary.objects.update(status="superseded")
    assert forms.findall(admin_client.get(page_of(summary)).text) == ["activate"]
    do(admin_client, summary, "restore")
    do(admin_client, summary, "resummarise")
    assert not CompactionRun.objects.filter(status="queued").exists()


def test_the_forms_need_their_permissions(client, session, django_user_model):
    summary = SessionSummary.objects.get()
    staff = django_user_model.objects.create_user("staff", password="x", is_staff=True)
    staff.user_permissions.add(Permission.objects.get(codename="view_sessionsummary"))
    client.force_login(staff)
    page = client.get(page_of(summary)).text
    assert 'id="form-' not in page
    assert do(client, summary, "restore").status_code == 403
    assert do(client, summary, "resummarise").status_code == 403
    staff.user_permissions.add(Permission.objects.get(codename="change_sessionsummary"))
    client.force_login(django_user_model.objects.get(pk=staff.pk))
    page = client.get(page_of(summary)).text
    assert "form-restore" in page
    assert "form-resummarise" not in page


def test_hostile_text_is_text(admin_client, session):
    SessionSummary.objects.update(
        summary_text=ATTACK + "w" * 5000, model=ATTACK, prompt_version=ATTACK[:40], reason="<b>"
    )
    page = admin_client.get(page_of(SessionSummary.objects.get())).text
    assert "<script>alert" not in page
    assert "</script></svg>" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert not re.search(r"\sstyle=|<style|\son\w+=", page)


def test_the_queries_do_not_grow_with_sources_and_versions(
    admin_client, owner, model_server, queued
):
    profile(**NEVER, keep_last_n=2)
    counts = []
    for turns, versions in ((8, 1), (40, 6)):
        fact = {"role": "user", "content": "The gate 7781 opens with the code ZX-4411."}
        session = SessionFactory(owner=owner, wires=[fact, *talk(turns)])
        compact(session)
        for _ in range(versions):
            resummarize(SessionSummary.objects.get(session=session, status="active"))
        newest = SessionSummary.objects.get(session=session, status="active")
        admin_client.get(page_of(newest))  # what a process reads once
        with CaptureQueriesContext(connection) as queries:
            page = admin_client.get(page_of(newest)).text
        assert page.count("side by side") == versions
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 16


def test_a_press_on_the_summary_leads_to_the_page_that_asks(admin_client, session):
    """Row, summary, press, confirm: a form that was to be unfolded first made it five."""
    summary = SessionSummary.objects.get()
    page = admin_client.get(page_of(summary)).text
    address = reverse("admin:compaction_sessionsummary_do", args=[summary.pk, "restore"])
    (form,) = re.findall(rf'<form method="post" action="{address}".*?</form>', page, re.S)
    # Nothing to fill in before, and nothing to unfold.
    assert re.findall(r'<(?:input|select|textarea)[^>]*name="(\w+)"', form) == [
        "csrfmiddlewaretoken"
    ]
    assert not re.search(r'<details[^>]*id="form-restore"', page)
    asked = do(admin_client, summary, "restore")
    assert "1 summary would count no more" in asked.text
    assert {"cascade", "instructions"} <= set(re.findall(r' name="(\w+)"', asked.text))
    summary.refresh_from_db()
    assert summary.status == "active"
    do(admin_client, summary, "restore", **as_shown(asked))
    summary.refresh_from_db()
    assert summary.status == "restored"


def test_the_summary_of_a_branch_offers_no_restore_that_would_be_refused(admin_client, session):
    summary = SessionSummary.objects.get()
    assert 'id="form-restore"' in admin_client.get(page_of(summary)).text
    SessionSummary.objects.update(kind="branch")
    assert 'id="form-restore"' not in admin_client.get(page_of(summary)).text
