"""The folder of answers that wait: who may be in it, what it costs, what is said of it."""

from __future__ import annotations

import json
import os
import time
from io import StringIO
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import IntegrityError, OperationalError
from django.urls import reverse

from chatapp import answer_files, late_answers
from chatapp.answer_files import AnswerFile, folder, waiting
from chatapp.checks import check_answer_folder
from chatapp.ids import new_id
from chatapp.late_answers import TROUBLES_IN_A_ROW, store_late_answers
from chatapp.models import Branch, Message, Session
from chatapp.transcript import append
from chatapp.transcript.writing import NewMessage
from chatapp.turns.lease import TurnLease
from compaction.doctor.examine import examine
from tests.chatapp.test_api_sessions import problem, url
from tests.factories import SessionFactory, user
from tests.facts import code

pytestmark = pytest.mark.django_db(transaction=True)
FACT = code(11)


@pytest.fixture(autouse=True)
def answers_folder(settings, tmp_path) -> None:
    settings.ANSWER_DIR = tmp_path / "answers"


@pytest.fixture
def session(owner, queued, model_server) -> Session:
    return SessionFactory(owner=owner)


def wait_for(session: Session, *, text: str = f"It is {FACT}.") -> AnswerFile:
    """Leave a question, and a file with its answer."""
    (asked,) = append(session.branch, [NewMessage(wire=user("What is it?"))])
    kept = AnswerFile(
        message=new_id(),
        session=session.pk,
        after=asked.pk,
        made_at="2026-11-30T18:00:00+00:00",
        why="database or disk is full",
        wire={"role": "assistant", "content": text},
    )
    kept.write()
    return kept


def files() -> list[str]:
    return sorted(path.name for path in folder().glob("*/*"))


# --- more than one process ------------------------------------------------------------------------


def test_two_that_store_the_same_answer_store_one_and_fork_nothing(session, monkeypatch):
    kept, real = wait_for(session), TurnLease.take

    def after_another_process(lease: TurnLease) -> None:
        monkeypatch.setattr(TurnLease, "take", real)
        assert store_late_answers() == 1
        real(lease)

    monkeypatch.setattr(TurnLease, "take", after_another_process)
    assert store_late_answers() == 0
    assert [row.pk for row in Message.objects.filter(role="assistant")] == [kept.message]
    assert Branch.objects.filter(session=session).count() == 1
    assert examine(session.pk) == []
    assert files() == []


def test_a_fork_for_an_answer_that_cannot_be_stored_is_none(session, monkeypatch):
    wait_for(session)
    append(session.branch, [NewMessage(wire=user("Are you there?"))])

    def full(*arguments, **options):
        raise OperationalError("database or disk is full")

    monkeypatch.setattr(late_answers, "append", full)
    assert store_late_answers() == 0
    assert Branch.objects.filter(session=session).count() == 1
    assert len(files()) == 1


def test_no_model_is_asked_while_an_answer_cannot_be_stored(
    api, session, model_server, monkeypatch
):
    """It would not know what it said last, and its next answer would be lost like that one."""
    kept, real = wait_for(session), late_answers.append

    def full(*arguments, **options):
        raise OperationalError("database or disk is full")

    monkeypatch.setattr(late_answers, "append", full)
    response = api.post(url(session, "turns/"), {"content": "And now?"}, format="json")
    assert problem(response, 503)["code"] == "unavailable"
    assert int(response["Retry-After"]) > 0
    assert model_server.calls == []
    assert Message.objects.filter(session=session).count() == 1
    monkeypatch.setattr(late_answers, "append", real)
    assert (
        api.post(url(session, "turns/"), {"content": "And now?"}, format="json").status_code == 200
    )
    rows = Message.objects.filter(session=session).order_by("position")
    assert [row.role for row in rows] == ["user", "assistant", "user", "assistant"]
    assert rows[1].pk == kept.message


def test_an_answer_that_can_never_be_stored_ends_no_session(api, session, monkeypatch):
    wait_for(session)
    monkeypatch.setattr(late_answers, "_store_in_place", _refusing)
    response = api.post(url(session, "turns/"), {"content": "And now?"}, format="json")
    assert response.status_code == 200
    assert len(files()) == 1


def _refusing(*arguments):
    raise IntegrityError(f'null value in column "x"\nDETAIL:  Failing row contains ({FACT}).')


# --- what else lies there -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        "{half",
        "[1, 2]",
        "null",
        '"text"',
        '{"message": 5, "session": 6, "after": null}',
        '{"message": "x"}',
        '{"unknown": 1}',
        "[" * 100_000,
        "\x00",
    ],
    ids=["half", "list", "null", "text", "numbers", "no_id", "unknown", "deep", "nul"],
)
def test_what_is_no_answer_is_put_aside_and_ends_no_turn(api, session, content):
    (folder() / str(session.pk)).mkdir(parents=True)
    (folder() / str(session.pk) / f"{new_id()}.json").write_text(content)
    response = api.post(url(session, "turns/"), {"content": "hello"}, format="json")
    assert response.status_code == 200
    assert [name.rpartition(".")[2] for name in files()] == ["unreadable"]


def test_an_answer_under_another_name_is_not_stored_again_and_again(session):
    kept = wait_for(session)
    kept.path.rename(kept.path.with_name(f"{new_id()}.json"))
    assert store_late_answers() == 0
    assert not Message.objects.filter(role="assistant").exists()
    assert [name.rpartition(".")[2] for name in files()] == ["unreadable"]


def test_links_pipes_and_folders_of_others_are_left_alone(api, session, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / f"{new_id()}.json").write_text(FACT)
    own = folder() / str(session.pk)
    own.mkdir(parents=True)
    (own / f"{new_id()}.json").symlink_to(next(elsewhere.iterdir()))
    os.mkfifo(own / f"{new_id()}.json")
    (own / f"{new_id()}.json").mkdir()
    (folder() / str(new_id())).symlink_to(elsewhere)
    (folder() / "notes.json").write_text("mine")
    # A pipe that is opened waits for a writer for ever.
    response = api.post(url(session, "turns/"), {"content": "hello"}, format="json")
    assert response.status_code == 200
    assert store_late_answers() == 0
    assert len(files()) == 4
    assert [path.read_text() for path in elsewhere.iterdir()] == [FACT]


@pytest.mark.parametrize("is_link", [False, True])
def test_erasing_takes_a_session_s_folder_and_nothing_behind_a_link(
    owner, session, tmp_path, is_link
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "theirs").write_text(FACT)
    folder().mkdir()
    own = folder() / str(session.pk)
    if is_link:
        own.symlink_to(elsewhere)
    else:
        wait_for(session)
        (own / "x.json.unreadable").write_text(FACT)
        (own / "x.json.0a1b2c3d").write_text(FACT)
        (own / "link").symlink_to(elsewhere / "theirs")
    said = StringIO()
    call_command("erase_user", owner.get_username(), "--yes", stdout=said)
    assert list(folder().iterdir()) == []
    assert (elsewhere / "theirs").read_text() == FACT
    assert FACT not in said.getvalue()


def test_a_draft_of_a_process_that_was_killed_goes_after_an_hour(session):
    own = folder() / str(session.pk)
    own.mkdir(parents=True)
    for name, age in (("a.json.11111111", 4_000), ("b.json.22222222", 3_000)):
        (own / name).write_text("{half")
        os.utime(own / name, (time.time() - age,) * 2)
    store_late_answers()
    assert files() == ["b.json.22222222"]


def test_neither_file_nor_command_nor_log_quotes_the_row(session, monkeypatch, caplog):
    """PostgreSQL tells the row that it refuses below its sentence."""
    started = late_answers.AnswerPlace(session=session.pk, after=None)
    draft = NewMessage(wire={"role": "assistant", "content": "It is said."})
    monkeypatch.setattr(late_answers, "STORE_SECONDS", 0.3)
    with pytest.raises(late_answers.AnswerNotStoredError):
        late_answers.stored_or_kept(_refusing, draft, started)
    (kept,) = waiting(session.pk)
    assert kept.why == 'null value in column "x"'
    listed = StringIO()
    call_command("store_answers", "--list", stdout=listed)
    assert str(kept.message) in listed.getvalue()
    assert FACT not in listed.getvalue() + caplog.text


# --- many -----------------------------------------------------------------------------------------


def test_a_turn_looks_for_its_own_session_alone(session, monkeypatch):
    for number in range(30):
        (folder() / str(UUID(int=number))).mkdir(parents=True)
    looked, real = [], os.scandir
    monkeypatch.setattr(answer_files.os, "scandir", lambda path: looked.append(path) or real(path))
    assert list(waiting(session.pk)) == []
    assert looked == [folder() / str(session.pk)]


def test_a_database_that_takes_nothing_is_not_tried_with_all_that_wait(session, monkeypatch):
    for _ in range(TROUBLES_IN_A_ROW + 4):
        wait_for(SessionFactory(owner=session.owner))
    tries = []

    def full(session, kept):
        tries.append(kept)
        raise OperationalError("database or disk is full")

    monkeypatch.setattr(late_answers, "_store_in_place", full)
    assert store_late_answers() == 0
    assert len(tries) == TROUBLES_IN_A_ROW


def test_one_look_stores_for_a_bounded_time_and_the_next_goes_on(session, monkeypatch):
    for _ in range(3):
        wait_for(SessionFactory(owner=session.owner))
    with monkeypatch.context() as patch:
        patch.setattr(late_answers, "SWEEP_SECONDS", -1.0)
        assert store_late_answers() == 1
    assert store_late_answers() == 2


# --- what is said of it ---------------------------------------------------------------------------


def test_readiness_says_how_many_wait_on_this_machine(client, session):
    assert "ANSWER_DIR" not in client.get(reverse("readyz")).content.decode()
    wait_for(session)
    told = client.get(reverse("readyz"))
    text = told.json()["parts"]["database"]["text"]
    assert "1 session has answers in this machine's ANSWER_DIR" in text
    assert json.loads(told.content)["parts"]["database"]["ok"] is True


def test_w003_a_folder_that_is_no_place_for_texts(settings, tmp_path):
    def found() -> list[str]:
        return [f"{one.id}: {one.msg}" for one in check_answer_folder()]

    assert found() == []
    folder().mkdir(mode=0o700)
    assert found() == []
    folder().chmod(0o755)
    (told,) = found()
    assert told.startswith("chatapp.W003: ANSWER_DIR")
    assert "open to other users" in told
    settings.ANSWER_DIR = tmp_path / "file"
    (tmp_path / "file").write_text("")
    assert found() == [f"chatapp.W003: ANSWER_DIR ({tmp_path / 'file'}) is no folder."]
    settings.ANSWER_DIR = tmp_path / "file" / "below"
    (told,) = found()
    assert "cannot be made" in told
