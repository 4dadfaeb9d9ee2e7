"""Taking an answer in costs in proportion to its length, whatever its pieces are.

Each shape is taken in at a length and at eight times that length (`tests/growth.py`).
"""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from chatapp.llm import chat_wire, responses_wire
from chatapp.llm.errors import ModelError
from chatapp.llm.growing_text import GrowingJson, GrowingText, is_json
from chatapp.llm.requests import ModelRequest, Reply
from chatapp.llm.streams import MOST_ITEMS, pieces_of
from chatapp.llm.thoughts import split
from tests.factories import user
from tests.growth import grows_too_fast

LONG = "word " * 800
"""What is copied whole for each piece shows in a few thousand pieces only where they are long."""
FEW, TIMES = 200, 8
REQUEST = ModelRequest(messages=[user("q")], stream=True)
ITEM = {"item_id": "m1", "output_index": 0}
Shape = Callable[[int], object]


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields}]}


def call(name: str, arguments: str, **more: Any) -> dict[str, Any]:
    return delta(tool_calls=[{**more, "function": {"name": name, "arguments": arguments}}])


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", **ITEM, **fields}


def done_item(**fields: Any) -> dict[str, Any]:
    return {"type": "response.output_item.done", "item": fields}


def streamed(wire: Any, *makers: Callable[[int], dict[str, Any]]) -> Shape:
    """A shape: so many pieces of each maker in turn."""

    def pieces(count: int) -> Iterator[dict[str, Any]]:
        for number in range(count):
            for make in makers:
                yield make(number)

    def take(count: int) -> object:
        try:
            return wire.read_stream(pieces(count), REQUEST, lambda *event: None, as_model_error)
        except ModelError as error:
            return error.partial

    return take


def as_model_error(error: Exception) -> ModelError:
    raise error


def events(*lines: bytes) -> Shape:
    """A shape: so many times these lines, read as server-sent events."""

    def take(count: int) -> object:
        try:
            return list(pieces_of(line for _ in range(count) for line in lines))
        except (ValueError, RecursionError) as error:
            return error

    return take


def chat(*makers: Callable[[int], dict[str, Any]]) -> Shape:
    return streamed(chat_wire, *makers)


def responses(*makers: Callable[[int], dict[str, Any]]) -> Shape:
    return streamed(responses_wire, *makers)


def whole_chat(message: Callable[[int], dict[str, Any]]) -> Shape:
    return lambda count: chat_wire.reply_of({"choices": [{"message": message(count)}]})


def whole_responses(item: Callable[[int], dict[str, Any]]) -> Shape:
    return lambda count: responses_wire.reply_of(
        {"status": "completed", "output": [item(number) for number in range(count)]}
    )


SHAPES: dict[str, Shape] = {
    "text": chat(lambda n: delta(content=LONG)),
    "halves of characters": chat(lambda n: delta(content=f"\ude00{LONG}\ud83d")),
    "thoughts": chat(lambda n: delta(reasoning_content=LONG)),
    "refusal": chat(lambda n: delta(refusal=LONG)),
    "arguments": chat(lambda n: call("" if n else "look", LONG, index=0, id="c")),
    "arguments, the name each time": chat(lambda n: call("look", LONG if n else '{"a": "')),
    "a name in pieces": chat(lambda n: call(LONG, "", index=0)),
    "calls without end": chat(lambda n: call("look", "{}", id=f"c{n}")),
    "calls of one id": chat(lambda n: call("look", "{}", id="c", index=n)),
    "probabilities": chat(
        lambda n: {"choices": [{"delta": {"content": "w"}, "logprobs": {"content": [{"p": n}]}}]}
    ),
    "sources": chat(lambda n: delta(content="w", annotations=[{"url": f"u{n}", "text": LONG}])),
    "thoughts as parts": chat(
        lambda n: delta(reasoning_details=[{"index": 0, "type": "reasoning.text", "text": LONG}])
    ),
    "own fields of many names": chat(lambda n: delta(content="w", **{f"own{n}": "v"})),
    "an object of many names": chat(lambda n: delta(content="w", own={f"k{n}": "v"})),
    "own fields of a call": chat(lambda n: call("x", "w", index=0, extra={"data": LONG})),
    "wholes between pieces": chat(
        lambda n: delta(content=LONG), lambda n: {"choices": [{"message": {"content": "other"}}]}
    ),
    "backticks": chat(lambda n: delta(content="`" * 200)),
    "tags": chat(lambda n: delta(content="<think></think>" * 20)),
    "the beginning of a tag": chat(lambda n: delta(content="<think " + "a" * 40)),
    "calls of a whole": whole_chat(
        lambda count: {
            "tool_calls": [{"id": f"c{n}", "function": {"name": "x"}} for n in range(count)]
        }
    ),
    "Responses: text": responses(lambda n: event("output_text.delta", delta=LONG)),
    "Responses: refusal": responses(lambda n: event("refusal.delta", delta=LONG)),
    "Responses: arguments": responses(lambda n: event("function_call_arguments.delta", delta=LONG)),
    "Responses: thoughts": responses(lambda n: event("reasoning_text.delta", delta=LONG)),
    "Responses: their summary": responses(
        lambda n: event("reasoning_summary_text.delta", delta=LONG)
    ),
    "Responses: ends that say nothing": responses(
        lambda n: event("output_text.delta", delta=LONG),
        lambda n: event("output_text.done", text=""),
        lambda n: event("content_part.done", part={"text": "w"}),
    ),
    "Responses: ends of a call": responses(
        lambda n: event("function_call_arguments.delta", delta=LONG),
        lambda n: event("function_call_arguments.done", name="x", arguments=""),
    ),
    "Responses: items without end": responses(
        lambda n: {"type": "response.output_text.delta", "output_index": n, "delta": "w"}
    ),
    "Responses: calls without end": responses(
        lambda n: done_item(type="function_call", call_id=f"c{n}", name="x", arguments="{}")
    ),
    "Responses: messages of a whole": whole_responses(
        lambda n: {"type": "message", "id": f"m{n}", "content": [{"text": "w"}]}
    ),
    "Responses: calls of a whole": whole_responses(
        lambda n: {"type": "function_call", "name": "x", "arguments": "{}"}
    ),
    "tags in a whole": lambda count: split("<think></think>" * count * 20),
    "closing tags in a whole": lambda count: split('"</think>' * count * 20),
    "lines of one event": events(b"data: " + LONG.encode() + b"\n"),
    "line ends in one text": events(b'data: {"a": "' + LONG.encode() + b"\n", b"\n", LONG.encode()),
    "objects glued in one event": events(b'data: {"a": "' + LONG.encode() + b'"}'),
    "lines of one object": events(b'data: [{"a": "' + LONG.encode() + b'"},\n'),
}


@pytest.fixture(autouse=True)
def no_limit_of_characters(settings):
    settings.CHATAPP = settings.CHATAPP | {"MAX_ANSWER_CHARS": 100_000_000}


@pytest.mark.parametrize("name", SHAPES)
def test_an_answer_is_taken_in_at_a_cost_that_grows_with_it(name):
    assert not grows_too_fast(SHAPES[name], FEW, times=TIMES)


def test_what_copies_all_that_has_come_is_noticed():
    """Or the test above could not fail: an attribute is copied by each `+=`."""

    class Copying:
        text = ""

        def take(self, count: int) -> None:
            for _ in range(count):
                self.text += LONG
                self.text.find("\0")

    assert grows_too_fast(lambda count: Copying().take(count), FEW, times=TIMES, tries=2)


@pytest.mark.parametrize("name", ["calls without end", "Responses: items without end"])
def test_an_answer_of_items_without_end_is_cut_off(name):
    reply = SHAPES[name](MOST_ITEMS * 3)
    assert isinstance(reply, Reply)
    assert reply.finish_reason == "length"
    assert len(reply.tool_calls) <= MOST_ITEMS + 1


def test_an_answer_of_single_letters_does_not_hold_an_object_for_each():
    """A million pieces of one letter: a list of them takes 8 MB, and their objects fifty."""
    text, thoughts = GrowingText(), GrowingJson()
    tracemalloc.start()
    try:
        for number in range(200_000):
            # Objects of their own: Python keeps only one of each letter up to ÿ.
            text.add(chr(0x4E00 + number % 20_000))
            thoughts.add(chr(0x4E00 + number % 20_000))
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 2 * 200_000 * 2 + 1_000_000
    assert (
        str(text)
        == str(thoughts)
        == "".join(chr(0x4E00 + number % 20_000) for number in range(200_000))
    )


# --- the text itself ------------------------------------------------------------------------------

TEXTS = [
    "", " ", "{}", ' {"a": 1} ', '{"a": "}{"}', r'{"a": "\""}', r'{"a": "\\"}', r'"a\\\""',
    "[1, 2]", "[[], {}]", "7", "-1.5e3", "tru", "true", "nul", "{", "}", "{]", "{}{}", "{} x",
    '{"a": "\\', '"', '"half', "[1, 2", "1 2", "\u00a0{}", "{}\u00a0", '{"a": "\u2028"}',
    "]" * 3, "1" * 6000,
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("size", [1, 2, 1000])
def test_it_knows_at_every_moment_whether_it_is_whole(text, size):
    growing, told = GrowingJson(), ""
    for start in range(0, min(len(text), 100), size):
        told += text[start : start + size]
        growing.add(text[start : start + size])
        assert growing.is_whole == is_json(told), told
    growing.add(text[len(told) :])
    assert growing.is_whole == is_json(text)
    assert str(growing) == text


def test_a_whole_is_parsed_once(monkeypatch):
    parsed: list[str] = []
    monkeypatch.setattr(json, "loads", lambda text: parsed.append(text))
    growing = GrowingJson()
    for piece in ('{"a": ', "[1]", "}", " ", "\n"):
        growing.add(piece)
        assert growing.is_whole == (growing and str(growing).count("}") == 1)
    assert parsed == ['{"a": [1]}']


def test_a_shorter_text_is_compared_without_joining():
    growing = GrowingText("seven ")
    growing.add("hives")
    assert not growing.opens("seven")
    assert len(growing._pieces) == 2
    assert growing.rest_of("seven hives stand") == " stand"
    assert growing.rest_of("eight") == "eight"
    assert (str(growing), len(growing), bool(GrowingText())) == ("seven hives", 11, False)
