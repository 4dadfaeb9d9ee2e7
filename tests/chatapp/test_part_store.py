"""Long data of parts lies in files: out of the rows, and back again byte for byte."""

from __future__ import annotations

import hashlib
import json
import uuid
from pathlib import Path

import pytest

from chatapp import transcript
from chatapp.context.backend import context_backend
from chatapp.exports import conversation_of
from chatapp.formats.openai_export import to_openai_chat_json
from chatapp.llm.tokens import count_message
from chatapp.messages.apart import put_apart, whole_part
from chatapp.messages.vendor import prefix_digest
from chatapp.messages.wire import to_wire
from chatapp.models import Message, MessageOriginal, Session
from chatapp.part_store import PartReader, PartStorage, part_storage
from chatapp.selectors import counter_of, path_messages, rebuild_sums
from chatapp.transcript.writing import NewMessage
from chatapp.transfer import import_file
from chatapp.turns.request import body_of
from chatapp.turns.service import Turn, run_turn
from compaction.convert import to_item
from tests.chatapp.part_shapes import (
    DOCUMENT,
    IMAGE,
    JSON_TEXT,
    LONGEST,
    OPENED,
    PDF,
    RESPONSES_IMAGE,
    SHAPES,
    SOUND,
    b64,
    content_over_api,
    files_below,
    messages_url,
    path_of,
    strings_in,
    user_with,
)
from tests.compaction.support import NEVER, compact
from tests.factories import SessionFactory, UserFactory, call, profile, result, store, talk, user

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("part_folder", "queued")]
URL = IMAGE["image_url"]["url"]
each_shape = pytest.mark.parametrize(
    ("part", "line"), [*SHAPES.values()], ids=[name.replace(" ", "_") for name in SHAPES]
)


@pytest.fixture
def session(owner, model_server) -> Session:
    return SessionFactory(owner=owner)


@pytest.fixture
def inline(owner, model_server, settings, session):
    """Return a session with the same messages whose parts stay in the rows."""

    def make(*wires) -> Session:
        before = settings.CHATAPP
        settings.CHATAPP = before | {"PART_STORAGE_BYTES": 0}
        made = SessionFactory(owner=owner, wires=wires)
        settings.CHATAPP = before
        return made

    return make


# --- what is stored, and what is shown ------------------------------------------------------------


@each_shape
def test_a_part_comes_back_as_it_was_sent_and_its_row_holds_no_data(api, session, part, line):
    sent = user_with(part)
    answered = api.post(messages_url(session), sent, format="json").json()["messages"][0]
    row = Message.objects.get()
    assert max(map(len, strings_in(row.parts))) <= LONGEST
    assert answered["content"] == content_over_api(api, session) == sent["content"]
    assert content_over_api(api, session, fields="light") == sent["content"]
    detail = api.get(f"/api/v1/messages/{row.pk}/").json()
    # The keys of an object keep the order in which they were stored.
    assert list(strings_in(detail["content"])) == list(strings_in(row.content_with_files()))


@each_shape
def test_the_row_says_what_the_part_is_and_nobody_reads_the_file_for_it(
    session, inline, part, line, part_folder
):
    (row,) = store(session, [user_with(part)])
    twin = Message.objects.get(session=inline(user_with(part)))
    for path in files_below(part_folder):
        path.unlink()
    row = Message.objects.get(pk=row.pk)
    assert to_item(row).text == f"Look at this.\n{line}"
    assert to_item(row).text == to_item(twin).text
    assert (to_item(row).images, to_item(row).unread_tokens) == (
        to_item(twin).images,
        to_item(twin).unread_tokens,
    )
    # Of a part of an unknown kind the words are counted apart; a seam may cost a token.
    assert abs(row.tokens - twin.tokens) <= (2 if part["type"] == "gallery" else 0)
    assert rebuild_sums(session.branch)[1] == row.tokens
    assert OPENED == []


def test_type_mime_size_and_digest_stay_in_the_row(session, part_folder):
    (row,) = store(session, [user_with(PDF)])
    part = row.parts[1]
    data = PDF["file"]["file_data"]
    digest = hashlib.sha256(data.encode()).hexdigest()
    assert part["type"] == "file"
    assert part["file"] == {"filename": "report.pdf", "file_data": ""}
    assert part["kept_apart"] == {
        "files": [{"at": ["file", "file_data"], "sha256": digest, "bytes": len(data)}],
        "kind": "file",
        "name": "report.pdf",
        "media_type": "application/pdf",
        "size": 4_456,
        "pages": 14,
    }
    assert row.parts_bytes == len(data)
    (path,) = files_below(part_folder)
    assert path.relative_to(part_folder).parts == (str(session.pk)[:2], str(session.pk), digest)
    assert path.read_text() == data
    assert path.stat().st_mode & 0o077 == 0


def test_a_part_of_an_unknown_kind_keeps_its_line_and_its_tokens(session, inline, part_folder):
    (row,) = store(session, [user_with(JSON_TEXT)])
    twin = Message.objects.get(session=inline(user_with(JSON_TEXT)))
    (path,) = files_below(part_folder)
    assert path.read_text() == JSON_TEXT["state"]
    path.unlink()
    assert to_item(row).text == to_item(twin).text
    assert "rows" in to_item(row).text
    assert abs(row.tokens - twin.tokens) <= 2
    assert count_message(row.stored_wire(), counter_of(session)) == row.tokens


def test_words_stay_in_the_row(session, part_folder):
    words = "The rent is 900. " * 200
    given = {"type": "document", "source": {"type": "text", "data": words}, "title": "Lease"}
    (row,) = store(session, [user_with(given, text=words)])
    assert files_below(part_folder) == []
    assert words in to_item(row).text
    assert row.parts_bytes == 0


def test_what_stands_beside_a_text_may_be_long(api, session):
    part = {"type": "text", "text": "Look.", "cache": b64(2_000)}
    store(session, [{"role": "user", "content": [part]}])
    assert content_over_api(api, session) == [part]


@pytest.mark.parametrize(("size", "files"), [(LONGEST, 0), (LONGEST + 1, 1)])
def test_data_up_to_the_limit_stays_in_the_row(session, part_folder, size, files):
    (row,) = store(
        session, [user_with({"type": "video", "data": "é" * (size // 2) + "x" * (size % 2)})]
    )
    assert len(files_below(part_folder)) == files
    assert (row.parts_bytes > 0) is bool(files)


def test_zero_switches_it_off(session, settings, part_folder):
    settings.CHATAPP = settings.CHATAPP | {"PART_STORAGE_BYTES": 0}
    (row,) = store(session, [user_with(IMAGE)])
    assert row.parts[1] == IMAGE
    assert files_below(part_folder) == []


def test_without_a_setting_a_quarter_of_a_megabyte_stays_and_files_lie_in_the_data_folder(
    session, settings
):
    del settings.CHATAPP["PART_STORAGE_BYTES"]
    settings.STORAGES = {name: one for name, one in settings.STORAGES.items() if name != "parts"}
    settings.CHATAPP = {**settings.CHATAPP}
    short, long = store(
        session,
        [user_with({"type": "video", "data": "x" * size}) for size in (262_144, 262_145)],
    )
    assert (short.parts_bytes, long.parts_bytes) == (0, 262_145)
    assert files_below(Path(settings.DATA_DIR) / "parts") == [path_of(session, "x" * 262_145)]
    Path(path_of(session, "x" * 262_145)).unlink()


def test_rows_from_before_stay_as_they_are(api, session, inline):
    before = inline(user_with(IMAGE), {"role": "assistant", "content": "A cat."})
    assert content_over_api(api, before) == user_with(IMAGE)["content"]
    store(before, [user_with(PDF)])
    rows = api.get(messages_url(before)).json()["results"]
    assert [row["content"] for row in rows] == [
        user_with(IMAGE)["content"],
        "A cat.",
        user_with(PDF)["content"],
    ]


def test_the_whole_of_a_cut_result_has_its_image(api, session, settings, part_folder):
    settings.COMPACTION = settings.COMPACTION | {"STORED_RESULT_CHARS": 3_000}
    parts = [{"type": "text", "text": "line\n" * 2_000}, IMAGE]
    store(session, [user("go"), call("run", "c1")])
    (row,) = store(session, [result("c1") | {"content": parts}])
    assert max(map(len, strings_in(MessageOriginal.objects.get().parts))) <= LONGEST
    body = api.get(f"/api/v1/messages/{row.pk}/", {"whole": "true"}).json()
    assert body["content"] == parts
    assert len(files_below(part_folder)) == 1
    assert to_openai_chat_json(conversation_of(session))["messages"][-1]["content"] == parts


# --- what goes out --------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", ["chat", "responses"])
@each_shape
def test_a_request_has_the_bytes_that_it_has_of_rows_that_hold_all(
    session, inline, part, line, wire
):
    other = inline(user_with(part))
    store(session, [user_with(part)])
    bodies = []
    for one in (session, session, other):
        Session.objects.filter(pk=one.pk).update(api=wire)
        one = Session.objects.get(pk=one.pk)
        bodies.append(json.dumps(body_of(one, context_backend.preview(one)), sort_keys=True))
    assert bodies[0] == bodies[1] == bodies[2]


def test_the_model_is_sent_the_image_and_the_context_shows_it(api, session, model_server):
    run_turn(Turn(session=session, drafts=[NewMessage(wire=user_with(IMAGE))]))
    (sent,) = model_server.of("chat")
    assert sent.body["messages"][-1] == user_with(IMAGE)
    shown = api.get(f"/api/v1/sessions/{session.pk}/context/").json()
    assert IMAGE in shown["messages"][0]["content"]


def test_a_signature_goes_out_behind_an_image_in_a_file(session, inline):
    other = inline(user_with(IMAGE))
    store(session, [user_with(IMAGE)])
    (kept,) = path_messages(session.branch)
    (held,) = path_messages(other.branch)
    assert prefix_digest([kept.wire()], [], "s") == prefix_digest([held.wire()], [], "s")


def test_a_file_is_read_once_a_request_and_only_for_one(api, session, model_server):
    store(session, [user_with(IMAGE), user_with(IMAGE, PDF), user_with(IMAGE)])
    OPENED.clear()
    context = context_backend.prepare(session)
    context_backend.preview(session)
    api.get(f"/api/v1/sessions/{session.pk}/")
    api.get(messages_url(session), {"fields": "sizes"})
    assert OPENED == []
    body_of(session, context)
    assert len(OPENED) == len(set(OPENED)) == 2


def test_what_a_summary_covers_is_not_read(session, model_server):
    profile(**NEVER, keep_last_n=2)
    store(session, [user_with(IMAGE), {"role": "assistant", "content": "A cat."}, *talk(4)])
    run = compact(session)
    assert run.status == "succeeded"
    run_turn(Turn(session=session, drafts=[NewMessage(wire=user("And now?"))]))
    assert OPENED == []
    (summarising,) = model_server.summarising()
    assert "[image 3 kB]" in summarising.text


def test_an_answer_to_an_image_in_a_file_is_continued(session, model_server, use_models):
    use_models(model_server.models(KEEPS_RESPONSES=True), PART_STORAGE_BYTES=LONGEST)
    Session.objects.filter(pk=session.pk).update(api="responses")
    for wire in (user_with(IMAGE), user("And now?")):
        one = Session.objects.get(pk=session.pk)
        answer = run_turn(Turn(session=one, drafts=[NewMessage(wire=wire)])).answer
    _, following = (called.body for called in model_server.calls)
    earlier = Message.objects.filter(role="assistant").exclude(pk=answer.pk).get()
    assert following["previous_response_id"] == earlier.response_id
    assert [item["content"][0]["text"] for item in following["input"]] == ["And now?"]


# --- in and out -----------------------------------------------------------------------------------


def test_an_export_is_whole_and_imports_back_equal(session, owner):
    wires = [user_with(IMAGE, PDF), {"role": "assistant", "content": "Seen."}, user_with(SOUND)]
    store(session, wires)
    exported = to_openai_chat_json(conversation_of(session))
    assert [one["content"] for one in exported["messages"]] == [one["content"] for one in wires]
    other = UserFactory()
    report = import_file(owner=other, content=json.dumps(exported).encode())
    again = report.imported[0].session
    rows = Message.objects.filter(session=again).order_by("position")
    assert [row.content_with_files() for row in rows] == [one["content"] for one in wires]
    assert all(row.parts_bytes for row in rows if row.parts)


def test_a_key_counts_for_the_same_body_wherever_its_parts_are_kept(api, session, settings):
    settings.CHATAPP = settings.CHATAPP | {"PART_STORAGE_BYTES": 0}
    headers = {"HTTP_IDEMPOTENCY_KEY": "k1"}
    first = api.post(messages_url(session), user_with(IMAGE), format="json", **headers)
    settings.CHATAPP = settings.CHATAPP | {"PART_STORAGE_BYTES": LONGEST}
    again = api.post(messages_url(session), user_with(IMAGE), format="json", **headers)
    assert first.json() == again.json()
    assert Message.objects.count() == 1
    other = api.post(messages_url(session), user_with(PDF), format="json", **headers)
    assert other.status_code == 422


def test_a_fork_and_a_replay_name_the_same_file(session, part_folder):
    parts = [{"type": "text", "text": "line\n" * 400}, IMAGE]
    rows = store(
        session,
        [user_with(IMAGE), call("run", "c1"), result("c1") | {"content": parts}, user("go on")],
    )
    transcript.fork(session, at=rows[0])
    cut = [{"type": "text", "text": "line\n"}, rows[2].stored_wire()["content"][1]]
    done = transcript.replay(session, contents={rows[2].pk: cut})
    copy = Message.objects.get(branch=done.new, role="tool")
    assert copy.content_with_files() == [{"type": "text", "text": "line\n"}, IMAGE]
    assert copy.parts_bytes == len(URL)
    assert len(files_below(part_folder)) == 1


# --- rules without a database ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "part",
    [
        IMAGE,
        PDF,
        RESPONSES_IMAGE,
        DOCUMENT,
        JSON_TEXT,
        {"type": "thinking", "signature": b64(3_000)},
    ],
)
def test_a_part_put_apart_is_whole_again(part):
    (apart,), texts = put_apart([part], longest=LONGEST, tokens_of=lambda one: 7)
    assert apart != part
    assert all(len(text) > LONGEST for text in texts.values())
    whole = whole_part(apart, lambda file: texts[file.digest])
    assert whole == part
    assert json.dumps(whole) == json.dumps(part)
    assert put_apart([apart], longest=LONGEST, tokens_of=lambda one: 7) == ([apart], {})


def test_what_a_stored_part_says_of_a_place_that_is_not_there_is_a_line_of_text():
    (apart,), _ = put_apart([IMAGE], longest=LONGEST, tokens_of=lambda one: 7)
    broken = {**apart, "image_url": "gone"}
    text = "[image 3 kB: its file in the store is damaged]"
    assert whole_part(broken, lambda file: URL) == {"type": "text", "text": text}


def test_a_reader_knows_what_came_in_with_the_row():
    (apart,), texts = put_apart([IMAGE], longest=LONGEST, tokens_of=lambda one: 7)
    assert PartReader(uuid.uuid4(), texts).content([apart]) == [IMAGE]
    assert isinstance(part_storage(), PartStorage)


def test_the_stored_wire_of_a_message_is_made_without_files(session):
    (row,) = store(session, [user_with(IMAGE)])
    assert row.stored_wire() == to_wire(row)
    assert OPENED == []
