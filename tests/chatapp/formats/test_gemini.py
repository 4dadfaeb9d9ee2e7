"""Request logs of Google's Gemini API: shapes, kinds of parts, what is told."""

import json
from typing import Any

import pytest

from chatapp.formats import Conversation, ParsedFile, parse
from chatapp.formats.answers import SIGNED_THINKING

HI = {"role": "user", "parts": [{"text": "Hi"}]}
THOUGHT = {"text": "A guest.", "thought": True}
HELLO = {"role": "model", "parts": [THOUGHT, {"text": "Hello", "thoughtSignature": "c2ln"}]}
PROMPT = {"parts": [{"text": "Be kind."}]}
RESPONSE = {
    "candidates": [{"content": HELLO, "finishReason": "MAX_TOKENS"}],
    "usageMetadata": {
        "promptTokenCount": 15,
        "cachedContentTokenCount": 5,
        "candidatesTokenCount": 3,
        "thoughtsTokenCount": 4,
    },
    "modelVersion": "gemini-x",
}
STREAM = [
    {"candidates": [{"content": {"parts": [{"text": "A gu", "thought": True}]}}]},
    {"candidates": [{"content": {"parts": [{"text": "est.", "thought": True}]}}]},
    {"candidates": [{"content": {"parts": [{"text": "Hel"}]}}]},
    {
        "candidates": [
            {
                "content": {"parts": [{"text": "lo", "thoughtSignature": "c2ln"}]},
                "finishReason": "STOP",
            }
        ]
    },
]


def request(*contents: Any, **more: Any) -> dict[str, Any]:
    return {"systemInstruction": PROMPT, "contents": list(contents), **more}


def read(value: Any) -> ParsedFile:
    return parse(json.dumps(value))


def one(value: Any) -> Conversation:
    (conversation,) = read(value).conversations
    return conversation


def wires(conversation: Conversation) -> list[dict[str, Any]]:
    return [message.wire for message in conversation.messages]


def lines(*values: Any) -> str:
    return "\n".join(map(json.dumps, values))


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(request(HI, HELLO)),
        json.dumps([request(HI, HELLO)]),
        json.dumps([HI, HELLO]),
        lines(HI, HELLO),
        json.dumps({"request": request(HI), "response": RESPONSE}),
        lines(request(HI), RESPONSE),
        lines({"request": request(HI), "response": STREAM}),
        lines({"request": {"body": json.dumps(request(HI))}, "response": {"body": RESPONSE}}),
        json.dumps({"contents": ["Hi", HELLO], "config": {"system_instruction": "Be kind."}}),
    ],
)
def test_every_shape_of_a_log_gives_the_same_messages(content: str) -> None:
    parsed = parse(content)

    (conversation,) = parsed.conversations
    assert parsed.format == "gemini"
    assert parsed.problems == ()
    assert wires(conversation) == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
    ]
    answer = conversation.messages[1]
    assert answer.reasoning == "A guest."
    assert answer.metadata == {SIGNED_THINKING: [{"type": "thought", "signature": "c2ln"}]}


@pytest.mark.parametrize(
    "prompt", [PROMPT, "Be kind.", {"text": "Be kind."}, [{"text": "Be kind."}]]
)
def test_the_system_prompt_is_kept(prompt: Any) -> None:
    assert one(request(HI, systemInstruction=prompt)).system_prompt == "Be kind."


def test_a_response_says_usage_end_and_model() -> None:
    conversation = one({"request": request(HI), "response": RESPONSE})

    answer = conversation.messages[-1]
    assert conversation.model == "gemini-x"
    assert answer.finish_reason == "length"
    assert answer.usage is not None
    assert (answer.usage["prompt_tokens"], answer.usage["completion_tokens"]) == (15, 7)


def test_of_several_candidates_the_first_one_is_read_and_the_others_are_told() -> None:
    second = {"content": {"role": "model", "parts": [{"text": "other"}]}}
    response = RESPONSE | {"candidates": [*RESPONSE["candidates"], second]}
    parsed = read({"request": request(HI), "response": response})

    assert wires(parsed.conversations[0])[-1]["content"] == "Hello"
    assert [problem.text for problem in parsed.problems] == [
        "The response has more candidates than one; 1 were left out."
    ]


def test_calls_without_ids_find_their_results_by_name() -> None:
    looks = [{"functionCall": {"name": "look", "args": {"room": n}}} for n in (4, 5)]
    results = [
        {"functionResponse": {"name": "look", "response": {"result": text}}}
        for text in ("free", "taken")
    ]
    conversation = one(
        request(
            HI,
            {"role": "model", "parts": looks},
            {"role": "function", "parts": results},
            tools=[
                {"functionDeclarations": [{"name": "look", "parameters": {"type": "object"}}]},
                {"googleSearch": {}},
            ],
        )
    )

    _, asked, first, second = wires(conversation)
    assert [c["id"] for c in asked["tool_calls"]] == ["call_1", "call_2"]
    assert asked["tool_calls"][0]["function"]["arguments"] == '{"room":4}'
    assert [(w["tool_call_id"], w["content"]) for w in (first, second)] == [
        ("call_1", "free"),
        ("call_2", "taken"),
    ]
    assert conversation.tools[0]["function"]["name"] == "look"


@pytest.mark.parametrize(
    ("part", "wire"),
    [
        (
            {"inlineData": {"mimeType": "image/png", "data": "QQ=="}},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}},
        ),
        (
            {"inline_data": {"mime_type": "application/pdf", "data": "QQ=="}},
            {
                "type": "file",
                "file": {"filename": "file", "file_data": "data:application/pdf;base64,QQ=="},
            },
        ),
        (
            {"inlineData": {"mimeType": "audio/wav", "data": "QQ=="}},
            {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "wav"}},
        ),
        (
            {"fileData": {"mimeType": "application/pdf", "fileUri": "gs://b/a.pdf"}},
            {"type": "text", "text": "[file gs://b/a.pdf]"},
        ),
    ],
)
def test_media_become_parts(part: Any, wire: Any) -> None:
    (message,) = wires(one(request({"role": "user", "parts": [part, {"text": "What?"}]})))

    said = {"type": "text", "text": "What?"}
    expected = f"{wire['text']}\nWhat?" if wire["type"] == "text" else [wire, said]
    assert message["content"] == expected


def test_a_log_of_every_turn_is_one_conversation() -> None:
    more = request(HI, HELLO, {"role": "user", "parts": [{"text": "And?"}]})

    assert (
        len(parse(lines({"request": request(HI), "response": RESPONSE}, more)).conversations) == 1
    )


def test_what_is_left_out_is_told() -> None:
    parsed = read(
        request(
            HI,
            {"role": "bot", "parts": [{"text": "x"}]},
            {"role": "user", "parts": [{"hologram": 1}]},
            {"role": "user"},
        )
    )

    assert wires(parsed.conversations[0]) == [{"role": "user", "content": "Hi"}]
    assert [problem.text for problem in parsed.problems] == [
        "Message 2 was left out: its role is 'bot'.",
        "Message 3 was left out: it says nothing that can be read.",
        "Message 4 was left out: it has no list of parts.",
        "Left out: parts of the kind 'hologram' (1).",
    ]
