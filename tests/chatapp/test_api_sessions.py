"""sessions/, branches/ and what all errors of the API look like."""

from __future__ import annotations

import json
from base64 import b64encode
from uuid import uuid4

import pytest
from rest_framework.exceptions import NotFound
from rest_framework.test import APIClient

from chatapp import transcript
from chatapp.api.serializers import SessionSerializer
from chatapp.context.backend import FullHistoryBackend
from chatapp.models import Branch, Message, Session
from chatapp.transcript import SwitchRefusedError
from chatapp.turns.lease import TurnLease
from tests.factories import SessionFactory, UserFactory, call, result, store, talk

SESSIONS = "/api/v1/sessions/"


def url(session: Session, rest: str = "") -> str:
    return f"{SESSIONS}{session.pk}/{rest}"


def problem(response, status: int) -> dict:
    """Return the problem document of a response, after checking that it is one."""
    assert response.status_code == status, response.content
    assert response["Content-Type"].startswith("application/problem+json")
    body = response.json()
    assert body["status"] == status
    assert {"type", "title", "detail"} <= set(body)
    return body


@pytest.fixture
def session(owner) -> Session:
    return SessionFactory(owner=owner, wires=talk(2))


def test_a_session_is_made_with_its_root_branch(api, owner):
    made = api.post(SESSIONS, {"title": "t", "system_prompt": " Be brief.\n"}, format="json")
    assert made.status_code == 201
    session = Session.objects.get(pk=made.data["id"])
    assert (session.owner, session.system_prompt) == (owner, " Be brief.\n")
    assert made.data["active_branch"] == str(session.active_branch_id)
    assert (made.data["message_count"], made.data["token_total"]) == (0, 0)


def test_a_session_needs_nothing_at_all(api):
    made = api.post(SESSIONS, {}, format="json")
    assert (made.status_code, made.data["model"], made.data["api"]) == (201, "default", "chat")


def test_tools_and_metadata_are_kept(api):
    body = {
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "metadata": {"ticket": 7, "tags": ["a", None]},
    }
    made = api.post(SESSIONS, body, format="json")
    assert {key: made.data[key] for key in body} == body


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("api", "telnet", "telnet"),
        ("api", "\ud800", "choice"),
        ("model", "gone", "There is no model 'gone'"),
        ("tools", ["f"], "Tool 0 must be an object with a type"),
        ("tools", {"type": "function"}, "list"),
        ("metadata", ["a"], "Must be an object, not a list"),
        ("metadata", {"a": "\x00"}, "NUL"),
        ("metadata", {"a": "\ud800"}, "broken"),
        ("title", "x" * 201, "200"),
        ("system_prompt", "a\x00b", "ull"),
    ],
)
def test_a_field_that_cannot_be_used_is_named(api, field, value, says):
    sent = json.dumps({field: value})
    body = problem(api.post(SESSIONS, sent, content_type="application/json"), 400)
    assert list(body["errors"]) == [field]
    assert says in str(body["errors"][field])
    assert not Session.objects.exists()


def test_a_prompt_that_is_too_long_is_refused(api, settings):
    settings.CHATAPP = settings.CHATAPP | {"MAX_MESSAGE_CHARS": 10}
    body = problem(api.post(SESSIONS, {"system_prompt": "x" * 11}, format="json"), 400)
    assert "11 characters; 10 are allowed" in body["errors"]["system_prompt"][0]


def test_sessions_are_listed_newest_first_page_by_page(api, owner):
    made = [SessionFactory(owner=owner) for _ in range(5)]
    first = api.get(SESSIONS, {"page_size": 3}).json()
    second = api.get(first["next"]).json()
    listed = [item["id"] for item in [*first["results"], *second["results"]]]
    assert listed == [str(session.pk) for session in reversed(made)]
    assert (first["previous"], second["next"]) == (None, None)
    assert set(first) == {"next", "previous", "results"}


def test_a_page_of_sessions_costs_the_same_however_many_there_are(
    api, owner, django_assert_num_queries
):
    for _ in range(3):
        SessionFactory(owner=owner)
    with django_assert_num_queries(2):  # the sizes, the rows
        api.get(SESSIONS)
    for _ in range(20):
        SessionFactory(owner=owner)
    with django_assert_num_queries(2):  # the sizes, the rows
        api.get(SESSIONS)


def test_sessions_are_found_by_a_part_of_their_title(api, owner):
    SessionFactory(owner=owner, title="Invoice 100% paid")
    SessionFactory(owner=owner, title="Garden")
    found = api.get(SESSIONS, {"title": "100% P"}).json()["results"]
    assert [item["title"] for item in found] == ["Invoice 100% paid"]


def test_a_nul_in_a_search_is_refused(api):
    assert problem(api.get(SESSIONS, {"title": "a\x00"}), 400)["errors"]["title"]


def test_a_change_leaves_alone_what_a_turn_wrote_meanwhile(session):
    read_before = Session.objects.get(pk=session.pk)
    TurnLease(session).take()
    SessionSerializer().update(read_before, {"title": "new"})
    session.refresh_from_db()
    assert session.title == "new"
    assert session.turn_owner is not None


def test_a_change_of_a_session_that_was_deleted_meanwhile_is_not_found(session):
    Session.objects.filter(pk=session.pk).delete()
    with pytest.raises(NotFound):
        SessionSerializer().update(session, {"title": "new"})
    assert not Session.objects.exists()


@pytest.mark.parametrize("rest", [SESSIONS, "branches/"])
def test_a_cursor_before_all_time_is_no_fault_of_the_server(api, session, rest):
    cursor = b64encode(b"p=0001-01-01T00:00:00%2B14:00").decode()
    address = rest if rest == SESSIONS else url(session, rest)
    # SQLite cannot take such a time; for PostgreSQL it is one like any other.
    assert api.get(address, {"cursor": cursor}).status_code in (200, 404)


@pytest.mark.parametrize("cursor", ["x", "cD0A", "cD1hYmM=", "cj0xJnA9eA==", "%00"])
def test_a_cursor_that_was_made_up_is_not_found(api, session, cursor):
    problem(api.get(SESSIONS, {"cursor": cursor}), 404)
    problem(api.get(url(session, "messages/"), {"cursor": cursor}), 404)


def test_one_session_is_read_with_its_sums(api, session):
    body = api.get(url(session)).json()
    assert body["message_count"] == 4
    assert body["token_total"] == sum(row.tokens for row in Message.objects.all())


def test_a_session_is_changed_field_by_field(api, session):
    changed = api.patch(url(session), {"title": "new"}, format="json")
    assert (changed.status_code, changed.data["title"]) == (200, "new")
    assert changed.data["message_count"] == 4


def test_a_session_is_not_replaced_whole(api, session):
    problem(api.put(url(session), {"title": "new"}, format="json"), 405)


def test_a_session_is_deleted_with_everything_in_it(api, session):
    api.post(url(session, "branches/"), {"message": str(Message.objects.last().pk)}, format="json")
    assert api.delete(url(session)).status_code == 204
    assert not (Session.objects.exists() or Branch.objects.exists() or Message.objects.exists())


def test_sums_and_owner_cannot_be_set(api, session):
    other = UserFactory()
    api.patch(
        url(session),
        {"message_count": 99, "owner": other.pk, "id": str(uuid4()), "active_branch": None},
        format="json",
    )
    body = api.get(url(session)).json()
    assert (body["message_count"], body["id"]) == (4, str(session.pk))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("get", "sessions/{s}/"),
        ("patch", "sessions/{s}/"),
        ("delete", "sessions/{s}/"),
        ("get", "sessions/{s}/messages/"),
        ("post", "sessions/{s}/messages/"),
        ("post", "sessions/{s}/turns/"),
        ("get", "sessions/{s}/context/"),
        ("get", "sessions/{s}/branches/"),
        ("post", "sessions/{s}/branches/"),
        ("get", "sessions/{s}/export/"),
        ("get", "messages/{m}/"),
        ("patch", "messages/{m}/"),
        ("post", "branches/{b}/activate/"),
    ],
)
@pytest.mark.parametrize("whose", ["somebody else's", "nobody's"])
def test_what_is_not_yours_is_not_found(api, method, path, whose):
    session = SessionFactory(wires=talk(1))
    ids = {"s": session.pk, "m": Message.objects.first().pk, "b": session.active_branch_id}
    if whose == "nobody's":
        ids = {key: uuid4() for key in ids}
    problem(getattr(api, method)("/api/v1/" + path.format(**ids), {}, format="json"), 404)
    assert Message.objects.count() == 2


def test_staff_see_no_more_than_their_own(session):
    client = APIClient()
    client.force_authenticate(UserFactory(is_staff=True, is_superuser=True))
    problem(client.get(url(session)), 404)


@pytest.mark.parametrize("path", ["sessions/", "sessions/import/"])
def test_nobody_in_particular_is_asked_to_log_in(db, path):
    response = APIClient().post("/api/v1/" + path, {}, format="json")
    problem(response, 401)
    assert response["WWW-Authenticate"]


def test_a_method_that_does_not_exist_is_a_problem_too(api):
    problem(api.delete(SESSIONS), 405)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("{", "JSON parse error"),
        ("[1]", "must be a JSON object, not a list"),
        ('"text"', "must be a JSON object, not a text"),
        ("null", "must be a JSON object, not null"),
        ('{"metadata": NaN}', "JSON parse error"),
        ('{"metadata": ' + "[" * 200 + "]" * 200 + "}", "nested deeper than 100 levels"),
        ('{"metadata": ' + "[" * 900 + "]" * 900 + "}", "nested"),
        ('{"metadata": ' + "[" * 100_000, "nested too deeply"),
        ('{"title": ' + "9" * 5000 + "}", "JSON parse error"),
    ],
)
def test_a_body_that_is_no_sound_json_object_is_refused(api, body, says):
    answer = api.post(SESSIONS, body, content_type="application/json")
    assert says in problem(answer, 400)["detail"]


def test_a_body_of_another_kind_is_refused(api):
    problem(api.post(SESSIONS, "<x/>", content_type="text/xml"), 415)


def test_a_body_that_is_too_large_is_refused_with_the_limit(api, settings):
    settings.CHATAPP = settings.CHATAPP | {"MAX_BODY_BYTES": 1000}
    body = problem(api.post(SESSIONS, {"title": "x" * 2000}, format="json"), 413)
    assert "1,000 are allowed" in body["detail"]


def test_branches_are_listed_oldest_first(api, session):
    fork = api.post(
        url(session, "branches/"), {"message": str(Message.objects.first().pk)}, format="json"
    )
    body = api.get(url(session, "branches/")).json()
    assert [branch["kind"] for branch in body["results"]] == ["root", "fork"]
    assert body["results"][1]["id"] == fork.data["id"]
    assert set(body) == {"next", "previous", "results"}


def test_a_fork_shares_what_was_before_and_becomes_the_active_branch(api, session):
    at = Message.objects.order_by("position")[1]
    fork = api.post(url(session, "branches/"), {"message": str(at.pk)}, format="json")
    assert fork.status_code == 201
    assert (fork.data["is_active"], fork.data["message_count"]) == (True, 2)
    listed = api.get(url(session, "messages/")).json()["results"]
    assert [item["id"] for item in listed][-1] == str(at.pk)


def test_a_fork_can_be_made_without_going_there(api, session):
    body = {"message": str(Message.objects.first().pk), "activate": False}
    assert api.post(url(session, "branches/"), body, format="json").data["is_active"] is False
    assert api.get(url(session)).json()["active_branch"] == str(session.active_branch_id)


def test_a_branch_that_was_left_can_be_taken_up_again(api, session):
    at = Message.objects.order_by("position")[1]
    api.post(url(session, "branches/"), {"message": str(at.pk)}, format="json")
    back = api.post(f"/api/v1/branches/{session.active_branch_id}/activate/")
    assert (back.status_code, back.data["is_active"]) == (200, True)
    assert len(api.get(url(session, "messages/")).json()["results"]) == 4


def test_a_fork_between_a_call_and_its_result_is_refused_with_a_better_place(api, session):
    rows = store(session, [call("f", "1"), result("1")])
    refused = api.post(url(session, "branches/"), {"message": str(rows[0].pk)}, format="json")
    assert str(rows[1].pk) in problem(refused, 409)["detail"]


def test_a_fork_at_a_message_of_another_session_is_not_found(api, session, owner):
    other = SessionFactory(owner=owner, wires=talk(1))
    at = Message.objects.filter(session=other).first()
    problem(api.post(url(session, "branches/"), {"message": str(at.pk)}, format="json"), 404)


@pytest.mark.parametrize("body", [{}, {"message": "x"}, {"message": None}])
def test_a_fork_needs_a_messages_id(api, session, body):
    answer = api.post(url(session, "branches/"), body, format="json")
    assert problem(answer, 400)["errors"]["message"]


def test_the_schema_and_its_page_are_served(api):
    assert api.get("/api/v1/schema/").status_code == 200
    assert api.get("/api/v1/docs/").status_code == 200
    problem(api.options("/api/v1/docs/"), 405)


@pytest.mark.parametrize("version", ["\0", "1\n2"])
def test_a_schemas_version_that_no_header_can_carry_is_refused(api, version):
    problem(api.get("/api/v1/schema/", {"version": version}), 400)


class Hesitant(FullHistoryBackend):
    """Switches only when it is asked to hurry."""

    def switch(self, session, branch, wishes, *, activate):
        if not wishes.get("hurry"):
            raise SwitchRefusedError("A run works on the branch. Wait for it, then switch.")
        activate()


def test_a_backend_may_refuse_a_switch_or_do_as_it_is_asked(api, owner, settings):
    settings.CHATAPP = settings.CHATAPP | {"CONTEXT": {"BACKEND": f"{__name__}.Hesitant"}}
    session = SessionFactory(owner=owner, wires=talk(2))
    old = session.branch
    first = session.branch.messages.order_by("position").first()
    fork = transcript.fork(session, at=first)
    address = f"/api/v1/branches/{fork.pk}/activate/"
    refused = api.post(address)
    assert (refused.status_code, refused.json()["detail"]) == (
        409,
        "A run works on the branch. Wait for it, then switch.",
    )
    session.refresh_from_db()
    assert session.active_branch_id == old.pk
    assert api.post(address, {"wishes": {"hurry": True}}, format="json").status_code == 200
    session.refresh_from_db()
    assert session.active_branch_id == fork.pk


def test_a_page_of_sessions_ends_before_it_holds_too_much(api, owner, settings):
    settings.CHATAPP = settings.CHATAPP | {"MAX_PAGE_BYTES": 10_000}
    made = [
        SessionFactory(owner=owner, system_prompt="p" * size, metadata={"note": "n" * size})
        for size in (10, 4_000, 4_000, 9_000, 10, 10)
    ]
    pages, link = [], SESSIONS
    while link:
        page = api.get(link).json()
        pages.append([row["id"] for row in page["results"]])
        link = page["next"]
    assert [one for page in pages for one in page] == [str(row.pk) for row in reversed(made)]
    assert len(pages) > 2
    assert all(len(page) < 4 for page in pages)


@pytest.mark.parametrize(
    "body",
    [{"metadata": {"a": "x" * 600}}, {"tools": [{"type": "function", "x": "y" * 600}]}],
    ids=["metadata", "tools"],
)
def test_fields_of_a_session_are_no_longer_than_a_message(api, session, settings, body):
    settings.CHATAPP = settings.CHATAPP | {"MAX_MESSAGE_CHARS": 500}
    for answer in (
        api.post(SESSIONS, body, format="json"),
        api.patch(url(session), body, format="json"),
    ):
        assert "500 are allowed" in str(problem(answer, 400)["errors"])
