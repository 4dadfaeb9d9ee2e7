"""Request logs of Anthropic's Messages API: shapes of logs, kinds of blocks, what is told."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from chatapp.formats import Conversation, ParsedFile, parse
from chatapp.formats.answers import SIGNED_THINKING

from .conftest import ParseOne

HI = {"role": "user", "content": "Hi"}
THOUGHT = {"type": "thinking", "thinking": "A guest.", "signature": "c2ln"}
HELLO = {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "Hello"}]}
RESPONSE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [THOUGHT, {"type": "text", "text": "Hello"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 3},
}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"room": 4}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "free"}
TOOL = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}


def request(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": "claude-x", "system": "Be kind.", "messages": list(messages), **more}


def read(value: Any) -> ParsedFile:
    return parse(json.dumps(value))


def one(value: Any) -> Conversation:
    (conversation,) = read(value).conversations
    return conversation


def lines(*values: Any) -> str:
    return "\n".join(json.dumps(value) for value in values)


def wires(conversation: Conversation) -> list[dict[str, Any]]:
    return [message.wire for message in conversation.messages]


SAID = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
STREAM = "\n\n".join(
    f"event: {event['type']}\ndata: {json.dumps(event)}"
    for event in (
        {"type": "message_start", "message": {**RESPONSE, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking"}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "thinking_delta", "thinking": "A gu"},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "thinking_delta", "thinking": "est."},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "signature_delta", "signature": "c2ln"},
        },
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "text_delta", "text": "Hello"},
        },
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 3},
        },
        {"type": "message_stop"},
    )
)


class TestShapes:
    @pytest.mark.parametrize(
        "content",
        [
            json.dumps(request(HI, HELLO)),
            json.dumps([request(HI, HELLO)]),
            json.dumps([HI, HELLO]),
            json.dumps({"messages": [HI, HELLO]}),
            json.dumps([[HI, HELLO]]),
            lines(HI, HELLO),
            lines(request(HI, HELLO)),
            # The response appended, beside, inside, behind.
            json.dumps(request(HI, RESPONSE)),
            json.dumps({**request(HI), "response": RESPONSE}),
            json.dumps({"request": request(HI), "response": RESPONSE}),
            json.dumps([{"method": "POST", "request": request(HI), "response": RESPONSE}]),
            lines({"request": request(HI), "response": RESPONSE}),
            lines(request(HI), RESPONSE),
            lines(
                {"type": "request", "body": request(HI)},
                {"type": "response", "status": 200, "body": RESPONSE},
            ),
            lines({"kind": "out", "payload": request(HI)}, {"response": json.dumps(RESPONSE)}),
            json.dumps([{"request": request(HI)}, {"response": {"body_raw": STREAM}}]),
            lines({"custom_id": "a", "params": request(HI), "result": {"message": RESPONSE}}),
            lines(
                {
                    "request": {"url": "/v1/messages", "body": json.dumps(request(HI))},
                    "response": {"status": 200, "body": json.dumps(RESPONSE)},
                }
            ),
            lines({"request": {"body": request(HI)}, "response": {"body_raw": STREAM}}),
            json.dumps(
                {
                    "log": {
                        "entries": [
                            {
                                "request": {"postData": {"text": json.dumps(request(HI))}},
                                "response": {"content": {"text": json.dumps(RESPONSE)}},
                            }
                        ]
                    }
                }
            ),
        ],
    )
    def test_every_shape_of_a_log_gives_the_same_messages(self, content: str) -> None:
        parsed = parse(content)

        (conversation,) = parsed.conversations
        assert parsed.format == "anthropic"
        assert parsed.problems == ()
        assert wires(conversation) == SAID
        assert conversation.messages[1].reasoning == "A guest."
        signed = [{"type": "thinking", "signature": "c2ln"}]
        assert conversation.messages[1].metadata == {SIGNED_THINKING: signed}

    @pytest.mark.parametrize(
        "system",
        [
            "Be kind.",
            ["Be kind."],
            [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
        ],
    )
    def test_the_system_prompt_is_kept(self, system: Any) -> None:
        conversation = one({"system": system, "messages": [HI, SAID[1]]})

        assert conversation.system_prompt == "Be kind."
        assert wires(conversation) == SAID

    def test_a_prompt_of_several_blocks_is_joined(self) -> None:
        blocks = [{"type": "text", "text": "Be kind."}, {"type": "text", "text": "Be brief."}]

        assert one(request(HI, system=blocks)).system_prompt == "Be kind.\nBe brief."

    def test_a_response_says_usage_end_and_model(self) -> None:
        conversation = one({"request": {**request(HI), "model": ""}, "response": RESPONSE})

        answer = conversation.messages[-1]
        assert conversation.model == "claude-x"
        assert answer.finish_reason == "stop"
        assert answer.usage is not None
        assert (answer.usage["prompt_tokens"], answer.usage["completion_tokens"]) == (15, 3)

    def test_the_time_of_the_log_is_the_conversations(self) -> None:
        log = {"timestamp": "2026-03-01T10:00:00Z", "request": request(HI), "response": RESPONSE}

        assert one(log).created_at == datetime(2026, 3, 1, 10, tzinfo=UTC)

    def test_an_answer_that_the_request_began_is_one_with_its_rest(self) -> None:
        log = {
            "request": request(HI, {"role": "assistant", "content": "Hel"}),
            "response": RESPONSE,
        }
        rest = {**RESPONSE, "content": [{"type": "text", "text": "lo"}]}

        assert wires(one({**log, "response": rest})) == SAID

    def test_a_real_round_trip_is_read(self, only: ParseOne) -> None:
        conversation = only("provider_compaction/anthropic_compaction_block_round_trip.json")

        assert conversation.system_prompt == "Be brief."
        roles = [(m.wire["role"], m.kind) for m in conversation.messages]
        assert roles == [
            ("user", "message"),
            ("assistant", "placeholder"),
            ("assistant", "message"),
            ("user", "message"),
            ("assistant", "message"),
        ]
        assert conversation.messages[1].summary == "Summary: user said hello."


class TestGrowingLogs:
    MORE = {"role": "user", "content": "And breakfast?"}
    ANSWER = {**RESPONSE, "id": "msg_2", "content": [{"type": "text", "text": "At eight."}]}

    def test_a_log_of_every_turn_is_one_conversation(self) -> None:
        parsed = parse(
            lines(
                {"request": request(HI), "response": RESPONSE},
                {"request": request(HI, HELLO, self.MORE), "response": self.ANSWER},
            )
        )

        (conversation,) = parsed.conversations
        assert [w["content"] for w in wires(conversation)] == [
            "Hi",
            "Hello",
            "And breakfast?",
            "At eight.",
        ]
        assert conversation.messages[1].usage is not None

    def test_its_identity_stays_as_the_log_grows(self) -> None:
        first = {"request": request(HI), "response": RESPONSE}
        second = {"request": request(HI, HELLO, self.MORE), "response": self.ANSWER}

        (short,) = parse(lines(first)).conversations
        (long,) = parse(lines(first, second)).conversations
        assert short.identity == long.identity

    def test_a_prompt_that_changes_with_the_time_parts_no_conversation(self) -> None:
        later = request(HI, HELLO, self.MORE, system="Be kind. It is nine.")
        parsed = parse(lines({"request": request(HI), "response": RESPONSE}, {"request": later}))

        (conversation,) = parsed.conversations
        assert conversation.system_prompt == "Be kind. It is nine."

    def test_another_way_on_from_one_point_is_a_conversation_of_its_own(self) -> None:
        first, other = (
            request(HI, HELLO, {"role": "user", "content": text}) for text in ("And?", "Or?")
        )
        parsed = parse(lines({"request": request(HI), "response": RESPONSE}, first, other))

        assert [wires(c)[-1]["content"] for c in parsed.conversations] == ["And?", "Or?"]

    def test_two_equal_exchanges_are_two(self) -> None:
        log = {"request": request(HI), "response": RESPONSE}

        first, second = parse(lines(log, log)).conversations
        assert first.identity != second.identity


class TestBlocks:
    def test_calls_and_results_become_calls_and_results(self) -> None:
        conversation = one(
            request(
                HI,
                {"role": "assistant", "content": [{"type": "text", "text": "I look."}, CALL]},
                {"role": "user", "content": [RESULT, {"type": "text", "text": "and now?"}]},
                tools=[TOOL],
            )
        )

        _, asked, answered, said = wires(conversation)
        function = {"name": "look", "arguments": '{"room":4}'}
        assert asked == {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [{"id": "toolu_1", "type": "function", "function": function}],
        }
        assert answered == {
            "role": "tool",
            "tool_call_id": "toolu_1",
            "content": "free",
            "name": "look",
        }
        assert said == {"role": "user", "content": "and now?"}
        parameters = {"name": "look", "parameters": {"type": "object"}, "description": "Looks."}
        assert conversation.tools == ({"type": "function", "function": parameters},)

    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            (None, ""),
            ([], ""),
            ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
            (
                [{"type": "search_result", "title": "T", "source": "u", "content": [
                    {"type": "text", "text": "x"}]}],
                "T\nu\nx",
            ),
        ],
    )  # fmt: skip
    def test_a_result_may_be_blocks(self, content: Any, expected: str) -> None:
        result = {**RESULT, "content": content, "is_error": True}
        calls = {"role": "assistant", "content": [CALL]}
        message = one([HI, calls, {"role": "user", "content": [result]}]).messages[2]

        assert message.wire["content"] == expected
        assert message.metadata == {"is_error": True}

    @pytest.mark.parametrize(
        ("block", "part"),
        [
            (
                {"type": "image", "source": {"media_type": "image/png", "data": "QQ=="}},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}},
            ),
            (
                {"type": "image", "source": {"type": "url", "url": "https://x.org/a.png"}},
                {"type": "image_url", "image_url": {"url": "https://x.org/a.png"}},
            ),
            (
                {
                    "type": "document",
                    "title": "a.pdf",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": "QQ=="},
                },
                {
                    "type": "file",
                    "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QQ=="},
                },
            ),
        ],
    )  # fmt: skip
    def test_images_and_documents_become_parts(self, block: Any, part: Any) -> None:
        asked = {"role": "user", "content": [block, {"type": "text", "text": "What is it?"}]}

        assert wires(one(request(asked)))[0]["content"] == [
            part,
            {"type": "text", "text": "What is it?"},
        ]

    @pytest.mark.parametrize(
        ("source", "text"),
        [
            ({"type": "text", "media_type": "text/plain", "data": "Rent 900."}, "Lease\nRent 900."),
            ({"type": "content", "content": [{"type": "text", "text": "x"}]}, "Lease\nx"),
            ({"type": "url", "url": "https://x.org/a.pdf"}, "[file Lease https://x.org/a.pdf]"),
            ({"type": "file", "file_id": "file_9"}, "[file Lease file_9]"),
        ],
    )
    def test_a_document_of_words_or_elsewhere_is_told_in_words(
        self, source: Any, text: str
    ) -> None:
        asked = {
            "role": "user",
            "content": [{"type": "document", "title": "Lease", "source": source}],
        }

        assert wires(one(request(asked))) == [{"role": "user", "content": text}]

    def test_tools_of_the_server_stand_between_what_was_said(self) -> None:
        hit = {"type": "web_search_result", "title": "Aster", "url": "https://a.org"}
        answer = [
            {"type": "text", "text": "I search."},
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
            {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [hit]},
            {"type": "text", "text": "Found it."},
        ]
        _, asked, found, said = wires(one(request(HI, {"role": "assistant", "content": answer})))

        assert asked["tool_calls"][0]["function"]["name"] == "web_search"
        assert found["content"] == "Aster https://a.org"
        assert said == {"role": "assistant", "content": "Found it."}

    def test_hidden_thinking_is_kept_beside_the_row_and_never_in_the_text(self) -> None:
        hidden = {"type": "redacted_thinking", "data": "ZW5j"}
        answer = {"role": "assistant", "content": [hidden, {"type": "text", "text": "Hello"}]}
        message = one(request(HI, answer)).messages[1]

        assert message.wire["content"] == "Hello"
        assert message.reasoning == ""
        assert message.metadata == {SIGNED_THINKING: [hidden]}

    def test_messages_in_openais_form_are_read_among_them(self) -> None:
        function = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        openai = [
            {"role": "assistant", "content": None, "tool_calls": [function]},
            {"role": "tool", "tool_call_id": "c", "content": "42"},
        ]

        assert wires(one(request(HI, *openai))) == [HI, *openai]


class TestProblems:
    def test_what_is_left_out_is_told(self) -> None:
        parsed = read(
            request(
                HI,
                {"role": "bot", "content": "x"},
                {"role": "user", "content": [{"type": "hologram"}]},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t"}]},
                {"role": "user"},
                7,
                tools=[{"type": "web_search_20250305", "name": "web_search"}],
            )
        )

        told = [problem.text for problem in parsed.problems]
        assert wires(parsed.conversations[0]) == [HI]
        assert len(told) == 7
        assert any("Message 2 was left out: its role is 'bot'" in text for text in told)
        assert any("of the kind 'hologram' (1)" in text for text in told)
        assert any("a tool call has no name" in text for text in told)
        assert any("'web_search' was left out" in text for text in told)

    def test_an_error_in_the_place_of_a_response_is_told(self) -> None:
        error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
        parsed = parse(lines({"request": request(HI), "response": error}))

        assert wires(parsed.conversations[0]) == [HI]
        assert "it is an error ('Overloaded')" in parsed.problems[0].text

    def test_a_response_that_is_none_is_told(self) -> None:
        parsed = read({"request": request(HI), "response": {"status": 502, "body": "Bad gateway"}})

        assert "The response was left out" in parsed.problems[0].text

    def test_a_line_that_is_no_request_is_told(self) -> None:
        parsed = parse(lines({"event": "start"}, request(HI)))

        assert [problem.line for problem in parsed.problems] == [1]

    def test_our_own_export_stays_ours(self) -> None:
        thinking = {"role": "assistant", "content": [{"type": "text", "text": "x"}]}
        own = {"title": "t", "system_prompt": "Be kind.", "messages": [SAID[0], thinking]}

        assert read(own).format == "openai_chat"
