"""What lists tell of a session is stored with its messages: title and next request's size."""

import importlib

import pytest
from django.apps import apps

from chatapp import transcript
from chatapp.models import Message, Session
from chatapp.titles import first_words
from chatapp.transcript.writing import NewMessage
from chatapp.transfer import import_file
from tests.factories import SessionFactory, UserFactory, store, user

pytestmark = pytest.mark.django_db


def stored(session):
    return Session.objects.get(pk=session.pk)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("How do I renew the certificate?", "How do I renew the certificate?"),
        ("  one\n\n two\tthree ", "one two three"),
        ("", ""),
        (" \n ", ""),
        # 78 signs of whole words fit into a line of 80; the next word does not.
        ("word " * 40, "word " * 15 + "word…"),
        ("x" * 300, "x" * 79 + "…"),
        ("<b>bold</b> & more", "<b>bold</b> & more"),
    ],
)
def test_first_words_are_one_line_of_whole_words(text, title):
    assert first_words(text) == title
    assert len(first_words(text)) <= 80


def test_a_session_without_a_title_gets_the_first_words_of_its_conversation():
    session = SessionFactory(title="")
    store(session, [{"role": "system", "content": "You are terse."}])
    assert stored(session).title == ""
    store(session, [user("Where is the\nharbour?"), {"role": "assistant", "content": "South."}])
    store(session, [user("And the station?")])
    assert stored(session).title == "Where is the harbour?"


def test_a_title_that_somebody_gave_stays():
    session = SessionFactory(title="Mine")
    store(session, [user("Where is the harbour?")])
    assert stored(session).title == "Mine"


def test_a_note_and_a_picture_give_no_title():
    session = SessionFactory(title="")
    note = NewMessage(wire=user("What was said before"), kind=Message.Kind.NOTE)
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    transcript.append(session.branch, [note, NewMessage(wire=user([picture]))])
    assert stored(session).title == ""


def test_an_imported_conversation_keeps_its_title_or_gets_its_first_words():
    lines = b"""[
      {"title": "Named", "messages": [{"role": "user", "content": "first"}]},
      {"messages": [{"role": "user", "content": "second question"}]}
    ]"""
    report = import_file(owner=UserFactory(), content=lines)
    assert [one.session.title for one in report.imported] == ["Named", "second question"]
    assert [stored(one.session).title for one in report.imported] == ["Named", "second question"]


def test_the_next_request_grows_with_each_message():
    session = SessionFactory(system_prompt="You answer in one word.")
    prompt = stored(session).request_tokens
    assert prompt > 0
    rows = store(
        session, [user("Where is the harbour?"), {"role": "assistant", "content": "South"}]
    )
    # Each with the 4 tokens of its frame.
    assert stored(session).request_tokens == prompt + sum(row.tokens + 4 for row in rows)


def test_an_answer_sets_the_size_to_what_its_request_had():
    session = SessionFactory()
    store(session, [user("Where?")])
    answer = NewMessage(wire={"role": "assistant", "content": "South"})
    rows = transcript.append(session.branch, [answer], request_tokens=1234)
    assert stored(session).request_tokens == 1234 + rows[0].tokens + 4


def test_another_prompt_changes_the_size_by_its_tokens(client):
    owner = UserFactory()
    session = SessionFactory(owner=owner, system_prompt="")
    rows = store(session, [user("Where?")])
    client.force_login(owner)
    address = f"/api/v1/sessions/{session.pk}/"
    told = client.patch(address, {"system_prompt": "One word."}, content_type="application/json")
    assert told.status_code == 200
    with_prompt = stored(session).request_tokens
    # Of the message, the prompt and the answer's beginning 4 each; without a prompt 8 in all.
    assert with_prompt > rows[0].tokens + 12
    client.patch(address, {"system_prompt": ""}, content_type="application/json")
    assert stored(session).request_tokens == rows[0].tokens + 8


def test_a_switch_shows_the_size_of_the_branch_it_goes_to():
    session = SessionFactory()
    rows = store(session, [user("one"), {"role": "assistant", "content": "two"}, user("three")])
    branch = transcript.fork(session, at=rows[0])
    transcript.activate(session, branch)
    assert stored(session).request_tokens == rows[0].tokens + 8


def test_the_migration_gives_old_sessions_a_title_and_a_size():
    session = SessionFactory(title="")
    rows = store(session, [user("What is  this about?"), user("And this?")])
    Session.objects.filter(pk=session.pk).update(title="", request_tokens=0)
    empty = SessionFactory(title="")
    migration = importlib.import_module("chatapp.migrations.0019_tell_lists_of_sessions")
    migration.fill(apps, None)
    assert stored(session).title == "What is this about?"
    assert stored(session).request_tokens == sum(row.tokens for row in rows)
    assert stored(empty).title == ""
