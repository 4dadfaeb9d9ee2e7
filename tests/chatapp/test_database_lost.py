"""A database that is lost in the middle of a turn, or that stores nothing any more: PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, connections

from chatapp.models import Message, Session
from tests.chatapp.test_api_sessions import problem, url
from tests.factories import SessionFactory
from tests.fakes.model_server import ModelServer

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="only a server can be lost"),
]


def end_all_others() -> int:
    """Have the server end every other connection to this database; return how many there were."""
    ours = "datname = current_database() AND pid <> pg_backend_pid()"
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {ours}"
        )
        return int(cursor.fetchone()[0])


@contextmanager
def read_only() -> Iterator[None]:
    name = connection.settings_dict["NAME"]

    def switch(word: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET default_transaction_read_only = off")
            cursor.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = {word}')
            # It holds for new connections. Where threads share them (a test before this one may
            # have started a server here), others are open already, and this one stays so.
            cursor.execute(f"SET default_transaction_read_only = {word}")
        end_all_others()
        connections.close_all()

    switch("on")
    try:
        yield
    finally:
        switch("off")


@pytest.fixture
def session(owner, queued, model_server) -> Session:
    return SessionFactory(owner=owner)


@pytest.mark.parametrize("stream", [False, True])
def test_connections_that_are_cut_while_the_model_answers_cost_no_turn(
    session, api, model_server, monkeypatch, stream
):
    real = ModelServer.answer

    def answer(*arguments: Any) -> Any:
        end_all_others()
        connections.close_all()
        return real(*arguments)

    monkeypatch.setattr(ModelServer, "answer", answer)
    body = {"content": "hello", "stream": stream}
    response = api.post(url(session, "turns/"), body, format="json")
    if stream:

        async def pieces() -> bytes:
            return b"".join([piece async for piece in response.streaming_content])

        assert b"event: done" in asyncio.run(pieces())
    assert response.status_code == 200
    connections.close_all()
    rows = Message.objects.filter(session=session).order_by("position")
    assert [row.content for row in rows] == ["hello", "ok"]


def test_a_database_that_stores_nothing_reads_on_and_says_when_to_come_back(
    session, api, model_server
):
    with read_only():
        for send in (
            lambda: api.post(url(session, "turns/"), {"content": "hello"}, format="json"),
            lambda: api.post(url(session, "compact/"), {}, format="json"),
            lambda: api.patch(url(session), {"title": "new"}, format="json"),
        ):
            response = send()
            assert problem(response, 503)["code"] == "unavailable"
            assert int(response["Retry-After"]) > 0
        assert api.get(url(session)).status_code == 200
        assert api.get("/readyz").status_code == 503
        assert api.get("/healthz").status_code == 200
    assert not model_server.calls
    sent = api.post(url(session, "turns/"), {"content": "hello"}, format="json")
    assert sent.status_code == 200
