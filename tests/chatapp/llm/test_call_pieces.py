"""Tool calls in pieces that lack what tells them apart: two calls stay two, one stays one.

The arguments are cut where the printed seed says.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from chatapp.llm import chat_wire
from chatapp.llm.openai_client import as_model_error
from chatapp.llm.requests import ModelRequest, ignore_event
from tests.facts import seed

REQUEST = ModelRequest(messages=[{"role": "user", "content": "q"}])
Piece = dict[str, Any]


def _piece(name: str | None, arguments: Any, **more: Any) -> Piece:
    return {**more, "function": {"name": name, "arguments": arguments}}


def _calls(pieces: list[Piece]) -> list[tuple[str, str]]:
    chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": [one]}}]} for one in pieces]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    reply = chat_wire.read_stream(chunks, REQUEST, ignore_event, as_model_error)
    functions = [call["function"] for call in reply.tool_calls]
    return [(one["name"], one["arguments"]) for one in functions]


def _cut(text: str, chance: random.Random) -> list[str]:
    places = sorted(chance.sample(range(1, len(text)), 2))
    return [text[: places[0]], text[places[0] : places[1]], text[places[1] :]]


FIRST, SECOND = '{"path": "a b"}', '{"depth": {"n": 2}}'
WHOLE = [("read", FIRST), ("list", SECOND)]


@pytest.mark.parametrize(
    "more",
    [{}, {"index": 0, "id": "call_0"}, {"id": "call_0"}, {"index": None, "id": None}],
    ids=["no index, no id", "one index, one id", "one id", "null"],
)
def test_a_name_behind_whole_arguments_begins_another_call(more):
    chance = random.Random(f"{seed()} {more}")
    pieces = []
    for name, arguments in WHOLE:
        begun, *rest = _cut(arguments, chance)
        pieces.append(_piece(name, begun, **more))
        pieces += [_piece(None, part, **more) for part in rest]
    assert _calls(pieces) == WHOLE


def test_the_same_tool_twice_is_two_calls_where_nothing_else_tells():
    assert _calls([_piece("read", FIRST), _piece("read", SECOND)]) == [
        ("read", FIRST),
        ("read", SECOND),
    ]


def test_a_name_that_is_repeated_in_every_piece_is_said_once():
    chance = random.Random(seed())
    pieces = [_piece("read", part, index=0, id="c") for part in _cut(FIRST, chance)]
    assert _calls(pieces) == [("read", FIRST)]


def test_a_name_that_comes_in_pieces_is_put_together():
    pieces = [
        _piece("re", "", index=0, id="c"),
        _piece("ad", "", index=0),
        _piece(None, FIRST, index=0),
    ]
    assert _calls(pieces) == [("read", FIRST)]


def test_a_name_that_comes_late_counts():
    pieces = [_piece(None, None, index=0, id="c"), _piece("read", FIRST, index=0)]
    assert _calls(pieces) == [("read", FIRST)]


def test_arguments_that_are_said_once_more_at_the_end_count_once():
    chance = random.Random(seed())
    pieces = [_piece(None, part, index=0) for part in _cut(FIRST, chance)]
    pieces[0] = _piece("read", pieces[0]["function"]["arguments"], index=0, id="c")
    assert _calls([*pieces, _piece("read", FIRST, index=0, id="c")]) == [("read", FIRST)]


def test_arguments_may_be_an_object():
    assert _calls([_piece("read", json.loads(FIRST), index=0, id="c")]) == [("read", FIRST)]


@pytest.mark.parametrize("begun", ["{}", "{ }", " {}\n", "{}{}"])
def test_an_empty_object_before_the_real_arguments_is_none(begun):
    chance = random.Random(f"{seed()} {begun}")
    pieces = [_piece("read", begun, index=0, id="c")]
    pieces += [_piece(None, part, index=0) for part in _cut(FIRST, chance)]
    assert [(name, json.loads(said)) for name, said in _calls(pieces)] == [
        ("read", json.loads(FIRST))
    ]


def test_arguments_that_are_said_once_more_in_another_spelling_count_once():
    again = json.dumps(json.loads(SECOND), separators=(",", ":"))
    assert again != SECOND
    pieces = [_piece("list", SECOND, index=0, id="c"), _piece(None, again, index=0)]
    assert _calls(pieces) == [("list", SECOND)]


def test_no_arguments_stay_an_empty_object():
    assert _calls([_piece("read", "{}", index=0, id="c")]) == [("read", "{}")]


def test_two_objects_that_differ_are_not_chosen_from():
    pieces = [_piece("read", FIRST, index=0, id="c"), _piece(None, SECOND, index=0)]
    assert _calls(pieces) == [("read", FIRST + SECOND)]
