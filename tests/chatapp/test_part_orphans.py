"""Files of parts go with the last row that names them, whatever ends in between."""

from __future__ import annotations

import io
import json
import os
import threading
import time
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from chatapp import transcript
from chatapp.erasure import erase_user
from chatapp.models import Message, Session
from chatapp.part_store import delete_files_of, keep_texts, part_storage
from chatapp.transcript import part_files, placing, writing
from chatapp.transcript.part_files import delete_orphans, files_only_if_stored
from chatapp.transcript.writing import NewMessage, SessionDeletedError
from compaction import tasks
from tests.chatapp.part_shapes import IMAGE, PDF, files_below, path_of, user_with
from tests.compaction.test_killed_anywhere import dies
from tests.factories import SessionFactory, UserFactory, store, talk

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("part_folder", "queued"),
]
URL = IMAGE["image_url"]["url"]


@pytest.fixture
def session(owner) -> Session:
    return SessionFactory(owner=owner)


def age(*paths: Path, hours: float = 25) -> None:
    then = time.time() - hours * 3600
    for path in paths:
        os.utime(path, (then, then))


def orphan(session_id, text: str = "x" * 2_000) -> None:
    """Leave what a process leaves that is killed between the file and its row."""
    keep_texts(session_id, {"a" * 64: text})


# --- sessions and people --------------------------------------------------------------------------


def test_a_deleted_session_takes_its_files_along_and_no_others(session, part_folder):
    store(session, [user_with(IMAGE, PDF)])
    other = SessionFactory(owner=session.owner, wires=[user_with(IMAGE)])
    transcript.delete_session(session)
    assert files_below(part_folder) == [path_of(other, URL)]
    assert [path.name for path in part_folder.iterdir()] == [str(other.pk)[:2]]


def test_what_is_not_deleted_in_the_end_keeps_its_files(session, part_folder):
    store(session, [user_with(IMAGE)])
    with pytest.raises(RuntimeError), transaction.atomic():
        transcript.delete_session(session)
        raise RuntimeError
    assert Session.objects.exists()
    assert files_below(part_folder) == [path_of(session, URL)]


def test_deleting_a_user_in_the_admin_takes_the_files_along(session, part_folder):
    store(session, [user_with(IMAGE)])
    session.owner.delete()
    assert files_below(part_folder) == []


def test_erasing_a_person_takes_the_files_along_and_counts_them(session, part_folder):
    store(session, [user_with(IMAGE, PDF)])
    others = SessionFactory(owner=UserFactory(), wires=[user_with(IMAGE)])
    erased = erase_user(session.owner)
    assert erased.counts["files of message parts"] == 2
    assert files_below(part_folder) == [path_of(others, URL)]


def test_an_erasure_that_the_store_breaks_off_is_finished_by_asking_again(
    session, part_folder, monkeypatch
):
    def fail(self, name):
        raise OSError("The store does not answer.")

    store(session, [user_with(IMAGE)])
    with monkeypatch.context() as patch:
        patch.setattr(type(part_storage()), "delete", fail)
        with pytest.raises(OSError, match="does not answer"):
            erase_user(session.owner)
    assert get_user_model().objects.filter(pk=session.owner.pk).exists()
    erase_user(session.owner)
    assert files_below(part_folder) == []
    assert not get_user_model().objects.filter(pk=session.owner.pk).exists()


# --- what fails between file and row --------------------------------------------------------------


def fail_to_store(session: Session, *wires) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placing, "_originals", lambda rows: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            store(session, wires)


def test_a_transaction_that_fails_leaves_no_file(session, part_folder):
    fail_to_store(session, user_with(IMAGE))
    assert files_below(part_folder) == []
    assert not Message.objects.exists()


def test_a_transaction_that_fails_takes_no_file_of_another_row(session, part_folder):
    store(session, [user_with(IMAGE)])
    fail_to_store(session, user_with(IMAGE, PDF))
    assert files_below(part_folder) == [path_of(session, URL)]
    assert Message.objects.get().content_with_files()[1] == IMAGE


def test_a_message_put_between_that_fails_leaves_no_file(session, part_folder):
    store(session, talk(1))
    with pytest.raises(writing.TranscriptError):
        transcript.insert_between(session.branch, after=7, draft=NewMessage(wire=user_with(IMAGE)))
    assert files_below(part_folder) == []


def test_what_comes_into_a_deleted_session_leaves_no_file(session, part_folder):
    branch = session.branch
    transcript.delete_session(session)
    with pytest.raises(SessionDeletedError):
        transcript.append(branch, [NewMessage(wire=user_with(IMAGE))])
    assert files_below(part_folder) == []


def test_a_file_that_somebody_deleted_meanwhile_is_there_when_its_row_is(
    session, part_folder, monkeypatch
):
    adding_at_end = placing.adding_at_end

    def after_a_clean_up(branch, **sums):
        delete_files_of(session.pk)
        return adding_at_end(branch, **sums)

    monkeypatch.setattr(placing, "adding_at_end", after_a_clean_up)
    store(session, [user_with(IMAGE)])
    assert Message.objects.get().content_with_files()[1] == IMAGE


def test_inside_a_transaction_of_the_caller_files_are_left_for_the_day_after(session, part_folder):
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        store(session, [user_with(IMAGE)])
        raise ZeroDivisionError
    assert files_below(part_folder) == [path_of(session, URL)]
    age(*files_below(part_folder))
    assert delete_orphans() == 1
    assert files_below(part_folder) == []


def test_a_process_that_is_killed_between_any_two_statements_leaves_no_row_without_its_file(
    session, part_folder
):
    statements = 0
    while dies(statements, lambda: store(session, [user_with(IMAGE), user_with(PDF)])):
        assert not Message.objects.exists()
        assert len(files_below(part_folder)) == 2
        statements += 1
    # PostgreSQL gets two messages, of several statements each.
    assert statements >= (2 if connection.vendor == "postgresql" else 3)
    rows = Message.objects.order_by("position")
    assert [row.content_with_files()[1] for row in rows] == [IMAGE, PDF]
    age(*files_below(part_folder))
    assert delete_orphans() == 0
    rows.delete()
    assert delete_orphans() == 2


# --- orphans --------------------------------------------------------------------------------------


def test_orphans_are_deleted_after_a_day_and_nothing_else(session, part_folder):
    (row,) = store(session, [user_with(IMAGE)])
    fork = transcript.fork(session, at=row)
    transcript.activate(session, fork)
    store(session, [user_with(PDF)])
    orphan(session.pk)
    draft = path_of(session, URL).with_name(f"{path_of(session, URL).name}.0a1b2c3d")
    draft.write_text("half")
    age(*files_below(part_folder), hours=23)
    assert delete_orphans() == 0
    assert len(files_below(part_folder)) == 4
    age(*files_below(part_folder))
    assert tasks.delete_orphans() == 2
    assert files_below(part_folder) == sorted(
        path_of(session, text) for text in (URL, PDF["file"]["file_data"])
    )


def test_files_of_sessions_that_are_gone_are_orphans(part_folder):
    orphan(uuid4())
    age(*files_below(part_folder))
    assert delete_orphans() == 1
    assert list(part_folder.iterdir()) == []


def test_what_is_not_ours_in_the_folder_stays(session, part_folder):
    other = part_folder / "ab" / "notes"
    other.mkdir(parents=True)
    (other / "readme").write_text("x")
    age(other / "readme")
    assert delete_orphans() == 0
    assert (other / "readme").exists()


def test_an_empty_store_has_no_orphans():
    assert delete_orphans() == 0


def test_a_session_that_cannot_be_looked_at_keeps_nobody_else_waiting(
    session, part_folder, monkeypatch
):
    other = SessionFactory(owner=session.owner)
    for one in (session, other):
        orphan(one.pk)
    age(*files_below(part_folder))
    named = part_files.files_named

    def files_named(session_id):
        if session_id == session.pk:
            raise IntegrityError
        return named(session_id)

    monkeypatch.setattr(part_files, "files_named", files_named)
    assert delete_orphans(now=timezone.now() + timedelta(hours=1)) == 1


@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="SQLite lets one writer in at a time")
def test_a_row_on_its_way_keeps_its_file_from_being_deleted(session, part_folder):
    orphan_age = 25
    holds, go_on = threading.Event(), threading.Event()

    def write():
        try:
            with transaction.atomic():
                store(session, [user_with(IMAGE)])
                age(path_of(session, URL), hours=orphan_age)
                holds.set()
                assert go_on.wait(20)
        finally:
            connection.close()

    writer = threading.Thread(target=write)
    writer.start()
    assert holds.wait(20)
    threading.Timer(0.5, go_on.set).start()
    assert delete_orphans() == 0
    writer.join(20)
    assert Message.objects.get().content_with_files()[1] == IMAGE


def test_nothing_is_asked_of_the_store_for_messages_without_files(session, monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError

    monkeypatch.setattr("chatapp.transcript.part_files.keep_texts", refuse)
    monkeypatch.setattr("chatapp.transcript.part_files._delete_unnamed", refuse)
    store(session, talk(2))
    with pytest.raises(ZeroDivisionError), files_only_if_stored([Message()]):
        raise ZeroDivisionError
    call_command("doctor", "--quiet")


# --- the doctor -----------------------------------------------------------------------------------


def test_the_doctor_says_what_is_missing_and_counts_as_before(session, part_folder):
    store(session, [user_with(IMAGE), user_with(PDF)])
    assert doctor(session, "--recount") == (0, [])
    path = path_of(session, URL)
    path.write_text(URL.replace("A", "B"))
    tokens = list(Message.objects.order_by("position").values_list("tokens", flat=True))
    assert doctor(session) == (0, [])  # the size is the same
    status, (finding,) = doctor(session, "--recount", "--fix")
    assert (status, finding["code"]) == (1, "part_files_missing")
    path.unlink()
    status, (finding,) = doctor(session)
    assert (status, finding["code"]) == (1, "part_files_missing")
    assert finding["message"] == str(Message.objects.order_by("position").first().pk)
    assert finding["text"].startswith(
        "Of 2 files with images and other parts of messages, 1 cannot"
    )
    assert list(Message.objects.order_by("position").values_list("tokens", flat=True)) == tokens


def doctor(session: Session, *options: str):
    out, status = io.StringIO(), 0
    try:
        call_command("doctor", "--session", str(session.pk), "--json", *options, stdout=out)
    except SystemExit as ended:
        status = ended.code
    return status, [json.loads(line) for line in out.getvalue().splitlines() if "code" in line]
