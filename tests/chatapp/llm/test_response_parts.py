"""The parts of an item, told in pieces, at their ends, with their item, in the finished response.

Servers tell a part in any of these ways, in several, with or without its number; whatever came is
used, and nothing twice.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from chatapp.llm.openai_client import as_model_error
from chatapp.llm.requests import ModelRequest
from chatapp.llm.responses_wire import read_stream
from tests.factories import user
from tests.facts import code

ONE, TWO, THREE = code(1), code(2), code(3)
PARTS = (f"The first is {ONE}. ", f"The second is {TWO}. ", f"The third is {THREE}.")
WHOLE = "".join(PARTS)
REQUEST = ModelRequest(messages=(user("hello"),), stream=True)


def event(name: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{name}", **fields}


def parts_of(texts: tuple[str, ...], kind: str = "output_text") -> list[dict[str, Any]]:
    return [{"type": kind, "text": text} for text in texts]


ITEM = {"type": "message", "id": "m1", "role": "assistant"}
HEAD = event("output_item.added", item=ITEM | {"content": []}, output_index=0)
END = event("completed", response={"id": "r", "status": "completed"})


def told(way: str, number: int, text: str, *, numbered: bool) -> list[dict[str, Any]]:
    """Return the events by which a part is told in one of the ways."""
    place: dict[str, Any] = {"item_id": "m1", "output_index": 0}
    if numbered:
        place["content_index"] = number
    half = len(text) // 2
    return {
        "pieces": [
            event("output_text.delta", delta=piece, **place) for piece in (text[:half], text[half:])
        ],
        "some pieces": [event("output_text.delta", delta=text[:half], **place)],
        "end": [event("output_text.done", text=text, **place)],
        "part": [event("content_part.done", part=parts_of((text,))[0], **place)],
    }[way]


WAYS = [
    *combinations(("pieces", "end", "part"), 1),
    *combinations(("pieces", "end", "part"), 2),
    ("pieces", "end", "part"),
    ("some pieces", "end"),
    ("some pieces", "part"),
    ("some pieces", "end", "part"),
]


def heard(*events: dict[str, Any]) -> tuple[Any, str, str]:
    """Return the reply, and what was told of its text and its thoughts on the way."""
    news: list[tuple[str, dict[str, Any]]] = []
    reply = read_stream(
        events, REQUEST, lambda name, payload: news.append((name, payload)), as_model_error
    )
    texts = [
        "".join(one["text"] for name, one in news if name == kind)
        for kind in ("delta", "reasoning")
    ]
    return reply, texts[0], texts[1]


@pytest.mark.parametrize("numbered", [True, False], ids=["numbered", "not numbered"])
@pytest.mark.parametrize("ways", WAYS, ids=" and ".join)
def test_every_part_is_there_once_however_it_is_told(ways, numbered):
    events = [
        one
        for number, text in enumerate(PARTS)
        for way in ways
        for one in told(way, number, text, numbered=numbered)
    ]
    reply, said, _ = heard(HEAD, *events, END)
    assert (reply.text, said) == (WHOLE, WHOLE)


@pytest.mark.parametrize(
    "each",
    [("pieces", "end", "part"), ("end", "pieces", "end"), ("part", "part", "pieces")],
    ids="-".join,
)
def test_parts_of_one_item_may_be_told_in_different_ways(each):
    events = [
        one
        for number, (way, text) in enumerate(zip(each, PARTS, strict=True))
        for one in told(way, number, text, numbered=True)
    ]
    reply, said, _ = heard(HEAD, *events, END)
    assert (reply.text, said) == (WHOLE, WHOLE)


@pytest.mark.parametrize("ways", WAYS, ids=" and ".join)
def test_ends_that_come_behind_all_pieces_say_nothing_twice(ways):
    events = [
        one
        for way in ways
        for number, text in enumerate(PARTS)
        for one in told(way, number, text, numbered=True)
    ]
    reply, said, _ = heard(HEAD, *events, END)
    # Of pieces that came first the rest is told behind them.
    wanted = set(WHOLE) if ways[0] == "some pieces" else WHOLE
    found = set(reply.text) if ways[0] == "some pieces" else reply.text
    assert found == wanted
    assert len(said) == len(WHOLE)


@pytest.mark.parametrize("numbers", [(0, 0, 0), (0, 1, 2), (1, 2, 3), (None,) * 3], ids=str)
def test_ends_alone_whose_numbers_are_wrong_lose_nothing(numbers):
    events = [
        event("output_text.done", text=text, item_id="m1", content_index=number)
        for number, text in zip(numbers, PARTS, strict=True)
    ]
    assert heard(HEAD, *events, END)[0].text == WHOLE


@pytest.mark.parametrize("ways", [(), *WAYS], ids=lambda ways: " and ".join(ways) or "nothing")
@pytest.mark.parametrize("last", ["item", "response", "both"])
def test_what_item_and_response_have_besides_is_added_once(ways, last):
    whole = ITEM | {"content": parts_of(PARTS)}
    events = [one for way in ways for one in told(way, 0, PARTS[0], numbered=True)]
    if last != "response":
        events.append(event("output_item.done", item=whole, output_index=0))
    answer = {"id": "r", "status": "completed", "output": [] if last == "item" else [whole]}
    reply, said, _ = heard(HEAD, *events, event("completed", response=answer))
    assert (reply.text, said) == (WHOLE, WHOLE)


def thoughts(way: str, number: int, text: str) -> list[dict[str, Any]]:
    place = {"item_id": "t1", "output_index": 0, "content_index": number}
    summed = {"item_id": "t1", "output_index": 0, "summary_index": number}
    return {
        "pieces": [event("reasoning_text.delta", delta=text, **place)],
        "end": [event("reasoning_text.done", text=text, **place)],
        "part": [event("content_part.done", part=parts_of((text,), "reasoning_text")[0], **place)],
        "summed pieces": [event("reasoning_summary_text.delta", delta=text, **summed)],
        "summed end": [event("reasoning_summary_text.done", text=text, **summed)],
        "summed part": [
            event(
                "reasoning_summary_part.done", part=parts_of((text,), "summary_text")[0], **summed
            )
        ],
    }[way]


@pytest.mark.parametrize(
    "ways",
    [
        ("pieces",), ("end",), ("part",), ("pieces", "end"), ("pieces", "end", "part"),
        ("summed pieces",), ("summed end",), ("summed part",), ("summed pieces", "summed end"),
        ("summed pieces", "summed end", "summed part"),
    ],
    ids=" and ".join,
)  # fmt: skip
def test_thoughts_that_come_at_their_ends_alone_are_thoughts_and_no_text(ways):
    events = [
        one for number in range(2) for way in ways for one in thoughts(way, number, PARTS[number])
    ]
    answer = told("pieces", 0, "So it is.", numbered=True)
    reply, said, thought = heard(
        event("output_item.added", item={"type": "reasoning", "id": "t1"}, output_index=0),
        *events,
        HEAD | {"output_index": 1},
        *[one | {"output_index": 1} for one in answer],
        END,
    )
    assert (reply.text, said) == ("So it is.", "So it is.")
    for fact in (ONE, TWO):
        assert reply.reasoning.count(fact) == 1
        assert thought.count(fact) == 1


@pytest.mark.parametrize("ways", [("delta",), ("done",), ("part",), ("delta", "done", "part")])
def test_a_refusal_of_two_parts_is_whole(ways):
    events = []
    for number, text in enumerate(PARTS):
        place = {"content_index": number, "item_id": "m1"}
        each = {
            "delta": event("refusal.delta", delta=text, **place),
            "done": event("refusal.done", refusal=text, **place),
            "part": event("content_part.done", part={"type": "refusal", "refusal": text}, **place),
        }
        events += [each[way] for way in ways]
    reply = heard(HEAD, *events, END)[0]
    assert (reply.refusal, reply.text) == (WHOLE, None)


def test_parts_without_end_end_the_answer():
    """Each empty part costs a server some bytes, and us an object."""
    first = event("output_text.delta", delta="Hello", content_index=0, item_id="m1")

    def events():
        yield HEAD
        yield first
        for number in range(1, 1_000_000):
            yield event("output_text.delta", delta="", content_index=number, item_id="m1")

    reply = read_stream(events(), REQUEST, lambda name, payload: None, as_model_error)
    assert (reply.text, reply.finish_reason) == ("Hello", "length")


@pytest.mark.parametrize("kind", ["message", "function_call"])
def test_an_item_that_the_finished_response_alone_tells_takes_no_other_items_place(kind):
    first, second = f'{{"a": "{ONE}"}}', f'{{"a": "{TWO}"}}'

    def item(name: str, text: str) -> dict[str, Any]:
        if kind == "message":
            return {"type": kind, "id": name, "content": parts_of((text,))}
        return {"type": kind, "id": name, "call_id": f"call {name}", "name": "t", "arguments": text}

    output = [item("i1", first), item("i2", second)]
    reply, _, _ = heard(
        event("output_item.added", item=output[1] | {"content": [], "arguments": ""}),
        event("completed", response={"id": "r", "status": "completed", "output": output}),
    )
    if kind == "message":
        assert sorted(reply.text.split("\n\n")) == sorted([first, second])
    else:
        told = {call["id"]: call["function"]["arguments"] for call in reply.tool_calls}
        assert told == {"call i1": first, "call i2": second}
