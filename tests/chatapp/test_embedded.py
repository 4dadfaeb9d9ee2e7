"""The model without a server: it quotes, says what it is, and refuses what is too large."""

from __future__ import annotations

import pytest

from chatapp.context.assembly import tools_tokens
from chatapp.llm.embedded import NOTICE, EmbeddedModel
from chatapp.llm.errors import ErrorKind, ModelError
from chatapp.llm.registry import ModelConfig
from chatapp.llm.requests import ModelRequest, Reply

TALK = (
    {"role": "system", "content": "You are a clerk."},
    {"role": "user", "content": "My order number is 4711. It is a blue lamp."},
    {"role": "assistant", "content": "Noted. The parcel left Hamburg on Monday."},
    {"role": "user", "content": "我的预算是五千元。"},
)


def model(window: int = 8192) -> EmbeddedModel:
    return EmbeddedModel(
        ModelConfig(
            alias="embedded",
            backend="chatapp.llm.embedded.EmbeddedModel",
            name="embedded",
            context_window=window,
            max_output=1024,
            encoding="o200k_base",
        )
    )


def ask(question: str, *, window: int = 8192, **request) -> Reply:
    messages = (*TALK, {"role": "user", "content": question})
    return model(window).complete(ModelRequest(messages=messages, **request))


def test_it_quotes_what_was_said_with_its_place():
    text = ask("What is my order number?").text
    assert "[2, user] “My order number is 4711.”" in text


def test_it_finds_chinese_sentences():
    assert "我的预算是五千元。" in ask("预算是多少？").text


def test_it_says_that_no_model_is_connected_and_how_to_connect_one():
    text = ask("anything").text
    assert "No language model is connected" in text
    assert "OPENAI_API_KEY" in text
    assert "OPENAI_BASE_URL" in text


def test_it_says_so_when_the_conversation_says_nothing():
    assert "says nothing about this" in ask("weather tomorrow?").text


def test_it_does_not_quote_the_question_or_its_own_notices():
    messages = (
        *TALK,
        {"role": "assistant", "content": f"order order order\n{NOTICE}"},
        {"role": "user", "content": "order?"},
    )
    text = model().complete(ModelRequest(messages=messages)).text
    assert "order order" not in text
    assert "“order?”" not in text


def test_it_answers_the_same_every_time():
    assert ask("order number").text == ask("order number").text


def test_it_reports_usage():
    usage = ask("order").usage
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens"] > 20


def test_it_refuses_what_is_larger_than_its_window_like_a_server():
    with pytest.raises(ModelError) as caught:
        ask("word " * 3000, window=2048)
    assert caught.value.is_overflow
    assert caught.value.code == "context_length_exceeded"
    assert "maximum context length is 2048 tokens" in caught.value.detail


def test_it_streams_its_answer_word_by_word():
    pieces: list[str] = []
    messages = (*TALK, {"role": "user", "content": "order number"})
    reply = model().complete(
        ModelRequest(messages=messages, stream=True), lambda _, event: pieces.append(event["text"])
    )
    assert len(pieces) > 5
    assert "".join(pieces) == reply.text


def test_it_stops_when_it_is_cancelled():
    with pytest.raises(ModelError) as caught:
        ask("order", stream=True, cancelled=lambda: True)
    assert caught.value.kind is ErrorKind.CANCELLED


def test_content_in_parts_is_read():
    parts = [{"type": "text", "text": "order number"}]
    messages = (*TALK, {"role": "user", "content": parts})
    assert "4711" in model().complete(ModelRequest(messages=messages)).text


def test_its_usage_counts_the_tools_as_a_request_does():
    tools = tuple(
        {
            "type": "function",
            "function": {"name": f"tool_{n}", "description": "looks into the beds " * 40},
        }
        for n in range(12)
    )
    without = ask("Which beds are dry?").usage["prompt_tokens"]
    counted = tools_tokens(model().config, tools)
    assert counted > 1_000
    assert ask("Which beds are dry?", tools=tools).usage["prompt_tokens"] == without + counted
