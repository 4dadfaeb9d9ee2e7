"""An answer that was given without a part of the conversation says so wherever it is shown."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from uuid import UUID

import pytest
from django.urls import reverse
from django.utils import timezone

from chatapp.admin.toolkit import html
from chatapp.answer_requests import AnswerRequest
from chatapp.context.backend import context_backend
from chatapp.models import Incident, Message, Session
from chatapp.transcript import set_pinned
from chatapp.turns.rebuilding import rebuild
from chatapp.turns.service import Turn, TurnFailedError, run_turn
from compaction.models import RecoveryStep
from tests.compaction.support import NEVER, compact
from tests.compaction.test_transfer import exported, imported
from tests.factories import SessionFactory, call, profile, result, store, talk, user
from tests.facts import code

pytestmark = pytest.mark.django_db
OVERFLOW = {
    "error": {
        "status": 400,
        "body": {"error": {"code": "context_length_exceeded", "message": "too large"}},
    }
}


def limit(tokens: int) -> list[dict]:
    """A server that refuses larger requests, and whose summariser never answers usably."""
    return [
        {"when": {"purpose": "chat", "est_tokens_gt": tokens}, "reply": OVERFLOW},
        {"when": {"purpose": "chat"}, "reply": {"text": "short"}},
        {"when": {}, "reply": OVERFLOW},
    ]


@pytest.fixture
def server(model_server, use_models):
    use_models(model_server.models(CONTEXT_WINDOW=8000, MAX_OUTPUT=500), TOKEN_COUNTER="chars4")
    model_server.script = limit(400)
    return model_server


@pytest.fixture
def session(owner, server, queued) -> Session:
    """Twelve messages of about 50 tokens each."""
    profile(**NEVER, max_overflow_compaction_attempts=0)
    return SessionFactory(owner=owner, wires=talk(6))


@pytest.fixture
def halved(api, session) -> dict:
    """A turn that only went through with the newest messages, as the API answers it."""
    response = api.post(f"/api/v1/sessions/{session.pk}/turns/", {"content": "hello"}, "json")
    assert response.status_code == 200, response.json()
    return response.json()


@pytest.fixture
def answer(halved) -> Message:
    return Message.objects.get(pk=halved["answer"]["id"])


def test_lists_go_on_showing_the_size_of_the_whole_next_request(session, halved):
    """What was left out for one request is sent again: the list says that it does not fit."""
    listed = Session.objects.get(pk=session.pk).request_tokens
    assert halved["context"]["used"] < listed
    assert listed == context_backend.preview(session).account.used


def test_a_plain_turn_says_what_was_left_out_and_what_happened(halved, server):
    told = halved["left_out"]
    sent = server.of("chat")[-1].messages
    # Of thirteen messages the newest were sent; those before them were not.
    count = 13 - len(sent)
    assert 0 < count < 13
    assert (told["messages"], told["first"], told["last"]) == (count, "1", str(count))
    assert told["why"] == "halve_history"
    rows = Message.objects.filter(position__lte=count * 1_000_000, kind="message")
    assert told["tokens"] == sum(row.tokens for row in rows)
    events = halved["events"]
    # Each smaller request is told before it goes out.
    assert [one["event"] for one in events[-3:]] == ["compaction", "compaction", "left_out"]
    assert (events[-2]["action"], events[-2]["outcome"]) == ("halve", "smaller")
    assert {key: events[-1][key] for key in told} == told
    assert halved["answer"]["metadata"]["left_out"] == told
    assert {one["event"] for one in halved["answer"]["metadata"]["events"]} == {
        "compaction",
        "left_out",
    }


def test_the_record_says_it_too_and_the_request_is_rebuilt(api, halved, answer, server):
    assert answer.request.left_out == halved["left_out"]["messages"]
    body = api.get(f"/api/v1/messages/{answer.pk}/request/").json()
    assert body["left_out"] == halved["left_out"]
    steps = RecoveryStep.objects.filter(outcome="smaller").order_by("order")
    assert body["made_of"]["steps"] == [step.action for step in steps]
    assert set(body["made_of"]["steps"]) == {"halve"}
    assert json.dumps(body["body"], sort_keys=True) == json.dumps(
        server.of("chat")[-1].body, sort_keys=True
    )


def test_a_stream_says_it_before_the_answer_begins(session):
    heard = []
    store(session, [user("hello")])
    now = Session.objects.get(pk=session.pk)
    run_turn(Turn(session=now, stream=True, emit=lambda name, data: heard.append((name, data))))
    names = [name for name, _ in heard]
    assert names.index("left_out") < names.index("delta")
    told = dict(heard)["left_out"]
    assert told["messages"] > 0
    assert told["first"] == "1"


def test_a_whole_request_leaves_nothing_out(api, session, server):
    server.script = [{"when": {}, "reply": {"text": "whole"}}]
    address = f"/api/v1/sessions/{session.pk}/turns/"
    body = api.post(address, {"content": "hello"}, format="json").json()
    assert (body["left_out"], body["events"]) == (None, [])
    assert "left_out" not in body["answer"]["metadata"]
    assert AnswerRequest.objects.get(message__isnull=False).left_out is None


def test_what_a_summary_tells_is_not_left_out(session, server):
    server.script = [{"when": {}, "reply": {"text": "Short."}}]
    profile(**NEVER, keep_last_n=2)
    compact(Session.objects.get(pk=session.pk))
    store(session, [user("hello")])
    answer = run_turn(Turn(session=Session.objects.get(pk=session.pk))).answer
    assert "left_out" not in answer.metadata
    assert len(server.of("chat")[-1].messages) < 12


def test_a_limit_of_the_profile_is_told_with_its_places(owner, server, queued):
    server.script = [{"when": {}, "reply": {"text": "ok"}}]
    profile(**NEVER, history_limit=4)
    session = SessionFactory(owner=owner, wires=[*talk(6), user("hello")])
    answer = run_turn(Turn(session=session)).answer
    told = answer.metadata["left_out"]
    sent = len(server.of("chat")[-1].messages)
    count = 13 - sent
    assert (told["messages"], told["first"], told["last"]) == (count, "1", str(count))
    assert told["why"] == "history_limit"
    rows = Message.objects.filter(position__lte=count * 1_000_000, kind="message")
    assert told["tokens"] == sum(row.tokens for row in rows)


# --- pages ----------------------------------------------------------------------------------------


def page_of(client, name: str, key) -> str:
    return client.get(reverse(f"admin:{name}", args=[key])).text


def test_the_message_page_says_it(answer, halved, admin_client):
    shown = page_of(admin_client, "chatapp_message_change", answer.pk)
    assert f"given without {halved['left_out']['messages']} messages" in shown
    assert "nothing else made it small enough" in shown


def test_the_session_page_marks_the_answer_amber(session, answer, halved, admin_client):
    shown = page_of(admin_client, "chatapp_session_change", session.pk)
    words = f"given without {halved['left_out']['messages']} messages"
    assert f'<span class="badge badge-busy">{words}</span>' in shown


def test_the_timeline_is_amber_and_leads_to_the_request(session, answer, admin_client):
    shown = page_of(admin_client, "chatapp_session_timeline", session.pk)
    entries = re.findall(r'<li class="timeline-entry[^"]*">.*?</li>', shown, re.DOTALL)
    recovery = next(one for one in entries if "went through after" in one)
    assert "timeline-busy" in recovery
    assert "timeline-good" not in recovery
    incomplete = next(one for one in entries if "Incomplete" in one)
    assert "timeline-busy" in incomplete
    assert reverse("admin:chatapp_message_request", args=[answer.pk]) in incomplete


def test_the_request_page_shows_the_gap(answer, halved, admin_client):
    shown = page_of(admin_client, "chatapp_message_request", answer.pk)
    assert "They would stand here." in shown
    assert f"given without {halved['left_out']['messages']} messages" in shown


def test_the_front_page_counts_such_answers_and_leads_to_them(session, answer, admin_client):
    whole = store(session, [{"role": "assistant", "content": "whole"}])[0]
    front = admin_client.get(reverse("admin:index")).text
    assert "1 answer was given without a part of its conversation" in front
    address = re.search(r'href="(/admin/chatapp/message/\?without=part[^"]*)"', front)
    assert address is not None
    listed = admin_client.get(address[1].replace("&amp;", "&")).text
    assert reverse("admin:chatapp_message_change", args=[answer.pk]) in listed
    assert reverse("admin:chatapp_message_change", args=[whole.pk]) not in listed


def test_the_front_page_forgets_old_ones(answer, admin_client):
    AnswerRequest.objects.update(created_at=timezone.now() - timedelta(days=8))
    assert "without a part" not in admin_client.get(reverse("admin:index")).text


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_the_export_says_it(api, session, answer, halved, form):
    response = api.get(f"/api/v1/sessions/{session.pk}/export/?as={form}")
    body = b"".join(response) if response.streaming else response.content
    assert json.loads(body)["palimpsest"]["left_out"] == {"13": halved["left_out"]}


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_an_import_reads_it_back(api, session, answer, halved, form):
    other, problems = imported(api, exported(api, session, form))
    assert problems == []
    found = Message.objects.get(session=other, position=answer.position)
    assert found.metadata["left_out"] == halved["left_out"]


@pytest.mark.parametrize(
    "told",
    [
        [], {"13": {"messages": 3}}, {"12": "all"}, {"99": {}}, {"13": None},
        {"13": {"messages": -1, "first": "1", "last": "3", "tokens": 5, "why": "x"}},
        {"13": {"messages": 2, "first": "1" * 99, "last": "3", "tokens": 5, "why": "x"}},
        {"13": {"messages": True, "first": "1", "last": "3", "tokens": 5, "why": "x"}},
        {"0": {"messages": 2, "first": "1", "last": "3", "tokens": 5, "why": "x"}},
    ],
)  # fmt: skip
def test_what_an_import_does_not_understand_of_it_is_left_out_by_name(api, session, answer, told):
    file = exported(api, session)
    file["palimpsest"]["left_out"] = told
    other, problems = imported(api, file)
    assert any("What answers were given without was left out" in one for one in problems)
    assert not Message.objects.filter(session=other, metadata__has_key="left_out").exists()


def test_a_brief_export_says_it(api, session, answer, halved):
    response = api.get(f"/api/v1/sessions/{session.pk}/export/?verbosity=quiet")
    body = b"".join(response) if response.streaming else response.content
    count = halved["left_out"]["messages"]
    words = f"[given without {count} messages of the conversation, 1 to {count}]"
    assert words in body.decode()


# --- a replayed branch ----------------------------------------------------------------------------


def test_a_request_after_cut_results_is_rebuilt(owner, server, queued):
    profile(**NEVER, max_overflow_compaction_attempts=0)
    server.script = limit(3000)
    wires = [user("read them")]
    for number in range(3):
        text = f"{code(number)}\n" + "a line\n" * 900
        wires += [call("read", f"r{number}"), result(f"r{number}", text)]
    session = SessionFactory(owner=owner, wires=wires)
    answer = run_turn(Turn(session=session)).answer
    assert ("truncate", "smaller") in RecoveryStep.objects.values_list("action", "outcome")
    found = rebuild(answer)
    assert found.body == server.of("chat")[-1].body
    assert found.made_of["steps"].split()[-1] == "truncate"


# --- giving up ------------------------------------------------------------------------------------


def failure(session: Session, *wires: dict) -> str:
    store(session, wires)
    with pytest.raises(TurnFailedError) as failed:
        run_turn(Turn(session=Session.objects.get(pk=session.pk)))
    return str(failed.value)


def test_a_large_question_is_named_with_its_address(session, server):
    server.script = limit(1)
    said = failure(session, user("word " * 8000))
    question = Message.objects.get(content__startswith="word word")
    assert f"Message 13 alone has about 10,000 tokens (/api/v1/messages/{question.pk}/)" in said
    assert "Shorten the message, send it in pieces" in said


def test_a_prompt_that_does_not_fit_is_named(session, server):
    server.script = limit(1)
    Session.objects.filter(pk=session.pk).update(system_prompt="rule " * 8000)
    said = failure(session, user("hello"))
    assert "The system prompt (10,000 tokens) and the tools (0) alone are too large" in said
    assert "Shorten the system prompt, or give the session fewer tools." in said


def test_pins_that_do_not_fit_are_named(session, server):
    server.script = limit(1)
    profile(**NEVER, max_overflow_compaction_attempts=0, keep_last_n=2)
    big = store(session, [user("pinned " * 4600)])[0]
    store(session, talk(2))
    set_pinned(big, True)
    server.script = [{"when": {}, "reply": {"text": "Short."}}]
    compact(Session.objects.get(pk=session.pk))
    server.script = limit(1)
    said = failure(session, user("hello"))
    assert "Pinned messages take" in said
    assert "Unpin some of them" in said


def test_the_largest_message_is_named_where_only_all_together_do_not_fit(session, server, owner):
    server.script = limit(1)
    said = failure(session, user("look"), call("read", "r"), result("r", "row of data\n" * 1000))
    tool = Message.objects.get(role="tool", branch=Session.objects.get(pk=session.pk).branch)
    assert re.search(r"The largest part is message 15, a tool's result of about [\d,]+ tok", said)
    assert f"(/api/v1/messages/{tool.pk}/)" in said
    assert "Have the tool answer with less" in said


def test_the_timeline_leads_to_what_was_too_large(session, server, admin_client):
    server.script = limit(1)
    failure(session, user("word " * 8000))
    question = Message.objects.get(content__startswith="word word")
    shown = page_of(admin_client, "chatapp_session_timeline", session.pk)
    link = reverse("admin:chatapp_message_change", args=[question.pk])
    assert f'<a href="{link}">What is too large</a>' in shown


def test_operators_are_led_to_what_was_too_large_from_the_sentence_itself(
    session, server, admin_client
):
    """It stood there as the API's address, which no operator can open, with the id at length."""
    server.script = limit(1)
    assert "/api/v1/messages/" in failure(session, user("word " * 8000))
    question = Message.objects.get(content__startswith="word word")
    page = reverse("admin:chatapp_message_change", args=[question.pk])
    incident, step = Incident.objects.get(kind="error"), RecoveryStep.objects.get(action="give_up")
    shown = {
        "incident": page_of(admin_client, "chatapp_incident_change", incident.pk),
        "step": page_of(admin_client, "compaction_recoverystep_change", step.pk),
        "steps": admin_client.get(reverse("admin:compaction_recoverystep_changelist")).text,
        "timeline": page_of(admin_client, "chatapp_session_timeline", session.pk),
    }
    for name, text in shown.items():
        assert re.search(rf'tokens \(<a href="{page}"><span class="short-id"', text), name
        assert "/api/v1/messages/" not in text, name


def test_a_sentence_with_an_address_is_escaped_all_the_same():
    address = f"/api/v1/messages/{UUID(int=7)}/"
    told = html.told_text(f"<b>{address}</b> and /messages/none/ & {address}")
    assert told.startswith("&lt;b&gt;<a href=")
    assert "&lt;/b&gt; and /messages/none/ &amp; <a href=" in told
    assert told.count("<a ") == 2
    assert html.told_text(None) == ""
