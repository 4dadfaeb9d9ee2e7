"""The ASGI handler: one thread a request, connections that are kept, streams that end."""

from __future__ import annotations

import asyncio
import threading

import pytest
from django.core.signals import request_finished, request_started
from django.db import connection, connections
from django.http import HttpResponse, StreamingHttpResponse
from django.test import override_settings
from django.urls import path

from chatapp.handler import ThreadPoolHandler
from chatapp.pools import Pool

seen: list[tuple[str, int]] = []
closed: list[str] = []


def note(what: str) -> None:
    seen.append((what, threading.get_ident()))


class Noting:
    """A middleware that tells which thread it runs in."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        note("middleware")
        return self.get_response(request)


def answer(request):
    note("view")
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    seen.append(("connection", id(connection.connection)))
    return HttpResponse(request.body)


def fail(request):
    raise RuntimeError("what nobody expected")


async def _endless():
    try:
        while True:
            yield b"more "
            await asyncio.sleep(0)
    finally:
        closed.append("stream")


def stream(request):
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return StreamingHttpResponse(_endless())


def short(request):
    note("view")
    return StreamingHttpResponse(iter([b"a", b"b"]))


urlpatterns = [
    path("answer/", answer),
    path("fail/", fail),
    path("stream/", stream),
    path("short/", short),
]


@pytest.fixture
def handler(transactional_db, settings):
    seen.clear()
    closed.clear()
    settings.CHATAPP = settings.CHATAPP | {"REQUEST_THREADS": 1}
    with override_settings(
        ROOT_URLCONF=__name__, MIDDLEWARE=[f"{__name__}.Noting"], ALLOWED_HOSTS=["*"]
    ):
        made = ThreadPoolHandler()
        yield made
        # A thread's connection would keep the test database in use.
        made.pools.of(Pool.QUICK).submit(connections.close_all).result()
        made.pools.shutdown()


async def ask(handler, where, *, body=b"", leaves_after=None):
    """Send a request; return (status, body). The client goes away after so many parts."""
    sent = []
    left = asyncio.Event()
    inbox = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        if inbox:
            return inbox.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)
        if leaves_after is not None and len(sent) > leaves_after:
            left.set()

    scope = {
        "type": "http", "method": "POST", "path": where, "query_string": b"",
        "headers": [(b"host", b"h"), (b"content-length", str(len(body)).encode())],
    }  # fmt: skip
    await asyncio.wait_for(handler(scope, receive, send), 20)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def test_a_request_stays_in_one_thread_from_its_start_to_its_end(handler):
    def started(**kwargs):
        note("started")

    def finished(**kwargs):
        note("finished")

    request_started.connect(started)
    request_finished.connect(finished)
    try:
        assert asyncio.run(ask(handler, "/answer/", body=b"hello")) == (200, b"hello")
    finally:
        request_started.disconnect(started)
        request_finished.disconnect(finished)
    steps = [step for step in seen if step[0] != "connection"]
    assert [what for what, _ in steps] == ["started", "middleware", "view", "finished"]
    assert len({thread for _, thread in steps}) == 1
    assert steps[0][1] != threading.get_ident()


def test_the_next_request_finds_the_connection_of_the_one_before(handler):
    connection.settings_dict["CONN_MAX_AGE"], kept = 60, connection.settings_dict["CONN_MAX_AGE"]
    try:

        async def twice():
            await ask(handler, "/answer/")
            await ask(handler, "/answer/")

        asyncio.run(twice())
    finally:
        connection.settings_dict["CONN_MAX_AGE"] = kept
    first, second = (number for what, number in seen if what == "connection")
    assert first == second


def test_a_fault_is_answered_and_the_thread_goes_on(handler, caplog):
    async def both():
        return await ask(handler, "/fail/"), await ask(handler, "/answer/", body=b"x")

    failed, fine = asyncio.run(both())
    assert failed[0] == 500
    assert fine == (200, b"x")


def test_a_stream_is_closed_when_the_client_goes_away(handler):
    status, body = asyncio.run(ask(handler, "/stream/", leaves_after=3))
    assert status == 200
    assert body.startswith(b"more more ")
    assert closed == ["stream"]


def test_a_stream_holds_no_connection_where_none_are_kept(handler):
    held: list[bool] = []

    def look():
        held.extend(made.connection is not None for made in connections.all(initialized_only=True))

    connection.settings_dict["CONN_MAX_AGE"], kept = 0, connection.settings_dict["CONN_MAX_AGE"]
    try:
        asyncio.run(ask(handler, "/stream/", leaves_after=2))
        handler.pools.of(Pool.QUICK).submit(look).result()
    finally:
        connection.settings_dict["CONN_MAX_AGE"] = kept
    assert held == [False]


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume synchronous iterators")
def test_a_stream_of_a_synchronous_kind_is_sent_whole(handler):
    assert asyncio.run(ask(handler, "/short/")) == (200, b"ab")


def test_more_requests_than_threads_wait_for_their_turn(handler):
    async def many():
        return await asyncio.gather(*(ask(handler, "/answer/", body=b"%d" % n) for n in range(5)))

    answers = asyncio.run(many())
    assert answers == [(200, b"0"), (200, b"1"), (200, b"2"), (200, b"3"), (200, b"4")]
    assert len({thread for what, thread in seen if what == "view"}) == 1


class Arriving:
    """A body that comes in parts, or never; `read` counts the parts that were asked for."""

    def __init__(self, *parts: bytes, then_waits: bool = False) -> None:
        self.parts, self.then_waits, self.read = list(parts), then_waits, 0

    async def receive(self):
        self.read += 1
        if not self.parts:
            await asyncio.sleep(30)
        part = self.parts.pop(0)
        return {
            "type": "http.request",
            "body": part,
            "more_body": bool(self.parts) or self.then_waits,
        }


async def told(handler, arriving: Arriving, *, length: int | None = None, where="/answer/"):
    sent = []

    async def send(message):
        sent.append(message)

    headers = [(b"host", b"h")]
    if length is not None:
        headers.append((b"content-length", str(length).encode()))
    scope = {
        "type": "http", "method": "POST", "path": where, "query_string": b"", "headers": headers,
    }  # fmt: skip
    await asyncio.wait_for(handler(scope, arriving.receive, send), 20)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def test_a_body_that_says_it_is_too_large_is_not_read_at_all(handler, settings):
    settings.CHATAPP = settings.CHATAPP | {"MAX_BODY_BYTES": 100}
    arriving = Arriving(b"x" * 50)
    status, body = asyncio.run(told(handler, arriving, length=101))
    assert status == 413
    assert b"100 bytes" in body
    assert arriving.read == 0


@pytest.mark.parametrize("length", [None, 10])
def test_a_body_that_is_larger_than_it_says_is_read_no_further(handler, settings, length):
    settings.CHATAPP = settings.CHATAPP | {"MAX_BODY_BYTES": 100}
    arriving = Arriving(*[b"x" * 40] * 1000)
    status, _ = asyncio.run(told(handler, arriving, length=length))
    assert (status, arriving.read) == (413, 3)
    assert [what for what, _ in seen if what == "view"] == []


def test_imports_have_a_limit_of_their_own(handler, settings):
    settings.CHATAPP = settings.CHATAPP | {"MAX_BODY_BYTES": 100, "MAX_IMPORT_BYTES": 200}
    where = "/api/v1/sessions/import/"
    assert asyncio.run(told(handler, Arriving(b"x" * 150), length=150, where=where))[0] == 404
    assert asyncio.run(told(handler, Arriving(b"x"), length=201, where=where))[0] == 413


def test_a_body_that_does_not_arrive_is_not_waited_for(handler, monkeypatch):
    monkeypatch.setattr("chatapp.handler.BODY_SECONDS", 0.05)
    arriving = Arriving(b"x", then_waits=True)
    status, body = asyncio.run(told(handler, arriving, length=50))
    assert status == 408
    assert b"0.05 seconds" in body


# --- the process lives ----------------------------------------------------------------------------


class NoPools:
    """Stands for pools whose threads are all busy."""

    def of(self, pool: Pool):
        raise AssertionError("A health check took a thread.")


@pytest.mark.parametrize("address", ["/healthz", "/health/"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_event_loop_says_by_itself_that_the_process_lives(address, method):
    handler = ThreadPoolHandler()
    handler.__dict__["pools"] = NoPools()
    sent: list[dict] = []

    async def send(message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": address, "headers": [], "root_path": ""}
    asyncio.run(handler(scope, None, send))
    head, body = sent
    headers = {name.decode().lower(): value.decode() for name, value in head["headers"]}
    assert (head["status"], body["body"]) == (200, b"ok\n")
    assert headers["cache-control"] == "no-store"
    assert headers["content-type"].startswith("text/plain")
    assert headers["content-length"] == "3"


def test_other_methods_and_addresses_take_the_usual_way():
    handler = ThreadPoolHandler()
    handler.__dict__["pools"] = NoPools()

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    for method, address in (("POST", "/healthz"), ("GET", "/healthz/"), ("GET", "/readyz")):
        scope = {"type": "http", "method": method, "path": address, "headers": []}
        with pytest.raises(AssertionError, match="took a thread"):
            asyncio.run(handler(scope | {"root_path": ""}, receive, None))
