"""The Responses API as the scripted server speaks it: items in, bodies and events out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

STATUSES = {"length": "max_output_tokens", "content_filter": "content_filter"}


def messages_of(items: list[dict[str, Any]] | str) -> list[dict[str, Any]]:
    """The items as chat messages, so that scripts and checks need to know one form only.

    Reasoning, text and calls of one answer become one message again.
    """
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    messages: list[dict[str, Any]] = []
    thoughts: list[dict[str, Any]] = []
    for item in items:
        kind = item.get("type", "message")
        if kind == "reasoning":
            thoughts.append(item)
        elif kind == "function_call":
            if not _takes_call(messages, thoughts):
                messages.append({"role": "assistant", "content": None})
            messages[-1].setdefault("tool_calls", []).append(_chat_call(item))
        elif kind == "function_call_output":
            output = {"role": "tool", "tool_call_id": item["call_id"]}
            messages.append(output | {"content": _chat_content(item["output"])})
        else:
            messages.append({"role": item["role"], "content": _chat_content(item["content"])})
        if thoughts and kind != "reasoning":
            messages[-1]["reasoning_items"] = thoughts
            thoughts = []
    return messages


def _takes_call(messages: list[dict[str, Any]], thoughts: list[dict[str, Any]]) -> bool:
    return bool(messages) and messages[-1]["role"] == "assistant" and not thoughts


def _chat_call(item: dict[str, Any]) -> dict[str, Any]:
    function = {"name": item["name"], "arguments": item["arguments"]}
    return {"id": item["call_id"], "type": "function", "function": function}


def _chat_content(content: Any) -> Any:
    if isinstance(content, str):
        return content
    parts = [_chat_part(part) for part in content]
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def _chat_part(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] == "input_image":
        return {"type": "image_url", "image_url": {"url": part["image_url"]}}
    if part["type"] == "input_file":
        return {"type": "file", "file": {k: v for k, v in part.items() if k != "type"}}
    return {"type": "text", "text": part.get("text") or part.get("refusal") or ""}


def output_of(message: dict[str, Any], reply: dict[str, Any]) -> list[dict[str, Any]]:
    """The items of a scripted answer; `encrypted` is the content of its reasoning item."""
    items: list[dict[str, Any]] = []
    if reply.get("reasoning") or reply.get("encrypted"):
        summary = [{"type": "summary_text", "text": reply.get("reasoning", "")}]
        item = {"type": "reasoning", "id": "rs_1", "summary": summary}
        items.append(item | {"encrypted_content": reply.get("encrypted")})
    parts = []
    if message["content"]:
        parts.append({"type": "output_text", "text": message["content"], "annotations": []})
    if reply.get("refusal"):
        parts.append({"type": "refusal", "refusal": reply["refusal"]})
    if parts:
        items.append(
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": parts,
            }
        )
    for number, call in enumerate(message.get("tool_calls") or []):
        items.append(
            {
                "type": "function_call",
                "id": f"fc_{number}",
                "call_id": call["id"],
                "status": "completed",
                **call["function"],
            }
        )
    return items


def body_of(
    number: int, model: str, message: dict[str, Any], reply: dict[str, Any]
) -> dict[str, Any]:
    """The whole response; `failed` is the error of one that came to nothing."""
    reason = STATUSES.get(reply.get("finish_reason", ""))
    body = {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 0,
        "model": model,
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "error": None,
        "output": output_of(message, reply),
    }
    if "failed" in reply:
        body |= {"status": "failed", "error": reply["failed"], "output": []}
    if "usage" in reply:
        body["usage"] = usage_of(reply["usage"])
    return body


def usage_of(usage: dict[str, Any]) -> dict[str, Any]:
    """A scripted usage, which is in chat form, as this API reports it."""
    names = {"prompt": "input", "completion": "output", "total": "total"}
    return {names[k.partition("_")[0]] + "_" + k.partition("_")[2]: v for k, v in usage.items()}


def events_of(body: dict[str, Any], reply: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events of a streamed response, as OpenAI sends them."""
    chunks = reply.get("chunks")
    opened = body | {"status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": opened}
    yield {"type": "response.in_progress", "response": opened}
    for index, item in enumerate(body["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        yield {"type": "response.output_item.added", "output_index": index, "item": _empty(item)}
        if item["type"] == "message":
            yield from _message_events(item, place, chunks)
        elif item["type"] == "function_call":
            for piece in _halves(item["arguments"]):
                name = "response.function_call_arguments.delta"
                yield {"type": name, "delta": piece, **place}
            name = "response.function_call_arguments.done"
            yield {"type": name, "arguments": item["arguments"], "name": item["name"], **place}
        elif item["type"] == "reasoning":
            for part in item["summary"]:
                name = "response.reasoning_summary_text.delta"
                yield {"type": name, "delta": part["text"], "summary_index": 0, **place}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{body['status']}", "response": body}


def _empty(item: dict[str, Any]) -> dict[str, Any]:
    empty = {"message": {"content": []}, "function_call": {"arguments": ""}}
    return {**item, "status": "in_progress", **empty.get(item["type"], {"summary": []})}


def _halves(text: str) -> list[str]:
    middle = len(text) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]


def _message_events(
    item: dict[str, Any], place: dict[str, Any], chunks: list[str] | None
) -> Iterator[dict[str, Any]]:
    for number, part in enumerate(item["content"]):
        at = place | {"content_index": number}
        yield {"type": "response.content_part.added", "part": part | {"text": ""}, **at}
        if part["type"] == "refusal":
            yield {"type": "response.refusal.delta", "delta": part["refusal"], **at}
            yield {"type": "response.refusal.done", "refusal": part["refusal"], **at}
            continue
        for chunk in chunks or [part["text"]]:
            yield {"type": "response.output_text.delta", "delta": chunk, "logprobs": [], **at}
        yield {"type": "response.output_text.done", "text": part["text"], "logprobs": [], **at}
        yield {"type": "response.content_part.done", "part": part, **at}


def is_text(event: dict[str, Any]) -> bool:
    """Whether an event brings a piece of the text, which the scripts count."""
    return event.get("type") == "response.output_text.delta"


def error_event(error: dict[str, Any]) -> dict[str, Any]:
    """An error as it is sent inside a stream."""
    return {"type": "error", **error}
