"""Logging in: wrong passwords are counted, and a session that nobody uses ends."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from chatapp.login import SEEN
from tests.factories import UserFactory, api_key

pytestmark = pytest.mark.django_db
LOGIN, ADMIN = "/admin/login/", "/admin/"
TWELVE_HOURS = 43_200


@pytest.fixture
def staff():
    user = UserFactory(is_staff=True, is_superuser=True)
    user.set_password("right")
    user.save()
    return user


def attempt(user, password: str, *, address: str = "192.0.2.1", **headers):
    data = {"username": user.username, "password": password}
    return Client().post(LOGIN, data, REMOTE_ADDR=address, headers=headers)


def test_after_five_wrong_passwords_even_the_right_one_has_to_wait(staff):
    answers = [attempt(staff, "wrong").status_code for _ in range(5)]
    assert answers == [200, 200, 200, 200, 429]
    refused = attempt(staff, "right")
    assert refused.status_code == 429
    assert refused["Retry-After"] == "900"
    assert "15 min" in refused.content.decode()


def test_another_browser_does_not_start_the_count_anew(staff):
    for number in range(5):
        attempt(staff, "wrong", **{"User-Agent": f"Browser {number}"})
    assert attempt(staff, "right", **{"User-Agent": "Browser 9"}).status_code == 429


def test_whoever_tries_from_elsewhere_locks_nobody_out(staff):
    for _ in range(6):
        attempt(staff, "wrong", address="203.0.113.9")
    assert attempt(staff, "right", address="203.0.113.9").status_code == 429
    assert attempt(staff, "right").status_code == 302
    assert attempt(UserFactory(), "wrong", address="203.0.113.9").status_code == 200


def test_a_right_password_sets_the_count_back(staff):
    for _ in range(3):
        for _ in range(4):
            attempt(staff, "wrong")
        assert attempt(staff, "right").status_code == 302


def test_after_the_pause_it_may_be_tried_again(staff, settings):
    for _ in range(5):
        attempt(staff, "wrong")
    settings.AXES_COOLOFF_TIME = timedelta(0)
    assert attempt(staff, "right").status_code == 302


def test_the_count_needs_no_cache(staff, monkeypatch):
    def away(*args, **kwargs):
        raise ConnectionError("no cache")

    for name in ("get", "set", "add", "incr"):
        monkeypatch.setattr(type(cache._connections["default"]), name, away)
    assert attempt(staff, "wrong").status_code == 200
    assert attempt(staff, "right").status_code == 302


def test_no_password_is_stored(staff):
    from axes.models import AccessAttempt

    attempt(staff, "hunter2-and-more")
    row = AccessAttempt.objects.values().get()
    assert "hunter2" not in str(row)


# --- idling ---------------------------------------------------------------------------------------


@pytest.fixture
def client(staff):
    client = Client()
    client.force_login(staff)
    return client


def stored(client: Client) -> Session:
    return Session.objects.get(session_key=client.session.session_key)


def left(client: Client) -> float:
    return (stored(client).expire_date - timezone.now()).total_seconds()


def make_idle(client: Client, seconds: int) -> None:
    """Have the session as it would be after so long without a request."""
    session = client.session
    session[SEEN] -= seconds
    session.save()
    row = stored(client)
    row.expire_date = timezone.now() + timedelta(seconds=TWELVE_HOURS - seconds)
    row.save()


def test_a_session_lasts_twelve_hours_from_its_last_use(client):
    assert TWELVE_HOURS - 10 < left(client) <= TWELVE_HOURS
    make_idle(client, TWELVE_HOURS - 60)
    assert left(client) < 61
    response = client.get(ADMIN)
    assert response.status_code == 200
    assert response.cookies["sessionid"]["max-age"] == TWELVE_HOURS
    assert left(client) > TWELVE_HOURS - 10


def test_a_session_that_nobody_used_has_ended(client):
    make_idle(client, TWELVE_HOURS + 1)
    assert client.get(ADMIN).status_code == 302
    assert client.get("/api/v1/sessions/").status_code == 401


def test_what_is_looked_at_at_once_writes_nothing(client, django_assert_max_num_queries):
    before = stored(client).session_data
    client.get(ADMIN)
    assert stored(client).session_data == before
    make_idle(client, 301)
    before = stored(client).session_data
    client.get(ADMIN)
    assert stored(client).session_data != before


def test_a_session_from_before_the_upgrade_goes_on(client):
    session = client.session
    del session[SEEN]
    session.save()
    assert client.get(ADMIN).status_code == 200
    assert SEEN in client.session
    assert SESSION_KEY in client.session


def test_a_key_makes_no_session(owner):
    response = Client().get(
        "/api/v1/sessions/", headers={"Authorization": f"Bearer {api_key(owner)}"}
    )
    assert response.status_code == 200
    assert not response.cookies
    assert not Session.objects.exists()
