"""The OpenAPI schema says what the API answers."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import call_command
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.validation import validate_schema


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return SchemaGenerator().get_schema(request=None, public=True)


def answer(schema: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the media types of what GET answers, with their schemas."""
    content = schema["paths"][f"/api/v1/{path}"]["get"]["responses"]["200"]["content"]
    return {media: entry["schema"] for media, entry in content.items()}


def test_the_schema_is_openapi(schema):
    validate_schema(schema)


def test_nothing_in_it_is_guessed_and_the_names_of_its_enums_stay(tmp_path):
    file = tmp_path / "schema.yml"
    call_command("spectacular", file=str(file), fail_on_warn=True)
    assert {"WireEnum:", "RoleEnum:"} <= set(file.read_text().split())


@pytest.mark.parametrize(
    ("path", "item"),
    [
        ("sessions/", "Session"),
        ("sessions/{session_id}/messages/", "Message"),
        ("sessions/{session_id}/branches/", "Branch"),
    ],
)
def test_lists_are_described_as_the_pages_they_are(schema, path, item):
    name = answer(schema, path)["application/json"]["$ref"].rsplit("/", 1)[-1]
    page = schema["components"]["schemas"][name]["properties"]
    assert set(page) == {"next", "previous", "results"}
    assert page["results"]["items"] == {"$ref": f"#/components/schemas/{item}"}


def test_the_root_branch_has_no_parent(schema):
    assert schema["components"]["schemas"]["Branch"]["properties"]["parent"]["nullable"] is True


def test_an_export_is_json_or_lines_of_it(schema):
    found = answer(schema, "sessions/{session_id}/export/")
    assert set(found) == {"application/json", "application/x-ndjson"}
