"""The OpenAPI schema says what the API takes and answers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from django.core.management import call_command
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.validation import validate_schema

from chatapp.api.problems import STATUS_OF
from chatapp.api.wire_schema import SHOWN
from chatapp.llm.error_kinds import ErrorKind
from chatapp.messages.wire import is_blank
from tests.chatapp.test_api_sessions import url
from tests.factories import SessionFactory, call, profile, store, talk

METHODS = {"get", "post", "put", "patch", "delete"}
ROOT = Path(__file__).parents[2]
API_DOC = ROOT / "docs" / "api.md"


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
        ("sessions/{session_id}/messages/", "AnyMessage"),
        ("sessions/{session_id}/branches/", "ListedBranch"),
        ("sessions/{session_id}/tree/", "Node"),
    ],
)
def test_lists_are_described_as_the_pages_they_are(schema, path, item):
    name = answer(schema, path)["application/json"]["$ref"].rsplit("/", 1)[-1]
    page = schema["components"]["schemas"][name]["properties"]
    beside = {"switch_under_way"} if item == "Node" else set()
    assert set(page) == {"next", "previous", "results"} | beside
    assert page["results"]["items"] == {"$ref": f"#/components/schemas/{item}"}


def test_the_root_branch_has_no_parent(schema):
    parent = schema["components"]["schemas"]["Branch"]["properties"]["parent"]
    assert parent["type"] == ["string", "null"]


def test_an_export_is_json_or_lines_of_it(schema):
    found = answer(schema, "sessions/{session_id}/export/")
    assert set(found) == {"application/json", "application/x-ndjson"}


# --- operations -----------------------------------------------------------------------------------


def operations(schema: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in schema["paths"].items():
        for method in METHODS & set(item):
            yield method, path, item[method]


def codes(operation: dict[str, Any], status: str) -> list[str]:
    """Return the codes that an operation answers with a status."""
    document = operation["responses"][status]["content"]["application/problem+json"]["schema"]
    shared, own = document["allOf"]
    assert shared == {"$ref": "#/components/schemas/Problem"}
    return own["properties"]["code"]["enum"]


def test_each_operation_has_a_summary_and_a_description(schema):
    found = list(operations(schema))
    assert len(found) > 30
    for method, path, operation in found:
        assert 5 < len(operation["summary"]) < 50, (method, path)
        assert not operation["summary"].endswith("."), (method, path)
        assert operation["description"], (method, path)


def test_each_operation_tells_its_errors_as_problem_documents(schema):
    for method, path, operation in operations(schema):
        needed = {"400", "401", "403", "503"}
        needed |= {"404"} if "{" in path else set()
        needed |= {"408", "411", "413", "415"} if "requestBody" in operation else set()
        assert needed <= set(operation["responses"]), (method, path)
        for status, response in operation["responses"].items():
            assert response["description"], (method, path, status)
            if status >= "400":
                assert codes(operation, status), (method, path, status)


def test_each_operation_takes_keys_in_both_forms_or_a_log_in(schema):
    schemes = schema["components"]["securitySchemes"]
    assert schemes["apiKey"]["scheme"] == "bearer"
    assert (schemes["apiKeyToken"]["in"], schemes["apiKeyToken"]["name"]) == (
        "header",
        "Authorization",
    )
    assert "Token" in schemes["apiKeyToken"]["description"]
    assert (schemes["cookieAuth"]["in"], schemes["cookieAuth"]["name"]) == ("cookie", "sessionid")
    for _, _, operation in operations(schema):
        assert operation["security"] == [{"apiKey": []}, {"apiKeyToken": []}, {"cookieAuth": []}]


@pytest.mark.django_db
def test_how_to_log_in_is_told(schema, client):
    told = schema["paths"]["/api/v1/models/"]["get"]["responses"]["401"]["headers"]
    answer = client.get("/api/v1/models/")
    assert answer.status_code == 401
    assert re.search(told["WWW-Authenticate"]["schema"]["pattern"], answer["WWW-Authenticate"])


def test_when_to_come_back_is_told(schema):
    turn = schema["paths"]["/api/v1/sessions/{session_id}/turns/"]["post"]
    assert codes(turn, "409") == ["turn_in_progress", "conflict"]
    assert {"throttled", "too_many_turns"} <= set(codes(turn, "429"))
    assert codes(turn, "502") == [kind.value for kind in ErrorKind]
    assert codes(turn, "503") == ["busy", "unavailable", "answer_not_stored"]
    required = {
        status: turn["responses"][status]["headers"]["Retry-After"]["required"]
        for status in ("409", "429", "503")
    }
    assert required == {"409": False, "429": True, "503": True}


def test_every_code_of_an_error_is_in_the_table():
    folders = [ROOT / "chatapp" / "api", ROOT / "compaction" / "api"]
    files = [ROOT / "chatapp" / "database.py"]
    files += [file for folder in folders for file in folder.glob("*.py")]
    texts = [file.read_text() for file in files]
    named = re.compile(r'(?:code=|default_code = )"(\w+)"')
    codes = {code for text in texts for code in named.findall(text)}
    assert {"busy", "too_many_turns", "key_reused", "missing_scope"} <= codes
    # These two are the kinds of others, which all have codes of their own.
    assert codes - {"unprocessable", "model_error"} <= set(STATUS_OF)


def test_the_page_tells_every_code():
    page = API_DOC.read_text()
    table = page[page.index("| status | code | meaning |") :]
    for code, status in STATUS_OF.items():
        assert re.search(rf"^\| [^|]*{status}[^|]* \|[^|]*`{code}`", table, re.MULTILINE), code


# --- bodies ---------------------------------------------------------------------------------------


def checker(schema: dict[str, Any], name: str) -> jsonschema.Draft202012Validator:
    shape = {"$ref": f"#/components/schemas/{name}", "components": schema["components"]}
    return jsonschema.Draft202012Validator(shape)


@pytest.mark.parametrize(
    ("body", "fits"),
    [
        ({"content": "x"}, True),
        ({"content": [{"type": "image_url", "image_url": {}}], "stream": True}, True),
        ({"messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]}, True),
        ({"role": "user", "content": "x", "stream": True}, True),
        ({"continue": True}, True),
        ({"continue": True, "stream": True, "messages": []}, True),
        ({}, False),
        ({"stream": True}, False),
        ({"content": " "}, False),
        ({"content": [{"type": "text", "text": ""}]}, False),
        ({"messages": []}, False),
        ({"continue": True, "content": "x"}, False),
        ({"content": "x", "contnt": 1}, False),
        ({"content": "x", "stream": "true"}, False),
        ({"messages": [{"role": "tool", "content": "x"}]}, False),
        ({"messages": [{"role": "user", "content": ""}]}, False),
        ({"messages": [{"role": "user", "content": "x", "tool_calls": [{}]}]}, False),
    ],
)
def test_the_schema_takes_the_turns_that_the_api_takes(
    schema, api, owner, model_server, queued, body, fits
):
    session = SessionFactory(owner=owner, wires=[*talk(1), {"role": "user", "content": "y"}])
    assert checker(schema, "TurnRequest").is_valid(body) is fits
    status = api.post(url(session, "turns/"), body, format="json").status_code
    assert status == (200 if fits else 400)


def test_a_text_that_shows_something_is_one_that_is_not_blank():
    shown = re.compile(SHOWN)
    for point in [*range(0xD800), *range(0xE000, 0x10000)]:
        assert bool(shown.search(chr(point))) is not is_blank(chr(point)), hex(point)


def test_bodies_with_other_fields_do_not_fit(schema):
    components = schema["components"]["schemas"]
    closed = {
        name
        for name, shape in components.items()
        if name.endswith("Request") and shape.get("additionalProperties") is False
    }
    assert {"SessionRequest", "ForkRequest", "CompactRequest", "PinRequest"} <= closed
    others = {name for name in components if name.endswith("Request")} - closed
    assert others == {"TurnRequest", "AppendRequest"}
    assert components["PinRequest"]["required"] == ["pinned"]


def test_an_answer_has_all_its_fields(schema):
    for name, shape in schema["components"]["schemas"].items():
        if name.endswith("Request") or name in ("Context", "Problem", "WireMessage"):
            continue
        assert set(shape.get("required", [])) == set(shape.get("properties", {})), name


def test_a_body_that_may_not_be_left_out_is_required(schema):
    def needed(path: str, method: str = "post") -> bool:
        return schema["paths"][f"/api/v1/{path}"][method]["requestBody"].get("required", False)

    for path in ("turns", "messages", "branches"):
        assert needed(f"sessions/{{session_id}}/{path}/")
    assert needed("messages/{message_id}/", "patch")
    assert not needed("sessions/{session_id}/compact/")
    assert not needed("runs/{run_id}/cancel/")


def test_words_need_a_verdict(schema):
    rules = schema["components"]["schemas"]["JudgeRequest"]
    assert rules["dependentRequired"] == {"note": ["verdict"]}


# --- streams --------------------------------------------------------------------------------------


def test_a_stream_is_described_event_by_event(schema):
    responses = schema["paths"]["/api/v1/sessions/{session_id}/turns/"]["post"]["responses"]
    event = responses["200"]["content"]["text/event-stream"]["schema"]
    assert event == {"$ref": "#/components/schemas/TurnEvent"}
    components = schema["components"]["schemas"]
    forms = [
        components[form["$ref"].rsplit("/", 1)[-1]] for form in components["TurnEvent"]["oneOf"]
    ]
    names = [form["properties"]["event"]["const"] for form in forms]
    page = API_DOC.read_text()
    told = page[page.index("| event | data | when |") : page.index("The phases of a")]
    assert set(names) == set(re.findall(r"^\| `(\w+)`", told, re.MULTILINE))
    assert names[-2:] == ["done", "error"]
    for form in forms:
        assert form["description"]
        assert form["properties"]["data"]["contentSchema"]
        assert set(form["examples"][0]) == {"event", "data"}
        json.loads(form["examples"][0]["data"])


def streamed(response: Any) -> list[tuple[str, Any]]:
    async def pieces() -> bytes:
        return b"".join([part async for part in response.streaming_content])

    found = re.findall(r"event: (\w+)\ndata: (.*)\n\n", asyncio.run(pieces()).decode())
    return [(name, json.loads(data)) for name, data in found]


@pytest.mark.django_db(transaction=True)
def test_events_are_as_the_schema_says(schema, api, owner, queued, model_server):
    profile(message_limit=6, max_context_tokens=0, keep_last_n=1)
    overflow = {"message": "too long", "code": "context_length_exceeded"}
    model_server.script = [
        {"when": {"purpose": "summary"}, "reply": {"text": "They talked about numbers."}},
        {"when": {"call": 1}, "reply": {"tool_calls": call("f", "1")["tool_calls"]}},
        {"when": {"call": 2}, "reply": {"error": {"status": 400, "body": {"error": overflow}}}},
        {"when": {"call": 3}, "reply": {"text": "fine", "reasoning": "hm"}},
        {"when": {}, "reply": {"error": {"status": 401, "body": {"error": {"message": "no"}}}}},
    ]
    session = SessionFactory(owner=owner, wires=talk(4))
    heard = set()
    for number in range(4):
        body = {"content": f"question {number}", "stream": True}
        answer = api.post(url(session, "turns/"), body, format="json")
        for name, data in streamed(answer):
            heard.add(name)
            shape = name.title().replace("_", "") + "Event"
            event = schema["components"]["schemas"][shape]["properties"]["data"]["contentSchema"]
            own = event | {"components": schema["components"]}
            jsonschema.Draft202012Validator(own).validate(data)
        store(session, talk(2))
    assert {"message", "delta", "tool_call", "compaction", "done", "error"} <= heard
