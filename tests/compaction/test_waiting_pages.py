"""Runs that wait for a time, and what the front page says should be looked at now."""

from __future__ import annotations

import re
import uuid
from datetime import timedelta
from html import unescape

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.urls import reverse
from django.utils import timezone

from chatapp.admin.timeline import timeline_sources
from chatapp.admin.toolkit.timeline import read_timeline
from compaction.attention.listing import needs_look
from compaction.models import CompactionRun, CompactionState, ModelBreaker, WorkerHeartbeat
from compaction.profiles import find_profile
from compaction.statistics.daily import refresh_figures
from tests.compaction.session_page import page_of as session_page
from tests.compaction.session_page import plain
from tests.factories import SessionFactory

pytestmark = pytest.mark.django_db

SENTENCE = "Model m has failed 5 times in a row <b>; it is left alone."
RUNS = "admin:compaction_compactionrun_changelist"


@pytest.fixture
def session(owner, queued):
    return SessionFactory(owner=owner)


def a_run(session, status: str = "queued", **columns) -> CompactionRun:
    base = {"trigger": "proactive", "reason": "message_window", "mode": "background"}
    return CompactionRun.objects.create(
        session=session, branch=session.branch, profile=find_profile(), status=status,
        **(base | columns),
    )  # fmt: skip


def a_waiting_run(session, *, minutes: int = 10, **columns) -> CompactionRun:
    until = timezone.now() + timedelta(minutes=minutes)
    told = {"error_code": "breaker_open", "error": SENTENCE}
    return a_run(session, waits_until=until, **(told | columns))


def page_of(run: CompactionRun) -> str:
    return reverse("admin:compaction_compactionrun_change", args=[run.pk])


def waiting_part(page: str) -> str:
    found = re.search(r'<div class="explained explained-queued">.*?</div>', page, re.DOTALL)
    return plain(found[0]) if found else ""


def waiting_until(run: CompactionRun) -> str:
    """What a list says of a run: the hour, and before midnight also the day."""
    return f"Waiting until ([0-9]+ [A-Z][a-z]+, )?{timezone.localtime(run.waits_until):%H:%M}"


def cancel(client, run: CompactionRun) -> str:
    chosen = {"action": "cancel", "_selected_action": [str(run.pk)], "index": "0"}
    response = client.post(reverse(RUNS), chosen, follow=True)
    run.refresh_from_db()
    return plain(" ".join(str(message) for message in response.context["messages"]))


# --- a run that waits -----------------------------------------------------------------------------


def test_the_list_says_until_when_a_run_waits(session, admin_client):
    run = a_waiting_run(session)
    for address in (reverse(RUNS), session_page(session)):
        assert re.search(waiting_until(run), plain(admin_client.get(address).text))


@pytest.mark.parametrize("minutes", [None, -1])
def test_a_run_that_waits_for_a_worker_alone_is_queued(session, admin_client, minutes):
    waits = {} if minutes is None else {"waits_until": timezone.now() + timedelta(minutes=minutes)}
    a_run(session, **waits)
    page = plain(admin_client.get(reverse(RUNS)).text)
    assert "Waiting until" not in page
    assert "Queued" in page


def test_its_page_says_why_it_waits_and_what_can_be_done(session, admin_client):
    page = admin_client.get(page_of(a_waiting_run(session))).text
    said = waiting_part(page)
    assert SENTENCE in said
    assert "It goes on by itself after " in said
    assert "Mend the model's server or key." in said
    breakers = reverse("admin:compaction_modelbreaker_changelist")
    assert f'href="{breakers}?state=open"' in page
    assert "<b>" not in page[page.index("explained-queued") : page.index("Open breakers")]


def test_a_run_that_waits_for_something_else_names_no_breaker(session, admin_client):
    page = admin_client.get(page_of(a_waiting_run(session, error_code="", error=""))).text
    assert "It was put off." in waiting_part(page)
    assert "Open breakers" not in page


def test_its_page_says_when_its_time_has_come(session, admin_client):
    page = admin_client.get(page_of(a_waiting_run(session, minutes=-1))).text
    assert "Its time has come: the next sweep, once a minute, gives it to a worker." in page


def test_a_run_that_only_waits_for_a_worker_has_no_such_part(session, admin_client):
    assert waiting_part(admin_client.get(page_of(a_run(session))).text) == ""


def test_runs_that_wait_for_a_time_are_filtered(session, owner, admin_client):
    waiting = a_waiting_run(session)
    a_run(SessionFactory(owner=owner))
    a_waiting_run(SessionFactory(owner=owner), minutes=-1)
    found = admin_client.get(reverse(RUNS), {"status": "waiting"}).context["cl"].result_list
    assert [run.pk for run in found] == [waiting.pk]


def test_the_timeline_says_that_it_goes_on_by_itself(session):
    run = a_waiting_run(session)
    (entry,) = read_timeline(session, timeline_sources()).entries
    assert re.fullmatch(waiting_until(run), entry.label)
    assert entry.means.startswith("It waits, and goes on by itself")


def test_a_runs_page_says_how_many_tokens_its_calls_took(session, admin_client):
    page = plain(admin_client.get(page_of(a_run(session, "failed", spent_tokens=12_345))).text)
    assert "Tokens spent: 12,345 in and out of a model" in page


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("archive", "Stored unsummarised"),
        ("ahead", "Ahead of need"),
        ("message_window", "Window of messages full"),
        ("maximum_age", "Messages waited long enough"),
        ("hard_limit", "Hard limit reached"),
    ],
)
def test_reasons_of_the_window_have_words(session, admin_client, reason, words):
    run = a_run(session, "failed", reason=reason)
    assert f"Reason: {words}" in plain(admin_client.get(page_of(run)).text)


# --- cancelling -----------------------------------------------------------------------------------


def test_a_waiting_run_is_cancelled_from_its_page(session, admin_client):
    run = a_waiting_run(session)
    CompactionState.objects.create(branch=session.branch)
    assert 'name="action" value="cancel"' in admin_client.get(page_of(run)).text
    said = cancel(admin_client, run)
    assert (run.status, run.waits_until) == ("cancelled", None)
    assert f"Run {str(run.pk)[-8:]} is cancelled." in said
    assert "Automatic runs of its branch wait until " in said


def test_cancelling_a_running_run_says_when_it_stops(session, admin_client):
    said = cancel(admin_client, a_run(session, "running", trigger="manual"))
    assert said.endswith("is cancelled. Its worker stops before its next model call.")


def test_cancelling_what_was_asked_by_hand_holds_nothing_off(session, admin_client):
    run = a_run(session, trigger="manual")
    CompactionState.objects.create(branch=session.branch)
    assert cancel(admin_client, run) == f"Run {str(run.pk)[-8:]} is cancelled."


# --- the front page -------------------------------------------------------------------------------


def attentions(client) -> list[tuple[str, str, str]]:
    """Return (tone, words, address) of every line of the front page."""
    found = re.findall(
        r'<li class="attention attention-(\w+)"><a href="([^"]+)">([^<]+)</a>',
        client.get("/admin/").text,
    )
    return [(tone, words, unescape(url)) for tone, url, words in found]


def an_open_breaker(model: str) -> ModelBreaker:
    now = timezone.now()
    return ModelBreaker.objects.create(model=model, failures=5, opened_at=now, retry_at=now)


def a_worker(run: CompactionRun | None, *, silent_for: int) -> WorkerHeartbeat:
    beat_at = timezone.now() - timedelta(seconds=silent_for)
    return WorkerHeartbeat.objects.create(
        id=uuid.uuid4(), kind="queue", host="alpha", pid=1, run=run, beat_at=beat_at
    )


def test_nothing_is_said_where_all_is_well(session, admin_client):
    ModelBreaker.objects.create(model="m", failures=2)
    a_worker(a_run(session), silent_for=170)
    # An idle process, or one that ended, tells nothing.
    a_worker(None, silent_for=4000)
    assert attentions(admin_client) == []


def test_silent_workers_and_waiting_runs_are_counted(session, owner, admin_client):
    # Open breakers stand in the list above, each by itself.
    an_open_breaker("a")
    an_open_breaker("b")
    a_worker(a_run(session, "running"), silent_for=190)
    a_waiting_run(session)
    found = attentions(admin_client)
    kinds = {(item.kind.name, item.subject) for item in needs_look().items}
    assert {("summariser_failing", "a"), ("summariser_failing", "b")} <= kinds
    assert [(tone, words) for tone, words, _ in found] == [
        ("bad", "1 worker fell silent"),
        ("busy", "1 run waits"),
    ]


def test_a_run_that_waits_for_a_time_makes_the_queue_no_older(session, admin_client):
    """Otherwise the page would ask whether a worker runs."""
    a_waiting_run(session, created_at=timezone.now() - timedelta(hours=3))
    refresh_figures()
    page = plain(admin_client.get("/admin/").text)
    assert "Queue age 0 s Nothing waits" in page


def test_every_line_leads_to_exactly_its_rows(session, owner, admin_client):
    an_open_breaker("a")
    ModelBreaker.objects.create(model="closed")
    silent = a_worker(a_run(session, "running"), silent_for=190)
    a_worker(None, silent_for=190)
    waiting = a_waiting_run(session)
    a_run(SessionFactory(owner=owner))
    rows = [
        [row.pk for row in admin_client.get(url).context["cl"].result_list]
        for _, _, url in attentions(admin_client)
    ]
    assert rows == [[silent.pk], [waiting.pk]]


def test_operators_are_told_only_of_lists_that_they_may_see(session, client):
    operator = get_user_model().objects.create_user("reader", is_staff=True)
    for name in ("view_compactionrun", "view_sessionsummary"):
        operator.user_permissions.add(Permission.objects.get(codename=name))
    client.force_login(operator)
    an_open_breaker("a")
    a_worker(a_run(session, "running"), silent_for=190)
    a_waiting_run(session)
    assert [words for _, words, _ in attentions(client)] == ["1 run waits"]
