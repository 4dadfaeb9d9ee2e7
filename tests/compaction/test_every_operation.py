"""Every operation of the API: names it does not know, and keys that do not open it.

What is not known is refused by its name and with what is meant; a key opens what its scopes say.

Operations, their parameters and their fields come from the schema, so that a new one is tried, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from drf_spectacular.generators import SchemaGenerator
from rest_framework.test import APIClient

from chatapp.keys import create_key
from chatapp.models import ImportJob, Message
from compaction.memories.lines import add_memory
from compaction.models import CompactionRun, MemoryRun, MemoryVersion, SessionSummary
from tests.compaction.support import NEVER, compact
from tests.factories import SessionFactory, UserFactory, profile, talk

pytestmark = pytest.mark.django_db
UNKNOWN = "zzq"
BODY_METHODS = ("post", "patch", "put")
WITHOUT_FIELDS = {"/api/v1/sessions/import/"}
"""Its body is a file."""
FREE_PARAMETERS = {"/api/v1/sessions/import/"}
"""What a reader of files may take is told by its query; tried in tests of imports."""


@cache
def schema() -> dict[str, Any]:
    return SchemaGenerator().get_schema(request=None, public=True)


def operations() -> Iterator[tuple[str, str]]:
    for path, methods in schema()["paths"].items():
        for method in methods:
            if method in ("get", "delete", *BODY_METHODS):
                yield method, path


def parameters(method: str, path: str) -> list[str]:
    told = schema()["paths"][path][method].get("parameters", [])
    return [one["name"] for one in told if one["in"] == "query"]


def fields(method: str, path: str) -> list[str]:
    """The names that a body may have."""
    content = schema()["paths"][path][method].get("requestBody", {}).get("content", {})
    found = content.get("application/json", {}).get("schema", {})
    forms = [found, *found.get("oneOf", []), *found.get("anyOf", [])]
    return [name for form in forms for name in _resolved(form).get("properties", {})]


def _resolved(form: dict[str, Any]) -> dict[str, Any]:
    name = form.get("$ref", "").rpartition("/")[2]
    return schema()["components"]["schemas"][name] if name else form


@pytest.fixture
def address(owner, model_server, queued):
    """Put ids that are there into a path."""
    profile(**NEVER, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(6))
    assert compact(session).status == "succeeded"
    run = MemoryRun.objects.create(owner=owner)
    ids = {
        "session_id": session.pk,
        "branch_id": session.branch.pk,
        "message_id": Message.objects.filter(session=session, role="user").first().pk,
        "run_id": CompactionRun.objects.get().pk,
        "summary_id": SessionSummary.objects.get().pk,
        "memory_id": add_memory(owner=owner, text="Drinks tea.").pk,
        "version_id": MemoryVersion.objects.create(owner=owner, run=run).pk,
        "import_id": ImportJob.objects.create(owner=owner, status="failed").pk,
    }
    return lambda path: re.sub(r"\{(\w+)\}", lambda found: str(ids[found[1]]), path)


def near(name: str) -> str:
    """A name as somebody mistypes it."""
    return name + name[-1] * 2


def refusal(response: Any, name: str) -> str:
    assert response.status_code == 400, (response.status_code, response.content[:300])
    return str(response.json()["errors"][name])


@pytest.mark.parametrize(("method", "path"), list(operations()))
def test_a_parameter_that_is_not_there_is_refused(api, address, method, path):
    known = parameters(method, path)
    if path in FREE_PARAMETERS:
        return
    send = getattr(api, method)
    said = refusal(send(f"{address(path)}?{UNKNOWN}=1", **body_of(method)), UNKNOWN)
    assert UNKNOWN in said
    for name in known[:1]:
        said = refusal(send(f"{address(path)}?{near(name)}=1", **body_of(method)), near(name))
        assert f"Did you mean '{name}'" in said


def body_of(method: str) -> dict[str, Any]:
    return {"data": {}, "format": "json"} if method in BODY_METHODS else {}


@pytest.mark.parametrize(
    ("method", "path"),
    [one for one in operations() if one[0] in BODY_METHODS and one[1] not in WITHOUT_FIELDS],
)
def test_a_field_that_is_not_there_is_refused(api, address, method, path):
    send = getattr(api, method)
    said = refusal(send(address(path), {UNKNOWN: 1}, format="json"), UNKNOWN)
    assert UNKNOWN in said
    for name in fields(method, path)[:1]:
        said = refusal(send(address(path), {near(name): 1}, format="json"), near(name))
        assert f"Did you mean '{name}'" in said


@pytest.mark.parametrize(("method", "path"), list(operations()))
def test_a_key_opens_what_its_scopes_say_and_nothing_else(owner, address, method, path):
    is_read = method == "get"
    owner.is_staff = True  # a key for figures is staff's
    owner.save()
    for scope, opens in (("admin-read", False), ("read", is_read), ("write", not is_read)):
        secret = create_key(owner=owner, name=scope, scopes=[scope]).secret
        client = APIClient(HTTP_AUTHORIZATION=f"Bearer {secret}")
        response = getattr(client, method)(address(path), **body_of(method))
        is_refused = response.status_code == 403 and response.json()["code"] == "missing_scope"
        assert is_refused is not opens, (scope, response.status_code)
        assert response["Cache-Control"] == "no-store", scope


@pytest.mark.parametrize(("method", "path"), list(operations()))
def test_nobody_is_told_to_log_in_and_others_find_nothing(address, method, path):
    there = address(path)
    assert getattr(APIClient(), method)(there, **body_of(method)).status_code == 401
    stranger = APIClient()
    stranger.force_authenticate(UserFactory())
    response = getattr(stranger, method)(there, **body_of(method))
    if "{" in path:
        assert response.status_code == 404, response.content


def test_the_operations_are_found():
    assert len(list(operations())) > 50
    assert fields("post", "/api/v1/sessions/{session_id}/compact/")
