"""Messages as clients and models write them (OpenAI chat form) <-> the columns of a row.

One place cleans text for storage: NUL and lone surrogates are replaced with U+FFFD, because no
database of ours takes them, and `metadata.replaced_characters` says how many there were.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chatapp.models import Message

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_ROLES = {"developer": "system", "function": "tool"}
_KNOWN = {"role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content", "refusal"}


class InvalidMessageError(ValueError):
    """The message cannot be stored; the text says which part and why."""


class Cleaner:
    """Replaces what no database stores, and counts how often it did."""

    def __init__(self) -> None:
        self.replaced = 0

    def text(self, value: str) -> str:
        """Return `value` without NUL and lone surrogates."""
        cleaned, count = _UNSTORABLE.subn("\ufffd", value)
        self.replaced += count
        return cleaned

    def json(self, value: Any) -> Any:
        """Return `value` with every string in it cleaned, keys included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.json(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.json(item) for item in value]
        if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
            return None
        return value


def fields_of(wire: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a wire message, cleaned.

    Raises InvalidMessageError for what has no place in a transcript: an unknown role, content that
    is neither text, null nor a list of parts, calls that are not a list of objects.
    """
    cleaner = Cleaner()
    role = wire.get("role")
    if role not in ("system", "user", "assistant", "tool", *_ROLES):
        raise InvalidMessageError(
            f"role: {role!r} is none of system, developer, user, assistant, tool."
        )
    content, parts = _content(wire.get("content"), cleaner)
    calls = _calls(wire, cleaner)
    metadata: dict[str, Any] = {}
    if role == "developer":
        metadata["wire_role"] = role
    for key in ("refusal",):
        if wire.get(key):
            metadata[key] = cleaner.json(wire[key])
    extra = {
        key: cleaner.json(value)
        for key, value in wire.items()
        if key not in _KNOWN and value is not None and key != "function_call"
    }
    if extra:
        metadata["extra"] = extra
    fields = {
        "role": _ROLES.get(role, role),
        "content": content,
        "parts": parts,
        "tool_calls": calls or None,
        "tool_call_id": cleaner.text(
            _string(wire, "tool_call_id") or ("function_call" if role == "function" else "")
        ),
        "tool_name": cleaner.text(_string(wire, "name")),
        "reasoning": cleaner.text(_string(wire, "reasoning_content")),
    }
    if cleaner.replaced:
        metadata["replaced_characters"] = cleaner.replaced
    fields["metadata"] = metadata
    return fields


def _string(wire: Mapping[str, Any], key: str) -> str:
    value = wire.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidMessageError(f"{key}: must be a text, not {type(value).__name__}.")
    return value


def _content(value: Any, cleaner: Cleaner) -> tuple[str | None, list[dict[str, Any]] | None]:
    if value is None:
        return None, None
    if isinstance(value, str):
        return cleaner.text(value), None
    if not isinstance(value, list):
        raise InvalidMessageError(
            f"content: must be a text, null or a list of parts, not {type(value).__name__}."
        )
    texts: list[str] = []
    parts: list[dict[str, Any]] = []
    for number, part in enumerate(value):
        if isinstance(part, str):
            part = {"type": "text", "text": part}
        if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
            raise InvalidMessageError(f"content[{number}]: must be an object with a type.")
        cleaned = cleaner.json(part)
        if isinstance(cleaned.get("text"), str):
            # The text moves to `content`; its length in characters finds it again.
            texts.append(cleaned.pop("text"))
            cleaned["chars"] = len(texts[-1])
        parts.append(cleaned)
    return "".join(texts), parts


def _calls(wire: Mapping[str, Any], cleaner: Cleaner) -> list[dict[str, Any]]:
    calls = wire.get("tool_calls")
    if calls is None and isinstance(wire.get("function_call"), Mapping):
        calls = [{"id": "function_call", "function": wire["function_call"]}]
    if calls is None:
        return []
    if not isinstance(calls, list):
        raise InvalidMessageError("tool_calls: must be a list.")
    return [_call(call, number, cleaner) for number, call in enumerate(calls)]


def _call(call: Any, number: int, cleaner: Cleaner) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise InvalidMessageError(f"tool_calls[{number}]: must have a function with a name.")
    arguments = function.get("arguments")
    if arguments is None:
        arguments = ""
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    kept = {key: value for key, value in call.items() if key not in ("id", "type", "function")}
    return {
        "id": cleaner.text(str(call.get("id") or f"call_{number}")),
        "type": "function",
        "function": {"name": cleaner.text(function["name"]), "arguments": cleaner.text(arguments)},
        **cleaner.json(kept),
    }


def content_of(message: Message) -> str | list[dict[str, Any]] | None:
    """Return the content as the client sent it: text, null, or its list of parts."""
    if message.parts is None:
        return message.content
    text, start, parts = message.content or "", 0, []
    for part in message.parts:
        if "chars" in part:
            end = start + part["chars"]
            rest = {k: v for k, v in part.items() if k not in ("chars", "type")}
            parts.append({"type": part["type"], "text": text[start:end], **rest})
            start = end
        else:
            parts.append(dict(part))
    return parts


def to_wire(message: Message) -> dict[str, Any]:
    """Return the row as an OpenAI chat message; keys a model has no use for are left out."""
    wire: dict[str, Any] = {
        "role": message.metadata.get("wire_role", message.role),
        "content": content_of(message),
    }
    if message.tool_calls:
        wire["tool_calls"] = message.tool_calls
    if message.role == "tool" and message.tool_call_id:
        wire["tool_call_id"] = message.tool_call_id
    if message.tool_name:
        wire["name"] = message.tool_name
    if "refusal" in message.metadata:
        wire["refusal"] = message.metadata["refusal"]
    return wire
