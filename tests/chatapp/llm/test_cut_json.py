"""JSON that was cut in its middle is read as far as it came; long strings are cut on their way."""

from __future__ import annotations

import json
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatapp.llm.cut_json import LONGEST_STRING_BYTES, read_cut, without_long_strings
from tests.facts import code

FACT = code(3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(max_size=5), VALUES, max_size=4) | st.lists(VALUES, max_size=4)


def is_beginning_of(part, whole) -> bool:
    """Whether a value is what a text of the whole said up to some place."""
    if isinstance(whole, str):
        return isinstance(part, str) and whole.startswith(part)
    if isinstance(whole, list):
        return isinstance(part, list) and all(map(is_beginning_of, part, whole))
    if isinstance(whole, dict):
        return isinstance(part, dict) and all(
            name in whole and is_beginning_of(value, whole[name]) for name, value in part.items()
        )
    return bool(part == whole)


@given(OBJECTS, st.booleans(), st.data())
def test_a_text_cut_anywhere_gives_what_it_said_until_then(whole, ascii_only, data):
    text = json.dumps(whole, ensure_ascii=ascii_only)
    place = data.draw(st.integers(1, len(text)))
    found = read_cut(text[:place])
    assert is_beginning_of(found, whole)
    if place == len(text):
        assert found == whole


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"error": {"message": "It is too lo', {"error": {"message": "It is too lo"}}),
        ('{"error": {"message": "so", "type', {"error": {"message": "so"}}),
        ('{"error": {"message": "so", "code": 40', {"error": {"message": "so"}}),
        ('{"a": ["b", "c\\u00', {"a": ["b", "c"]}),
        ('{"a": "b\\', {"a": "b"}),
        # A backslash that is said, whole; said, and an escape that is begun; said twice.
        ('{"a": "b\\\\', {"a": "b\\"}),
        ('{"a": "b\\\\\\', {"a": "b\\"}),
        ('{"a": "b\\\\u00', {"a": "b\\u00"}),
        ('{"a": "b\\\\\\\\', {"a": "b\\\\"}),
        # Half of a character that is written in two escapes is none.
        ('{"a": "b\\ud83d', {"a": "b"}),
        ('{"a": "b\\ud83d\\ude0', {"a": "b"}),
        ('{"a": "b\\ud83d\\ude00', {"a": "b😀"}),
        ('{"a": [1, 2', {"a": [1]}),
        ('[{"a": {}', [{"a": {}}]),
        ("{", {}),
        ('{"a": 1} and more', {"a": 1}),
        ("no json", None),
        ('"text', None),
        ("{]", None),
        ("[" * 100, None),
    ],
)
def test_what_is_cut_is_closed(text, value):
    assert read_cut(text) == value


@given(OBJECTS, st.booleans(), st.data())
def test_short_strings_stay_wherever_the_chunks_are_cut(whole, ascii_only, data):
    raw = json.dumps(whole, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    places = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=4)))
    chunks = [raw[a:b] for a, b in pairwise([0, *places, len(raw)])]
    assert b"".join(without_long_strings(chunks)) == raw


@pytest.mark.parametrize("letter", ["x", "字", "\\u5b57", '\\"', "\\\\", "😀"])
@pytest.mark.parametrize("size", [1, 7, 1024, 65_536])
def test_a_long_string_is_cut_and_the_rest_is_as_it_was(letter, size):
    text = f'{{"echo": "{letter * 60_000}", "error": {{"message": "{FACT}"}}}}'
    raw = text.encode()
    size = size if len(raw) // size < 100_000 else 64
    chunks = (raw[at : at + size] for at in range(0, len(raw), size))
    found = json.loads(b"".join(without_long_strings(chunks)))
    assert found["error"] == {"message": FACT}
    echo, cut, end = found["echo"].partition(" [cut]")
    assert (cut, end) == (" [cut]", " ")
    assert json.loads(text)["echo"].startswith(echo)
    assert len(echo.encode()) <= LONGEST_STRING_BYTES
    assert len(echo.encode()) > LONGEST_STRING_BYTES // 6 - 6


@pytest.mark.parametrize("unit", ["\\", '"', "\n", "\\\\x", "😀", "é😀\\"], ids=ascii)
@pytest.mark.parametrize("ascii_only", [True, False], ids=["ascii", "not ascii"])
def test_a_long_string_is_cut_between_characters(unit, ascii_only):
    for shift in range(13):  # wherever the place falls in what a unit is written as
        text = "x" * shift + unit * 20_000 + " " + FACT
        raw = json.dumps({"error": text, "code": 4}, ensure_ascii=ascii_only).encode()
        told = json.loads(b"".join(without_long_strings([raw])))
        beginning, _, end = told["error"].partition(" [cut] ")
        assert text.startswith(beginning)
        assert (end, told["code"]) == (FACT, 4)


@pytest.mark.parametrize(
    "page", [b'<p class="%s">' % (b"x" * 60_000), b'it says "' + b"x" * 60_000]
)
def test_what_is_no_json_stays(page):
    assert b"".join(without_long_strings([page[:10], page[10:]])) == page


def test_a_string_without_end_takes_no_memory():
    def chunks():
        yield b'{"message": "'
        for _ in range(2_000):
            yield b"x" * 65_536

    tracemalloc.start()
    try:
        told = sum(map(len, without_long_strings(chunks())))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert told < 40_000
    assert peak < 1_000_000
