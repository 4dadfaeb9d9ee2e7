"""Versions in the admin: activate one, write a text, and what bulk actions leave alone."""

from __future__ import annotations

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from compaction.models import CompactionRun, SessionSummary
from compaction.runs.resummarize import resummarize
from compaction.summaries.editing import edit_summary
from tests.compaction.support import NEVER, compact
from tests.compaction.test_summary_page import ATTACK, compared, do, page_of, told
from tests.factories import SessionFactory, profile, store, talk

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2, target_summary_tokens=300)
    session = SessionFactory(owner=owner, wires=talk(6, marker=1))
    assert compact(session, instructions="Keep the dates.").status == "succeeded"
    return session


@pytest.fixture
def one(session) -> SessionSummary:
    return SessionSummary.objects.get()


@pytest.fixture
def other(one) -> SessionSummary:
    """The version that counts; `one` is superseded."""
    assert resummarize(one).status == "succeeded"
    one.refresh_from_db()
    return SessionSummary.objects.get(status="active")


def counting() -> SessionSummary:
    return SessionSummary.objects.get(status="active")


def operator(client, django_user_model, *codenames: str):
    user = django_user_model.objects.create_user("staff", password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client.force_login(user)
    return client


def test_the_page_of_a_version_that_does_not_count_activates_it(admin_client, one, other):
    page = admin_client.get(page_of(one)).text
    assert 'id="form-activate"' in page
    assert 'id="form-edit"' not in page
    sentence = told(do(admin_client, one, "activate"))
    assert "counts again" in sentence
    assert "The next request holds its text." in sentence
    assert counting() == one
    entry = LogEntry.objects.latest("pk")
    assert entry.change_message.startswith("Activate this version: ")
    assert 'id="form-activate"' not in admin_client.get(page_of(one)).text
    assert 'id="form-activate"' in admin_client.get(page_of(other)).text


def test_newer_ones_are_asked_about_in_the_form(admin_client, session, one, other):
    store(session, talk(3, marker=20))
    compact(session)
    refused = do(admin_client, one, "activate")
    assert "A newer summary" in refused.text
    assert '<details class="page-form" id="form-activate" open>' in refused.text
    sentence = told(do(admin_client, one, "activate", newer="restore"))
    assert "1 newer one taken back" in sentence
    assert counting() == one


def test_the_comparison_activates_either_side_and_comes_back(admin_client, one, other):
    url = compared(one, other)
    page = admin_client.get(url).text
    left, right = page.split('aria-label="Newer"')
    address = reverse("admin:compaction_sessionsummary_do", args=[one.pk, "activate"])
    assert f'action="{address}"' in left
    assert "Activate this version" not in right
    done = admin_client.post(address, {"compare": str(other.pk), "newer": ""}, follow=True)
    assert done.redirect_chain[-1][0] == compared(one, other)
    assert "counts again" in told(done)
    left, right = done.text.split('aria-label="Newer"')
    assert "Activate this version" not in left.split("What else differs")[0]
    assert "Activate this version" in right


@pytest.mark.parametrize("compare", ["no id", "../../", ""])
def test_nothing_but_an_id_leads_to_a_comparison(admin_client, one, other, compare):
    address = reverse("admin:compaction_sessionsummary_do", args=[one.pk, "activate"])
    done = admin_client.post(address, {"compare": compare, "newer": ""}, follow=True)
    assert done.redirect_chain[-1][0] == page_of(one)


def test_a_text_is_edited_on_the_page(admin_client, admin_user, one):
    page = admin_client.get(page_of(one)).text
    area = re.search(r'<textarea name="text"[^>]*>\s*(.*?)</textarea>', page, re.S)[1]
    assert area == one.summary_text
    sentence = told(do(admin_client, one, "edit", text="Three poles.", instructions="Keep dates."))
    assert "holds your text and counts from now on" in sentence
    own = counting()
    assert (own.summary_text, own.author, own.instructions) == (
        "Three poles.",
        admin_user,
        "Keep dates.",
    )
    page = admin_client.get(page_of(own)).text
    assert f"Written by {admin_user.username} (" in page
    assert "no program replaces it unless somebody asks for that" in page
    assert "Written by a person" in page
    assert f"written by {admin_user.username}, no price." in page
    assert "Not measured yet: a person wrote the text, and a worker measures it." in page
    assert "Its lines have no sources yet: a person wrote them" in page


def test_a_text_that_cannot_be_stored_stands_in_the_form_as_it_was(admin_client, one):
    refused = do(admin_client, one, "edit", text="lorem " * 2000, instructions="")
    assert "at most 600 may be stored" in refused.text
    assert '<details class="page-form" id="form-edit" open>' in refused.text
    assert counting() == one


def test_hostile_texts_are_texts(admin_client, one):
    do(admin_client, one, "edit", text=ATTACK, instructions=ATTACK)
    own = counting()
    assert own.summary_text == ATTACK.strip()
    for page in (page_of(own), compared(one, own)):
        assert "<script>alert(1)" not in admin_client.get(page).text


def test_times_of_statuses_are_shown_where_they_are_known(admin_client, one, other):
    do(admin_client, one, "activate")
    page = admin_client.get(page_of(one)).text
    assert "Status since" in page
    assert "Counted last from" in page
    assert "Superseded last" in page
    assert "Taken back last" not in page
    SessionSummary.objects.update(activated_at=None, superseded_at=None, updated_at=None)
    page = admin_client.get(page_of(one)).text
    assert "Counted last from" not in page
    assert "Status since" not in page


def test_the_form_to_re_summarise_holds_the_instructions(admin_client, one):
    page = admin_client.get(page_of(one)).text
    form = page[page.index('id="form-resummarise"') :]
    assert "Keep the dates.</textarea>" in form
    assert "replace_edited" not in form
    do(admin_client, one, "resummarise", instructions="")
    assert CompactionRun.objects.latest("created_at").instructions == ""


def test_a_persons_text_is_made_again_only_where_that_is_said(admin_client, owner, one):
    own = edit_summary(one, text="Three poles.", author=owner).summary
    runs = CompactionRun.objects.count()
    refused = do(admin_client, own, "resummarise", instructions="")
    assert "Replace the text that a person wrote" in refused.text
    assert CompactionRun.objects.count() == runs
    do(admin_client, own, "resummarise", instructions="", replace_edited="on")
    assert CompactionRun.objects.latest("created_at").replaces == own


def test_the_action_for_many_leaves_it_alone_and_says_why(admin_client, owner, one):
    own = edit_summary(one, text="Three poles.", author=owner).summary
    runs = CompactionRun.objects.count()
    url = reverse("admin:compaction_sessionsummary_changelist")
    chosen = {"action": "resummarise", "_selected_action": [str(own.pk)]}
    assert "A person wrote this text" in told(admin_client.post(url, chosen, follow=True))
    assert CompactionRun.objects.count() == runs


def test_it_takes_the_permissions(client, django_user_model, one, other):
    reader = operator(client, django_user_model, "view_sessionsummary", "view_message")
    page = reader.get(page_of(one)).text
    assert 'id="form-activate"' not in page
    assert "Activate this version" not in reader.get(compared(one, other)).text
    for row, act in ((one, "activate"), (other, "edit")):
        address = reverse("admin:compaction_sessionsummary_do", args=[row.pk, act])
        assert reader.post(address, {"text": "x"}).status_code == 403


def test_who_may_not_see_texts_activates_and_does_not_edit(client, django_user_model, one, other):
    codenames = ("view_sessionsummary", "change_sessionsummary", "add_compactionrun")
    staff = operator(client, django_user_model, *codenames)
    page = staff.get(page_of(other)).text
    assert 'id="form-edit"' not in page
    assert "Keep the dates." not in page
    # What is not shown cannot have been taken away.
    do(staff, other, "resummarise", instructions="")
    run = CompactionRun.objects.latest("created_at")
    assert (run.instructions, run.replaces_instructions) == ("", False)
    do(staff, one, "activate")
    assert counting() == one


def test_the_queries_of_the_page_do_not_grow_with_the_versions(admin_client, owner, one):
    edit_summary(one, text="First.", author=owner)
    counts = []
    for text in ("Second.", "Third.", "Fourth."):
        own = edit_summary(counting(), text=text, author=owner).summary
        with CaptureQueriesContext(connection) as queries:
            admin_client.get(page_of(own))
        counts.append(len(queries))
    assert counts[1] == counts[2]
