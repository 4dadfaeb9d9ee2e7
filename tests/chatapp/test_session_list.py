"""The list of sessions, pages of owners, short ids and tool calls, as operators see them."""

from __future__ import annotations

import json
import re

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from chatapp.admin.owners import owner_url
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.tool_calls import arguments_shown, calls_shown
from chatapp.llm.registry import get_model
from chatapp.models import LearnedLimits, Message, MessageOriginal, Session
from chatapp.transfer import import_file
from compaction.models import CompactionState
from tests.compaction.support import compact
from tests.factories import SessionFactory, UserFactory, call, profile, result, store, talk, user

pytestmark = pytest.mark.django_db
LIST = "/admin/chatapp/session/"


def rows_of(response) -> list[str]:
    """Return the titles of the rows, in order."""
    return [str(row) for row in response.context["cl"].result_list]


def sized(title: str, tokens: int, **columns) -> Session:
    session = SessionFactory(title=title, **columns)
    Session.objects.filter(pk=session.pk).update(request_tokens=tokens)
    return session


def operator(*permissions: str) -> Client:
    person = UserFactory(is_staff=True)
    person.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(person)
    return client


# --- the list -------------------------------------------------------------------------------------


def test_a_row_tells_what_the_conversation_is_about_whose_it_is_and_how_full_it_is(admin_client):
    owner = UserFactory(username="harbour-master")
    window = get_model("default").context_window
    session = SessionFactory(title="", owner=owner, wires=[user("Where is the harbour?")])
    Session.objects.filter(pk=session.pk).update(request_tokens=window // 4)
    page = admin_client.get(LIST).text
    assert "Where is the harbour?" in page
    assert f'href="{owner_url(owner.pk)}">harbour-master</a>' in page
    assert re.search(r'window-fits" title="[\d,]+ of [\d,]+ tokens">.* 25 %</span>', page)
    assert '<span class="badge ">Whole</span>' in page


def test_a_time_is_short_and_the_whole_is_there_to_hover(admin_client):
    """Times of a hundred rows are read down a column: none takes two lines."""
    session, now = SessionFactory(title="The harbour"), timezone.now()
    for at, shown in (
        (now.replace(hour=14, minute=5), "14:05"),
        (
            timezone.now().replace(year=2021, month=11, day=28, hour=9, minute=3),
            "28 Nov 2021, 09:03",
        ),
    ):
        Session.objects.filter(pk=session.pk).update(updated_at=at)
        page = admin_client.get(LIST).text
        found = re.search(r'<time class="moment" datetime="([^"]+)" title="([^"]+)">([^<]+)<', page)
        assert found is not None
        assert found[1].startswith(f"{at:%Y-%m-%dT%H:%M}")
        assert str(at.year) in found[2]
        assert found[3] == shown


def test_a_list_is_called_by_what_it_lists(admin_client):
    assert "<h1>Sessions</h1>" in admin_client.get(LIST).text


def test_a_row_is_called_by_its_name_under_what_kind_of_row_it_is(admin_client):
    session = SessionFactory(title="The harbour")
    page = admin_client.get(html.change_url(Session, session.pk)).text
    assert re.findall(r"<h1>(.*?)</h1>", page)[-1] == "Session"
    assert '<h2 data-live-part="subtitle">The harbour</h2>' in page


def test_the_bar_is_of_the_window_that_the_server_taught(admin_client):
    model = get_model("default")
    LearnedLimits.objects.create(
        server=model.base_url, name=model.name, context_window=1000, tokens_per_count=2.0
    )
    sized("A", 300)
    sized("B", 501)
    page = admin_client.get(LIST)
    assert "600 of 1,000 tokens" in page.text
    assert "window-over" in page.text
    assert rows_of(admin_client.get(LIST, {"size": "over"})) == ["B"]
    assert sorted(rows_of(admin_client.get(LIST, {"size": "half"}))) == ["A", "B"]


def test_a_session_of_an_unknown_model_has_a_size_without_a_window(admin_client):
    sized("Odd", 1234, model="gone")
    assert "1,234 tokens" in admin_client.get(LIST).text


def test_the_list_is_sorted_by_activity_and_by_size(admin_client):
    for title, tokens in (("middle", 200), ("large", 300), ("small", 100)):
        sized(title, tokens)
    Session.objects.filter(title="large").update(updated_at="2020-01-01T00:00:00Z")
    assert rows_of(admin_client.get(LIST))[-1] == "large"
    # Columns count from 1: the box that selects a row is the first.
    headers = re.findall(r"column-([a-z_]+)", admin_client.get(LIST).text)
    by_size = headers.index("size") + 1
    found = rows_of(admin_client.get(LIST, {"o": f"-{by_size}"}))
    assert found == ["large", "middle", "small"]


def test_filters_keep_an_owner_a_profile_a_model_and_a_state(admin_client, settings):
    profile(name="mine", summariser="extractive", keep_last_n=2)
    owner = UserFactory()
    summarised = SessionFactory(title="summarised", owner=owner, wires=talk(6))
    compact(summarised)
    SessionFactory(title="other", model="gone")
    failing = SessionFactory(title="failing")
    states = CompactionState.objects
    states.create(branch=failing.branch, failures=2, profile="bisect")

    def kept(**asked) -> list[str]:
        return sorted(rows_of(admin_client.get(LIST, asked)))

    assert kept(owner__id__exact=owner.pk) == ["summarised"]
    assert kept(model="default") == ["failing", "summarised"]
    assert kept(profile="bisect") == ["failing"]
    assert kept(profile="-") == ["other", "summarised"]
    assert kept(state="summarised") == ["summarised"]
    assert kept(state="failing") == ["failing"]
    assert kept(state="whole") == ["failing", "other"]
    assert kept(state="compacting") == kept(state="queued") == []


def test_a_page_of_the_list_takes_the_same_queries_however_many_rows_it_has(admin_client):
    profile(summariser="extractive", keep_last_n=2)
    counts = []
    for more in (2, 30):
        for number in range(more):
            session = SessionFactory(wires=talk(1))
            CompactionState.objects.create(branch=session.branch, failures=number % 2)
        with CaptureQueriesContext(connection) as queries:
            admin_client.get(LIST)
        counts.append(len(queries))
        read = " ".join(query["sql"] for query in queries)
        assert '"messages"' not in read
        assert "system_prompt" not in read
    assert counts[0] == counts[1] <= 12


def test_titles_and_links_by_text_are_hidden_from_who_may_not_see_texts():
    session = SessionFactory(title="", wires=[user("A secret question")])
    page = operator("view_session").get(LIST).text
    assert "secret" not in page
    assert f"Session {str(session.pk)[-8:]}" in page


# --- owners ---------------------------------------------------------------------------------------


def test_an_owners_page_tells_usage_cost_and_budget(admin_client, settings):
    settings.COMPACTION = {**settings.COMPACTION, "OWNER_CALLS_PER_HOUR": 50}
    owner = UserFactory(username="harbour-master")
    sessions = [SessionFactory(owner=owner, wires=talk(2)) for _ in range(2)]
    SessionFactory(wires=talk(5))
    page = re.sub(r"<[^>]+>", " ", admin_client.get(owner_url(owner.pk)).text)
    words = " ".join(page.split())
    assert "Owner harbour-master" in words
    assert "Sessions 2 Messages 8" in words
    assert f"Tokens stored {sum(one.branch.token_total for one in sessions):,}" in words
    assert "Model calls 0 of 50" in words
    assert "Erase harbour-master…" in words


def test_an_owner_is_exported_whole_and_imports_back_equal(admin_client):
    owner, other = UserFactory(), UserFactory()
    SessionFactory(owner=owner, title="One", wires=[user("first"), *talk(1)])
    SessionFactory(owner=owner, title="Two", wires=[user("second")])
    SessionFactory(title="Somebody else's", wires=[user("third")])
    response = admin_client.get(owner_url(owner.pk) + "export/")
    content = b"".join(response.streaming_content)
    assert response["Content-Disposition"].startswith("attachment")
    report = import_file(owner=other, content=content)
    assert [one.session.title for one in report.imported] == ["One", "Two"]
    assert [one.messages_added for one in report.imported] == [3, 1]


def test_who_may_not_see_texts_exports_nothing_and_who_may_not_see_sessions_sees_no_owner():
    owner = UserFactory()
    page = operator("view_session").get(owner_url(owner.pk))
    assert page.status_code == 200
    assert "Export all" not in page.text
    assert "Erase" not in page.text
    assert operator("view_session").get(owner_url(owner.pk) + "export/").status_code == 403
    assert operator("view_message").get(owner_url(owner.pk)).status_code == 403


@pytest.mark.parametrize("key", ["999999", "x", "0f8b", "9" * 40])
def test_an_owner_who_is_none_is_not_found(admin_client, key):
    assert admin_client.get(owner_url(key)).status_code == 404


def test_the_page_of_a_user_and_that_of_a_session_lead_to_the_owner(admin_client):
    session = SessionFactory()
    person = reverse("admin:auth_user_change", args=[session.owner_id])
    assert owner_url(session.owner_id) in admin_client.get(person).text
    assert owner_url(session.owner_id) in admin_client.get(f"{LIST}{session.pk}/change/").text


# --- short ids ------------------------------------------------------------------------------------


def test_an_id_is_short_and_the_whole_is_there_to_hover_and_to_copy():
    shown = html.short_id("0f8b1c2d-1111-2222-3333-444455556666")
    assert 'title="0f8b1c2d-1111-2222-3333-444455556666">' in shown
    assert shown.endswith(">0f8b1c2d-1111-2222-3333-4444</span>55556666</span>")
    # What is selected and copied: both pieces, and nothing between them.
    assert re.sub(r"<[^>]+>", "", shown) == "0f8b1c2d-1111-2222-3333-444455556666"
    assert html.short_id(None) == "—"


@pytest.mark.parametrize("page", ["session", "message", "branch"])
def test_headings_breadcrumbs_and_titles_have_no_whole_id(admin_client, page):
    session = SessionFactory(title="", wires=[{"role": "assistant", "content": "Hello."}])
    row = {
        "session": session,
        "message": Message.objects.get(session=session),
        "branch": session.branch,
    }[page]
    text = admin_client.get(html.change_url(type(row), row.pk)).text
    head = text.partition("</title>")[0]
    crumbs = re.search(r'class="breadcrumbs"[^>]*>(.*?)</div>', text, re.S)[1]
    headings = " ".join(re.findall(r"<h[1-6][^>]*>(.*?)</h[1-6]>", text, re.S))
    for shown in (head, re.sub(r'href="[^"]*"', "", crumbs), headings):
        assert str(row.pk) not in shown


# --- tool calls -----------------------------------------------------------------------------------


def test_a_call_is_shown_by_its_name_and_arguments_with_its_result_beside_it(admin_client):
    session = SessionFactory(
        wires=[
            user("Look it up."),
            call("look_up", "call_1", json.dumps({"city": "Bergen <b>", "days": 3})),
            result("call_1", "It rains."),
        ]
    )
    asked = Message.objects.get(session=session, role="assistant")
    answered = Message.objects.get(session=session, role="tool")
    page = admin_client.get(html.change_url(Message, asked.pk)).text
    assert '<code class="tool-call-name" dir="auto">look_up</code>' in page
    assert re.search(r"<dt[^>]*>city</dt><dd>.*Bergen &lt;b&gt;", page)
    assert "It rains." in page
    assert html.change_url(Message, answered.pk) in page
    assert "&quot;arguments&quot;" not in page
    # And from the result's side.
    page = admin_client.get(html.change_url(Message, answered.pk)).text
    assert "Called by message 2" in page
    assert "look_up" in page
    assert "(this message)" in page


def test_two_calls_with_one_id_get_their_own_results(admin_client):
    wires = [
        user("a"), call("first", "c"), result("c", "one"), call("second", "c"), result("c", "two"),
    ]  # fmt: skip
    session = SessionFactory(wires=wires)
    asked = Message.objects.filter(session=session, role="assistant").order_by("position").last()
    page = admin_client.get(html.change_url(Message, asked.pk)).text
    calls = page[page.index('class="tool-calls"') : page.index("</ol>", page.index("tool-calls"))]
    assert "two" in calls
    assert "one" not in calls


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("{not json <", "{not json &lt;"),
        ("[1, 2]", "[\n  1,\n  2\n]"),
        ("", "no arguments"),
        ("{}", "no arguments"),
        (None, "no arguments"),
        ('{"text": "a\\nb"}', "a\nb"),
        ('{"deep": {"x": [1]}}', "&quot;x&quot;: ["),
    ],
)
def test_arguments_are_shown_whatever_a_model_wrote(arguments, expected):
    assert expected in arguments_shown(arguments)


@pytest.mark.parametrize("calls", [["odd"], [{"function": 3}], [{}], "text", {"a": 1}])
def test_calls_of_no_known_shape_are_shown_as_they_are(calls):
    assert "<li" in calls_shown(calls) or "stored-text" in calls_shown(calls)


def test_what_was_stored_cut_leads_to_what_came_in(admin_client):
    session = SessionFactory(wires=[user("a"), call("ls", "c"), result("c", "long <i>")])
    answered = Message.objects.get(session=session, role="tool")
    Message.objects.filter(pk=answered.pk).update(metadata={"cut_from": 9000})
    MessageOriginal.objects.create(message=answered, content="all of it <i>")
    address = html.change_url(MessageOriginal, answered.pk)
    assert address in admin_client.get(html.change_url(Message, answered.pk)).text
    assert "all of it &lt;i&gt;" in admin_client.get(address).text
    listed = admin_client.get("/admin/chatapp/messageoriginal/", {"q": str(answered.pk)[-8:]})
    assert len(listed.context["cl"].result_list) == 1


def test_a_stored_prompt_is_not_read_for_the_list(admin_client):
    store(SessionFactory(system_prompt="Very long. " * 100), [user("x")])
    with CaptureQueriesContext(connection) as queries:
        admin_client.get(LIST)
    assert not [one for one in queries if '"sessions"."tools"' in one["sql"]]
