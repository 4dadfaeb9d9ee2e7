"""Incidents and learned limits in the admin: listed, found, forgotten."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.html import strip_tags

from chatapp.llm.learned_limits import with_learned_limits
from chatapp.llm.registry import get_model
from chatapp.models import Incident, LearnedLimits, Session
from tests.factories import SessionFactory, UserFactory

pytestmark = pytest.mark.django_db

INCIDENTS = "/admin/chatapp/incident/"
LESSONS = "/admin/chatapp/learnedlimits/"
ATTACK = "<script>alert(1)</script>"


def incident(session: Session, **columns) -> Incident:
    words = {"kind": "retry", "code": "timeout", "text": "No answer in time."}
    return Incident.objects.create(session=session, **(words | columns))


def found(client, **query) -> list[Incident]:
    return list(client.get(INCIDENTS, query).context["cl"].result_list)


@pytest.fixture
def session(owner) -> Session:
    return SessionFactory(owner=owner, title="Boots")


# --- incidents ------------------------------------------------------------------------------------


def test_incidents_are_listed_newest_first(admin_client, session):
    now = timezone.now()
    old = incident(session, created_at=now - timedelta(days=3))
    new = incident(session, created_at=now)
    assert found(admin_client) == [new, old]


def test_incidents_are_filtered_by_kind_code_session_and_age(admin_client, session, owner):
    other = SessionFactory(owner=owner)
    slow = incident(session, code="rate_limited")
    refused = incident(session, kind="error", code="quota")
    elsewhere = incident(other)
    old = incident(session, created_at=timezone.now() - timedelta(days=20))
    assert found(admin_client, kind__exact="error") == [refused]
    assert found(admin_client, code="rate_limited") == [slow]
    assert found(admin_client, session__id__exact=str(other.pk)) == [elsewhere]
    assert old not in found(admin_client, since="7")
    assert old in found(admin_client, since="30")


def test_incidents_are_found_by_the_sessions_title(admin_client, session, owner):
    row = incident(session)
    incident(SessionFactory(owner=owner, title="Stove"))
    assert found(admin_client, q="Boots") == [row]


def test_the_list_costs_the_same_for_10_and_for_1000_rows(admin_client, session):
    counts = []
    for rows in (10, 990):
        Incident.objects.bulk_create(
            Incident(session=session, kind="retry", code="timeout", text="x") for _ in range(rows)
        )
        with CaptureQueriesContext(connection) as queries:
            assert admin_client.get(INCIDENTS).status_code == 200
        counts.append(len(queries))
        read = [q["sql"].split(" FROM ")[0] for q in queries]
        assert not [sql for sql in read if '"session_incidents"."details"' in sql]
        assert not [sql for sql in read if "COUNT(" in sql]
    assert counts[0] == counts[1]


def test_an_incidents_page_tells_everything_and_leads_to_its_place_in_the_timeline(
    admin_client, session
):
    incident(session, text="Much later.", created_at=timezone.now() + timedelta(hours=1))
    row = incident(
        session, code="rate_limited", text="Slow down.",
        details={"wait_seconds": 2, "attempt": 1, "said": "too fast", "other": "kept"},
    )  # fmt: skip
    page = admin_client.get(f"{INCIDENTS}{row.pk}/change/").text
    for said in ("The server asked to slow down", "Slow down.", "Wait: 2.0 s; Attempt: 1"):
        assert said in page
    assert "too fast" in page
    assert "kept" in page
    way = re.search(r'href="([^"]+)">In the timeline', page)[1].replace("&amp;", "&")
    timeline = admin_client.get(way).text
    assert "Slow down." in timeline
    assert "Much later." not in timeline


def test_nobody_adds_changes_or_deletes_incidents(admin_client, session):
    row = incident(session)
    assert admin_client.get(f"{INCIDENTS}add/").status_code == 403
    assert admin_client.post(f"{INCIDENTS}{row.pk}/change/", {}).status_code == 403
    assert admin_client.post(f"{INCIDENTS}{row.pk}/delete/", {"post": "yes"}).status_code == 403


# --- learned limits
# --------------------------------------------------------------------------------------


@pytest.fixture
def limits(model_server, use_models) -> LearnedLimits:
    """The default model's server took 4,096 tokens where the settings say 8,000."""
    use_models(model_server.models(CONTEXT_WINDOW=8000, MAX_OUTPUT=500))
    model = get_model("default")
    return LearnedLimits.objects.create(
        server=model.base_url, name=model.name, context_window=4096, tokens_per_count=1.25
    )


def row_of(page: str) -> dict[str, str]:
    cells = re.findall(r'<t[dh] class="field-(\w+)[^"]*">(.*?)</t[dh]>', page, re.DOTALL)
    return {name: strip_tags(text) for name, text in cells}


def test_learned_limits_stands_next_to_what_the_settings_say(admin_client, limits):
    row = row_of(admin_client.get(LESSONS).text)
    assert row["aliases"] == "default"
    assert row["window_shown"] == "4,096 (set: 8,000)"
    assert row["answer_shown"] == "—"
    assert row["ratio_learnt"] == "1.25"


def test_the_page_of_learned_limits_says_what_is_in_force(admin_client, limits):
    page = admin_client.get(f"{LESSONS}{limits.pk}/change/").text
    values = [strip_tags(text) for text in re.findall(r'<div class="readonly">(.*?)</div>', page)]
    assert values[4:7] == ["4,096", "8,000", "4,096"]
    assert values[7:10] == ["—", "500", "500"]
    assert "What we count as 1,000 tokens is 1,250 to the server" in page


def test_learned_limits_of_a_model_that_is_gone_says_so(admin_client):
    LearnedLimits.objects.create(server="http://gone/v1", name=ATTACK, max_output=100)
    page = admin_client.get(LESSONS).text
    row = row_of(page)
    assert row["aliases"] == "no model of the settings"
    assert row["answer_shown"] == "100 (set: —)"
    assert ATTACK not in page


def test_forgetting_asks_first_and_then_brings_the_settings_back(admin_client, limits):
    chosen = {"action": "delete_selected", "_selected_action": [str(limits.pk)], "index": "0"}
    assert '<option value="delete_selected">Forget</option>' in admin_client.get(LESSONS).text
    asked = admin_client.post(LESSONS, chosen)
    assert "Forgotten limits no longer count" in asked.text
    assert with_learned_limits(get_model("default")).context_window == 4096
    admin_client.post(LESSONS, chosen | {"post": "yes"})
    assert not LearnedLimits.objects.exists()
    assert with_learned_limits(get_model("default")).context_window == 8000


def test_learned_limits_is_forgotten_from_its_own_page(admin_client, limits):
    page = admin_client.get(f"{LESSONS}{limits.pk}/change/").text
    way = re.search(r'<a href="([^"]+)">Forget</a>', page)[1]
    assert "Forgotten limits no longer count" in admin_client.get(way).text
    assert LearnedLimits.objects.exists()
    admin_client.post(way, {"post": "yes"})
    assert not LearnedLimits.objects.exists()


def test_forgetting_takes_its_permission(client, limits):
    staff = UserFactory(is_staff=True)
    rights = Permission.objects.filter(content_type__app_label="chatapp")
    staff.user_permissions.add(rights.get(codename="view_learnedlimits"))
    client.force_login(staff)
    chosen = {"action": "delete_selected", "_selected_action": [str(limits.pk)], "post": "yes"}
    client.post(LESSONS, chosen)
    assert client.post(f"{LESSONS}{limits.pk}/delete/", {"post": "yes"}).status_code == 403
    assert LearnedLimits.objects.exists()
    assert ">Forget</a>" not in client.get(f"{LESSONS}{limits.pk}/change/").text
    staff.user_permissions.add(rights.get(codename="delete_learnedlimits"))
    client.post(LESSONS, chosen)
    assert not LearnedLimits.objects.exists()


def test_nobody_adds_or_changes_learned_limits(admin_client, limits):
    assert admin_client.get(f"{LESSONS}add/").status_code == 403
    assert admin_client.post(f"{LESSONS}{limits.pk}/change/", {}).status_code == 403
