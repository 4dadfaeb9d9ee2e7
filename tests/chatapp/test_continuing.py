"""Going on from the server's last answer (previous_response_id), and falling back."""

from __future__ import annotations

import pytest

from chatapp import transcript
from chatapp.models import Incident, Message, Session
from chatapp.selectors import path_messages
from chatapp.turns.service import Turn, run_turn
from tests.factories import SessionFactory, call, result, store, talk, user

PREVIOUS = {"purpose": "chat", "has_previous_response": True}


@pytest.fixture
def server(model_server, use_models):
    use_models(model_server.models(KEEPS_RESPONSES=True))
    return model_server


@pytest.fixture
def session(owner, queued) -> Session:
    return SessionFactory(owner=owner, api="responses", system_prompt="Be brief.")


def say(session: Session, *wires: dict) -> Message:
    store(session, wires)
    return run_turn(Turn(session=Session.objects.get(pk=session.pk))).answer


def bodies(server) -> list[dict]:
    return [called.body for called in server.calls]


def roles(body: dict) -> list[str]:
    return [item.get("role", item["type"]) for item in body["input"]]


def refusal(**error) -> dict:
    return {"error": {"status": 400, "body": {"error": error}}}


def test_the_second_turn_sends_only_what_is_new(session, server):
    first = say(session, user("one"))
    say(session, user("two"))
    opening, following = bodies(server)
    assert "previous_response_id" not in opening
    assert opening["store"] is True
    assert following["previous_response_id"] == first.response_id
    assert [item["content"][0]["text"] for item in following["input"]] == ["two"]


def test_results_of_tools_are_sent_as_what_is_new(session, server):
    asked = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    server.script = [
        {"when": {"call": 1}, "reply": {"tool_calls": asked}},
        {"when": {}, "reply": {"text": "done"}},
    ]
    say(session, user("one"))
    assert say(session, result("c1", "found")).content == "done"
    body = bodies(server)[1]
    assert [item["type"] for item in body["input"]] == ["function_call_output"]
    assert body["input"][0]["call_id"] == "c1"


def test_without_the_models_setting_everything_is_sent(session, model_server):
    say(session, user("one"))
    say(session, user("two"))
    assert roles(bodies(model_server)[1]) == ["system", "user", "assistant", "user"]
    assert bodies(model_server)[1]["store"] is False


def change_prompt(session: Session) -> None:
    Session.objects.filter(pk=session.pk).update(system_prompt="Be long.")


def fork_back(session: Session) -> None:
    session = Session.objects.get(pk=session.pk)
    branch = transcript.fork(session, at=path_messages(session.branch)[0])
    transcript.activate(session, branch)


def pin_nothing_but_insert(session: Session) -> None:
    branch = Session.objects.get(pk=session.pk).branch
    first = path_messages(branch)[0]
    from chatapp.transcript.writing import NewMessage

    transcript.insert_between(branch, after=first.position, draft=NewMessage(wire=user("between")))


@pytest.mark.parametrize("change", [change_prompt, fork_back, pin_nothing_but_insert])
def test_where_the_server_holds_something_else_everything_is_sent(session, server, change):
    say(session, user("one"))
    change(session)
    say(session, user("two"))
    assert "previous_response_id" not in bodies(server)[1]


LOST = refusal(code="previous_response_not_found", message="Previous response not found.")
TOO_LARGE = refusal(code="context_length_exceeded", message="exceeds the context window")


@pytest.mark.parametrize("reply", [LOST, TOO_LARGE], ids=["lost", "overflow"])
def test_what_a_server_forgot_once_is_sent_whole_once(session, server, reply):
    server.script = [
        {"when": PREVIOUS | {"call": 2}, "reply": reply},
        {"when": {}, "reply": {"text": "answered"}},
    ]
    say(session, user("one"))
    assert say(session, user("two")).content == "answered"
    assert say(session, user("three")).content == "answered"
    assert say(session, user("four")).content == "answered"
    sent = [("previous_response_id" in body, len(roles(body))) for body in bodies(server)]
    assert sent == [(False, 2), (True, 1), (False, 4), (True, 1), (True, 1)]
    assert not Session.objects.get(pk=session.pk).stateless
    assert Incident.objects.get().code == "sent_whole"


@pytest.mark.parametrize("reply", [LOST, TOO_LARGE], ids=["lost", "overflow"])
def test_a_server_that_keeps_none_of_its_answers_is_sent_everything(session, server, reply):
    server.script = [
        {"when": PREVIOUS, "reply": reply},
        {"when": {}, "reply": {"text": "answered"}},
    ]
    for words in ("one", "two", "three", "four"):
        assert say(session, user(words)).content == "answered"
    goes_on = ["previous_response_id" in body for body in bodies(server)]
    assert goes_on == [False, True, False, True, False, False]
    assert Session.objects.get(pk=session.pk).stateless
    codes = Incident.objects.order_by("created_at").values_list("code", flat=True)
    assert list(codes) == ["sent_whole", "stateless"]


@pytest.mark.parametrize(
    "reply",
    [
        refusal(
            message="Unsupported parameter: previous_response_id", param="previous_response_id"
        ),
        refusal(message="No tool call found for function call output with call_id c1."),
        refusal(message="Something about this request is wrong."),
    ],
    ids=["unsupported", "missing call", "other refusal"],
)
def test_any_refusal_falls_back_to_the_whole_history_once_and_is_remembered(session, server, reply):
    server.script = [
        {"when": PREVIOUS, "reply": reply},
        {"when": {}, "reply": {"text": "answered"}},
    ]
    say(session, user("one"))
    assert say(session, user("two")).content == "answered"
    say(session, user("three"))
    goes_on = ["previous_response_id" in body for body in bodies(server)]
    assert goes_on == [False, True, False, False]
    assert roles(bodies(server)[2]) == ["system", "user", "assistant", "user"]
    assert Session.objects.get(pk=session.pk).stateless
    assert Incident.objects.get().code == "stateless"


def test_a_summarisers_answer_is_never_gone_on_from(session, server, owner):
    from tests.factories import profile

    profile(message_limit=6, max_context_tokens=0, keep_last_n=1)
    store(session, talk(4))
    answer = say(session, user("one"))
    assert server.summarising()
    say(session, user("two"))
    ids = {body.get("previous_response_id") for body in bodies(server)} - {None}
    assert ids <= {answer.response_id}


def test_the_chat_wire_never_goes_on(owner, server, queued):
    session = SessionFactory(owner=owner)
    say(session, user("one"))
    say(session, user("two"))
    assert all("previous_response_id" not in body for body in bodies(server))


def test_reasoning_goes_back_before_what_it_produced(session, model_server):
    model_server.script = [
        {"when": {"call": 1}, "reply": {"text": "one", "reasoning": "hm", "encrypted": "s3cret"}},
        {"when": {}, "reply": {"text": "two"}},
    ]
    say(session, user("a"))
    say(session, user("b"))
    kinds = [item["type"] for item in bodies(model_server)[1]["input"]]
    assert kinds == ["message", "message", "reasoning", "message", "message"]


def test_reasoning_that_the_server_cannot_read_any_more_is_left_out(session, model_server):
    lost = refusal(code="invalid_encrypted_content", message="could not be verified")
    model_server.script = [
        {"when": {"call": 1}, "reply": {"text": "one", "reasoning": "hm", "encrypted": "s3cret"}},
        {"when": {"call": 2}, "reply": lost},
        {"when": {}, "reply": {"text": "two"}},
    ]
    say(session, user("a"))
    assert say(session, user("b")).content == "two"
    kinds = [item["type"] for item in bodies(model_server)[2]["input"]]
    assert kinds == ["message"] * 4


def test_calls_without_a_result_are_answered_in_the_request_only(session, model_server):
    say(session, user("go"), call("f", "c1"), user("and now?"))
    outputs = [i for i in bodies(model_server)[0]["input"] if i["type"] == "function_call_output"]
    assert [item["call_id"] for item in outputs] == ["c1"]
    assert Message.objects.filter(session=session, role="tool").count() == 0


def test_the_context_is_shown_as_the_sessions_wire_sends_it(session, model_server, api):
    store(session, [user("one"), call("f", "c1"), result("c1", "found")])
    url = f"/api/v1/sessions/{session.pk}/context/"
    shown = api.get(url).json()
    run_turn(Turn(session=Session.objects.get(pk=session.pk)))
    assert shown["input"] == bodies(model_server)[0]["input"]
    assert "messages" not in shown
    assert [m["role"] for m in api.get(f"{url}?wire=chat").json()["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


def test_the_body_of_the_next_request_is_that_of_the_sessions_wire(session, model_server):
    from chatapp.context.backend import context_backend
    from chatapp.turns.request import body_of

    store(session, [user("one")])
    fresh = Session.objects.get(pk=session.pk)
    body = body_of(fresh, context_backend.preview(fresh))
    run_turn(Turn(session=fresh))
    assert body == bodies(model_server)[0]


def test_an_answer_of_another_server_is_not_gone_on_from(session, server, use_models):
    say(session, user("one"))
    use_models(server.models(KEEPS_RESPONSES=True, NAME="another"))
    say(session, user("two"))
    assert "previous_response_id" not in bodies(server)[1]


def test_an_id_that_is_too_long_to_be_stored_is_not_sent_back_cut(session, server):
    Message.objects.all().delete()
    answer = say(session, user("one"))
    from chatapp.transcript.writing import NewMessage

    draft = NewMessage(wire={"role": "assistant", "content": "x"}, response_id="r" * 201)
    (row,) = transcript.append(session.branch, [draft])
    assert row.response_id == ""
    assert answer.response_id
