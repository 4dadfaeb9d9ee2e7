"""What a strict OpenAI-compatible server refuses, written from the rules (DESIGN.md, rule 5)."""

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
