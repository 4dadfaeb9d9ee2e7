"""Streams of the Responses wire: as OpenAI sends them, and as looser servers do."""

from __future__ import annotations

import pytest

from chatapp.llm import openai_client
from chatapp.llm.errors import ErrorKind
from tests.chatapp.llm.responses_server import Asker

READ = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"a": 1}'}}
LIST = {"id": "c2", "type": "function", "function": {"name": "list", "arguments": "{}"}}
CALLS = {0: ("c1", "read", '{"a": 1}'), 1: ("c2", "list", "{}")}
END = {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}}


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(openai_client, "FIRST_WAIT_SECONDS", 0.01)


@pytest.fixture
def ask(use_models) -> Asker:
    return Asker(use_models)


def added(call_id, name, **place):
    item = {"type": "function_call", "call_id": call_id, "name": name, "arguments": ""}
    return event("output_item.added", item=item, **place)


def done(call_id, name, arguments, **place):
    item = {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
    return event("output_item.done", item=item, **place)


def arguments(delta, **place):
    return event("function_call_arguments.delta", delta=delta, **place)


def filled(text, **place):
    return event("function_call_arguments.done", arguments=text, **place)


def text(delta, **place):
    return event("output_text.delta", delta=delta, **place)


def message(*texts, **more):
    parts = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "role": "assistant", "content": parts, **more}


def event(name, /, **fields):
    return {"type": f"response.{name}", **fields}


def completed(*output):
    return event("completed", response={"id": "r", "status": "completed", "output": list(output)})


def test_pieces_of_text_are_told_as_they_come(ask):
    reply = ask({"chunks": ["Hel", "lo"]}, stream=True)
    assert ask.events == [("delta", {"text": "Hel"}), ("delta", {"text": "lo"})]
    assert reply.text == "Hello"


def test_pieces_of_calls_are_told_as_on_the_chat_wire(ask):
    ask({"tool_calls": [READ]}, stream=True)
    assert ask.events == [
        ("tool_call", {"index": 0, "id": "c1", "name": "read", "arguments_delta": ""}),
        ("tool_call", {"index": 0, "id": "c1", "name": "read", "arguments_delta": '{"a"'}),
        ("tool_call", {"index": 0, "id": "c1", "name": "read", "arguments_delta": ": 1}"}),
    ]


FC_1, FC_2 = {"item_id": "fc_1"}, {"item_id": "fc_2"}
SHAPES = {
    "interleaved, by item ids": [
        event("output_item.added", item={"type": "function_call", "id": "fc_1", "call_id": "c1"}),
        event("output_item.added", item={"type": "function_call", "id": "fc_2", "call_id": "c2"}),
        arguments("{", **FC_2),
        arguments('{"a"', **FC_1),
        arguments("}", **FC_2),
        arguments(": 1}", **FC_1),
        filled('{"a": 1}', name="read", **FC_1),
        filled("{}", name="list", **FC_2),
    ],
    "interleaved, by numbers": [
        added("c1", "read", output_index=1),
        added("c2", "list", output_index=2),
        arguments("{", output_index=2),
        arguments('{"a": 1}', output_index=1),
        arguments("}", output_index=2),
    ],
    "every call is number 0": [
        added("c1", "read", output_index=0),
        arguments('{"a": 1}', output_index=0),
        done("c1", "read", '{"a": 1}', output_index=0),
        added("c2", "list", output_index=0),
        arguments("{}", output_index=0),
        done("c2", "list", "{}", output_index=0),
    ],
    "every call is number 0, and none is announced": [
        arguments('{"a": 1}', output_index=0, item_id="fc_1"),
        arguments("{}", output_index=0, item_id="fc_2"),
        done("c1", "read", '{"a": 1}', output_index=0, item_id="fc_1"),
        done("c2", "list", "{}", output_index=0, item_id="fc_2"),
    ],
    "pieces without ids, each call done before the next": [
        arguments('{"a": 1}'),
        done("c1", "read", '{"a": 1}'),
        arguments("{}"),
        done("c2", "list", "{}"),
    ],
    "no ids and no numbers": [
        added("c1", "read"),
        arguments('{"a"'),
        arguments(": 1}"),
        added("c2", "list"),
        arguments("{}"),
    ],
    "pieces before anything has a name": [
        arguments('{"a"'),
        arguments(": 1}"),
        filled('{"a": 1}'),
        arguments("{}"),
        filled("{}"),
        done("c1", "read", '{"a": 1}'),
        done("c2", "list", "{}"),
    ],
    "ends without pieces": [
        added("c1", "read", output_index=0),
        filled('{"a": 1}', output_index=0),
        added("c2", "list", output_index=1),
        done("c2", "list", "{}", output_index=1),
    ],
    "done at once": [done("c1", "read", '{"a": 1}'), done("c2", "list", "{}")],
    "all ends behind all pieces": [
        added("c1", "read", output_index=0),
        arguments('{"a": 1}', output_index=0),
        added("c2", "list", output_index=1),
        arguments("{}", output_index=1),
        done("c1", "read", '{"a": 1}', output_index=0),
        done("c2", "list", "{}", output_index=1),
    ],
    "ids change between the events of an item": [
        added("c1", "read", output_index=0, item_id="x1"),
        arguments('{"a": 1}', output_index=0, item_id="x2"),
        added("c2", "list", output_index=1, item_id="x3"),
        arguments("{}", output_index=1, item_id="x4"),
        done("c1", "read", '{"a": 1}', output_index=0, item_id="x5"),
        done("c2", "list", "{}", output_index=1, item_id="x6"),
    ],
    "only in the finished response": [
        completed(
            {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"a": 1}'},
            {"type": "function_call", "call_id": "c2", "name": "list", "arguments": "{}"},
        )
    ],
    "names only in the finished response": [
        arguments('{"a": 1}', output_index=0),
        arguments("{}", output_index=1),
        completed(
            {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"a": 1}'},
            {"type": "function_call", "call_id": "c2", "name": "list", "arguments": "{}"},
        ),
    ],
    "cut off in the middle of pieces that the end completes": [
        added("c1", "read", output_index=0),
        arguments('{"a"', output_index=0),
        done("c1", "read", '{"a": 1}', output_index=0),
        added("c2", "list", output_index=1),
        filled("{}", output_index=1),
    ],
}


@pytest.mark.parametrize("events", SHAPES.values(), ids=SHAPES.keys())
def test_pieces_of_calls_find_each_other(ask, events):
    reply = ask({"events": [*events, END]}, stream=True)
    assert reply.tool_calls == (READ, LIST)
    assert reply.finish_reason == "tool_calls"
    assert ask.told_calls == CALLS


def test_arguments_that_only_the_announcement_has_are_taken(ask):
    item = {"type": "function_call", "call_id": "c2", "name": "list", "arguments": "{}"}
    reply = ask({"events": [event("output_item.added", item=item), END]}, stream=True)
    assert reply.tool_calls == (LIST,)


def test_the_end_of_a_call_is_right_where_its_pieces_were_not(ask):
    events = [added("c1", "read"), arguments('{"a":1}'), done("c1", "read", '{"a": 1}'), END]
    assert ask({"events": events}, stream=True).tool_calls == (READ,)


TEXTS = {
    "pieces only": [text("Hel"), text("lo")],
    "pieces and every end": [
        event("output_item.added", item=message(id="m"), output_index=0),
        text("Hel", item_id="m", output_index=0),
        text("lo", item_id="m", output_index=0),
        event("output_text.done", text="Hello", item_id="m", output_index=0),
        event("output_item.done", item=message("Hello", id="m"), output_index=0),
        completed(message("Hello", id="m")),
    ],
    "ends under other ids": [text("Hello", item_id="a"), completed(message("Hello", id="b"))],
    "text done without pieces": [event("output_text.done", text="Hello")],
    "item done without pieces": [event("output_item.done", item=message("Hello"))],
    "only in the finished response": [completed(message("Hello"))],
    "a rest in the finished response": [text("Hel"), completed(message("Hello"))],
    "two parts, one of them in pieces": [
        text("Hel", content_index=0),
        event("output_item.done", item=message("Hel", "lo")),
    ],
    "content as a text": [completed({"type": "message", "content": "Hello"})],
}


@pytest.mark.parametrize("events", TEXTS.values(), ids=TEXTS.keys())
def test_a_text_is_whole_and_told_once(ask, events):
    assert ask({"events": [*events, END]}, stream=True).text == "Hello"
    assert ask.told_text == "Hello"


def test_several_messages_are_parted_by_an_empty_line(ask):
    events = [
        text("One.", output_index=0),
        text("Two.", output_index=1),
        completed(message("One."), message("Two.")),
    ]
    assert ask({"events": events}, stream=True).text == "One.\n\nTwo."
    assert ask.told_text == "One.\n\nTwo."


def test_a_text_that_ends_otherwise_than_it_came_stays_as_it_was_told(ask):
    events = [text("Hello "), completed(message("Hello"))]
    assert ask({"events": events}, stream=True).text == "Hello "
    assert ask.told_text == "Hello "


def test_a_refusal_in_pieces_is_whole(ask):
    events = [
        event("refusal.delta", delta="I can"),
        event("refusal.delta", delta="not."),
        event("refusal.done", refusal="I cannot."),
        END,
    ]
    reply = ask({"events": events}, stream=True)
    assert (reply.refusal, reply.text) == ("I cannot.", None)


def test_reasoning_in_pieces_is_whole(ask):
    events = [
        event("reasoning_text.delta", delta="H", item_id="rs"),
        event("reasoning_text.delta", delta="m.", item_id="rs"),
        text("hi"),
        END,
    ]
    reply = ask({"events": events}, stream=True)
    assert (reply.reasoning, reply.text, reply.reasoning_items) == ("Hm.", "hi", ())


def test_parts_of_a_reasoning_summary_are_parted(ask):
    events = [
        event("reasoning_summary_part.added", summary_index=0),
        event("reasoning_summary_text.delta", delta="one"),
        event("reasoning_summary_part.added", summary_index=1),
        event("reasoning_summary_text.delta", delta="two"),
        END,
    ]
    assert ask({"events": events}, stream=True).reasoning == "one\n\ntwo"


def test_the_encrypted_reasoning_of_the_item_is_kept_where_the_response_lacks_it(ask):
    item = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "gAAA"}
    bare = {"type": "reasoning", "id": "rs", "summary": []}
    events = [event("output_item.done", item=item), text("hi"), completed(bare, message("hi"))]
    (kept,) = ask({"events": events}, stream=True).reasoning_items
    assert kept["encrypted_content"] == "gAAA"


def test_reasoning_that_was_only_announced_cannot_be_sent_back(ask):
    item = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "gA"}
    events = [event("output_item.added", item=item), text("hi"), END]
    assert ask({"events": events}, stream=True).reasoning_items == ()


def test_events_of_unknown_kinds_are_passed_over(ask):
    events = [
        {"type": "response.mystery", "delta": "no"},
        {"type": "keepalive"},
        event("output_item.added", item={"type": "web_search_call", "id": "w"}, output_index=0),
        event("web_search_call.completed", item_id="w", output_index=0),
        {"nothing": "known"},
        text("hi", output_index=1),
        event("output_item.done", item={"type": "web_search_call", "id": "w"}, output_index=0),
        END,
    ]
    assert ask({"events": events}, stream=True).text == "hi"


@pytest.mark.parametrize(
    "failure",
    [
        {"type": "error", "code": "context_length_exceeded", "message": ""},
        {"type": "error", "error": {"code": "context_length_exceeded", "message": ""}},
        {"error": {"code": "context_length_exceeded", "message": ""}},
        {"type": "error", "message": "Your input exceeds the context window of this model."},
        event("failed", response={"error": {"code": "context_length_exceeded", "message": ""}}),
        event(
            "completed",
            response={
                "status": "failed",
                "error": {
                    "code": "x",
                    "message": ("Your input exceeds the context window of this model."),
                },
            },
        ),
    ],
)
def test_an_error_inside_a_stream_is_read_and_has_what_came_before(ask, failure):
    error = ask({"events": [text("so far"), failure]}, stream=True)
    assert error.kind is ErrorKind.CONTEXT_OVERFLOW
    assert error.partial.text == "so far"
    assert error.partial.finish_reason == "interrupted"


def test_an_error_event_is_no_error_code(ask):
    error = ask({"events": [{"type": "error", "message": "Bad luck."}]}, stream=True)
    assert (error.kind, error.code, error.detail) == (ErrorKind.REJECTED, "", "Bad luck.")


@pytest.mark.parametrize("tail", [[], ["[DONE]"]])
def test_a_stream_that_breaks_off_is_no_whole_answer(ask, tail):
    error = ask({"events": [text("so far"), *tail]}, stream=True)
    assert error.kind is ErrorKind.BROKEN_ANSWER
    assert error.partial.text == "so far"
    assert len(ask.server.calls) == 1


def test_a_stream_that_breaks_off_before_anything_came_is_tried_again(ask):
    assert ask({"events": ["[DONE]"]}, {"text": "whole"}, stream=True).text == "whole"
    assert len(ask.server.calls) == 2


@pytest.mark.parametrize("line", ['{"type": "resp', "nonsense", '{"type": {}, "delta": []'])
def test_a_stream_that_nobody_can_read_on_is_a_broken_answer(ask, line):
    error = ask({"events": [text("so far"), line]}, stream=True)
    assert error.kind is ErrorKind.BROKEN_ANSWER
    assert error.partial.text == "so far"


def test_what_comes_behind_the_end_is_not_waited_for(ask):
    assert ask({"events": [text("hi"), END, "nonsense"]}, stream=True).text == "hi"


def test_an_answer_that_is_cut_off_in_a_stream_says_why(ask):
    details = {"reason": "max_output_tokens"}
    cut = event("incomplete", response={"incomplete_details": details, "output": []})
    reply = ask({"events": [text("half"), cut]}, stream=True)
    assert (reply.text, reply.finish_reason) == ("half", "length")


def test_a_cancelled_turn_stops_reading_and_keeps_what_had_come(ask):
    reply = {"chunks": ["a"] * 50, "chunk_delay_s": 0.02}
    error = ask(reply, stream=True, cancelled=lambda: len(ask.events) >= 3)
    assert error.kind is ErrorKind.CANCELLED
    assert error.partial.text == "aaa"
