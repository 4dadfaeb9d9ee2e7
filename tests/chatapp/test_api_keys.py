"""API keys: what opens the API, what a scope allows, and that no secret is stored."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from chatapp.keys import ApiKey, KeyRefusedError, create_key, find_key, note_use, revoke_key
from tests.factories import SessionFactory, UserFactory

pytestmark = pytest.mark.django_db
SESSIONS = "/api/v1/sessions/"


def ask(secret: str, *, scheme: str = "Bearer", method: str = "get", path: str = SESSIONS, **data):
    client = APIClient()
    return getattr(client, method)(
        path, data, format="json", headers={"Authorization": f"{scheme} {secret}"}
    )


@pytest.fixture
def made(owner):
    return create_key(owner=owner, name="laptop")


# --- opening --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["Bearer", "Token", "bearer", "TOKEN"])
def test_both_schemes_open_the_api_for_the_owner(made, owner, scheme):
    SessionFactory(owner=owner, title="Mine")
    SessionFactory(title="Somebody else's")
    response = ask(made.secret, scheme=scheme)
    assert [found["title"] for found in response.json()["results"]] == ["Mine"]


def test_a_user_has_several_keys(made, owner):
    other = create_key(owner=owner, name="phone")
    assert {ask(one.secret).status_code for one in (made, other)} == {200}
    revoke_key(made.key)
    assert [ask(one.secret).status_code for one in (made, other)] == [401, 200]


def test_secrets_are_long_random_and_begin_with_their_mark(owner):
    secrets = {create_key(owner=owner, name="one").secret for _ in range(3)}
    assert len(secrets) == 3
    assert all(secret.startswith("pk_") and len(secret) == 46 for secret in secrets)


def test_no_column_holds_the_secret(made):
    row = ApiKey.objects.filter(pk=made.key.pk).values().get()
    assert not any(made.secret in str(value) for value in row.values())
    assert row["prefix"] == made.secret[:11]
    assert len(row["digest"]) == 64


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"revoked_at": datetime(2026, 1, 1, tzinfo=UTC)}, "revoked"),
        ({"expires_at": datetime(2026, 1, 1, tzinfo=UTC)}, "expired"),
    ],
)
def test_a_key_that_was_closed_says_why(made, change, words):
    ApiKey.objects.filter(pk=made.key.pk).update(**change)
    response = ask(made.secret)
    assert response.status_code == 401
    assert words in response.json()["detail"]
    assert response["WWW-Authenticate"] == 'Bearer realm="api"'


@pytest.mark.parametrize("secret", ["pk_nobody", "", "two words", "é", "pk_" + "a" * 10_000])
def test_what_is_no_key_opens_nothing(made, secret):
    response = ask(secret)
    assert response.status_code == 401
    assert response["Content-Type"] == "application/problem+json"


def test_the_prefix_alone_opens_nothing(made):
    assert ask(made.key.prefix).status_code == 401
    assert ask(made.key.digest).status_code == 401


def test_the_key_of_a_user_who_is_switched_off_opens_nothing(made, owner):
    owner.is_active = False
    owner.save()
    assert "switched off" in ask(made.secret).json()["detail"]


# --- scopes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["post", "patch", "delete", "put"])
def test_a_key_for_reading_changes_nothing(owner, method):
    secret = create_key(owner=owner, name="reader", scopes=["read"]).secret
    session = SessionFactory(owner=owner, title="As it was")
    for path in (SESSIONS, f"{SESSIONS}{session.pk}/", f"{SESSIONS}{session.pk}/turns/"):
        response = ask(secret, method=method, path=path, title="Changed", content="hello")
        assert response.status_code == 403
        problem = response.json()
        assert problem["code"] == "missing_scope"
        assert "write" in problem["detail"]
    session.refresh_from_db()
    assert session.title == "As it was"
    assert ask(secret).status_code == 200


def test_a_key_for_writing_alone_reads_nothing(owner):
    secret = create_key(owner=owner, name="writer", scopes=["write"]).secret
    assert ask(secret, method="post", title="New").status_code == 201
    assert ask(secret).status_code == 403


def test_a_key_for_figures_reads_metrics_and_no_conversation(settings):
    pytest.importorskip("prometheus_client")
    staff = UserFactory(is_staff=True)
    secret = create_key(owner=staff, name="prometheus", scopes=["admin-read"]).secret
    headers = {"Authorization": f"Bearer {secret}"}
    assert Client().get("/metrics", headers=headers).status_code == 200
    assert ask(secret).status_code == 403
    plain = create_key(owner=staff, name="reader", scopes=["read"]).secret
    headers = {"Authorization": f"Bearer {plain}"}
    assert Client().get("/metrics", headers=headers).status_code == 401
    staff.is_staff = False
    staff.save()
    headers = {"Authorization": f"Bearer {secret}"}
    assert Client().get("/metrics", headers=headers).status_code == 403


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"scopes": ["everything"]}, "everything"),
        ({"scopes": []}, "needs a scope"),
        ({"name": " "}, "needs a name"),
        ({"scopes": ["admin-read"]}, "staff"),
        ({"expires_at": datetime(2020, 1, 1, tzinfo=UTC)}, "expired"),
    ],
)
def test_a_key_of_no_use_is_refused(owner, wrong, words):
    with pytest.raises(KeyRefusedError, match=words):
        create_key(**{"owner": owner, "name": "laptop"} | wrong)


# --- last use -------------------------------------------------------------------------------------


def test_the_last_use_is_written_at_most_once_a_minute(made, django_assert_num_queries):
    assert ask(made.secret).status_code == 200
    first = ApiKey.objects.get().last_used_at
    assert first is not None
    with django_assert_num_queries(0):
        note_use(ApiKey(pk=made.key.pk, last_used_at=timezone.now() - timedelta(seconds=59)))
    assert ask(made.secret).status_code == 200
    assert ApiKey.objects.get().last_used_at == first
    ApiKey.objects.update(last_used_at=first - timedelta(minutes=2))
    assert ask(made.secret).status_code == 200
    assert ApiKey.objects.get().last_used_at >= first


def test_a_database_that_takes_no_note_answers_all_the_same(made, monkeypatch):
    def refused(*args, **kwargs):
        raise DatabaseError("read-only")

    monkeypatch.setattr("django.db.models.query.QuerySet.update", refused)
    assert ask(made.secret).status_code == 200


# --- the command ----------------------------------------------------------------------------------


def run(*arguments: str) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    call_command("api_key", *arguments, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def test_the_command_makes_lists_and_revokes(owner):
    secret = run("create", owner.username, "--name", "cron")[0].strip()
    assert ask(secret).status_code == 200
    key = find_key(secret.encode())
    assert key.scopes == ["read", "write"]
    listed = run("list", owner.username)[0]
    assert key.prefix in listed
    assert "cron" in listed
    assert secret not in listed
    assert "revoked" in run("revoke", key.prefix)[0]
    assert ask(secret).status_code == 401
    assert "revoked" in run("list")[0]


def test_the_command_takes_scopes_and_an_end(owner):
    arguments = ("--name", "x", "--scope", "read", "--expires-days", "30")
    run("create", owner.username, *arguments)
    key = ApiKey.objects.get()
    assert key.scopes == ["read"]
    assert timedelta(days=29) < key.expires_at - timezone.now() <= timedelta(days=30)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("create", "nobody", "--name", "x"), "no user"),
        (("list", "nobody"), "no user"),
        (("revoke", "pk_12345678"), "no API key"),
        (("revoke", "pk"), "too short"),
    ],
)
def test_the_command_says_what_is_wrong(db, arguments, words):
    with pytest.raises(CommandError, match=words):
        run(*arguments)


def test_a_prefix_of_two_keys_revokes_neither(owner):
    for _ in range(2):
        key = create_key(owner=owner, name="x").key
        ApiKey.objects.filter(pk=key.pk).update(prefix="pk_samesame")
    with pytest.raises(CommandError, match="Several keys"):
        run("revoke", "pk_samesame")
    assert not ApiKey.objects.filter(revoked_at__isnull=False).exists()


# --- the admin ------------------------------------------------------------------------------------


def new_key(owner, **more) -> dict:
    return {"owner": owner.pk, "name": "From the admin", "scopes": ["read"]} | more


def test_the_admin_shows_a_new_secret_once(admin_client, owner):
    response = admin_client.post("/admin/chatapp/apikey/add/", new_key(owner, expires_days=7))
    assert response.status_code == 200
    secret = response.context["secret"]
    assert secret in response.content.decode()
    assert "no-store" in response["Cache-Control"]
    assert ask(secret).status_code == 200
    key = ApiKey.objects.get()
    assert key.expires_at is not None
    for page in ("", f"{key.pk}/change/", f"{key.pk}/history/"):
        shown = admin_client.get(f"/admin/chatapp/apikey/{page}").content.decode()
        assert key.prefix in shown
        assert secret not in shown
        assert key.digest not in shown


def test_the_admin_says_why_a_key_is_refused(admin_client, owner):
    wrong = new_key(owner, scopes=["admin-read"])
    response = admin_client.post("/admin/chatapp/apikey/add/", wrong)
    assert "staff users" in response.content.decode()
    assert not ApiKey.objects.exists()


def test_the_admin_revokes(admin_client, made):
    data = {"action": "revoke", "_selected_action": [str(made.key.pk)]}
    admin_client.post("/admin/chatapp/apikey/", data)
    assert ask(made.secret).status_code == 401


def staff_with(*codenames: str):
    from django.contrib.auth.models import Permission

    user = UserFactory(is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return user, client


def test_staff_make_keys_for_themselves_alone(owner):
    user, client = staff_with("add_apikey", "view_apikey")
    refused = client.post("/admin/chatapp/apikey/add/", new_key(owner))
    assert "errors" in refused.content.decode()
    assert not ApiKey.objects.exists()
    client.post("/admin/chatapp/apikey/add/", new_key(user))
    assert ApiKey.objects.get().owner == user


def test_staff_who_may_only_look_make_and_revoke_nothing(made, owner):
    _, client = staff_with("view_apikey")
    assert client.get("/admin/chatapp/apikey/").status_code == 200
    assert client.post("/admin/chatapp/apikey/add/", new_key(owner)).status_code == 403
    data = {"action": "revoke", "_selected_action": [str(made.key.pk)]}
    client.post("/admin/chatapp/apikey/", data)
    assert ask(made.secret).status_code == 200


# --- upgrade --------------------------------------------------------------------------------------

OLD_TABLE = """
CREATE TABLE authtoken_token (
    "key" varchar(40) NOT NULL PRIMARY KEY,
    created {time} NOT NULL,
    user_id integer NOT NULL UNIQUE REFERENCES auth_user (id) DEFERRABLE INITIALLY DEFERRED
)
"""
OLD = "9944b09199c62bcf9418ad846dd0e4bbdfc6ee4b"


def test_old_tokens_stay_valid_and_their_clear_text_goes(owner):
    from importlib import import_module

    from django.apps import apps

    migration = import_module("chatapp.migrations.0009_store_api_keys")
    time = "datetime" if connection.vendor == "sqlite" else "timestamp with time zone"
    with connection.cursor() as cursor:
        cursor.execute(OLD_TABLE.format(time=time))
        cursor.execute(
            "INSERT INTO authtoken_token VALUES (%s, %s, %s)",
            [OLD, "2024-05-06 07:08:09.123456+00:00", owner.pk],
        )

    class Editor:
        def __init__(self):
            self.connection = connection

        def execute(self, statement):
            with connection.cursor() as cursor:
                cursor.execute(statement)

    migration.take_over_tokens(apps, Editor())
    assert "authtoken_token" not in connection.introspection.table_names()
    key = ApiKey.objects.get()
    assert (key.owner, key.scopes, key.prefix) == (owner, ["read", "write"], OLD[:6])
    assert key.created_at == datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    assert ask(OLD, scheme="Token").status_code == 200
    assert ask(OLD).status_code == 200
    assert ask(OLD, method="post", title="New").status_code == 201
    # A second time, and on a database that never had tokens, there is nothing to do.
    migration.take_over_tokens(apps, Editor())
    assert ApiKey.objects.count() == 1


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["sessions/", "runs/", "schema/", "docs/", "nowhere/", "sessions/import/"],
)
def test_nobody_keeps_an_answer_of_the_api(made, path):
    for response in (
        ask(made.secret, path=f"/api/v1/{path}"),
        ask("wrong", path=f"/api/v1/{path}"),
    ):
        assert "no-store" in response["Cache-Control"]


def test_refused_bodies_are_not_kept_either(made):
    client = APIClient()
    headers = {"Authorization": f"Bearer {made.secret}", "Transfer-Encoding": "chunked"}
    response = client.post(SESSIONS, headers=headers)
    assert response.status_code == 411
    assert "no-store" in response["Cache-Control"]
