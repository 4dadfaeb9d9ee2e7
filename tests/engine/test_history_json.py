"""The JSON of other systems: read key by key, and refused as a whole with every wrong path."""

from __future__ import annotations

import json

import pytest

from compaction.engine.history_json import (
    HistoryJsonError,
    check_history_values,
    read_history_json,
)
from compaction.engine.profile import PRESETS, build

# The established example, of three of nine nested keys.
EXAMPLE = """{
  "trigger_on_history_size_chars": 50000,
  "trigger_on_history_size_chars_when_cache_expiring": 30000,
  "history_tail_size_chars_to_exclude": 5000,
  "prompt": "<the prompt, see below>",
  "cache_ttl_ms": 300000,
  "buffer_time_before_cache_expiration_ms": 30000,
  "abridged_history_params": {
    "total_chars_limit": 10000,
    "user_message_chars_limit": 1000,
    "agent_response_chars_limit": 2000
  }
}"""
NESTED = "abridged_history_params"


def refused(text: str) -> dict[str, str]:
    with pytest.raises(HistoryJsonError) as error:
        read_history_json(text)
    return error.value.errors


@pytest.mark.parametrize("base", ["abridged", "bisect"])
def test_the_example_is_read_and_what_it_leaves_out_is_filled_in(base):
    profile = build(PRESETS[base], read_history_json(EXAMPLE).over({}))
    assert profile.trigger_on_history_size_chars == 50_000
    assert profile.trigger_on_history_size_chars_when_cache_expiring == 30_000
    assert profile.history_tail_size_chars_to_exclude == 5_000
    assert profile.prompt == "<the prompt, see below>"
    assert profile.cache_ttl_ms == 300_000
    assert profile.buffer_time_before_cache_expiration_ms == 30_000
    assert profile.abridged_total_chars_limit == 10_000
    assert profile.abridged_user_message_chars_limit == 1_000
    assert profile.abridged_agent_response_chars_limit == 2_000
    assert profile.abridged_action_chars_limit == 200
    lists = ("files_modified", "files_created", "files_deleted", "files_viewed")
    assert [getattr(profile, f"abridged_num_{name}") for name in lists] == [10] * 4
    assert profile.abridged_num_terminal_commands == 10


def test_it_is_put_over_a_profile_key_by_key_and_null_gives_back():
    own = {"abridged_action_chars_limit": 50, "cache_ttl_ms": 9, "message_limit": 7}
    text = '{"cache_ttl_ms": null, "abridged_history_params": {"total_chars_limit": 300}}'
    found = read_history_json(text).over(own)
    assert found == {
        "abridged_action_chars_limit": 50,
        "message_limit": 7,
        "abridged_total_chars_limit": 300,
    }


def test_null_for_the_nested_part_gives_all_of_it_back():
    own = {"abridged_action_chars_limit": 50, "abridged_num_files_viewed": 3}
    assert read_history_json('{"abridged_history_params": null}').over(own) == {}


def test_every_wrong_path_is_named_at_once():
    text = json.dumps(
        {
            "trigger_on_history_size_chars": "50000",
            "history_tail_size_chars_to_exclude": -1,
            "cache_ttl_ms": 1.5,
            "prompt": 3,
            "buffer_time": 1,
            "summary_node_request_message_template": "The summary: {summary}",
            NESTED: {"total_chars_limit": True, "user_limit": 1, "action_chars_limit": [1]},
        }
    )
    found = refused(text)
    assert found["trigger_on_history_size_chars"] == (
        'Must be a whole number, and is the text "50000".'
    )
    assert found["history_tail_size_chars_to_exclude"] == "Must not be negative, and is -1."
    assert found["cache_ttl_ms"] == "Must be a whole number, and is the number 1.5."
    assert found["prompt"] == "Must be a text, and is the number 3."
    assert found["buffer_time"].startswith("There is no such key. Known: trigger_on_history")
    assert found[f"{NESTED}.total_chars_limit"] == "Must be a whole number, and is true."
    assert found[f"{NESTED}.user_limit"].startswith("There is no such key. Known: total_chars")
    assert found[f"{NESTED}.action_chars_limit"] == "Must be a whole number, and is a list."
    template = found["summary_node_request_message_template"]
    assert template.startswith("Must hold {abridged_history}")
    assert len(found) == 9


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no JSON: Expecting value at line 1, column 1"),
        ('{"prompt": "a"', "no JSON: Expecting ',' delimiter at line 1, column 15"),
        ("[1]", "must be one JSON object, and is a list"),
        ('"x"', 'must be one JSON object, and is the text "x"'),
        ("null", "must be one JSON object, and is null"),
        ('{"cache_ttl_ms": NaN}', "NaN is no number"),
        ('{"cache_ttl_ms": ' + "9" * 5000 + "}", "a number is too long"),
        ("[" * 100_000, "nested too deep"),
        (" " * 200_001, "longer than 200,000 characters"),
    ],
)
def test_what_is_no_such_json_is_refused_in_a_sentence(text, said):
    assert said in refused(text)[""]


def test_a_key_that_stands_there_twice_is_refused():
    assert "more than once" in refused('{"prompt": "a", "prompt": "b"}')["prompt"]
    nested = '{"abridged_history_params": {"total_chars_limit": 300, "total_chars_limit": 400}}'
    errors = refused(nested)
    assert list(errors) == ["abridged_history_params.total_chars_limit"]
    assert "more than once" in errors["abridged_history_params.total_chars_limit"]


def test_a_nested_path_is_no_key_of_its_own():
    path = "abridged_history_params.total_chars_limit"
    assert "no such key" in refused(f'{{"{path}": 300}}')[path]


def test_what_editors_put_before_a_file_is_pasted_along_and_skipped():
    assert read_history_json('\ufeff{"cache_ttl_ms": 5}').values == {"cache_ttl_ms": 5}


@pytest.mark.parametrize("escaped", ["a\\u0000b", "\\ud800", "x\\udfff"])
def test_a_text_that_no_database_stores_is_refused_by_its_path(escaped):
    found = read_history_json(f'{{"prompt": "{escaped}"}}')
    with pytest.raises(HistoryJsonError) as error:
        check_history_values(PRESETS["abridged"], found.over({}))
    assert "NUL or a broken character" in error.value.errors["prompt"]


def test_a_nested_part_that_is_no_object_is_refused():
    assert refused(f'{{"{NESTED}": 5}}') == {NESTED: "Must be an object, and is the number 5."}


@pytest.mark.parametrize(
    ("document", "path", "said"),
    [
        (
            {"summary_node_request_message_template": "only {summary}"},
            "summary_node_request_message_template",
            "Must hold {abridged_history}",
        ),
        ({"cache_ttl_ms": 10**12}, "cache_ttl_ms", "Must be from 0 to"),
        (
            {NESTED: {"num_files_viewed_limit": 10**6}},
            f"{NESTED}.num_files_viewed_limit",
            "Must be from 0 to 10000",
        ),
        ({"prompt": "x" * 20_001}, "prompt", "at most 20,000 characters"),
    ],
)
def test_what_a_profile_could_not_work_with_is_named_by_its_path_too(document, path, said):
    with pytest.raises(HistoryJsonError) as error:
        check_history_values(PRESETS["abridged"], read_history_json(json.dumps(document)).over({}))
    assert said in error.value.errors[path]
    assert str(error.value).startswith(f"{path}: ")
