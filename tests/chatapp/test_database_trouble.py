"""What the API answers while the database is locked, full, read-only or gone: 503, with a time."""

from __future__ import annotations

import pytest
from django.db import InterfaceError, InternalError, OperationalError

from chatapp.models import Session
from chatapp.turns.lease import TurnLease
from tests.chatapp.test_api_sessions import url
from tests.factories import SessionFactory

pytestmark = pytest.mark.django_db


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


def test_trouble_outside_of_the_views_is_told_alike(api, session, monkeypatch):
    error = OperationalError("database is locked")
    monkeypatch.setattr(
        "chatapp.api.exceptions.LengthRequiredMiddleware.process_request", failing(error)
    )
    api.raise_request_exception = False
    response = api.get(url(session))
    assert (response.status_code, response["Retry-After"]) == (503, "1")
    assert response.json()["code"] == "busy"


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
