"""What a strict OpenAI-compatible server refuses, written from the rules."""

from __future__ import annotations

from typing import Any


def faults(messages: list[dict[str, Any]], *, need_user: bool = True) -> list[str]:
    """Return every broken rule with the number of the message that breaks it."""
    found: list[str] = []
    waiting: list[str] = []
    used: set[str] = set()
    front = True
    for number, message in enumerate(messages):
        role = message["role"]
        front = front and role == "system"
        if role not in ("system", "user", "assistant", "tool"):
            found.append(f"{number}: unknown role {role}")
        if role == "system" and not front:
            found.append(f"{number}: a system message behind the front")
        if role == "tool":
            if message.get("tool_call_id") in waiting:
                waiting.remove(message["tool_call_id"])
            else:
                found.append(f"{number}: a result that answers no open call")
            continue
        if waiting:
            found.append(f"{number}: calls {waiting} are not answered yet")
            waiting = []
        calls = message.get("tool_calls") or []
        if calls and role != "assistant":
            found.append(f"{number}: calls of a {role}")
        for call in calls:
            if not call["id"] or call["id"] in used:
                found.append(f"{number}: call id {call['id']!r} is empty or used twice")
            used.add(call["id"])
            waiting.append(call["id"])
        if not message.get("content") and not calls:
            found.append(f"{number}: an empty message")
    if waiting:
        found.append(f"end: calls {waiting} are not answered")
    if need_user and not any(message["role"] == "user" for message in messages):
        found.append("no user message")
    return found


_PARTS = {
    "user": ("input_text", "input_image", "input_file", "input_audio"),
    "system": ("input_text",),
    "assistant": ("output_text", "refusal"),
}
_KEYS = {
    "message": {"type", "role", "content"},
    "function_call": {"type", "call_id", "name", "arguments"},
    "function_call_output": {"type", "call_id", "output"},
    "reasoning": {"type", "id", "summary", "content", "encrypted_content", "status"},
}


def item_faults(
    items: list[dict[str, Any]], *, need_user: bool = True, open_calls: tuple[str, ...] = ()
) -> list[str]:
    """Return what a strict Responses server refuses in `input`, with the number of the item.

    `open_calls`: calls without a result in the response that the request goes on from.
    """
    found: list[str] = []
    waiting, used = list(open_calls), set(open_calls)
    front = True
    for number, item in enumerate(items):
        kind = item.get("type")
        front = front and item.get("role") == "system"
        if kind not in _KEYS:
            found.append(f"{number}: unknown type {kind}")
            continue
        if kind != "reasoning" and set(item) != _KEYS[kind]:
            found.append(f"{number}: keys of a {kind} are {sorted(item)}")
            continue
        if kind in ("message", "reasoning"):
            following = items[number + 1] if number + 1 < len(items) else {}
            found += [
                f"{number}: {fault}" for fault in _message_faults(item, front, waiting, following)
            ]
        elif kind == "function_call":
            found += [f"{number}: {fault}" for fault in _call_faults(item, used)]
            used.add(item["call_id"])
            waiting.append(item["call_id"])
        elif item["call_id"] in waiting:
            waiting.remove(item["call_id"])
            if not isinstance(item["output"], str | list):
                found.append(f"{number}: an output that is neither text nor parts")
        else:
            found.append(f"{number}: an output that answers no open call")
    if waiting:
        found.append(f"end: calls {waiting} are not answered")
    if need_user and not any(item.get("role") == "user" for item in items):
        found.append("no user message")
    return found


def _message_faults(
    item: dict[str, Any], front: bool, waiting: list[str], following: dict[str, Any]
) -> list[str]:
    if item["type"] == "reasoning":
        return _reasoning_faults(item, following)
    found = []
    role, content = item["role"], item["content"]
    if waiting:
        found.append(f"calls {waiting} are not answered yet")
    if role not in _PARTS:
        return [f"unknown role {role}"]
    if role == "system" and not front:
        found.append("a system message behind the front")
    if not content:
        found.append("an empty message")
    if isinstance(content, list):
        found += [
            f"a part {part.get('type')} of a {role}"
            for part in content
            if part.get("type") not in _PARTS[role] or part.get("text") == ""
        ]
    return found


def _reasoning_faults(item: dict[str, Any], following: dict[str, Any]) -> list[str]:
    found = []
    if not set(item) <= _KEYS["reasoning"] or None in item.values():
        found.append(f"keys of a reasoning are {sorted(item)}, or one is null")
    if not isinstance(item.get("summary"), list):
        found.append("reasoning without a summary list")
    if not (item.get("encrypted_content") or item.get("content")):
        found.append("reasoning without content")
    if following.get("type") not in ("reasoning", "function_call") and (
        following.get("role") != "assistant"
    ):
        found.append("reasoning without its required following item")
    return found


def _call_faults(item: dict[str, Any], used: set[str]) -> list[str]:
    found = []
    if not item["call_id"] or item["call_id"] in used:
        found.append(f"call id {item['call_id']!r} is empty or used twice")
    if not isinstance(item["arguments"], str):
        found.append("arguments that are no text")
    return found
