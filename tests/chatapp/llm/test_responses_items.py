"""Chat messages as Responses items: their shapes, literally."""

from __future__ import annotations

import pytest

from chatapp.llm.registry import ModelConfig
from chatapp.llm.requests import ModelRequest
from chatapp.llm.responses_wire import arguments_of, items_of, message_at, tools_of
from tests.fakes.strict_checker import item_faults

OPENAI = ModelConfig(alias="m", backend="b", name="gpt", context_window=8000)
ELSEWHERE = ModelConfig(
    alias="m", backend="b", name="local", context_window=8000, base_url="http://h/v1"
)
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "content": None,
    "encrypted_content": "gAAA",
    "status": None,
}
HELLO = {"role": "user", "content": "hello"}
PLAIN_HELLO = {
    "type": "message",
    "role": "user",
    "content": [{"type": "input_text", "text": "hello"}],
}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


def call(call_id="c1", name="read", arguments='{"path": "a"}'):
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def asked(*calls, **more):
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **more}


def result(call_id="c1", content="text of a"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def test_prompts_summaries_and_what_users_say_are_input_text():
    assert items_of([{"role": "system", "content": "Be brief."}, HELLO]) == [
        {
            "type": "message",
            "role": "system",
            "content": [{"type": "input_text", "text": "Be brief."}],
        },
        PLAIN_HELLO,
    ]


def test_a_developer_message_is_a_system_item():
    (item,) = items_of([{"role": "developer", "content": "Be brief."}])
    assert item["role"] == "system"


def test_an_answer_is_output_text():
    assert items_of([{"role": "assistant", "content": "Hi."}]) == [
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hi."}],
        }
    ]


def test_a_call_and_its_result_are_items_of_their_own():
    assert items_of([asked(call()), result()]) == [
        {
            "type": "function_call",
            "call_id": "c1",
            "name": "read",
            "arguments": '{"path": "a"}',
        },
        {"type": "function_call_output", "call_id": "c1", "output": "text of a"},
    ]


def test_text_beside_calls_stands_before_them():
    items = items_of([asked(call(), content="I look."), result()])
    assert [item["type"] for item in items] == ["message", "function_call", "function_call_output"]


def test_arguments_that_are_an_object_are_sent_as_its_text():
    (item, _) = items_of([asked(call(arguments={"path": "ä"})), result()])
    assert item["arguments"] == '{"path": "ä"}'


def test_parallel_calls_stay_calls_with_results():
    items = items_of([asked(call("a"), call("b")), result("a"), result("b")])
    assert [(item["type"], item["call_id"]) for item in items] == [
        ("function_call", "a"),
        ("function_call", "b"),
        ("function_call_output", "a"),
        ("function_call_output", "b"),
    ]


def test_a_call_without_a_result_is_left_out():
    items = items_of([asked(call("a"), call("b"), content="Both."), result("a")])
    assert [item.get("call_id") for item in items] == [None, "a", "a"]
    assert items_of([HELLO, asked(call("a"))]) == [PLAIN_HELLO]


def test_a_result_without_a_call_is_left_out():
    assert items_of([result("lost"), HELLO]) == [PLAIN_HELLO]


def test_a_result_before_its_call_answers_nothing():
    assert items_of([result("a"), asked(call("a")), HELLO]) == [PLAIN_HELLO]


def test_reasoning_stands_before_the_text_and_calls_it_produced():
    items = items_of([asked(call(), content="I look.", reasoning_items=[REASONING]), result()])
    assert [item["type"] for item in items] == [
        "reasoning",
        "message",
        "function_call",
        "function_call_output",
    ]


def test_reasoning_is_sent_as_it_came_without_nulls():
    (item, _) = items_of([{"role": "assistant", "content": "Hi.", "reasoning_items": [REASONING]}])
    assert item == {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "encrypted_content": "gAAA",
    }


def test_reasoning_that_only_a_keeping_server_could_find_is_left_out():
    bare = REASONING | {"encrypted_content": None}
    items = items_of([{"role": "assistant", "content": "Hi.", "reasoning_items": [bare]}])
    assert [item["type"] for item in items] == ["message"]


def test_reasoning_in_the_open_is_sent_without_encrypted_content():
    thought = {"type": "reasoning_text", "text": "Hm."}
    told = REASONING | {"encrypted_content": None, "content": [thought]}
    items = items_of([{"role": "assistant", "content": "Hi.", "reasoning_items": [told]}])
    assert items[0]["content"] == [{"type": "reasoning_text", "text": "Hm."}]


def test_reasoning_whose_calls_are_left_out_is_left_out_too():
    assert items_of([HELLO, asked(call("a"), reasoning_items=[REASONING])]) == [PLAIN_HELLO]


@pytest.mark.parametrize("content", [None, "No.", [{"type": "refusal", "refusal": "No."}]])
def test_a_refusal_is_kept_as_one(content):
    message = {"role": "assistant", "content": content, "refusal": "No."}
    (item,) = items_of([message])
    assert item["content"] == [{"type": "refusal", "refusal": "No."}]


def test_a_refusal_beside_a_text_is_kept_with_it():
    message = {"role": "assistant", "content": "Well.", "refusal": "No."}
    (item,) = items_of([message])
    assert item["content"] == [
        {"type": "output_text", "text": "Well."},
        {"type": "refusal", "refusal": "No."},
    ]


def test_an_image_is_an_input_image():
    content = [{"type": "text", "text": "What is this?"}, PICTURE]
    (item,) = items_of([{"role": "user", "content": content}])
    assert item["content"] == [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"},
    ]


def test_an_images_detail_is_kept():
    picture = {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}}
    (item,) = items_of([{"role": "user", "content": [picture]}])
    assert item["content"] == [
        {"type": "input_image", "image_url": "https://x/y.png", "detail": "low"}
    ]


def test_a_file_is_an_input_file():
    file = {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="}
    (item,) = items_of([{"role": "user", "content": [{"type": "file", "file": file}]}])
    assert item["content"] == [
        {
            "type": "input_file",
            "file_data": "data:application/pdf;base64,AA==",
            "filename": "a.pdf",
        }
    ]


def test_parts_in_this_apis_form_are_sent_as_they_are():
    part = {"type": "input_file", "file_id": "file-1"}
    (item,) = items_of([{"role": "user", "content": [part]}])
    assert item["content"] == [{"type": "input_file", "file_id": "file-1"}]


def test_a_part_that_no_item_can_hold_is_named():
    content = [{"type": "video_url", "video_url": {"url": "https://x"}}]
    (item,) = items_of([{"role": "user", "content": content}])
    assert item["content"] == [{"type": "input_text", "text": "[video_url not sent]"}]
    (item,) = items_of([{"role": "assistant", "content": [PICTURE]}])
    assert item["content"] == [{"type": "output_text", "text": "[image not sent]"}]


def test_a_result_of_text_parts_is_one_text():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    (_, item) = items_of([asked(call()), result(content=parts)])
    assert item["output"] == "ab"


def test_a_result_with_an_image_keeps_it():
    parts = [{"type": "text", "text": "a"}, PICTURE]
    (_, item) = items_of([asked(call()), result(content=parts)])
    assert [part["type"] for part in item["output"]] == ["input_text", "input_image"]


def test_an_empty_result_is_an_empty_text():
    (_, item) = items_of([asked(call()), result(content=None)])
    assert item["output"] == ""


@pytest.mark.parametrize("content", [None, "", [], [{"type": "text", "text": ""}]])
@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_an_empty_message_is_no_item(role, content):
    assert items_of([{"role": role, "content": content}]) == []


def test_plain_text_has_no_typed_parts():
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is this? "}, PICTURE]},
        asked(call(), content="I look."),
        result(content=[{"type": "text", "text": "a"}, PICTURE]),
        {"role": "assistant", "content": "", "refusal": "No."},
    ]
    assert items_of(messages, plain_text=True) == [
        {"type": "message", "role": "system", "content": "Be brief."},
        {"type": "message", "role": "user", "content": "What is this? [image not sent]"},
        {"type": "message", "role": "assistant", "content": "I look."},
        {
            "type": "function_call",
            "call_id": "c1",
            "name": "read",
            "arguments": '{"path": "a"}',
        },
        {"type": "function_call_output", "call_id": "c1", "output": "a[image not sent]"},
        {"type": "message", "role": "assistant", "content": "No."},
    ]


def test_what_the_server_holds_is_not_sent_but_known_to_have_called():
    messages = [HELLO, asked(call()), result(), {"role": "user", "content": "And?"}]
    items = items_of(messages, messages_on_server=2)
    assert [item["type"] for item in items] == ["function_call_output", "message"]
    assert item_faults(items, open_calls=("c1",)) == []


def test_tools_are_flat_and_as_lenient_as_on_the_chat_wire():
    parameters = {"type": "object", "properties": {"path": {"type": "string"}}}
    function = {"name": "read", "description": "Reads.", "parameters": parameters}
    assert tools_of([{"type": "function", "function": function}]) == [
        {
            "type": "function",
            "name": "read",
            "description": "Reads.",
            "parameters": parameters,
            "strict": False,
        }
    ]


def test_a_tool_without_parameters_takes_none():
    (tool,) = tools_of([{"type": "function", "function": {"name": "now", "strict": True}}])
    assert tool == {
        "type": "function",
        "name": "now",
        "parameters": {"type": "object", "properties": {}},
        "strict": True,
    }


def test_a_tool_that_is_flat_already_stays_as_it_is():
    assert tools_of([{"type": "web_search"}]) == [{"type": "web_search"}]


def test_a_stateless_request_keeps_nothing_and_asks_for_what_it_needs_back():
    assert arguments_of(OPENAI, ModelRequest(messages=[HELLO], api="responses")) == {
        "model": "gpt",
        "input": [PLAIN_HELLO],
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }


def test_a_server_of_another_make_is_sent_no_parameter_it_may_not_know():
    body = arguments_of(ELSEWHERE, ModelRequest(messages=[HELLO], api="responses"))
    assert set(body) == {"model", "input", "store"}


def test_a_request_that_goes_on_sends_only_what_is_new():
    request = ModelRequest(
        messages=[HELLO, {"role": "assistant", "content": "Hi."}, HELLO],
        api="responses",
        stores=True,
        previous_response_id="resp_1",
        messages_on_server=2,
    )
    assert arguments_of(OPENAI, request) == {
        "model": "gpt",
        "input": [PLAIN_HELLO],
        "store": True,
        "previous_response_id": "resp_1",
    }


def test_without_an_answer_to_go_on_from_everything_is_sent():
    request = ModelRequest(
        messages=[HELLO, HELLO], api="responses", stores=True, messages_on_server=1
    )
    assert len(arguments_of(OPENAI, request)["input"]) == 2


@pytest.mark.parametrize(("asked_for", "sent"), [(1, 16), (15, 16), (16, 16), (17, 17)])
def test_the_answers_room_is_never_less_than_the_api_allows(asked_for, sent):
    request = ModelRequest(messages=[HELLO], api="responses", max_output=asked_for)
    assert arguments_of(OPENAI, request)["max_output_tokens"] == sent


def test_temperature_tools_and_stream_are_asked_for():
    tools = [{"type": "function", "function": {"name": "now"}}]
    body = arguments_of(
        OPENAI, ModelRequest(messages=[HELLO], tools=tools, temperature=0.0, stream=True)
    )
    assert (body["temperature"], body["stream"], body["tools"][0]["name"]) == (0.0, True, "now")
    assert "stream_options" not in body


def test_the_number_in_an_error_leads_back_to_the_message():
    messages = [HELLO, asked(call(), content="I look."), result(), HELLO]
    request = ModelRequest(messages=messages, api="responses")
    assert [message_at(request, index) for index in range(-1, 6)] == [None, 0, 1, 1, 2, 3, None]
    request = ModelRequest(
        messages=messages, api="responses", previous_response_id="r", messages_on_server=2
    )
    assert [message_at(request, index) for index in range(3)] == [2, 3, None]


SYSTEM_HELLO = PLAIN_HELLO | {"role": "system"}
CALL_ITEM = {"type": "function_call", "call_id": "a", "name": "read", "arguments": "{}"}
OUTPUT_ITEM = {"type": "function_call_output", "call_id": "a", "output": "x"}
BARE_REASONING = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "gA"}


@pytest.mark.parametrize(
    ("items", "fault"),
    [
        ([PLAIN_HELLO, CALL_ITEM], "end: calls ['a'] are not answered"),
        ([PLAIN_HELLO, OUTPUT_ITEM], "1: an output that answers no open call"),
        ([PLAIN_HELLO, CALL_ITEM, PLAIN_HELLO, OUTPUT_ITEM], "2: calls ['a'] are not answered yet"),
        ([PLAIN_HELLO, SYSTEM_HELLO], "1: a system message behind the front"),
        ([SYSTEM_HELLO], "no user message"),
        ([PLAIN_HELLO | {"role": "assistant"}, PLAIN_HELLO], "0: a part input_text of a assistant"),
        ([PLAIN_HELLO, BARE_REASONING], "1: reasoning without its required following item"),
        ([PLAIN_HELLO, CALL_ITEM | {"id": "fc"}, OUTPUT_ITEM], "1: keys of a function_call are "),
    ],
)
def test_the_strict_checker_of_these_tests_refuses_what_a_server_refuses(items, fault):
    assert item_faults(items)[0].startswith(fault)
