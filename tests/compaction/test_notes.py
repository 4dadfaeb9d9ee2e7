"""Stored notes are counted, sent, exported and brought back, and are never a question."""

from __future__ import annotations

import importlib
import json

import pytest
from django.apps import apps

from chatapp import transcript
from chatapp.context.backend import context_backend
from chatapp.exports import export_sessions
from chatapp.formats import all_exports
from chatapp.models import Message, Session
from chatapp.transcript.writing import NewMessage
from chatapp.transfer import import_file
from chatapp.turns.attempts import NothingToAnswerError
from chatapp.turns.service import Turn, run_turn
from compaction.doctor.examine import examine
from compaction.selectors import anchor_before
from tests.compaction.support import say
from tests.factories import SessionFactory, call, profile, result, talk, user

pytestmark = pytest.mark.django_db


def note(session: Session, text: str = "A note.", **metadata) -> Message:
    """Store a note at the end of the active branch."""
    draft = NewMessage(wire=user(text), kind=Message.Kind.NOTE, metadata=metadata)
    return transcript.append(session.branch, [draft])[0]


def test_it_counts_and_is_sent_as_a_users_message():
    profile()
    session = SessionFactory(wires=talk(1))
    before = session.branch.token_total
    row = note(session, "What was found elsewhere.")
    session.branch.refresh_from_db()
    assert row.tokens > 0
    assert session.branch.message_count == 3
    assert session.branch.token_total == before + row.tokens
    assert context_backend.preview(session).messages[-1] == user("What was found elsewhere.")
    assert not examine(session.pk)


def test_a_summary_in_a_note_is_counted_under_summaries_once():
    profile()
    session = SessionFactory(wires=talk(1))
    before = context_backend.preview(session).account
    row = note(session, "Found.", type="branch_summary")
    after = context_backend.preview(session).account
    assert after.summaries == before.summaries + row.tokens
    # With the 4 tokens of its frame.
    assert after.used == before.used + row.tokens + 4


def test_no_note_is_the_question_of_a_turn_that_was_covered_in_part():
    wires = [user("The question."), call("read", "c1"), result("c1")]
    session = SessionFactory(wires=wires)
    row = note(session)
    assert anchor_before(session.branch, row.position).content == "The question."
    transcript.append(session.branch, [NewMessage(wire={"role": "assistant", "content": "Done."})])
    later = note(session)
    assert anchor_before(session.branch, later.position) is None


def test_an_export_marks_notes_and_an_import_takes_them_back(owner):
    session = SessionFactory(wires=talk(1))
    note(session, "Found.", type="branch_summary")
    text = "".join(export_sessions([session], all_exports()["json"]))
    assert json.loads(text)["palimpsest"]["notes"] == {"2": "branch_summary"}
    [imported] = import_file(owner=owner, content=text.encode()).imported
    rows = Message.objects.filter(session=imported.session).order_by("position")
    assert list(rows.values_list("kind", flat=True)) == ["message", "message", "note"]
    assert rows.last().carries_summary


@pytest.mark.parametrize("marks", [["2"], {"1": "x"}, {"9": "x"}, {"2": 3}])
def test_an_import_tells_of_marks_that_fit_no_users_message(owner, marks):
    session = SessionFactory(wires=talk(1))
    note(session)
    written = json.loads("".join(export_sessions([session], all_exports()["json"])))
    written["palimpsest"]["notes"] = marks
    report = import_file(owner=owner, content=json.dumps(written).encode())
    assert "The marks of notes were left out" in report.problems[0].text
    stored = Message.objects.filter(session=report.imported[0].session, kind="note")
    assert not stored.exists()


def test_imported_summaries_of_compactions_of_old_become_notes_and_others_stay(owner):
    migration = importlib.import_module(
        "chatapp.migrations.0014_turn_imported_summaries_into_notes"
    )
    imported = {"type": "compaction_summary", "import_key": "c"}
    drafts = [
        NewMessage(wire=user("They packed boots."), metadata=imported),
        NewMessage(wire={"role": "assistant", "content": "Yes."}, metadata=imported),
        # A client's own metadata, and what a user ran, make no note.
        NewMessage(wire=user("Mine."), metadata={"type": "compaction_summary"}),
        NewMessage(wire=user("Ran `ls`"), metadata={"type": "bash_execution", "import_key": "d"}),
    ]
    sessions = {key: SessionFactory(owner=owner, import_key=key) for key in ("pi:s1", None)}
    for session in sessions.values():
        transcript.append(session.branch, drafts)
    migration.into_notes(apps, None)
    kinds = {
        key: list(
            Message.objects.filter(session=session)
            .order_by("position")
            .values_list("kind", flat=True)
        )
        for key, session in sessions.items()
    }
    assert kinds == {
        "pi:s1": ["note", "message", "message", "message"],
        None: ["message"] * 4,
    }
    assert not examine(sessions["pi:s1"].pk)
    migration.into_messages(apps, None)
    assert not Message.objects.filter(kind="note").exists()


def test_imported_summaries_and_custom_messages_of_old_become_notes(owner):
    migration = importlib.import_module(
        "chatapp.migrations.0014_turn_imported_summaries_into_notes"
    )
    lines = [
        {"type": "session", "id": "s1", "version": 3},
        {"type": "message", "id": "a", "parentId": None,
         "message": {"role": "user", "content": "Hello"}},
        {"type": "branch_summary", "id": "b", "parentId": "a", "summary": "Tried.", "fromId": "z"},
        {"type": "custom_message", "id": "c", "parentId": "b", "customType": "x", "content": "Hm"},
    ]  # fmt: skip
    content = "\n".join(map(json.dumps, lines)).encode()
    [imported] = import_file(owner=owner, content=content).imported
    rows = Message.objects.filter(session=imported.session).order_by("position")
    kinds = rows.values_list("kind", flat=True)
    assert list(kinds) == ["message", "note", "note"]
    migration.into_messages(apps, None)
    assert list(kinds.all()) == ["message", "message", "message"]
    migration.into_notes(apps, None)
    assert list(kinds.all()) == ["message", "note", "note"]


def test_a_note_behind_a_whole_answer_leaves_nothing_to_continue(model_server):
    session = SessionFactory(wires=talk(1))
    note(session)
    with pytest.raises(NothingToAnswerError):
        run_turn(Turn(session=session, drafts=[], goes_on=True))
    assert not model_server.calls


def test_a_question_behind_a_note_is_answered_with_both(model_server):
    profile()
    session = SessionFactory(wires=talk(1))
    note(session, "Found elsewhere.")
    assert say(session, "And now?").answer.content == "ok"
    [asked] = model_server.of("chat")
    assert asked.messages[-2:] == [user("Found elsewhere."), user("And now?")]
