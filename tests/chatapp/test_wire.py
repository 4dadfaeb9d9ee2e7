"""Messages as clients write them and as rows: what is kept, what is cleaned, what is refused."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatapp.messages.wire import (
    Cleaner,
    InvalidMessageError,
    check_size,
    content_of,
    fields_of,
    text_of,
    to_wire,
)
from chatapp.models import Message

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def kept(wire: dict) -> dict:
    """Return the wire message after a trip through the columns of a row."""
    return to_wire(Message(**fields_of(wire)))


@pytest.mark.parametrize("content", ["hello", "", None, "你好\n🙂", " spaces stay \t"])
def test_text_and_null_come_back_as_they_were(content):
    assert kept({"role": "assistant", "content": content})["content"] == content


def test_parts_come_back_in_their_order_with_their_own_keys():
    parts = [
        {"type": "text", "text": "look: ", "cache_control": {"type": "ephemeral"}},
        IMAGE,
        {"type": "text", "text": "你好"},
        {"type": "text", "text": ""},
    ]
    assert kept({"role": "user", "content": parts})["content"] == parts


def test_the_text_of_parts_is_in_the_content_column():
    parts = [{"type": "text", "text": "one "}, IMAGE, {"type": "text", "text": "two"}]
    assert fields_of({"role": "user", "content": parts})["content"] == "one two"


def test_a_text_among_parts_becomes_a_text_part():
    wire = kept({"role": "user", "content": ["plain"]})
    assert wire["content"] == [{"type": "text", "text": "plain"}]


def test_no_parts_at_all_stay_no_parts():
    assert kept({"role": "user", "content": []})["content"] == []


@given(
    st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
)
def test_any_texts_in_parts_come_back_equal(texts):
    parts = [{"type": "text", "text": text} for text in texts]
    assert content_of(Message(**fields_of({"role": "user", "content": parts}))) == parts


def test_nul_and_lone_surrogates_become_replacement_characters_and_are_counted():
    fields = fields_of({"role": "tool", "tool_call_id": "c", "content": "a\x00b\ud83dc"})
    assert fields["content"] == "a\ufffdb\ufffdc"
    assert fields["metadata"]["replaced_characters"] == 2


def test_arguments_names_ids_and_unknown_keys_are_cleaned_too():
    call = {"id": "c\x00", "function": {"name": "f\x00", "arguments": "{\x00}"}}
    fields = fields_of(
        {"role": "assistant", "content": None, "tool_calls": [call], "x": {"k\x00": ["\ud800"]}}
    )
    assert "\\u0000" not in json.dumps(fields)
    assert fields["metadata"]["replaced_characters"] == 5


def test_a_whole_emoji_is_left_alone():
    fields = fields_of({"role": "user", "content": "🙂"})
    assert (fields["content"], fields["metadata"]) == ("🙂", {})


def test_arguments_that_are_no_json_are_kept_as_text():
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{not json"}}
    assert kept({"role": "assistant", "content": None, "tool_calls": [call]})["tool_calls"] == [
        call
    ]


def test_arguments_given_as_an_object_become_json_text():
    call = {"id": "c", "function": {"name": "f", "arguments": {"a": "é"}}}
    fields = fields_of({"role": "assistant", "content": None, "tool_calls": [call]})
    assert fields["tool_calls"][0]["function"]["arguments"] == '{"a":"é"}'


def test_repeated_call_ids_are_stored_as_they_came():
    call = {"id": "same", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    fields = fields_of({"role": "assistant", "content": None, "tool_calls": [call, call]})
    assert [c["id"] for c in fields["tool_calls"]] == ["same", "same"]


def test_a_call_without_an_id_gets_one():
    call = {"function": {"name": "f"}}
    fields = fields_of({"role": "assistant", "content": None, "tool_calls": [call]})
    assert fields["tool_calls"] == [
        {"id": "call_0", "type": "function", "function": {"name": "f", "arguments": ""}}
    ]


def test_the_old_function_form_becomes_a_call_and_its_result():
    call = fields_of(
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    )
    result = fields_of({"role": "function", "name": "f", "content": "42"})
    assert call["tool_calls"][0]["id"] == result["tool_call_id"]
    assert (result["role"], result["tool_name"]) == ("tool", "f")


def test_a_developer_message_is_a_system_message_that_remembers_its_name():
    fields = fields_of({"role": "developer", "content": "rules"})
    assert fields["role"] == "system"
    assert to_wire(Message(**fields))["role"] == "developer"


def test_unknown_keys_are_kept_in_metadata_and_not_sent():
    fields = fields_of({"role": "user", "content": "x", "colour": "blue", "nothing": None})
    assert fields["metadata"] == {"extra": {"colour": "blue"}}
    assert to_wire(Message(**fields)) == {"role": "user", "content": "x"}


def test_a_refusal_is_kept_and_sent():
    assert kept({"role": "assistant", "content": None, "refusal": "no"})["refusal"] == "no"


@pytest.mark.parametrize(
    ("wire", "says"),
    [
        ({"content": "x"}, "role"),
        ({"role": "robot", "content": "x"}, "role"),
        ({"role": ["user"], "content": "x"}, "role"),
        ({"role": "user", "content": 7}, "content"),
        ({"role": "user", "content": {"type": "text"}}, "content"),
        ({"role": "user", "content": [3]}, "content[0]"),
        ({"role": "user", "content": [{"text": "no type"}]}, "content[0]"),
        ({"role": "user", "content": [{"type": "x", "chars": "many"}]}, "content[0]"),
        ({"role": "assistant", "tool_calls": "f"}, "tool_calls"),
        ({"role": "assistant", "tool_calls": ["f"]}, "tool_calls[0]"),
        ({"role": "assistant", "tool_calls": [{"function": {}}]}, "tool_calls[0]"),
        ({"role": "user", "tool_calls": [{"function": {"name": "f"}}]}, "tool_calls"),
        ({"role": "tool", "tool_call_id": 5, "content": ""}, "tool_call_id"),
        ({"role": "assistant", "content": None, "refusal": {"a": 1}}, "refusal"),
        ({"role": "user", "content": "x", "name": ["n"]}, "name"),
    ],
)
def test_what_has_no_place_in_a_transcript_is_refused_by_its_name(wire, says):
    with pytest.raises(InvalidMessageError, match=says.replace("[", r"\[")):
        fields_of(wire)


def test_json_that_is_nested_too_deeply_is_refused_with_a_sentence():
    value: list = []
    for _ in range(5000):
        value = [value]
    with pytest.raises(InvalidMessageError, match="nested deeper than 100 levels"):
        Cleaner().json(value)


def test_json_of_a_hundred_levels_is_taken():
    value: list | str = "\x00"
    for _ in range(100):
        value = [value]
    assert "\ufffd" in json.dumps(Cleaner().json(value), ensure_ascii=False)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_no_json_has_become_null(number):
    assert Cleaner().json({"n": [number, 1.5, 7]}) == {"n": [None, 1.5, 7]}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a", "a"),
        (None, ""),
        (7, ""),
        ([{"type": "text", "text": "a"}, IMAGE, {"type": "text", "text": "b"}], "ab"),
        ([{"type": "text", "text": None}, "loose"], ""),
    ],
)
def test_the_text_of_any_content_can_be_read(content, text):
    assert text_of(content) == text


LONG = "x" * 500
CALL = {"id": "c", "function": {"name": "find", "arguments": "12345"}}


@pytest.mark.parametrize(
    "wire",
    [
        {"role": "user", "content": LONG},
        {"role": "assistant", "content": None, "reasoning_content": LONG},
        {"role": "assistant", "content": None, "tool_calls": [CALL | {"own": LONG}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL | {"id": LONG}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL] * 20},
        {"role": "tool", "content": "ok", "tool_call_id": LONG},
        {"role": "user", "content": "a", "name": LONG},
        {"role": "user", "content": "a", "extra_key": {"deep": [LONG]}},
        {"role": "user", "content": "a", LONG: 1},
        {"role": "user", "content": "a", "number": 10**400 + 1, "other": 10**100},
        {"role": "user", "content": [{"type": "text", "text": LONG}]},
    ],
    ids=lambda wire: "-".join(key[:12] for key in wire),
)
def test_whatever_makes_a_message_long_counts(wire):
    with pytest.raises(InvalidMessageError, match=r"characters; 499 .*MAX_MESSAGE_CHARS"):
        check_size(fields_of(wire), most_chars=499, most_part_chars=10_000)


def test_parts_besides_text_have_a_limit_of_their_own():
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{LONG}"}}
    fields = fields_of({"role": "user", "content": [image, {"type": "text", "text": "see"}]})
    check_size(fields, most_chars=100, most_part_chars=1_000)
    with pytest.raises(InvalidMessageError, match="MAX_PART_CHARS"):
        check_size(fields, most_chars=100, most_part_chars=499)
