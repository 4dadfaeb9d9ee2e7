"""The page that compares profiles: asked for, watched, cancelled, priced; for whom."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.cache import cache
from django.test import Client

from compaction import tasks
from compaction.admin.comparison_plot import lines_of, sent_plot, sent_table
from compaction.comparison import jobs
from compaction.models import CompactionProfile, CompactionRun, SessionSummary
from compaction.profiles import save_profile
from compaction.runs import queue
from tests.factories import SessionFactory, talk

pytestmark = pytest.mark.django_db
ADDRESS = "/admin/compaction/compare-profiles/"
ATTACK = '"></svg><script>alert(1)</script>'
# What survives is told by kind: these are the kind `markers`.
MARKER = "MK-{:04d}"
SEES = ("view_session", "read_texts")


@pytest.fixture
def session(owner, model_server, queued):
    return SessionFactory(owner=owner, wires=talk(30, marker=1, mark=MARKER.format))


@pytest.fixture(autouse=True)
def empty_cache():
    yield
    cache.clear()


def staff(*codenames: str, name: str = "staff") -> Client:
    user = get_user_model().objects.create(username=name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


def begin(client, session, *profiles: str, commit, **changes) -> str:
    """Send the form; return the address that it leads to."""
    data = {"sessions": str(session.pk), "profiles": profiles or ["bisect"], "model": "embedded"}
    with commit(execute=True):
        response = client.post(ADDRESS, data | changes)
    assert response.status_code == 302, unescape(response.content.decode())[-3000:]
    return response["Location"]


def work(queued) -> str:
    """Do what waits in the queue, as a worker does."""
    task, key = queued.pop()
    assert task == queue.COMPARE_TASK
    return tasks.compare_profiles(key)


def text_of(response) -> str:
    assert response.status_code == 200
    return unescape(response.content.decode())


# --- from the form to the result ------------------------------------------------------------------


def test_a_worker_compares_and_the_page_shows_figures_plot_and_table(
    session, queued, django_capture_on_commit_callbacks
):
    client = staff(*SEES)
    address = begin(
        client, session, "bisect", "balanced", commit=django_capture_on_commit_callbacks
    )
    waiting = client.get(address)
    # A part after the other is refreshed, and the page is never loaded anew as a whole.
    assert "data-live>Waiting for a worker" in text_of(waiting)
    assert "Refresh" not in waiting
    assert 'src="/static/chatapp/live.js" type="module"' in text_of(waiting)
    parts = re.findall(r'data-live-part="(\w+)"', text_of(waiting))

    assert work(queued) == "done"

    done = client.get(address)
    shown = text_of(done)
    assert "data-live>" not in shown
    assert re.findall(r'data-live-part="(\w+)"', shown) == parts
    assert "What each profile would have made of it" in shown
    assert len(re.findall(r"<polyline ", shown)) == 2
    assert "100 % of 30" in shown
    assert SessionSummary.objects.count() == CompactionRun.objects.count() == 0


def test_the_form_names_all_presets_and_the_session_that_led_to_it(session):
    shown = text_of(staff(*SEES).get(f"{ADDRESS}?session={session.pk}"))
    names = re.findall(r'name="profiles" value="([^"]+)"[^>]* checked', shown)
    assert names == list(CompactionProfile.objects.order_by("pk").values_list("name", flat=True))
    assert str(session.pk) in shown


def test_the_form_and_the_result_take_few_queries(
    session, queued, django_assert_max_num_queries, django_capture_on_commit_callbacks
):
    client = staff(*SEES)
    # The session's user, the user, two sets of permissions, the profiles, and savepoints.
    with django_assert_max_num_queries(7):
        client.get(ADDRESS)
    address = begin(client, session, commit=django_capture_on_commit_callbacks)
    work(queued)
    with django_assert_max_num_queries(6):
        client.get(address)


def test_progress_is_told_in_messages(session, queued, django_capture_on_commit_callbacks):
    client = staff(*SEES)
    address = begin(client, session, commit=django_capture_on_commit_callbacks)
    job = jobs.find(
        address.partition("job=")[2], user=get_user_model().objects.get(username="staff").pk
    )
    jobs._keep(replace(job, status=jobs.RUNNING, done=40, total=120, at="bisect"))
    shown = text_of(client.get(address))
    assert "40 of 120 messages, now with the profile bisect." in shown
    assert '<progress max="120" value="40"' in shown


@pytest.mark.parametrize("when", ["before", "while"])
def test_a_comparison_can_be_cancelled(
    session, queued, monkeypatch, django_capture_on_commit_callbacks, when
):
    client = staff(*SEES)
    address = begin(client, session, commit=django_capture_on_commit_callbacks)
    key = address.partition("job=")[2]

    def cancel() -> None:
        assert client.post(ADDRESS, {"job": key, "cancel": "1"}).status_code == 302

    if when == "before":
        cancel()
        assert work(queued) == "cancelled"
    else:
        monkeypatch.setattr(jobs, "SECONDS_BETWEEN", 0.0)
        real = jobs.compare

        def compared(*args, **options):
            cancel()
            return real(*args, **options)

        monkeypatch.setattr(jobs, "compare", compared)
        assert work(queued) == "cancelled"
    assert "It was cancelled" in text_of(client.get(address))


def test_a_result_that_is_gone_is_said(session, queued, django_capture_on_commit_callbacks):
    client = staff(*SEES)
    address = begin(client, session, commit=django_capture_on_commit_callbacks)
    cache.clear()
    assert "results are kept for 15 minutes" in text_of(client.get(address))
    assert work(queued) == "gone"


def test_a_worker_that_stops_says_so(
    session, queued, django_capture_on_commit_callbacks, monkeypatch
):
    client = staff(*SEES)
    address = begin(client, session, commit=django_capture_on_commit_callbacks)
    monkeypatch.setattr(queue, "is_stopping", lambda: True)
    assert work(queued) == "failed"
    assert "The worker was stopped. Ask for it again." in text_of(client.get(address))


# --- with a model ---------------------------------------------------------------------------------


def test_a_model_is_priced_first_and_asked_after_another_press(
    session, queued, model_server, django_capture_on_commit_callbacks
):
    commit = django_capture_on_commit_callbacks
    client = staff(*SEES, "add_compactionrun")
    address = begin(client, session, commit=commit, model="default")
    assert work(queued) == "done"
    assert model_server.calls == []
    shown = text_of(client.get(address))
    assert "would be called about" in shown
    key = address.partition("job=")[2]

    with commit(execute=True):
        again = client.post(ADDRESS, {"job": key, "go": "1"})["Location"]
    assert again != address
    assert work(queued) == "done"
    assert model_server.of("summary")
    assert "would be called about" not in text_of(client.get(again))


def test_who_may_not_start_work_is_offered_no_model(session, queued, model_server):
    client = staff(*SEES)
    assert 'value="default"' not in text_of(client.get(ADDRESS))
    data = {"sessions": str(session.pk), "profiles": ["bisect"], "model": "default"}
    assert "Select a valid choice" in text_of(client.post(ADDRESS, data))


# --- for whom, and what is wrong ------------------------------------------------------------------


@pytest.mark.parametrize("codes", [(), ("view_session",), ("read_texts",)])
def test_who_may_not_see_texts_and_sessions_is_refused(session, codes):
    client = staff(*codes)
    assert client.get(ADDRESS).status_code == 403
    assert client.post(ADDRESS, {"sessions": str(session.pk)}).status_code == 403


def test_another_operator_finds_nothing(session, queued, django_capture_on_commit_callbacks):
    address = begin(staff(*SEES), session, commit=django_capture_on_commit_callbacks)
    work(queued)
    other = staff(*SEES, name="other")
    assert "This comparison is gone" in text_of(other.get(address))


@pytest.mark.parametrize(
    ("sessions", "said"),
    [
        ("", "This field is required."),
        ("nope", "“nope” is no session's id."),
        ("00000000-0000-4000-8000-000000000000", "There is no session 00000000-"),
        (" ".join(map(str, range(21))), "21 sessions were named; 20 can be compared at once."),
    ],
)
def test_wrong_ids_are_sentences_and_the_form_stays(session, sessions, said):
    data = {"sessions": sessions, "profiles": ["bisect"], "model": "embedded"}
    shown = text_of(staff(*SEES).post(ADDRESS, data))
    assert said in shown
    assert 'name="sessions"' in shown


def test_hostile_names_stay_text(session, queued, django_capture_on_commit_callbacks):
    save_profile(name="hostile", parameters={"message_limit": 11, "keep_last_n": 2})
    CompactionProfile.objects.filter(name="hostile").update(name=ATTACK)
    client = staff(*SEES)
    address = begin(client, session, ATTACK, commit=django_capture_on_commit_callbacks)
    assert work(queued) == "done"
    for page in (client.get(ADDRESS), client.get(address)):
        assert b"<script>alert" not in page.content
        assert b"&lt;script&gt;alert(1)" in page.content


def test_a_profiles_page_leads_to_the_form_with_it_chosen(admin_client):
    row = save_profile(name="mine", parameters={"message_limit": 12})
    page = admin_client.get(f"/admin/compaction/compactionprofile/{row.pk}/change/").text
    assert f"{ADDRESS}?profile=mine" in page
    form = admin_client.get(f"{ADDRESS}?profile=mine").text
    boxes = re.findall(r'<input type="checkbox" name="profiles"[^>]*>', form)
    assert any('value="mine"' in box and "checked" in box for box in boxes)
    unknown = admin_client.get(ADDRESS, {"profile": ATTACK}).text
    assert "<script>alert(1)" not in unknown


# --- the plot -------------------------------------------------------------------------------------


def test_points_of_several_requests_stand_in_rows_of_whole_stretches():
    # 300 requests: points of 4 in one line, and of 1 in the other, which ended after 50.
    rows = [
        {"profile": "long", "sent_per_turn": list(range(1, 76)), "turns_per_point": 4},
        {"profile": "short", "sent_per_turn": list(range(1, 51)), "turns_per_point": 1},
    ]
    lines = lines_of(rows)
    table = sent_table(lines, turns=300)
    # 75 stretches of 4 in at most 24 rows: four of them, 16 requests, a row.
    assert [list(row) for row in table.rows[:4]] == [
        ["1 – 16", "4", "16"],
        ["17 – 32", "8", "32"],
        ["33 – 48", "12", "48"],
        ["49 – 64", "16", "50"],
    ]
    assert list(table.rows[4]) == ["65 – 80", "20", "—"]
    assert list(table.rows[-1]) == ["289 – 300", "75", "—"]
    # The line that ended early ends where its last request stands: at 49 of 299 parts of 572.
    points = re.findall(r'points="([^"]+)"', sent_plot(lines, turns=300))
    assert [one.split()[-1].split(",")[0] for one in points] == [
        "624.0",
        f"{52 + 572 * 49 / 299:.1f}",
    ]


def test_each_request_has_a_row_where_there_are_few():
    lines = lines_of([{"profile": "one", "sent_per_turn": [7, 9], "turns_per_point": 1}])
    assert [list(row) for row in sent_table(lines, turns=2).rows] == [["1", "7"], ["2", "9"]]
