"""Chat messages and tools in the forms of the Responses API: a list of items, and flat tools."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from chatapp.pairing import answers
from chatapp.wire import text_of

# Parts that a message may bring in the form of this API already.
_OWN_PARTS = ("input_image", "input_file", "input_audio")
_WORDS = {
    "image_url": "image",
    "input_image": "image",
    "input_file": "file",
    "input_audio": "audio",
}
_FILE_KEYS = ("file_data", "file_id", "file_url", "filename")
_NO_PARAMETERS = {"type": "object", "properties": {}}


def items_of(
    messages: Sequence[Mapping[str, Any]], *, plain_text: bool = False, held: int = 0
) -> list[dict[str, Any]]:
    """Return the messages behind the first `held` ones as items of a Responses request.

    A call is only given with its result, a result only with its call, which may be one of the held
    messages (spec/rs_window_augment.md 1.11). `plain_text`: contents are texts, not typed parts.
    """
    return [item for item, _ in sourced_items(messages, plain_text=plain_text, held=held)]


def sourced_items(
    messages: Sequence[Mapping[str, Any]], *, plain_text: bool = False, held: int = 0
) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield what items_of returns, each with the index of its message."""
    placed = answers(messages)
    answered = set(placed.values())
    for index, message in enumerate(messages):
        if index < held:
            continue
        items: Iterable[dict[str, Any]]
        if message["role"] == "tool":
            items = [_output(message, plain_text=plain_text)] if index in placed else []
        elif message["role"] == "assistant":
            calls = enumerate(message.get("tool_calls") or ())
            kept = [call for number, call in calls if (index, number) in answered]
            items = _produced(message, kept, plain_text=plain_text)
        else:
            items = _said(message, plain_text=plain_text)
        for item in items:
            yield item, index


def _said(message: Mapping[str, Any], *, plain_text: bool) -> Iterator[dict[str, Any]]:
    """Yield the item of a user's or system message; none for an empty one."""
    role = "user" if message["role"] == "user" else "system"
    content = _input(message.get("content"), plain_text=plain_text)
    if content:
        yield {"type": "message", "role": role, "content": content}


def _produced(
    message: Mapping[str, Any], calls: Sequence[Mapping[str, Any]], *, plain_text: bool
) -> list[dict[str, Any]]:
    """Return what the model once produced: its reasoning, its text, its calls, in this order."""
    produced: list[dict[str, Any]] = []
    parts = list(_output_parts(message))
    if parts:
        content: Any = parts
        if plain_text:
            content = "".join(part.get("text") or part.get("refusal") or "" for part in parts)
        produced.append({"type": "message", "role": "assistant", "content": content})
    produced += [_call(call) for call in calls]
    # Servers refuse reasoning that leads to nothing.
    return [*_reasoning(message), *produced] if produced else []


def _reasoning(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the reasoning items as they came, without the nulls that no server takes back.

    One that holds nothing but its id is of no use to a server that did not keep it.
    """
    for item in message.get("reasoning_items") or ():
        if item.get("encrypted_content") or item.get("content"):
            yield {key: value for key, value in item.items() if value is not None}


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call["function"].get("arguments")
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments or {}, ensure_ascii=False)
    return {
        "type": "function_call",
        "call_id": call.get("id") or "",
        "name": call["function"]["name"],
        "arguments": arguments,
    }


def _output(message: Mapping[str, Any], *, plain_text: bool) -> dict[str, Any]:
    """Return a result's item: its text, or its parts where some are no text."""
    content = message.get("content")
    parts = _parts(content)
    only_text = all(isinstance(part.get("text"), str) for part in parts)
    output = text_of(content) if only_text else _input(content, plain_text=plain_text)
    return {
        "type": "function_call_output",
        "call_id": message.get("tool_call_id") or "",
        "output": output,
    }


def _parts(content: Any) -> list[Mapping[str, Any]]:
    """Return a chat message's content as its list of parts."""
    if isinstance(content, list):
        return [part for part in content if isinstance(part, Mapping)]
    return [{"type": "text", "text": content}] if isinstance(content, str) else []


def _input(content: Any, *, plain_text: bool) -> str | list[dict[str, Any]]:
    """Return what goes in: typed parts, or one text that names the parts it cannot hold."""
    parts = _parts(content)
    if plain_text:
        return "".join(_text_or_name(part) for part in parts)
    return [_input_part(part) for part in parts if part.get("text") != ""]


def _input_part(part: Mapping[str, Any]) -> dict[str, Any]:
    kind = part.get("type")
    if kind == "image_url":
        image = part.get("image_url")
        image = image if isinstance(image, Mapping) else {"url": image}
        detail = image.get("detail") or "auto"
        return {"type": "input_image", "image_url": image.get("url"), "detail": detail}
    if kind == "file" and isinstance(part.get("file"), Mapping):
        file = part["file"]
        return {"type": "input_file", **{key: file[key] for key in _FILE_KEYS if file.get(key)}}
    if kind in _OWN_PARTS:
        return dict(part)
    return {"type": "input_text", "text": _text_or_name(part)}


def _text_or_name(part: Mapping[str, Any]) -> str:
    text = part.get("text")
    if isinstance(text, str):
        return text
    kind = str(part.get("type") or "part")
    return f"[{_WORDS.get(kind, kind)} not sent]"


def _output_parts(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the typed parts of an assistant's message; a refusal is one, also beside a text."""
    refusal = message.get("refusal") or ""
    text = message.get("content")
    # Chat messages repeat a refusal as content where there is no other.
    for part in _parts(text if text != refusal else None):
        if isinstance(part.get("refusal"), str):
            refusal = refusal or part["refusal"]
        elif part.get("text") != "":
            yield {"type": "output_text", "text": _text_or_name(part)}
    if refusal:
        yield {"type": "refusal", "refusal": refusal}


def tools_of(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return chat tools in this API's flat form; what is in it already stays as it is."""
    return [_tool(tool) for tool in tools]


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool.get("function")
    if not isinstance(function, Mapping):
        return dict(tool)
    given = {key: value for key, value in function.items() if value is not None}
    # Without `strict` this API would enforce the schema, which Chat Completions does not.
    return {"type": "function", "parameters": _NO_PARAMETERS, "strict": False, **given}
