"""Values of a wrong type are refused by name, in bodies, queries, addresses and headers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chatapp.api.json_types import MOST_NAMES
from chatapp.models import Branch, Message, Session
from compaction.models import CompactionRun
from tests.chatapp.test_api_sessions import SESSIONS, problem, url
from tests.factories import SessionFactory, result, store, talk, user

pytestmark = pytest.mark.django_db
# More digits than fit any column, and none more than JSON's readers take.
HUGE = int("9" * 400)


@pytest.fixture
def session(owner, queued, model_server) -> Session:
    return SessionFactory(owner=owner, wires=talk(2))


def errors(response) -> dict[str, Any]:
    return problem(response, 400)["errors"]


def post(api, address: str, body: Any, method: str = "post"):
    sent = body if isinstance(body, str) else json.dumps(body)
    return getattr(api, method)(address, sent, content_type="application/json")


WRONG_TEXTS = [5, HUGE, 1.5, True, ["a"], {"a": "b"}, None]
WRONG_FLAGS = ["true", "off", 1, 0, 1.0, [], {}, None]


@pytest.mark.parametrize("value", WRONG_TEXTS, ids=str)
@pytest.mark.parametrize("field", ["title", "model", "api", "system_prompt"])
def test_a_text_of_a_session_is_a_text(api, field, value):
    assert list(errors(post(api, SESSIONS, {field: value}))) == [field]
    assert not Session.objects.exists()


@pytest.mark.parametrize("value", WRONG_FLAGS, ids=str)
def test_a_flag_is_true_or_false(api, session, value):
    row = Message.objects.first()
    before = CompactionRun.objects.count()
    for address, field, method in [
        (url(session), "stateless", "patch"),
        (url(session), "plain_text", "patch"),
        (url(session, "turns/"), "stream", "post"),
        (url(session, "turns/"), "continue", "post"),
        (url(session, "compact/"), "wait", "post"),
        (url(session, "compact/"), "dry_run", "post"),
        (f"/api/v1/messages/{row.pk}/", "pinned", "patch"),
    ]:
        more = {"content": "x"} if address.endswith("turns/") else {}
        assert list(errors(post(api, address, {field: value, **more}, method))) == [field]
    assert CompactionRun.objects.count() == before
    assert Message.objects.count() == 4


@pytest.mark.parametrize("alias", [" ", " default", "default\n"])
def test_an_alias_is_taken_as_it_is(api, alias):
    (said,) = errors(post(api, SESSIONS, {"model": alias}))["model"]
    assert said.startswith(f"There is no model {alias!r}.")


def test_the_sentence_names_both_types(api):
    found = errors(post(api, SESSIONS, {"title": 5, "stateless": "yes", "tools": {}, "api": None}))
    assert found["title"] == ["Must be a text, not a number."]
    assert found["stateless"] == ["Must be true or false, not a text."]
    assert found["tools"] == ["Must be a list, not an object."]


def test_all_that_is_wrong_is_named_at_once(api):
    assert set(errors(post(api, SESSIONS, {"titel": "x", "model": 5}))) == {"titel", "model"}


@pytest.mark.parametrize("value", [["x"], "x", 5, True])
def test_metadata_is_an_object_and_tools_are_objects_with_a_type(api, value):
    assert list(errors(post(api, SESSIONS, {"metadata": value}))) == ["metadata"]
    assert list(errors(post(api, SESSIONS, {"tools": [value]}))) == ["tools"]
    assert list(errors(post(api, SESSIONS, {"tools": [{"type": [value]}]}))) == ["tools"]


@pytest.mark.parametrize(
    "value", [5, True, None, "x", [], {}, "9AC40CEC28D44302A690E23F44BE92A0", "urn:uuid:x"]
)
def test_an_id_is_a_uuid_with_hyphens(api, session, value):
    sent = post(api, url(session, "branches/"), {"message": value})
    assert list(errors(sent)) == ["message"]
    assert Branch.objects.filter(session=session).count() == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("role", 5),
        ("role", None),
        ("role", ["user"]),
        ("content", 5),
        ("content", True),
        ("content", {"text": "x"}),
        ("content", [5]),
        ("content", [{"text": "no type"}]),
        ("content", "a\x00b"),
        ("name", 5),
        ("tool_call_id", ["c"]),
        ("reasoning_content", {}),
        ("tool_calls", "f"),
        ("tool_calls", [{"function": {"name": 5}}]),
        ("function_call", "f"),
        ("function_call", False),
        ("function_call", {"name": "f"}),
    ],
)
def test_a_field_of_a_message_is_named(api, session, field, value):
    message = {"role": "user", "content": "hello"} | {field: value}
    for where in ("messages/", "turns/"):
        for body in (message, {"messages": [message]}):
            assert field in str(errors(post(api, url(session, where), body)))
    assert Message.objects.count() == 4


@pytest.mark.parametrize("value", [[], '"x"', 5, None, True, [["a"]]])
def test_a_body_that_is_no_object_is_refused(api, session, value):
    for where in ("messages/", "turns/", "branches/", "compact/"):
        body = problem(post(api, url(session, where), value), 400)
        assert body["code"] == "parse_error"
        assert "object" in body["detail"]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"title": NaN}',
        '{"metadata": {"a": Infinity}}',
        '{"metadata": {"a": 1e400}}',
        '{"metadata": {"a": ' + "9" * 5000 + "}}",
        '{"title": "x",}',
        "\ufeff{}",
        '{"metadata": ' + '{"a":' * 200 + "1" + "}" * 201,
    ],
    ids=["cut", "NaN", "Infinity", "1e400", "5000 digits", "comma", "mark", "deep"],
)
def test_json_that_no_database_could_give_back_is_refused(api, text):
    assert problem(post(api, SESSIONS, text), 400)["code"] == "parse_error"
    assert not Session.objects.exists()


@pytest.mark.parametrize("text", ['{"title": "a\\u0000b"}', '{"title": "a\\ud800b"}'])
def test_a_nul_and_half_a_character_are_named(api, text):
    assert list(errors(post(api, SESSIONS, text))) == ["title"]


def test_many_unknown_names_are_answered_soon_and_shortly(api):
    body = {f"name_{number}_" + "x" * 500: 1 for number in range(3000)}
    answer = post(api, SESSIONS, body)
    assert len(errors(answer)) == MOST_NAMES
    assert len(answer.content) < 10_000


# --- turns ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"stream": True},
        {"stream": False, "continue": False},
        {"messages": []},
        {"content": ""},
        {"content": None},
        {"content": " \n\t"},
        {"content": "\u200b\u2800"},
        {"content": []},
        {"content": [{"type": "text", "text": "  "}]},
        {"role": "user"},
        {"role": "user", "content": "  "},
    ],
)
def test_a_turn_without_a_message_is_told_how_to_go_on(api, session, body):
    (said,) = errors(post(api, url(session, "turns/"), body))["content"]
    assert '{"continue": true}' in said
    assert Message.objects.count() == 4


@pytest.mark.parametrize("more", [{"content": "x"}, {"messages": [user("x")]}, user("x")])
def test_going_on_takes_no_message(api, session, more):
    sent = post(api, url(session, "turns/"), {"continue": True, **more})
    assert list(errors(sent)) == ["continue"]
    assert Message.objects.count() == 4


def test_tool_results_sent_with_the_turn_or_before_it_go_on(api, session):
    asked = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    for body in ({"messages": [result("c")]}, {}, {"continue": True}):
        store(session, [user("go"), {"role": "assistant", "content": None, "tool_calls": asked}])
        if "messages" not in body:
            store(session, [result("c")])
        assert post(api, url(session, "turns/"), body).status_code == 200


def test_a_question_that_failed_is_asked_again_by_going_on(api, session):
    store(session, [user("go")])
    assert "content" in errors(post(api, url(session, "turns/"), {}))
    assert post(api, url(session, "turns/"), {"continue": True}).status_code == 200


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ({"content": "x", "strem": True}, "strem"),
        ({"content": "x", "messages": 0}, "messages"),
        ({"content": "x", "messages": None}, "messages"),
        ({"content": "x", "messages": {"role": "user"}}, "messages"),
    ],
)
def test_nothing_beside_a_question_is_passed_over(api, session, body, name):
    assert list(errors(post(api, url(session, "turns/"), body))) == [name]
    assert Message.objects.count() == 4


def test_cancelling_takes_no_fields(api, session, owner):
    run = api.post(url(session, "compact/"), {}, format="json").json()
    address = f"/api/v1/runs/{run['id']}/cancel/"
    assert list(errors(post(api, address, {"reason": "x"}))) == ["reason"]
    assert CompactionRun.objects.get(pk=run["id"]).status == "queued"
    assert api.post(address).status_code == 200


# --- queries, addresses, headers ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("/api/v1/sessions/?page_size=x", "page_size"),
        ("/api/v1/sessions/?page_size=0", "page_size"),
        ("/api/v1/sessions/?page_size=-1", "page_size"),
        ("/api/v1/sessions/?page_size=1.5", "page_size"),
        ("/api/v1/sessions/?page_size=", "page_size"),
        ("/api/v1/sessions/?page_size=%D9%A3", "page_size"),
        ("/api/v1/sessions/?page_size=1&page_size=2", "page_size"),
        ("/api/v1/sessions/?cursor=a&cursor=b", "cursor"),
        ("/api/v1/sessions/?title=%00", "title"),
        ("/api/v1/runs/?session=x", "session"),
        ("/api/v1/runs/?session=", "session"),
        ("/api/v1/runs/?status=done", "status"),
        ("/api/v1/runs/?status=", "status"),
        ("/api/v1/runs/?trigger=x", "trigger"),
        ("messages/?branch=", "branch"),
        ("messages/?verbosity=", "verbosity"),
        ("messages/?fields=", "fields"),
        ("export/?verbosity=loud", "verbosity"),
        ("summaries/?status=", "status"),
        ("summaries/?status=ACTIVE", "status"),
        ("context/?wire=", "wire"),
    ],
)
def test_a_query_parameter_of_a_wrong_type_is_named(api, session, address, name):
    address = address if address.startswith("/") else url(session, address)
    assert list(errors(api.get(address))) == [name]


@pytest.mark.parametrize("value", ["1", "yes", "True", "", "0"])
def test_whole_is_true_or_false(api, session, value):
    row = Message.objects.first()
    assert list(errors(api.get(f"/api/v1/messages/{row.pk}/?whole={value}"))) == ["whole"]


def test_a_page_larger_than_any_is_the_largest(api, session):
    for size in ("200", "201", "9" * 30, "9" * 6000):
        assert api.get(f"/api/v1/sessions/?page_size={size}").status_code == 200


def test_parameters_of_reading_are_unknown_to_writing(api, session):
    answer = post(api, url(session, "messages/?order=newest"), user("x"))
    assert list(errors(answer)) == ["order"]
    assert Message.objects.count() == 4


def test_runs_of_a_session_that_is_somebody_elses_or_not_there_are_not_found(api, session):
    stranger = SessionFactory()
    told = []
    for key in ("6f9619ff-8b86-d011-b42d-00c04fc964ff", stranger.pk):
        found = problem(api.get(f"/api/v1/runs/?session={key}"), 404)
        told.append({name: value for name, value in found.items() if name != "instance"})
    # One answer, the same as at the session's own address: nobody learns which of the two it is.
    assert told[0] == told[1]
    assert told[0]["code"] == problem(api.get(f"/api/v1/sessions/{stranger.pk}/"), 404)["code"]
    assert api.get(f"/api/v1/runs/?session={session.pk}").json()["results"] == []


@pytest.mark.parametrize("key", ["x", "5", "%00", "null", "9ac40cec28d44302a690e23f44be92a0"])
def test_an_address_with_something_else_than_an_id_is_not_found(api, key):
    for path in ("sessions/{}/", "messages/{}/", "runs/{}/", "summaries/{}/lines/"):
        assert problem(api.get("/api/v1/" + path.format(key)), 404)["code"] == "not_found"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "text/json"])
def test_a_body_of_another_type_is_not_read(api, session, kind):
    for where in ("messages/", "turns/", "branches/", "compact/"):
        answer = api.post(url(session, where), "content=x", content_type=kind)
        assert problem(answer, 415)["code"] == "unsupported_media_type"
    assert Message.objects.count() == 4


@pytest.mark.parametrize(
    ("method", "where", "allowed"),
    [
        ("get", "turns/", {"POST", "OPTIONS"}),
        ("put", "", {"GET", "PATCH", "DELETE", "HEAD", "OPTIONS"}),
        ("delete", "messages/", {"GET", "POST", "HEAD", "OPTIONS"}),
        ("post", "context/?wire=chat", {"GET", "HEAD", "OPTIONS"}),
    ],
)
def test_a_method_that_is_not_there_is_told_those_that_are(api, session, method, where, allowed):
    answer = getattr(api, method)(url(session, where))
    assert problem(answer, 405)["code"] == "method_not_allowed"
    assert set(answer["Allow"].split(", ")) == allowed


def test_a_method_that_nobody_knows_is_refused_as_such_whatever_it_asks(api, session):
    answer = api.generic("QUERY", url(session, "context/?wire=x"))
    assert problem(answer, 405)["code"] == "method_not_allowed"


@pytest.mark.parametrize("key", ["", "  ", "k" * 201, "a\x85b", "é", "\x01"])
def test_an_idempotency_key_is_printable_ascii(api, session, key):
    for where in ("messages/", "turns/"):
        answer = api.post(url(session, where), user("x"), format="json", HTTP_IDEMPOTENCY_KEY=key)
        assert list(errors(answer)) == ["Idempotency-Key"]
    assert Message.objects.count() == 4
