"""What the pages of branches and messages say of replays and of tool results that were cut."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from chatapp.models import Message, Session
from chatapp.transcript import replay
from tests.factories import SessionFactory, call, result, store, user

pytestmark = pytest.mark.django_db

ATTACK = "<script>alert(1)</script>"
WHOLE = ATTACK + "a line\n" * 500 + "THE END"


def page_of(row) -> str:
    return reverse(f"admin:chatapp_{row._meta.model_name}_change", args=[row.pk])


@pytest.fixture
def session(owner) -> Session:
    return SessionFactory(
        owner=owner, wires=[user("read it"), call("read", "c1"), result("c1", WHOLE), user("and?")]
    )


@pytest.fixture
def replayed(session):
    cut = session.messages.get(role="tool")
    return replay(session, contents={cut.pk: "shortened"})


def test_a_replays_page_leads_to_the_branch_it_replaces_and_back(admin_client, replayed):
    new = admin_client.get(page_of(replayed.new)).text
    assert re.search(rf'Replaces:.*?href="{page_of(replayed.old)}"', new, re.DOTALL)
    old = admin_client.get(page_of(replayed.old)).text
    assert re.search(rf'Replayed as:.*?href="{page_of(replayed.new)}"', old, re.DOTALL)


def test_a_branch_that_is_no_replay_names_no_replaced_one(admin_client, session):
    assert "Replaces:" not in admin_client.get(page_of(session.branch)).text


def test_branches_are_filtered_by_being_a_replay(admin_client, replayed):
    shown = admin_client.get(reverse("admin:chatapp_branch_changelist"), {"kind__exact": "replay"})
    assert list(shown.context["cl"].result_list) == [replayed.new]


def test_a_cut_messages_page_shows_the_whole_text_escaped(admin_client, replayed):
    cut = Message.objects.get(branch=replayed.new, role="tool")
    page = admin_client.get(page_of(cut)).text
    assert f"Cut from {len(WHOLE):,} characters to 9;" in page
    assert "THE END" in page
    assert ATTACK not in page
    assert "&lt;script&gt;alert(1)" in page


def test_a_replayed_message_leads_to_the_one_it_repeats(admin_client, replayed, session):
    old = session.messages.get(branch=replayed.old, role="tool")
    new = session.messages.get(branch=replayed.new, role="tool")
    assert f'href="{page_of(old)}"' in admin_client.get(page_of(new)).text


def test_a_message_cut_when_it_was_stored_shows_its_original(admin_client, owner, settings):
    settings.COMPACTION = settings.COMPACTION | {"STORED_RESULT_CHARS": 3000}
    session = SessionFactory(owner=owner, wires=[user("go"), call("run", "c1")])
    (row,) = store(session, [result("c1", "b line\n" * 3000 + "OUT OF SIGHT\n" + "c\n" * 3000)])
    page = admin_client.get(page_of(row)).text
    assert "OUT OF SIGHT" not in row.content
    assert "OUT OF SIGHT" in page


def test_an_ordinary_message_says_nothing_of_it_and_asks_nothing_more(admin_client, session):
    row = session.messages.get(role="tool")
    with CaptureQueriesContext(connection) as queries:
        page = admin_client.get(page_of(row)).text
    assert "Shortened" not in page
    assert "Repeats:" not in page
    assert not [q for q in queries if "message_originals" in q["sql"]]


def test_marks_that_nobody_wrote_here_are_only_shown(admin_client, session):
    row = session.messages.get(role="tool")
    marks = {"replay_of": ATTACK, "cut_from": ATTACK}
    Message.objects.filter(pk=row.pk).update(metadata=marks)
    response = admin_client.get(page_of(row))
    assert response.status_code == 200
    assert ATTACK not in response.text


def test_lists_of_messages_read_no_originals(admin_client, replayed):
    with CaptureQueriesContext(connection) as queries:
        admin_client.get(reverse("admin:chatapp_message_changelist"))
        admin_client.get(reverse("admin:chatapp_session_change", args=[replayed.new.session_id]))
    assert not [q for q in queries if "message_originals" in q["sql"]]
