"""Files of parts: nobody else's, said where they are missing, gone with what named them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from django.core.files.storage import FileSystemStorage
from django.test import Client

from chatapp import checks
from chatapp.conf import ServerSettings
from chatapp.environment import VariableError
from chatapp.exports import conversation_of
from chatapp.formats.openai_export import to_openai_chat_json
from chatapp.llm.tokens import count_message
from chatapp.models import Incident, Message, Session
from chatapp.part_store import name_of, part_storage
from chatapp.selectors import counter_of
from chatapp.turns.service import Turn, run_turn
from tests.chatapp.part_shapes import (
    IMAGE,
    JSON_TEXT,
    OPENED,
    PDF,
    SHAPES,
    BrokenStorage,
    b64,
    content_over_api,
    files_below,
    messages_url,
    path_of,
    use_store,
    user_with,
)
from tests.factories import SessionFactory, UserFactory, store

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("part_folder", "queued")]
URL = IMAGE["image_url"]["url"]
each_shape = pytest.mark.parametrize(
    ("part", "line"), [*SHAPES.values()], ids=[name.replace(" ", "_") for name in SHAPES]
)


@pytest.fixture
def session(owner, model_server) -> Session:
    return SessionFactory(owner=owner)


# --- strangers ------------------------------------------------------------------------------------


def test_nobody_can_post_the_name_of_a_file(api, session):
    (row,) = store(session, [user_with(IMAGE)])
    answer = api.post(
        messages_url(session), {"role": "user", "content": [row.parts[1]]}, format="json"
    )
    assert answer.status_code == 400
    assert "`kept_apart`" in answer.text


def test_a_digest_gives_nobody_a_file_of_another_session(session):
    (row,) = store(session, [user_with(IMAGE)])
    stranger = SessionFactory(owner=UserFactory(), wires=[user_with(PDF)])
    Message.objects.filter(session=stranger).update(parts=row.parts)
    shown = Message.objects.get(session=stranger).content_with_files()
    assert shown[1]["text"] == "[image 3 kB: its file is missing from the store]"


def test_the_store_has_no_address(session):
    store(session, [user_with(IMAGE)])
    name = name_of(session.pk, hashlib.sha256(URL.encode()).hexdigest())
    with pytest.raises(ValueError, match="no address"):
        part_storage().url(name)
    for address in (f"/parts/{name}", f"/media/{name}", f"/static/{name}", f"/{name}"):
        assert Client().get(address).status_code == 404


def test_the_page_of_a_message_shows_its_parts_to_who_may_see_texts(
    admin_client, session, part_folder
):
    part = {"type": "file", "file": {"filename": "<b>a.txt</b>", "file_data": "<script>" * 200}}
    (row,) = store(session, [user_with(part)])
    page = admin_client.get(f"/admin/chatapp/message/{row.pk}/change/").text
    assert "&lt;script&gt;&lt;script&gt;" in page
    assert "<script><script>" not in page
    assert "<b>a.txt" not in page


# --- a file that is not there ---------------------------------------------------------------------


def lose(session: Session) -> None:
    path_of(session, URL).unlink()


def damage(session: Session) -> None:
    path_of(session, URL).write_text(URL.replace("A", "B"))


def shorten(session: Session) -> None:
    path_of(session, URL).write_text(URL[:100])


def lengthen(session: Session) -> None:
    path_of(session, URL).write_text(URL + "=" * 50_000_000)


def forbid(session: Session) -> None:
    path = path_of(session, URL)
    path.unlink()
    path.mkdir()


faults = pytest.mark.parametrize(
    ("fault", "why"),
    [
        (lose, "its file is missing from the store"),
        (damage, "its file in the store is damaged"),
        (shorten, "its file in the store is damaged"),
        (lengthen, "its file in the store is damaged"),
        (forbid, "its file cannot be read from the store"),
    ],
)


@faults
def test_a_file_that_cannot_be_read_ends_no_turn_and_no_page(
    api, session, model_server, fault, why
):
    store(session, [user_with(IMAGE, PDF)])
    fault(session)
    line = {"type": "text", "text": f"[image 3 kB: {why}]"}
    assert content_over_api(api, session)[1:] == [line, PDF]
    assert run_turn(Turn(session=session)).answer is not None
    (sent,) = model_server.of("chat")
    assert sent.body["messages"][-1]["content"][1:] == [line, PDF]
    assert to_openai_chat_json(conversation_of(session))["messages"][0]["content"][1] == line
    (incident,) = Incident.objects.all()
    assert (incident.kind, incident.code) == ("warning", "part_file_missing")
    assert why in incident.text


def test_a_name_with_a_type_in_it_is_said(session):
    part = {
        "type": "input_file",
        "filename": "a.png",
        "file_data": f"data:image/png;base64,{b64(1_200_000)}",
    }
    (row,) = store(session, [user_with(part)])
    Path(
        part_storage().path(name_of(session.pk, row.parts[1]["kept_apart"]["files"][0]["sha256"]))
    ).unlink()
    row = Message.objects.get()
    text = "[image a.png, 1.2 MB: its file is missing from the store]"
    assert row.content_with_files()[1] == {"type": "text", "text": text}


def test_what_stands_beside_a_text_is_left_out_where_its_file_is_missing(session):
    part = {"type": "text", "text": "Look.", "cache": b64(2_000)}
    store(session, [{"role": "user", "content": [part]}])
    path_of(session, part["cache"]).unlink()
    assert Message.objects.get().content_with_files() == [
        {"type": "text", "text": "Look.", "cache": ""}
    ]


# --- the storage ----------------------------------------------------------------------------------


def test_where_the_store_fails_the_part_stays_in_the_row(
    api, session, settings, tmp_path, part_folder
):
    use_store(settings, tmp_path, BrokenStorage)
    answer = api.post(messages_url(session), user_with(IMAGE, JSON_TEXT), format="json")
    assert answer.status_code == 201
    row = Message.objects.get()
    assert row.parts[1:] == [IMAGE, JSON_TEXT]
    assert row.parts_bytes == 0
    assert count_message(row.stored_wire(), counter_of(session)) == row.tokens
    assert files_below(part_folder) == []


def test_a_process_that_dies_while_it_writes_leaves_nothing_under_the_name(
    session, part_folder, monkeypatch
):
    def die(descriptor):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", die)
        with pytest.raises(KeyboardInterrupt):
            store(session, [user_with(IMAGE)])
    assert not path_of(session, URL).exists()
    assert Message.objects.count() == 0


def test_half_a_file_of_a_storage_that_writes_in_place_is_written_again(
    session, settings, tmp_path
):
    use_store(settings, tmp_path, FileSystemStorage)
    path = path_of(session, URL)
    path.parent.mkdir(parents=True)
    path.write_text(URL[:100])
    (row,) = store(session, [user_with(IMAGE)])
    assert path.read_text() == URL
    assert Message.objects.get().content_with_files()[1] == IMAGE
    assert row.parts_bytes == len(URL)


def test_one_file_holds_what_was_sent_twice(session, part_folder):
    store(session, [user_with(IMAGE), user_with(IMAGE), user_with(PDF, IMAGE)])
    assert len(files_below(part_folder)) == 2


def test_a_page_ends_before_it_reads_more_than_it_may(api, session, settings):
    settings.CHATAPP = settings.CHATAPP | {"MAX_PAGE_BYTES": 8_000_000}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 2_000_000}}
    wires = [user_with(image, text=f"Image {number}.") for number in range(40)]
    store(session, wires)
    for query in ({}, {"fields": "light"}, {"verbosity": "compact"}, {"order": "newest"}):
        OPENED.clear()
        page = api.get(messages_url(session), query | {"page_size": 200}).json()
        assert len(page["results"]) == len(OPENED) == 3  # of 2.0 MB each
    OPENED.clear()
    quiet = api.get(messages_url(session), {"page_size": 200, "fields": "sizes"}).json()
    assert (len(quiet["results"]), OPENED) == (40, [])


@pytest.mark.parametrize(
    ("store", "said"),
    [
        ({"BACKEND": "no.such.Storage"}, "Could not find backend 'no.such.Storage'"),
        (
            {"BACKEND": "chatapp.part_store.PartStorage", "OPTIONS": {"bucket_name": "chats"}},
            "unexpected keyword argument 'bucket_name'",
        ),
    ],
)
def test_a_storage_that_cannot_be_made_is_an_error(settings, store, said):
    assert checks.check_part_storage() == []
    settings.STORAGES = settings.STORAGES | {"parts": store}
    (error,) = checks.check_part_storage()
    assert error.id == "chatapp.E012"
    assert said in error.msg


def test_less_than_nothing_cannot_stay_in_the_database(settings):
    settings.CHATAPP = settings.CHATAPP | {"PART_STORAGE_BYTES": -1}
    (error,) = checks.check_limits()
    assert error.msg == "PART_STORAGE_BYTES is -1; it must be at least 0."


def test_options_of_the_storage_are_a_json_object(monkeypatch):
    monkeypatch.setenv("PART_STORAGE_OPTIONS", '{"location": "/srv/parts"}')
    assert ServerSettings.from_environment().part_storage_options == {"location": "/srv/parts"}
    for odd in ("[1]", "location", "7"):
        monkeypatch.setenv("PART_STORAGE_OPTIONS", odd)
        with pytest.raises(VariableError, match="PART_STORAGE_OPTIONS must be a JSON object"):
            ServerSettings.from_environment()
