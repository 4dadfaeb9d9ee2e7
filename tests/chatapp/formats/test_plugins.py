"""A format of a module of its own, named in CHATAPP["FORMATS"]: no existing file is touched."""

from __future__ import annotations

import io
import json

import pytest
from django.core.management import call_command

from chatapp.checks import check_formats
from chatapp.formats import (
    Conversation,
    Document,
    Format,
    ImportedMessage,
    ParsedFile,
    UnknownFormatError,
    parse,
)
from chatapp.models import Message, Session
from tests.chatapp.test_api_sessions import problem, url

pytestmark = pytest.mark.django_db

TOY = "tests.chatapp.formats.toy.FORMAT"
TEXT = "# dialogue: Trip\nuser: Where to?\n---\nassistant: To Rome.\n"
CLEAN = TEXT.replace("---\n", "")


@pytest.fixture
def formats(settings, queued):
    def use(**paths: str) -> None:
        settings.CHATAPP = settings.CHATAPP | {"FORMATS": paths}

    return use


@pytest.fixture
def toy(formats):
    formats(toy=TOY)


def said() -> list[tuple[str, str]]:
    rows = Message.objects.order_by("position")
    return [(row.role, row.content) for row in rows]


def post(api):
    kind = "application/octet-stream"
    return api.post("/api/v1/sessions/import/", TEXT, content_type=kind)


def test_without_the_setting_the_file_is_refused_with_the_known_formats(formats):
    with pytest.raises(UnknownFormatError, match="can be read: pi sessions"):
        parse(TEXT)


def test_the_api_imports_and_exports_it(toy, api, owner):
    body = post(api).json()

    assert [(item["format"], item["title"]) for item in body["sessions"]] == [("toy", "Trip")]
    # Lines that are no JSON are no damage in a format that is none.
    assert body["problems"] == [{"line": 3, "text": "Nobody says this line."}]
    assert said() == [("user", "Where to?"), ("assistant", "To Rome.")]
    exported = api.get(url(Session.objects.get(), "export/"), {"as": "dialogue"})
    assert exported.content.decode() == CLEAN
    assert exported["Content-Type"] == "text/plain; charset=utf-8"
    assert exported["Content-Disposition"].endswith('.dialogue"')


def test_the_commands_import_it_from_a_folder_and_export_it(toy, owner, tmp_path):
    (tmp_path / "trip.dialogue").write_text(TEXT)
    (tmp_path / "trip.other").write_text(TEXT)
    out = tmp_path / "out.txt"

    call_command(
        "import_transcript", str(tmp_path), "--owner", owner.username, stderr=io.StringIO()
    )
    session = Session.objects.get()
    call_command(
        "export_transcript", str(session.pk), "--as", "dialogue", "--output", str(out),
        stderr=io.StringIO(),
    )  # fmt: skip

    assert out.read_text() == CLEAN


def test_what_lists_the_formats_lists_it(toy, api, owner):
    with pytest.raises(UnknownFormatError, match=r"dialogues \(text\)"):
        parse("nothing")
    post(api)
    refused = api.get(url(Session.objects.get(), "export/"), {"as": "pdf"})
    assert problem(refused, 400)["errors"]["as"] == ["json or jsonl or dialogue."]
    schema = api.get("/api/v1/schema/", {"format": "json"}).json()
    operation = schema["paths"]["/api/v1/sessions/{session_id}/export/"]["get"]
    (choice,) = (item for item in operation["parameters"] if item["name"] == "as")
    assert choice["schema"]["enum"] == ["dialogue", "json", "jsonl"]
    assert "text/plain" in operation["responses"]["200"]["content"]


def test_a_plug_in_is_asked_before_the_built_in_formats_and_may_replace_one(formats):
    formats(openai_chat="tests.chatapp.formats.test_plugins.ANOTHER")
    (found,) = parse(json.dumps({"messages": [{"role": "user", "content": "x"}]})).conversations
    assert found.title == "replaced"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("no.such.module.FORMAT", "cannot be loaded from 'no.such.module.FORMAT': No module named"),
        ("nodots", "cannot be loaded from 'nodots': nodots doesn't look like a module path"),
        ("tests.chatapp.formats.toy.TITLE", "is no Format"),
        ("chatapp.formats.pi.FORMAT", "calls itself 'pi'"),
    ],
)
def test_e011_a_format_that_cannot_be_used_is_a_sentence_and_stops_no_other(formats, path, why):
    formats(mine=path)
    (found,) = check_formats()
    assert found.id == "chatapp.E011"
    assert found.msg.startswith("The format 'mine'")
    assert why in found.msg
    assert parse('[{"role": "user", "content": "x"}]').format == "openai_chat"


def test_no_check_fails_as_installed(toy):
    assert check_formats() == []


def _parse_another(document: Document) -> ParsedFile:
    message = ImportedMessage(key="1", parent=None, wire={"role": "user", "content": "x"})
    found = Conversation(format="openai_chat", identity="x", title="replaced", messages=(message,))
    return ParsedFile(format="openai_chat", conversations=(found,))


ANOTHER = Format(
    name="openai_chat",
    label="another",
    endings=(),
    recognises=lambda document: True,
    parse=_parse_another,
)
