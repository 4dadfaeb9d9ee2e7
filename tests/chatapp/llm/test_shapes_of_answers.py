"""Answers in the shapes that servers give them: what is alone, wrapped, beside, or said twice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chatapp.llm import chat_wire, openai_client
from chatapp.llm.answer_ends import AnswerEnd, end_of
from chatapp.llm.answer_shapes import unwrapped
from chatapp.llm.errors import ErrorKind, ModelError
from chatapp.llm.registry import all_models
from chatapp.llm.requests import ModelRequest, Reply
from tests.factories import user
from tests.fakes.model_server import ModelServer
from tests.growth import takes_longer


def whole(message: Any, finish: Any = "stop", **choice: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish} | choice]}


def piece(delta: Any = None, finish: str | None = None, **choice: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish} | choice]}


def events(*objects: Any, done: bool = True) -> str:
    lines = [f"data: {json.dumps(one)}\n\n" for one in objects]
    return "".join(lines) + ("data: [DONE]\n\n" if done else "")


def named(*pairs: tuple[str, dict[str, Any]]) -> str:
    return "".join(f"event: {name}\ndata: {json.dumps(body)}\n\n" for name, body in pairs)


@pytest.fixture
def ask(use_models, monkeypatch):
    """Return what asks a server that answers with one body: a text is a stream."""
    monkeypatch.setattr(openai_client, "MAX_ATTEMPTS", 1)

    def asked(body: Any, *, api: str = "chat", status: int = 200) -> Reply:
        is_stream = isinstance(body, str)
        kind = "text/event-stream" if is_stream else "application/json"
        text = body if is_stream else json.dumps(body)
        answer = {"status": status, "body": text, "headers": {"Content-Type": kind}}
        with ModelServer([{"when": {}, "reply": {"error": answer}}]) as server:
            use_models(server.models())
            request = ModelRequest(messages=[user("q")], stream=is_stream, api=api)
            return all_models()["default"].connect().complete(request)

    return asked


SEVEN = {"content": "seven hives"}
END = piece(finish="stop")
TEXTS = {
    "one part alone": whole({"content": {"type": "text", "text": "seven hives"}}),
    "a part without a type": whole({"content": {"text": "seven hives"}}),
    "texts in an object": whole({"content": {"parts": ["seven ", "hives"]}}),
    "a text in an object": whole({"content": [{"type": "text", "text": {"value": "seven hives"}}]}),
    "a part in a piece": events(piece({"content": {"text": "seven hives"}}), END),
    "one choice alone": {"choices": whole(SEVEN)["choices"][0]},
    "wrapped in data": {"code": 0, "data": whole(SEVEN)},
    "wrapped in response": {"response": whole(SEVEN)},
    "pieces in lists": events([piece(SEVEN)], [END]),
    "a list of pieces": json.dumps([piece(SEVEN), END]),
    "the whole behind its pieces": events(
        piece({"content": "seven "}), piece({"content": "hives"}), whole(SEVEN)
    ),
    "a name that is a number of no list": whole(SEVEN | {"tool_calls": {"\u00b2": 1}}),
    "a name of more digits than a number has": whole(SEVEN | {"tool_calls": {"1" * 5000: 1}}),
    "an end in small letters": events(piece(SEVEN), done=False) + "data: [done]\n\n",
    "an event for the end": events(piece(SEVEN), done=False) + "event: done\ndata: {}\n\n",
}


@pytest.mark.parametrize("body", TEXTS.values(), ids=TEXTS)
def test_a_text_is_read_in_every_shape(ask, body):
    reply = ask(body)
    assert (reply.text, end_of(reply.finish_reason)) == ("seven hives", AnswerEnd.WHOLE)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (7, "7"),
        (0.5, "0.5"),
        ({"hives": 7}, '{"hives": 7}'),
        (None, None),
        (True, None),
        ({}, None),
    ],
)
def test_a_content_that_is_a_value_of_json_is_its_text(ask, content, text):
    """Some servers read the JSON that was asked for, and send what it says."""
    assert ask(whole({"content": content, "reasoning": "hm"})).text == text


def written(*texts: str, form: str) -> list[dict[str, Any]]:
    """Return pieces in the form of a whole answer: each with a `text`, or with a `message`."""
    choices = [{"text": one} if form == "text" else {"message": {"content": one}} for one in texts]
    return [{"choices": [{"index": 0} | choice]} for choice in choices]


@pytest.mark.parametrize("form", ["text", "message"])
@pytest.mark.parametrize("texts", [("1", "1", "5"), ("ha", "ha"), ("a", "ab"), ("\n", "\n", "b")])
def test_pieces_in_the_form_of_a_whole_may_repeat_each_other(ask, form, texts):
    reply = ask(events(*written(*texts, form=form), END))
    assert reply.text == "".join(texts)


def test_thoughts_in_the_form_of_a_whole_may_repeat_each_other(ask):
    thoughts = [{"choices": [{"message": {"reasoning": one}}]} for one in ("1", "1", "5")]
    reply = ask(events(*thoughts, *written("seven", form="message"), END))
    assert (reply.reasoning, reply.text) == ("115", "seven")


def test_the_whole_behind_its_pieces_is_said_once_and_what_follows_it_as_it_is(ask):
    thought = piece({"reasoning": "I count."})
    whole_one = whole(SEVEN | {"reasoning": "I count."}, None)
    more = written("!", "!", form="message")
    reply = ask(events(thought, piece(SEVEN), whole_one, whole_one, *more, END))
    assert (reply.text, reply.reasoning) == ("seven hives!!", "I count.")


def test_a_refusal_behind_its_pieces_is_said_once(ask):
    said = {"refusal": "I will not."}
    reply = ask(events(piece({"role": "assistant"}), piece(said), whole(said)))
    assert reply.refusal == "I will not."


def test_an_answer_of_many_pieces_in_the_form_of_a_whole_is_not_joined_for_each():
    answer = chat_wire._Completion(lambda *_: None)
    bodies = written("x" * 100, form="text") * 20_000

    def take_all() -> None:
        for body in bodies:
            answer.take(body)

    assert not takes_longer(take_all, 5, tries=1)
    assert len(answer.reply("stop").text or "") == 2_000_000


def test_an_answer_is_taken_out_of_what_is_around_it_only_where_it_is_one():
    for body in (whole(SEVEN), {"data": "choices"}, {"error": {}, "data": {"text": "x"}}):
        assert unwrapped(body) is body


NAMES = (
    "reasoning_text", "thinking_content", "thinking_text", "reasoningContent",
    "reasoning_summary", "thoughts", "thought",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_thoughts_have_many_names(ask, name):
    for body in (
        whole(SEVEN | {name: "I count."}),
        events(piece({name: "I "}), piece({name: "count."}), piece(SEVEN), END),
    ):
        reply = ask(body)
        assert (reply.text, reply.reasoning, reply.thoughts_in) == ("seven hives", "I count.", name)
        assert not reply.fields


# --- calls ----------------------------------------------------------------------------------------

CALL = {"name": "look", "arguments": '{"at": 1}'}
CALLS = {
    "one call alone": whole({"tool_calls": {"id": "c", "function": CALL}}, "tool_calls"),
    "without a function": whole(
        {"tool_calls": [{"id": "c", "name": "look", "arguments": {"at": 1}}]}, "tool_calls"
    ),
    "parameters": whole(
        {"tool_calls": [{"id": "c", "function": {"name": "look", "parameters": {"at": 1}}}]},
        "tool_calls",
    ),
    "a part of the content": whole(
        {"content": [{"type": "tool_use", "id": "c", "name": "look", "input": {"at": 1}}]},
        "tool_use",
    ),
    "one alone in a piece": events(
        piece({"tool_calls": {"index": 0, "id": "c", "function": CALL}}),
        piece(finish="tool_calls"),
    ),
    "in an object by numbers": whole({"tool_calls": {"0": {"id": "c", "function": CALL}}}),
    "a list for its number": events(
        piece({"tool_calls": [{"index": [0], "id": "c", "function": CALL | {"arguments": "{"}}]}),
        piece({"tool_calls": [{"index": [0], "function": {"arguments": '"at": 1}'}}]}),
        piece(finish="tool_calls"),
    ),
    "a piece of nothing": events(
        piece({"tool_calls": [None]}),
        piece({"tool_calls": [{"index": 0, "id": "c", "function": CALL}]}),
        piece(finish="tool_calls"),
    ),
}


@pytest.mark.parametrize("body", CALLS.values(), ids=CALLS)
def test_a_call_is_read_in_every_shape(ask, body):
    (call,) = ask(body).tool_calls
    function = call["function"]
    assert (call["id"], call["type"], function["name"]) == ("c", "function", "look")
    assert json.loads(function["arguments"]) == {"at": 1}


USED = {"type": "tool_use", "id": "c", "name": "look", "input": {"at": 1}}


@pytest.mark.parametrize("own", [5, ["c"], {"c": 1}])
def test_an_id_of_any_type_tells_the_pieces_of_a_call(ask, own):
    """A number made two halves of a call of it."""
    begun = {"id": own, "function": CALL | {"arguments": "{"}}
    rest = {"id": own, "function": {"arguments": '"at": 1}'}}
    end = piece(finish="tool_calls")
    (call,) = ask(events(*(piece({"tool_calls": [one]}) for one in (begun, rest)), end)).tool_calls
    assert json.loads(call["function"]["arguments"]) == {"at": 1}


SAID_TWICE = {
    "whole": whole(
        {"content": [USED], "tool_calls": [{"id": "c", "function": CALL}]}, "tool_calls"
    ),
    "without ids": whole(
        {"content": [USED | {"id": None}], "tool_calls": [{"function": CALL}]}, "tool_calls"
    ),
    "in the form before tools": whole({"content": [USED], "function_call": CALL}, "tool_calls"),
    "in one piece": events(
        piece({"content": [USED], "tool_calls": [{"index": 0, "id": "c", "function": CALL}]}),
        piece(finish="tool_calls"),
    ),
    "in two pieces": events(
        piece({"tool_calls": [{"index": 0, "id": "c", "function": CALL}]}),
        piece({"content": [USED]}),
        piece(finish="tool_calls"),
    ),
    "in two pieces, the part first": events(
        piece({"content": [USED]}),
        piece({"tool_calls": [{"index": 0, "id": "c", "function": CALL}]}),
        piece(finish="tool_calls"),
    ),
}


@pytest.mark.parametrize("body", SAID_TWICE.values(), ids=SAID_TWICE)
def test_a_call_that_is_a_part_of_the_content_as_well_is_one_call(ask, body):
    (call,) = ask(body).tool_calls
    assert call["function"]["name"] == "look"
    assert json.loads(call["function"]["arguments"]) == {"at": 1}


def test_calls_that_are_parts_of_the_content_are_all_read(ask):
    parts = [USED, USED | {"id": "d", "input": {"at": 2}}]
    calls = ask(whole({"content": parts}, "tool_use")).tool_calls
    assert [one["id"] for one in calls] == ["c", "d"]


HALF = {"index": 0, "id": "c", "function": {"name": "look", "arguments": '{"at": "th'}}
OUTPUT = [
    {"type": "message", "content": [{"type": "output_text", "text": "seven hives"}]},
    {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"at": "th'},
]
CUT_IN_A_CALL = {
    "whole": ("chat", whole(SEVEN | {"tool_calls": [HALF]}, "length")),
    "in pieces": (
        "chat",
        events(piece(SEVEN), piece({"tool_calls": [HALF]}), piece(finish="max_tokens")),
    ),
    "over the other API": ("responses", {"status": "incomplete", "output": OUTPUT}),
}


@pytest.mark.parametrize(("api", "body"), CUT_IN_A_CALL.values(), ids=CUT_IN_A_CALL)
def test_half_a_call_of_an_answer_that_was_cut_is_none(ask, api, body):
    reply = ask(body, api=api)
    assert (reply.text, reply.tool_calls) == ("seven hives", ())
    assert end_of(reply.finish_reason) is AnswerEnd.CUT


def test_whole_calls_before_the_one_that_was_cut_stay(ask):
    calls = [{"id": "b", "function": CALL}, HALF | {"index": 1}]
    assert [one["id"] for one in ask(whole({"tool_calls": calls}, "length")).tool_calls] == ["b"]


# --- usage, ends and refusals ---------------------------------------------------------------------

USAGE = {"prompt_tokens": 9, "completion_tokens": 2}
REPORTS = {
    "in the choice": events(piece(SEVEN), piece(finish="stop", usage=USAGE)),
    "of a vendor": events(piece(SEVEN), END | {"x_groq": {"usage": USAGE}}),
    "in camel case": whole(SEVEN)
    | {"usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2}},
    "in other camel case": whole(SEVEN) | {"usage": {"promptTokens": 9, "completionTokens": 2}},
    "before one of zeros": events(
        piece(SEVEN) | {"usage": USAGE}, END | {"usage": dict.fromkeys(USAGE, 0)}
    ),
}


@pytest.mark.parametrize("body", REPORTS.values(), ids=REPORTS)
def test_a_report_is_found_wherever_it_stands(ask, body):
    usage = ask(body).usage
    assert {name: usage[name] for name in USAGE} == USAGE


def test_an_end_may_be_an_object(ask):
    reply = ask(whole(SEVEN, None, finish_details={"type": "max_tokens"}))
    assert end_of(reply.finish_reason) is AnswerEnd.CUT


def test_a_refusal_may_be_a_part(ask):
    reply = ask(whole({"content": [{"type": "refusal", "refusal": "I will not."}]}))
    assert (reply.text, reply.refusal) == (None, "I will not.")


@pytest.mark.parametrize("text", [
    "Could not finish the message because max_tokens or model output limit was reached. Please try "
    "again with higher max_tokens.",
    "The model output limit was reached.",
])  # fmt: skip
def test_an_answer_that_its_server_calls_an_error_because_it_was_cut_is_a_cut_one(ask, text):
    reply = ask({"error": {"message": text, "type": "invalid_request_error"}}, status=400)
    assert (reply.text, reply.finish_reason) == (None, "length")


@pytest.mark.parametrize("code", ["rate_limit_exceeded", "RESOURCE_EXHAUSTED"])
def test_an_error_in_a_list_of_a_stream_is_read(ask, code):
    with pytest.raises(ModelError) as failure:
        ask(events([{"error": {"message": "Too much.", "status": code}}], done=False))
    assert failure.value.kind is ErrorKind.RATE_LIMITED


# --- the other API --------------------------------------------------------------------------------

DELTA = {"delta": "seven hives", "item_id": "m", "output_index": 0}
PART = {"item_id": "m", "output_index": 0, "part": {"type": "output_text", "text": "seven hives"}}
ENDED = {"response": {"id": "r", "status": "completed", "output": []}}
RESPONSES = {
    "events by their names alone": named(
        ("response.output_text.delta", DELTA), ("response.completed", ENDED)
    ),
    "a part alone": named(("response.content_part.done", PART), ("response.completed", ENDED)),
    "the text without any output": {"status": "completed", "output_text": "seven hives"},
    "texts where parts should be": {
        "status": "completed",
        "output": [{"type": "message", "content": ["seven ", "hives"]}],
    },
    "a part in a piece": named(
        ("response.output_text.delta", DELTA | {"delta": {"text": "seven hives"}}),
        ("response.completed", ENDED),
    ),
    "an item that is none": named(
        ("response.output_text.delta", DELTA | {"item": "m"}), ("response.completed", ENDED)
    ),
    "sources that are none": {
        "status": "completed",
        "output": [
            {"type": "message", "content": [{"text": "seven hives", "annotations": 5}]},
        ],
    },
    "the text alone": {"status": "completed", "output": [], "output_text": "seven hives"},
    "one item alone": {"status": "completed", "output": OUTPUT[0]},
}


@pytest.mark.parametrize("body", RESPONSES.values(), ids=RESPONSES)
def test_a_response_is_read_in_every_shape(ask, body):
    reply = ask(body, api="responses")
    assert (reply.text, reply.finish_reason) == ("seven hives", "stop")


def test_details_of_an_end_may_be_a_word(ask):
    body = {"status": "incomplete", "incomplete_details": "max_output_tokens", "output": OUTPUT}
    assert end_of(ask(body, api="responses").finish_reason) is AnswerEnd.CUT


@pytest.mark.parametrize("status", ["in_progress", "queued"])
def test_a_response_that_is_under_way_is_no_whole_answer(ask, status):
    with pytest.raises(ModelError) as failure:
        ask({"status": status, "output": OUTPUT[:1]}, api="responses")
    assert failure.value.kind is ErrorKind.BROKEN_ANSWER
    assert failure.value.partial.text == "seven hives"
