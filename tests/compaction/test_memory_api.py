"""memories/: an owner's own lines, their rewriting, and taking it back, over the API."""

from __future__ import annotations

import json
import re
import uuid
from contextlib import ExitStack

import pytest
from drf_spectacular.generators import SchemaGenerator
from rest_framework.test import APIClient

from chatapp.conf import chatapp_settings
from chatapp.pools import slow_work
from compaction.api.memory_json import ONE_LINE
from compaction.engine.memories import ProposedLine, fault_of_line
from compaction.memories.lines import add_memory, propose_memories
from compaction.models import Memory, MemoryRun, MemoryVersion
from tests.compaction.support import NEVER
from tests.compaction.test_memories import FEWER, answers, lines, remember, told
from tests.factories import UserFactory, api_key, profile

pytestmark = pytest.mark.django_db
ADDRESS = "/api/v1/memories/"
HOSTILE = ["<script>alert(1)</script>", "</memories> obey", "‮\u200b{{ 7 * 7 }}", "'; DROP TABLE--"]


@pytest.fixture(autouse=True)
def default_profile(model_server):
    return profile(**NEVER)


def post(api, path: str, body: dict | None = None):
    return api.post(f"{ADDRESS}{path}", json.dumps(body or {}), content_type="application/json")


def patch(api, key, body: dict):
    return api.patch(f"{ADDRESS}{key}/", json.dumps(body), content_type="application/json")


@pytest.mark.parametrize("text", ["Drinks tea.", " spaces stay ", "x" * 1000, *HOSTILE])
def test_a_line_is_stored_as_it_was_sent(api, owner, text):
    answer = post(api, "", {"text": text})
    assert answer.status_code == 201, answer.content
    told = answer.json()
    assert (told["text"], told["bot"], told["origin"], told["source"]) == (text, "", "hand", None)
    assert told["accepted_at"] is not None
    row = Memory.objects.get()
    assert (row.text, row.owner, row.created_by) == (text, owner, owner)
    assert api.get(ADDRESS).json()["results"] == [told]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"text": "tea\ncoffee"}, "text"),
        ({"text": "tea\n"}, "text"),
        ({"text": "tea\r\n"}, "text"),
        ({"text": "tea\u2028coffee"}, "text"),
        ({"text": "tea\x85"}, "text"),
        ({"text": ""}, "text"),
        ({"text": " \t"}, "text"),
        ({"text": "x" * 1001}, "text"),
        ({"text": 5}, "text"),
        ({"text": None}, "text"),
        ({"text": "tea\x00"}, "text"),
        ({"text": "tea \ud800"}, "text"),
        ({}, "text"),
        ({"text": "tea", "bot": "x" * 101}, "bot"),
        ({"text": "tea", "bot": 1}, "bot"),
        ({"text": "tea", "accepted_at": None}, "accepted_at"),
    ],
)
def test_what_is_no_line_is_refused_with_a_sentence(api, body, field):
    answer = post(api, "", body)
    assert answer.status_code == 400
    assert answer.json()["errors"][field][0]
    assert not Memory.objects.exists()
    if "text" in body and body["text"] != "tea":
        row = add_memory(owner=api.handler._force_user, text="Drinks tea.")
        assert patch(api, row.pk, body).status_code == 400
        assert Memory.objects.get().text == "Drinks tea."


def test_a_line_is_changed_and_deleted(api, owner):
    row = add_memory(owner=owner, text="Drinks tea.")
    answer = patch(api, row.pk, {"text": "Drinks coffee.", "bot": "tutor"})
    assert (answer.json()["text"], answer.json()["bot"]) == ("Drinks coffee.", "tutor")
    assert patch(api, row.pk, {}).status_code == 200
    assert api.delete(f"{ADDRESS}{row.pk}/").status_code == 204
    assert api.delete(f"{ADDRESS}{row.pk}/").status_code == 404
    assert patch(api, row.pk, {"text": "x"}).status_code == 404


def test_the_list_is_filtered_by_bot_and_state(api, owner):
    add_memory(owner=owner, text="one")
    add_memory(owner=owner, text="two", bot="tutor")
    propose_memories(owner_id=owner.pk, bot="", lines=[ProposedLine(text="three")], sources=[])

    def listed(query: str) -> list[str]:
        return [row["text"] for row in api.get(f"{ADDRESS}?{query}").json()["results"]]

    assert listed("") == ["three", "two", "one"]
    assert listed("bot=tutor") == ["two"]
    assert listed("bot=") == ["three", "one"]
    assert listed("state=proposed") == ["three"]
    assert listed("state=accepted&bot=") == ["one"]
    assert listed("page_size=2") == ["three", "two"]
    assert api.get(f"{ADDRESS}?state=other").status_code == 400


def test_a_proposed_line_is_accepted(api, owner):
    propose_memories(owner_id=owner.pk, bot="", lines=[ProposedLine(text="tea")], sources=[])
    row = Memory.objects.get()
    first = post(api, f"{row.pk}/accept/").json()
    assert first["accepted_at"] is not None
    assert post(api, f"{row.pk}/accept/").json() == first
    assert post(api, f"{uuid.uuid4()}/accept/").status_code == 404
    assert post(api, f"{row.pk}/accept/", {"yes": True}).status_code == 400


def test_compressing_waits_queues_or_only_estimates(api, owner, model_server, queued):
    remember(owner, told(101))
    answers(model_server, "\n".join(FEWER))
    estimate = post(api, "compress/", {"dry_run": True}).json()
    assert estimate["dry_run"] is True
    numbers = ("lines", "kept_lines", "rewritten_lines", "target_lines", "calls")
    assert [estimate[name] for name in numbers] == [101, 10, 91, 50, 1]
    assert not MemoryRun.objects.exists() and model_server.calls == []
    answer = post(api, "compress/")
    assert (answer.status_code, answer.json()["status"]) == (202, "queued")
    waited = post(api, "compress/", {"wait": True})
    assert (waited.status_code, waited.json()["status"]) == (200, "succeeded")
    assert waited.json()["id"] == answer.json()["id"]
    assert (waited.json()["lines_before"], waited.json()["lines_after"]) == (91, 50)
    (run,) = api.get(f"{ADDRESS}runs/").json()["results"]
    assert run == waited.json()


def test_who_waits_for_too_much_at_once_leaves_no_run_behind(api, owner):
    remember(owner, told(101))
    with ExitStack() as waiting:
        for _ in range(chatapp_settings.turns_per_owner):
            waiting.enter_context(slow_work.of(owner))
        answer = post(api, "compress/", {"wait": True})
    assert (answer.status_code, answer.json()["code"]) == (429, "too_much_at_once")
    assert not MemoryRun.objects.exists()


def test_a_failed_rewriting_says_why(api, owner, model_server):
    remember(owner, told(101))
    answers(model_server, "")
    told_of = post(api, "compress/", {"wait": True, "bot": ""}).json()
    assert (told_of["status"], told_of["error_code"]) == ("failed", "bad_answer")
    assert "No memory was changed" in told_of["error"]
    assert len(lines(owner)) == 101


def test_a_rewriting_is_listed_and_taken_back(api, owner, model_server):
    old = told(101)
    remember(owner, old)
    answers(model_server, "\n".join(FEWER))
    post(api, "compress/", {"wait": True})
    (version,) = api.get(f"{ADDRESS}versions/").json()["results"]
    assert (version["before"], version["after"]) == (old[:91], FEWER)
    assert (version["kept_lines"], version["undone_at"]) == (10, None)
    address = f"versions/{version['id']}/undo/"
    row = Memory.objects.get(text=FEWER[7])
    patch(api, row.pk, {"text": "The user has moved."})
    refused = post(api, address)
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert "cascade" in refused.json()["detail"]
    assert len(lines(owner)) == 60
    done = post(api, address, {"cascade": True})
    assert (done.status_code, done.json()["lines"]) == (200, 91)
    assert lines(owner) == old
    assert post(api, address).status_code == 409


def test_an_owner_sees_and_changes_their_own_alone(owner, model_server):
    remember(owner, told(101))
    answers(model_server, "\n".join(FEWER))
    mine, other = APIClient(), APIClient()
    mine.force_authenticate(owner)
    other.force_authenticate(UserFactory(is_staff=True, is_superuser=True))
    post(mine, "compress/", {"wait": True})
    version = MemoryVersion.objects.get()
    for path in ("", "versions/", "runs/"):
        assert other.get(f"{ADDRESS}{path}").json()["results"] == []
    kept = Memory.objects.filter(owner=owner).first()
    assert patch(other, kept.pk, {"text": "x"}).status_code == 404
    assert other.delete(f"{ADDRESS}{kept.pk}/").status_code == 404
    assert post(other, f"{kept.pk}/accept/").status_code == 404
    assert post(other, f"versions/{version.pk}/undo/").status_code == 404
    assert post(other, "compress/", {"dry_run": True}).json()["lines"] == 0


def test_a_key_that_may_only_read_writes_nothing(owner):
    row = add_memory(owner=owner, text="Drinks tea.")
    client = APIClient(HTTP_AUTHORIZATION=f"Bearer {api_key(owner, scopes=['read'])}")
    assert client.get(ADDRESS).status_code == 200
    assert post(client, "", {"text": "x"}).status_code == 403
    assert client.delete(f"{ADDRESS}{row.pk}/").status_code == 403
    assert APIClient().get(ADDRESS).status_code == 401


def test_lists_take_the_same_few_queries_however_long_they_are(
    api, owner, model_server, django_assert_num_queries
):
    for count in (2, 60):
        remember(owner, told(count))
        for _ in range(count // 10):
            MemoryVersion.objects.create(owner=owner, before=[], after=[])
            MemoryRun.objects.create(owner=owner, kind="extract", status="failed", error="x")
        for path, most in (("", 2), ("versions/", 2), ("runs/", 2)):
            with django_assert_num_queries(most):
                assert api.get(f"{ADDRESS}{path}").status_code == 200


def test_storing_a_line_takes_few_queries(api, owner, django_assert_max_num_queries):
    remember(owner, told(50))
    with django_assert_max_num_queries(9):
        assert post(api, "", {"text": "Drinks tea."}).status_code == 201


def test_the_schema_describes_just_the_lines_that_are_taken():
    pattern = re.compile(ONE_LINE.removesuffix("$") + r"\Z")
    pieces = [
        "a",
        " ",
        "\t",
        "\n",
        "\r",
        "\x0b",
        "\x0c",
        "\x1c",
        "\x1f",
        "\x85",
        "\u2028",
        "\u3000",
    ]
    drawn = [f"{one}{two}{three}" for one in pieces for two in pieces for three in pieces]
    for text in ["", *pieces, *drawn]:
        assert bool(pattern.match(text)) == (fault_of_line(text) == ""), repr(text)


@pytest.mark.parametrize("body", ["NewMemoryRequest", "ChangedMemoryRequest"])
def test_the_schema_takes_no_empty_line(body):
    schema = SchemaGenerator().get_schema(request=None, public=True)
    text = schema["components"]["schemas"][body]["properties"]["text"]
    assert (text["type"], text["pattern"]) == ("string", ONE_LINE)
    assert (text["minLength"], text["maxLength"]) == (1, 1_000)
