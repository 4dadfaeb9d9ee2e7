"""Heads of requests that come slowly or never, through a real server on loopback."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from io import StringIO
from urllib.parse import urlsplit

import pytest
import uvicorn
from django.core.management import CommandError, call_command

pytestmark = pytest.mark.django_db(transaction=True)
WAIT = 0.4
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def connect(asgi_server, monkeypatch):
    """Open connections to a server that waits a short time for heads."""
    monkeypatch.setattr("chatapp.http_protocol.HEAD_SECONDS", WAIT)
    place = urlsplit(asgi_server.url)
    opened: list[socket.socket] = []

    def connect() -> socket.socket:
        opened.append(socket.create_connection((place.hostname, place.port), timeout=10))
        return opened[-1]

    yield connect
    for one in opened:
        one.close()


def all_of(connection: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    found = b""
    while piece := connection.recv(65_536):
        found += piece
    return found


def answers(connection: socket.socket, count: int = 1) -> int:
    """How many of the answers that are read in turn were 200."""
    found = b""
    while found.count(b"\r\n\r\nok\n") < count:
        found += connection.recv(65_536)
    return found.count(b"HTTP/1.1 200")


def seconds_until_let_go(connection: socket.socket, *, within: float = 20 * WAIT) -> float:
    """How long a client that sends on and on is listened to; fails where that is too long."""
    began = time.monotonic()
    with pytest.raises(OSError):
        while time.monotonic() - began < within:
            connection.sendall(b"x")
            time.sleep(WAIT / 10)
    return time.monotonic() - began


def told(answer: bytes) -> dict:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 Request Timeout")
    assert b"application/problem+json" in head
    return json.loads(body)


def test_who_sends_nothing_is_told_and_let_go(connect):
    connection = connect()
    began = time.monotonic()
    problem = told(all_of(connection))
    assert time.monotonic() - began >= WAIT
    assert (problem["status"], problem["code"]) == (408, "request_timeout")
    assert f"{WAIT} seconds" in problem["detail"]


def test_who_sends_on_behind_the_answer_is_let_go(connect, monkeypatch):
    monkeypatch.setattr("chatapp.http_protocol.LINGER_SECONDS", WAIT)
    connection = connect()
    connection.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n")
    assert connection.recv(65_536).startswith(b"HTTP/1.1 413")
    assert seconds_until_let_go(connection) >= WAIT / 2


@pytest.mark.parametrize(
    "head",
    [
        b"POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: 99999999999\r\n",
        b"POST / HTTP/1.0\r\nContent-Length: 99999999999\r\n",
        b"POST / HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n",
    ],
)
def test_who_closes_behind_one_answer_hears_it_while_sending(connect, monkeypatch, head):
    """The connection was reset, because what still came was not read."""
    monkeypatch.setattr("chatapp.http_protocol.HEAD_SECONDS", 60)
    connection = connect()
    connection.sendall(head + b"Host: localhost\r\n\r\n")
    body = b"x" * 65_536
    piece = body if b"chunked" not in head else b"10000\r\n" + body + b"\r\n"
    for _ in range(400):
        connection.sendall(piece)
    time.sleep(WAIT)
    answer = all_of(connection)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"bytes that are allowed" in answer


def test_who_closes_and_sends_on_is_let_go(connect, monkeypatch):
    monkeypatch.setattr("chatapp.http_protocol.HEAD_SECONDS", 60)
    monkeypatch.setattr("chatapp.http_protocol.LINGER_SECONDS", WAIT)
    connection = connect()
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    connection.sendall(head + b"Content-Length: 99999999999\r\n\r\n")
    assert seconds_until_let_go(connection) >= WAIT / 2


def test_who_sends_what_is_no_http_hears_so(connect):
    connection = connect()
    connection.sendall(b"\0no http\r\n\r\n")
    connection.sendall(b"x" * 1_000_000)
    time.sleep(WAIT / 4)
    assert all_of(connection).startswith(b"HTTP/1.1 400")


def test_who_sends_no_request_at_all_is_let_go(connect, monkeypatch):
    """Such a connection was kept for as long as its client liked."""
    monkeypatch.setattr("chatapp.http_protocol.HEAD_SECONDS", 60)
    monkeypatch.setattr("chatapp.http_protocol.LINGER_SECONDS", WAIT)
    connection = connect()
    connection.sendall(b"nonsense\r\n\r\n")
    assert all_of(connection).startswith(b"HTTP/1.1 400")
    seconds_until_let_go(connection)


def test_an_answered_body_is_waited_for_once(connect, monkeypatch):
    """It was waited for twice as long as it says."""
    monkeypatch.setattr("chatapp.http_protocol.HEAD_SECONDS", 60)
    monkeypatch.setattr("chatapp.http_protocol.LINGER_SECONDS", 5 * WAIT)
    connection = connect()
    connection.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n")
    assert connection.recv(65_536).startswith(b"HTTP/1.1 413")
    seconds_until_let_go(connection, within=9 * WAIT)


def test_a_body_that_ends_behind_the_answer_costs_no_connection(connect, monkeypatch):
    monkeypatch.setattr("chatapp.http_protocol.LINGER_SECONDS", WAIT)
    monkeypatch.setattr("chatapp.http_protocol.HEAD_SECONDS", 60)
    monkeypatch.setattr("chatapp.handler._largest_body", lambda path: 3)
    connection = connect()
    connection.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n")
    assert connection.recv(65_536).startswith(b"HTTP/1.1 413")
    connection.sendall(b"xxxx" + WHOLE)
    assert answers(connection) == 1
    time.sleep(2 * WAIT)
    connection.sendall(WHOLE)
    assert answers(connection) == 1


def test_a_byte_now_and_then_buys_no_time(connect):
    connection = connect()
    # The server answers before the head is whole, which takes five times as long as it waits.
    for byte in WHOLE[:-2]:
        connection.sendall(bytes([byte]))
        if select.select([connection], [], [], WAIT / 8)[0]:
            break
    else:
        pytest.fail("the server still reads")
    assert told(all_of(connection))["code"] == "request_timeout"


def test_a_later_request_of_a_connection_has_no_more_time(connect):
    connection = connect()
    connection.sendall(WHOLE)
    assert answers(connection) == 1
    connection.sendall(WHOLE[:20])
    rest = all_of(connection)
    assert told(rest[rest.index(b"HTTP/1.1 408") :])["code"] == "request_timeout"


def test_whole_requests_are_answered_one_after_the_other(connect):
    connection = connect()
    for _ in range(3):
        connection.sendall(WHOLE)
        assert answers(connection) == 1
        time.sleep(WAIT / 4)
    connection.sendall(WHOLE + WHOLE)
    assert answers(connection, 2) == 2


def test_a_body_has_a_time_of_its_own(connect):
    connection = connect()
    head = b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n"
    connection.sendall(head + b"ab")
    time.sleep(2 * WAIT)
    connection.sendall(b"cd")
    assert not connection.recv(65_536).startswith(b"HTTP/1.1 408")


def test_the_command_serves_with_this_protocol(monkeypatch):
    given: dict[str, object] = {}
    monkeypatch.setattr(uvicorn, "run", lambda app, **options: given.update(options, app=app))
    call_command("serve", "--port", "8123", "--workers", "3", stdout=StringIO())
    assert (given["app"], given["port"], given["workers"]) == (
        "chatapp.asgi:application",
        8123,
        3,
    )
    assert given["http"] == "chatapp.http_protocol:TimedHeadProtocol"


@pytest.mark.parametrize("database", ["sqlite:///:memory:", "postgres://nobody@127.0.0.1:1/none"])
def test_one_of_several_processes_loads_all_of_it(database):
    """It does so inside its event loop, and the protocol before anything of Django is set up."""
    loads = "server.Config(serve.APPLICATION, http=serve.PROTOCOL).load()"
    script = f"""
import asyncio
from uvicorn import server
from chatapp.management.commands import serve
async def load(): {loads}
asyncio.run(load())
"""
    environment = {**os.environ, "DATABASE_URL": database, "DEBUG": "true"}
    environment["DJANGO_SETTINGS_MODULE"] = "chatapp.settings"
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("wrong", [["--port", "70000"], ["--workers", "0"]])
def test_the_command_says_what_is_wrong(wrong):
    with pytest.raises(CommandError, match=wrong[0]):
        call_command("serve", *wrong, stdout=StringIO())
