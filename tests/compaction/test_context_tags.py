"""The tag of `context/` changes with the next request, that of a page with its messages."""

from __future__ import annotations

import json

import pytest

from chatapp import transcript
from chatapp.models import Message, Session
from chatapp.transcript.writing import NewMessage, set_pinned
from compaction.memories.lines import add_memory
from compaction.models import SessionSummary
from compaction.profiles import save_profile
from compaction.summaries.restore import restore_summary
from tests.compaction.support import NEVER, compact
from tests.factories import SessionFactory, profile, store, talk

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(owner, model_server, queued) -> Session:
    profile(**NEVER, keep_last_n=2, memory_budget_tokens=200)
    session = SessionFactory(owner=owner, wires=talk(6, marker=1))
    compact(session)
    store(session, talk(2, marker=20))
    return session


def url(session, tail: str) -> str:
    return f"/api/v1/sessions/{session.pk}/{tail}"


def first_message(session) -> Message:
    return session.messages.filter(kind="message").order_by("position").first()


def append(api, session):
    store(session, talk(1))


def insert(api, session):
    rows = session.messages.filter(kind="message").order_by("position")
    draft = NewMessage(wire={"role": "user", "content": "between"})
    transcript.insert_between(session.branch, after=rows[len(rows) - 2].position, draft=draft)


def pin(api, session):
    set_pinned(first_message(session), True)


def replay(api, session):
    last = session.messages.filter(role="user").order_by("position").last()
    transcript.replay(session, contents={last.pk: "shortened"})


def switch_branch(api, session):
    at = session.messages.filter(kind="message").order_by("position")[1]
    transcript.activate(session, transcript.fork(session, at=at))


def restore(api, session):
    restore_summary(SessionSummary.objects.get())


def summarise(api, session):
    compact(session)


def remember(api, session):
    add_memory(owner=session.owner, text="They walk in July.")


def change_profile(api, session):
    parameters = NEVER | {"keep_last_n": 2, "rendering": "user_tags"}
    save_profile(name="test", parameters=parameters, make_default=True)


def change_prompt(api, session):
    answer = api.patch(url(session, ""), {"system_prompt": "Be brief."}, format="json")
    assert answer.status_code == 200


def change_tools(api, session):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    assert api.patch(url(session, ""), {"tools": tools}, format="json").status_code == 200


def change_wire(api, session):
    assert api.patch(url(session, ""), {"api": "responses"}, format="json").status_code == 200


OF_BOTH = [append, insert, pin, replay, switch_branch, restore, summarise]
OF_CONTEXT = [*OF_BOTH, remember, change_profile, change_prompt, change_tools, change_wire]


@pytest.mark.parametrize("change", OF_CONTEXT)
def test_what_changes_the_next_request_changes_the_tag_of_the_context(api, session, change):
    path = url(session, "context/")
    before = api.get(path)
    known = {"If-None-Match": before["ETag"]}
    assert api.get(path, headers=known).status_code == 304
    change(api, session)
    after = api.get(path, headers=known)
    assert after.status_code == 200
    assert after["ETag"] != before["ETag"]
    assert after.content != before.content


@pytest.mark.parametrize("change", OF_BOTH)
@pytest.mark.parametrize("query", [{}, {"order": "newest", "page_size": 200}], ids=str)
def test_what_changes_the_conversation_changes_the_tag_of_its_page(api, session, change, query):
    path = url(session, "messages/")
    before = api.get(path, query)
    known = {"If-None-Match": before["ETag"]}
    change(api, session)
    after = api.get(path, query, headers=known)
    is_same = api.get(path, query).content == before.content
    assert after.status_code == (304 if is_same else 200)
    # Only taking a summary back leaves all rows as they are, its placeholder with them.
    assert not is_same or change is restore


def test_both_wires_have_tags_of_their_own(api, session):
    path = url(session, "context/")
    tags = {api.get(path, {"wire": wire})["ETag"] for wire in ("chat", "responses")}
    assert len(tags) == 2
    assert api.get(path)["ETag"] in tags


def test_head_has_the_tag_and_the_length_of_the_context(api, session):
    path = url(session, "context/")
    read, head = api.get(path), api.head(path)
    assert (head["ETag"], head["Content-Length"]) == (read["ETag"], read["Content-Length"])


def test_the_schema_says_that_a_tag_comes_and_what_it_is_for(api):
    schema = json.loads(api.get("/api/v1/schema/?format=json").content)
    for tail in ("messages/", "context/"):
        read = schema["paths"][f"/api/v1/sessions/{{session_id}}/{tail}"]["get"]
        assert set(read["responses"]) >= {"200", "304"}
        assert "content" not in read["responses"]["304"]
        for status in ("200", "304"):
            assert "ETag" in read["responses"][status]["headers"]
        sent = {one["name"]: one["in"] for one in read["parameters"]}
        assert sent["If-None-Match"] == "header"
