"""Refusals in four servers' own words, from a client's HTTP request to the model and back."""

from __future__ import annotations

import httpx2
import pytest

from chatapp.models import Session
from compaction.models import RecoveryStep, SessionSummary
from tests.chatapp.conftest import asgi_server  # noqa: F401 - a fixture
from tests.chatapp.test_stream import Chat, events
from tests.factories import profile, store, talk, user
from tests.facts import CODE_PATTERN, code
from tests.fakes.strict_checker import faults

pytestmark = pytest.mark.django_db(transaction=True)

LLAMA_CPP = {
    "error": {
        "status": 400,
        "body": {
            "error": {
                "code": 400,
                "message": "request (8123 tokens) exceeds the available context size (8000 "
                "tokens), try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 8123,
                "n_ctx": 8000,
            }
        },
    }
}
VLLM = {
    "error": {
        "status": 400,
        "body": {
            "object": "error",
            "message": "This model's maximum context length is 8000 tokens. However, you requested "
            "9147 tokens (8123 in the messages, 1024 in the completion).",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
    }
}
ANTHROPIC = {
    "error": {
        "status": 400,
        "body": {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "prompt is too long: 8123 tokens > 8000 maximum",
            },
        },
    }
}
# LM Studio answers 200 and tells the error inside the stream, or as the body.
LM_STUDIO_WORDS = (
    "Trying to keep the first 8123 tokens when context the overflows. However, the model is loaded "
    "with context length of only 8000 tokens, which is not enough."
)
LM_STUDIO_STREAM = {
    "chunks": ["never sent"],
    "fail_after": 0,
    "stream_error": {"message": LM_STUDIO_WORDS},
}
LM_STUDIO_BODY = {"raw": {"error": LM_STUDIO_WORDS}}


@pytest.fixture
def chat(asgi_server, model_server, use_models, queued, owner) -> Chat:  # noqa: F811
    use_models(model_server.models(CONTEXT_WINDOW=8000), TOKEN_COUNTER="chars4")
    profile(message_limit=0, max_context_tokens=0)
    chat = Chat(asgi_server.url, owner)
    store(chat.session, talk(10, marker=100))
    return chat


def refuse_once(server, reply: dict) -> None:
    server.script = [
        {"when": {"purpose": "chat", "call": 1}, "reply": reply},
        {"when": {"purpose": "summary"}, "reply": {"echo_markers": CODE_PATTERN, "prefix": "S "}},
        {"when": {}, "reply": {"text": "the answer"}},
    ]


def check(chat: Chat, server) -> None:
    """One compaction, one retry; the second request is strict, whole and smaller."""
    refused, retried = server.of("chat")
    assert SessionSummary.objects.get().trigger == "overflow_retry"
    recovery_step = RecoveryStep.objects.get()
    assert (recovery_step.action, recovery_step.outcome, recovery_step.allowed) == (
        "compact",
        "smaller",
        8000,
    )
    assert retried.messages[-1] == user("go on")
    assert faults(retried.messages) == []
    assert len(retried.text) < len(refused.text)
    assert {code(n) for n in range(100, 110)} <= set(retried.text.split())
    assert chat.stored()[-2:] == ["go on", "the answer"]


@pytest.mark.parametrize(
    "reply",
    [LLAMA_CPP, VLLM, ANTHROPIC, LM_STUDIO_BODY],
    ids=["llama.cpp", "vLLM", "Anthropic", "LM Studio"],
)
def test_a_refusal_is_recovered_from(chat, model_server, reply):
    refuse_once(model_server, reply)
    answer = httpx2.post(chat.url(), json={"content": "go on"}, headers=chat.headers(), timeout=20)
    assert answer.status_code == 200
    assert answer.json()["answer"]["content"] == "the answer"
    check(chat, model_server)


@pytest.mark.parametrize(
    "reply",
    [LLAMA_CPP, VLLM, ANTHROPIC, LM_STUDIO_STREAM],
    ids=["llama.cpp", "vLLM", "Anthropic", "LM Studio"],
)
def test_a_refusal_is_recovered_from_while_streaming(chat, model_server, reply):
    refuse_once(model_server, reply)
    heard = chat.turn(content="go on")
    told = [payload["phase"] for name, payload in heard if name == "compaction"]
    assert told == ["started", "finished"]
    assert heard[-1][0] == "done"
    assert heard[-1][1]["answer"]["content"] == "the answer"
    check(chat, model_server)


def test_the_responses_wire_recovers_from_an_error_event(chat, model_server):
    Session.objects.update(api="responses")
    failed = {"failed": {"code": "context_length_exceeded", "message": ""}}
    model_server.script = [
        {"when": {"purpose": "chat", "call": 1}, "reply": failed},
        {"when": {"purpose": "summary"}, "reply": {"echo_markers": CODE_PATTERN, "prefix": "S "}},
        {"when": {}, "reply": {"text": "the answer"}},
    ]
    heard = chat.turn(content="go on")
    assert heard[-1][1]["answer"]["content"] == "the answer"
    assert RecoveryStep.objects.get().outcome == "smaller"
    assert [called.api for called in model_server.of("chat")] == ["responses", "responses"]


def test_a_turn_that_cannot_be_saved_ends_with_a_problem_document(chat, model_server):
    model_server.script = [
        {"when": {"purpose": "chat"}, "reply": LLAMA_CPP},
        {"when": {}, "reply": {"text": ""}},
    ]
    body = {"content": "go on"}
    answer = httpx2.post(chat.url(), json=body, headers=chat.headers(), timeout=20)
    assert answer.status_code == 502
    problem = answer.json()
    assert problem["code"] == "context_overflow"
    assert "larger window" in problem["detail"]
    with httpx2.stream(
        "POST", chat.url(), json=body | {"stream": True}, headers=chat.headers(), timeout=20
    ) as response:
        heard = list(events(response.iter_lines()))
    assert heard[-1][0] == "error"
    assert heard[-1][1]["code"] == "context_overflow"
