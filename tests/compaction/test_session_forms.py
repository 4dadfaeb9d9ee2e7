"""What an operator does on a session's page: compact, make again, change the profile, restore."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.urls import reverse

from chatapp.models import Session
from compaction.branches.leases import Lease
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.profiles import save_profile
from compaction.runs.worker import compact_branch
from tests.compaction.session_page import do_of, page_of, plain
from tests.compaction.support import NEVER, as_shown, compact, state
from tests.factories import SessionFactory, profile, store, talk

pytestmark = pytest.mark.django_db
LABELS = (
    "Compact now",
    "Re-summarise the newest summary",
    "Change profile",
    "Restore the messages of a summary",
)


@pytest.fixture
def session(owner, model_server, queued) -> Session:
    profile(**NEVER, keep_last_n=2)
    return SessionFactory(owner=owner, title="Boots", wires=talk(6))


@pytest.fixture
def twice(session) -> Session:
    """A session with two summaries: positions 1 to 10, and 11 to 18."""
    compact(session)
    store(session, talk(4))
    compact(session)
    return session


def do(client, session: Session, form: str, **data):
    return client.post(do_of(session, form), data, follow=True)


def told(response) -> str:
    return " ".join(str(message) for message in response.context["messages"])


def run_page(run: CompactionRun) -> str:
    return reverse("admin:compaction_compactionrun_change", args=[run.pk])


def test_compact_now_queues_a_run_that_is_told_everything(
    session, admin_client, queued, django_capture_on_commit_callbacks
):
    with django_capture_on_commit_callbacks(execute=True):
        response = do(
            admin_client, session, "compact", instructions="Keep <prices>.", keep_last_n="4"
        )
    run = CompactionRun.objects.get()
    assert (run.trigger, run.status, run.mode) == ("manual", "queued", "background")
    assert (run.instructions, run.keep_last_n) == ("Keep <prices>.", 4)
    assert run.requested_by.username == "admin"
    assert queued == [("compaction.tasks.run_compaction", str(run.pk))]
    assert response.request["PATH_INFO"] == page_of(session)
    assert run_page(run) in told(response)


def test_compact_now_needs_no_words(session, admin_client):
    do(admin_client, session, "compact")
    run = CompactionRun.objects.get()
    assert (run.instructions, run.keep_last_n) == ("", None)


@pytest.mark.parametrize("wrong", ["-1", "many", "99999999999999999999", "2.5"])
def test_a_wrong_number_is_refused_in_the_form(session, admin_client, wrong):
    response = do(admin_client, session, "compact", keep_last_n=wrong, instructions="KEEP-THIS")
    assert response.status_code == 200
    assert '<details class="page-form" id="form-compact" open>' in response.text
    assert "KEEP-THIS" in response.text
    assert not CompactionRun.objects.exists()


def test_the_newest_summary_is_made_again_with_another_profile(twice, admin_client):
    other = save_profile(name="other", parameters={})
    response = do(
        admin_client, twice, "resummarise", instructions="Name the places.", profile=str(other.pk)
    )
    run = CompactionRun.objects.get(status="queued")
    newest = SessionSummary.objects.order_by("-covers_through").first()
    assert (run.trigger, run.replaces, run.profile) == ("resummarize", newest, other)
    assert run.instructions == "Name the places."
    assert run_page(run) in told(response)


def test_a_profile_that_does_not_exist_is_refused(twice, admin_client):
    for form in ("resummarise", "profile"):
        response = do(admin_client, twice, form, profile="none-such")
        assert "not one of the available choices." in plain(response.text)
    assert not CompactionRun.objects.filter(status="queued").exists()
    assert state(twice).profile == ""


def test_a_session_gets_a_profile_of_its_own_and_goes_back_to_the_default(session, admin_client):
    save_profile(name="other", parameters={})
    response = do(admin_client, session, "profile", profile="other")
    assert state(session).profile == "other"
    assert "The session uses profile other v1 from now on." in plain(told(response))
    assert '<option value="other" selected>other</option>' in response.text
    assert "other v1 (the session's own)" in plain(response.text)
    response = do(admin_client, session, "profile", profile="")
    assert state(session).profile == ""
    assert "The session uses the default profile, test v1." in plain(told(response))


def test_the_newest_summary_is_taken_back(twice, admin_client):
    newest = SessionSummary.objects.order_by("-covers_through").first()
    page = admin_client.get(page_of(twice)).text
    # A press leads to the page that asks, where another one can be chosen.
    assert '<button type="submit">Restore the messages of a summary</button>' in page
    pressed = plain(do(admin_client, twice, "restore").text)
    assert f"{str(newest.pk)[-8:]}: 8 messages, positions 11 – 18" in pressed
    assert "1 summary would count no more: 8 messages would be sent" in pressed
    asked = do(admin_client, twice, "restore", summary=str(newest.pk))
    newest.refresh_from_db()
    assert newest.status == "active"
    assert "1 summary would count no more: 8 messages would be sent" in plain(asked.text)
    assert f'value="{newest.pk}" selected' in asked.text
    assert 'name="confirmed" value="yes"' in asked.text
    response = do(admin_client, twice, "restore", summary=str(newest.pk), **as_shown(asked))
    newest.refresh_from_db()
    assert newest.status == "restored"
    assert state(twice).cursor == 10_000_000
    assert (
        "no longer covers its 8 messages: they are sent verbatim again, held until somebody lifts "
        "it." in plain(told(response))
    )


def test_another_choice_on_the_page_that_asks_is_told_of_before_it_is_done(twice, admin_client):
    newest = SessionSummary.objects.order_by("-covers_through").first()
    oldest = SessionSummary.objects.order_by("covers_through").first()
    shown = as_shown(do(admin_client, twice, "restore"))
    both = {"summary": str(oldest.pk), "cascade": "on"}
    again = do(admin_client, twice, "restore", **both, **shown)
    assert SessionSummary.objects.filter(status="active").count() == 2
    assert "this is what would happen now. Nothing was done yet." in plain(again.text)
    assert "2 summaries would count no more: 18 messages would be sent" in plain(again.text)
    do(admin_client, twice, "restore", **both, **as_shown(again))
    assert not SessionSummary.objects.filter(status="active").exists()
    newest.refresh_from_db()
    assert newest.status == "restored"


def test_a_conversation_that_went_on_meanwhile_is_told_of_anew(twice, admin_client):
    shown = as_shown(do(admin_client, twice, "restore"))
    newest = SessionSummary.objects.order_by("-covers_through").first()
    compact_branch(session=twice, trigger="manual", reason="manual", keep_last_n=1)
    again = do(admin_client, twice, "restore", **shown).text
    newest.refresh_from_db()
    assert newest.status == "active"
    assert 'name="confirmed"' in again


@pytest.mark.parametrize("shown", [{}, {"previewed": ""}, {"previewed": "0" * 64}], ids=str)
def test_a_yes_to_nothing_that_was_shown_does_nothing(twice, admin_client, shown):
    """As from a page of an older release, or from a script that never asked."""
    again = do(admin_client, twice, "restore", confirmed="yes", **shown).text
    assert SessionSummary.objects.filter(status="active").count() == 2
    assert "Nothing was done yet." in plain(again)
    assert "1 summary would count no more: 8 messages would be sent" in plain(again)
    again = act_on(admin_client, SessionSummary.objects.all(), confirmed="yes", **shown).text
    assert SessionSummary.objects.filter(status="active").count() == 2
    assert "2 summaries would count no more" in plain(again)


def act_on(client, rows, **data):
    """Choose summaries in their list, and restore them."""
    chosen = {"action": "restore", "_selected_action": [str(row.pk) for row in rows]}
    address = reverse("admin:compaction_sessionsummary_changelist")
    return client.post(address, chosen | data, follow=True)


def test_several_of_a_session_are_told_of_as_they_are_taken_back(twice, owner, admin_client):
    """The older one can be restored, since the newer one goes before it."""
    other = SessionFactory(owner=owner, wires=talk(6))
    compact(other)
    rows = list(SessionSummary.objects.filter(status="active"))
    assert len(rows) == 3
    asked = plain(act_on(admin_client, rows).text)
    assert "2 summaries would count no more: 18 messages would be sent verbatim again." in asked
    assert "1 summary would count no more: 10 messages would be sent verbatim again." in asked
    assert "built on this one" not in asked
    act_on(admin_client, rows, **as_shown(act_on(admin_client, rows)))
    assert not SessionSummary.objects.filter(status="active").exists()


def test_one_that_would_be_refused_says_why_in_its_place(twice, admin_client):
    oldest = SessionSummary.objects.order_by("covers_through").first()
    asked = plain(act_on(admin_client, [oldest]).text)
    assert f"Summary {str(oldest.pk)[-8:]}: 1 newer summary was built on this one." in asked


def test_an_older_summary_needs_the_newer_ones_to_go_too(twice, admin_client):
    oldest = SessionSummary.objects.order_by("covers_through").first()
    response = do(admin_client, twice, "restore", summary=str(oldest.pk))
    assert "1 newer summary was built on this one." in plain(response.text)
    assert '<details class="page-form" id="form-restore" open>' in response.text
    assert state(twice).cursor == 18_000_000
    asked = {"summary": str(oldest.pk), "cascade": "on"}
    shown = as_shown(do(admin_client, twice, "restore", **asked))
    response = do(admin_client, twice, "restore", **asked, **shown)
    assert not SessionSummary.objects.filter(status="active").exists()
    assert state(twice).cursor == 0
    assert "and 1 newer summary no longer cover their 18 messages" in plain(told(response))


def test_nothing_is_restored_while_a_worker_holds_the_branch(twice, admin_client):
    newest = SessionSummary.objects.order_by("-covers_through").first()
    shown = as_shown(do(admin_client, twice, "restore", summary=str(newest.pk)))
    Lease.acquire_or_steal(twice.branch.pk, newest.pk)
    response = do(admin_client, twice, "restore", summary=str(newest.pk), **shown)
    assert "Another run is compacting this branch" in response.text
    newest.refresh_from_db()
    assert newest.status == "active"


def test_a_summary_of_another_session_is_no_choice(twice, owner, admin_client):
    other = SessionFactory(owner=owner, wires=talk(6))
    compact_branch(session=other, trigger="manual", reason="manual")
    theirs = SessionSummary.objects.get(session=other)
    response = do(admin_client, twice, "restore", summary=str(theirs.pk))
    assert "is not one of the available choices" in response.text
    theirs.refresh_from_db()
    assert theirs.status == "active"


def test_forms_that_make_no_sense_are_not_offered(session, owner, admin_client):
    page = admin_client.get(page_of(session)).text
    assert [f"<summary>{label}</summary>" in page for label in LABELS] == [True, False, True, False]
    broken = Session.objects.create(owner=owner, title="Broken")
    page = admin_client.get(page_of(broken)).text
    assert [f"<summary>{label}</summary>" in page for label in LABELS] == [False] * 4
    for form in ("compact", "resummarise", "profile", "restore"):
        assert do(admin_client, broken, form).status_code == 200
    assert not CompactionRun.objects.exists()


@pytest.mark.parametrize(
    ("code", "forms"),
    [
        ("add_compactionrun", ("compact", "resummarise")),
        ("change_compactionstate", ("profile",)),
        ("change_sessionsummary", ("restore",)),
    ],
)
def test_each_form_needs_its_permission(twice, client, admin_client, code, forms):
    staff = get_user_model().objects.create_user("staff", password="x", is_staff=True)
    wanted = Permission.objects.filter(codename__in=["view_session", code])
    staff.user_permissions.set(wanted)
    client.force_login(staff)
    page = client.get(page_of(twice)).text
    newest = SessionSummary.objects.order_by("-covers_through").first()
    chosen = {"summary": str(newest.pk)}
    data = chosen | {"profile": ""} | as_shown(do(admin_client, twice, "restore", **chosen))
    for form in ("compact", "resummarise", "profile", "restore"):
        assert (f'id="form-{form}"' in page) == (form in forms)
        status = client.post(do_of(twice, form), data).status_code
        assert status == (302 if form in forms else 403)


def test_a_form_that_is_only_looked_at_does_nothing(twice, admin_client):
    assert admin_client.get(do_of(twice, "compact")).status_code == 302
    assert not CompactionRun.objects.filter(status="queued").exists()
    assert CompactionState.objects.get(pk=twice.branch.pk).cursor == 18_000_000


def test_what_an_operator_did_stands_in_the_history_under_their_name(admin_client, owner, queued):
    session = SessionFactory(owner=owner)
    admin_client.post(reverse("admin:chatapp_session_do", args=[session.pk, "compact"]))
    entry = LogEntry.objects.get(object_id=str(session.pk))
    assert entry.user.username == "admin"
    assert entry.change_message.startswith("Compact now: ")
    assert "is queued" in entry.change_message
