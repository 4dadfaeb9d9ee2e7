"""What is told of a conversation briefly: lines, last answers, states of turns; no database."""

from __future__ import annotations

import json
import random

import pytest

from chatapp.messages.verbosity import (
    MAX_LINE,
    Mark,
    TurnState,
    call_names,
    first_argument,
    lines_of,
    marks_of,
)
from chatapp.messages.wire import fields_of
from chatapp.models import Message
from tests.factories import call, result, user

ANSWERED, INTERRUPTED, CONTINUES = TurnState


def row(wire: dict, *, kind: str = "message", **columns) -> Message:
    """Return a stored message that is not stored."""
    fields = fields_of(wire)
    metadata = fields.pop("metadata") | columns.pop("metadata", {})
    return Message(kind=kind, metadata=metadata, **fields, **columns)


def said(text: str) -> Message:
    return row({"role": "assistant", "content": text})


def told(wire: dict, names: dict[str, str] | None = None, **columns) -> list[str]:
    return lines_of(row(wire, **columns), names or {})


# --- turns ----------------------------------------------------------------------------------------


def test_the_last_answer_of_a_turn_is_whole_and_those_on_the_way_are_not():
    rows = [
        row(user("Which?")),
        row(call("look", "1")),
        row(result("1")),
        said("I see."),
        said("The second."),
        row(user("Why?")),
        said("It fits."),
    ]
    marks = marks_of(rows, next_role=None)
    assert [mark.is_whole for mark in marks] == [True, False, False, False, True, True, True]
    assert [mark.state for mark in marks] == [ANSWERED, None, None, None, None, ANSWERED, None]


def test_a_turn_without_an_answer_was_interrupted_or_goes_on():
    rows = [row(user("a")), row(call("f", "1")), row(user("b")), row(call("f", "2"))]
    marks = marks_of(rows, next_role=None)
    assert marks == [Mark(True, INTERRUPTED), Mark(False), Mark(True, CONTINUES), Mark(False)]


@pytest.mark.parametrize(
    ("next_role", "last"),
    [("user", Mark(True)), (None, Mark(True)), ("assistant", Mark(False))],
)
def test_what_follows_decides_about_the_last_turn(next_role, last):
    assert marks_of([row(user("a")), said("b")], next_role=next_role)[1] == last


@pytest.mark.parametrize(
    ("next_role", "state"), [("user", INTERRUPTED), (None, CONTINUES), ("assistant", ANSWERED)]
)
def test_what_follows_decides_about_the_last_question(next_role, state):
    assert marks_of([row(user("a")), row(call("f", "1"))], next_role=next_role)[0].state is state


def test_notes_begin_no_turn_and_marks_of_summaries_answer_none():
    rows = [
        row(user("a")),
        row(user("what was left"), kind="note"),
        row({"role": "assistant", "content": None}, kind="placeholder"),
        said("done"),
    ]
    assert [mark.is_whole for mark in marks_of(rows, next_role=None)] == [True, False, False, True]


def test_cutting_a_conversation_anywhere_tells_the_same():
    rng = random.Random(15)
    kinds = (user("q"), call("f", "1"), result("1"), {"role": "assistant", "content": "a"})
    rows = [row(rng.choice(kinds)) for _ in range(80)]
    whole = marks_of(rows, next_role=None)
    for cut in range(1, 80):
        marking = [
            one.role
            for one in rows[cut:]
            if one.role == "user" or (one.role == "assistant" and not one.tool_calls)
        ]
        parts = marks_of(rows[:cut], next_role=marking[0] if marking else None)
        assert parts + marks_of(rows[cut:], next_role=None) == whole


# --- lines ----------------------------------------------------------------------------------------


def test_a_call_is_its_name_its_first_argument_and_its_size():
    arguments = '{"path": "src/app.py", "limit": 20}'
    assert told(call("read_file", "1", arguments)) == ["→ read_file src/app.py · 35 characters"]


def test_a_call_without_arguments_is_its_name_and_its_size():
    assert told(call("list", "1", "{}")) == ["→ list · 2 characters"]


def test_a_text_and_each_call_have_a_line():
    wire = {
        "role": "assistant",
        "content": "I read\nboth.",
        "tool_calls": [
            *call("read", "1", '{"p":"a"}')["tool_calls"],
            *call("read", "2", '["b"]')["tool_calls"],
        ],
    }
    assert told(wire) == [
        "I read both. · 12 characters",
        "→ read a · 9 characters",
        '→ read ["b"] · 5 characters',
    ]


def test_a_result_is_the_name_of_its_call_its_size_and_how_it_went():
    names = call_names([row(call("read_file", "c7"))])
    assert told(result("c7", "é" * 1_234), names) == ["← read_file · 1,234 characters · ok"]
    assert told(result("c8", ""), names) == ["← c8 · 0 characters · ok"]
    assert told({**result("c7"), "name": "own"}, names) == ["← own · 4 characters · ok"]


@pytest.mark.parametrize(
    ("content", "columns", "outcome"),
    [
        ("Error: no such file", {}, "error"),
        ("  FileNotFoundError: a.py", {}, "error"),
        ("Traceback (most recent call last):\n  File", {}, "error"),
        ("<tool_use_error>String not found</tool_use_error>", {}, "error"),
        ("fatal: not a git repository", {}, "error"),
        ("anything", {"metadata": {"is_error": True}}, "error"),
        ("anything", {"metadata": {"extra": {"is_error": True}}}, "error"),
        ("anything", {"metadata": {"is_error": False}}, "ok"),
        ("anything", {"metadata": {"extra": "is_error"}}, "ok"),
        ("Error handling is in errors.py: see there", {}, "ok"),
        ("no errors\nError: 0", {}, "ok"),
        ("x" * 500_000, {}, "ok"),
    ],
)
def test_a_failure_is_told_by_the_client_or_by_the_first_words(content, columns, outcome):
    (line,) = told(result("1", content), **columns)
    assert line.endswith(f" · {outcome}")


def test_notes_rules_and_marks_are_a_line():
    assert told(user("of the other\nbranch"), kind="note") == [
        "note: of the other branch · 19 characters"
    ]
    assert told({"role": "system", "content": "Be brief."}) == ["system: Be brief. · 9 characters"]
    mark = {"role": "assistant", "content": None}
    assert told(mark, kind="placeholder", summary="MK-0001 holds") == [
        "summary: MK-0001 holds · 13 characters"
    ]


def test_an_answer_on_the_way_that_says_nothing_has_a_line():
    assert told({"role": "assistant", "content": ""}) == ["0 characters"]


def test_images_have_no_size():
    parts = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "x" * 99}}]
    assert told({"role": "tool", "tool_call_id": "1", "content": parts}) == [
        "← 1 · 3 characters · ok"
    ]


@pytest.mark.parametrize(
    ("arguments", "first"),
    [
        ('{"a": "x\\ny", "b": 1}', "x y"),
        ('{"a": {"b": [1, 2]}}', '{"b":[1,2]}'),
        ('{"a": null}', "null"),
        ('"plain"', "plain"),
        ("7", "7"),
        ("[]", "[]"),
        ("{}", ""),
        ("", ""),
        ("{not json\u2028at all", "{not json at all"),
        ("[" * 100_000, "[" * 100_000),
        (r'{"a": "half \ud83d"}', "half \ufffd"),
        (r'{"a": ["nul \u0000", "\udc00"]}', r'["nul \u0000","' "\ufffd" '"]'),
    ],
)
def test_the_first_argument_is_found_in_whatever_was_sent(arguments, first):
    assert first_argument(arguments) == first


def test_no_line_is_longer_than_it_may_be_or_two():
    rng = random.Random(120)
    odd = ["\n", "\r", "\u2028", "\x85", "\x1b[31m", "\u202e", "é", "深", "🙂", " ", "\t", "a"]

    def text(most: int) -> str:
        return "".join(rng.choices(odd, k=rng.randrange(most)))

    for _ in range(300):
        name = text(200) or "f"
        calls = call(name, text(30), json.dumps({text(9): text(400)}))
        for wire in (calls | {"content": text(400)}, result(text(300), text(3_000))):
            for line in told(wire):
                assert 0 < len(line) <= MAX_LINE
                assert len(line.splitlines()) == 1
    assert len(told(call("f", "1", json.dumps({"a": "b" * 5_000})))[0]) == MAX_LINE
