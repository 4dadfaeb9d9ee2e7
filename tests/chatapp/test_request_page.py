"""“What the next request sends”, as a page and as the file that a model would be sent."""

from __future__ import annotations

import html
import json
import re
import uuid

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils.html import strip_tags

from chatapp.admin.request_page import shown_ends
from chatapp.context.backend import context_backend
from chatapp.models import Message, Session
from chatapp.turns.request import body_of
from chatapp.turns.service import Turn, run_turn
from compaction.models import SessionSummary
from tests.alone import assert_works_alone
from tests.compaction.session_page import ATTACK, ESCAPED, grow
from tests.compaction.support import NEVER, compact
from tests.factories import SessionFactory, UserFactory, call, profile, result, store, talk

pytestmark = pytest.mark.django_db
TOOL = {"type": "function", "function": {"name": "ls", "parameters": {}}}


@pytest.fixture
def session(owner, model_server, use_models, queued) -> Session:
    """A session whose tokens are characters by four."""
    use_models(model_server.models(), TOKEN_COUNTER="chars4")
    profile(**NEVER, keep_last_n=2)
    return SessionFactory(owner=owner, system_prompt="Be brief.", tools=[TOOL])


def page_of(session, **query) -> str:
    address = reverse("admin:chatapp_session_request", args=[session.pk])
    return f"{address}?download=1" if query else address


def plain(markup: str) -> str:
    return " ".join(html.unescape(strip_tags(markup)).split())


def shown(page: str) -> list[str]:
    """Return every message of the page as one line of words."""
    return [plain(item) for item in re.findall(r'<li class="request-mes.*?</li>', page, re.DOTALL)]


def test_the_page_shows_every_message_in_order_with_its_origin(session, admin_client):
    store(session, [{"role": "user", "content": "Where?"}, call("ls", "c1", '{"a": 1}')])
    store(session, [{"role": "user", "content": "And?"}])
    response = admin_client.get(page_of(session))
    assert response.status_code == 200
    lines = shown(response.text)
    assert [line.split(" token")[0] for line in lines] == [
        "1 system System prompt 3",
        "2 user Message 1 2",
        "3 assistant Message 2 3",
        "4 tool Made for this request: nothing like it is stored 11",
        "5 user Message 3 1",
    ]
    assert "Be brief." in lines[0]
    assert "Where?" in lines[1]
    # A call is shown as a call: its name, its arguments by name, and where its result stands.
    assert lines[2].endswith("Calls ls c1Argumentsa1Result message 4")
    place = reverse("admin:chatapp_session_change", args=[session.pk]) + "?at=2000000#messages"
    assert place in response.text
    assert '"name": "ls"' in html.unescape(response.text)


def test_a_summary_is_linked_and_a_pinned_message_keeps_its_place(session, admin_client):
    store(session, talk(6, marker=1))
    Message.objects.filter(position=3_000_000).update(pinned=True)
    compact(session)
    summary = SessionSummary.objects.get()
    page = admin_client.get(page_of(session)).text
    lines = shown(page)
    assert lines[1].startswith(f"2 system Text of summary {str(summary.pk)[-8:]}")
    assert [line.split(" ", 4)[3] for line in lines[2:]] == ["3", "11", "12"]
    assert reverse("admin:compaction_sessionsummary_change", args=[summary.pk]) in page


def test_prompt_and_summaries_in_one_message_are_named(
    session, admin_client, model_server, use_models
):
    use_models(model_server.models(SINGLE_LEADING_SYSTEM=True))
    store(session, talk(6))
    compact(session)
    summary = SessionSummary.objects.get()
    line = shown(admin_client.get(page_of(session)).text)[0]
    assert f"1 system System prompt and text of summary {str(summary.pk)[-8:]}" in line


def test_the_account_and_a_compaction_that_would_come_first_are_told(session, admin_client):
    store(session, talk(6))
    page = plain(admin_client.get(page_of(session)).text)
    assert "13 messages, " in page
    assert "A compaction would come first" not in page
    profile(message_limit=10, keep_last_n=2)
    page = plain(admin_client.get(page_of(session)).text)
    assert "A compaction would come first (Message limit reached)" in page


def test_the_download_is_the_body_that_the_model_gets(session, admin_client, model_server):
    store(session, [{"role": "user", "content": "Grüße \u202e"}])
    response = admin_client.get(page_of(session, download=1))
    assert response["Content-Type"] == "application/json"
    assert response["X-Content-Type-Options"] == "nosniff"
    expected = f'attachment; filename="next-request-{session.pk}.json"'
    assert response["Content-Disposition"] == expected
    body = json.loads(response.content)
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Grüße \u202e"},
    ]
    assert body["tools"] == [TOOL]
    assert set(body) - {"max_tokens", "max_completion_tokens"} == {"model", "messages", "tools"}


def test_the_download_is_what_a_turn_really_sends(session, admin_client, model_server):
    store(session, [{"role": "user", "content": "A question."}])
    body = json.loads(admin_client.get(page_of(session, download=1)).content)
    run_turn(Turn(session=session, drafts=[]))
    received = model_server.of("chat")[-1].body
    assert {key: received[key] for key in body} == body


def test_whatever_people_wrote_is_text_on_the_page_and_in_the_file(session, admin_client):
    Session.objects.filter(pk=session.pk).update(
        title=ATTACK[:150], system_prompt=ATTACK, tools=[{"type": ATTACK}]
    )
    store(session, [{"role": "user", "content": ATTACK}, call(ATTACK, ATTACK, ATTACK)])
    store(session, [result(ATTACK, ATTACK), {"role": "user", "content": [{"type": ATTACK}]}])
    response = admin_client.get(page_of(session))
    assert "<script>alert" not in response.text
    assert response.text.count(ESCAPED) >= 7
    assert not re.search(r"\sstyle=|<style|\son\w+=", response.text)
    session.refresh_from_db()
    body = json.loads(admin_client.get(page_of(session, download=1)).content)
    assert body == json.loads(json.dumps(body_of(session, context_backend.preview(session))))
    assert body["messages"][1]["content"] == ATTACK


def test_a_very_large_request_is_shown_in_part_and_the_file_is_complete(session, admin_client):
    grow(session, 1200)
    session.refresh_from_db()
    response = admin_client.get(page_of(session))
    lines = shown(response.text)
    assert len(lines) == 500
    assert (lines[99].split(" ", 1)[0], lines[100].split(" ", 1)[0]) == ("100", "802")
    assert "701 messages are left out here" in response.text
    assert (
        len(json.loads(admin_client.get(page_of(session, download=1)).content)["messages"]) == 1201
    )


def message(size: int) -> dict:
    return {"role": "user", "content": "x" * size}


@pytest.mark.parametrize(
    ("messages", "ends"),
    [
        ([], (0, 0)),
        ([message(10)] * 7, (7, 7)),
        ([message(10)] * 500, (100, 100)),
        ([message(10)] * 501, (100, 101)),
        # 500 000 characters from the front, 1 500 000 from the end.
        ([message(100_000)] * 100, (5, 85)),
        ([message(9_000_000)] * 3, (2, 2)),
        ([{"role": "assistant", "content": None, "tool_calls": [{"x": "y"}]}], (1, 1)),
    ],
)
def test_a_page_has_500_messages_and_two_million_characters_at_most(messages, ends):
    assert shown_ends(messages) == ends


def test_the_page_costs_the_same_queries_for_50_and_for_2000_messages(session, admin_client):
    counts = []
    for rows in (50, 1950):
        grow(session, rows)
        with CaptureQueriesContext(connection) as queries:
            shown_page = admin_client.get(page_of(session))
        assert shown_page.status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 23
    assert re.search(r"<h2>\d,\d{3} messages, ", shown_page.content.decode())


def test_looking_changes_nothing(session, admin_client):
    profile(message_limit=10, keep_last_n=2)
    store(session, talk(6))
    admin_client.get(page_of(session))
    assert not SessionSummary.objects.exists()


def test_only_who_may_see_sessions_sees_what_they_send(session, client):
    staff = get_user_model().objects.create_user("staff", password="x", is_staff=True)
    client.force_login(staff)
    for address in (page_of(session), page_of(session, download=1)):
        assert client.get(address).status_code == 403
    seeing = ["view_session", "read_texts"]
    staff.user_permissions.set(Permission.objects.filter(codename__in=seeing))
    for address in (page_of(session), page_of(session, download=1)):
        assert client.get(address).status_code == 200
    client.logout()
    assert client.get(page_of(session)).status_code == 302


def test_a_session_that_does_not_exist_is_not_found(admin_client):
    name = "admin:chatapp_session_request"
    for pk in ("nonsense", uuid.uuid4()):
        assert admin_client.get(reverse(name, args=[pk])).status_code == 404


def test_a_model_that_is_gone_is_a_sentence(session, admin_client):
    Session.objects.filter(pk=session.pk).update(model="retired")
    for query in ({}, {"download": 1}):
        response = admin_client.get(page_of(session, **query))
        assert response.status_code == 200
        assert "No model is called &#x27;retired&#x27; here." in response.text


def test_a_session_without_a_branch_is_a_sentence(owner, admin_client):
    broken = Session.objects.create(owner=owner, title="Broken")
    assert "has no active branch" in admin_client.get(page_of(broken)).text


def test_everything_is_sent_where_the_whole_history_is(session, admin_client, settings):
    settings.CHATAPP = settings.CHATAPP | {
        "CONTEXT": {"BACKEND": "chatapp.context.backend.FullHistoryBackend", "OPTIONS": {}}
    }
    store(session, [{"role": "system", "content": "A rule."}, *talk(3)])
    lines = shown(admin_client.get(page_of(session)).text)
    assert len(lines) == 8
    assert lines[1].startswith("2 system System message that opened the conversation")


ALONE = """
from chatapp.transcript.writing import NewMessage
from chatapp.transcript import append, create_session
user = get_user_model().objects.create_superuser("operator", password="x")
session = create_session(owner=user, system_prompt="Be brief.")
wires = [{"role": "system", "content": "A rule."}, {"role": "user", "content": "Where?"}]
append(session.branch, [NewMessage(wire=wire) for wire in wires])
client = Client()
client.force_login(user)
page = client.get(f"/admin/chatapp/session/{session.pk}/change/").content.decode()
assert "Rule: always sent first" in page, page
assert "Kept: sent verbatim" in page, page
sent = client.get(f"/admin/chatapp/session/{session.pk}/request/").content.decode()
assert "System message that opened the conversation" in sent, sent
body = client.get(f"/admin/chatapp/session/{session.pk}/request/?download=1").json()
assert [m["content"] for m in body["messages"]] == ["Be brief.", "A rule.", "Where?"], body
"""


@pytest.mark.slow
def test_both_pages_work_where_compaction_is_not_installed(tmp_path):
    assert_works_alone(ALONE, tmp_path)


def test_texts_take_the_permission_to_see_messages(client, owner):
    session = SessionFactory(owner=owner, wires=[{"role": "user", "content": "A secret."}])
    staff = UserFactory(is_staff=True)
    of_chat = Permission.objects.filter(content_type__app_label="chatapp")
    staff.user_permissions.add(of_chat.get(codename="view_session"))
    client.force_login(staff)
    page = client.get(reverse("admin:chatapp_session_change", args=[session.pk]))
    assert page.status_code == 200
    assert "A secret." not in page.content.decode()
    assert "You may not see messages" in page.content.decode()
    request = page_of(session)
    assert client.get(request).status_code == 403
    assert client.get(f"{request}?download=1").status_code == 403
    staff.user_permissions.add(of_chat.get(codename="read_texts"))
    assert "A secret." in client.get(request).content.decode()
