"""Pages of messages as bytes: what the serializer would write of the same rows."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.db import connection
from django.db.models import F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatapp import transcript
from chatapp.api.serializers import (
    LightMessageSerializer,
    MessageSerializer,
    MessageSizeSerializer,
)
from chatapp.models import POSITION_STEP, Branch, Message, Session
from chatapp.selectors import path_q
from chatapp.transcript.writing import NewMessage
from tests.chatapp.part_shapes import IMAGE, user_with
from tests.chatapp.test_api_sessions import url
from tests.factories import SessionFactory, call, result, store, talk

pytestmark = pytest.mark.django_db
FORMS = {"": MessageSerializer, "light": LightMessageSerializer, "sizes": MessageSizeSerializer}
each_form = pytest.mark.parametrize("fields", list(FORMS))
each_order = pytest.mark.parametrize("order", ["oldest", "newest"])
ODD_TEXTS = [
    "",
    "plain",
    "é 😀 \u2028 \u2029 \u0085 \ufeff \u202e",
    '"quoted" \\ back\\u0041slash \t\n\r\x01\x1f\x7f',
    "</script><!--",
    "x" * 5_000,
]
NESTED = {
    "big": 2**70,
    "small": -(2**63),
    "float": 1e-7,
    "deep": {"a": [[[{"b": None}]], True, False, 0, ""]},
    "é": "\u2028 😀 \x01",
    "": {},
}
ALONE = "half an emoji \ud83d"


@pytest.fixture
def session(owner, queued) -> Session:
    return SessionFactory(owner=owner)


def page(api, session, **query) -> list[dict]:
    """Return the whole path, page by page."""
    found, link = (
        [],
        url(session, "messages/") + "?" + "&".join(f"{k}={v}" for k, v in query.items()),
    )
    while link:
        answer = api.get(link)
        assert answer.status_code == 200
        assert answer["Content-Type"] == "application/json"
        body = json.loads(answer.content)
        found += body["results"]
        link = body["next"]
    return found


def plain(branch, fields: str, order: str) -> list[dict]:
    """Return the same by the plain serializer, and the standard library's JSON."""
    places = ("position", "id") if order == "oldest" else ("-position", "-id")
    rows = Message.objects.filter(path_q(branch)).order_by(*places)
    written = FORMS[fields](rows, many=True).data
    return json.loads(json.dumps(written))


def go_on_from(session, row) -> None:
    """Fork behind the row and let the session go on there."""
    transcript.activate(session, transcript.fork(session, at=row))
    session.refresh_from_db()


def agree(api, session, fields: str, order: str, **query) -> None:
    chosen = {"fields": fields} if fields else {}
    shown = page(api, session, order=order, **chosen, **query)
    wanted = plain(session.branch, fields, order)
    assert shown == wanted
    # The order of names, too: clients show objects as they come.
    assert [list(row) for row in shown] == [list(row) for row in wanted]


def every_kind(session: Session) -> None:
    """Store rows that differ in each column, by the transcript and past it."""
    store(session, [*talk(2), call("f", "1", '{"q": "é"}'), result("1", "x" * 3_000)])
    store(session, [{"role": "assistant", "content": None, "reasoning_content": "é\u2028"}])
    store(session, [{"role": "user", "content": text} for text in ODD_TEXTS if text])
    parts = [{"type": "text", "text": "look \u2028"}, {"type": "odd", "n": 2**80, "x": None}]
    store(session, [{"role": "user", "content": parts}, {"role": "user", "content": [*parts] * 2}])
    first = session.messages.order_by("position").first()
    for kind in (Message.Kind.PLACEHOLDER, Message.Kind.NOTE):
        draft = NewMessage(wire={"role": "user", "content": "n"}, kind=kind, summary="S é")
        if kind == Message.Kind.PLACEHOLDER:
            transcript.insert_between(session.branch, after=first.position, draft=draft)
        else:
            transcript.append(session.branch, [draft])
    head = Message.objects.order_by("position").last().position
    columns = [
        {"metadata": NESTED, "vendor": NESTED, "usage": {"total_tokens": 2**60}},
        {"role": "assistant", "finish_reason": "stop", "tool_calls": []},
        {"role": "assistant", "finish_reason": "stop", "tool_calls": [{"id": "c"}]},
        {"role": "assistant", "finish_reason": "MAX_TOKENS", "response_id": "resp_é"},
        {"role": "assistant", "finish_reason": "nobody knows"},
        {"role": "user", "finish_reason": "stop", "pinned": True},
        {"created_at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)},
        {"created_at": datetime(2026, 1, 2, 3, 4, 5, 60, tzinfo=UTC)},
        {"content": None, "tokens": 2_000_000_000, "tool_name": "é", "tool_call_id": "\u2028"},
        *({"content": text, "reasoning": text, "summary": text} for text in ODD_TEXTS),
    ]
    for number, own in enumerate(columns, 1):
        row = {"role": "user", "content": f"row {number}"} | own
        place = head + number * POSITION_STEP + number % 3
        Message.objects.create(session=session, branch=session.branch, position=place, **row)
    Branch.objects.filter(pk=session.branch.pk).update(
        head_position=place, message_count=F("message_count") + len(columns)
    )


@each_form
@each_order
def test_a_page_is_what_the_serializer_writes_of_rows_of_all_kinds(api, session, fields, order):
    every_kind(session)
    agree(api, session, fields, order, page_size=200)
    agree(api, session, fields, order, page_size=7)


@each_form
@each_order
def test_so_is_a_page_of_a_path_of_several_branches(api, session, fields, order):
    every_kind(session)
    for _ in range(3):
        rows = Message.objects.filter(path_q(session.branch), kind="message").order_by("position")
        # Nothing calls a tool there, so nothing is parted.
        go_on_from(session, [row for row in rows if row.role == "user"][len(rows) // 3])
        every_kind(session)
    agree(api, session, fields, order, page_size=200)
    agree(api, session, fields, order, page_size=9)


@each_form
def test_so_is_a_page_of_a_replay(api, session, fields):
    store(session, [*talk(2), call("f", "1"), result("1", "x" * 3_000), *talk(1)])
    cut = session.messages.get(role="tool")
    transcript.replay(session, contents={cut.pk: "shortened"})
    session.refresh_from_db()
    agree(api, session, fields, "newest", page_size=3)


@pytest.mark.parametrize("is_lost", [False, True])
def test_parts_in_files_are_read_and_lost_ones_are_told(api, session, part_folder, is_lost):
    (row,) = store(session, [user_with(IMAGE)])
    assert row.parts_bytes > 0
    if is_lost:
        for path in Path(part_folder).rglob("*"):
            if path.is_file():
                path.unlink()
    shown = page(api, session)
    assert shown == plain(session.branch, "", "oldest")
    assert ("data:image" in json.dumps(shown)) is not is_lost


@pytest.mark.skipif(connection.vendor != "sqlite", reason="jsonb takes no half characters")
def test_half_characters_in_stored_json_go_out_as_escapes(api, session):
    parts = [{"type": "text", "chars": 2}, {"type": "odd", "note": ALONE}]
    Message.objects.create(
        session=session,
        branch=session.branch,
        position=POSITION_STEP,
        role="user",
        content="hi",
        parts=parts,
        metadata={"note": ALONE},
    )
    (shown,) = page(api, session)
    assert shown["metadata"] == {"note": ALONE}
    assert shown["content"][1] == {"type": "odd", "note": ALONE}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
        inner,
        max_size=3,
    ),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(metadata=st.dictionaries(st.text("abé"), json_values, max_size=3), value=json_values)
def test_whatever_json_a_row_holds_is_shown(api, session, metadata, value):
    row = Message.objects.create(
        session=session,
        branch=session.branch,
        position=Message.objects.count() * POSITION_STEP + POSITION_STEP,
        role="user",
        content="x",
        metadata=metadata,
        usage={"value": value},
    )
    answer = api.get(url(session, "messages/"), {"order": "newest", "page_size": 1})
    shown = json.loads(answer.content)["results"][0]
    row.refresh_from_db()
    assert (shown["metadata"], shown["usage"]) == (row.metadata, row.usage)


def test_a_client_may_ask_for_an_indented_page(api, session):
    store(session, talk(1))
    path = url(session, "messages/")
    indented = api.get(path, headers={"Accept": "application/json; indent=2"})
    assert b'\n  "results": [\n' in indented.content
    assert indented.json() == api.get(path).json()


@pytest.mark.parametrize("branches", [1, 3])
def test_a_page_takes_as_many_statements_at_any_length(
    api, session, django_assert_num_queries, branches
):
    store(session, talk(3))
    for _ in range(branches - 1):
        go_on_from(session, Message.objects.filter(path_q(session.branch)).latest("position"))
        store(session, talk(1))
    path = url(session, "messages/") + "?order=newest"
    with django_assert_num_queries(3 if branches == 1 else 4):
        api.get(path)
    store(session, talk(60))
    with django_assert_num_queries(3 if branches == 1 else 4):
        api.get(path)


@pytest.mark.parametrize(
    "cursor",
    ["cD0t", "cD1hYmM=", "cD05OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5", "cD0tNQ==", "bz01JnA9MQ==",
     "cj0xJnA9OTk5OTk5OTk5OTk5OTk5OTk5OTk5", "cj0y", "!!!", "cD0xLjU=", "cD0lMDA="],
)  # fmt: skip
@pytest.mark.parametrize("fields", ["", "sizes"])
def test_a_cursor_that_somebody_made_up_breaks_nothing(api, session, cursor, fields):
    store(session, talk(2))
    query = {"cursor": cursor} | ({"fields": fields} if fields else {})
    assert api.get(url(session, "messages/"), query).status_code in (200, 404)
