"""A database that does not take an answer: full, read-only, cut. Nothing it brought is lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection, connections
from django.db.backends.signals import connection_created

from chatapp.answer_files import folder
from chatapp.late_answers import store_late_answers
from chatapp.models import Branch, Incident, Message, Session
from chatapp.transcript import append, delete_session
from chatapp.transcript.writing import NewMessage
from compaction.doctor.examine import examine
from compaction.runs.sweep import sweep_runs
from tests.chatapp.test_api_sessions import problem, url
from tests.chatapp.test_database_lost import read_only
from tests.factories import SessionFactory, user
from tests.facts import code
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.django_db(transaction=True)
ROOT = Path(__file__).resolve().parents[2]
FACT = code(7)
LONG = f"{FACT} " + "and this is said at length. " * 4_000
CALL = {"id": "call_1", "name": "look_up", "arguments": '{"what": "' + FACT + '"}'}


@pytest.fixture(autouse=True)
def answers_folder(settings, tmp_path, monkeypatch) -> Path:
    settings.ANSWER_DIR = tmp_path / "answers"
    monkeypatch.setattr("chatapp.late_answers.STORE_SECONDS", 1.0)
    return tmp_path / "answers"


@pytest.fixture
def session(owner, queued, model_server) -> Session:
    return SessionFactory(owner=owner)


@contextmanager
def full() -> Iterator[None]:
    """Have the database take a question and no long answer: really full, or read-only.

    SQLite's file may grow by some pages; PostgreSQL is switched while the model answers.
    """
    if connection.vendor == "postgresql":
        with read_only():
            yield
        return

    def bound(sender: Any, connection: Any, **kwargs: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA page_count")
            most = cursor.fetchone()[0] + 8
            cursor.execute(f"PRAGMA max_page_count = {most}")

    with connection.cursor() as cursor:
        # Rows of the tests before this one have left room inside of the file.
        cursor.execute("VACUUM")
    connection.close()
    connection_created.connect(bound)
    try:
        yield
    finally:
        connection_created.disconnect(bound)
        connection.close()


@contextmanager
def full_while_answering(monkeypatch) -> Iterator[None]:
    """The same from the moment on at which the model is asked."""
    if connection.vendor == "sqlite":
        with full():
            yield
        return
    real, states = ModelServer.answer, []

    def answer(*arguments: Any) -> Any:
        if not states:
            states.append(read_only())
            states[0].__enter__()
            connections.close_all()
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(ModelServer, "answer", answer)
        try:
            yield
        finally:
            connections.close_all()
            if states:
                states[0].__exit__(None, None, None)


def script(model_server: ModelServer, **reply: Any) -> None:
    model_server.script = [{"when": {"purpose": "chat"}, "reply": reply}]


def lose_an_answer(api, session, monkeypatch, body=None, **extra: Any) -> Any:
    body = {"content": "What do you know?"} | (body or {})
    with full_while_answering(monkeypatch):
        response = api.post(url(session, "turns/"), body, format="json", **extra)
        if body.get("stream"):

            async def pieces() -> bytes:
                return b"".join([piece async for piece in response.streaming_content])

            return asyncio.run(pieces()).decode()
    return response


def rows(session: Session) -> list[Message]:
    return list(Message.objects.filter(session=session).order_by("position"))


def test_the_answer_reaches_the_client_whole_and_says_that_it_is_not_stored(
    api, session, model_server, monkeypatch
):
    script(model_server, text=LONG, reasoning=f"Thought {FACT}", tool_calls=[CALL])
    response = lose_an_answer(api, session, monkeypatch)
    told = problem(response, 503)
    assert told["code"] == "answer_not_stored"
    assert int(response["Retry-After"]) > 0
    answer = told["answer"]
    assert answer["content"] == LONG
    assert answer["reasoning"] == f"Thought {FACT}"
    assert FACT in answer["tool_calls"][0]["function"]["arguments"]
    assert "is kept on the server's disk" in told["detail"]
    assert [row.role for row in rows(session)] == ["user"]


def test_a_stream_tells_it_whole_before_its_error(api, session, model_server, monkeypatch):
    script(model_server, text=LONG)
    events = lose_an_answer(api, session, monkeypatch, {"stream": True})
    *_, told, last = events.strip().split("\n\n")
    assert told.startswith("event: not_stored\n")
    data = json.loads(told.partition("data: ")[2])
    assert (data["answer"]["content"], data["is_kept"]) == (LONG, True)
    assert last.startswith("event: error\n")
    assert json.loads(last.partition("data: ")[2])["code"] == "answer_not_stored"


def freed(session: Session) -> None:
    """Let the lease run out that a database without room could not give back."""
    Session.objects.filter(pk=session.pk).update(turn_owner=None, turn_expires_at=None)


def test_what_had_come_of_a_broken_answer_is_kept_as_well(api, session, model_server, monkeypatch):
    script(model_server, chunks=[LONG, "and more"], fail_after=1)
    events = lose_an_answer(api, session, monkeypatch, {"stream": True})
    assert "event: not_stored" in events
    freed(session)
    assert store_late_answers() == 1
    late = rows(session)[1]
    assert (late.content, late.finish_reason) == (LONG, "interrupted")


def test_the_next_turn_stores_it_first(api, session, model_server, monkeypatch):
    script(model_server, text=LONG, reasoning="Thought of it.")
    lost = lose_an_answer(api, session, monkeypatch).json()["answer"]
    freed(session)
    script(model_server, text="ok")
    sent = api.post(url(session, "turns/"), {"content": "And now?"}, format="json")
    assert sent.status_code == 200
    found = rows(session)
    assert [row.role for row in found] == ["user", "assistant", "user", "assistant"]
    assert str(found[1].pk) == lost["id"]
    assert (found[1].content, found[1].reasoning) == (LONG, "Thought of it.")
    assert FACT in str(model_server.calls[-1].messages)
    assert examine(session.pk) == []
    assert list(folder().iterdir()) == []
    assert Incident.objects.get(session=session).code == "stored_late"


def test_the_same_turn_sent_again_gets_the_answer_that_was_kept(
    api, session, model_server, monkeypatch
):
    script(model_server, text=LONG)
    key = {"headers": {"Idempotency-Key": "once"}}
    lost = lose_an_answer(api, session, monkeypatch, **key).json()["answer"]
    freed(session)
    asked = len(model_server.calls)
    body = {"content": "What do you know?"}
    again = api.post(url(session, "turns/"), body, format="json", **key)
    assert again.status_code == 200
    assert again.json()["answer"]["id"] == lost["id"]
    assert len(model_server.calls) == asked


def test_the_sweep_and_the_command_store_it(api, session, model_server, monkeypatch):
    script(model_server, text=LONG)
    lose_an_answer(api, session, monkeypatch)
    freed(session)
    listed = StringIO()
    call_command("store_answers", "--list", stdout=listed)
    assert str(session.pk) in listed.getvalue()
    assert FACT not in listed.getvalue()
    assert sweep_runs().stored_answers == 1
    assert [row.content for row in rows(session)][1:] == [LONG]
    said = StringIO()
    call_command("store_answers", stdout=said)
    assert said.getvalue() == "0 answers stored.\n"


def test_the_command_says_what_goes_on_waiting(api, session, model_server, monkeypatch):
    script(model_server, text=LONG)
    lose_an_answer(api, session, monkeypatch)
    freed(session)
    with full(), pytest.raises(CommandError, match=r"1 answer in .* cannot be stored yet"):
        call_command("store_answers", stdout=StringIO())
    assert store_late_answers() == 1


def test_no_room_for_a_moment_costs_nothing(api, session, model_server, monkeypatch):
    """The second try finds room; the file is gone again."""
    tries = []
    real = append

    def once(*args: Any, **kwargs: Any) -> Any:
        if args[1][0].wire["role"] == "assistant" and not tries:
            tries.append(list(folder().iterdir()) if folder().exists() else [])
            raise OperationalError("database or disk is full")
        return real(*args, **kwargs)

    monkeypatch.setattr("chatapp.turns.service.append", once)
    response = api.post(url(session, "turns/"), {"content": "hello"}, format="json")
    assert response.status_code == 200
    assert [row.content for row in rows(session)] == ["hello", "ok"]
    assert (tries, list(folder().iterdir())) == ([[]], [])


def test_a_commit_whose_answer_was_lost_is_not_done_twice(api, session, monkeypatch):
    real, tries = append, []

    def stored_unheard(*args: Any, **kwargs: Any) -> Any:
        stored = real(*args, **kwargs)
        if args[1][0].wire["role"] == "assistant":
            tries.append(stored)
            raise OperationalError("server closed the connection unexpectedly")
        return stored

    monkeypatch.setattr("chatapp.turns.service.append", stored_unheard)
    response = api.post(url(session, "turns/"), {"content": "hello"}, format="json")
    assert response.status_code == 200
    assert len(tries) == 1
    assert [row.content for row in rows(session)] == ["hello", "ok"]


def test_where_the_disk_is_full_too_the_client_hears_that_it_has_the_only_copy(
    api, session, model_server, monkeypatch, answers_folder
):
    answers_folder.write_text("no folder")
    script(model_server, text=LONG)
    told = problem(lose_an_answer(api, session, monkeypatch), 503)
    assert told["answer"]["content"] == LONG
    assert "only copy" in told["detail"]


def test_an_answer_found_late_parts_nothing_that_went_on_meanwhile(
    api, session, model_server, monkeypatch
):
    script(model_server, text=LONG)
    lost = lose_an_answer(api, session, monkeypatch).json()["answer"]
    freed(session)
    # On another machine, which has not that folder.
    append(session.branch, [NewMessage(wire=user("Are you there?"))])
    assert store_late_answers() == 1
    session.refresh_from_db()
    assert [row.content for row in rows(session) if row.branch_id == session.active_branch_id] == [
        "What do you know?",
        "Are you there?",
    ]
    late = Message.objects.get(pk=lost["id"])
    assert (late.content, late.branch.kind) == (LONG, Branch.Kind.FORK)
    assert late.branch.fork_position == rows(session)[0].position
    assert examine(session.pk) == []


@pytest.mark.parametrize("how", ["deleted", "erased"])
def test_a_file_goes_with_its_session(api, owner, session, model_server, monkeypatch, how):
    script(model_server, text=LONG)
    lose_an_answer(api, session, monkeypatch)
    assert len(list(folder().iterdir())) == 1
    if how == "deleted":
        delete_session(session)
    else:
        call_command("erase_user", owner.get_username(), "--yes", stdout=StringIO())
    assert list(folder().iterdir()) == []


def test_a_file_that_nobody_can_read_is_put_aside_and_the_others_are_stored(
    api, session, model_server, monkeypatch
):
    script(model_server, text=LONG)
    lose_an_answer(api, session, monkeypatch)
    freed(session)
    (folder() / str(session.pk) / "0.json").write_text("{half")
    assert store_late_answers() == 1
    assert [path.suffix for path in folder().glob("*/*")] == [".unreadable"]


def test_files_are_for_the_process_s_user_alone(api, session, model_server, monkeypatch):
    script(model_server, text=LONG)
    lose_an_answer(api, session, monkeypatch)
    (kept,) = folder().glob("*/*")
    modes = [path.stat().st_mode & 0o777 for path in (folder(), kept.parent, kept)]
    assert modes == [0o700, 0o700, 0o600]


def test_a_power_cut_forgets_neither_a_file_nor_its_name(api, session, model_server, monkeypatch):
    """What a folder has on the disk are names: a file that was synced can be lost with its own."""
    synced: list[Path] = []
    fsync = os.fsync

    def noted(opened: int) -> None:
        synced.append(Path(f"/proc/self/fd/{opened}").readlink())
        fsync(opened)

    monkeypatch.setattr(os, "fsync", noted)
    script(model_server, text=LONG)
    lose_an_answer(api, session, monkeypatch)
    (kept,) = folder().glob("*/*")
    assert synced[0].name.startswith(kept.name)
    assert synced[1:3] == [kept.parent, folder()]


KILLED = """
import django; django.setup()
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db.backends.signals import connection_created
from chatapp.transcript import create_session
from chatapp.transcript.writing import NewMessage
from chatapp.turns.service import Turn, begin_turn, finish_turn
call_command("migrate", verbosity=0)
owner = get_user_model().objects.create_user("somebody")
session = create_session(owner=owner)
draft = NewMessage(wire={"role": "user", "content": "What is said of SAID?"})
started = begin_turn(Turn(session=session, drafts=[draft]))
def read_only(sender, connection, **kwargs):
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA query_only = ON")
from chatapp.llm.embedded import EmbeddedModel
complete = EmbeddedModel.complete
def answer(*arguments, **options):
    from django.db import connection
    connection_created.connect(read_only)
    connection.close()
    return complete(*arguments, **options)
EmbeddedModel.complete = answer
print(session.pk, flush=True)
finish_turn(started)
"""


@pytest.mark.slow
@pytest.mark.skipif(connection.vendor != "sqlite", reason="a file of its own, made read-only")
def test_a_process_that_is_killed_while_it_tries_again_loses_nothing(tmp_path):
    surroundings = os.environ | {
        "DATABASE_URL": f"sqlite:///{tmp_path / 'own.sqlite3'}",
        "DJANGO_SETTINGS_MODULE": "chatapp.settings",
        "PALIMPSEST_DATA_DIR": str(tmp_path),
        "PYTHONPATH": str(ROOT),
    }
    program = KILLED.replace("SAID", FACT)
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, env=surroundings, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        session = process.stdout.readline().decode().strip()
        waits = tmp_path / "answers"
        end = time.monotonic() + 60
        while not list(waits.glob("*/*.json")) and time.monotonic() < end:
            time.sleep(0.02)
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    (kept,) = waits.glob(f"{session}/*.json")
    answer = json.loads(kept.read_text())
    assert answer["wire"]["content"]
    free = (
        "from chatapp.models import *; Session.objects.update(turn_owner=None, "
        "turn_expires_at=None)"
    )
    show = (
        "from chatapp.models import *; "
        "print([[str(m.pk), m.content] for m in Message.objects.filter(role='assistant')])"
    )
    for command in (["shell", "-c", free], ["store_answers"], ["shell", "-c", show]):
        done = subprocess.run(
            [sys.executable, "manage.py", *command],
            cwd=ROOT, env=surroundings, capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
    assert str([[answer["message"], answer["wire"]["content"]]]) in done.stdout
    assert list(waits.glob("*/*.json")) == []
