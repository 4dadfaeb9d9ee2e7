"""What an address does not know is refused by its name, with the one that may be meant."""

from __future__ import annotations

import pytest

from chatapp.models import Message, Session
from tests.chatapp.test_api_sessions import url
from tests.factories import SessionFactory, talk

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(owner) -> Session:
    return SessionFactory(owner=owner, wires=talk(2))


def errors(response) -> dict[str, list[str]]:
    assert response.status_code == 400, response.content
    return response.json()["errors"]


@pytest.mark.parametrize(
    ("where", "body", "name", "meant"),
    [
        ("turns/", {"contents": "hello"}, "contents", "content"),
        ("turns/", {"message": [{"role": "user", "content": "x"}]}, "message", "messages"),
        ("messages/", {"message": [{"role": "user", "content": "x"}]}, "message", "messages"),
        ("branches/", {"mesage": "x"}, "mesage", "message"),
        ("compact/", {"instruction": "x"}, "instruction", "instructions"),
        ("compact/", {"dryrun": True}, "dryrun", "dry_run"),
    ],
)
def test_a_field_that_is_not_there_is_named_with_the_one_that_is(
    api, session, where, body, name, meant
):
    before = Message.objects.count()
    (said,) = errors(api.post(url(session, where), body, format="json"))[name]
    assert f"There is no field {name!r}." in said
    assert f"Did you mean {meant!r}?" in said
    assert Message.objects.count() == before


def test_a_session_is_made_and_changed_with_its_own_fields_only(api, session):
    made = api.post("/api/v1/sessions/", {"tittle": "x"}, format="json")
    assert "Did you mean 'title'?" in errors(made)["tittle"][0]
    assert Session.objects.count() == 1
    changed = api.patch(url(session), {"modle": "default"}, format="json")
    assert "Did you mean 'model'?" in errors(changed)["modle"][0]


def test_what_was_read_may_come_back_whole(api, session):
    read = api.get(url(session)).json()
    read["title"] = "new"
    assert api.patch(url(session), read, format="json").status_code == 200
    assert Session.objects.get().title == "new"


def test_a_name_like_nothing_there_is_told_what_there_is(api, session):
    (said,) = errors(api.post(url(session, "compact/"), {"zzz": 1}, format="json"))["zzz"]
    assert "There are: dry_run, force, instructions, profile, wait." in said


@pytest.mark.parametrize(
    ("where", "meant"),
    [
        ("/api/v1/sessions/?titel=x", "title"),
        ("messages/?verbosty=quiet", "verbosity"),
        ("messages/?pagesize=5", "page_size"),
        ("context/?wires=chat", "wire"),
        ("export/?az=json", "as"),
        ("summaries/?stat=active", "status"),
        ("/api/v1/runs/?sesion=x", "session"),
        ("/api/v1/schema/?versoin=1", "version"),
        ("/api/v1/docs/?formt=json", "format"),
    ],
)
def test_a_query_parameter_that_is_not_there_is_named_too(api, session, where, meant):
    address = where if where.startswith("/") else url(session, where)
    said = str(errors(api.get(address)))
    assert "There is no query parameter" in said
    assert f"{meant}" in said


def test_parameters_that_are_there_work(api, session):
    for where in (
        "messages/?verbosity=quiet&order=newest&page_size=1",
        "messages/?fields=light",
        "context/?wire=responses",
    ):
        assert api.get(url(session, where)).status_code == 200
    assert api.get("/api/v1/sessions/?title=x&page_size=2").status_code == 200


def test_a_client_sees_what_it_can_name(api, session, use_models):
    use_models(
        {
            "mini": {"BACKEND": "x", "NAME": "gpt-5-mini", "CONTEXT_WINDOW": 9_000, "API_KEY": "k"},
            "default": {
                "BACKEND": "x", "NAME": "m", "CONTEXT_WINDOW": 8_000,
                "BASE_URL": "http://secret.example/v1", "CAPABILITIES": {"api": "responses"},
            },
        }
    )  # fmt: skip
    models = api.get("/api/v1/models/")
    assert [row["alias"] for row in models.json()["results"]] == ["default", "mini"]
    assert models.json()["results"][0]["api"] == "responses"
    assert "secret.example" not in models.content.decode()
    profiles = api.get("/api/v1/profiles/").json()["results"]
    assert {"bisect", "sliding_window"} <= {row["name"] for row in profiles}
    assert sum(row["is_default"] for row in profiles) == 1
