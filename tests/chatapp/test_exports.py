"""Sessions are written slice by slice: the same bytes, little memory, and never half a file."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

import httpx2
import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from chatapp import exports
from chatapp.exports import conversation_of, export_sessions, read_path
from chatapp.formats import all_exports
from chatapp.formats.openai_export import to_openai_chat_json
from chatapp.models import Session
from chatapp.transcript import fork
from tests.bench.measure import peak_megabytes
from tests.chatapp.test_api_sessions import problem, url
from tests.factories import SessionFactory, call, result, store, talk

WIRES = [
    {"role": "system", "content": "Stay calm."},
    {"role": "user", "content": [{"type": "text", "text": "你好\n"}]},
    call("f", "1", '{"a": [1]}'),
    result("1", "4\n2"),
    {"role": "assistant", "content": "done 🙂", "refusal": "no"},
]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.fixture(autouse=True)
def no_queue(queued):
    """Nothing is done in the background here."""


@pytest.fixture
def slices(monkeypatch):
    """Four rows are read at once, and files lie on the disk from a thousand bytes on."""
    monkeypatch.setattr(exports, "ROWS_AT_ONCE", 4)
    monkeypatch.setattr("chatapp.spooled_files.IN_MEMORY_BYTES", 1_000)


def written(session: Session, form: str) -> str:
    return "".join(export_sessions([session], all_exports()[form]))


def broken_from(monkeypatch, number: int, error: Exception) -> None:
    """Have the database fail when the slice of that number, from 1, is read."""
    read, count = exports.rows_from, iter(range(1, 1_000))

    def failing(*args, **kwargs):
        if next(count) == number:
            raise error
        return read(*args, **kwargs)

    monkeypatch.setattr(exports, "rows_from", failing)


@pytest.mark.parametrize("wires", [[], WIRES, WIRES * 5], ids=["none", "few", "many"])
@pytest.mark.parametrize("prompt", ["", "Be brief."])
def test_pieces_are_what_one_dump_of_the_whole_is(owner, slices, wires, prompt):
    about = {"title": "A “trip”", "system_prompt": prompt, "tools": [TOOL] if prompt else []}
    session = SessionFactory(owner=owner, wires=wires, **about)
    session.branch.messages.filter(role="user").update(pinned=True)
    whole = to_openai_chat_json(conversation_of(session))
    assert len(whole["messages"]) == len(wires) + bool(prompt)
    assert ("palimpsest" in whole) is bool(wires)
    assert written(session, "jsonl") == json.dumps(whole, ensure_ascii=False) + "\n"
    assert written(session, "json") == json.dumps(whole, ensure_ascii=False, indent=2) + "\n"


@pytest.mark.parametrize("count", [0, 2, 3])
def test_several_sessions_are_a_list_as_one_dump_has_it(owner, slices, count):
    sessions = [SessionFactory(owner=owner, wires=WIRES * n) for n in range(count)]
    wholes = [to_openai_chat_json(conversation_of(one)) for one in sessions]
    texts = [json.dumps(one, ensure_ascii=False, indent=2) for one in wholes]
    expected = "[\n" + ",\n".join(texts) + "\n]\n" if texts else "[]\n"
    assert "".join(export_sessions(sessions, all_exports()["json"])) == expected


def test_the_path_of_a_fork_is_read_across_its_branches(owner, slices):
    session = SessionFactory(owner=owner, wires=talk(9))
    rows = list(session.branch.messages.order_by("position"))
    branch = fork(session, at=rows[9])
    found = [row.pk for part in read_path(branch) for row in part]
    assert found == [row.pk for row in rows[:10]]


def test_a_slice_costs_the_same_statements_wherever_it_stands(owner, slices, settings):
    settings.COMPACTION = settings.COMPACTION | {"STORED_RESULT_CHARS": 1_000}
    # Two of four messages are stored cut, and come whole by one statement.
    turn = [call("f", "1"), result("1", "x" * 2_000), call("f", "2"), result("2", "y" * 3_000)]
    counts = {}
    for turns in (3, 6, 12):
        session = SessionFactory(owner=owner, wires=turn * turns)
        with CaptureQueriesContext(connection) as asked:
            text = written(session, "jsonl")
        assert [text.count("x" * 2_000), text.count("y" * 3_000)] == [turns, turns]
        counts[turns] = len(asked)
    assert counts[12] - counts[6] == 2 * (counts[6] - counts[3]) == 12


def test_memory_does_not_grow_with_the_session(owner, monkeypatch):
    monkeypatch.setattr(exports, "ROWS_AT_ONCE", 50)
    peaks = []
    for turns in (100, 800):
        wires = [{"role": "user", "content": "x" * 3_000}, {"role": "assistant", "content": "y"}]
        session = Session.objects.get(pk=SessionFactory(owner=owner, wires=wires * turns).pk)
        pieces = export_sessions([session], all_exports()["jsonl"])
        peaks.append(peak_megabytes(lambda pieces=pieces: sum(map(len, pieces))))
    # The longer text alone has 2.4 MB.
    assert peaks[1] < peaks[0] + 0.5


# --- through the API ------------------------------------------------------------------------------


def test_a_large_export_has_its_length_and_the_headers_of_a_small_one(api, owner, slices):
    small = api.get(url(SessionFactory(owner=owner, wires=WIRES[:1]), "export/"))
    session = SessionFactory(owner=owner, wires=WIRES * 9)
    large = api.get(url(session, "export/"))
    assert (small.streaming, large.streaming) == (False, True)
    body = b"".join(large.streaming_content)
    assert body.decode() == written(session, "json")
    assert large["Content-Length"] == str(len(body))
    told = ("Content-Type", "X-Content-Type-Options", "Cache-Control")
    assert [large[name] for name in told] == [small[name] for name in told]
    assert large["Cache-Control"] == "no-store"
    assert large["Content-Disposition"] == f'attachment; filename="session-{session.pk}.json"'
    assert not large.has_header("ETag") and not small.has_header("ETag")


def test_an_error_in_the_middle_is_an_answer_of_its_own(api, owner, slices, monkeypatch):
    session = SessionFactory(owner=owner, wires=WIRES * 9)
    broken_from(monkeypatch, 5, OperationalError("server closed the connection unexpectedly"))
    answer = api.get(url(session, "export/"))
    assert answer.status_code == 503
    assert answer["Content-Type"] == "application/problem+json"
    assert not answer.has_header("Content-Disposition")


@pytest.mark.parametrize("verbosity", ["default", "compact", "quiet"])
def test_a_session_that_is_deleted_meanwhile_is_not_handed_out_in_half(
    api, owner, slices, monkeypatch, verbosity
):
    session = SessionFactory(owner=owner, wires=talk(9))
    read = exports.rows_from

    def deleting(*args, **kwargs):
        found = read(*args, **kwargs)
        Session.objects.filter(pk=session.pk).delete()
        return found

    monkeypatch.setattr(exports, "rows_from", deleting)
    problem(api.get(url(session, "export/"), {"verbosity": verbosity}), 404)


@pytest.mark.parametrize("verbosity", ["default", "compact", "quiet"])
def test_a_short_session_that_is_deleted_before_it_is_read_is_no_empty_file(
    api, owner, monkeypatch, verbosity
):
    session = SessionFactory(owner=owner, wires=talk(2))
    read = exports.rows_from

    def late(*args, **kwargs):
        Session.objects.filter(pk=session.pk).delete()
        return read(*args, **kwargs)

    monkeypatch.setattr(exports, "rows_from", late)
    problem(api.get(url(session, "export/"), {"verbosity": verbosity}), 404)


def test_a_cut_result_whose_whole_text_is_deleted_meanwhile_is_not_handed_out(
    api, owner, settings, monkeypatch
):
    settings.COMPACTION = {"STORED_RESULT_CHARS": 100}
    wires = [{"role": "user", "content": "go"}, call("f", "1", "{}"), result("1", "long " * 100)]
    session = SessionFactory(owner=owner, wires=wires)
    whole_of = exports.uncut

    def late(rows):
        Session.objects.filter(pk=session.pk).delete()
        return whole_of(rows)

    monkeypatch.setattr(exports, "uncut", late)
    problem(api.get(url(session, "export/")), 404)


def test_what_came_in_meanwhile_stands_at_the_end(owner, slices):
    session = SessionFactory(owner=owner, wires=talk(9))
    conversation = conversation_of(session)
    store(session, [{"role": "user", "content": "one more"}])
    contents = [one.wire["content"] for one in conversation.messages]
    assert (len(contents), contents[-1]) == (19, "one more")


# --- through the admin and the command ------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_browser_hears_that_an_owners_file_broke_off(
    asgi_server, admin_client, owner, slices, monkeypatch
):
    for _ in range(3):
        SessionFactory(owner=owner, wires=[{"role": "user", "content": "x" * 1_000}] * 300)
    address = reverse("admin:chatapp_session_owner_export", args=[owner.pk])
    cookies = {name: morsel.value for name, morsel in admin_client.cookies.items()}
    broken_from(monkeypatch, 120, OperationalError("server closed the connection unexpectedly"))
    got = b""
    with (
        httpx2.Client(cookies=cookies, timeout=20) as client,
        client.stream("GET", f"{asgi_server.url}{address}") as response,
    ):
        assert response.status_code == 200
        assert urlsplit(str(response.url)).path == address
        with pytest.raises(httpx2.RemoteProtocolError):
            for part in response.iter_bytes():
                got += part
    assert got.startswith(b'{"title"')


def test_a_file_that_cannot_be_finished_leaves_what_was_there(owner, slices, monkeypatch, tmp_path):
    session = SessionFactory(owner=owner, wires=talk(9))
    file = tmp_path / "session.json"
    file.write_text("before")
    broken_from(monkeypatch, 3, OSError(28, "No space left on device"))
    with pytest.raises(CommandError, match="No space left on device"):
        call_command("export_transcript", str(session.pk), "--output", str(file))
    assert [one.name for one in tmp_path.iterdir()] == [file.name]
    assert file.read_text() == "before"
