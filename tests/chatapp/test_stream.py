"""Server-sent events through a real uvicorn: what arrives, when, and what a lost client costs."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import tracemalloc
from collections.abc import Iterator
from itertools import groupby

import httpx2
import pytest
from django.db import OperationalError, connections

from chatapp.models import Message, Session
from chatapp.transcript import append
from chatapp.transcript.writing import NewMessage
from chatapp.turns import streaming
from chatapp.turns.lease import TurnLease
from chatapp.turns.service import Turn, begin_turn
from tests.factories import SessionFactory, api_key, call

pytestmark = pytest.mark.django_db(transaction=True)
CHAT = {"purpose": "chat"}


@pytest.fixture
def full_history(settings):
    settings.CHATAPP = settings.CHATAPP | {
        "CONTEXT": {"BACKEND": "chatapp.context.backend.FullHistoryBackend", "OPTIONS": {}}
    }


@pytest.fixture
def chat(asgi_server, model_server, full_history, owner):
    """One session behind the server; `chat.turn(...)` yields the events of a streamed turn."""
    return Chat(asgi_server.url, owner)


class Chat:
    def __init__(self, base: str, owner) -> None:
        self.base = base
        self.owner = owner
        self.key = api_key(owner)
        self.session = SessionFactory(owner=owner)

    def url(self, session: Session | None = None) -> str:
        return f"{self.base}/api/v1/sessions/{(session or self.session).pk}/turns/"

    def headers(self, **more: str) -> dict[str, str]:
        return {"Authorization": f"Token {self.key}"} | more

    def turn(self, session: Session | None = None, key: str = "", **body) -> list[tuple[str, dict]]:
        """Return all events of a streamed turn."""
        body = {"content": "hello", "stream": True} | body
        headers = self.headers(**{"Idempotency-Key": key} if key else {})
        with httpx2.stream(
            "POST", self.url(session), json=body, headers=headers, timeout=20
        ) as response:
            assert response.status_code == 200, response.read()
            return list(events(response.iter_lines()))

    def stored(self) -> list[str | None]:
        return [
            row.content for row in Message.objects.filter(session=self.session).order_by("position")
        ]


def events(lines: Iterator[str]) -> Iterator[tuple[str, dict]]:
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))
        elif line.startswith(":"):
            yield "heartbeat", {}


def until(condition, seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return bool(condition())


def test_a_turn_arrives_as_its_messages_its_pieces_and_its_end(chat, model_server):
    model_server.script = [{"when": CHAT, "reply": {"chunks": ["one ", "two"]}}]
    heard = chat.turn()
    # Pieces that wait for a slow reader are joined, so they are one or two.
    assert [name for name, _ in groupby(name for name, _ in heard)] == ["message", "delta", "done"]
    assert heard[0][1]["content"] == "hello"
    texts = [payload["text"] for name, payload in heard if name == "delta"]
    assert texts in (["one ", "two"], ["one two"])
    done = heard[-1][1]
    assert done["answer"]["content"] == "one two"
    assert set(done) == {"messages", "answer", "context", "run", "left_out", "events"}
    assert chat.stored() == ["hello", "one two"]


def test_pieces_arrive_while_the_model_still_writes(chat, model_server):
    heard = threading.Event()
    reply = {"chunks": ["first ", "rest"], "rest_until": heard}
    model_server.script = [{"when": CHAT, "reply": reply}]
    body = {"content": "hello", "stream": True}
    pieces = []
    with httpx2.stream("POST", chat.url(), json=body, headers=chat.headers()) as response:
        for name, payload in events(response.iter_lines()):
            if name == "delta":
                pieces.append(payload["text"])
                heard.set()
    # The model writes the second one when the client has read the first.
    assert pieces == ["first ", "rest"]


def test_the_stream_is_neither_cached_nor_held_back_by_a_proxy(chat):
    body = {"content": "hello", "stream": True}
    with httpx2.stream("POST", chat.url(), json=body, headers=chat.headers()) as response:
        response.read()
    assert response.headers["content-type"] == "text/event-stream"
    assert response.headers["cache-control"] == "no-cache, no-store"
    assert response.headers["x-accel-buffering"] == "no"


def test_a_call_arrives_in_pieces_that_name_it(chat, model_server):
    reply = {"tool_calls": call("read", "c1", '{"p":1}')["tool_calls"]}
    model_server.script = [{"when": CHAT, "reply": reply}]
    heard = chat.turn()
    assert [name for name, _ in heard] == ["message", "tool_call", "done"]
    assert heard[1][1] == {"index": 0, "id": "c1", "name": "read", "arguments_delta": '{"p":1}'}
    assert heard[-1][1]["answer"]["finish_reason"] == "tool_calls"


def test_a_failure_is_an_event_and_the_end(chat, model_server):
    error = {"status": 401, "body": {"error": {"message": "no"}}}
    model_server.script = [{"when": CHAT, "reply": {"error": error}}]
    heard = chat.turn()
    assert [name for name, _ in heard] == ["message", "error"]
    assert heard[-1][1]["code"] == "authentication"
    assert chat.stored() == ["hello"]


def test_a_failure_half_way_comes_after_the_pieces(chat, model_server):
    reply = {"chunks": ["half ", "x"], "fail_after": 1, "stream_error": {"message": "boom"}}
    model_server.script = [{"when": CHAT, "reply": reply}]
    heard = chat.turn()
    assert [name for name, _ in heard] == ["message", "delta", "error"]
    assert heard[-1][1]["code"] == "broken_answer"
    assert chat.stored() == ["hello", "half "]


def test_a_turn_without_a_question_ends_with_an_error_event(chat):
    with httpx2.stream(
        "POST", chat.url(), json={"stream": True, "continue": True}, headers=chat.headers()
    ) as response:
        heard = list(events(response.iter_lines()))
    assert [(name, payload["code"]) for name, payload in heard] == [("error", "nothing_to_answer")]


class Broken:
    """A context backend that cannot do anything."""

    def __init__(self, **options) -> None:
        pass

    def prepare(self, *args, **kwargs):
        raise RuntimeError("secret details")


def test_a_fault_of_our_own_is_an_event_without_its_details(chat, settings):
    settings.CHATAPP = settings.CHATAPP | {"CONTEXT": {"BACKEND": f"{__name__}.Broken"}}
    name, payload = chat.turn()[-1]
    assert (name, payload["code"]) == ("error", "internal_error")
    assert "secret" not in payload["detail"]
    assert until(lambda: not Session.objects.exclude(turn_owner=None).exists())


class WithoutDatabase(Broken):
    """A context backend that finds the database away."""

    def prepare(self, *args, **kwargs):
        raise OperationalError("could not extend file: No space left on device")


def test_trouble_with_the_database_is_an_event_of_its_own(chat, settings):
    """It was told as a fault of ours."""
    settings.CHATAPP = settings.CHATAPP | {"CONTEXT": {"BACKEND": f"{__name__}.WithoutDatabase"}}
    name, payload = chat.turn()[-1]
    assert (name, payload["code"]) == ("error", "unavailable")
    assert "database" in payload["detail"]
    assert "No space" not in payload["detail"]


def read_all(queue: streaming.EventQueue) -> list[streaming.Event]:
    async def read() -> list[streaming.Event]:
        return [event async for event in queue.read(heartbeat=5) if event is not None]

    return asyncio.run(read())


def piece(event: str, **payload) -> streaming.Event:
    return streaming.Event(name=event, payload=payload)


END = streaming.Event(name="done", payload={}, last=True)


def test_an_answer_that_nobody_reads_takes_about_its_own_size():
    """Two million characters in pieces of five took more than a hundred megabytes."""
    queue, count = streaming.EventQueue(), 100_000
    tracemalloc.start()
    try:
        for number in range(count):
            queue.put(piece("delta", text=f"{number:05}"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    queue.put(END)
    assert peak < 6 * 5 * count
    texts = [event.payload["text"] for event in read_all(queue)[:-1]]
    assert "".join(texts) == "".join(f"{number:05}" for number in range(count))


def test_pieces_that_wait_are_joined_where_they_belong_together():
    queue = streaming.EventQueue()
    call = {"id": "c", "name": "look"}
    for event in (
        piece("delta", text="a"),
        piece("delta", text="b"),
        piece("reset", code="reasoning"),
        piece("reasoning", text="c"),
        piece("delta", text="d"),
        piece("tool_call", index=0, **call, arguments_delta="{"),
        piece("tool_call", index=0, **call, arguments_delta="}"),
        piece("tool_call", index=1, **call, arguments_delta="{}"),
        END,
    ):
        queue.put(event)
    assert [(event.name, event.payload) for event in read_all(queue)] == [
        ("delta", {"text": "ab"}),
        ("reset", {"code": "reasoning"}),
        ("reasoning", {"text": "c"}),
        ("delta", {"text": "d"}),
        ("tool_call", {"index": 0, **call, "arguments_delta": "{}"}),
        ("tool_call", {"index": 1, **call, "arguments_delta": "{}"}),
        ("done", {}),
    ]


def test_a_reader_that_waits_is_woken_once_for_what_comes_together():
    queue, woken = streaming.EventQueue(), []

    async def read() -> list[streaming.Event]:
        loop = asyncio.get_running_loop()
        real = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *args: (woken.append(1), real(*args))

        async def write() -> None:
            for number in range(100):
                queue.put(piece("change", code=str(number)))
            queue.put(END)

        writing = asyncio.ensure_future(write())
        found = [event async for event in queue.read(heartbeat=5)]
        await writing
        return found

    assert len(asyncio.run(read())) == 101
    assert len(woken) == 1


def test_a_turn_that_cannot_be_started_gives_its_lease_back(owner, settings):
    settings.CHATAPP = settings.CHATAPP | {"STREAM_THREADS": 0}
    streaming._pool.cache_clear()
    session = SessionFactory(owner=owner)
    started = begin_turn(
        Turn(session=session, drafts=[NewMessage(wire={"role": "user", "content": "hello"})])
    )
    with pytest.raises(ValueError, match="max_workers"):
        streaming.start_turn(started, streaming.EventQueue())
    TurnLease(session).take()


def test_a_heartbeat_comes_while_the_model_is_silent(chat, model_server, settings):
    settings.CHATAPP = settings.CHATAPP | {"HEARTBEAT_SECONDS": 0.1}
    body = {"content": "hello", "stream": True}
    names = []
    with (
        model_server.holding("chat"),
        httpx2.stream("POST", chat.url(), json=body, headers=chat.headers()) as response,
    ):
        heard = events(response.iter_lines())
        while names.count("heartbeat") < 3:
            names.append(next(heard)[0])
        model_server.let_go("chat")
        names += [name for name, _ in heard]
    assert names[-1] == "done"


def test_a_client_that_goes_away_loses_nothing(chat, model_server):
    gone = threading.Event()
    reply = {"chunks": ["x "] * 8, "rest_until": gone}
    model_server.script = [{"when": CHAT, "reply": reply}]
    body = {"content": "hello", "stream": True}
    with httpx2.stream("POST", chat.url(), json=body, headers=chat.headers()) as response:
        next(response.iter_lines())
    assert chat.stored() == ["hello"]
    gone.set()
    assert until(lambda: chat.stored() == ["hello", "x " * 8])
    assert until(lambda: not Session.objects.exclude(turn_owner=None).exists())


@pytest.mark.parametrize("accept", ["text/event-stream", "text/html", "*/*"])
def test_every_accept_header_is_served(chat, accept):
    body = {"content": "hello", "stream": True}
    with httpx2.stream(
        "POST", chat.url(), json=body, headers=chat.headers(Accept=accept)
    ) as response:
        assert response.status_code == 200
        assert [name for name, _ in events(response.iter_lines())][-1] == "done"


def refused(
    chat: Chat, session: Session | None = None, body=None, **headers: str
) -> httpx2.Response:
    """Return the answer to a streamed turn that never becomes a stream."""
    response = httpx2.post(
        chat.url(session),
        json={"content": "hello", "stream": True} if body is None else body,
        headers=chat.headers(Accept="text/event-stream", **headers),
    )
    assert response.headers["content-type"].startswith("application/problem+json")
    assert response.json()["status"] == response.status_code
    return response


def test_a_session_that_does_not_exist_is_404_before_any_event(chat):
    assert refused(chat, Session()).status_code == 404


def test_a_body_that_cannot_be_used_is_400_before_any_event(chat):
    assert refused(chat, body={"content": 5, "stream": True}).status_code == 400


def test_nobody_is_401_before_any_event(chat):
    assert refused(chat, Authorization="Token wrong").status_code == 401


def test_a_second_turn_is_409_before_any_event(chat):
    TurnLease(chat.session).take()
    assert refused(chat).status_code == 409


def test_a_key_with_another_body_is_422_before_any_event(chat):
    append(chat.session.branch, [NewMessage(wire={"role": "user", "content": "x"})], client_key="k")
    assert refused(chat, **{"Idempotency-Key": "k"}).status_code == 422
    assert chat.turn()[-1][0] == "done"


def test_an_answered_key_streams_its_answer_while_another_turn_runs(chat, model_server):
    first = chat.turn(key="k")
    TurnLease(chat.session).take()
    again = chat.turn(key="k")
    assert [name for name, _ in again] == ["message", "done"]
    assert again[-1][1]["answer"] == first[-1][1]["answer"]
    assert len(model_server.calls) == 1


def test_a_model_that_is_gone_is_422_before_any_event(chat):
    Session.objects.update(model="gone")
    assert refused(chat).status_code == 422


def test_twenty_streams_run_side_by_side(chat, model_server, settings):
    settings.CHATAPP = settings.CHATAPP | {"TURNS_PER_OWNER": 20}
    # None of them ends before all have come to the model.
    reply = {"chunks": ["x "] * 5, "waits_for": "chat", "waits_for_calls": 20}
    model_server.script = [{"when": CHAT, "reply": reply}]
    sessions = [SessionFactory(owner=chat.owner) for _ in range(20)]
    ends: list[str] = []

    def run(session: Session) -> None:
        ends.append(chat.turn(session)[-1][0])

    threads = [threading.Thread(target=run, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert ends == ["done"] * 20


def test_a_finished_turn_leaves_no_database_connection_in_its_thread(chat, monkeypatch):
    left: list[bool] = []
    close_all = connections.close_all

    def look() -> None:
        close_all()
        if threading.current_thread().name.startswith("turn"):
            left.extend(c.connection is not None for c in connections.all(initialized_only=True))

    monkeypatch.setattr(connections, "close_all", look)
    chat.turn()
    assert until(lambda: left)
    assert not any(left)
