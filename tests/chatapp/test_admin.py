"""The admin of conversations: what it shows, what it reads, what it refuses."""

from __future__ import annotations

import re
import uuid
from urllib.parse import urlencode

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from chatapp import transcript
from chatapp.admin.toolkit.lists import AheadPaginator
from chatapp.formatting import place
from chatapp.ids import hex_range
from chatapp.models import POSITION_STEP, Branch, Message, Session
from tests.factories import SessionFactory, UserFactory, call, result, store

pytestmark = pytest.mark.django_db

ATTACK = "<script>alert(1)</script>"
LISTS = ("chatapp_session", "chatapp_branch", "chatapp_message")
LONG_COLUMNS = (
    ("messages", ("content", "parts", "tool_calls", "reasoning", "summary", "metadata", "usage")),
    ("sessions", ("system_prompt", "tools", "metadata")),
)


def list_of(name: str, **query) -> str:
    return reverse(f"admin:{name}_changelist") + (f"?{urlencode(query)}" if query else "")


def page_of(name: str, pk) -> str:
    return reverse(f"admin:{name}_change", args=[pk])


def selected(sql: str) -> str:
    return sql.split(" FROM ")[0]


def long_columns_in(queries) -> list[str]:
    """Return the long columns that some query selects whole; the beginning of one is no such."""
    found = []
    for query in queries:
        columns = re.split(r", (?=\")", selected(query["sql"]).removeprefix("SELECT "))
        for table, names in LONG_COLUMNS:
            found += [c for c in columns for n in names if c.strip() == f'"{table}"."{n}"']
    return found


def many(session: Session, count: int) -> None:
    """Store rows without the transcript: only lists look at them."""
    start = session.branch.head_position // POSITION_STEP + 100
    Message.objects.bulk_create(
        Message(
            session=session,
            branch=session.branch,
            position=(start + number) * POSITION_STEP,
            role="user",
            content="x" * 500,
        )
        for number in range(count)
    )


def many_sessions(owner, count: int) -> None:
    sessions = Session.objects.bulk_create(Session(owner=owner, title="x") for _ in range(count))
    branches = Branch.objects.bulk_create(Branch(session=session) for session in sessions)
    for session, branch in zip(sessions, branches, strict=True):
        session.active_branch = branch
    Session.objects.bulk_update(sessions, ["active_branch"], batch_size=400)


@pytest.fixture
def nasty(owner) -> Session:
    """A session whose every text is markup."""
    session = SessionFactory(
        owner=owner,
        title=ATTACK,
        system_prompt=ATTACK,
        metadata={ATTACK: ATTACK},
        tools=[{"type": "function", "function": {"name": ATTACK}}],
    )
    store(
        session,
        [
            {"role": "user", "content": ATTACK},
            call(ATTACK, ATTACK, ATTACK),
            result(ATTACK, ATTACK),
            {"role": "user", "content": [{"type": "text", "text": ATTACK}, {"type": ATTACK}]},
        ],
    )
    return session


@pytest.mark.parametrize("name", LISTS)
def test_every_list_opens_and_escapes_what_people_wrote(admin_client, nasty, name):
    response = admin_client.get(list_of(name))
    assert response.status_code == 200
    assert ATTACK not in response.text
    assert "&lt;script&gt;alert(1)" in response.text


def test_every_page_opens_and_escapes_what_people_wrote(admin_client, nasty):
    pages = [page_of("chatapp_session", nasty.pk), page_of("chatapp_branch", nasty.branch.pk)]
    pages += [page_of("chatapp_message", row.pk) for row in Message.objects.all()]
    for page in pages:
        response = admin_client.get(page)
        assert response.status_code == 200
        assert ATTACK not in response.text
        assert "&lt;script&gt;alert(1)" in response.text


def test_no_page_has_inline_styles_or_scripts(admin_client, nasty):
    pages = [list_of(name) for name in LISTS]
    pages += [
        page_of("chatapp_session", nasty.pk),
        page_of("chatapp_message", Message.objects.first().pk),
    ]
    for page in pages:
        text = admin_client.get(page).text
        assert not re.search(r"\sstyle=|<style|\son\w+=", text)
        assert not [tag for tag in re.findall(r"<script[^>]*>", text) if "src=" not in tag]


@pytest.mark.parametrize("name", LISTS)
def test_a_list_costs_the_same_for_10_and_for_1000_rows(admin_client, owner, name):
    counts = []
    for rows in (10, 990):
        if name == "chatapp_message":
            session = Session.objects.first() or SessionFactory(owner=owner)
            session.branch.refresh_from_db()
            many(session, rows)
            Branch.objects.update(head_position=rows * 2 * POSITION_STEP)
        else:
            many_sessions(owner, rows)
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert admin_client.get(list_of(name)).status_code == 200
        counts.append(len(queries))
        assert long_columns_in(queries) == []
        assert not [q for q in queries if "COUNT(" in q["sql"]]
    assert counts[0] == counts[1] <= 12


def test_a_list_shows_the_beginning_of_a_text_and_the_tool(admin_client, owner):
    text = "The first words. " + "filler " * 60 + "THE-END"
    wires = [{"role": "user", "content": text}, call("read_file", "c1"), result("c1", "done")]
    SessionFactory(owner=owner, wires=wires)
    page = admin_client.get(list_of("chatapp_message")).text
    assert "The first words." in page
    assert "THE-END" not in page
    assert "calls read_file" in page


def test_the_paginator_looks_five_pages_ahead_and_says_that_there_is_more(admin_client, owner):
    many(SessionFactory(owner=owner), 300)
    assert "250+ messages" in admin_client.get(list_of("chatapp_message")).text
    last = admin_client.get(list_of("chatapp_message", p=6))
    assert last.status_code == 200
    assert "300 messages" in last.text
    assert "300+" not in last.text


def test_the_paginator_counts_exactly_what_is_near():
    rows = Message.objects.order_by("-created_at", "-id")
    paginator = AheadPaginator(rows, 50)
    assert (paginator.count, paginator.has_more, paginator.num_pages) == (0, False, 1)


@pytest.mark.parametrize("page", ["0", "-1", "x", "7", "99999999999999999999", "²"])
def test_a_page_that_does_not_exist_leads_back_to_the_list(admin_client, owner, page):
    many(SessionFactory(owner=owner), 60)
    response = admin_client.get(list_of("chatapp_message", p=page), follow=True)
    assert response.status_code == 200


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize(
    "text", ["not-an-id", "zz", "%", "'; --", "12345678", "abc\u202e", "f" * 80]
)
def test_searching_for_anything_never_fails(admin_client, nasty, name, text):
    assert admin_client.get(list_of(name, q=text)).status_code == 200


@pytest.mark.parametrize("name", LISTS)
def test_the_search_finds_an_id_by_its_end_a_title_and_an_owner(admin_client, name):
    wanted = SessionFactory(owner=UserFactory(username="margaret"), title="Boots and a tent")
    other = SessionFactory(title="Something else")
    for session in (wanted, other):
        store(session, [{"role": "user", "content": "hello"}])
    for text in (str(wanted.pk), str(wanted.pk)[-8:], "boots and", "margar"):
        response = admin_client.get(list_of(name, q=text))
        found = list(response.context["cl"].result_list)
        assert len(found) == 1
        assert getattr(found[0], "session", found[0]) == wanted


def test_the_search_reads_message_texts_only_when_asked_to(admin_client, owner):
    SessionFactory(owner=owner, wires=[{"role": "user", "content": "a needle in it"}])
    plain = admin_client.get(list_of("chatapp_message", q="needle"))
    asked = admin_client.get(list_of("chatapp_message", q="text: needle"))
    assert len(plain.context["cl"].result_list) == 0
    assert len(asked.context["cl"].result_list) == 1


def test_a_beginning_of_an_id_is_a_range_and_other_words_are_none():
    first, last = hex_range("3F2a-1")
    assert str(first) == "3f2a1000-0000-0000-0000-000000000000"
    assert str(last) == "3f2a1fff-ffff-ffff-ffff-ffffffffffff"
    assert hex_range("boots") is None
    assert hex_range("abc") is None
    assert hex_range("a" * 33) is None


def test_messages_are_filtered_by_session_and_ordered_by_position(admin_client, owner):
    session = SessionFactory(
        owner=owner, wires=[{"role": "user", "content": f"{n}"} for n in "123"]
    )
    SessionFactory(owner=owner, wires=[{"role": "user", "content": "other"}])
    newest_first = admin_client.get(list_of("chatapp_message", session__id__exact=session.pk))
    assert [m.session_id for m in newest_first.context["cl"].result_list] == [session.pk] * 3
    page = admin_client.get(page_of("chatapp_session", session.pk))
    address = next(x.url for x in page.context["detail_links"] if x.label == "Messages in order")
    rows = admin_client.get(address).context["cl"].result_list
    assert [row.position for row in rows] == [1_000_000, 2_000_000, 3_000_000]


def test_a_filter_by_something_that_is_no_id_finds_nothing(admin_client, nasty):
    response = admin_client.get(list_of("chatapp_message", session__id__exact="nonsense"))
    assert response.status_code == 200
    assert len(response.context["cl"].result_list) == 0


@pytest.mark.parametrize(
    "query",
    [{"since": "7"}, {"since": "junk"}, {"model": "default"}, {"api__exact": "chat"}],
)
def test_the_session_filters_open(admin_client, nasty, query):
    assert admin_client.get(list_of("chatapp_session", **query), follow=True).status_code == 200


def test_the_session_page_says_how_tokens_are_counted(admin_client, owner, use_models, settings):
    settings.CHATAPP = settings.CHATAPP | {"TOKEN_COUNTER": "chars4"}
    session = SessionFactory(owner=owner)
    page = admin_client.get(page_of("chatapp_session", session.pk)).text
    assert "Characters divided by four" in page


def test_the_session_page_opens_when_its_model_is_gone(admin_client, owner):
    session = SessionFactory(owner=owner, model="retired")
    page = admin_client.get(page_of("chatapp_session", session.pk))
    assert page.status_code == 200
    assert "No model is called &#x27;retired&#x27; here." in page.text


def test_a_session_without_a_branch_still_has_a_page(admin_client, owner):
    broken = Session.objects.create(owner=owner, title="Broken")
    assert admin_client.get(page_of("chatapp_session", broken.pk)).status_code == 200
    assert admin_client.get(list_of("chatapp_session")).status_code == 200


def test_null_and_the_empty_text_are_told_apart(admin_client, owner):
    wires = [{"role": "user", "content": ""}, call("f", "c")]
    session = SessionFactory(owner=owner, wires=wires)
    empty, null = session.branch.messages.order_by("position")
    assert "the empty text" in admin_client.get(page_of("chatapp_message", empty.pk)).text
    assert "null" in admin_client.get(page_of("chatapp_message", null.pk)).text


def test_a_very_long_text_is_shown_in_part_and_says_so(admin_client, owner):
    session = SessionFactory(owner=owner, wires=[{"role": "user", "content": "z" * 300_000}])
    page = admin_client.get(page_of("chatapp_message", session.branch.messages.get().pk)).text
    assert "The first 200,000 of 300,000 characters" in page
    assert len(page) < 250_000


@pytest.mark.parametrize("name", LISTS)
def test_nothing_is_added_or_changed_here(admin_client, nasty, name):
    rows = {"chatapp_session": nasty, "chatapp_branch": nasty.branch}
    row = rows.get(name) or Message.objects.first()
    assert admin_client.get(reverse(f"admin:{name}_add")).status_code == 403
    assert admin_client.post(page_of(name, row.pk), {"title": "changed"}).status_code == 403


@pytest.mark.parametrize("name", ["chatapp_branch", "chatapp_message"])
def test_not_even_superusers_delete_messages_or_branches(admin_client, nasty, name):
    row = nasty.branch if name == "chatapp_branch" else Message.objects.first()
    address = reverse(f"admin:{name}_delete", args=[row.pk])
    assert admin_client.post(address, {"post": "yes"}).status_code == 403


def test_a_superuser_deletes_a_session_and_is_told_how_much_goes_with_it(admin_client, nasty):
    address = reverse("admin:chatapp_session_delete", args=[nasty.pk])
    page = admin_client.get(address)
    assert page.status_code == 200
    assert dict(page.context["model_count"])["messages"] == 4
    assert page.text.count("&lt;script&gt;") < 10
    assert admin_client.post(address, {"post": "yes"}).status_code == 302
    assert not Session.objects.exists()
    assert not Message.objects.exists()


def test_no_row_of_a_list_is_selected_before_somebody_does_it(admin_client, nasty):
    page = admin_client.get(list_of("chatapp_session")).text
    boxes = re.findall(r'<input type="checkbox" name="_selected_action"[^>]*>', page)
    assert len(boxes) == 1
    assert "checked" not in boxes[0]
    assert f'value="{nasty.pk}"' in boxes[0]


def test_selected_sessions_are_deleted_by_superusers(admin_client, nasty):
    data = {"action": "delete_selected", "_selected_action": str(nasty.pk), "post": "yes"}
    admin_client.post(list_of("chatapp_session"), data | {"index": "0"})
    assert not Session.objects.exists()


def test_staff_may_look_when_permitted_but_not_delete(client, nasty):
    staff = get_user_model().objects.create_user("staff", password="x", is_staff=True)
    client.force_login(staff)
    assert client.get(list_of("chatapp_session")).status_code == 403
    codes = ["view_session", "delete_session", "read_texts"]
    staff.user_permissions.set(Permission.objects.filter(codename__in=codes))
    assert client.get(list_of("chatapp_session")).status_code == 200
    assert client.get(page_of("chatapp_session", nasty.pk)).status_code == 200
    address = reverse("admin:chatapp_session_delete", args=[nasty.pk])
    assert client.post(address, {"post": "yes"}).status_code == 403


def test_an_address_with_a_wrong_id_leads_to_a_message_not_an_error(admin_client):
    for pk in ("nonsense", uuid.uuid4()):
        response = admin_client.get(page_of("chatapp_session", pk), follow=True)
        assert response.status_code == 200


def test_a_session_page_with_many_branches_and_messages_stays_small(admin_client, owner):
    session = SessionFactory(owner=owner)
    Branch.objects.bulk_create(Branch(session=session) for _ in range(300))
    many(session, 500)
    page = admin_client.get(page_of("chatapp_session", session.pk))
    assert page.text.count("its own messages") == 50
    assert "All branches" in page.text
    assert page.text.count("<option") < 10


@pytest.mark.parametrize(
    ("position", "shown"),
    [(None, "—"), (0, "0"), (3_000_000, "3"), (3_500_000, "3.5"), (10_000_001, "10.000001")],
)
def test_a_place_is_shown_in_steps(position, shown):
    assert place(position) == shown


def test_the_site_has_the_products_name(admin_client):
    assert "Palimpsest" in admin_client.get(reverse("admin:index")).text


def test_the_tables_of_a_fork_lead_to_its_own_messages(admin_client, owner):
    session = SessionFactory(owner=owner, wires=[{"role": "user", "content": "a"}])
    branch = transcript.fork(session, at=session.branch.messages.get())
    page = admin_client.get(page_of("chatapp_branch", branch.pk))
    assert page.status_code == 200
    assert f"branch__id__exact={branch.pk}" in page.text


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("chatapp_session", {"created_at__year": "99999"}),
        ("chatapp_session", {"created_at__gte": "x"}),
        ("chatapp_message", {"role__exact": "\0"}),
    ],
)
def test_a_made_up_filter_is_no_fault_of_the_server(admin_client, name, query):
    answer = admin_client.get(list_of(name, **query), follow=True)
    assert answer.status_code == 200
