"""The content blocks of Anthropic's Messages API: what each kind is in a message of ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from chatapp.formats.answers import AnswerBuilder
from chatapp.formats.reading import (
    DamagedError,
    Wire,
    blocks_of,
    compact_json,
    file_part,
    image_of,
    is_block,
    joined,
    text_or_empty,
)

THINKING = ("thinking", "redacted_thinking")
CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
OWN_KINDS = frozenset({*THINKING, *CALLS, "tool_result", "document", "compaction"})
"""Kinds of blocks by which a message is known to be Anthropic's."""


def is_own_block(block: Any) -> bool:
    """Whether a content block is one that only this interface has."""
    if not isinstance(block, dict) or not isinstance(kind := block.get("type"), str):
        return False
    if kind == "thinking":  # others have it too, as a list of chunks
        return isinstance(block.get("thinking"), str)
    return kind in OWN_KINDS or (kind == "image" and isinstance(block.get("source"), dict))


def is_result(block: Any) -> bool:
    """Whether a block holds what a tool returned, one of ours or one that the server ran."""
    kind = block.get("type") if isinstance(block, dict) else None
    return isinstance(kind, str) and kind.endswith("tool_result")


def content_of_blocks(blocks: Any, left_out: Counter[str]) -> str | list[Wire]:
    """Return text, or parts where there is more than text; what is unknown is counted."""
    if isinstance(blocks, str):
        return blocks
    if not isinstance(blocks, list):
        raise DamagedError("its content is neither text nor a list of blocks")
    parts = [part for block in blocks if (part := _part(block, left_out))]
    if any(part["type"] != "text" for part in parts):
        return parts
    return joined(part["text"] for part in parts)


def result_wire(
    block: Wire, names: Mapping[str, str], left_out: Counter[str]
) -> tuple[Wire, dict[str, Any]]:
    """Return the tool message of a result, and its metadata."""
    call_id = text_or_empty(block.get("tool_use_id"))
    content = block.get("content")
    if block.get("type") not in ("tool_result", "mcp_tool_result"):
        content = _server_result(content)
    wire: Wire = {
        "role": "tool",
        "tool_call_id": call_id,
        "content": content_of_blocks("" if content is None else content, left_out),
    }
    if call_id in names:
        wire["name"] = names[call_id]
    return wire, {"is_error": True} if block.get("is_error") is True else {}


def take_answer(
    content: Any, builder: AnswerBuilder, names: dict[str, str], left_out: Counter[str]
) -> None:
    """Give the blocks of an assistant's message to the builder; names of calls are noted."""
    for block in blocks_of(content):
        if is_block(block, "text") or is_block(block, "output_text"):
            builder.say(text_or_empty(block.get("text")))
            builder.note("citations", block.get("citations"))
        elif is_block(block, "thinking"):
            builder.think(text_or_empty(block.get("thinking")), _signed(block, "signature"))
        elif is_block(block, "redacted_thinking"):
            builder.think("", _signed(block, "data"))
        elif isinstance(block, dict) and block.get("type") in CALLS:
            builder.call(
                call_id=block.get("id"), name=block.get("name"), arguments=block.get("input")
            )
            names[text_or_empty(block.get("id"))] = block["name"]
        elif is_result(block):
            builder.result(*result_wire(block, names, left_out))
        elif part := _part(block, left_out):
            builder.show(part)


def _signed(block: Wire, key: str) -> Wire | None:
    value = block.get(key)
    return {"type": block["type"], key: value} if isinstance(value, str) and value else None


def _part(block: Any, left_out: Counter[str]) -> Wire | None:
    if isinstance(block, str):
        return {"type": "text", "text": block}
    kind = block.get("type") if isinstance(block, dict) else None
    if kind in ("text", "input_text", "output_text"):
        return {"type": "text", "text": text_or_empty(block.get("text"))}
    if kind == "image":
        return image_of(block)
    if kind == "document":
        return _document(block, left_out)
    if kind == "search_result":
        head = joined([text_or_empty(block.get("title")), text_or_empty(block.get("source"))])
        said = content_of_blocks(block.get("content") or "", left_out)
        return {"type": "text", "text": joined([head, said if isinstance(said, str) else ""])}
    if kind in ("image_url", "input_audio", "file", "refusal"):  # as a gateway passes them on
        return dict(block)
    left_out[str(kind)[:40]] += 1
    return None


def _document(block: Wire, left_out: Counter[str]) -> Wire:
    source = block.get("source")
    title = text_or_empty(block.get("title"))
    source = source if isinstance(source, dict) else {}
    if source.get("type") == "text":
        return {"type": "text", "text": joined([title, text_or_empty(source.get("data"))])}
    if source.get("type") == "content":
        said = content_of_blocks(source.get("content") or "", left_out)
        return {"type": "text", "text": joined([title, said if isinstance(said, str) else ""])}
    media_type, data = source.get("media_type"), source.get("data")
    where = text_or_empty(source.get("url")) or text_or_empty(source.get("file_id"))
    return file_part(name=title, media_type=media_type, data=data, where=where)


def _server_result(content: Any) -> str:
    """Return what a tool of the server returned as text: hits by title and address, else JSON."""
    hits = content if isinstance(content, Sequence) and not isinstance(content, str) else [content]
    lines = [
        f"{text_or_empty(hit.get('title'))} {text_or_empty(hit.get('url'))}".strip()
        if isinstance(hit, dict) and hit.get("url")
        else text_or_empty(hit) or compact_json(hit)
        for hit in hits
    ]
    return joined(lines)
