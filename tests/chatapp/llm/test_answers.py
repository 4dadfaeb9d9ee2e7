"""What an answer brought, whole or streamed: its end, its thoughts, its server's own fields."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatapp.llm import chat_wire, responses_wire
from chatapp.llm.errors import ErrorKind, ModelError
from chatapp.llm.openai_client import as_model_error
from chatapp.llm.requests import ModelRequest, Reply
from chatapp.llm.streams import DONE, pieces_of

REQUEST = ModelRequest(messages=[{"role": "user", "content": "q"}])
USAGE = {"prompt_tokens": 20, "completion_tokens": 3, "total_tokens": 23}


def piece(text: str | None = None, *, finish: str | None = None, **more) -> dict:
    """One piece of a streamed answer; `more` are fields of the delta."""
    said = {"content": text} if text is not None else {}
    return {"choices": [{"index": 0, "delta": said | more, "finish_reason": finish}]}


def streamed(*pieces: dict, wire=chat_wire) -> tuple[Reply | ModelError, list[tuple[str, dict]]]:
    """Return what comes of a stream, and what was told meanwhile."""
    told: list[tuple[str, dict]] = []
    try:
        reply = wire.read_stream(
            pieces, REQUEST, lambda name, payload: told.append((name, payload)), as_model_error
        )
    except ModelError as error:
        return error, told
    return reply, told


def whole(message: dict, finish: str | None = "stop", **more) -> Reply:
    """Return the reply of a finished completion; `more` are fields of its body."""
    choice = {"index": 0, "message": {"role": "assistant"} | message, "finish_reason": finish}
    return chat_wire.reply_of({"choices": [choice]} | more)


def shown(told: list[tuple[str, dict]]) -> str:
    """Return the text that a reader of the events has in the end."""
    text = ""
    for name, payload in told:
        text = "" if name == "reset" else text + (payload["text"] if name == "delta" else "")
    return text


# --- ends -----------------------------------------------------------------------------------------

ENDS = {
    "a reason": [piece("Hel"), piece("lo", finish="stop")],
    "a reason in a piece of its own": [piece("Hello"), piece(finish="stop")],
    "a reason of another spelling": [piece("Hello"), piece(finish="MAX_TOKENS")],
    "a reason at the top": [piece("Hello"), {"choices": [], "finish_reason": "stop"}],
    "a reason of another name": [
        piece("Hello"),
        {"choices": [{"delta": {}, "stop_reason": "end_turn"}]},
    ],
    "done": [piece("Hello"), DONE],
    "usage alone": [piece("Hello"), {"choices": [], "usage": USAGE}],
    "usage alone, then a sign of life": [
        piece("Hello"),
        {"choices": [], "usage": USAGE},
        {"choices": []},
    ],
}
NO_ENDS = {
    "nothing at all": [],
    "only done": [DONE],
    "text": [piece("Hel")],
    "usage in every piece": [piece("Hel") | {"usage": USAGE}, piece("lo") | {"usage": USAGE}],
    "usage first": [{"choices": [], "usage": USAGE}, piece("Hel")],
    "an empty reason": [piece("Hel", finish="")],
    "a reason that says null": [piece("Hel", finish="null")],
    "half a call, then done": [
        piece(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a'}}]),
        DONE,
    ],
    "half a call, then usage": [
        piece(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a'}}]),
        {"choices": [], "usage": USAGE},
    ],
}


@pytest.mark.parametrize("pieces", ENDS.values(), ids=ENDS)
def test_a_stream_ends_by_a_reason_by_done_or_by_usage_alone(pieces):
    reply, told = streamed(*pieces)
    assert isinstance(reply, Reply)
    assert reply.text == shown(told) == "Hello"


@pytest.mark.parametrize("pieces", NO_ENDS.values(), ids=NO_ENDS)
def test_a_stream_without_an_end_is_broken(pieces):
    error, _ = streamed(*pieces)
    assert isinstance(error, ModelError)
    assert error.kind is ErrorKind.BROKEN_ANSWER
    assert error.partial.finish_reason == "interrupted"


def test_a_connection_that_breaks_behind_the_end_takes_nothing_away():
    def pieces():
        yield piece("Hello", finish="stop")
        raise ConnectionError("reset by peer")

    reply = chat_wire.read_stream(pieces(), REQUEST, lambda *told: None, as_model_error)
    assert (reply.text, reply.finish_reason) == ("Hello", "stop")


FAILURES = {
    "an error in the choice": {"error": {"code": 502, "message": "Provider disconnected"}},
    "an error of few words in the choice": {"error": {"message": "boom"}},
    "an error that is a text": {"error": "boom"},
    "the reason alone": {"finish_reason": "error"},
    "a reason of another spelling": {"finish_reason": "NETWORK_ERROR"},
    "a call that was malformed": {"finish_reason": "MALFORMED_FUNCTION_CALL"},
    "a cancelled answer": {"finish_reason": "cancelled"},
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_a_failure_inside_a_choice_is_one_of_the_server(failure):
    last = {"choices": [{"index": 0, "delta": {"content": ""}} | failure]}
    error, _ = streamed(piece("part"), last)
    assert isinstance(error, ModelError)
    assert error.is_temporary
    assert error.partial.text == "part"


@pytest.mark.parametrize(
    "error",
    [
        {"error": {"message": "overloaded", "code": 503}},
        {"object": "error", "message": "overloaded", "code": 503},
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        {"error": "The model is overloaded, try again later."},
        {"object": "error", "message": "Service Unavailable", "code": "503"},
        {"message": "Service Unavailable", "code": 503},
    ],
)
def test_an_error_between_the_pieces_is_one_in_any_form(error):
    found, _ = streamed(piece("part"), error, DONE)
    assert isinstance(found, ModelError)
    assert found.partial.text == "part"
    with pytest.raises(ModelError) as raised:
        chat_wire.reply_of(error)
    assert raised.value.kind is found.kind


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_the_same_holds_for_an_answer_in_one_piece(failure):
    choice = {"index": 0, "message": {"role": "assistant", "content": "part"}} | failure
    with pytest.raises(ModelError) as raised:
        chat_wire.reply_of({"choices": [choice]})
    assert raised.value.is_temporary
    assert raised.value.partial.text == "part"


def test_the_servers_own_word_is_kept():
    assert whole({"content": "a"}, "MAX_TOKENS").finish_reason == "MAX_TOKENS"
    assert whole({"content": "a"}, None, finish_reason="eos").finish_reason == "eos"
    assert whole({"content": "a"}, None).finish_reason == "stop"


def test_a_response_that_fails_has_what_came_before():
    said = {"type": "message", "content": [{"type": "output_text", "text": "part"}]}
    with pytest.raises(ModelError) as raised:
        responses_wire.reply_of({"status": "failed", "error": {}, "output": [said]})
    assert raised.value.partial.text == "part"


# --- blank answers --------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "\n\n", " \t", "\u200b\u200c", "\ufeff\n", "\u2800", None])
def test_a_blank_answer_is_none(text):
    assert whole({"content": text}).text is None
    assert whole({"content": text}).is_empty
    reply, _ = streamed(piece(text or ""), piece(finish="stop"))
    assert isinstance(reply, Reply)
    assert reply.is_empty


# --- thoughts -------------------------------------------------------------------------------------

THOUGHTFUL = {
    "a field": {"content": "Hello", "reasoning_content": "hm"},
    "another field": {"content": "Hello", "reasoning": "hm"},
    "a third field": {"content": "Hello", "thinking": "hm"},
    "an object": {"content": "Hello", "reasoning": {"content": "hm"}},
    "parts": {"content": "Hello", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
    "twice": {"content": "Hello", "reasoning_content": "hm", "reasoning": "hm"},
    "tags": {"content": "<think>hm</think>\n\nHello"},
    "a closing tag alone": {"content": "hm\n</think>\n\nHello"},
    "parts of the content": {
        "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Hello"}]
    },
}


@pytest.mark.parametrize("message", THOUGHTFUL.values(), ids=THOUGHTFUL)
def test_thoughts_are_no_part_of_the_text(message):
    reply = whole(message)
    assert (reply.text, reply.reasoning) == ("Hello", "hm")


@pytest.mark.parametrize("message", THOUGHTFUL.values(), ids=THOUGHTFUL)
def test_they_are_told_as_thoughts_in_a_stream(message):
    reply, told = streamed({"choices": [{"delta": message}]}, piece(finish="stop"))
    assert isinstance(reply, Reply)
    assert (reply.text, reply.reasoning) == ("Hello", "hm")
    assert shown(told) == "Hello"


def test_thoughts_that_never_end_leave_no_answer():
    reply = whole({"content": "<think>I wonder"}, "length")
    assert (reply.text, reply.reasoning, reply.is_empty) == (None, "I wonder", True)


@given(st.data())
def test_a_stream_cut_anywhere_gives_what_one_piece_gives(data):
    text = data.draw(
        st.sampled_from(
            ["<think>a\nb</think>\n\nHello <think>", "ab\n</think>\nHello", "Hello `</think>`"]
        )
    )
    cuts = data.draw(st.sets(st.integers(min_value=0, max_value=len(text))))
    places = [0, *sorted(cuts), len(text)]
    pieces = [piece(text[start:end]) for start, end in itertools.pairwise(places)]
    reply, told = streamed(*pieces, piece(finish="stop"))
    expected = whole({"content": text})
    assert isinstance(reply, Reply)
    assert (reply.text, reply.reasoning) == (expected.text, expected.reasoning)
    assert shown(told) == expected.text


def test_thoughts_in_the_text_of_a_response_are_none_of_it():
    said = {"type": "output_text", "text": "<think>hm</think>Hello"}
    body = {"status": "completed", "output": [{"type": "message", "content": [said]}]}
    reply = responses_wire.reply_of(body)
    assert (reply.text, reply.reasoning) == ("Hello", "hm")
    reply, told = streamed(
        {"type": "response.output_text.delta", "delta": "<thi"},
        {"type": "response.output_text.delta", "delta": "nk>hm</think>Hel"},
        {"type": "response.output_text.delta", "delta": "lo"},
        {"type": "response.completed", "response": body},
        wire=responses_wire,
    )
    assert isinstance(reply, Reply)
    assert (reply.text, reply.reasoning, shown(told)) == ("Hello", "hm", "Hello")


# --- own fields -----------------------------------------------------------------------------------

SIGNED = {"google": {"thought_signature": "U0lH"}}


@pytest.mark.parametrize(
    "own",
    [
        {"extra_content": SIGNED},
        {"thought_signature": "U0lH"},
        {"provider_specific_fields": {"a": [1, 2]}},
        {"signature": "x", "provider_id": "p-1"},
        {"cache_control": {"type": "ephemeral"}},
    ],
)
def test_a_call_keeps_its_own_fields_whole_or_streamed(own):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert whole({"tool_calls": [call | own]}, "tool_calls").tool_calls == (call | own,)
    start = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{"}}
    reply, _ = streamed(
        piece(tool_calls=[start | own]),
        piece(tool_calls=[{"index": 0, "function": {"arguments": "}"}}]),
        piece(finish="tool_calls"),
    )
    assert isinstance(reply, Reply)
    assert reply.tool_calls == (call | own,)


@pytest.mark.parametrize(
    "own",
    [
        {"annotations": [{"type": "url_citation", "url": "u"}]},
        {"extra_content": SIGNED},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x", "index": 0}]},
        {"thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "s"}]},
        {"reasoning": {"content": "hm", "id": "r"}},
    ],
)
def test_a_message_keeps_its_own_fields_whole_or_streamed(own):
    assert whole({"content": "a"} | own).fields == own
    reply, _ = streamed(piece("a"), piece(**own), piece(finish="stop"))
    assert isinstance(reply, Reply)
    assert reply.fields == own


def test_pieces_of_an_own_field_are_put_together():
    first = {"type": "reasoning.text", "index": 0, "text": "h", "signature": None}
    second = {"type": "reasoning.text", "index": 0, "text": "m"}
    third = {"type": "reasoning.text", "index": 0, "signature": "s"}
    pieces = [piece(reasoning_details=[one]) for one in (first, second, third)]
    reply, _ = streamed(*pieces, piece("a", finish="stop"))
    assert isinstance(reply, Reply)
    assert reply.fields == {
        "reasoning_details": [
            {"type": "reasoning.text", "index": 0, "text": "hm", "signature": "s"}
        ]
    }
    assert reply.reasoning == "hm"


def test_blocks_without_a_number_grow_until_they_are_signed():
    blocks = [
        {"type": "thinking", "thinking": "h"},
        {"type": "thinking", "thinking": "m"},
        {"type": "thinking", "thinking": "", "signature": "s"},
        {"type": "thinking", "thinking": "more"},
    ]
    reply, _ = streamed(
        *(piece(thinking_blocks=[block]) for block in blocks), piece("a", finish="stop")
    )
    assert isinstance(reply, Reply)
    assert reply.fields["thinking_blocks"] == [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "thinking", "thinking": "more"},
    ]


def test_sources_beside_the_choices_are_kept():
    reply = whole({"content": "a"}, citations=["u"], system_fingerprint="x")
    assert reply.about == {"citations": ["u"]}


def test_parts_of_the_content_that_are_no_text_are_kept():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    reply = whole({"content": [{"type": "text", "text": "a"}, image]})
    assert (reply.text, reply.about) == ("a", {"parts": [image]})


def test_own_fields_of_a_call_that_are_too_large_are_named():
    call = {"id": "c", "function": {"name": "f", "arguments": "{}"}, "huge": "x" * 70_000}
    reply = whole({"tool_calls": [call | {"small": 1}]}, "tool_calls")
    assert reply.tool_calls[0]["small"] == 1
    assert "huge" not in reply.tool_calls[0]
    assert reply.left_out == ("huge",)


def test_the_form_of_a_call_before_there_were_tools_is_one():
    message = {"content": None, "function_call": {"name": "f", "arguments": "{}"}}
    (call,) = whole(message, "function_call").tool_calls
    assert call["function"] == {"name": "f", "arguments": "{}"}


# --- events ---------------------------------------------------------------------------------------


def raw(*events: str) -> bytes:
    return "".join(f"data: {event}\n\n" for event in events).encode()


BODIES = {
    "events and done": (
        raw('{"a": 1}', '{"b": "é\u2028x"}', "[DONE]"),
        [{"a": 1}, {"b": "é\u2028x"}, DONE],
    ),
    "carriage returns": (b'data: {"a": 1}\r\n\r\ndata: [DONE]\r\n\r\n', [{"a": 1}, DONE]),
    "comments and names": (b': ping\n\nevent: x\nid: 1\ndata:{"a": 1}\n\n', [{"a": 1}]),
    "a byte order mark": (b'\xef\xbb\xbfdata: {"a": 1}\n\n', [{"a": 1}]),
    "several lines": (b'data: {"a":\ndata: 1}\n\n', [{"a": 1}]),
    "an error by its name": (
        b'event: error\ndata: {"message": "m"}\n\n',
        [{"error": {"message": "m"}}],
    ),
    "an error in words": (b"event: error\ndata: boom\n\n", [{"error": {"message": "boom"}}]),
    "no line behind the last": (b'data: {"a": 1}', [{"a": 1}]),
    "half of the last": (b'data: {"a": 1}\n\ndata: {"b', [{"a": 1}]),
    "done without a line behind it": (b"data: [DONE]", [DONE]),
    "nothing behind done counts": (raw('{"a": 1}', "[DONE]", '{"b": 1}'), [{"a": 1}, DONE]),
}


@pytest.mark.parametrize(("body", "pieces"), BODIES.values(), ids=BODIES)
def test_the_events_of_a_stream_are_read_wherever_it_is_cut(body, pieces):
    for size in (1, 2, 3, 7, 1000):
        chunks = [body[at : at + size] for at in range(0, len(body), size)]
        found = list(pieces_of(chunks))
        assert found == pieces
        assert [one is DONE for one in found] == [one is DONE for one in pieces]


def test_data_that_is_no_json_is_an_error():
    with pytest.raises(json.JSONDecodeError):
        list(pieces_of([raw("no json")]))
