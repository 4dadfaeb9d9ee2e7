"""A switch with a summary by the API: what is taken, what is answered, what is refused."""

from __future__ import annotations

from uuid import UUID

import pytest

from chatapp import transcript
from chatapp.models import Branch, Message, Session
from compaction.doctor.examine import examine
from compaction.models import CompactionRun, SessionSummary
from compaction.runs.worker import execute_run
from tests.compaction.support import NEVER, say, sent
from tests.factories import SessionFactory, profile, talk, user

pytestmark = pytest.mark.django_db
NOBODY = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def session(owner, model_server, queued) -> Session:
    profile(**NEVER)
    return SessionFactory(owner=owner, wires=talk(3))


@pytest.fixture
def other(session) -> Branch:
    """A branch that shares the first turn."""
    rows = Message.objects.filter(session=session).order_by("position")
    return transcript.fork(session, at=rows[1])


@pytest.fixture
def activate(api, other):
    def post(branch=None, **body):
        address = f"/api/v1/branches/{branch or other.pk}/activate/"
        return api.post(address, body, format="json")

    return post


def active(session: Session) -> Branch:
    return Session.objects.get(pk=session.pk).branch


def test_it_answers_with_the_branch_the_run_and_the_summary(session, other, activate):
    answer = activate(summarize=True, label="Second try")
    assert answer.status_code == 200
    found = answer.json()
    assert (found["id"], found["is_active"], found["label"]) == (str(other.pk), True, "Second try")
    assert (found["run"]["status"], found["run"]["trigger"]) == ("succeeded", "branch")
    summary = SessionSummary.objects.get()
    note = Message.objects.get(kind="note")
    assert (found["summary"]["id"], found["summary"]["note"]) == (str(summary.pk), str(note.pk))
    assert active(session) == other


def test_without_a_summary_it_is_as_before(session, other, activate, model_server):
    found = activate().json()
    assert (found["is_active"], found["run"], found["summary"]) == (True, None, None)
    assert not model_server.calls
    assert not CompactionRun.objects.exists()


def test_a_label_names_the_branch_and_null_takes_the_name_away(other, activate):
    assert activate(label="Here").json()["label"] == "Here"
    assert activate().json()["label"] == "Here"
    assert activate(label=None).json()["label"] == ""


def test_who_does_not_wait_gets_the_run(api, session, other, activate):
    answer = activate(summarize=True, wait=False)
    assert answer.status_code == 202
    found = answer.json()
    assert (found["is_active"], found["run"]["status"]) == (False, "queued")
    listed = api.get("/api/v1/runs/", {"session": str(session.pk)}).json()["results"]
    assert [(run["id"], run["trigger"]) for run in listed] == [(found["run"]["id"], "branch")]
    assert listed[0]["switch_to"] == str(other.pk)
    state = api.get(f"/api/v1/sessions/{session.pk}/compaction/").json()
    assert state["switch"] == {"run": found["run"]["id"], "to": str(other.pk), "status": "queued"}
    execute_run(UUID(found["run"]["id"]))
    assert active(session) == other
    assert api.get(f"/api/v1/sessions/{session.pk}/compaction/").json()["switch"] is None


def test_two_switches_at_once_are_one_too_many(session, activate):
    assert activate(summarize=True, wait=False).status_code == 202
    refused = activate(summarize=True)
    assert refused.status_code == 409
    assert "under way" in refused.json()["detail"]
    assert CompactionRun.objects.count() == 1


def test_a_run_that_fails_leaves_the_session_where_it_is(session, activate, model_server):
    model_server.script = [
        {"when": {"purpose": "branch"}, "reply": {"error": {"status": 400, "body": {}}}}
    ]
    old = session.branch
    answer = activate(summarize=True)
    assert answer.status_code == 200
    assert answer.json()["is_active"] is False
    assert answer.json()["run"]["status"] == "failed"
    assert answer.json()["run"]["error"]
    assert active(session) == old


@pytest.mark.parametrize("wait", [True, False])
def test_instructions_reach_the_call(activate, model_server, wait):
    body = activate(summarize=True, instructions="Mind the ports.", wait=wait).json()
    if not wait:
        execute_run(UUID(body["run"]["id"]))
    assert "Mind the ports." in model_server.of("branch")[0].messages[1]["content"]


def test_instructions_may_take_the_place_of_ours(activate, model_server):
    model_server.script = [{"when": {}, "reply": {"text": "Ports were tried."}}]
    activate(summarize=True, instructions="In one line.", replace_instructions=True)
    assert model_server.calls[0].messages[0]["content"].startswith("In one line.")


@pytest.mark.parametrize(
    "body",
    [
        {"instructions": "x" * 4_001},
        {"label": "x" * 121},
        {"summarize": "perhaps"},
        {"wait": 7},
        {"summarise": True},
    ],
)
def test_what_cannot_be_is_refused(session, activate, body):
    old = session.branch
    assert activate(**{"summarize": True} | body).status_code == 400
    assert active(session) == old


def test_four_thousand_characters_of_instructions_are_taken(activate):
    assert activate(summarize=True, instructions="x" * 4_000).status_code == 200


def test_an_unknown_branch_and_one_of_another_owner_are_not_found(activate, model_server):
    theirs = SessionFactory(wires=talk(1))
    assert activate(NOBODY, summarize=True).status_code == 404
    assert activate(theirs.branch.pk, summarize=True).status_code == 404
    assert not CompactionRun.objects.exists()


def test_its_summary_is_not_restored(api, activate):
    found = activate(summarize=True).json()["summary"]
    refused = api.post(f"/api/v1/summaries/{found['id']}/restore/", {}, format="json")
    assert refused.status_code == 409
    assert "cannot be restored" in refused.json()["detail"]


def test_the_summary_tells_where_it_comes_from(api, session, activate):
    old = session.branch
    leaf = Message.objects.filter(branch=old, kind="message").order_by("position").last()
    found = activate(summarize=True).json()["summary"]
    told = api.get(f"/api/v1/summaries/{found['id']}/").json()
    assert (told["kind"], told["from_branch"]) == ("branch", str(old.pk))
    assert told["from_message"] == str(leaf.pk)
    sources = api.get(f"/api/v1/summaries/{found['id']}/messages/").json()["results"]
    assert len(sources) == 4


def test_the_list_of_messages_shows_the_note(api, session, activate):
    activate(summarize=True)
    rows = api.get(f"/api/v1/sessions/{session.pk}/messages/").json()["results"]
    assert [row["kind"] for row in rows] == ["message", "message", "note"]
    assert rows[-1]["metadata"]["type"] == "branch_summary"


@pytest.mark.parametrize("wish", ["label", "summarize", "instructions", "wait"])
def test_a_wish_with_a_field_of_its_own_is_refused_where_nobody_checks_it(session, activate, wish):
    before = active(session)
    answer = activate(wishes={wish: "x" * 5000})
    assert answer.status_code == 400
    assert f"{wish}: name these beside" in answer.json()["errors"]["wishes"][0]
    assert active(session) == before


def test_from_an_empty_line_before_the_first_message_one_note_tells_of_all(
    api, session, activate, model_server
):
    rows = list(Message.objects.filter(session=session).order_by("position"))
    address = f"/api/v1/sessions/{session.pk}/branches/"
    body = {"message": str(rows[0].pk), "before": True, "activate": False}
    empty = Branch.objects.get(pk=api.post(address, body, format="json").json()["id"])
    answer = activate(empty.pk, summarize=True)
    assert answer.status_code == 200
    assert answer.json()["run"]["status"] == "succeeded"
    assert active(session) == empty
    [note] = Message.objects.filter(branch=empty)
    assert (note.kind, str(note.pk)) == ("note", answer.json()["summary"]["note"])
    empty.refresh_from_db()
    assert (empty.parent, empty.message_count) == (None, 1)
    # All of the other line was left, and nothing of it is sent but by the note.
    read = SessionSummary.objects.get().links.values_list("message", flat=True)
    assert set(read) == {row.pk for row in rows}
    now = Session.objects.get(pk=session.pk)
    assert sent(now) == [user(note.content)]
    assert say(now, "And now?").answer.content == "ok"
    assert model_server.of("chat")[0].messages == [user(note.content), user("And now?")]
    assert not examine(session.pk)
