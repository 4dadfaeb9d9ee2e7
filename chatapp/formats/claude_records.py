"""The records of a Claude Code session: what kind each one is, and what it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chatapp.formats.reading import (
    DamagedError,
    Wire,
    assistant_wire,
    blocks_of,
    content_of,
    is_block,
    text_or_empty,
    texts_of,
    usage_of,
)

FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "content_filter",
}

LOCAL_COMMANDS = ("<command-name>", "<local-command-stdout>", "<local-command-stderr>")
"""How the rows start that a command of the program itself (/exit, /compact) leaves behind."""

INTERRUPTION = "[Request interrupted by user"


def holds_message(value: Any) -> bool:
    """Whether a record is one of the two kinds that carry conversation."""
    if not isinstance(value, dict):
        return False
    return value.get("type") in ("user", "assistant") and isinstance(value.get("message"), dict)


def reason_to_leave_out(value: Wire) -> str:
    """Why a user or assistant record is no part of the conversation; empty if it is one."""
    if value.get("isSidechain") is True:
        return "records of sub-agents (isSidechain)"
    if value.get("isCompactSummary") is True:
        return ""
    if value.get("isMeta") is True:
        return "records that the program added for itself (isMeta)"
    message = value["message"]
    if value["type"] == "assistant" and message.get("model") == "<synthetic>":
        return "answers that the program wrote in the model's place"
    content = message.get("content")
    if isinstance(content, str) and content.lstrip().startswith(LOCAL_COMMANDS):
        return "commands of the program and their output"
    return ""


def is_typed(content: Any) -> bool:
    """Whether a user record's content was typed: text, neither a tool result nor a notice."""
    if isinstance(content, str):
        return not content.startswith(INTERRUPTION)
    if not isinstance(content, list) or any(is_block(block, "tool_result") for block in content):
        return False
    return not texts_of(content, kind="text", key="text").startswith(INTERRUPTION)


def tool_results(content: Any, names: Mapping[str, str]) -> list[tuple[Wire, dict[str, Any]]]:
    """A tool message and its metadata for each result among the blocks of a user record."""
    if not isinstance(content, list):
        return []
    return [_result(block, names) for block in content if is_block(block, "tool_result")]


def user_message(content: Any) -> Wire | None:
    """What a user record says beside its tool results; None when it says nothing."""
    if content is None:
        raise DamagedError("it has no content")
    if isinstance(content, list):
        content = [block for block in content if not is_block(block, "tool_result")]
        if not content:
            return None
    said = content_of(content)
    return {"role": "user", "content": said} if said else None


def answer(messages: Sequence[Wire]) -> Wire:
    """The assistant message whose blocks are spread over these records of one answer."""
    return assistant_wire(_all_blocks(messages), kind="tool_use", arguments="input")


def reasoning(messages: Sequence[Wire]) -> str:
    """The thinking of one answer."""
    return texts_of(_all_blocks(messages), kind="thinking", key="thinking")


def usage(messages: Sequence[Wire]) -> dict[str, Any] | None:
    """The usage of one answer: every record repeats it, and the last one has the final counts."""
    found = next((m["usage"] for m in reversed(messages) if isinstance(m.get("usage"), dict)), None)
    if found is None:
        return None
    return usage_of(
        fresh=found.get("input_tokens"),
        read=found.get("cache_read_input_tokens"),
        written=found.get("cache_creation_input_tokens"),
        output=found.get("output_tokens"),
    )


def finish_reason(messages: Sequence[Wire]) -> str:
    """Why the answer ended, in OpenAI's words; empty when no record says so."""
    stops = (text_or_empty(message.get("stop_reason")) for message in reversed(messages))
    stop = next((stop for stop in stops if stop), "")
    return FINISH_REASONS.get(stop, stop)


def _all_blocks(messages: Sequence[Wire]) -> list[Any]:
    return [block for message in messages for block in blocks_of(message.get("content"))]


def _result(block: Wire, names: Mapping[str, str]) -> tuple[Wire, dict[str, Any]]:
    call_id = text_or_empty(block.get("tool_use_id"))
    wire: Wire = {
        "role": "tool",
        "tool_call_id": call_id,
        "content": content_of(block.get("content")),
    }
    if call_id in names:
        wire["name"] = names[call_id]
    return wire, {"is_error": True} if block.get("is_error") is True else {}
