"""Real conversations: every file imports, twice is once, and what is sent is accepted anywhere."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from chatapp.context.backend import FullHistoryBackend, context_backend
from chatapp.exports import conversation_of, export_sessions
from chatapp.formats import all_exports
from chatapp.formats.openai_export import to_openai_chat_json
from chatapp.models import Message, Session
from chatapp.selectors import path_messages
from chatapp.transfer import import_file
from tests.chatapp.test_transcript import check_all_sums
from tests.conftest import SHARED
from tests.fakes.strict_checker import faults

pytestmark = pytest.mark.django_db

FILES = sorted(
    path
    for folder in (
        "openai_chat",
        "pi",
        "claude_code",
        "chatgpt_export",
        "librechat",
        "openwebui",
        "oasst",
    )
    for path in (SHARED / "data" / folder).glob("*.json*")
)
NEXT = {"role": "user", "content": "And then?"}
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem[:40])


@pytest.fixture(autouse=True)
def no_queue(queued):
    """Imports may queue compactions; they are not run here."""


@pytest.fixture
def real(owner, shared):
    def read(path: Path):
        return import_file(owner=owner, content=path.read_bytes(), name=path.name)

    return read


def whole(session: Session) -> dict:
    return to_openai_chat_json(conversation_of(session))


def case_checker():
    """Return the checker that the cases come with."""
    place = importlib.util.spec_from_file_location("caselib", SHARED / "cases" / "caselib.py")
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module.strict


@each_file
def test_it_imports_once_and_every_request_is_accepted(real, path, owner):
    report = real(path)
    assert report.imported
    count = Message.objects.count()
    assert count == sum(item.messages_added for item in report.imported) > 0

    again = real(path)
    assert [item.messages_added for item in again.imported] == [0] * len(report.imported)
    assert (Session.objects.count(), Message.objects.count()) == (len(report.imported), count)

    strict = case_checker()
    for session in Session.objects.select_related("active_branch")[:10]:
        for backend in (FullHistoryBackend(), context_backend):
            messages = [*backend.preview(session).messages, NEXT]
            assert faults(messages) == []
            assert strict(messages) == []


@each_file
def test_its_sums_are_right_on_every_branch(real, path):
    real(path)
    sessions = Session.objects.order_by("created_at")[:4]
    assert sessions
    for session in sessions:
        check_all_sums(session)


@each_file
def test_what_is_exported_imports_back_equal(real, path, owner):
    real(path)
    originals = list(Session.objects.select_related("active_branch").order_by("created_at")[:4])
    text = "".join(export_sessions(originals, all_exports()["jsonl"])).encode()
    report = import_file(owner=owner, content=text, name="export.jsonl")
    copies = [item.session for item in report.imported]
    assert len(copies) == len(originals)
    for original, copy in zip(originals, copies, strict=True):
        copy.refresh_from_db()
        assert whole(copy) == whole(original)
        assert len(path_messages(copy.branch)) == len(path_messages(original.branch))
