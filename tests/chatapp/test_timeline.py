"""A session's timeline: entries of several tables in one order, pages of them, and warnings."""

from __future__ import annotations

import ast
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from chatapp.admin.timeline import Incidents
from chatapp.admin.toolkit.timeline import Replays, TimelinePlace, place_of, read_timeline
from chatapp.incidents import CHANGE_WORDS, ERROR_WORDS, WARNING_WORDS, Kind, note
from chatapp.llm.errors import ErrorKind
from chatapp.models import Branch, Incident, Session
from tests.alone import assert_works_alone
from tests.factories import SessionFactory, UserFactory

pytestmark = pytest.mark.django_db

ATTACK = '<script>alert("x")</script>'
START = datetime(2026, 11, 28, 12, 0, 0, tzinfo=UTC)
SOURCES = (Incidents(), Replays())
ROOT = Path(__file__).resolve().parent.parent.parent


def timeline_of(session: Session, **query) -> str:
    address = reverse("admin:chatapp_session_timeline", args=[session.pk])
    return address + (f"?{urlencode(query)}" if query else "")


def page_of(session: Session) -> str:
    return reverse("admin:chatapp_session_change", args=[session.pk])


def incident(session: Session, second: float = 0, **columns) -> Incident:
    words = {"kind": "retry", "code": "timeout", "text": f"At {second}."}
    at = START + timedelta(seconds=second)
    return Incident.objects.create(session=session, created_at=at, **(words | columns))


def replay(session: Session, second: float = 0) -> Branch:
    at = START + timedelta(seconds=second)
    return Branch.objects.create(
        session=session, kind="replay", replaces=session.branch, created_at=at,
        fork_position=3_000_000,
    )  # fmt: skip


def reasons(page) -> list[str]:
    return [entry.reason for entry in page.entries]


@pytest.fixture
def session(owner) -> Session:
    return SessionFactory(owner=owner)


# --- the order ------------------------------------------------------------------------------------


def test_entries_of_all_tables_stand_newest_first(session):
    incident(session, 1)
    replay(session, 2)
    incident(session, 3)
    labels = [entry.label for entry in read_timeline(session, SOURCES).entries]
    assert labels == ["Retry", "Replay", "Retry"]
    times = [entry.at for entry in read_timeline(session, SOURCES).entries]
    assert times == [START + timedelta(seconds=second) for second in (3, 2, 1)]


def test_another_sessions_entries_are_not_shown(session, owner):
    incident(SessionFactory(owner=owner))
    replay(SessionFactory(owner=owner))
    assert read_timeline(session, SOURCES).entries == []


@pytest.mark.parametrize("apart", [0, 1], ids=["all at one moment", "one a second"])
@pytest.mark.parametrize("most", [1, 2, 3, 5, 12])
def test_going_through_the_pages_shows_every_entry_once_in_both_directions(session, apart, most):
    for number in range(8):
        incident(session, number * apart, text=f"incident {number}")
    for number in range(4):
        replay(session, number * apart)
    whole = [(e.at, e.links) for e in read_timeline(session, SOURCES, most=100).entries]
    assert len(whole) == 12
    seen, page = [], read_timeline(session, SOURCES, most=most)
    pages = [page]
    while page.older is not None:
        page = read_timeline(session, SOURCES, before=page.older, most=most)
        pages.append(page)
    for page in pages:
        assert len(page.entries) <= most
        seen += [(entry.at, entry.links) for entry in page.entries]
    assert seen == whole
    back = pages[-1]
    for expected in reversed(pages[:-1]):
        back = read_timeline(session, SOURCES, after=back.newer, most=most)
        assert reasons(back) == reasons(expected)
    assert back.newer is None


def test_the_first_page_has_no_newer_and_the_last_no_older(session):
    for second in range(3):
        incident(session, second)
    first = read_timeline(session, SOURCES, most=2)
    last = read_timeline(session, SOURCES, before=first.older, most=2)
    assert (first.newer, last.older) == (None, None)
    assert reasons(first) == ["At 2.", "At 1."]
    assert reasons(last) == ["At 0."]


def test_a_place_survives_the_address(session):
    row = incident(session, 1.25)
    place = TimelinePlace(at=row.created_at, key="incident", pk=row.pk)
    assert place_of(str(place), SOURCES) == place


@pytest.mark.parametrize(
    "text",
    ["", "x", "2026-11-28", "2026-11-28T12:00:00", "2026-11-28T12:00:00+00:00~run~1",
     "2026-11-28T12:00:00+00:00~incident~1", "0001-01-01T00:00:00+14:00", "~~", "\x00"],
)  # fmt: skip
def test_an_odd_address_shows_the_newest_page(session, admin_client, text):
    incident(session, text="Something happened.")
    assert place_of(text, SOURCES) is None
    for name in ("before", "after"):
        response = admin_client.get(timeline_of(session, **{name: text}))
        assert response.status_code == 200
        assert "Something happened." in response.text


def test_the_page_leads_to_older_and_back_to_newer(session, admin_client):
    for second in range(30):
        incident(session, second, text=f"Number {second:02d}.")
    first = admin_client.get(timeline_of(session)).text
    older = re.search(r'<a href="([^"]+)">Older ›</a>', first)[1].replace("&amp;", "&")
    assert re.findall(r"Number (\d\d)\.", first) == [f"{n:02d}" for n in range(29, 4, -1)]
    second_page = admin_client.get(older).text
    assert re.findall(r"Number (\d\d)\.", second_page) == ["04", "03", "02", "01", "00"]
    assert "Older ›" not in second_page
    newer = re.search(r'<a href="([^"]+)">‹ Newer</a>', second_page)[1].replace("&amp;", "&")
    assert re.findall(r"Number (\d\d)\.", admin_client.get(newer).text)[0] == "29"


def test_the_page_costs_the_same_for_10_and_for_1000_incidents(session, admin_client):
    counts = []
    admin_client.get(timeline_of(session))
    for start, count in ((0, 10), (10, 990)):
        Incident.objects.bulk_create(
            Incident(
                session=session, kind="retry", code="timeout", text="x",
                created_at=START + timedelta(seconds=start + number),
            )
            for number in range(count)
        )  # fmt: skip
        for _ in range(count // 10):
            replay(session, start)
        with CaptureQueriesContext(connection) as queries:
            assert admin_client.get(timeline_of(session)).status_code == 200
        counts.append(len(queries))
        assert not [q for q in queries if "COUNT(" in q["sql"]]
        read = [q["sql"] for q in queries if ' FROM "session_incidents"' in q["sql"]]
        assert read
        assert all("LIMIT 26" in sql for sql in read)
    # Two of them read the audit log and answers that were given without a part of the
    # conversation.
    assert counts[0] == counts[1] <= 9


def test_the_index_of_the_session_serves_a_page(session):
    row = incident(session)
    place = TimelinePlace(at=row.created_at, key="incident", pk=row.pk)
    with CaptureQueriesContext(connection) as queries:
        read_timeline(session, (Incidents(),), before=place)
    with connection.cursor() as cursor:
        if connection.vendor != "sqlite":
            pytest.skip("asks SQLite for its plan")
        cursor.execute("EXPLAIN QUERY PLAN " + queries[0]["sql"])
        plan = " ".join(str(line) for line in cursor.fetchall())
    assert "incident_of_session" in plan
    assert "created_at<" in plan


# --- words ----------------------------------------------------------------------------------------


def test_a_retry_says_why_how_long_and_which_attempt(session, admin_client):
    note(
        session, Kind.RETRY, "rate_limited", "It is asked again in 2.4 seconds.",
        wait_seconds=2.412, attempt=3,
    )  # fmt: skip
    (entry,) = read_timeline(session, SOURCES).entries
    assert entry.title == "The server asked to slow down"
    assert (entry.label, entry.tone) == ("Retry", "busy")
    assert list(entry.numbers) == [("Wait", "2.4 s"), ("Attempt", "3")]
    assert entry.means == "The same request was sent again after the wait."
    assert "It is asked again in 2.4 seconds." in admin_client.get(timeline_of(session)).text


def test_a_change_says_what_it_was_an_answer_to(session):
    note(
        session, Kind.CHANGE, "output_lowered", "8,192 were asked for.",
        error="output_limit", said="at most 8192", status=400,
    )  # fmt: skip
    (entry,) = read_timeline(session, SOURCES).entries
    assert entry.title == "A shorter answer was asked for"
    assert list(entry.numbers) == [
        ("After", "The model does not write answers that long"),
        ("HTTP status", "400"),
    ]
    assert entry.said == "at most 8192"


def test_an_error_says_that_the_turn_has_no_answer(session):
    note(session, Kind.ERROR, "quota", "No credit.")
    (entry,) = read_timeline(session, SOURCES).entries
    assert (entry.label, entry.tone) == ("Error", "bad")
    assert "The turn ended without an answer" in entry.means


def test_a_cancelled_turn_is_nothing_bad(session):
    note(session, Kind.ERROR, "cancelled", "The turn was cancelled.")
    (entry,) = read_timeline(session, SOURCES).entries
    assert entry.tone == ""
    assert entry.means.startswith("Nothing is wrong")


def test_a_replay_leads_to_both_branches(session):
    new = replay(session)
    (entry,) = read_timeline(session, SOURCES).entries
    assert [(link.label, link.url) for link in entry.links] == [
        ("New branch", f"/admin/chatapp/branch/{new.pk}/change/"),
        ("Branch it replaces", f"/admin/chatapp/branch/{session.branch.pk}/change/"),
    ]
    assert "behind position 3 " in entry.reason


def test_a_code_that_nobody_knows_keeps_its_name(session):
    incident(session, code="brand_new", details={"wait_seconds": "soon", "attempt": {"a": 1}})
    (entry,) = read_timeline(session, SOURCES).entries
    assert entry.title == "brand_new"
    assert list(entry.numbers) == [("Wait", "soon"), ("Attempt", "{'a': 1}")]


@pytest.mark.parametrize("details", [None, [], "x", 7, {"error": {}, "said": None}])
def test_details_of_any_shape_are_shown(session, admin_client, details):
    incident(session, details={} if details is None else details)
    assert admin_client.get(timeline_of(session)).status_code == 200


def test_every_kind_of_error_has_words():
    assert set(ERROR_WORDS) == {kind.value for kind in ErrorKind}


def codes_in(*files: str) -> set[str]:
    """Return every literal `code="…"` and every code of a `note(session, kind, "…")`."""
    found = set()
    for file in files:
        for node in ast.walk(ast.parse((ROOT / file).read_text())):
            if isinstance(node, ast.keyword) and node.arg == "code":
                found |= {node.value.value} if isinstance(node.value, ast.Constant) else set()
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "note":
                code = node.args[2]
                found |= {code.value} if isinstance(code, ast.Constant) else set()
    return found


def test_every_change_and_every_warning_has_words():
    assert codes_in("chatapp/turns/adaptations.py") <= set(CHANGE_WORDS)
    assert codes_in("chatapp/turns/request.py") <= set(WARNING_WORDS)
    assert {"output_lowered", "truncated_silently"} <= codes_in(
        "chatapp/turns/adaptations.py", "chatapp/turns/request.py"
    )


def test_what_servers_say_is_escaped_everywhere(session, admin_client):
    note(
        session, Kind.WARNING, ATTACK, ATTACK, said=ATTACK, server_code=ATTACK, error=ATTACK,
        status=ATTACK,
    )  # fmt: skip
    row = Incident.objects.get()
    pages = [timeline_of(session), page_of(session), f"/admin/chatapp/incident/{row.pk}/change/"]
    for page in [*pages, "/admin/chatapp/incident/"]:
        text = admin_client.get(page).text
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert" in text
        assert not re.search(r"\sstyle=|<style|\son\w+=", text)


# --- the session's page ---------------------------------------------------------------------------


def test_the_panel_shows_the_newest_eight_and_the_way_to_all(session, admin_client):
    for second in range(9):
        incident(session, second, text=f"Number {second}.")
    page = admin_client.get(page_of(session)).text
    assert re.findall(r"Number (\d)\.", page) == ["8", "7", "6", "5", "4", "3", "2", "1"]
    assert f'<a href="{timeline_of(session)}">The whole timeline</a>' in page


def test_the_panel_of_a_quiet_session_says_so(session, admin_client):
    assert "Nothing has happened yet but answers." in admin_client.get(page_of(session)).text
    assert "Nothing is noted here." in admin_client.get(timeline_of(session)).text


def test_a_warning_stands_once_at_the_top_of_the_page(session, admin_client):
    for counted in (21904, 22000):
        note(session, Kind.WARNING, "truncated_silently", f"About {counted}.", counted=counted)
    page = admin_client.get(page_of(session)).text
    notices = re.findall(r'<p class="detail-notice".*?</p>', page, re.DOTALL)
    assert len(notices) == 1
    assert "About 21904." in notices[0]
    assert page.index("detail-notice") < page.index('<section class="module detail-panel">')


def test_a_retry_is_no_warning(session, admin_client):
    incident(session)
    assert "detail-notice" not in admin_client.get(page_of(session)).text


# --- who may see it -------------------------------------------------------------------------------


def test_the_timeline_takes_the_permission_to_see_sessions(client, session):
    staff = UserFactory(is_staff=True)
    client.force_login(staff)
    assert client.get(timeline_of(session)).status_code == 403
    staff.user_permissions.add(
        Permission.objects.get(codename="view_session", content_type__app_label="chatapp")
    )
    assert client.get(timeline_of(session)).status_code == 200


def test_a_session_that_is_not_there_has_no_timeline(admin_client):
    address = reverse("admin:chatapp_session_timeline", args=["nothing"])
    assert admin_client.get(address).status_code == 404


ALONE = """
from chatapp.incidents import Kind, note
from chatapp.transcript import create_session
user = get_user_model().objects.create_superuser("operator", password="x")
session = create_session(owner=user)
note(session, Kind.WARNING, "window_exceeded", "The window is too small.")
client = Client()
client.force_login(user)
for address in ("change", "timeline"):
    page = client.get(f"/admin/chatapp/session/{session.pk}/{address}/").content.decode()
    assert "The window is too small." in page, page
    assert "The window that is set is too small" in page, page
"""


@pytest.mark.slow
def test_the_timeline_works_where_compaction_is_not_installed(tmp_path):
    assert_works_alone(ALONE, tmp_path)
