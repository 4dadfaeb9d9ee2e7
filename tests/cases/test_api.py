"""Over HTTP: event streams, other users' ids, broken characters."""

from __future__ import annotations

import http.client
import json
import threading
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import uvicorn
from django.apps import apps
from django.core import serializers
from django.urls import URLPattern, URLResolver, get_resolver
from rest_framework.test import APIClient

from chatapp import transcript
from chatapp.models import Branch, ImportJob, Message, Session
from chatapp.transcript.writing import NewMessage
from compaction.models import CompactionRun, Memory, MemoryVersion, SessionSummary
from tests.cases.support import (
    add,
    ask,
    check,
    fresh,
    next_request,
    originals,
    served,
    stored,
    summarised_as,
)
from tests.factories import UserFactory, api_key, call, profile, result, talk

API = "/api/v1/"

# --- event streams and the Accept header ---------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    status: int
    kind: str
    body: str

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def events(self):
        """[(name, data)] of an event stream."""
        found = []
        for block in self.body.split("\n\n"):
            lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line[:10])
            if "event" in lines:
                found.append((lines["event"], json.loads(lines["data"])))
        return found


class Site:
    """The product under a real uvicorn on loopback."""

    def __init__(self, port, token):
        self.port, self.token = port, token

    def post(self, path, body, *, accept=None, token=...):
        headers = {"Content-Type": "application/json"}
        if accept is not None:
            headers["Accept"] = accept
        token = self.token if token is ... else token
        if token:
            headers["Authorization"] = f"Token {token}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request("POST", API + path, json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read().decode()
            kind = response.headers.get("Content-Type", "")
            return Answer(response.status, kind.split(";")[0], text)
        finally:
            connection.close()


@contextmanager
def uvicorn_site(token):
    from chatapp.asgi import application

    config = uvicorn.Config(
        application, host="127.0.0.1", port=0, log_level="error", lifespan="off", ws="none"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + 20
        while not server.started:
            assert time.monotonic() < deadline
            assert thread.is_alive()
            time.sleep(0.01)
        yield Site(server.servers[0].sockets[0].getsockname()[1], token)
    finally:
        server.should_exit = True
        thread.join(20)


@pytest.fixture
def site(transactional_db, owner):
    with uvicorn_site(api_key(owner)) as running:
        yield running


@pytest.mark.django_db(transaction=True)
def test_b46_an_event_stream_is_served_and_errors_keep_their_status(cases, play, owner, site):
    case = cases("B46")
    server = play(case.script)
    session = stored(owner, case.transcript)
    path = f"sessions/{session.pk}/turns/"
    assert case.raw["action"]["type"] == "http_turn"

    def status(entry):
        wanted = uuid.uuid4() if entry.get("session") == "missing" else session.pk
        got = site.post(
            f"sessions/{wanted}/turns/",
            {"content": case.next_user, "stream": True},
            accept=entry["accept"],
        )
        assert got.status == entry["value"]
        if got.status == 200:
            assert got.kind == "text/event-stream"
            names = [name for name, _ in got.events]
            deltas = [data["text"] for name, data in got.events if name == "delta"]
            # Pieces that wait for the client are joined, and none is split.
            assert deltas in (["he", "llo"], ["hello"])
            assert names[-1] == "done"
            assert got.events[-1][1]["answer"]["content"] == "hello"
        else:
            assert "json" in got.kind
            assert got.json["status"] == got.status

    check(case, server, session, status=status)

    # Not logged in: 401 or 403, as JSON; never 406 or 500.
    for token in (None, "wrong"):
        got = site.post(path, {"content": "x"}, accept="text/event-stream", token=token)
        assert got.status in (401, 403)
        assert "json" in got.kind

    # Other Accept headers work too, with and without a stream.
    for accept in ("*/*", "application/json", None, "text/html", "text/event-stream, */*;q=0.1"):
        got = site.post(path, {"content": "again"}, accept=accept)
        assert (got.status, got.kind) == (200, "application/json")
        assert got.json["answer"]["content"] == "hello"
        got = site.post(path, {"content": "again", "stream": True}, accept=accept)
        assert (got.status, got.kind) == (200, "text/event-stream")
        assert got.events[-1][0] == "done"
    assert {message.content for message in originals(session) if message.role == "assistant"} == {
        "hello"
    }


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "error",
    [None, {"message": "overloaded", "type": "server_error"}],
    ids=["cut", "error chunk"],
)
def test_b46_a_failure_after_one_chunk_ends_with_an_error_event(cases, play, owner, site, error):
    case = cases("B46")
    reply = case.script[0]["reply"] | {"fail_after": 1}
    if error:
        reply["stream_error"] = error
    play([{"when": {"purpose": "chat"}, "reply": reply}])
    session = stored(owner, case.transcript)
    got = site.post(
        f"sessions/{session.pk}/turns/",
        {"content": case.next_user, "stream": True},
        accept="text/event-stream",
    )
    assert (got.status, got.kind) == (200, "text/event-stream")
    names = [name for name, _ in got.events]
    assert names[-1] == "error"
    assert names.count("error") == 1
    assert "done" not in names
    assert got.events[-1][1]["code"]
    assert [data["text"] for name, data in got.events if name == "delta"] == ["he"]
    partial = originals(session)[-1]
    assert (partial.role, partial.content, partial.finish_reason) == (
        "assistant",
        "he",
        "interrupted",
    )
    # The session goes on.
    play(case.script)
    again = site.post(f"sessions/{session.pk}/turns/", {"content": "again"})
    assert again.status == 200


@pytest.mark.django_db(transaction=True)
def test_b46_a_refusal_before_the_first_chunk_is_an_error_too(cases, play, owner, site):
    case = cases("B46")
    refusal = {"error": {"status": 400, "body": {"error": {"message": "no such thing"}}}}
    play([{"when": {"purpose": "chat"}, "reply": refusal}])
    session = stored(owner, case.transcript)
    path = f"sessions/{session.pk}/turns/"
    got = site.post(path, {"content": "x", "stream": True}, accept="text/event-stream")
    assert got.status in (200, 502)
    if got.status == 200:
        assert got.events[-1][0] == "error"
    plain = site.post(path, {"content": "x"}, accept="text/event-stream")
    assert plain.status == 502
    assert "json" in plain.kind


UNREADABLE = [
    {"content": "", "stream": True},
    {"content": 5, "stream": True},
    {"messages": [{"role": "nobody"}], "stream": True},
    {"content": "x", "stream": "perhaps"},
    "[]",
    "{",
    b"\xff\xfe",
]


@pytest.mark.django_db
@pytest.mark.parametrize("accept", ["text/event-stream", "application/json", "image/png"])
def test_b46_what_cannot_be_read_is_400_whatever_is_accepted(cases, play, api, owner, accept):
    case = cases("B46")
    server = play(case.script)
    session = stored(owner, case.transcript)
    url = f"{API}sessions/{session.pk}/turns/"
    for body in UNREADABLE:
        data = json.dumps(body) if isinstance(body, dict) else body
        response = api.post(url, data=data, content_type="application/json", HTTP_ACCEPT=accept)
        assert response.status_code == 400, body
        assert "json" in response.headers["Content-Type"]
    assert server.calls == []
    # A refused request does not block the session.
    assert api.post(url, {"content": "x"}, format="json").status_code == 200


@pytest.mark.django_db
def test_b46_a_running_turn_gives_409_before_the_stream_starts(cases, play, api, owner):
    from chatapp.turns.lease import TurnLease

    case = cases("B46")
    play(case.script)
    session = stored(owner, case.transcript)
    TurnLease(session).take()
    response = api.post(
        f"{API}sessions/{session.pk}/turns/",
        {"content": "x", "stream": True},
        format="json",
        HTTP_ACCEPT="text/event-stream",
    )
    assert response.status_code == 409
    assert "json" in response.headers["Content-Type"]


# --- other users' ids ----------------------------------------------------------------------------

METHODS = ("get", "post", "put", "patch", "delete", "head", "options")
OPEN = {"schema", "docs"}


def routes(resolver=None, prefix=""):
    """Every address below /api/: (name, its parameters' names, how to fill it in)."""
    found = []
    for entry in (resolver or get_resolver()).url_patterns:
        text = prefix + str(entry.pattern)
        if isinstance(entry, URLResolver):
            found += routes(entry, text)
        elif isinstance(entry, URLPattern) and text.startswith("api/"):
            found.append((entry.name, tuple(entry.pattern.converters), "/" + text))
    return found


def filled(path, ids):
    for name, value in ids.items():
        path = path.replace(f"<uuid:{name}>", str(value)).replace(f"<{name}>", str(value))
    assert "<" not in path, f"No id of user 1 for {path}: teach the test about it."
    return path


def everything():
    """All rows of the product's tables, as text."""
    models = [
        model
        for app in ("chatapp", "compaction")
        for model in apps.get_app_config(app).get_models()
    ]
    return {
        model.__name__: serializers.serialize("json", model._default_manager.order_by("pk"))
        for model in models
    }


@pytest.fixture
def secrets(cases, play, owner):
    """User 1's rows of every kind, and their ids by the routes' parameter names."""
    case = cases("B52")
    server = play(case.script)
    case.profile(keep_last_n=0)
    session = stored(owner, case.transcript, title="MK-5201 secret plan")
    add(session, talk(3))
    summarised_as(server, session, case.raw["stored_summaries"][0])
    add(session, case.transcript)
    fork = transcript.fork(session, at=originals(session)[-1])
    run = CompactionRun.objects.get()
    CompactionRun.objects.filter(pk=run.pk).update(instructions="MK-5201")
    ids = {
        "session_id": session.pk,
        "message_id": originals(session)[0].pk,
        "branch_id": fork.pk,
        "run_id": run.pk,
        "summary_id": SessionSummary.objects.get().pk,
        "import_id": ImportJob.objects.create(owner=owner, name="MK-5201.json").pk,
        "memory_id": Memory.objects.create(
            owner=owner, text="MK-5201 likes tea", tokens=5, position=1
        ).pk,
        "version_id": MemoryVersion.objects.create(owner=owner, before=[], after=[]).pk,
    }
    return case, session, ids


def bodies(ids):
    """Bodies that would do something if the owner were not looked at."""
    message = {"role": "user", "content": "intruder"}
    return [
        {},
        {"title": "taken", "pinned": True, "profile": "", "cascade": True},
        {"pinned": True},
        {"content": "intruder"},
        {"messages": [message]},
        {"message": str(ids["message_id"]), "activate": True},
        {"wait": True},
        {"dry_run": True},
    ]


def answer_text(response):
    if getattr(response, "streaming", False):
        return "stream"
    return response.content.decode("utf-8", "replace")


@pytest.mark.django_db
def test_b52_no_route_shows_or_changes_another_user_s_rows(secrets):
    case, session, ids = secrets
    before = everything()
    stranger = APIClient(raise_request_exception=False)
    stranger.force_authenticate(UserFactory())
    walked, wrong = 0, []

    def foreign_ids_404(entry):
        nonlocal walked
        for _name, parameters, path in routes():
            if not parameters:
                continue
            url = filled(path, ids)
            for method in METHODS:
                for body in bodies(ids) if method in ("post", "put", "patch", "delete") else [None]:
                    response = getattr(stranger, method)(url, body, format="json")
                    walked += 1
                    allowed = {404, 405} if method != "options" else {200, 404, 405}
                    if response.status_code not in allowed:
                        wrong.append((method, path, body, response.status_code))
                    text = answer_text(response)
                    assert "MK-5201" not in text, (method, url)
                    assert "MK-5203" not in text, (method, url)

    check(case, _Quiet(), session, foreign_ids_404=foreign_ids_404)
    assert walked > 200
    assert everything() == before
    assert wrong == []


class _Quiet:
    """A server that nobody asked anything."""

    calls = ()

    def of(self, purpose):
        return []


@pytest.mark.django_db
def test_b52_a_foreign_id_looks_like_a_missing_one(secrets):
    _, _, ids = secrets
    stranger = APIClient()
    stranger.force_authenticate(UserFactory())
    missing = {name: uuid.uuid4() for name in ids}
    for _name, parameters, path in routes():
        if not parameters:
            continue
        for method in ("get", "post", "patch", "delete"):
            foreign = getattr(stranger, method)(filled(path, ids), {}, format="json")
            nothing = getattr(stranger, method)(filled(path, missing), {}, format="json")
            assert foreign.status_code == nothing.status_code, (method, path)
            assert foreign.content == nothing.content, (method, path)


@pytest.mark.django_db
def test_b52_anonymous_gets_401_or_403_everywhere(secrets):
    _, _, ids = secrets
    before = everything()
    nobody = APIClient(raise_request_exception=False)
    asked, wrong = 0, []
    for name, _parameters, path in routes():
        url = filled(path, ids)
        for method in METHODS:
            response = getattr(nobody, method)(url, {} if method != "get" else None, format="json")
            asked += 1
            assert "MK-52" not in answer_text(response)
            allowed = {200, 401, 403, 405} if name in OPEN else {401, 403}
            if response.status_code not in allowed:
                wrong.append((method, path, response.status_code))
    assert asked > 100
    assert everything() == before
    assert wrong == []


@pytest.mark.django_db
def test_b52_bodies_and_queries_that_name_foreign_ids_are_refused(secrets):
    _, session, ids = secrets
    other = UserFactory()
    own = stored(other, talk(2))
    before = everything()
    client = APIClient()
    client.force_authenticate(other)
    root = f"{API}sessions/{own.pk}/"
    fork = client.post(root + "branches/", {"message": str(ids["message_id"])}, format="json")
    assert fork.status_code in (400, 404)
    for branch in (ids["branch_id"], session.active_branch_id):
        page = client.get(root + "messages/", {"branch": str(branch)})
        assert page.status_code in (400, 404)
        assert "MK-52" not in page.content.decode()
    # A foreign session is answered as one that is not there, not as one without runs.
    queries = {404: {"session": str(session.pk)}, 400: {"summary": str(ids["summary_id"])}}
    for status, query in queries.items():
        runs = client.get(f"{API}runs/", query)
        assert runs.status_code == status
        assert "MK-52" not in runs.content.decode()
    # A session cannot be given to somebody, put on a foreign branch, or claim foreign rows.
    claim = {
        "owner": session.owner_id,
        "active_branch": str(session.active_branch_id),
        "id": str(session.pk),
        "session": str(session.pk),
    }
    made = client.patch(root, claim, format="json")
    assert made.status_code in (200, 400)
    again = fresh(own)
    assert (again.owner, again.active_branch_id) == (other, own.active_branch_id)
    created = client.post(f"{API}sessions/", claim | {"title": "mine"}, format="json")
    assert created.status_code in (201, 400)
    if created.status_code == 201:
        row = Session.objects.get(pk=created.data["id"])
        assert row.owner == other
        assert row.pk != session.pk
        row.delete()
    posted = client.post(
        root + "messages/",
        {
            "role": "user",
            "content": "x",
            "session": str(session.pk),
            "branch": str(ids["branch_id"]),
        },
        format="json",
    )
    assert posted.status_code in (201, 400)
    assert Message.objects.filter(session=session, content="x").count() == 0
    after = everything()
    mine = {"SessionSummary", "SessionSummaryMessage", "CompactionRun", "CompactionStep"}
    assert {name: after[name] for name in mine} == {name: before[name] for name in mine}
    assert Branch.objects.filter(session=session).count() == 2
    assert fresh(session).title == "MK-5201 secret plan"


@pytest.mark.django_db
def test_b52_lists_show_own_rows_only(secrets):
    _, _, ids = secrets
    other = UserFactory(is_staff=True)
    own = stored(other, talk(1), title="mine")
    client = APIClient()
    client.force_authenticate(other)
    listed = [path for name, parameters, path in routes() if not parameters and name not in OPEN]
    assert f"{API}sessions/" in listed
    for path in listed:
        response = client.get(path)
        assert response.status_code in (200, 405), path
        text = answer_text(response)
        assert "MK-52" not in text, path
        assert not any(str(one) in text for one in ids.values()), path
    sessions = client.get(f"{API}sessions/").data["results"]
    assert [row["id"] for row in sessions] == [str(own.pk)]
    found = client.get(f"{API}sessions/", {"title": "secret"}).data["results"]
    assert found == []


@pytest.mark.django_db
def test_b52_staff_and_superusers_have_no_more_rights_in_the_api(secrets):
    _, _, ids = secrets
    before = everything()
    client = APIClient()
    client.force_authenticate(UserFactory(is_staff=True, is_superuser=True))
    wrong = []
    for _name, parameters, path in routes():
        if parameters:
            for method in ("get", "patch", "delete", "post"):
                response = getattr(client, method)(filled(path, ids), {}, format="json")
                if response.status_code not in (404, 405):
                    wrong.append((method, path, response.status_code))
    assert everything() == before
    assert wrong == []


@pytest.mark.django_db
def test_b52_the_owner_can_do_all_of_it(secrets, owner):
    _, _, ids = secrets
    client = APIClient()
    client.force_authenticate(owner)
    answered = 0
    for name, parameters, path in routes():
        if parameters:
            response = client.get(filled(path, ids))
            if name == "message-request":
                # The message is a question: it is found, and no request was sent for it.
                assert (response.status_code, response.data["code"]) == (404, "no_request")
                continue
            assert response.status_code in (200, 405), path
            answered += response.status_code == 200
    assert answered >= 9


@pytest.mark.django_db
def test_b52_an_import_never_touches_another_user_s_session(secrets, owner):
    _, session, _ = secrets
    exporting = APIClient()
    exporting.force_authenticate(owner)
    body = exporting.get(f"{API}sessions/{session.pk}/export/").content
    before = everything()["Message"]
    other = APIClient()
    other.force_authenticate(UserFactory())
    for _ in range(2):
        got = other.generic(
            "POST", f"{API}sessions/import/", body, content_type="application/octet-stream"
        )
        assert got.status_code == 201, got.content
        assert got.json()["sessions"][0]["session"] != str(session.pk)
    kept = json.loads(before)
    now = {row["pk"]: row for row in json.loads(everything()["Message"])}
    assert all(now[row["pk"]] == row for row in kept)


# --- NUL and broken surrogates -------------------------------------------------------------------


def post_json(api, url, text):
    """Send a body exactly as written, so that \\ud83d stays half an emoji."""
    return api.post(url, data=text.encode("ascii"), content_type="application/json")


@pytest.mark.django_db
def test_b55_a_tool_result_with_broken_characters_is_stored_and_answered(cases, play, api, owner):
    case = cases("B55")
    server = play(case.script)
    assert case.raw["action"]["type"] == "continue_tool_loop"
    session = stored(owner, case.transcript[:2])
    tool = case.transcript[2]
    assert "\x00" in tool["content"]
    assert "\ud83d" in tool["content"]
    url = f"{API}sessions/{session.pk}/turns/"
    body = json.dumps({"messages": [tool]})
    assert "\\u0000" in body
    assert "\\ud83d" in body
    response = post_json(api, url, body)
    assert response.status_code == 200, response.data

    check(case, server, session)
    row = originals(session)[2]
    assert (row.role, row.tool_call_id) == ("tool", "n1")
    assert "\x00" not in row.content
    row.content.encode("utf-8")
    assert "MK-5502" in row.content
    assert row.content.endswith("end")
    assert response.data["answer"]["content"] == "ok"
    sent = next_request(server).messages[-1]
    assert (sent["role"], sent["tool_call_id"], sent["content"]) == ("tool", "n1", row.content)


@pytest.mark.django_db
@pytest.mark.parametrize("broken", ["\x00", "\ud83d", "\ude00", "a\x00\ud83d\x00b", "\ude00\ud83d"])
def test_b55_arguments_names_parts_and_metadata_are_cleaned_too(cases, play, api, owner, broken):
    case = cases("B55")
    server = play(case.script)
    session = stored(owner, case.transcript[:1])
    assistant = call("read", "n1", json.dumps({"path": "x"}) + broken)
    assistant["tool_calls"][0]["function"]["name"] += broken
    assistant["tool_calls"][0]["note"] = {"deep" + broken: [broken]}
    assistant["annotation"] = {"k" + broken: broken}
    assistant["reasoning_content"] = "hm" + broken
    wires = [
        assistant,
        result("n1", [{"type": "text", "text": "MK-5502 " + broken + " end"}])
        | {"name": "r" + broken},
    ]
    response = post_json(
        api, f"{API}sessions/{session.pk}/messages/", json.dumps({"messages": wires})
    )
    assert response.status_code == 201, response.data
    transcript.append(
        session.branch,
        [
            NewMessage(
                wire={"role": "assistant", "content": "done" + broken},
                metadata={"deep": [{"x" + broken: broken}]},
                usage={"note": broken},
                reasoning=broken + "why",
                finish_reason="stop" + broken,
                response_id="id" + broken,
            )
        ],
    )
    ask(session, "go on")
    check(case, server, session)
    for row in originals(session):
        row.refresh_from_db()
        for value in (row.tool_name, row.tool_call_id, row.finish_reason, row.response_id):
            assert "\x00" not in value
            value.encode("utf-8")
        json.dumps([row.usage, row.parts], ensure_ascii=False).encode("utf-8")
        assert "\x00" not in json.dumps([row.usage, row.parts], ensure_ascii=False)
    served(case, next_request(server))
    assert "MK-5502" in str(next_request(server).messages)
    listed = api.get(f"{API}sessions/{session.pk}/messages/")
    assert listed.status_code == 200
    listed.content.decode("utf-8")


@pytest.mark.django_db
@pytest.mark.parametrize("place", ["content", "message", "part"])
@pytest.mark.parametrize("path", ["turns/", "messages/"])
def test_b55_a_user_message_with_nul_is_400_with_a_clear_text(cases, play, api, owner, place, path):
    case = cases("B55")
    server = play(case.script)
    session = stored(owner, case.transcript[:1])
    text = "MK-5599 pasted \x00 text"
    if place == "content":
        body = {"content": text} if path == "turns/" else {"role": "user", "content": text}
    elif place == "message":
        body = {"messages": [{"role": "user", "content": text}]}
    else:
        body = {"messages": [{"role": "user", "content": [{"type": "text", "text": text}]}]}
    response = post_json(api, f"{API}sessions/{session.pk}/{path}", json.dumps(body))
    assert response.status_code == 400
    assert "NUL" in response.content.decode()
    assert "content" in response.content.decode()
    assert len(originals(session)) == 1
    assert server.calls == []


@pytest.mark.django_db
def test_b55_a_model_that_answers_broken_characters_is_stored(cases, play, api, owner):
    case = cases("B55")
    broken = "he\x00llo \ud83d"
    server = play(
        [
            {"when": {"purpose": "summary"}, "reply": {"text": "SUMMARY MK-5502 \x00\ud83d"}},
            {"when": {"purpose": "chat"}, "reply": {"text": broken, "reasoning": broken}},
        ]
    )
    profile(message_limit=0, max_context_tokens=0, keep_last_n=0)
    session = stored(owner, talk(3))
    response = api.post(f"{API}sessions/{session.pk}/turns/", {"content": "x"}, format="json")
    assert response.status_code == 200, response.data
    done = api.post(f"{API}sessions/{session.pk}/compact/", {"wait": True}, format="json")
    assert (done.status_code, done.data["status"]) == (200, "succeeded"), done.data
    check(case, server, session)
    summary = SessionSummary.objects.get()
    assert "\x00" not in summary.summary_text
    summary.summary_text.encode("utf-8")
    assert "MK-5502" in summary.summary_text


@pytest.mark.django_db
def test_b55_a_summariser_s_error_with_broken_characters_ends_as_a_failed_run(
    cases, play, api, owner
):
    message = {"message": "broken \x00 \ud83d input", "type": "invalid_request_error"}
    refusal = {"error": {"status": 400, "body": {"error": message}}}
    play([{"when": {"purpose": "summary"}, "reply": refusal}, cases("B55").script[-1]])
    profile(message_limit=6, max_context_tokens=0, keep_last_n=0)
    session = stored(owner, talk(3))
    url = f"{API}sessions/{session.pk}/"
    assert api.post(url + "turns/", {"content": "x"}, format="json").status_code == 200
    done = api.post(url + "compact/", {"wait": True}, format="json")
    assert (done.status_code, done.data["status"]) == (200, "failed")
    for run in CompactionRun.objects.all():
        assert "\x00" not in run.error
        run.error.encode("utf-8")


@pytest.mark.django_db
@pytest.mark.parametrize("field", ["title", "system_prompt", "metadata", "tools"])
@pytest.mark.parametrize("broken", ["\x00", "\ud83d"])
def test_b55_a_session_s_own_texts_are_refused_or_cleaned_never_a_500(
    cases, play, api, field, broken
):
    play(cases("B55").script)
    value = {
        "title": "t" + broken,
        "system_prompt": "p" + broken,
        "metadata": {"k": broken},
        "tools": [{"type": "function", "function": {"name": "f" + broken}}],
    }[field]
    response = post_json(api, f"{API}sessions/", json.dumps({field: value}))
    assert response.status_code in (201, 400)
    if response.status_code == 201:
        row = Session.objects.get(pk=response.data["id"])
        json.dumps(getattr(row, field), ensure_ascii=False).encode("utf-8")


@pytest.mark.django_db
@pytest.mark.parametrize("broken", ["\x00", "\ud83d"])
def test_b55_other_texts_of_a_request_are_never_a_500(cases, play, api, owner, broken):
    play(cases("B55").script)
    profile(message_limit=0, max_context_tokens=0)
    session = stored(owner, talk(5))
    root = f"{API}sessions/{session.pk}/"
    for path, body in (
        ("compact/", {"instructions": broken, "wait": True}),
        ("compact/", {"profile": broken, "wait": True}),
        ("turns/", {"content": "x" + broken}),
    ):
        response = post_json(api, root + path, json.dumps(body))
        assert response.status_code in (200, 400), (path, response.content)
    quoted = {"\x00": "%00", "\ud83d": "%ED%A0%BD"}[broken]
    for query in (f"sessions/?title={quoted}", f"runs/?reason={quoted}", f"runs/?status={quoted}"):
        assert api.get(API + query).status_code in (200, 400), query
    keyed = api.post(
        root + "messages/",
        {"role": "user", "content": "x"},
        format="json",
        HTTP_IDEMPOTENCY_KEY="key\x00" if broken == "\x00" else "key",
    )
    assert keyed.status_code in (201, 400)
