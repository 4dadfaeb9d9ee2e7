"""OpenAI chat messages: containers, what is kept, what is left out and named."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from chatapp.formats import Conversation, ParsedFile, parse

from .conftest import ParseFile, ParseOne

TAU = "openai_chat/tau_airline_gpt4o_tasks00-34_trials01.json"
LOG_WITH_CALLS = "openai_chat/openhands_sdk_llm_log_toolcalls_content_arrays.json"
LOG_WITHOUT_CALLS = "openai_chat/openhands_sdk_llm_log_no_native_tools.json"

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "hello"}
ASSISTANT = {"role": "assistant", "content": "hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


def read(value: Any) -> ParsedFile:
    return parse(json.dumps(value))


def read_one(value: Any) -> Conversation:
    (conversation,) = read(value).conversations
    return conversation


def wires(conversation: Conversation) -> list[dict[str, Any]]:
    return [message.wire for message in conversation.messages]


def lines(*values: Any) -> str:
    return "\n".join(json.dumps(value) for value in values)


class TestRealFiles:
    def test_tau_holds_seventy_conversations(self, parsed: ParseFile) -> None:
        result = parsed(TAU)

        assert len(result.conversations) == 70
        assert result.problems == ()

    def test_tau_keeps_all_messages_and_every_policy_as_system_prompt(
        self, parsed: ParseFile
    ) -> None:
        conversations = parsed(TAU).conversations

        assert sum(len(c.messages) for c in conversations) == 2164 - 70
        assert max(len(c.messages) for c in conversations) == 62 - 1
        assert all(c.system_prompt.startswith("# Airline Agent Policy") for c in conversations)

    def test_tau_keeps_null_content_calls_and_results(self, parsed: ParseFile) -> None:
        messages = [w for c in parsed(TAU).conversations for w in wires(c)]

        assert sum(w["content"] is None for w in messages) == 467
        assert sum(len(w.get("tool_calls", ())) for w in messages) == 499
        assert sum(w["role"] == "tool" for w in messages) == 499

    def test_tau_keeps_repeated_call_ids(self, parsed: ParseFile) -> None:
        repeating = 0
        for conversation in parsed(TAU).conversations:
            calls = [c["id"] for w in wires(conversation) for c in w.get("tool_calls", ())]
            repeating += len(set(calls)) < len(calls)

        assert repeating == 22

    def test_tau_identities_differ_and_name_task_and_trial(self, parsed: ParseFile) -> None:
        identities = [c.identity for c in parsed(TAU).conversations]

        assert len(set(identities)) == 70
        assert identities[0].endswith(":0:0")

    def test_a_log_with_content_arrays_keeps_them_and_ends_with_its_response(
        self, only: ParseOne
    ) -> None:
        conversation = only(LOG_WITH_CALLS)

        assert len(conversation.messages) == 12 + 1
        assert conversation.system_prompt == ""
        assert isinstance(conversation.messages[0].wire["content"], list)
        assert conversation.messages[8].wire["content"] == []
        answer = conversation.messages[-1]
        assert answer.wire["tool_calls"][0]["function"]["name"] == "finish"
        assert answer.finish_reason == "tool_calls"
        assert answer.usage is not None
        assert answer.usage["prompt_tokens"] == 6729

    def test_a_log_of_emulated_calls_is_plain_text(self, only: ParseOne) -> None:
        conversation = only(LOG_WITHOUT_CALLS)

        assert len(conversation.messages) == 8 - 1 + 1
        assert "<function=terminal>" in conversation.messages[1].wire["content"]
        assert not any("tool_calls" in wire for wire in wires(conversation)[:-1])
        assert not any(wire["role"] == "tool" for wire in wires(conversation))

    def test_a_log_gives_model_time_tools_and_plain_values(self, only: ParseOne) -> None:
        conversation = only(LOG_WITH_CALLS)

        assert conversation.model == "litellm_proxy/claude-sonnet-4-20250514"
        assert conversation.created_at == datetime(2025, 9, 4, 19, 44, 6, 707548, tzinfo=UTC)
        assert conversation.metadata["context_window"] == 200000
        assert conversation.tools[0]["function"]["name"] == "terminal"


class TestContainers:
    @pytest.mark.parametrize(
        "content",
        [
            json.dumps({"messages": [USER, ASSISTANT]}),
            json.dumps([USER, ASSISTANT]),
            json.dumps([{"messages": [USER, ASSISTANT]}]),
            json.dumps([{"traj": [USER, ASSISTANT]}]),
            json.dumps([[USER, ASSISTANT]]),
            lines({"messages": [USER, ASSISTANT]}),
            lines(USER, ASSISTANT),
        ],
    )
    def test_every_container_gives_the_same_messages(self, content: str) -> None:
        (conversation,) = parse(content).conversations

        assert wires(conversation) == [USER, ASSISTANT]

    def test_lines_with_a_conversation_each_give_as_many(self) -> None:
        parsed = parse(lines({"messages": [USER]}, {"messages": []}, {"messages": [USER]}))

        assert [len(c.messages) for c in parsed.conversations] == [1, 1]
        assert "without a readable message" in parsed.problems[0].text

    def test_messages_are_chained_by_their_keys(self) -> None:
        messages = read_one([USER, ASSISTANT, USER]).messages

        assert [(m.key, m.parent) for m in messages] == [("1", None), ("2", "1"), ("3", "2")]

    def test_messages_in_the_form_of_anthropic_are_read_as_what_they_are(self) -> None:
        result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}
        parsed = read([{"messages": [USER, result]}, {"messages": [USER]}])

        assert parsed.format == "anthropic"
        assert [len(c.messages) for c in parsed.conversations] == [2, 1]


class TestSystemPrompt:
    def test_a_single_leading_system_message_is_the_system_prompt(self) -> None:
        conversation = read_one([SYSTEM, USER])

        assert conversation.system_prompt == "Be brief."
        assert wires(conversation) == [USER]

    @pytest.mark.parametrize(
        "messages",
        [
            [SYSTEM, SYSTEM, USER],
            [USER, SYSTEM],
            [{"role": "system", "content": [{"type": "text", "text": "Be brief."}]}, USER],
            [{"role": "system", "content": ""}, USER],
            [{**SYSTEM, "name": "policy"}, USER],
            [{"role": "developer", "content": "Be brief."}, USER],
        ],
    )
    def test_anything_else_stays_a_message(self, messages: list[Any]) -> None:
        conversation = read_one(messages)

        assert conversation.system_prompt == ""
        assert wires(conversation) == messages

    @pytest.mark.parametrize(
        "key", ["system_prompt", "system", "systemPrompt", "system_message", "instructions"]
    )
    def test_a_prompt_beside_the_messages_is_kept(self, key: str) -> None:
        conversation = read_one({key: "Be brief.", "messages": [USER, ASSISTANT]})

        assert conversation.system_prompt == "Be brief."
        assert wires(conversation) == [USER, ASSISTANT]

    def test_a_prompt_beside_messages_that_open_with_another_is_told(self) -> None:
        parsed = read({"instructions": "Be kind.", "messages": [SYSTEM, SYSTEM, USER]})

        assert "they open with another" in parsed.problems[0].text


class TestLogs:
    ANSWERED: dict[str, Any] = {"model": "m", "choices": [{"message": ASSISTANT}]}

    @pytest.mark.parametrize("packed", [lambda body: body, json.dumps, lambda body: {"body": body}])
    def test_a_request_beside_its_response_is_read(self, packed: Any) -> None:
        log = {"request": packed({"messages": [SYSTEM, USER]}), "response": packed(self.ANSWERED)}

        apart = lines({"request": log["request"]}, {"response": log["response"]})
        for content in (json.dumps(log), json.dumps([log]), lines(log), apart):
            (conversation,) = parse(content).conversations
            assert conversation.system_prompt == "Be brief."
            assert wires(conversation) == [USER, ASSISTANT]

    def test_a_log_of_every_turn_is_one_conversation(self) -> None:
        first = {"request": {"messages": [USER]}, "response": self.ANSWERED}
        second = {"request": {"messages": [USER, ASSISTANT, {**USER, "content": "and?"}]}}

        (conversation,) = parse(lines(first, second)).conversations
        assert len(conversation.messages) == 3

    def test_a_response_that_is_none_is_told(self) -> None:
        parsed = parse(lines({"request": {"messages": [USER]}, "response": {"status": 502}}))

        assert "The response was left out" in parsed.problems[0].text


class TestMessages:
    @pytest.mark.parametrize(
        "message",
        [
            {"role": "developer", "content": "x"},
            {"role": "function", "name": "look", "content": "result"},
            {"role": "assistant", "content": None, "function_call": CALL["function"]},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "assistant", "content": "text", "tool_calls": [CALL, CALL]},
            {"role": "assistant", "content": None, "refusal": "I will not."},
            {"role": "tool", "tool_call_id": "c1", "name": "look", "content": "42"},
            {"role": "user", "name": "ann", "content": [{"type": "text", "text": "x"}]},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]},
            {"role": "user", "content": "nul \x00 and half \ud83d"},
        ],
    )
    def test_what_is_sound_is_kept_as_it_stands(self, message: dict[str, Any]) -> None:
        parsed = read([USER, message])

        assert parsed.problems == ()
        assert wires(parsed.conversations[0]) == [USER, message]

    def test_unknown_and_null_keys_are_dropped(self) -> None:
        message = {**ASSISTANT, "index": 0, "function_call": None, "tool_calls": None, "audio": {}}

        assert wires(read_one([message])) == [ASSISTANT]

    def test_arguments_that_are_no_json_stay_as_they_are(self) -> None:
        call = {**CALL, "function": {"name": "look", "arguments": '{"path": '}}

        (wire,) = wires(read_one([{"role": "assistant", "content": None, "tool_calls": [call]}]))

        assert wire["tool_calls"] == [call]

    def test_arguments_given_as_an_object_are_dumped(self) -> None:
        call = {"function": {"name": "look", "arguments": {"city": "北京", "n": 1}}}

        (wire,) = wires(read_one([{"role": "assistant", "content": "", "tool_calls": [call]}]))

        assert wire["tool_calls"][0]["function"]["arguments"] == '{"city":"北京","n":1}'

    def test_reasoning_is_taken_out_of_the_wire_form(self) -> None:
        (message,) = read_one([{**ASSISTANT, "reasoning_content": "Let me see."}]).messages

        assert message.reasoning == "Let me see."
        assert message.wire == ASSISTANT

    @pytest.mark.parametrize(
        "thought",
        [
            {"type": "thinking", "thinking": "Let me see."},
            {"type": "thinking", "thinking": [{"type": "text", "text": "Let me see."}]},
            {"type": "reasoning", "text": "Let me see."},
        ],
    )
    def test_thoughts_among_the_parts_are_reasoning(self, thought: Any) -> None:
        function = {"role": "tool", "tool_call_id": "c1", "content": "42"}
        content = [thought, {"type": "text", "text": "hi"}]
        asked = {"role": "assistant", "content": content, "tool_calls": [CALL]}
        message, _ = read_one([asked, function]).messages

        assert message.reasoning == "Let me see."
        assert message.wire["tool_calls"] == [CALL]
        assert "see" not in str(message.wire)

    def test_legacy_functions_become_tools(self) -> None:
        conversation = read_one({"messages": [USER], "functions": [{"name": "look"}]})

        assert conversation.tools == ({"type": "function", "function": {"name": "look"}},)


class TestDamage:
    @pytest.mark.parametrize(
        ("damaged", "reason"),
        [
            (7, "not an object"),
            ({"role": "alien", "content": "x"}, "its role is 'alien'"),
            ({"content": "x"}, "its role is None"),
            ({"role": {}, "content": "x"}, "its role is {}"),
            ({"role": "user"}, "no content"),
            ({"role": "assistant", "content": None}, "no content and no call"),
            ({"role": "assistant", "tool_calls": []}, "no content and no call"),
            ({"role": "user", "content": 5}, "neither text nor a list"),
        ],
    )
    def test_a_damaged_message_is_left_out_and_named(self, damaged: Any, reason: str) -> None:
        parsed = read({"messages": [USER, damaged, ASSISTANT]})

        assert wires(parsed.conversations[0]) == [USER, ASSISTANT]
        assert [problem.line for problem in parsed.problems] == [2]
        assert reason in parsed.problems[0].text

    def test_in_a_list_of_conversations_the_item_is_named_and_the_message(self) -> None:
        parsed = read([{"messages": [USER]}, {"messages": [USER, 7]}])

        assert parsed.problems[0].line == 2
        assert parsed.problems[0].text.startswith("Message 2 was left out")

    def test_with_a_message_on_each_line_the_line_is_named(self) -> None:
        parsed = parse(f"{lines(USER)}\n\n{lines({'role': 'alien'}, ASSISTANT)}")

        assert [problem.line for problem in parsed.problems] == [3]
        assert wires(parsed.conversations[0]) == [USER, ASSISTANT]

    def test_a_damaged_call_is_left_out_and_the_sound_one_kept(self) -> None:
        parsed = read([{"role": "assistant", "content": None, "tool_calls": [{"id": "x"}, CALL]}])

        assert parsed.conversations[0].messages[0].wire["tool_calls"] == [CALL]
        assert "tool call 1 was left out" in parsed.problems[0].text

    def test_a_damaged_part_is_left_out_and_the_sound_one_kept(self) -> None:
        part = {"type": "text", "text": "x"}
        parsed = read([{"role": "user", "content": [part, 5]}])

        assert parsed.conversations[0].messages[0].wire["content"] == [part]
        assert "part 2" in parsed.problems[0].text

    def test_tools_that_are_no_objects_are_left_out(self) -> None:
        parsed = read({"messages": [USER], "tools": [5, {"type": "function"}]})

        assert parsed.conversations[0].tools == ({"type": "function"},)
        assert len(parsed.problems) == 1


class TestResponse:
    def test_a_response_that_is_there_already_is_not_added(self) -> None:
        answered = [USER, {"role": "assistant", "content": [{"type": "text", "text": "hi"}]}]
        log = {"messages": answered, "response": {"choices": [{"message": ASSISTANT}]}}

        assert len(read_one(log).messages) == 2

    def test_reasoning_in_parts_beside_the_content_is_kept(self) -> None:
        details = [{"type": "reasoning.text", "text": "hm"}, {"type": "reasoning.encrypted"}, 5]
        conversation = read_one({"messages": [USER, ASSISTANT | {"reasoning_details": details}]})
        assert conversation.messages[-1].reasoning == "hm"

    def test_what_is_said_in_a_recording_is_the_content(self) -> None:
        spoken = {"role": "assistant", "content": None, "audio": {"id": "a", "transcript": "hi"}}
        assert wires(read_one({"messages": [USER, spoken]}))[-1]["content"] == "hi"
        silent = read({"messages": [USER, spoken | {"audio": {"id": "a"}}]})
        assert len(silent.conversations[0].messages) == len(silent.problems) == 1

    def test_choices_beside_the_messages_are_the_response(self) -> None:
        choice = {"index": 0, "message": ASSISTANT, "finish_reason": "stop"}
        conversation = read_one({"messages": [USER], "choices": [choice]})
        assert wires(conversation) == [USER, ASSISTANT]
        assert conversation.messages[-1].finish_reason == "stop"

    @pytest.mark.parametrize("place", ["response", "beside"])
    def test_of_several_answers_the_first_one_is_read_and_the_others_are_told(self, place) -> None:
        choices = [{"message": ASSISTANT | {"content": text}} for text in ("one", "two", "three")]
        value = {"response": {"choices": choices}} if place == "response" else {"choices": choices}
        parsed = read({"messages": [USER], **value})
        assert wires(parsed.conversations[0])[-1]["content"] == "one"
        assert [problem.text for problem in parsed.problems] == [
            "The response has more answers than one; 2 were left out."
        ]

    def test_a_bare_message_is_a_response_too(self) -> None:
        assert wires(read_one({"messages": [USER], "response": ASSISTANT})) == [USER, ASSISTANT]

    @pytest.mark.parametrize("response", ["text", {"choices": []}, {"error": "x"}, USER, [1]])
    def test_an_unusable_response_is_left_out_and_named(self, response: Any) -> None:
        parsed = read({"messages": [USER], "response": response})

        assert len(parsed.conversations[0].messages) == 1
        assert "The response was left out" in parsed.problems[0].text


class TestIdentity:
    def test_equal_messages_have_the_same_identity_in_any_container(self) -> None:
        assert read_one([SYSTEM, USER]).identity == read_one({"messages": [SYSTEM, USER]}).identity

    def test_the_native_id_alone_does_not_make_two_conversations_the_same(self) -> None:
        first = read_one([{"task_id": 0, "trial": 0, "traj": [USER]}])
        second = read_one([{"task_id": 0, "trial": 0, "traj": [{**USER, "content": "other"}]}])

        assert first.identity != second.identity

    def test_with_a_native_id_the_identity_stays_as_the_conversation_grows(self) -> None:
        first = read_one({"id": "chat-7", "messages": [USER]})
        second = read_one({"id": "chat-7", "messages": [USER, ASSISTANT]})

        assert first.identity == second.identity
        assert first.identity.endswith(":chat-7")
