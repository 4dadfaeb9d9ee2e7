"""The request of an answer: what is written down of it, and that it is rebuilt or refused."""

from __future__ import annotations

import json

import pytest
from django.urls import reverse
from rest_framework.test import APIClient

from chatapp.admin.answer_page import made_of_rows
from chatapp.answer_requests import AnswerRequest, long_id, read_parts, short_id, write_parts
from chatapp.models import Message, Session
from chatapp.selectors import path_messages
from chatapp.transcript import replay
from chatapp.transcript.writing import NewMessage, insert_between, renumber
from chatapp.turns import made_of
from chatapp.turns.service import Turn, run_turn
from tests.factories import SessionFactory, UserFactory, call, result, store, talk, user

pytestmark = pytest.mark.django_db
TOOL = {"type": "function", "function": {"name": "ls", "parameters": {}}}
PIXEL = "data:image/png;base64," + "iVBORw0KGgo" * 100
STEP = 1_000_000


@pytest.fixture(autouse=True)
def full_history(settings, model_server):
    backend = {"CONTEXT": {"BACKEND": "chatapp.context.backend.FullHistoryBackend"}}
    settings.CHATAPP = settings.CHATAPP | backend


@pytest.fixture
def session(owner, model_server) -> Session:
    return SessionFactory(owner=owner, system_prompt="Be brief.", tools=[TOOL], wires=talk(2))


def ask(session: Session, wire: dict | None = None, **turn) -> Message:
    """Take a turn in the session as it is stored now."""
    now = Session.objects.get(pk=session.pk)
    drafts = [NewMessage(wire=wire or user("hello"))]
    return run_turn(Turn(session=now, drafts=drafts, **turn)).answer


def address(answer: Message) -> str:
    return f"/api/v1/messages/{answer.pk}/request/"


def received(model_server) -> str:
    return json.dumps(model_server.of("chat")[-1].body, sort_keys=True)


def rebuilt(api, answer: Message) -> str:
    response = api.get(address(answer))
    assert response.status_code == 200, response.json()
    return json.dumps(response.json()["body"], sort_keys=True)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([(3 * STEP, ""), (4 * STEP, ""), (5 * STEP, "")], "3+2"),
        ([(3 * STEP, ""), (5 * STEP, "")], "3 5"),
        (["s:abc", (7 * STEP, ""), (8 * STEP, "xyz"), (9 * STEP, "")], "s:abc 7 8~xyz 9"),
        ([(3_500_000, ""), (4 * STEP, "")], "3500000u 4"),
        ([(3_500_000, "d")], "3500000u~d"),
        ([], ""),
    ],
)
def test_parts_are_written_in_a_few_characters_and_read_back(parts, text):
    assert write_parts(parts) == text
    assert read_parts(text) == parts


def test_an_id_takes_22_characters():
    key = Session().pk
    assert len(short_id(key)) == 22
    assert long_id(short_id(key)) == key


def test_the_request_is_what_the_server_received(api, session, model_server):
    answer = ask(session)
    assert rebuilt(api, answer) == received(model_server)
    body = api.get(address(answer)).json()
    assert body["made_of"]["model"] == "scripted"
    assert body["made_of"]["parameters"] == {"max": 1024, "codes": ["user_last"]}
    assert [one["place"] for one in body["messages"]] == [None, "1", "2", "3", "4", "5"]
    assert body["left_out"] is None


def test_a_streamed_request_is_told_with_its_stream(api, session, model_server):
    answer = ask(session, stream=True)
    assert rebuilt(api, answer) == received(model_server)
    assert api.get(address(answer)).json()["body"]["stream"] is True


def test_a_later_prompt_and_other_tools_leave_the_past_as_it_was(api, session, model_server):
    answer = ask(session)
    before = received(model_server)
    Session.objects.filter(pk=session.pk).update(system_prompt="Be long.", tools=[], model="gone")
    assert rebuilt(api, answer) == before


@pytest.mark.parametrize("form", ["alternating_roles", "flat", "tools_as_text", "strict_ids"])
def test_every_outgoing_form_is_rebuilt(api, session, model_server, form):
    store(session, [user("list"), call("ls", "one two", '{"a": 1}'), result("one two")])
    Session.objects.filter(pk=session.pk).update(adaptations={form: {"at": "2999-01-01T00:00:00Z"}})
    answer = ask(session)
    assert rebuilt(api, answer) == received(model_server)


def test_pictures_are_read_from_their_files_and_not_written_down(api, session, model_server):
    image = {"type": "image_url", "image_url": {"url": PIXEL}}
    answer = ask(session, {"role": "user", "content": [{"type": "text", "text": "see"}, image]})
    assert PIXEL in rebuilt(api, answer)
    assert rebuilt(api, answer) == received(model_server)
    texts = AnswerRequest.objects.filter(message__isnull=True)
    assert sum(len(bytes(row.packed)) for row in texts) < 500


def test_repeated_ids_of_calls_and_orphans_are_mended_again(api, session, model_server):
    store(session, [user("a"), call("ls", "c"), result("c", "one")])
    store(session, [call("ls", "c"), result("c", "two"), result("lost", "three"), call("ls", "d")])
    answer = ask(session)
    assert rebuilt(api, answer) == received(model_server)


def test_a_message_that_is_put_between_later_and_new_numbers_change_nothing(
    api, session, model_server
):
    answer = ask(session)
    before = received(model_server)
    branch = Session.objects.get(pk=session.pk).branch
    insert_between(branch, after=2 * STEP, draft=NewMessage(wire=user("between")))
    assert rebuilt(api, answer) == before
    renumber(Session.objects.get(pk=session.pk))
    answer.refresh_from_db()
    assert answer.position == 7 * STEP
    assert rebuilt(api, answer) == before


def test_a_repeated_answer_tells_the_request_of_the_one_it_repeats(api, session, model_server):
    store(session, [user("read"), call("ls", "c"), result("c", "line\n" * 500)])
    answer = ask(session)
    before = received(model_server)
    now = Session.objects.get(pk=session.pk)
    long = path_messages(now.branch).get(role="tool")
    found = replay(now, contents={long.pk: "short"})
    copy = Message.objects.get(pk=found.ids[answer.pk])
    assert rebuilt(api, copy) == before
    assert api.get(address(copy)).json()["answer"] == str(answer.pk)


def test_a_late_rule_that_opens_the_kept_messages_is_told_by_its_place(api, model_server, owner):
    rule = {"role": "system", "content": "From now on in French."}
    for prompt in ("Be brief.", ""):
        session = SessionFactory(owner=owner, system_prompt=prompt)
        store(session, [rule, user("hello")])
        Message.objects.filter(session=session).update(pinned=False)
        answer = ask(session, user("and now?"))
        assert rebuilt(api, answer) == received(model_server)
        places = [one["place"] for one in api.get(address(answer)).json()["messages"]]
        assert places == [*([None] if prompt else []), "1", "2", "3"]


def test_one_text_is_kept_once_a_session(session):
    ask(session)
    ask(session)
    rows = AnswerRequest.objects.filter(session=session)
    assert rows.filter(message__isnull=False).count() == 2
    # The prompt and the tools.
    assert rows.filter(message__isnull=True).count() == 2


def test_it_is_told_with_few_queries(api, session, django_assert_max_num_queries):
    answer = ask(session)
    api.get(address(answer))
    # Log-in, the message, its record, the rows, the texts.
    with django_assert_max_num_queries(7) as few:
        api.get(address(answer))
    store(session, talk(30))
    later = ask(session)
    with django_assert_max_num_queries(len(few)):
        api.get(address(later))


# --- what cannot be told --------------------------------------------------------------------------


def problem(api, message: Message) -> tuple[int, str, str]:
    response = api.get(address(message))
    body = response.json()
    return response.status_code, body["code"], body["detail"]


def test_nobody_sees_another_owners_request(session, api):
    answer = ask(session)
    stranger = APIClient()
    stranger.force_authenticate(UserFactory())
    assert problem(stranger, answer)[:2] == (404, "not_found")


def test_a_question_has_no_request(session, api):
    ask(session)
    question = Message.objects.filter(session=session, role="user").last()
    status, code, detail = problem(api, question)
    assert (status, code) == (404, "no_request")
    assert detail == "This message is no answer of a model, so no request belongs to it."


def test_an_answer_from_before_says_that_nothing_was_written_down(session, api):
    old = Message.objects.filter(session=session, role="assistant").first()
    status, code, detail = problem(api, old)
    assert (status, code) == (410, "request_not_kept")
    assert "imported, sent by a client, or given before" in detail


def test_a_row_that_was_changed_since_gives_no_wrong_request(session, api):
    answer = ask(session)
    Message.objects.filter(session=session, position=STEP).update(content="forged")
    status, code, detail = problem(api, answer)
    assert (status, code) == (410, "request_changed")
    assert "its digest is not that of what was sent" in detail


@pytest.mark.parametrize("gone", ["row", "text"])
def test_what_is_gone_is_said(session, api, gone):
    answer = ask(session)
    if gone == "row":
        Message.objects.filter(session=session, position=STEP).delete()
    else:
        AnswerRequest.objects.filter(session=session, message__isnull=True).delete()
    assert problem(api, answer)[:2] == (410, "request_changed")


def test_a_record_that_would_be_too_large_is_not_kept(session, api, monkeypatch):
    monkeypatch.setattr(made_of, "MOST_TEXT_CHARS", 10)
    answer = ask(session)
    status, code, detail = problem(api, answer)
    assert (status, code) == (410, "request_not_kept")
    assert "too large" in detail
    assert not AnswerRequest.objects.filter(session=session, message__isnull=True).exists()


def test_a_plug_in_model_says_that_it_makes_its_requests_itself(session, api, monkeypatch):
    monkeypatch.setattr(made_of, "OWN_BACKENDS", "elsewhere.")
    status, code, detail = problem(api, ask(session))
    assert (status, code) == (410, "request_not_kept")
    assert "plug-in" in detail


def test_an_answer_stands_where_its_request_cannot_be_written_down(session, api, monkeypatch):
    def broken(*args):
        raise RuntimeError("broken")

    monkeypatch.setattr("chatapp.turns.service.record_of", broken)
    answer = ask(session)
    assert answer.content == "ok"
    assert problem(api, answer)[:2] == (410, "request_not_kept")


# --- the page -------------------------------------------------------------------------------------


def page(client, answer: Message, query: str = "") -> str:
    response = client.get(reverse("admin:chatapp_message_request", args=[answer.pk]) + query)
    assert response.status_code == 200
    return response.text


def test_the_page_shows_the_request_and_escapes_what_was_said(session, admin_client):
    answer = ask(session, user("<script>alert(1)</script>"))
    shown = page(admin_client, answer)
    assert "What this answer was given" in shown
    assert "<script>alert" not in shown
    assert "&lt;script&gt;alert(1)" in shown
    assert [shown.index(text) for text in ("Be brief.", "question 0", "question 1")] == sorted(
        shown.index(text) for text in ("Be brief.", "question 0", "question 1")
    )
    assert "Message 5" in shown
    # Drawn as the next request is.
    assert '/chatapp/session.css"' in shown


def test_the_page_leads_from_the_answer_and_from_the_session(session, admin_client):
    answer = ask(session)
    link = reverse("admin:chatapp_message_request", args=[answer.pk])
    for name, key in (("message", answer.pk), ("session", session.pk)):
        found = admin_client.get(reverse(f"admin:chatapp_{name}_change", args=[key]))
        assert f'href="{link}"' in found.text


def test_an_answer_without_a_record_leads_nowhere(session, admin_client):
    """What was imported was given by another program: the link led to a page that said so."""
    imported = Message.objects.filter(session=session, role="assistant")
    ask(session)
    for answer in imported.filter(request__isnull=True):
        link = reverse("admin:chatapp_message_request", args=[answer.pk])
        for name, key in (("message", answer.pk), ("session", session.pk)):
            found = admin_client.get(reverse(f"admin:chatapp_{name}_change", args=[key]))
            assert f'href="{link}"' not in found.text
    assert imported.filter(request__isnull=True).count() > 0


def test_two_requests_are_compared(session, admin_client):
    first = ask(session)
    Session.objects.filter(pk=session.pk).update(system_prompt="Be long.")
    ask(session, user("and then?"))
    shown = page(admin_client, first, "?compare=next")
    assert "5 messages are the same" in shown
    for text in ("Be brief.", "Be long.", "and then?", "Digest of the prompt"):
        assert text in shown
    assert "only in this one" in shown
    assert "only in the next request" in shown


def test_the_newest_answer_is_compared_with_what_a_turn_would_send(session, admin_client):
    assert "No later answer" in page(admin_client, ask(session), "?compare=next")


def test_the_download_is_the_body(session, admin_client, model_server):
    answer = ask(session)
    address = reverse("admin:chatapp_message_request", args=[answer.pk])
    found = json.loads(admin_client.get(address + "?download=1").content)
    assert json.dumps(found, sort_keys=True) == received(model_server)


def test_the_page_says_what_cannot_be_rebuilt(session, admin_client):
    old = Message.objects.filter(session=session, role="assistant").first()
    assert "Nothing was written down" in page(admin_client, old)


def test_what_it_was_made_of_is_told_in_words():
    told = {
        "model": "small",
        "profile": {"name": "balanced", "version": 2},
        "parameters": {"max": 512, "stream": True, "codes": ["user_last"]},
        "tools": None,
    }
    assert made_of_rows(told) == [
        ("Model", "small"),
        ("Profile", "balanced v2"),
        ("Parameters", "longest answer in tokens: 512, streamed: yes, adaptations: user_last"),
    ]
