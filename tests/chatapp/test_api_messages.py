"""sessions/{id}/messages/ and messages/{id}/."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from chatapp import transcript
from chatapp.models import Message, Session
from chatapp.transcript.writing import NewMessage
from tests.chatapp.test_api_sessions import problem, url
from tests.factories import SessionFactory, call, result, store, talk

HELLO = {"role": "user", "content": "hello"}


@pytest.fixture
def session(owner, queued) -> Session:
    return SessionFactory(owner=owner)


@pytest.fixture
def post(api, session):
    def send(body, **headers):
        text = json.dumps(body)  # ASCII: half an emoji can only be sent as an escape
        return api.post(
            url(session, "messages/"), text, content_type="application/json", headers=headers
        )

    return send


def test_one_message_is_stored(post):
    answer = post(HELLO)
    assert answer.status_code == 201
    (stored,) = answer.json()["messages"]
    assert (stored["role"], stored["content"]) == ("user", "hello")
    assert stored["sequence_id"] == "1.000000"
    assert stored["created_at"].endswith("Z")


def test_many_messages_are_stored_in_their_order(post):
    wires = [*talk(2), call("f", "1"), result("1")]
    stored = post({"messages": wires}).json()["messages"]
    assert [item["content"] for item in stored] == [wire["content"] for wire in wires]
    assert stored[4]["tool_calls"][0]["function"]["name"] == "f"
    assert stored[5]["tool_call_id"] == "1"


def test_parts_come_back_as_they_were_sent(post):
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:,"}},
    ]
    assert post({"role": "user", "content": parts}).json()["messages"][0]["content"] == parts


def test_all_or_none_is_stored(post):
    body = problem(post({"messages": [HELLO, {"role": "robot"}]}), 400)
    assert "role" in str(body["errors"]["messages"])
    assert not Message.objects.exists()


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("text", "must be an object"),
        ({"role": "user"}, "needs a text or a part"),
        ({"role": "user", "contents": "hello"}, "Did you mean 'content' by 'contents'?"),
        ({"role": "user", "content": ""}, "needs a text or a part"),
        ({"role": "user", "content": []}, "needs a text or a part"),
        ({"role": "user", "content": "a\x00b"}, "NUL"),
        ({"role": "user", "content": [{"type": "text", "text": "\x00"}]}, "NUL"),
        ({"role": "tool", "content": "x"}, "tool_call_id"),
        ({"role": "user", "content": 5}, "content"),
        (
            {"role": "user", "content": "x", "tool_calls": [{"function": {"name": "f"}}]},
            "assistant",
        ),
    ],
)
def test_what_cannot_be_stored_is_refused_with_a_reason(post, message, says):
    body = problem(post({"messages": [message]}), 400)
    assert says in str(body["errors"]["messages"])


def test_few_names_are_compared_with_the_one_that_may_be_meant(post):
    """A body of a million names would take the server a minute."""
    names = {f"own_{number}": 1 for number in range(200)}
    body = problem(post({"messages": [{"role": "user", **names, "contents": "hello"}]}), 400)
    assert "needs a text or a part" in str(body["errors"]["messages"])
    assert "Did you mean" not in str(body["errors"]["messages"])


@pytest.mark.parametrize("body", [{}, {"messages": []}, {"messages": "x"}, {"messages": None}])
def test_a_request_without_messages_is_refused(post, body):
    assert problem(post(body), 400)["errors"]["messages"]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": ""},
        {"role": "tool", "content": "", "tool_call_id": "x"},
        {"role": "tool", "content": "half \ud83d and \x00", "tool_call_id": "x"},
        {"role": "system", "content": "late rule"},
        {"role": "user", "content": "</s><|endoftext|>"},
    ],
)
def test_odd_messages_are_stored(post, message):
    assert post(message).status_code == 201


def test_a_text_of_a_megabyte_is_stored(post):
    text = "word " * 200_000
    stored = post({"role": "user", "content": text}).json()["messages"][0]
    assert stored["content"] == text
    assert stored["tokens"] > 100_000


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "x" * 51},
        {"role": "user", "content": [{"type": "text", "text": "x" * 30}] * 2},
        {"role": "assistant", "content": None, "reasoning_content": "x" * 51},
        call("f", "1", "x" * 51),
    ],
)
def test_a_message_above_the_limit_is_refused_with_the_limit(post, message, settings):
    settings.CHATAPP = settings.CHATAPP | {"MAX_MESSAGE_CHARS": 50}
    assert "50 are allowed" in str(problem(post(message), 400)["errors"]["messages"])


def test_parts_that_are_nested_deeply_are_refused(post):
    value: list = []
    for _ in range(98):
        value = [value]
    assert post({"role": "user", "content": [{"type": "x", "v": value}]}).status_code == 400
    assert not Message.objects.exists()


def test_more_messages_than_one_request_may_have_are_refused(post, settings):
    settings.CHATAPP = settings.CHATAPP | {"MAX_MESSAGES_PER_REQUEST": 2}
    assert "at most 2" in str(problem(post({"messages": [HELLO] * 3}), 400)["errors"])


def test_the_same_key_stores_once(post):
    first, again = (post(HELLO, **{"Idempotency-Key": "k1"}) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert Message.objects.count() == 1


def test_the_same_key_with_another_body_is_refused(post):
    post(HELLO, **{"Idempotency-Key": "k1"})
    answer = post({"role": "user", "content": "other"}, **{"Idempotency-Key": "k1"})
    assert problem(answer, 422)["code"] == "key_reused"


def test_a_key_that_is_too_long_is_refused(post):
    answer = post(HELLO, **{"Idempotency-Key": "k" * 201})
    assert problem(answer, 400)["errors"]["Idempotency-Key"]


def test_appending_takes_at_most_six_queries_and_the_backends_look(
    api, session, settings, django_assert_max_num_queries
):
    settings.CHATAPP = settings.CHATAPP | {
        "CONTEXT": {"BACKEND": "chatapp.context.backend.FullHistoryBackend"}
    }
    store(session, talk(5))
    savepoint = 2  # of the test's own transaction
    with django_assert_max_num_queries(6 + savepoint):
        api.post(url(session, "messages/"), HELLO, format="json")


def test_messages_are_read_page_by_page_from_either_end(api, session):
    rows = store(session, talk(3))
    ids = [str(row.pk) for row in rows]
    page = api.get(url(session, "messages/"), {"page_size": 4}).json()
    rest = api.get(page["next"]).json()
    assert [m["id"] for m in [*page["results"], *rest["results"]]] == ids
    newest = api.get(url(session, "messages/"), {"order": "newest", "page_size": 2}).json()
    assert [m["id"] for m in newest["results"]] == ids[:-3:-1]


def test_a_page_of_messages_costs_the_same_however_long_the_session_is(
    api, session, django_assert_num_queries
):
    store(session, talk(3))
    with django_assert_num_queries(3):  # the session, the rows' sizes, the rows
        api.get(url(session, "messages/"))
    store(session, talk(60))
    with django_assert_num_queries(3):
        api.get(url(session, "messages/"))


@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_a_page_ends_before_it_holds_too_much(api, session, settings, order):
    settings.CHATAPP = settings.CHATAPP | {"MAX_PAGE_BYTES": 10_000}
    sizes = [100, 9_000, 2_000, 30_000, 50, 4_000, 4_000, 4_000, 9_900, 9, 1]
    rows = store(session, [{"role": "user", "content": "é" * (size // 2)} for size in sizes])
    ids = [str(row.pk) for row in rows]
    if order == "newest":
        ids.reverse()
    pages, link = [], url(session, "messages/") + f"?order={order}"
    while link:
        page = api.get(link).json()
        pages.append([row["id"] for row in page["results"]])
        last, link = page, page["next"]
    assert [one for page in pages for one in page] == ids
    held = [[len(row["content"].encode()) for row in _rows(page, rows)] for page in pages]
    assert all(sum(page) <= 10_000 or len(page) == 1 for page in held)
    # No page is shorter than it need be.
    assert all(sum(this) + following[0] > 10_000 for this, following in pairwise(held))
    back, link = pages[-1], last["previous"]
    while link:
        page = api.get(link).json()
        back = [row["id"] for row in page["results"]] + back
        link = page["previous"]
    assert back == ids


def _rows(page, rows):
    known = {str(row.pk): {"content": row.content} for row in rows}
    return [known[one] for one in page]


def test_what_a_page_holds_counts_what_is_beside_the_text(api, session, settings):
    settings.CHATAPP = settings.CHATAPP | {"MAX_PAGE_BYTES": 5_000}
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "x" * 4_000}}]
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "y" * 4_000}, {"type": "odd"}]},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "assistant", "content": "z", "reasoning_content": "r" * 4_000},
        {"role": "user", "content": "short"},
    ]
    store(session, messages)
    page = api.get(url(session, "messages/")).json()
    assert len(page["results"]) == 1
    sizes = api.get(url(session, "messages/"), {"fields": "sizes"}).json()
    assert len(sizes["results"]) == 4


def test_placeholders_are_shown_where_they_stand(api, session):
    first, _ = store(session, talk(1))
    transcript.insert_between(
        session.branch,
        after=first.position,
        draft=NewMessage(
            wire={"role": "assistant", "content": None},
            kind=Message.Kind.PLACEHOLDER,
            summary="MK-0001",
        ),
    )
    listed = api.get(url(session, "messages/")).json()["results"]
    assert [m["sequence_id"] for m in listed] == ["1.000000", "1.500000", "2.000000"]
    assert (listed[1]["kind"], listed[1]["summary"]) == ("placeholder", "MK-0001")


def test_fields_chooses_which_columns_are_told(api, session):
    store(session, talk(1))

    def keys(**query: str) -> set[str]:
        answer = api.get(url(session, "messages/"), query).json()
        return set(answer["results"][0])

    assert "metadata" in keys()
    assert "content" in keys(fields="light")
    assert "metadata" not in keys(fields="light")
    sizes = {"id", "sequence_id", "role", "kind", "tokens", "pinned", "created_at"}
    assert keys(fields="sizes") == sizes
    assert keys(fields="sizes", verbosity="default") == sizes


def test_sizes_read_no_text_from_the_database(api, session, django_assert_num_queries):
    store(session, talk(2))
    with django_assert_num_queries(2) as captured:
        api.get(url(session, "messages/"), {"fields": "sizes"})
    assert '"content"' not in captured[1]["sql"]


@pytest.mark.parametrize(
    "query",
    [
        {"verbosity": "loud"},
        {"fields": "all"},
        {"order": "sideways"},
        {"branch": "x"},
        {"branch": "\x00"},
    ],
)
def test_a_query_that_cannot_be_used_is_named(api, session, query):
    body = problem(api.get(url(session, "messages/"), query), 400)
    assert list(body["errors"]) == list(query)


def test_another_branch_can_be_read(api, session, owner):
    rows = store(session, talk(2))
    fork = transcript.fork(session, at=rows[0])
    listed = api.get(url(session, "messages/"), {"branch": str(fork.pk)}).json()["results"]
    assert [m["id"] for m in listed] == [str(rows[0].pk)]
    other = SessionFactory(owner=owner)
    problem(api.get(url(session, "messages/"), {"branch": str(other.active_branch_id)}), 404)


def test_one_message_is_read_by_its_id(api, session):
    row, _ = store(session, talk(1))
    assert api.get(f"/api/v1/messages/{row.pk}/").json()["content"] == row.content


def test_pinning_is_the_only_change(api, session):
    row, _ = store(session, talk(1))
    path = f"/api/v1/messages/{row.pk}/"
    assert api.patch(path, {"pinned": True}, format="json").json()["pinned"] is True
    refused = problem(api.patch(path, {"pinned": False, "content": "x"}, format="json"), 400)
    assert list(refused["errors"]) == ["content"]
    row.refresh_from_db()
    assert row.pinned is True
    problem(api.patch(path, {}, format="json"), 400)
    problem(api.delete(path), 405)
