"""A client that goes away while a slow request is worked at: who works is told."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from django.db import connections
from django.http import HttpResponse
from django.test import override_settings
from django.urls import include, path

from chatapp import import_work
from chatapp.handler import ThreadPoolHandler
from chatapp.models import ImportJob, Session
from chatapp.pools import CLIENT_LEFT, Pool, answered_in
from tests.factories import UserFactory, api_key, talk

told: list[bool] = []


@answered_in(Pool.SLOW)
def slow(request):
    told.append(request.scope[CLIENT_LEFT].wait(5))
    return HttpResponse("late")


@answered_in(Pool.SLOW)
def patient(request):
    told.append(request.scope[CLIENT_LEFT].wait(0.1))
    return HttpResponse("in time")


def quick(request):
    told.append(CLIENT_LEFT in request.scope)
    return HttpResponse("at once")


urlpatterns = [
    path("slow/", slow),
    path("patient/", patient),
    path("quick/", quick),
    path("api/v1/", include("chatapp.api.urls")),
]


@pytest.fixture
def handler(transactional_db):
    told.clear()
    with override_settings(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"]):
        made = ThreadPoolHandler()
        yield made
        # A thread's connection would keep the test database in use.
        for pool in (Pool.QUICK, Pool.SLOW):
            made.pools.of(pool).submit(connections.close_all).result()
        made.pools.shutdown()


class Client:
    """Sends one body, and goes away when `leaves` is set."""

    def __init__(self, body: bytes = b"") -> None:
        self.leaves = threading.Event()
        self.sent: list[dict] = []
        self._body: bytes | None = body

    async def receive(self):
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        while not self.leaves.is_set():
            await asyncio.sleep(0.01)
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.sent.append(message)

    def ask(self, handler, where: str, method: str = "GET", **headers: str) -> None:
        sent = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
        scope = {
            "type": "http", "method": method, "path": where, "query_string": b"",
            "headers": [(b"host", b"h"), *sent.items()],
        }  # fmt: skip
        asyncio.run(asyncio.wait_for(handler(scope, self.receive, self.send), 30))


def test_who_answers_slowly_is_told_that_the_client_left(handler):
    client = Client()
    client.leaves.set()
    client.ask(handler, "/slow/")
    assert told == [True]


def test_a_client_that_stays_gets_its_answer(handler):
    client = Client()
    client.ask(handler, "/patient/")
    assert told == [False]
    assert client.sent[1]["body"] == b"in time"


def test_quick_requests_watch_nobody(handler):
    client = Client()
    client.leaves.set()
    client.ask(handler, "/quick/")
    assert told == [False]
    assert client.sent[1]["body"] == b"at once"


def test_an_import_ends_between_two_batches_when_its_client_leaves(handler, queued, monkeypatch):
    monkeypatch.setattr("chatapp.import_batches.BATCH_CONVERSATIONS", 1)
    file = b"\n".join(json.dumps({"messages": talk(1, marker=n)}).encode() for n in range(20))
    client, real, batches = Client(file), import_work.import_batch, []

    def leaving(*args, **kwargs):
        batches.append(1)
        if len(batches) == 3:
            client.leaves.set()
            threading.Event().wait(0.3)  # the event loop hears of it
        return real(*args, **kwargs)

    monkeypatch.setattr(import_work, "import_batch", leaving)
    key = api_key(owner=UserFactory())
    client.ask(
        handler,
        "/api/v1/sessions/import/",
        "POST",
        authorization=f"Bearer {key}",
        content_type="application/octet-stream",
        content_length=str(len(file)),
    )
    job = ImportJob.objects.get()
    assert (job.status, job.error_code) == ("cancelled", "client_left")
    assert job.sessions_made == Session.objects.count() == 3
