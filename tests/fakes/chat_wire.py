"""Chat Completions as the scripted server speaks it: bodies and chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def finish_of(reply: dict[str, Any]) -> str:
    return reply.get("finish_reason") or ("tool_calls" if reply.get("tool_calls") else "stop")


def body_of(
    number: int, model: str, message: dict[str, Any], reply: dict[str, Any]
) -> dict[str, Any]:
    """The whole completion."""
    completion = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish_of(reply)}],
    }
    if "usage" in reply:
        completion["usage"] = reply["usage"]
    return completion


def events_of(body: dict[str, Any], reply: dict[str, Any]) -> Iterator[dict[str, Any] | str]:
    """The chunks of a streamed completion; `deltas` are sent behind the text as they are."""
    model, message = body["model"], body["choices"][0]["message"]
    for piece in reply.get("chunks") or ([message["content"]] if message["content"] else []):
        yield _chunk(model, {"content": piece})
    for delta in reply.get("deltas") or []:
        yield _chunk(model, delta)
    for index, tool_call in enumerate(message.get("tool_calls") or []):
        yield _chunk(model, {"tool_calls": [{"index": index, **tool_call}]})
    yield _chunk(model, {}, finish_of(reply))
    if "usage" in reply:
        yield _chunk(model, {}) | {"choices": [], "usage": reply["usage"]}
    yield "[DONE]"


def _chunk(model: str, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {
        "id": "chunk",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def is_text(event: dict[str, Any]) -> bool:
    """Whether a chunk brings a piece of the text, which the scripts count."""
    choices = event.get("choices") or [{}]
    return bool((choices[0].get("delta") or {}).get("content"))


def error_event(error: dict[str, Any]) -> dict[str, Any]:
    """An error as it is sent inside a stream."""
    return {"error": error}
