"""Archives and drafts on the operators' pages: marked wherever they stand, and what they allow."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.urls import reverse

from chatapp.admin.timeline import timeline_sources
from chatapp.admin.toolkit.timeline import read_timeline
from chatapp.models import Session
from compaction.branches.leases import ensure_state
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.profiles import save_profile
from compaction.runs.worker import compact_branch
from tests.compaction.session_page import drawing_on, fates_on, meter_on, plain, titles_in
from tests.compaction.session_page import page_of as session_page
from tests.compaction.support import as_shown, state
from tests.factories import SessionFactory, talk

pytestmark = pytest.mark.django_db

LIST = "admin:compaction_sessionsummary_changelist"


@pytest.fixture
def session(owner, model_server, queued) -> Session:
    """Thirty messages of a window that keeps two and summarises ten at once, as drafts if ahead."""
    parameters = {
        "prepare_ratio": 0.0,
        "publish_when_needed": True,
        "tail_keep_size": 2,
        "batch_messages": 10,
        "minimum_batch": 10,
    }
    save_profile(name="window", base="sliding_window", parameters=parameters, make_default=True)
    return SessionFactory(owner=owner, wires=talk(15, marker=1))


def made(session: Session, reason: str) -> SessionSummary:
    """Return the summary that a run with this reason makes: `fallback digest`, or `ahead` for a
    draft.
    """
    CompactionRun.objects.filter(session=session, status="queued").delete()
    run = compact_branch(session=session, trigger="proactive", reason=reason)
    assert (run.status, run.error) == ("succeeded", "")
    CompactionRun.objects.filter(session=session, status="queued").delete()
    return SessionSummary.objects.get(run=run)


@pytest.fixture
def digest(session) -> SessionSummary:
    # So many failures of the preset lead to a fallback digest.
    CompactionState.objects.filter(pk=ensure_state(session.branch).pk).update(failures=6)
    summary = made(session, "archive")
    assert (summary.is_digest, summary.status) == (True, "active")
    return summary


@pytest.fixture
def draft(session) -> SessionSummary:
    summary = made(session, "ahead")
    assert (summary.is_digest, summary.status) == (False, "draft")
    return summary


def page_of(row) -> str:
    return reverse(f"admin:compaction_{row._meta.model_name}_change", args=[row.pk])


def badges(page: str) -> list[str]:
    return [plain(words) for words in re.findall(r'<span class="badge[^>]*>.*?</span>', page)]


def told(response) -> str:
    return " ".join(str(message) for message in response.context["messages"])


def act(client, action: str, summary: SessionSummary):
    chosen = {"action": action, "_selected_action": [str(summary.pk)], "index": "0"}
    response = client.post(reverse(LIST), chosen, follow=True)
    if action == "restore":
        response = client.post(reverse(LIST), chosen | as_shown(response), follow=True)
    return response


# --- fallback digests
# -------------------------------------------------------------------------------------


def test_an_archive_is_marked_in_lists_and_on_every_page(digest, session, admin_client):
    for address in (reverse(LIST), page_of(digest), session_page(session), page_of(digest.run)):
        assert "Fallback digest" in badges(admin_client.get(address).text), address


def test_archives_are_filtered(digest, admin_client):
    for value, count in (("1", 1), ("0", 0)):
        response = admin_client.get(reverse(LIST), {"is_digest__exact": value})
        assert len(response.context["cl"].result_list) == count


def test_an_archives_page_says_what_it_means_and_leads_to_the_form(digest, admin_client):
    page = admin_client.get(page_of(digest)).text
    assert "A fallback digest: no summariser could write a summary" in page
    assert '<a href="#form-resummarise">re-summarise it</a>' in page
    assert 'id="form-resummarise"' in page


def test_who_may_start_no_runs_is_led_to_no_form(digest, client):
    operator = get_user_model().objects.create_user("reader", is_staff=True)
    operator.user_permissions.add(Permission.objects.get(codename="view_sessionsummary"))
    client.force_login(operator)
    page = client.get(page_of(digest)).text
    assert "Who may start runs can have it summarised again." in page
    assert "#form-resummarise" not in page


def test_an_archive_that_was_replaced_offers_nothing(digest, admin_client):
    SessionSummary.objects.update(status="superseded")
    page = admin_client.get(page_of(digest)).text
    assert "A fallback digest: no summariser could write a summary" in page
    assert "#form-resummarise" not in page


def test_an_archive_has_its_own_pattern_in_the_strip(digest, session, admin_client):
    page = admin_client.get(session_page(session)).text
    strip = drawing_on(page, "strip")
    assert "part part-archive" in strip
    assert [said for said in titles_in(strip) if said.startswith("Fallback digest ")]
    assert "Fallback digest: stored unsummarised" in plain(page)


def test_a_message_says_that_an_archive_covers_it(digest, session, admin_client):
    page = admin_client.get(session_page(session, at=1)).text
    assert fates_on(page)["1"] == f"▤ Covered by summary {str(digest.pk)[-8:]} (a fallback digest)"


def test_an_archives_step_is_drawn_as_made_without_a_call(digest, admin_client):
    page = admin_client.get(page_of(digest.run)).text
    tree = re.search(r'<svg[^>]*class="run-tree.*?</svg>', page, re.DOTALL).group()
    (title,) = [said for said in titles_in(tree) if said.startswith("Step 1")]
    assert title.startswith("Step 1, archive, shortened: messages 1 to 10 (10), ")
    assert "made here without a model call" in page


def test_an_archives_step_shows_what_it_became(digest, admin_client):
    step = digest.run.steps.get()
    page = plain(admin_client.get(page_of(step)).text)
    assert "No model was asked: the text was shortened here, from the input below." in page
    assert "Shortened: made here without a model call" in page
    assert "[Archive: these messages could not be summarised" in page


def test_a_versions_table_and_the_comparison_tell_an_archive(digest, admin_client):
    newer = SessionSummary.objects.create(
        session=digest.session, branch=digest.branch, status="superseded", summary_text="S",
        trigger="resummarize", reason="resummarize", supersedes=digest,
        covers_from=digest.covers_from, covers_through=digest.covers_through,
    )  # fmt: skip
    assert "Fallback digest" in badges(admin_client.get(page_of(newer)).text)
    address = reverse("admin:compaction_sessionsummary_compare", args=[digest.pk, newer.pk])
    page = admin_client.get(address).text
    assert "Fallback digest" in badges(page)
    assert re.search(r"Fallback digest</t[hd]>\s*<td[^>]*>yes</td>\s*<td[^>]*>no</td>", page)


def test_the_timeline_says_what_an_archive_means(digest, session):
    (entry,) = read_timeline(session, timeline_sources()).entries
    assert entry.means.startswith("No summariser could be asked")


# --- drafts ---------------------------------------------------------------------------------------


def test_a_draft_reads_not_sent_yet_everywhere(draft, session, admin_client):
    for address in (reverse(LIST), page_of(draft), session_page(session), page_of(draft.run)):
        assert "Draft: not sent yet" in badges(admin_client.get(address).text), address
    assert ">Draft: not sent yet</a>" in admin_client.get(reverse(LIST)).text


def test_a_draft_covers_nothing(draft, session, admin_client):
    """Its messages are linked to it, and are sent verbatim all the same."""
    page = admin_client.get(session_page(session, at=1)).text
    assert state(session).cursor == 0
    assert draft.links.count() == 10
    assert fates_on(page)["1"] == "● Kept: sent verbatim"
    assert meter_on(page)["Summaries"] == "0"
    assert "part-summary" not in drawing_on(page, "strip")


def test_a_drafts_page_says_what_it_is_and_offers_no_form(draft, admin_client):
    page = admin_client.get(page_of(draft)).text
    assert "A draft: made ahead of need and not sent yet." in page
    assert "tokens would become" in page
    assert 'id="form-' not in page


@pytest.mark.parametrize("action", ["resummarise", "restore"])
def test_what_may_be_done_to_summaries_is_refused_for_a_draft(draft, admin_client, action):
    said = told(act(admin_client, action, draft))
    assert "It is a draft and not sent yet" in said
    draft.refresh_from_db()
    assert draft.status == "draft"
    assert not CompactionRun.objects.filter(trigger="resummarize").exists()


def test_the_forms_of_the_session_choose_from_no_draft(draft, session, admin_client):
    page = admin_client.get(session_page(session)).text
    assert 'id="form-restore"' not in page
    assert 'id="form-resummarise"' not in page


def test_the_timeline_does_not_say_that_a_draft_is_sent(draft, session):
    (entry,) = read_timeline(session, timeline_sources()).entries
    assert entry.means.startswith("A summary was made ahead and waits as a draft")


def test_the_list_of_sources_tells_those_of_a_draft(draft, admin_client):
    page = admin_client.get(reverse("admin:compaction_sessionsummarymessage_changelist")).text
    assert page.count(f"{str(draft.pk)[-8:]} (draft: not sent yet)") == 10
