"""What the API answers while database or disk are full, locked or gone: 503, with a time."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import InterfaceError, InternalError, OperationalError, connection

from chatapp.models import Session
from chatapp.turns.lease import TurnLease
from tests.chatapp.test_api_sessions import url
from tests.factories import SessionFactory

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def session(owner) -> Session:
    return SessionFactory(owner=owner)


def failing(error: Exception):
    def fail(*args, **kwargs):
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code", "seconds"),
    [
        (OperationalError("database is locked"), "busy", "1"),
        (OperationalError("deadlock detected"), "busy", "1"),
        (OperationalError("canceling statement due to lock timeout"), "busy", "1"),
        (OperationalError("database or disk is full"), "unavailable", "5"),
        (OperationalError("attempt to write a readonly database"), "unavailable", "5"),
        (OperationalError("server closed the connection unexpectedly"), "unavailable", "5"),
        (InterfaceError("connection already closed"), "unavailable", "5"),
        (InternalError("cannot execute INSERT in a read-only transaction"), "unavailable", "5"),
    ],
)
def test_trouble_is_503_with_a_code_and_when_to_come_back(
    api, session, monkeypatch, error, code, seconds
):
    monkeypatch.setattr("chatapp.transcript.append", failing(error))
    body = {"role": "user", "content": "hello"}
    response = api.post(url(session, "messages/"), body, format="json")
    assert (response.status_code, response["Retry-After"]) == (503, seconds)
    assert response["Content-Type"].startswith("application/problem+json")
    assert response.json()["code"] == code
    assert str(error) not in response.content.decode()


@pytest.mark.parametrize("is_form", [False, True])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_file_that_finds_no_room_on_the_disk_is_503_and_nothing_of_it_stored(
    api, monkeypatch, is_form, number
):
    monkeypatch.setattr(tempfile, "TemporaryFile", failing(OSError(number, "no room")))
    content = b'[{"role": "user", "content": "%s"}]' % (b"word " * 300_000)
    if is_form:
        response = api.post(
            "/api/v1/sessions/import/",
            {"file": SimpleUploadedFile("a.json", content)},
            format="multipart",
        )
    else:
        response = api.post(
            "/api/v1/sessions/import/", content, content_type="application/octet-stream"
        )
    assert (response.status_code, response["Retry-After"]) == (503, "5")
    assert response.json()["code"] == "unavailable"
    assert "disk is full" in response.json()["detail"]
    assert not Session.objects.exists()


def test_trouble_outside_of_the_views_is_told_alike(api, session, monkeypatch):
    error = OperationalError("database is locked")
    monkeypatch.setattr(
        "chatapp.api.exceptions.LengthRequiredMiddleware.process_request", failing(error)
    )
    api.raise_request_exception = False
    response = api.get(url(session))
    assert (response.status_code, response["Retry-After"]) == (503, "1")
    assert response.json()["code"] == "busy"


def test_a_database_that_is_away_is_waited_for_once(api, session, monkeypatch):
    """A look whether the session was deleted waited for it once more: 20 seconds a request."""
    asked = []

    def fail(execute, sql, params, many, context):
        asked.append(sql)
        raise OperationalError("couldn't get a connection after 10.00 sec")

    with connection.execute_wrapper(fail):
        response = api.get(url(session))
    assert (response.status_code, len(asked)) == (503, 1)


def test_a_page_waits_once_for_a_database_that_is_away(admin_client):
    asked = []

    def fail(execute, sql, params, many, context):
        asked.append(sql)
        raise OperationalError("couldn't get a connection after 10.00 sec")

    admin_client.raise_request_exception = False
    with connection.execute_wrapper(fail):
        response = admin_client.get("/admin/")
    assert (response.status_code, len(asked)) == (503, 1)


PAGES = {
    "a page": ("get", "/admin/", {}),
    "a list": ("get", "/admin/chatapp/session/", {}),
    "an action": ("post", "/admin/chatapp/session/", {"action": "export"}),
    "a form": ("post", "/admin/auth/user/add/", {"username": "new"}),
    "a log-in": ("post", "/admin/login/", {"username": "nobody", "password": "wrong"}),
}


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(
    ("error", "code", "seconds"),
    [
        (OperationalError("database is locked"), "busy", "1"),
        (OperationalError("database or disk is full"), "unavailable", "5"),
        (InternalError("cannot execute INSERT in a read-only transaction"), "unavailable", "5"),
    ],
)
def test_trouble_is_503_for_pages_as_well(admin_client, page, error, code, seconds):
    """They were a 500: that is a fault of ours, which nobody tries again."""

    def fail(execute, sql, params, many, context):
        raise error

    method, address, form = PAGES[page]
    admin_client.raise_request_exception = False
    with connection.execute_wrapper(fail):
        response = getattr(admin_client, method)(address, form)
    assert (response.status_code, response["Retry-After"]) == (503, seconds)
    assert f"({code})" in response.content.decode()
    assert str(error) not in response.content.decode()
    assert response["Cache-Control"] == "no-store"


@pytest.fixture
def broken_templates(settings, tmp_path):
    for name in ("503.html", "500.html"):
        (tmp_path / name).write_text("{% load nothing_of_this_name %}")
    one = settings.TEMPLATES[0]
    settings.TEMPLATES = [one | {"DIRS": [tmp_path, *one["DIRS"]]}]


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (OperationalError("database is locked"), 503, "The database is busy"),
        (OperationalError("database or disk is full"), 503, "The database cannot be used"),
        (ValueError("ours"), 500, "The server failed"),
    ],
)
def test_where_the_page_of_an_error_fails_a_plain_text_is_sent(
    admin_client, broken_templates, error, status, words
):
    """The template raised out of the handler, and the server's own answer was a bare 500."""

    def fail(execute, sql, params, many, context):
        raise error

    admin_client.raise_request_exception = False
    with connection.execute_wrapper(fail):
        response = admin_client.get("/admin/")
    assert response.status_code == status
    assert response["Content-Type"] == "text/plain; charset=utf-8"
    assert response.content.decode().startswith(words)
    assert str(error) not in response.content.decode()
    assert (status == 503) == ("Retry-After" in response)


def test_a_fault_of_ours_stays_a_500_of_a_page(admin_client):
    def fail(execute, sql, params, many, context):
        raise ValueError("ours")

    admin_client.raise_request_exception = False
    with connection.execute_wrapper(fail):
        response = admin_client.get("/admin/")
    assert response.status_code == 500


def test_a_session_that_was_deleted_meanwhile_is_404_all_the_same(api, session, monkeypatch):
    def deleted(*args, **kwargs):
        Session.objects.all().delete()
        raise OperationalError("deadlock detected")

    monkeypatch.setattr("chatapp.transcript.append", deleted)
    body = {"role": "user", "content": "hello"}
    assert api.post(url(session, "messages/"), body, format="json").status_code == 404


def test_a_session_that_is_answered_already_says_when_to_come_back(api, session):
    TurnLease(session).take()
    response = api.post(url(session, "turns/"), {"content": "hello"}, format="json")
    assert (response.status_code, response["Retry-After"]) == (409, "2")
    assert response.json()["code"] == "turn_in_progress"


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["doctor"], 2),
        (["resummarize", "--all"], 1),
        (["resummarize", "--session", "00000000-0000-4000-8000-000000000000"], 1),
        (["compaction_report"], 1),
        (["show_session", "00000000-0000-4000-8000-000000000000"], 1),
        (["roll_up"], 1),
    ],
    ids=lambda value: "-".join(value[:2]) if isinstance(value, list) else "",
)
def test_a_command_says_when_the_tables_are_missing(command, status, tmp_path):
    """Another database of this server, or rather one of its schemas, has no table."""
    address = f"sqlite:///{tmp_path / 'none.sqlite3'}"
    if connection.vendor == "postgresql":
        address = os.environ["DATABASE_URL"] + "?options=-csearch_path%3Dnowhere"
    surroundings = os.environ | {
        "DATABASE_URL": address,
        "DJANGO_SETTINGS_MODULE": "chatapp.settings",
        "PALIMPSEST_DATA_DIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "manage.py", *command],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False, env=surroundings,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    assert (
        done.stderr.strip()
        .splitlines()[-1]
        .removeprefix("CommandError: ")
        .startswith("The database has not the tables of this version: run `manage.py migrate`.")
    )
    assert "Traceback" not in done.stderr
