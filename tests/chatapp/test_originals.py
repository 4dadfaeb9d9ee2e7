"""Nothing is lost of a cut tool result: at storing, or by a replay."""

from __future__ import annotations

import pytest

from chatapp import transcript
from chatapp.exports import conversation_of
from chatapp.formats.openai_export import to_openai_chat_json
from chatapp.llm.tokens import count_message
from chatapp.models import Message, MessageOriginal
from chatapp.selectors import counter_of, whole_content
from tests.chatapp.test_transcript import check_all_sums
from tests.factories import SessionFactory, call, result, store, user

LONG = "".join(f"line {n}\n" for n in range(700))


@pytest.fixture
def session(owner, settings):
    settings.COMPACTION = settings.COMPACTION | {"STORED_RESULT_CHARS": 5000}
    return SessionFactory(owner=owner, wires=[user("go"), call("run", "c1")])


def test_an_enormous_result_is_stored_cut_and_whole_beside_it(session):
    (row,) = store(session, [result("c1", LONG)])
    row.refresh_from_db()
    assert len(row.content) <= 5000 < len(LONG)
    assert LONG.startswith(row.content[:2000])
    assert row.metadata["cut_from"] == len(LONG)
    assert MessageOriginal.objects.get().content == LONG
    assert whole_content(row) == LONG


def test_the_cut_text_is_counted_and_sums_are_right(session):
    (row,) = store(session, [result("c1", LONG)])
    assert row.tokens == count_message(row.wire(), counter_of(session))
    check_all_sums(session)


def test_images_stay_and_texts_share_the_limit(session):
    parts = [
        {"type": "text", "text": LONG},
        {"type": "image_url", "image_url": {"url": "data:,"}},
        {"type": "text", "text": LONG},
    ]
    (row,) = store(session, [result("c1") | {"content": parts}])
    sent = row.wire()["content"]
    assert [part["type"] for part in sent] == ["text", "image_url", "text"]
    assert sum(len(part.get("text", "")) for part in sent) <= 5000
    assert whole_content(row) == parts


@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_only_tool_results_are_cut(session, role):
    (row,) = store(session, [{"role": role, "content": LONG}])
    assert row.content == LONG
    assert not MessageOriginal.objects.exists()


def test_a_result_at_the_limit_is_stored_as_it_is(session):
    (row,) = store(session, [result("c1", "x" * 5000)])
    assert row.content == "x" * 5000
    assert "cut_from" not in row.metadata


def test_the_guard_can_be_switched_off(session, settings):
    settings.COMPACTION = settings.COMPACTION | {"STORED_RESULT_CHARS": 0}
    (row,) = store(session, [result("c1", LONG)])
    assert row.content == LONG


def test_by_default_400_000_characters_are_stored(owner):
    session = SessionFactory(owner=owner, wires=[user("go"), call("a", "1"), call("b", "2")])
    short, long = store(session, [result("1", "x" * 400_000), result("2", "x" * 400_001)])
    assert len(short.content) == 400_000
    assert len(long.content) <= 400_000
    assert MessageOriginal.objects.get().message == long


def test_an_export_and_the_api_give_the_whole_text(session, api):
    (row,) = store(session, [result("c1", LONG)])
    assert to_openai_chat_json(conversation_of(session))["messages"][-1]["content"] == LONG
    page = api.get(f"/api/v1/messages/{row.pk}/")
    assert page.data["content"] == row.content
    assert api.get(f"/api/v1/messages/{row.pk}/?whole=true").data["content"] == LONG


def test_a_replayed_result_leads_back_to_the_whole(session, api):
    (row,) = store(session, [result("c1", LONG)])
    transcript.replay(session, contents={row.pk: "line 0"})
    copy = Message.objects.get(branch=session.active_branch, role="tool")
    assert copy.content == "line 0"
    assert whole_content(copy) == LONG
    old, new = api.get(f"/api/v1/sessions/{session.pk}/branches/").data["results"]
    assert (new["kind"], new["replaces"], new["is_active"]) == ("replay", old["id"], True)
    assert to_openai_chat_json(conversation_of(session))["messages"][-1]["content"] == LONG


def test_a_result_that_was_never_cut_costs_no_query(session, django_assert_num_queries):
    (row,) = store(session, [result("c1", "short")])
    with django_assert_num_queries(0):
        assert whole_content(row) == "short"
