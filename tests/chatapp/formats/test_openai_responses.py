"""Request logs of OpenAI's Responses API: shapes, items, continuations, what is told."""

import json
from typing import Any

import pytest

from chatapp.formats import Conversation, ParsedFile, UnknownFormatError, parse
from chatapp.formats.answers import SIGNED_THINKING

HI = {"role": "user", "content": "Hi"}
THOUGHT = {
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "A guest."}],
    "encrypted_content": "ZW5j",
}
HELLO = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Hello"}],
}
RESPONSE = {
    "object": "response",
    "id": "resp_1",
    "model": "m",
    "output": [THOUGHT, HELLO],
    "usage": {
        "input_tokens": 15,
        "input_tokens_details": {"cached_tokens": 5},
        "output_tokens": 3,
    },
}
SAID = [HI, {"role": "assistant", "content": "Hello"}]


def request(*items: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "instructions": "Be kind.", "input": list(items), **more}


def read(value: Any) -> ParsedFile:
    return parse(json.dumps(value))


def one(value: Any) -> Conversation:
    (conversation,) = read(value).conversations
    return conversation


def wires(conversation: Conversation) -> list[dict[str, Any]]:
    return [message.wire for message in conversation.messages]


def lines(*values: Any) -> str:
    return "\n".join(map(json.dumps, values))


STREAM = "\n".join(
    f"data: {json.dumps(event)}"
    for event in (
        {"type": "response.created", "response": {"output": []}},
        {"type": "response.output_text.delta", "delta": "Hel"},
        {"type": "response.completed", "response": RESPONSE},
    )
)


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(request(HI, THOUGHT, HELLO)),
        json.dumps([request(HI, THOUGHT, HELLO)]),
        json.dumps({"request": request(HI), "response": RESPONSE}),
        json.dumps({**request(HI), "output": [THOUGHT, HELLO]}),
        lines(request(HI), RESPONSE),
        lines({"request": request(HI), "response": STREAM}),
        lines({"request": {"body": json.dumps(request(HI))}, "response": {"body": RESPONSE}}),
        json.dumps({"request": {**request(), "input": "Hi"}, "response": RESPONSE}),
    ],
)
def test_every_shape_of_a_log_gives_the_same_messages(content: str) -> None:
    parsed = parse(content)

    (conversation,) = parsed.conversations
    assert parsed.format == "openai_responses"
    assert parsed.problems == ()
    assert conversation.system_prompt == "Be kind."
    assert wires(conversation) == SAID
    answer = conversation.messages[1]
    assert answer.reasoning == "A guest."
    assert answer.metadata[SIGNED_THINKING] == [{"type": "reasoning", "encrypted_content": "ZW5j"}]


def test_calls_and_results_become_calls_and_results() -> None:
    asked = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"room":4}'}
    found = {"type": "function_call_output", "call_id": "c1", "output": "free"}
    tool = {"type": "function", "name": "look", "parameters": {"type": "object"}}
    conversation = one(request(HI, asked, found, HELLO, tools=[tool]))

    function = {"name": "look", "arguments": '{"room":4}'}
    assert wires(conversation) == [
        HI,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "free", "name": "look"},
        SAID[1],
    ]
    parameters = {"name": "look", "parameters": {"type": "object"}}
    assert conversation.tools == ({"type": "function", "function": parameters},)
    assert wires(one([HI, asked, found, HELLO])) == wires(conversation)


def test_a_request_goes_on_from_the_response_that_it_names() -> None:
    more = request({"role": "user", "content": "And?"}, previous_response_id="resp_1")
    (conversation,) = parse(
        lines({"request": request(HI), "response": RESPONSE}, more)
    ).conversations

    assert [wire["content"] for wire in wires(conversation)] == ["Hi", "Hello", "And?"]


def test_a_response_that_is_gone_on_from_and_is_not_there_is_told() -> None:
    parsed = read(request(HI, previous_response_id="resp_0"))

    assert "'resp_0', which is not in the file" in parsed.problems[0].text


@pytest.mark.parametrize(
    ("part", "wire"),
    [
        (
            {"type": "input_image", "image_url": "https://x.org/a.png"},
            {"type": "image_url", "image_url": {"url": "https://x.org/a.png"}},
        ),
        (
            {
                "type": "input_file",
                "filename": "a.pdf",
                "file_data": "data:application/pdf;base64,QQ==",
            },
            {
                "type": "file",
                "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QQ=="},
            },
        ),
    ],
)
def test_images_and_files_become_parts(part: Any, wire: Any) -> None:
    asked = {"role": "user", "content": [part, {"type": "input_text", "text": "What?"}]}

    assert wires(one(request(asked)))[0]["content"] == [wire, {"type": "text", "text": "What?"}]


def test_a_response_says_usage_and_a_cut_end() -> None:
    cut = {
        **RESPONSE,
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
    }
    answer = one({"request": request(HI), "response": cut}).messages[-1]

    assert answer.finish_reason == "length"
    assert answer.usage is not None
    assert (answer.usage["prompt_tokens"], answer.usage["completion_tokens"]) == (15, 3)


def test_what_is_left_out_is_told() -> None:
    parsed = read(
        request(
            HI,
            {"type": "web_search_call", "id": "ws"},
            {"type": "function_call", "call_id": "c"},
            {"role": "alien", "content": "x"},
            7,
            tools=[{"type": "web_search"}],
        )
    )

    assert wires(parsed.conversations[0]) == [HI]
    assert len(parsed.problems) == 5


@pytest.mark.parametrize(
    "value",
    [
        {"instruction": "Translate.", "input": "Hallo", "output": "Hello"},
        [{"input": "Hallo", "output": "Hello"}],
    ],
)
def test_a_data_set_with_an_input_is_no_log(value: Any) -> None:
    with pytest.raises(UnknownFormatError):
        read(value)


@pytest.mark.parametrize("broken", [5, 1.5, True, "text", {"text": "Hm."}])
def test_reasoning_in_no_list_costs_nothing_else(broken: Any) -> None:
    items = [
        {"role": "user", "content": "Hi"},
        {"type": "reasoning", "content": broken, "summary": broken},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Ok"}],
        },
    ]

    (conversation,) = parse(json.dumps({"model": "m", "input": items})).conversations

    assert [message.wire["content"] for message in conversation.messages] == ["Hi", "Ok"]
