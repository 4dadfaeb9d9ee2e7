"""sessions/{id}/turns/ without a stream, and sessions/{id}/context/."""

from __future__ import annotations

import json

import pytest
from django.core.cache import cache
from django.db import connection
from rest_framework.throttling import ScopedRateThrottle

from chatapp.llm import openai_client
from chatapp.models import Incident, Message, Session
from chatapp.turns.lease import TurnLease
from tests.chatapp.test_api_sessions import problem, url
from tests.factories import SessionFactory, call, result, store, talk

CACHES = "django.core.cache.backends"
FULL_HISTORY = {"BACKEND": "chatapp.context.backend.FullHistoryBackend", "OPTIONS": {}}


@pytest.fixture
def session(owner, queued, model_server) -> Session:
    return SessionFactory(owner=owner, system_prompt="Be brief.")


@pytest.fixture
def send(api, session):
    def post(body, **headers):
        return api.post(url(session, "turns/"), body, format="json", headers=headers)

    return post


# What a server says of its model's answer: as a refusal, and as the end of one under status 200.
SPOILED = [
    {
        "error": {
            "status": 400,
            "body": {
                "error": {
                    "message": "Failed to call a function. See 'failed_generation'.",
                    "code": "tool_use_failed",
                }
            },
        }
    },
    {"raw": {"choices": [{"message": {}, "finish_reason": "MALFORMED_FUNCTION_CALL"}]}},
]


@pytest.fixture
def full_history(settings):
    settings.CHATAPP = settings.CHATAPP | {"CONTEXT": FULL_HISTORY}


def test_a_turn_answers_with_what_was_stored_the_answer_and_the_account(send):
    answer = send({"content": "hello"})
    assert answer.status_code == 200
    body = answer.json()
    assert set(body) == {"messages", "answer", "context", "run", "left_out", "events"}
    assert [m["content"] for m in body["messages"]] == ["hello"]
    assert (body["answer"]["role"], body["answer"]["content"]) == ("assistant", "ok")
    assert body["context"]["used"] + body["context"]["free"] + body["context"]["reserve"] == 128_000
    assert body["run"] is None
    assert (body["left_out"], body["events"]) == (None, [])


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": "hello"}]},
        {"role": "user", "content": "hello"},
        {"content": [{"type": "text", "text": "hello"}]},
    ],
)
def test_a_question_may_come_as_messages_as_one_message_or_as_parts(send, body):
    assert send(body).status_code == 200
    row = Message.objects.order_by("position")[0]
    assert (row.role, row.content, row.metadata) == ("user", "hello", {})


def test_one_whole_message_can_be_streamed_too(send):
    answer = send({"role": "user", "content": "hello", "stream": True})
    assert answer["Content-Type"] == "text/event-stream"


def test_tools_end_a_turn_and_posted_results_let_it_go_on(api, send, session, model_server):
    model_server.script = [
        {"when": {"call": 1}, "reply": {"tool_calls": call("f", "1")["tool_calls"]}}
    ]
    first = send({"content": "do it"}).json()["answer"]
    assert first["finish_reason"] == "tool_calls"
    api.post(url(session, "messages/"), result(first["tool_calls"][0]["id"], "42"), format="json")
    assert send({}).json()["answer"]["content"] == "ok"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"content": ""}, "content"),
        ({"content": None}, "content"),
        ({"content": 5}, "messages"),
        ({"content": "x", "messages": [{"role": "user", "content": "y"}]}, "content"),
        ({"messages": "x"}, "messages"),
        ({"content": "x", "stream": "perhaps"}, "stream"),
        ({"role": "user"}, "content"),
    ],
)
def test_a_turn_that_cannot_be_used_is_refused_and_stores_nothing(send, body, field):
    assert field in problem(send(body), 400)["errors"]
    assert not Message.objects.exists()


def test_going_on_without_any_question_is_refused(send):
    assert problem(send({"continue": True}), 422)["code"] == "nothing_to_answer"


def test_a_second_turn_is_refused_while_one_runs(send, session):
    TurnLease(session).take()
    body = problem(send({"content": "hello"}), 409)
    assert body["code"] == "turn_in_progress"
    assert not Message.objects.exists()


def test_a_model_that_fails_is_a_bad_gateway_and_the_question_is_kept(send, model_server):
    error = {"status": 401, "body": {"error": {"message": "no"}}}
    model_server.script = [{"when": {}, "reply": {"error": error}}]
    assert problem(send({"content": "hello"}), 502)["code"] == "authentication"
    assert Message.objects.get().content == "hello"


@pytest.mark.parametrize("spoiled", SPOILED)
def test_an_answer_that_came_to_nothing_is_no_server_that_cannot_be_reached(
    send, session, model_server, monkeypatch, client, admin_user, spoiled
):
    monkeypatch.setattr(openai_client, "FIRST_WAIT_SECONDS", 0.01)
    model_server.script = [{"when": {}, "reply": spoiled}]
    told = problem(send({"content": "hello"}), 502)
    assert told["code"] == "broken_answer"
    assert told["detail"].startswith("The model's answer broke off, or was one that its own server")
    retries = Incident.objects.filter(kind=Incident.Kind.RETRY)
    assert {row.code for row in (*retries, Incident.objects.get(kind="error"))} == {told["code"]}
    assert "cannot be reached" not in " ".join(row.text for row in Incident.objects.all())
    assert len(model_server.calls) == retries.count() + 1 == openai_client.MAX_ATTEMPTS
    client.force_login(admin_user)
    page = client.get(f"/admin/chatapp/session/{session.pk}/timeline/").text
    assert "The answer broke off, or its server could not use it" in page


def test_a_model_that_was_removed_is_named(send):
    Session.objects.update(model="gone")
    assert "'gone'" in problem(send({"content": "hello"}), 422)["detail"]


def test_the_same_key_gets_the_same_answer(send, model_server):
    first, again = (send({"content": "hello"}, **{"Idempotency-Key": "k"}) for _ in range(2))
    assert first.json()["answer"] == again.json()["answer"]
    assert len(model_server.calls) == 1


def test_the_same_key_with_another_question_is_refused_and_frees_the_session(send):
    send({"content": "hello"}, **{"Idempotency-Key": "k"})
    problem(send({"content": "other"}, **{"Idempotency-Key": "k"}), 422)
    assert send({"content": "next"}).status_code == 200


def test_there_is_no_limit_of_turns_unless_one_is_set(send):
    assert [send({"content": "x"}).status_code for _ in range(3)] == [200] * 3


def test_turn_rate_limits_the_turns_of_a_user(send, monkeypatch):
    cache.clear()
    monkeypatch.setattr(ScopedRateThrottle, "THROTTLE_RATES", {"turns": "2/day"})
    assert [send({"content": "x"}).status_code for _ in range(2)] == [200] * 2
    answer = send({"content": "x"})
    problem(answer, 429)
    assert int(answer["Retry-After"]) > 0
    cache.clear()


@pytest.mark.parametrize(
    "cache_away",
    [
        {"BACKEND": f"{CACHES}.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"},
        {"BACKEND": f"{CACHES}.filebased.FileBasedCache", "LOCATION": "/dev/null/cache"},
    ],
)
def test_while_the_cache_is_away_turns_are_not_counted_and_none_fails(
    send, monkeypatch, settings, caplog, cache_away
):
    monkeypatch.setattr(ScopedRateThrottle, "THROTTLE_RATES", {"turns": "1/day"})
    settings.CACHES = {"default": cache_away}
    assert [send({"content": "x"}).status_code for _ in range(2)] == [200] * 2
    assert "TURN_RATE is not kept" in caplog.text


def test_a_turn_costs_the_same_however_long_the_session_is(
    api, session, full_history, send, django_assert_num_queries
):
    store(session, talk(2))
    # PostgreSQL gets several statements in one message, the lock of the owner's row among them.
    messages = 11 if connection.vendor == "postgresql" else 14
    with django_assert_num_queries(messages) as first:
        send({"content": "hello"})
    store(session, talk(100, words=1))
    with django_assert_num_queries(len(first)):
        send({"content": "hello"})


@pytest.mark.parametrize(
    "history",
    [
        [],
        talk(3),
        [*talk(1), call("f", "1")],
        [*talk(1), call("f", "1"), result("1"), result("orphan", "MK-0001")],
        [{"role": "system", "content": "rule"}, *talk(1), {"role": "system", "content": "late"}],
        [{"role": "developer", "content": "rule"}, {"role": "user", "content": "open"}],
        [{"role": "user", "content": [{"type": "text", "text": "你好"}]}, *talk(1)],
    ],
    ids=["empty", "talk", "open call", "orphan", "late rule", "unanswered", "parts"],
)
@pytest.mark.parametrize("backend", ["full history", "the product's own"])
def test_context_is_byte_for_byte_what_the_next_turn_sends_before_its_question(
    api, session, send, model_server, history, backend, request
):
    if backend == "full history":
        request.getfixturevalue("full_history")
    store(session, history)
    shown = api.get(url(session, "context/")).json()["messages"]
    send({"content": "hello"})
    sent = model_server.of("chat")[0].messages
    assert json.dumps(sent[:-1]) == json.dumps(shown)
    assert sent[-1] == {"role": "user", "content": "hello"}


def test_context_has_the_account_and_changes_nothing(api, session):
    store(session, talk(2))
    rows = Message.objects.order_by("position").values()
    before = list(rows)
    body = api.get(url(session, "context/")).json()
    assert set(body) == {"messages", "account", "facts", "not_shown"}
    assert body["not_shown"] is None
    assert body["account"]["window"] == 128_000
    assert body["account"]["kept"] == sum(row["tokens"] for row in before)
    assert list(rows.all()) == before


def test_a_wire_that_cannot_be_shown_is_named(api, session):
    answer = api.get(url(session, "context/"), {"wire": "telegraph"})
    assert problem(answer, 400)["errors"]["wire"]


def test_one_leading_system_message_where_the_server_takes_no_more(
    api, session, send, model_server, use_models
):
    use_models(model_server.models(SINGLE_LEADING_SYSTEM=True))
    store(session, [{"role": "system", "content": [{"type": "text", "text": "rule"}]}])
    send({"content": "hello"})
    assert model_server.calls[0].messages[0] == {"role": "system", "content": "Be brief.\n\nrule"}
