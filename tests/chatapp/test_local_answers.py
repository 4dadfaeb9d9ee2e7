"""What llama.cpp's server says of a window that is too small, before and during an answer."""

from __future__ import annotations

import pytest

from chatapp.llm import chat_wire
from chatapp.llm.errors import ErrorKind, from_body
from chatapp.models import Message
from tests.factories import SessionFactory

# Bodies as llama.cpp's server (xllamacpp 2026.10.11549) sent them at n_ctx 512; the text of
# the second one is shortened.
OVERFLOW = {
    "error": {
        "code": 400,
        "message": "request (731 tokens) exceeds the available context size (512 tokens), "
        "try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 731,
        "n_ctx": 512,
    }
}
WINDOW_FULL = {
    "choices": [
        {
            "finish_reason": "length",
            "index": 0,
            "message": {"role": "assistant", "content": "assistant\nassistant"},
        }
    ],
    "created": 1795837524,
    "model": "smol",
    "system_fingerprint": "b0-unknown",
    "object": "chat.completion",
    "usage": {
        "completion_tokens": 23,
        "prompt_tokens": 489,
        "total_tokens": 512,
        "prompt_tokens_details": {"cached_tokens": 0},
    },
    "id": "chatcmpl-NIjCLQPFoKqMY2zggqcaGV4yNz1jcOsu",
}


def test_its_refusal_of_a_long_request_is_an_overflow():
    error = from_body(OVERFLOW, status=400)
    assert error.kind is ErrorKind.CONTEXT_OVERFLOW
    assert (error.status, error.code) == (400, "400")
    bare = {"error": {"type": "exceed_context_size_error", "code": 400, "message": ""}}
    assert from_body(bare, status=400).kind is ErrorKind.CONTEXT_OVERFLOW


def test_a_window_that_fills_during_the_answer_is_no_overflow():
    reply = chat_wire.reply_of(WINDOW_FULL)
    assert (reply.finish_reason, reply.text) == ("length", "assistant\nassistant")
    assert reply.usage is not None
    assert reply.usage["total_tokens"] == 512


@pytest.mark.django_db
def test_a_turn_whose_window_fills_keeps_what_was_answered(model_server, api, owner):
    model_server.script = [{"when": {}, "reply": {"raw": WINDOW_FULL}}]
    session = SessionFactory(owner=owner)
    done = api.post(f"/api/v1/sessions/{session.pk}/turns/", {"content": "Go on"}, format="json")
    assert (done.status_code, done.json()["run"]) == (200, None)
    answer = Message.objects.get(role="assistant")
    assert (answer.content, answer.finish_reason) == (
        "assistant\nassistant",
        "length",
    )
    assert len(model_server.calls) == 1
