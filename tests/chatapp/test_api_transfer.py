"""sessions/import/ and sessions/{id}/export/."""

from __future__ import annotations

import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from chatapp.models import Message, Session
from tests.chatapp.test_api_sessions import problem, url
from tests.factories import SessionFactory, call, result, talk

IMPORT = "/api/v1/sessions/import/"
WIRES = [
    *talk(2),
    {"role": "user", "content": [{"type": "text", "text": "你好"}]},
    call("f", "1", '{"a":1}'),
    result("1", "42"),
    {"role": "assistant", "content": "done 🙂"},
]
FILE = {"title": "Trip", "messages": [{"role": "system", "content": "Be brief."}, *WIRES]}


@pytest.fixture(autouse=True)
def no_queue(queued):
    """Imports may queue work; it is not done here."""


def send(api, content: object, kind: str = "application/json"):
    text = content if isinstance(content, str | bytes) else json.dumps(content)
    return api.post(IMPORT, text, content_type=kind)


@pytest.mark.parametrize("kind", ["application/json", "application/octet-stream", "text/plain"])
def test_a_body_of_any_kind_is_read_by_its_content(api, owner, kind):
    answer = send(api, FILE, kind)
    assert answer.status_code == 201
    (item,) = answer.json()["sessions"]
    assert (item["title"], item["created"], item["format"]) == ("Trip", True, "openai_chat")
    session = Session.objects.get(pk=item["session"])
    assert session.owner == owner
    assert Message.objects.filter(session=session).count() == item["messages_added"]


def test_a_form_with_a_file_is_read(api):
    upload = SimpleUploadedFile("trip.json", json.dumps(FILE).encode())
    answer = api.post(IMPORT, {"file": upload}, format="multipart")
    assert answer.status_code == 201
    assert answer.json()["sessions"][0]["title"] == "Trip"


@pytest.mark.parametrize("fields", [{}, {"file": "no file"}, {"other": "x"}])
def test_a_form_without_a_file_is_refused(api, fields):
    assert problem(api.post(IMPORT, fields, format="multipart"), 400)["errors"]["file"]


def test_importing_twice_adds_nothing(api):
    send(api, FILE)
    count = Message.objects.count()
    (item,) = send(api, FILE).json()["sessions"]
    assert (item["created"], item["messages_added"]) == (False, 0)
    assert (Session.objects.count(), Message.objects.count()) == (1, count)


def test_several_conversations_become_several_sessions(api):
    lines = "\n".join(json.dumps(FILE | {"title": title}) for title in ("one", "two"))
    titles = [item["title"] for item in send(api, lines, "text/plain").json()["sessions"]]
    assert titles == ["one", "two"]


def test_damaged_parts_are_named_and_the_rest_is_stored(api):
    body = send(api, f"{json.dumps(FILE)}\nnot json\n", "text/plain").json()
    assert len(body["sessions"]) == 1
    assert body["problems"][0]["line"] == 2


@pytest.mark.parametrize("content", ["hello", "{}", "[]", b"\x00\xff\xfe", "<html>"])
def test_a_format_that_nobody_knows_is_unprocessable(api, content):
    assert problem(send(api, content, "text/plain"), 422)["code"] == "unknown_format"
    assert not Session.objects.exists()


def test_no_body_at_all_is_refused(api):
    problem(send(api, "", "text/plain"), 400)


def test_a_file_that_is_too_large_is_refused_with_the_limit(api, settings):
    settings.CHATAPP = settings.CHATAPP | {"MAX_IMPORT_BYTES": 100}
    assert "100 bytes" in problem(send(api, FILE), 413)["detail"]


def test_a_message_that_is_too_long_is_left_out_and_named(api, settings):
    settings.CHATAPP = settings.CHATAPP | {"MAX_MESSAGE_CHARS": 50}
    wires = [{"role": "user", "content": "x" * 51}, {"role": "user", "content": "short"}]
    body = send(api, {"messages": wires}).json()
    assert "MAX_MESSAGE_CHARS" in body["problems"][0]["text"]
    assert [row.content for row in Message.objects.all()] == ["short"]


def test_a_session_exports_as_a_file_that_imports_back_equal(api, owner):
    session = SessionFactory(owner=owner, title="Trip", system_prompt="Be brief.", wires=WIRES)
    exported = api.get(url(session, "export/"))
    assert exported["Content-Type"].startswith("application/json")
    assert f"session-{session.pk}.json" in exported["Content-Disposition"]
    body = json.loads(exported.content)
    assert body["messages"] == FILE["messages"]

    (item,) = send(api, exported.content).json()["sessions"]
    copy = Session.objects.get(pk=item["session"])
    assert (copy.title, copy.system_prompt) == ("Trip", "Be brief.")
    rows = Message.objects.filter(session=copy).order_by("position")
    assert [row.wire() for row in rows] == WIRES


def test_jsonl_has_one_line_whatever_is_accepted(api, owner):
    session = SessionFactory(owner=owner, wires=WIRES)
    answer = api.get(
        url(session, "export/"), {"as": "jsonl"}, headers={"accept": "application/x-ndjson"}
    )
    assert answer.status_code == 200
    lines = answer.content.decode().splitlines()
    assert len(lines) == 1
    assert json.loads(lines[0])["messages"] == WIRES


def test_an_export_in_another_form_is_refused(api, owner):
    session = SessionFactory(owner=owner)
    assert problem(api.get(url(session, "export/"), {"as": "pdf"}), 400)["errors"]["as"]


STEPS = [
    {"role": "user", "content": "Where is it?"},
    call("grep", "1", '{"pattern": "MK-0815"}'),
    result("1", "src/a.py:7"),
    {"role": "assistant", "content": "In src/a.py."},
    {"role": "user", "content": [{"type": "text", "text": "And 你好?"}]},
    call("grep", "2", '{"pattern": "你好"}'),
    result("2", "Error: no such file"),
    {"role": "user", "content": "Well?"},
]


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_a_compact_export_has_lines_between_questions_and_answers(api, owner, form):
    session = SessionFactory(owner=owner, title="Trip", system_prompt="Be brief.", wires=STEPS)
    asked = {"as": form, "verbosity": "compact"}
    body = json.loads(api.get(url(session, "export/"), asked).content)
    assert body["metadata"] == {"verbosity": "compact"}
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        STEPS[0],
        {
            "role": "assistant",
            "content": "→ grep MK-0815 · 22 characters\n← grep · 10 characters · ok",
        },
        STEPS[3],
        STEPS[4],
        {
            "role": "assistant",
            "content": "→ grep 你好 · 17 characters\n← grep · 19 characters · error",
        },
        STEPS[7],
    ]


def test_a_quiet_export_has_questions_and_answers_or_what_became_of_them(api, owner):
    session = SessionFactory(owner=owner, system_prompt="Be brief.", wires=STEPS)
    body = json.loads(api.get(url(session, "export/"), {"verbosity": "quiet"}).content)
    assert body["messages"] == [
        STEPS[0],
        STEPS[3],
        STEPS[4],
        {"role": "assistant", "content": "[interrupted]"},
        STEPS[7],
        {"role": "assistant", "content": "[continues]"},
    ]


def test_a_brief_export_of_an_empty_session_is_one(api, owner):
    session = SessionFactory(owner=owner)
    for verbosity in ("compact", "quiet"):
        body = json.loads(api.get(url(session, "export/"), {"verbosity": verbosity}).content)
        assert body["messages"] == []


def test_a_brief_export_is_of_the_owner_alone(api):
    session = SessionFactory(wires=STEPS)
    problem(api.get(url(session, "export/"), {"verbosity": "quiet"}), 404)


def test_a_brief_export_costs_fewer_queries_than_a_whole_one(
    api, owner, django_assert_max_num_queries
):
    session = SessionFactory(owner=owner, wires=STEPS * 30)
    for verbosity in ("compact", "quiet"):
        with django_assert_max_num_queries(3):  # the session, its branch, the rows
            api.get(url(session, "export/"), {"verbosity": verbosity})
