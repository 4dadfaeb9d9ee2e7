"""One OpenAI chat message: what is sound in it is kept as it stands, unknown keys are dropped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from chatapp.formats.reading import DamagedError, Wire, joined, shown, text_or_empty, tool_call
from chatapp.messages.vendor import CALL_KEYS, MESSAGE_KEYS, kept_of_file, own_fields
from chatapp.messages.wire import VENDOR, is_vendor

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})

SPEAKING_ROLES = frozenset({"system", "developer", "user"})
"""Roles whose messages are nothing without content."""

THOUGHTS = frozenset({"thinking", "redacted_thinking", "reasoning"})
"""Content parts that are reasoning: kept beside the message, never in what is sent."""

FOREIGN_PARTS = frozenset({"tool_use", "tool_result"})
"""Content parts that show the messages to be Anthropic's, which have the same roles."""

_KNOWN_KEYS = frozenset(
    {
        *MESSAGE_KEYS,
        *("reasoning", "reasoning_content", "reasoning_details", "audio", "finish_reason"),
        *("id", "object", "type", "status", "index", "created_at", "created", "timestamp", VENDOR),
    }
)
"""What is read of an answer elsewhere, and what says nothing about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedMessage:
    """A message in its wire form, its reasoning, and what had to be mended in it."""

    wire: Wire
    reasoning: str = ""
    left_out: tuple[str, ...] = ()
    mended: list[str] = field(default_factory=list)


def is_message(value: Any) -> bool:
    """Whether a value is an OpenAI chat message by its role and has no foreign parts."""
    if not isinstance(value, dict):
        return False
    role = value.get("role")
    return isinstance(role, str) and role in ROLES and not is_foreign(value)


def is_foreign(value: Any) -> bool:
    """Whether a value is a message in Anthropic's form: its calls and results are content parts."""
    content = value.get("content") if isinstance(value, dict) else None
    if not isinstance(content, list):
        return False
    kinds = (part.get("type") for part in content if isinstance(part, dict))
    return any(isinstance(kind, str) and kind in FOREIGN_PARTS for kind in kinds)


def check_message(value: Any, *, beside: Wire | None = None) -> CheckedMessage:
    """The message in its wire form; raises DamagedError when it cannot be used at all.

    What a file says about an answer (citations, annotations, own fields of calls) goes into its
    `vendor`; `beside` is what stands around the message.
    """
    if not isinstance(value, dict):
        raise DamagedError(f"it is not an object but {shown(value)}")
    role = value.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise DamagedError(f"its role is {shown(role)}")
    if is_foreign(value):
        raise DamagedError("its calls or results are in the form of another interface")
    mended: list[str] = []
    content, thoughts = _without_thoughts(_said(value))
    wire: Wire = {"role": role, "content": _content(content, mended)}
    wire.update(_named(value, role))
    left_out: tuple[str, ...] = ()
    if role == "assistant":
        wire.update(_asked(value, mended))
        if VENDOR not in wire:
            about = kept_of_file({**(beside or {}), **_told_about(value)})
            wire |= {VENDOR: about.vendor} if about.vendor else {}
            left_out = about.left_out
    _require_substance(wire, mended)
    stated = value.get("reasoning_content") or value.get("reasoning")
    reasoning = text_or_empty(stated) or joined(thoughts) or _detailed(value)
    return CheckedMessage(wire=wire, reasoning=reasoning, left_out=left_out, mended=mended)


def _told_about(value: Wire) -> Wire:
    """Return an answer's own fields, and those of its calls by their ids."""
    about = own_fields(value, _KNOWN_KEYS)
    calls = value.get("tool_calls")
    of_calls = [
        {"id": call.get("id"), **own}
        for call in (calls if isinstance(calls, list) else [])
        if isinstance(call, dict) and (own := own_fields(call, {*CALL_KEYS, "custom"}))
    ]
    return about | ({"tool_calls": of_calls} if of_calls else {})


def _said(value: Wire) -> Any:
    """Return a message's content; of a recording alone, what is said in it."""
    audio = value.get("audio")
    if value.get("content") is None and isinstance(audio, dict):
        return audio.get("transcript") or None
    return value.get("content")


def _detailed(value: Wire) -> str:
    """Return the reasoning that stands in parts beside the content, as far as it is text."""
    details = value.get("reasoning_details")
    parts = (
        [part for part in details if isinstance(part, dict)] if isinstance(details, list) else []
    )
    return joined(text_or_empty(part.get("text") or part.get("summary")) for part in parts)


def _without_thoughts(content: Any) -> tuple[Any, list[str]]:
    """Return a content without its reasoning, and the texts of that."""
    if not isinstance(content, list):
        return content, []
    parts = [part for part in content if not _is_thought(part)]
    thoughts = [_thought(part) for part in content if _is_thought(part)]
    return (parts or "") if thoughts else content, thoughts


def _is_thought(part: Any) -> bool:
    kind = part.get("type") if isinstance(part, dict) else None
    return isinstance(kind, str) and kind in THOUGHTS


def _thought(part: Wire) -> str:
    """Return the text of a thought, which some interfaces give as a list of chunks."""
    found = part.get("thinking") or part.get("reasoning") or part.get("text")
    chunks = found if isinstance(found, list) else [found]
    texts = (chunk.get("text") if isinstance(chunk, dict) else chunk for chunk in chunks)
    return joined(text_or_empty(text) for text in texts)


def _named(value: Wire, role: str) -> Wire:
    kept: Wire = {}
    if isinstance(value.get("name"), str):
        kept["name"] = value["name"]
    if role == "tool":
        kept["tool_call_id"] = text_or_empty(value.get("tool_call_id"))
    return kept


def _asked(value: Wire, mended: list[str]) -> Wire:
    kept: Wire = {}
    own = is_vendor(value.get(VENDOR))
    calls = _calls(value.get("tool_calls"), mended, keep_own=own)
    if own:  # an export of ours: it says who may have the fields that are nobody else's
        kept[VENDOR] = value[VENDOR]
    if calls:
        kept["tool_calls"] = calls
    if value.get("function_call") is not None:
        try:
            kept["function_call"] = _function(value["function_call"])
        except DamagedError as error:
            mended.append(f"its function call was left out: {error}")
    if isinstance(value.get("refusal"), str):
        kept["refusal"] = value["refusal"]
    return kept


def _calls(value: Any, mended: list[str], *, keep_own: bool) -> list[Wire]:
    if value is None:
        return []
    if not isinstance(value, list):
        mended.append(f"its tool calls were left out: they are no list but {shown(value)}")
        return []
    calls = []
    for number, call in enumerate(value, start=1):
        try:
            found = _call(call)
            calls.append(own_fields(call, CALL_KEYS) | found if keep_own else found)
        except DamagedError as error:
            mended.append(f"its tool call {number} was left out: {error}")
    return calls


def _call(value: Any) -> Wire:
    if not isinstance(value, dict):
        raise DamagedError(f"it is not an object but {shown(value)}")
    custom = value.get("custom")
    if isinstance(custom, dict):  # a custom tool's free text is what arguments are to a function
        name, arguments = custom.get("name"), custom.get("input")
        return tool_call(call_id=value.get("id"), name=name, arguments=arguments)
    return tool_call(call_id=value.get("id"), **_function(value.get("function")))


def _function(value: Any) -> Wire:
    if not isinstance(value, dict):
        raise DamagedError("it has no function")
    call = tool_call(call_id="", name=value.get("name"), arguments=value.get("arguments"))
    return dict(call["function"])


def _content(value: Any, mended: list[str]) -> str | list[Wire] | None:
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise DamagedError(f"its content is neither text nor a list of parts but {shown(value)}")
    parts = []
    for number, part in enumerate(value, start=1):
        if isinstance(part, str):
            parts.append({"type": "text", "text": part})
        elif isinstance(part, dict) and isinstance(part.get("type"), str):
            parts.append(part)
        else:
            mended.append(f"part {number} of its content was left out: it has no type")
    return parts


def _require_substance(wire: Wire, mended: list[str]) -> None:
    if wire["content"] == [] and mended:
        wire["content"] = None
    if wire["content"] is not None:
        return
    calls = "tool_calls" in wire or "function_call" in wire or "refusal" in wire
    if wire["role"] in SPEAKING_ROLES or (wire["role"] == "assistant" and not calls):
        lacking = "content" if wire["role"] in SPEAKING_ROLES else "content and no call"
        raise DamagedError("; ".join([f"it has no {lacking}", *mended]))
