"""`/metrics`: who may read it, and what is said where it is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from django.contrib.auth.models import AnonymousUser
from django.db import OperationalError
from django.test import Client, RequestFactory

from compaction.monitoring.scrape import metrics
from tests.compaction.scraping import AUTHORIZED, TOKEN, let_scrape
from tests.factories import UserFactory

pytest.importorskip("prometheus_client")

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def surroundings(settings, monkeypatch):
    let_scrape(settings, monkeypatch)


def refused(client: Client, status: int, **headers: str) -> str:
    response = client.get("/metrics", headers=headers)
    assert response.status_code == status
    assert response.headers["Content-Type"] == "application/problem+json"
    assert b"palimpsest_runs" not in response.content
    return response.json()["detail"]


def test_strangers_are_told_how_to_be_let_in():
    assert "METRICS_TOKEN" in refused(Client(), 401)
    response = Client().get("/metrics")
    assert response.headers["WWW-Authenticate"] == 'Bearer realm="metrics"'


def test_a_database_that_is_away_is_a_problem_document(monkeypatch):
    def away(accepted):
        raise OperationalError("no database")

    monkeypatch.setattr("compaction.monitoring.metrics.exposition", away)
    assert "server's log" in refused(Client(), 503, **AUTHORIZED)


@pytest.mark.parametrize(
    "header",
    ["Bearer wrong", "Bearer ", "Bearer", f"Token {TOKEN}", TOKEN, "Bearer é", f"Bearer {TOKEN}x"],
)
def test_another_token_lets_nobody_in(header):
    refused(Client(), 401, Authorization=header)


@pytest.mark.parametrize("header", ["Bearer ", "Bearer", "bearer  "])
def test_without_a_token_in_the_settings_no_token_lets_in(settings, header):
    settings.METRICS_TOKEN = ""
    refused(Client(), 401, Authorization=header)


def test_the_scheme_may_be_written_in_any_case():
    response = Client().get("/metrics", headers={"Authorization": f"bearer {TOKEN}"})
    assert response.status_code == 200


def test_staff_who_are_logged_in_are_let_in(settings):
    settings.METRICS_TOKEN = ""
    client = Client()
    client.force_login(UserFactory(is_staff=True))
    assert client.get("/metrics").status_code == 200


def test_users_who_are_no_staff_are_told_so():
    client = Client()
    client.force_login(UserFactory())
    assert "staff" in refused(client, 403)


def test_staff_who_were_switched_off_are_not_let_in():
    """Some ways to log in keep users who are not active; the admin refuses them too."""
    request = RequestFactory().get("/metrics")
    request.user = UserFactory(is_staff=True, is_active=False)
    assert metrics(request).status_code == 403


def test_a_user_who_is_no_staff_gets_in_with_the_token():
    client = Client()
    client.force_login(UserFactory())
    assert client.get("/metrics", headers=AUTHORIZED).status_code == 200


@pytest.mark.parametrize("method", ["post", "put", "delete"])
def test_metrics_are_only_read(method):
    assert getattr(Client(), method)("/metrics", headers=AUTHORIZED).status_code == 405


def test_figures_are_not_kept_by_caches():
    assert Client().get("/metrics", headers=AUTHORIZED).headers["Cache-Control"] == "no-store"


def test_without_the_extra_everything_else_works():
    """An installation without extras has all addresses but this one's figures."""
    code = """
import sys
sys.modules["prometheus_client"] = None
import django
django.setup()
from django.core.management import call_command
call_command("check")
from compaction.monitoring import scrape
print(scrape.metrics.__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("metrics")


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    request = RequestFactory().get("/metrics", headers=AUTHORIZED)
    request.user = AnonymousUser()
    response = metrics(request)
    assert response.status_code == 404
    assert response.headers["Content-Type"] == "application/problem+json"
    assert b"palimpsest[metrics]" in response.content
