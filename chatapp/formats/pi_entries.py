"""What the entries of a pi session say, in OpenAI chat form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from chatapp.formats.reading import (
    DamagedError,
    Wire,
    assistant_wire,
    blocks_of,
    content_of,
    joined,
    moment,
    shown,
    text_or_empty,
    texts_of,
    usage_of,
)
from chatapp.formats.records import ImportedMessage

FINISH_REASONS = {"toolUse": "tool_calls"}
"""The stop reasons that OpenAI calls by another name; stop, length, error, aborted stay."""

BRANCH_SUMMARY = "Summary of a branch that this conversation came back from:\n\n{}"
COMPACTION_SUMMARY = "Summary of the conversation before this point:\n\n{}"


def message_of(value: Wire) -> ImportedMessage | None:
    """The message of an entry, not yet placed; None when it holds nothing that is said.

    Raises DamagedError when the entry should hold a message and does not.
    """
    if value.get("type") == "custom_message":
        return _custom(value, value)
    if value.get("type") == "branch_summary":
        return _summary(value, value, BRANCH_SUMMARY, "branch_summary")
    if value.get("type") != "message":
        return None
    said = value.get("message")
    if not isinstance(said, dict):
        raise DamagedError("it has no message")
    role = said.get("role")
    read = _READERS.get(role) if isinstance(role, str) else None
    if read is None:
        raise DamagedError(f"its role is {shown(role)}")
    return read(value, said)


def is_empty_answer(value: Wire) -> bool:
    """Whether an entry is an answer that was stopped before it said anything."""
    said = value.get("message")
    if value.get("type") != "message" or not isinstance(said, dict):
        return False
    return said.get("role") == "assistant" and not said.get("content")


def _message(value: Wire, said: Wire, wire: Wire, **fields: Any) -> ImportedMessage:
    created_at = moment(value.get("timestamp")) or moment(said.get("timestamp"))
    return ImportedMessage(key="", parent=None, wire=wire, created_at=created_at, **fields)


def _user(value: Wire, said: Wire) -> ImportedMessage:
    if said.get("content") is None:
        raise DamagedError("it has no content")
    return _message(value, said, {"role": "user", "content": content_of(said["content"])})


def _assistant(value: Wire, said: Wire) -> ImportedMessage:
    blocks = blocks_of(said.get("content"))
    stop = text_or_empty(said.get("stopReason"))
    return _message(
        value,
        said,
        assistant_wire(blocks, kind="toolCall", arguments="arguments"),
        reasoning=texts_of(blocks, kind="thinking", key="thinking"),
        usage=_usage(said.get("usage")),
        finish_reason=FINISH_REASONS.get(stop, stop),
        metadata=_kept(said, {"provider": "provider", "model": "model", "error": "errorMessage"}),
    )


def _usage(usage: Any) -> dict[str, Any] | None:
    if not isinstance(usage, dict):
        return None
    return usage_of(
        fresh=usage.get("input"),
        read=usage.get("cacheRead"),
        written=usage.get("cacheWrite"),
        output=usage.get("output"),
    )


def _tool_result(value: Wire, said: Wire) -> ImportedMessage:
    wire: Wire = {
        "role": "tool",
        "tool_call_id": text_or_empty(said.get("toolCallId")),
        "content": content_of(said.get("content")),
    }
    if name := text_or_empty(said.get("toolName")):
        wire["name"] = name
    metadata = {"is_error": True} if said.get("isError") is True else {}
    return _message(value, said, wire, metadata=metadata)


def _bash(value: Wire, said: Wire) -> ImportedMessage | None:
    if said.get("excludeFromContext") is True:
        return None
    code = said.get("exitCode")
    full_output = text_or_empty(said.get("fullOutputPath"))
    ends = (
        "The command was cancelled." if said.get("cancelled") is True else "",
        f"Exit code: {code}" if isinstance(code, int) else "",
        "The output was truncated." if said.get("truncated") is True else "",
        f"Full output: {full_output}" if full_output else "",
    )
    output = text_or_empty(said.get("output")) or "(no output)\n"
    fenced = f"```\n{output}{'' if output.endswith(chr(10)) else chr(10)}```"
    text = joined((f"Ran `{text_or_empty(said.get('command'))}`", fenced, *ends))
    metadata = {"type": "bash_execution"}
    return _message(value, said, {"role": "user", "content": text}, metadata=metadata)


def _custom(value: Wire, said: Wire) -> ImportedMessage:
    metadata = {"type": "custom_message", **_kept(said, {"custom_type": "customType"})}
    if said.get("display") is False:
        metadata["hidden"] = True
    wire = {"role": "user", "content": content_of(said.get("content"))}
    return _message(value, said, wire, kind="note", metadata=metadata)


def _summary(value: Wire, said: Wire, frame: str, kind: str) -> ImportedMessage | None:
    summary = text_or_empty(said.get("summary"))
    if not summary:
        return None
    metadata = {"type": kind, **_kept(said, {"from_id": "fromId"})}
    wire = {"role": "user", "content": frame.format(summary)}
    return _message(value, said, wire, kind="note", metadata=metadata)


def _kept(said: Wire, names: Mapping[str, str]) -> dict[str, Any]:
    """The texts found under pi's names, under ours."""
    return {
        ours: text for ours, theirs in names.items() if (text := text_or_empty(said.get(theirs)))
    }


_READERS: dict[str, Callable[[Wire, Wire], ImportedMessage | None]] = {
    "user": _user,
    "assistant": _assistant,
    "toolResult": _tool_result,
    "bashExecution": _bash,
    "custom": _custom,
    "hookMessage": _custom,
    "branchSummary": lambda value, said: _summary(value, said, BRANCH_SUMMARY, "branch_summary"),
    "compactionSummary": lambda value, said: _summary(
        value, said, COMPACTION_SUMMARY, "compaction_summary"
    ),
}
