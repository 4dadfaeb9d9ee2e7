"""Large files, whose values stay on the disk: read as small ones are, in memory that is flat."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from chatapp import spooled_files
from chatapp.formats import ParsedFile, UnknownFormatError, large_files, parse, stored_json
from chatapp.formats.decoding import DECODER, MAX_DEPTH
from chatapp.formats.reading import read_document, read_file
from chatapp.formats.stored_json import NotStoredError, StoredText, plain, stored
from chatapp.spooled_files import SpooledFile
from tests.chatapp.formats.test_trees import FLAT, NESTED, Said, broad, draw_tree, long_line
from tests.facts import seed

TINY = 24

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=40,
)  # fmt: skip


@pytest.fixture
def all_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spooled_files, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(stored_json, "STRETCH_BYTES", TINY)
    monkeypatch.setattr(large_files, "STRETCH_BYTES", TINY)


def found_in(text: str) -> Any:
    file = SpooledFile([text.encode()])
    value, end = stored(
        StoredText(file, DECODER.decode), file.mapped(), 0, file.size, deepest=MAX_DEPTH
    )
    assert end == file.size
    return value


# --- values ---------------------------------------------------------------------------------------


@given(value=st.lists(JSON) | st.dictionaries(st.text(), JSON), indent=st.sampled_from([None, 2]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_stays_in_the_file_is_what_would_be_read(all_is_large, value, indent) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    try:
        found = found_in(text)
    except UnicodeEncodeError:  # a lone surrogate, which comes as an escape
        found = found_in(json.dumps(value, indent=indent))

    assert plain(found) == value
    assert found == value
    assert len(found) == len(value)
    if isinstance(value, dict):
        assert [*found.items()] == [*value.items()]
        assert {**found} == dict(found) == found.copy() == value
        assert {"": 0} | found == {"": 0} | value
        assert found | {"": 0} == value | {"": 0}
    else:
        assert [*found] == value == found[:]
        assert [*reversed(found)] == value[::-1]
        assert value + found == [*value, *value]
        assert [found[place] for place in range(-len(value), len(value))] == value * 2


def test_a_list_of_a_file_answers_as_any_other(all_is_large) -> None:
    value = ["x" * 40, "y" * 40, "x" * 40]
    found = found_in(json.dumps(value))

    assert found.copy() == value
    assert found * 2 == value * 2
    assert (found.count(value[0]), found.index(value[0], 1)) == (2, 2)


@pytest.mark.parametrize(
    "change",
    [
        lambda items, _: items.append(1),
        lambda items, _: items.sort(),
        lambda items, _: items.pop(),
        lambda items, _: items.__setitem__(0, 1),
        lambda _, about: about.pop("a"),
        lambda _, about: about.setdefault("a", 1),
        lambda _, about: about.update({"a": 1}),
        lambda _, about: about.__setitem__("a", 1),
    ],
)
def test_nobody_changes_what_lies_in_a_file(all_is_large, change) -> None:
    items, about = found_in(json.dumps(["x" * 40])), found_in(json.dumps({"a": "x" * 40}))
    with pytest.raises(TypeError, match="copy"):
        change(items, about)


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_no_json_is_none_in_a_file_either(all_is_large, data) -> None:
    value = data.draw(st.lists(JSON, min_size=1) | st.dictionaries(st.text(), JSON, min_size=1))
    text = json.dumps(value)
    at = data.draw(st.integers(0, len(text) - 1))
    broken = text[:at] + data.draw(st.sampled_from(["", ",", "]", "}", '"', "x", "["])) + text[
        at + 1 :
    ]  # fmt: skip
    assume(broken[:1] in ("[", "{"))
    try:
        expected, end = DECODER.raw_decode(broken)
    except ValueError:
        with pytest.raises(NotStoredError):
            found_in(broken)
        return
    if end == len(broken) and isinstance(expected, (list, dict)):
        assert plain(found_in(broken)) == expected


LARGE = json.dumps(["x" * 100])


@pytest.mark.parametrize(
    "text",
    [
        f"[{LARGE} 1]",
        f"[1 {LARGE}]",
        f"[{LARGE},]",
        f"[,{LARGE}]",
        f"[{LARGE},,{LARGE}]",
        f"[{LARGE}}}",
        f"{{{LARGE}}}",
        f'{{"a" {LARGE}}}',
        f'{{"a":{LARGE},}}',
        f'{{"a":{LARGE}:1}}',
        f'{{"a":1,"b":{LARGE}',
        "[" + "1," * 100 + "]",
        "[" * 40 + "]" * 39,
    ],
)
def test_faults_around_large_values_are_found(all_is_large, text: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)
    with pytest.raises(NotStoredError):
        found_in(text)


def test_of_a_key_that_comes_twice_the_last_value_counts(all_is_large) -> None:
    long = "y" * 60
    text = f'{{"a":["{long}"],"b":1,"a":"{long}","c":["{long}"],"b":2}}'
    assert [*found_in(text).items()] == [*json.loads(text).items()]


def test_numbers_texts_and_escapes_are_what_they_are_in_a_small_file(all_is_large) -> None:
    text = r'{"big":123456789012345678901234567890,"small":1e-7,"nan":NaN,"far":1e999,"nul":"\u0000","half":"\ud83d","pad":["xxxxxxxxxxxxxxxxxxxxxxxxxx"]}'  # noqa: E501
    assert plain(found_in(text)) == DECODER.decode(text)


@pytest.mark.parametrize("depth", [MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, 5_000])
def test_values_may_be_as_deep_as_in_a_small_file(all_is_large, depth: int) -> None:
    text = "[" * depth + json.dumps("x" * 100) + "]" * depth
    small, large = read_document(text), read_file(SpooledFile([text.encode()]))

    assert [problem.text for problem in large.problems] == [p.text for p in small.problems]
    assert [plain(one.value) for one in large.records] == [one.value for one in small.records]
    assert bool(small.problems) == (depth > MAX_DEPTH)


LINES = [
    '{"a": 1}\n{"b": ["' + "z" * 90 + '"]}\n',
    '{"a": 1} {"b": 2} x\n\n["' + "z" * 90 + '"] {"c": 3} ["' + "z" * 90 + '"',
    '"text"\nnull 7\n{"ü": "' + "ü" * 50 + '"} nonsense',
    '\n\n  {"a": "' + "z" * 90 + '"',
    '{"a": [1,\n 2, "' + "z" * 90 + '"]}\n',
    'PK\x03\x04 {"a": 1}\n[' + "9" * 5_000 + "]",
]


@pytest.mark.parametrize("text", LINES)
def test_lines_and_what_is_wrong_with_them_are_those_of_a_small_file(all_is_large, text) -> None:
    small, large = read_document(text), read_file(SpooledFile([text.encode()]))

    assert large.is_lines == small.is_lines
    assert large.lines == small.lines
    assert [(one.line, plain(one.value)) for one in large.records] == [
        (one.line, one.value) for one in small.records
    ]
    assert list(large.problems) == list(small.problems)


@pytest.mark.parametrize(
    "text",
    ['"a text"', '"two\nlines"', " 5\n", "null", "NaN", "5x", "1 2", '"a" "b"', '"open', "-"],
)
def test_a_file_that_is_no_list_and_no_object_is_read_as_a_small_one(all_is_large, text) -> None:
    small, large = read_document(text), read_file(SpooledFile([text.encode()]))

    assert (large.is_lines, large.lines) == (small.is_lines, small.lines)
    assert [one.value for one in large.records] == [one.value for one in small.records]
    assert list(large.problems) == list(small.problems)


@pytest.mark.parametrize("bad", [b"caf\xe9 ", b"\xe2\x82", b"\xff\xfe"])
def test_bytes_that_are_no_text_are_replaced_across_pieces(monkeypatch, bad: bytes) -> None:
    content = b'\xef\xbb\xbf{"a": "' + b"x" * 50 + b'"}\n{"b": "' + bad + b'"}\n'
    text = content.decode("utf-8-sig", "replace")
    for size in range(1, 12):
        monkeypatch.setattr(spooled_files, "PIECE_BYTES", size)
        monkeypatch.setattr(spooled_files.SpooledFile.pieces, "__defaults__", (size,))
        file, line = SpooledFile([content]).as_text()
        assert (file.read().decode(), line) == (text, 2)


# --- files of all formats -------------------------------------------------------------------------


def as_read(parsed: ParsedFile) -> list[Any]:
    conversations = [
        (one.identity, one.title, one.leaf, one.model, one.created_at, one.metadata,
         [message.whole() for message in one.messages])
        for one in parsed.conversations
    ]  # fmt: skip
    return [parsed.format, conversations, list(parsed.problems), parsed.lines]


@pytest.mark.parametrize("round_", range(6))
@pytest.mark.parametrize("written", [*FLAT.values(), *NESTED.values()])
def test_a_tree_is_read_as_from_a_small_file(monkeypatch, written, round_: int) -> None:
    chance = random.Random(f"{seed()} stored {round_}")
    content = written(draw_tree(chance)).encode()
    small = as_read(parse(content))
    for module in (stored_json, large_files):
        monkeypatch.setattr(module, "STRETCH_BYTES", chance.choice([1, TINY, 400, 5_000]))
    monkeypatch.setattr(spooled_files, "IN_MEMORY_BYTES", 0)

    assert as_read(parse(content)) == small


def test_a_large_file_that_nobody_knows_is_refused_with_the_same_sentence(monkeypatch) -> None:
    texts = [json.dumps([{"a": 1, "b": ["x" * 90]}] * 3), json.dumps([["x" * 70_000]]),
             json.dumps("x" * 90), "PK\x03\x04" + "z" * 99, '{"mapping": {"'
             '"content_type"' + "z" * 99]  # fmt: skip

    def refusals() -> Iterator[str]:
        for text in texts:
            with pytest.raises(UnknownFormatError) as refused:
                parse(text.encode(), name="talks.json")
            yield str(refused.value)

    small = list(refusals())
    for name, value in (("IN_MEMORY_BYTES", 0),):
        monkeypatch.setattr(spooled_files, name, value)
    assert list(refusals()) == small


# --- memory ---------------------------------------------------------------------------------------


def loaded(tree: list[Said], chars: int) -> list[Said]:
    for one in tree:
        one.text = f"{one.text} {'word ' * (chars // 5)}"
    return tree


def as_lines(tree: list[Said]) -> str:
    return "".join(
        json.dumps({"role": one.role, "content": one.text}) + "\n" for one in tree
    )  # fmt: skip


def as_own(tree: list[Said]) -> str:
    messages = [{"role": one.role, "content": one.text} for one in tree]
    return json.dumps({"messages": messages, "palimpsest": {"version": 1, "pinned": [2]}})


def as_pi(tree: list[Said]) -> str:
    lines = [{"type": "session", "version": 3, "id": "s"}]
    lines += [
        {"type": "message", "id": one.key, "parentId": one.parent,
         "message": {"role": one.role, "content": [{"type": "text", "text": one.text}]}}
        for one in tree
    ]  # fmt: skip
    return "\n".join(map(json.dumps, lines))


def as_claude_code(tree: list[Said]) -> str:
    lines = [
        {"type": one.role, "uuid": one.key, "parentUuid": one.parent, "sessionId": "s",
         "message": {"role": one.role, "id": one.key, "content": [
             {"type": "text", "text": one.text}]}}
        for one in tree
    ]  # fmt: skip
    return "\n".join(map(json.dumps, lines))


def _talk(one: Said) -> dict[str, Any]:
    return {"title": one.key, "messages": [{"role": "user", "content": one.text}]}


def as_many(tree: list[Said]) -> str:
    return json.dumps(list(map(_talk, tree)))


SHAPES: dict[str, tuple[Callable[[int], list[Said]], Callable[[list[Said]], str]]] = {
    **{f"{name}, a line": (long_line, written) for name, written in FLAT.items()},
    **{f"{name}, broad": (broad, written) for name, written in FLAT.items()},
    **{f"{name}, nested": (long_line, written) for name, written in NESTED.items()},
    "messages, one a line": (long_line, as_lines),
    "our export": (long_line, as_own),
    "pi": (long_line, as_pi),
    "Claude Code": (long_line, as_claude_code),
    "a list of conversations": (long_line, as_many),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_reading_takes_no_more_memory_for_longer_texts(shape: str, tmp_path: Path) -> None:
    """Ten times the text, the same messages: flat but for a few texts that are held at a time."""
    draw, written = SHAPES[shape]

    def peak(chars: int) -> int:
        path = tmp_path / f"{chars}"
        path.write_text(written(loaded(draw(150), chars)))
        with path.open("rb") as stream:
            tracemalloc.start()
            try:
                parsed = parse(SpooledFile.read_from(stream))
                assert sum(len(one.messages) for one in parsed.conversations) >= 150
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    small, large = peak(10_000), peak(100_000)
    assert large < small + 6_000_000, f"{small:,} bytes for 1.5 MB, {large:,} for 15 MB"
