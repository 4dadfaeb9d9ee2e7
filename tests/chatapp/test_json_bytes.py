"""JSON as bytes: what orjson refuses is written all the same."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatapp.api.json_bytes import as_bytes, as_stored, encoded
from chatapp.api.turns import _encode
from chatapp.turns.streaming import Event

ALONE = "half an emoji \ud83d"
texts = st.text(st.characters(exclude_categories=[]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)  # fmt: skip


@given(values)
def test_whatever_json_can_say_is_written_and_read_back(value):
    assert json.loads(as_bytes(value)) == value


@given(values, values)
def test_a_part_that_is_encoded_already_stands_where_its_value_would(value, other):
    stored = json.dumps(value)
    written = as_bytes({"a": encoded(value), "b": as_stored(stored), "c": as_stored(None)})
    assert json.loads(written) == {"a": value, "b": value, "c": None}


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (uuid.UUID(int=255), '"00000000-0000-0000-0000-0000000000ff"'),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), '"2026-01-02T03:04:05Z"'),
        (datetime(2026, 1, 2, 3, 4, 5, 600), '"2026-01-02T03:04:05.000600Z"'),
        (Decimal("3.500000"), "3.5"),
        ({1: "a", None: "b"}, '{"1":"a","null":"b"}'),
        ((1, 2), "[1,2]"),
        ("é", '"é"'),
        (ALONE, '"half an emoji \\ud83d"'),
        (2**64, "18446744073709551616"),
    ],
)
def test_values_are_written_as_the_api_always_wrote_them(value, written):
    assert as_bytes(value).decode() == written


def test_a_frame_of_a_stream_is_one_line_of_data():
    frame = _encode(Event(name="delta", payload={"text": "a\nb\r\n\u2028é"}))
    name, data, *end = frame.decode().split("\n")
    assert (name, end) == ("event: delta", ["", ""])
    assert json.loads(data.removeprefix("data: ")) == {"text": "a\nb\r\n\u2028é"}


def test_half_an_emoji_in_a_delta_can_be_joined_with_its_other_half():
    halves = [
        _encode(Event(name="delta", payload={"text": half})).split(b"data: ")[1]
        for half in ("\ud83d", "\ude00")
    ]
    text = "".join(json.loads(half)["text"] for half in halves)
    assert text.encode("utf-16", "surrogatepass").decode("utf-16") == "😀"
