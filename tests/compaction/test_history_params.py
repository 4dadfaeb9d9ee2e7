"""The JSON of another system, by command and in the form; nothing is half-applied."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.urls import reverse

from compaction.engine.history_parameters import NODE_REQUEST
from compaction.models import CompactionProfile
from compaction.profiles import find_profile, save_profile
from tests.compaction.test_admin import page_of
from tests.compaction.test_profile_page import check, save
from tests.engine.test_history_json import EXAMPLE

pytestmark = pytest.mark.django_db

ATTACK = "<script>alert(1)</script>"


@pytest.fixture
def document(tmp_path):
    def write(text: str | bytes) -> str:
        path: Path = tmp_path / "params.json"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


def imported(*arguments: str) -> str:
    out = io.StringIO()
    call_command("import_history_params", *arguments, stdout=out)
    return out.getvalue()


def refusal(*arguments: str) -> str:
    versions = CompactionProfile.objects.count()
    with pytest.raises(CommandError) as refused:
        imported(*arguments)
    assert CompactionProfile.objects.count() == versions
    return str(refused.value)


def test_the_example_becomes_the_next_version_of_the_preset(document):
    before = find_profile("abridged")
    said = imported(document(EXAMPLE))
    row = find_profile("abridged")
    assert (row.version, row.base) == (before.version + 1, "abridged")
    assert str(row) in said
    parameters = row.resolved()
    assert parameters.trigger_on_history_size_chars == 50_000
    assert parameters.prompt == "<the prompt, see below>"
    assert parameters.abridged_action_chars_limit == 200
    assert "nothing was stored" in imported(document(EXAMPLE))


def test_a_new_name_makes_a_profile_of_the_preset_and_an_old_one_keeps_the_rest(document):
    imported(document(EXAMPLE), "--profile", "theirs")
    assert find_profile("theirs").base == "abridged"
    save_profile(name="mine", base="bisect", parameters={"message_limit": 7, "prompt": "mine"})
    imported(document('{"prompt": null, "cache_ttl_ms": 60000}'), "--profile", "mine")
    row = find_profile("mine")
    assert (row.base, row.parameters) == ("bisect", {"message_limit": 7, "cache_ttl_ms": 60_000})


def test_a_refusal_names_every_path_and_stores_nothing(document):
    text = EXAMPLE.replace("50000", '"50000"').replace("10000", "-10000")
    said = refusal(document(text))
    assert "Nothing was stored." in said
    assert 'trigger_on_history_size_chars: Must be a whole number, and is the text "50000".' in said
    assert "abridged_history_params.total_chars_limit: Must not be negative" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "This is no JSON"),
        (b"\xff\xfe", "is no UTF-8 text"),
        (
            json.dumps({"summary_node_request_message_template": "{summary}"}),
            "summary_node_request_message_template: Must hold {abridged_history}",
        ),
    ],
)
def test_what_cannot_be_read_is_refused(document, text, said):
    assert said in refusal(document(text))


def test_a_file_that_is_not_there_is_named(tmp_path):
    assert "cannot be read" in refusal(str(tmp_path / "nothing.json"))


# --- the form -------------------------------------------------------------------------------------


@pytest.fixture
def mine() -> CompactionProfile:
    return save_profile(name="mine", base="abridged", parameters={"message_limit": 50})


def test_pasted_json_counts_over_the_fields(admin_client, mine):
    save(admin_client, mine, history_json=EXAMPLE, cache_ttl_ms="1000")
    row = find_profile("mine")
    assert row.version == mine.version + 1
    assert row.parameters["cache_ttl_ms"] == 300_000
    assert row.parameters["message_limit"] == 50
    assert row.parameters["abridged_user_message_chars_limit"] == 1_000


def test_wrong_json_keeps_what_was_typed_and_says_what_is_wrong(admin_client, mine):
    text = json.dumps({"prompt": 5, ATTACK: 1, "cache_ttl_ms": "soon"})
    response = save(admin_client, mine, history_json=text)
    assert find_profile("mine").version == mine.version
    assert "prompt: Must be a text, and is the number 5." in response.text
    assert "cache_ttl_ms: Must be a whole number" in response.text
    assert ATTACK not in response.text
    errors = check(admin_client, mine, history_json=text)["errors"]["history_json"]
    assert len(errors) == 3


def test_texts_of_several_lines_have_a_box_of_several_lines(admin_client, mine):
    page = admin_client.get(page_of(mine)).text
    for name in ("prompt", "summary_node_request_message_template", "tool_actions"):
        assert f'<textarea name="{name}"' in page
    prompt = "Line one.\r\nLine two."
    save(admin_client, mine, prompt=prompt)
    assert find_profile("mine").parameters["prompt"] == "Line one.\nLine two."


def test_a_template_without_a_place_is_refused_and_not_replaced(admin_client, mine):
    name = "summary_node_request_message_template"
    errors = check(admin_client, mine, **{name: "no places"})["errors"]
    assert errors[name] == [
        "Must hold {abridged_history}: nothing would stand for it. Put it where it belongs."
    ]
    long = NODE_REQUEST + "\n" + "x" * 2_000
    save(admin_client, mine, **{name: long})
    assert find_profile("mine").parameters[name] == long


def test_a_prompt_that_is_too_long_is_refused(admin_client, mine):
    errors = check(admin_client, mine, prompt="x" * 20_001)["errors"]["prompt"]
    assert "20" in errors[0]


def test_the_form_of_a_new_profile_takes_it_too(admin_client):
    address = reverse("admin:compaction_compactionprofile_add")
    values = {"name": "theirs", "base": "abridged", "description": "", "history_json": EXAMPLE}
    admin_client.post(address, values)
    assert find_profile("theirs").parameters["trigger_on_history_size_chars"] == 50_000
