"""One turn: what came in is stored, the model is asked, its answer is stored, whatever happens."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connections
from django.utils import timezone

from chatapp.context.backend import BaseContextBackend, Recovery, context_backend
from chatapp.llm import openai_client
from chatapp.llm.errors import ErrorKind
from chatapp.llm.registry import UnknownModelError
from chatapp.messages.wire import InvalidMessageError
from chatapp.models import Message, Session
from chatapp.transcript.writing import NewMessage
from chatapp.turns.attempts import NothingToAnswerError
from chatapp.turns.lease import (
    LEASE_SECONDS,
    TooManyTurnsError,
    TurnInProgressError,
    TurnLease,
    _Beats,
    renew_all,
)
from chatapp.turns.service import (
    Turn,
    TurnFailedError,
    begin_turn,
    run_turn,
)
from tests.alone import assert_works_alone
from tests.chatapp.test_stream import until
from tests.factories import SessionFactory, call, result, store, talk

OVERFLOW = {
    "status": 400,
    "body": {"error": {"message": "maximum context length is 10 tokens", "code": None}},
}


def user(text: str) -> NewMessage:
    return NewMessage(wire={"role": "user", "content": text})


@pytest.fixture(autouse=True)
def full_history(settings, queued, monkeypatch):
    """These turns send everything: what compaction adds is tested with compaction."""
    monkeypatch.setattr(openai_client, "FIRST_WAIT_SECONDS", 0.01)
    settings.CHATAPP = settings.CHATAPP | {
        "CONTEXT": {"BACKEND": "chatapp.context.backend.FullHistoryBackend", "OPTIONS": {}}
    }


@pytest.fixture
def session(owner, model_server) -> Session:
    return SessionFactory(owner=owner, system_prompt="Be brief.")


def turn(session: Session, *drafts: NewMessage, **arguments):
    return run_turn(Turn(session=session, drafts=drafts, **arguments))


def stored(session: Session) -> list[tuple[str, str | None]]:
    rows = Message.objects.filter(session=session).order_by("position")
    return [(row.role, row.content) for row in rows]


def answer_with(server, *replies: dict) -> None:
    server.script = [{"when": {"call": n}, "reply": reply} for n, reply in enumerate(replies, 1)]


def test_question_and_answer_are_stored(session):
    done = turn(session, user("hello"))
    assert stored(session) == [("user", "hello"), ("assistant", "ok")]
    assert done.answer.content == "ok"


def test_the_request_is_the_system_prompt_and_all_that_was_said(session, model_server):
    store(session, talk(2))
    done = turn(session, user("hello"))
    (asked,) = model_server.of("chat")
    assert asked.messages[0] == {"role": "system", "content": "Be brief."}
    assert [m["role"] for m in asked.messages[1:]] == ["user", "assistant"] * 2 + ["user"]
    assert asked.messages == list(done.context.messages)


def test_usage_reason_model_and_reasoning_are_stored_with_the_answer(session, model_server):
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}
    answer_with(model_server, {"text": "x", "usage": usage, "reasoning": "hm"})
    answer = turn(session, user("hello")).answer
    answer.refresh_from_db()
    assert (answer.usage, answer.finish_reason, answer.reasoning) == (usage, "stop", "hm")
    assert answer.metadata["model"] == "scripted"
    assert answer.response_id


def test_a_model_that_asks_for_tools_ends_the_turn_and_an_empty_turn_goes_on(session, model_server):
    answer_with(model_server, {"tool_calls": call("f", "1")["tool_calls"]}, {"text": "done"})
    first = turn(session, user("do it")).answer
    assert (first.finish_reason, first.tool_calls[0]["id"]) == ("tool_calls", "1")
    store(session, [result("1", "42")])
    assert turn(session).answer.content == "done"
    assert [m["role"] for m in model_server.calls[1].messages] == [
        "system",
        "user",
        "assistant",
        "tool",
    ]


def test_a_refusal_is_stored_as_what_was_said(session, model_server):
    answer_with(
        model_server,
        {
            "raw": {
                "choices": [
                    {"message": {"content": None, "refusal": "I cannot."}, "finish_reason": "stop"}
                ]
            }
        },
    )
    assert turn(session, user("x")).answer.content == "I cannot."


def test_a_failure_keeps_what_the_user_sent_and_an_empty_turn_tries_again(session, model_server):
    refused = {"error": {"status": 401, "body": {"error": {"message": "no"}}}}
    answer_with(model_server, refused, {"text": "now"})
    with pytest.raises(TurnFailedError, match="refused the key") as caught:
        turn(session, user("hello"))
    assert caught.value.error.kind is ErrorKind.AUTHENTICATION
    assert stored(session) == [("user", "hello")]
    assert turn(session).answer.content == "now"


def test_a_failure_frees_the_session(session, model_server):
    answer_with(model_server, {"error": {"status": 400, "body": {"error": {"message": "bad"}}}})
    with pytest.raises(TurnFailedError):
        turn(session, user("hello"))
    session.refresh_from_db()
    assert session.turn_owner is None


def test_what_a_server_refused_is_told_in_its_own_words(session, model_server):
    answer_with(model_server, {"error": {"status": 400, "body": {"error": {"message": "no dogs"}}}})
    with pytest.raises(TurnFailedError, match="no dogs"):
        turn(session, user("hello"))


def test_text_that_had_come_is_stored_as_interrupted(session, model_server):
    answer_with(model_server, {"chunks": ["half ", "an answer"], "fail_after": 1})
    with pytest.raises(TurnFailedError):
        turn(session, user("hello"), stream=True)
    last = Message.objects.filter(session=session).order_by("-position")[0]
    assert (last.content, last.finish_reason) == ("half ", "interrupted")


def test_calls_of_an_interrupted_answer_are_not_kept(session, model_server):
    error = {"message": "oops"}
    answer_with(
        model_server,
        {
            "chunks": ["text ", "never"],
            "fail_after": 1,
            "stream_error": error,
            "tool_calls": call("f", "1")["tool_calls"],
        },
    )
    with pytest.raises(TurnFailedError):
        turn(session, user("hello"), stream=True)
    assert not Message.objects.exclude(tool_calls=None).exists()


def test_a_cancelled_turn_stores_what_had_come(session, model_server):
    answer_with(model_server, {"chunks": ["a ", "b ", "c "], "chunk_delay_s": 0.05})
    asked = Turn(session=session, drafts=[user("hello")], stream=True)

    def stop(name, payload):
        if name == "delta":
            asked.cancelled.set()

    with pytest.raises(TurnFailedError) as caught:
        run_turn(
            Turn(
                session=session,
                drafts=asked.drafts,
                stream=True,
                emit=stop,
                cancelled=asked.cancelled,
            )
        )
    assert caught.value.error.kind is ErrorKind.CANCELLED
    assert stored(session)[-1] == ("assistant", "a ")


def test_a_second_turn_is_refused_while_one_runs_and_stores_nothing(session):
    TurnLease(session).take()
    with pytest.raises(TurnInProgressError):
        turn(session, user("hello"))
    assert stored(session) == []


def test_a_lease_of_a_turn_that_died_expires(session):
    TurnLease(session).take()
    Session.objects.update(turn_expires_at=timezone.now() - timedelta(seconds=1))
    assert turn(session, user("hello")).answer.content == "ok"


@pytest.mark.parametrize("hours", [1, -1])
def test_a_machine_whose_clock_is_off_takes_no_live_turns_session(session, monkeypatch, hours):
    TurnLease(session).take()
    off = timezone.now() + timedelta(hours=hours)
    monkeypatch.setattr(timezone, "now", lambda: off)
    with pytest.raises(TurnInProgressError):
        TurnLease(session).take()


def left_of(session: Session) -> float:
    session.refresh_from_db()
    return (session.turn_expires_at - timezone.now()).total_seconds()


def test_a_lease_is_short_and_a_beat_renews_those_that_are_held(session, owner):
    other = SessionFactory(owner=owner)
    held, free = TurnLease(session), TurnLease(other)
    held.take()
    free.take()
    assert LEASE_SECONDS - 10 < left_of(session) <= LEASE_SECONDS
    Session.objects.update(turn_expires_at=timezone.now() + timedelta(seconds=5))
    session.refresh_from_db()
    renew_all([session.turn_owner])
    assert left_of(session) > LEASE_SECONDS - 10
    assert left_of(other) <= 5


def test_a_turn_that_goes_on_beats_and_one_that_ended_does_not(session, monkeypatch):
    monkeypatch.setattr("chatapp.turns.lease.BEAT_SECONDS", 0.01)
    beaten = []
    monkeypatch.setattr("chatapp.turns.lease.renew_all", beaten.append)
    lease = TurnLease(session)
    beats = _Beats()
    monkeypatch.setattr("chatapp.turns.lease._beats", beats)
    lease.take()
    assert until(lambda: len(beaten) > 2)
    lease.give_back()
    assert until(lambda: beats._thread is None)
    told = len(beaten)
    time.sleep(0.05)
    assert len(beaten) == told


def test_a_turn_that_hangs_is_not_kept_alive_for_ever(session, monkeypatch, settings):
    settings.CHATAPP = settings.CHATAPP | {"TURN_SECONDS": 1}
    monkeypatch.setattr("chatapp.turns.lease.BEAT_SECONDS", 0.01)
    monkeypatch.setattr("chatapp.turns.lease.SLACK_SECONDS", -1)
    beaten = []
    monkeypatch.setattr("chatapp.turns.lease.renew_all", beaten.append)
    beats = _Beats()
    monkeypatch.setattr("chatapp.turns.lease._beats", beats)
    TurnLease(session).take()
    assert until(lambda: beats._thread is None)
    assert beaten == []


def test_giving_back_an_expired_lease_does_not_free_the_next_ones(session):
    old, new = TurnLease(session), TurnLease(session)
    old.take()
    Session.objects.update(turn_expires_at=timezone.now() - timedelta(seconds=1))
    new.take()
    old.give_back()
    with pytest.raises(TurnInProgressError):
        TurnLease(session).take()
    with pytest.raises(TurnInProgressError):
        old.renew()
    new.renew()


def test_what_cannot_be_stored_frees_the_session(session):
    with pytest.raises(InvalidMessageError):
        turn(session, NewMessage(wire={"role": "nobody"}))
    TurnLease(session).take()


def test_a_turn_without_any_question_asks_no_model(session, model_server):
    with pytest.raises(NothingToAnswerError):
        turn(session)
    assert model_server.calls == []
    TurnLease(session).take()


def test_a_model_that_was_removed_is_named_before_anything_is_stored(session):
    session.model = "gone"
    with pytest.raises(UnknownModelError, match="gone"):
        turn(session, user("hello"))
    assert stored(session) == []


def test_the_same_key_gets_the_same_answer_and_asks_once(session, model_server):
    first = turn(session, user("hello"), client_key="k")
    again = turn(session, user("hello"), client_key="k")
    assert again.answer == first.answer
    assert len(model_server.calls) == 1


def test_the_same_key_tries_again_when_the_answer_broke_off(session, model_server):
    answer_with(model_server, {"chunks": ["half ", "x"], "fail_after": 1}, {"text": "whole"})
    with pytest.raises(TurnFailedError):
        turn(session, user("hello"), client_key="k", stream=True)
    assert turn(session, user("hello"), client_key="k").answer.content == "whole"
    assert [role for role, _ in stored(session)].count("user") == 1


def test_full_history_says_what_to_do_when_the_window_is_too_small(session, model_server):
    answer_with(model_server, {"error": OVERFLOW})
    with pytest.raises(TurnFailedError, match="larger than the model's context window"):
        turn(session, user("hello"))
    assert len(model_server.calls) == 1


class Stubborn(BaseContextBackend):
    """Offers the same context again after every overflow."""

    def recover(self, session, error, previous, *, refused, emit=None):
        return Recovery(context=self.preview(session))


def test_the_same_request_is_never_sent_twice(session, model_server, settings):
    settings.CHATAPP = settings.CHATAPP | {"CONTEXT": {"BACKEND": f"{__name__}.Stubborn"}}
    model_server.script = [{"when": {}, "reply": {"error": OVERFLOW}}]
    with pytest.raises(TurnFailedError):
        turn(session, user("hello"))
    assert len(model_server.calls) == 1


class Restless(BaseContextBackend):
    """Offers another context after every overflow, without end."""

    def recover(self, session, error, previous, *, refused, emit=None):
        count = 1 + (previous.memory if previous else 0)
        first, *rest = refused.messages
        messages = (first | {"content": f"{first['content']} {count}"}, *rest)
        return Recovery(context=replace(refused, messages=messages), memory=count)


def test_a_backend_that_never_ends_is_stopped(session, model_server, settings):
    settings.CHATAPP = settings.CHATAPP | {"CONTEXT": {"BACKEND": f"{__name__}.Restless"}}
    model_server.script = [{"when": {}, "reply": {"error": OVERFLOW}}]
    with pytest.raises(TurnFailedError):
        turn(session, user("hello"))
    assert len(model_server.calls) == 21


class Grumpy(BaseContextBackend):
    """Fails whenever it is told something."""

    def message_stored(self, session, message):
        raise RuntimeError("no queue")

    turn_finished = message_stored


def test_a_backend_that_fails_to_listen_does_not_fail_the_turn(session, settings):
    settings.CHATAPP = settings.CHATAPP | {"CONTEXT": {"BACKEND": f"{__name__}.Grumpy"}}
    assert turn(session, user("hello")).answer.content == "ok"


def test_no_more_room_is_asked_for_than_the_window_has_left(session, model_server, use_models):
    use_models(model_server.models(CONTEXT_WINDOW=200, MAX_OUTPUT=150))
    store(session, [{"role": "user", "content": "lorem ipsum " * 50}])
    done = turn(session)
    used = done.context.account.used
    assert 50 < used < 200
    # A margin for servers that count a little more; half of what is left stays at least.
    left = 200 - used
    assert model_server.calls[0].body["max_tokens"] == left - left // 2


def test_the_account_adds_up(session):
    session.tools = [{"type": "function", "function": {"name": "f"}}]
    store(session, talk(2))
    account = turn(session, user("hello")).context.account
    assert account.system > 0
    assert account.tools > 0
    assert account.kept > 0
    assert account.pending > 0
    # 4 for each of prompt and five messages, and for the beginning of the answer.
    assert account.frames == 28
    front = account.system + account.tools
    assert account.used == front + account.kept + account.pending + account.frames


def test_the_preview_is_what_the_next_turn_sends_before_its_question(session, model_server):
    store(session, [*talk(2), call("f", "1"), result("1"), result("orphan")])
    preview = context_backend.preview(session)
    turn(session, user("hello"))
    assert model_server.calls[0].messages[:-1] == list(preview.messages)


@pytest.mark.django_db(transaction=True)
def test_no_connection_to_a_server_is_held_while_the_model_thinks(session, model_server):
    mine = connections["default"]  # this thread's own, to be looked at from the server's thread
    held = []
    answer = model_server.answer

    def look(body, headers):
        held.append(mine.connection is not None)
        return answer(body, headers)

    model_server.answer = look
    turn(session, user("hello"))
    # SQLite has no server whose connections could run out, and none is opened anew each turn.
    assert held == [mine.vendor == "sqlite"]


def test_messages_are_told_of_before_the_answer(session):
    heard = []
    turn(session, user("hello"), stream=True, emit=lambda name, payload: heard.append(name))
    assert heard == ["message", "delta"]


def test_a_begun_turn_has_its_messages_stored_and_its_session_taken(session):
    started = begin_turn(Turn(session=session, drafts=[user("hello")]))
    assert stored(session) == [("user", "hello")]
    with pytest.raises(TurnInProgressError):
        turn(session)
    started.lease.give_back()


ALONE = """
from django.apps import apps
from django.core.management import call_command
from rest_framework.test import APIClient
call_command("check")
api = APIClient()
api.force_authenticate(get_user_model().objects.create(username="u"))
session = api.post("/api/v1/sessions/", {"title": "t"}, format="json").data["id"]
url = f"/api/v1/sessions/{session}/"
for number in range(3):
    turn = api.post(url + "turns/", {"content": f"my number is {number}"}, format="json")
    assert turn.status_code == 200, turn.data
context = api.get(url + "context/").json()["messages"]
assert [m["role"] for m in context] == ["user", "assistant"] * 3, context
assert not apps.is_installed("compaction")
import sys
assert not [name for name in sys.modules if name.split(".")[0] == "compaction"]
"""


@pytest.mark.slow
def test_the_chat_works_where_compaction_is_not_installed(tmp_path):
    assert_works_alone(ALONE, tmp_path)


def test_an_owner_has_so_many_turns_under_way_and_others_are_not_concerned(owner, settings):
    settings.CHATAPP = settings.CHATAPP | {"TURNS_PER_OWNER": 2}
    first, second, third = (TurnLease(SessionFactory(owner=owner)) for _ in range(3))
    first.take()
    second.take()
    with pytest.raises(TooManyTurnsError, match="2 turns of yours"):
        third.take()
    TurnLease(SessionFactory()).take()
    first.give_back()
    third.take()
    Session.objects.update(turn_expires_at=timezone.now() - timedelta(seconds=1))
    TurnLease(SessionFactory(owner=owner)).take()
