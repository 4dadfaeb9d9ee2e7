"""Branches by the API: forks before a message, labels, and turns that edit an earlier question."""

from __future__ import annotations

import pytest

from chatapp import transcript
from chatapp.context.backend import FullHistoryBackend
from chatapp.models import Branch, Message, Session
from chatapp.transcript import SwitchRefusedError
from chatapp.transcript.writing import NewMessage
from tests.chatapp.test_api_sessions import problem, url
from tests.factories import SessionFactory, UserFactory, api_key, call, result, store, talk, user

NOBODY = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def session(owner, queued, model_server) -> Session:
    return SessionFactory(owner=owner, wires=talk(3))


@pytest.fixture
def rows(session) -> list[Message]:
    return list(Message.objects.filter(session=session).order_by("position"))


@pytest.fixture
def send(api, session):
    def post(body, **headers):
        return api.post(url(session, "turns/"), body, format="json", headers=headers)

    return post


@pytest.fixture
def fork(api, session):
    def post(**body):
        return api.post(url(session, "branches/"), body, format="json")

    return post


def contents(api, session, **query) -> list[str]:
    listed = api.get(url(session, "messages/"), query).json()["results"]
    return [row["content"] for row in listed]


def test_a_fork_before_a_message_shares_what_is_above_it(api, session, rows, fork):
    made = fork(message=str(rows[2].pk), before=True, label="Another way")
    assert made.status_code == 201
    assert (made.data["label"], made.data["is_active"]) == ("Another way", True)
    assert made.data["message_count"] == 2
    assert contents(api, session) == [rows[0].content, rows[1].content]


def test_a_fork_before_the_first_message_is_an_empty_line(api, session, rows, fork, send):
    made = fork(message=str(rows[0].pk), before=True)
    assert (made.data["parent"], made.data["fork_position"]) == (None, None)
    assert contents(api, session) == []
    assert send({"content": "From the start."}).status_code == 200
    assert contents(api, session) == ["From the start.", "ok"]
    old = contents(api, session, branch=str(rows[0].branch_id))
    assert old == [row.content for row in rows]


def test_a_fork_before_a_result_names_the_call_and_the_last_result(session, fork):
    asked, answered = store(session, [call("f", "1"), result("1")])
    refused = fork(message=str(answered.pk), before=True)
    told = problem(refused, 409)["detail"]
    assert f"before the call, message {asked.pk}" in told
    assert f"behind the last result, message {answered.pk}" in told
    assert Branch.objects.filter(session=session).count() == 1
    assert fork(message=str(asked.pk), before=True).status_code == 201


@pytest.mark.parametrize("before", [False, True])
def test_a_fork_at_what_came_in_between_a_call_and_its_results_is_refused(session, fork, before):
    both = call("f", "1")
    both["tool_calls"] += call("g", "2")["tool_calls"]
    asked, _, between, last = store(session, [both, result("1"), user("Hurry!"), result("2")])
    refused = fork(message=str(between.pk), before=before)
    told = problem(refused, 409)["detail"]
    assert f"before the call, message {asked.pk}" in told
    assert f"behind the last result, message {last.pk}" in told
    assert fork(message=str(last.pk)).status_code == 201


def test_a_branch_is_named_and_loses_its_name(api, session):
    address = f"/api/v1/branches/{session.active_branch_id}/"
    named = api.patch(address, {"label": "The <b>plan</b>"}, format="json")
    assert (named.status_code, named.data["label"]) == (200, "The <b>plan</b>")
    assert api.get(address).data["label"] == "The <b>plan</b>"
    listed = api.get(url(session, "branches/")).json()["results"]
    assert [branch["label"] for branch in listed] == ["The <b>plan</b>"]
    assert api.patch(address, {"label": None}, format="json").data["label"] == ""


@pytest.mark.parametrize("body", [{}, {"label": 3}, {"label": "x" * 121}, {"kind": "replay"}])
def test_a_label_that_cannot_be_used_is_refused(api, session, body):
    address = f"/api/v1/branches/{session.active_branch_id}/"
    problem(api.patch(address, body, format="json"), 400)
    assert Branch.objects.get(session=session).label == ""


def test_somebody_elses_branch_is_not_found(client, session):
    stranger = {"Authorization": f"Bearer {api_key(UserFactory())}"}
    for branch in (session.active_branch_id, NOBODY):
        address = f"/api/v1/branches/{branch}/"
        assert client.get(address, headers=stranger).status_code == 404
        changed = client.patch(
            address, {"label": "mine"}, content_type="application/json", headers=stranger
        )
        assert changed.status_code == 404
    assert Branch.objects.get(session=session).label == ""


def test_a_replay_keeps_the_label(session, rows):
    transcript.set_label(session.branch, "The plan")
    found = transcript.replay(session, contents={rows[0].pk: "Shorter."})
    assert found.new.label == "The plan"


# --- turns that edit ------------------------------------------------------------------------------


def test_an_edited_question_is_answered_in_a_branch_of_its_own(
    api, session, rows, send, model_server
):
    answer = send({"content": "Rather this.", "edits": str(rows[2].pk)})
    assert answer.status_code == 200
    expected = [rows[0].content, rows[1].content, "Rather this.", "ok"]
    assert contents(api, session) == expected
    sent = model_server.of("chat")[-1].body["messages"]
    assert [message["content"] for message in sent if message["role"] != "system"] == expected[:3]
    fork = Branch.objects.exclude(pk=rows[0].branch_id).get()
    assert answer.json()["answer"]["branch"] == str(fork.pk)
    # The other branch is as it was, and can be taken up again.
    assert contents(api, session, branch=str(rows[0].branch_id)) == [row.content for row in rows]
    api.post(f"/api/v1/branches/{rows[0].branch_id}/activate/")
    assert contents(api, session) == [row.content for row in rows]


def test_the_first_question_can_be_edited(api, session, rows, send):
    assert send({"content": "All anew.", "edits": str(rows[0].pk)}).status_code == 200
    assert contents(api, session) == ["All anew.", "ok"]


def test_an_edit_may_bring_several_messages_and_a_stream(api, session, rows, send):
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Again."}]
    answer = send({"messages": messages, "edits": str(rows[2].pk), "stream": True})
    assert answer.status_code == 200
    assert contents(api, session)[2:4] == ["Be kind.", "Again."]


def test_an_edit_that_is_sent_twice_forks_once(session, rows, send):
    body = {"content": "Rather this.", "edits": str(rows[2].pk)}
    first = send(body, **{"Idempotency-Key": "k1"})
    again = send(body, **{"Idempotency-Key": "k1"})
    assert again.json()["answer"]["id"] == first.json()["answer"]["id"]
    assert Branch.objects.filter(session=session).count() == 2
    other = send(body | {"content": "Else."}, **{"Idempotency-Key": "k1"})
    assert problem(other, 422)["code"] == "key_reused"
    assert Branch.objects.filter(session=session).count() == 2


def test_an_edit_whose_answer_fails_keeps_the_question(api, session, rows, send, model_server):
    model_server.script = [{"when": {}, "reply": {"error": {"status": 401, "body": {}}}}]
    assert send({"content": "Rather this.", "edits": str(rows[2].pk)}).status_code == 502
    assert contents(api, session)[-1] == "Rather this."


@pytest.mark.parametrize(
    ("which", "more", "status"),
    [
        (1, {"content": "x"}, 400),  # an answer
        (2, {}, 400),
        (2, {"continue": True}, 400),
        (2, {"content": " "}, 400),
        (None, {"content": "x"}, 404),
    ],
)
def test_an_edit_that_cannot_be_is_refused(session, rows, send, which, more, status):
    edited = NOBODY if which is None else str(rows[which].pk)
    problem(send({"edits": edited} | more), status)
    assert Branch.objects.filter(session=session).count() == 1
    assert Message.objects.count() == len(rows)


def test_a_question_of_another_session_is_not_found(owner, session, rows, send):
    other = SessionFactory(owner=owner, wires=talk(1))
    at = Message.objects.filter(session=other).first()
    problem(send({"content": "x", "edits": str(at.pk)}), 404)


class Stubborn(FullHistoryBackend):
    """Never switches."""

    def switch(self, session, branch, wishes, *, activate):
        raise SwitchRefusedError("Not now.")


def test_a_refused_switch_leaves_no_branch_behind(session, rows, send, settings):
    settings.CHATAPP = settings.CHATAPP | {
        "CONTEXT": {"BACKEND": f"{__name__}.Stubborn", "OPTIONS": {}}
    }
    refused = send({"content": "Rather this.", "edits": str(rows[2].pk)})
    assert problem(refused, 409)["detail"] == "Not now."
    assert Branch.objects.filter(session=session).count() == 1
    assert Message.objects.count() == len(rows)
    session.refresh_from_db()
    assert session.active_branch_id == rows[0].branch_id


def test_a_fork_whose_switch_is_refused_leaves_no_branch_behind(session, rows, fork, settings):
    settings.CHATAPP = settings.CHATAPP | {
        "CONTEXT": {"BACKEND": f"{__name__}.Stubborn", "OPTIONS": {}}
    }
    for before in (False, True):
        refused = fork(message=str(rows[2].pk), before=before, label="Another way")
        assert problem(refused, 409)["detail"] == "Not now."
    assert problem(fork(message=str(rows[0].pk), before=True), 409)["detail"] == "Not now."
    assert Branch.objects.get(session=session).pk == rows[0].branch_id
    assert fork(message=str(rows[2].pk), activate=False).status_code == 201


def test_a_new_branch_that_somebody_took_up_meanwhile_is_not_deleted(session, rows):
    used, parent, active, unused = (transcript.fork(session, at=rows[1]) for _ in range(4))
    transcript.append(used, [NewMessage(wire=user("Here."))])
    child = Branch.objects.create(session=session, parent=parent, fork_position=0)
    transcript.activate(session, active)
    for branch in (used, parent, active, unused):
        transcript.delete_unused(Branch.objects.get(pk=branch.pk))
    root = rows[0].branch
    assert set(Branch.objects.filter(session=session)) == {root, used, parent, child, active}


def test_a_key_belongs_to_the_question_that_was_edited(session, rows, send):
    key = {"Idempotency-Key": "k1"}
    body = {"content": "Rather this."}
    assert send(body, **key).status_code == 200
    for edited in (rows[0], rows[2]):
        refused = send(body | {"edits": str(edited.pk)}, **key)
        assert problem(refused, 422)["code"] == "key_reused"
    assert Branch.objects.filter(session=session).count() == 1


def test_an_edit_is_not_answered_in_another_branch(api, session, rows, send, model_server):
    body = {"content": "Rather this.", "edits": str(rows[2].pk)}
    key = {"Idempotency-Key": "k1"}
    works = model_server.script
    model_server.script = [{"when": {}, "reply": {"error": {"status": 401, "body": {}}}}]
    assert send(body, **key).status_code == 502
    model_server.script = works
    edited = Message.objects.get(content="Rather this.").branch_id
    api.post(f"/api/v1/branches/{rows[0].branch_id}/activate/")
    refused = send(body, **key)
    assert str(edited) in problem(refused, 409)["detail"]
    assert contents(api, session) == [row.content for row in rows]
    api.post(f"/api/v1/branches/{edited}/activate/")
    answer = send(body, **key)
    assert answer.status_code == 200
    assert contents(api, session)[-2:] == ["Rather this.", "ok"]
    # Once it is answered, the answer comes back wherever the session is.
    api.post(f"/api/v1/branches/{rows[0].branch_id}/activate/")
    assert send(body, **key).json()["answer"]["id"] == answer.json()["answer"]["id"]
