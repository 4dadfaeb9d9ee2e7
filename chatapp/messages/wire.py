"""Messages as they travel: what a client may post, what is stored, and the text of any content."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, Required, TypedDict, TypeGuard

from chatapp.messages.inline_files import without_inline_files
from chatapp.messages.parts import KEPT_APART

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_ROLES = {"developer": "system", "function": "tool"}
# The key of `metadata` that says how many characters were replaced.
REPLACED = "replaced_characters"
# In `metadata` of a row in a replayed branch: the message it repeats.
REPLAY_OF = "replay_of"
# In `metadata` of a tool result that was cut: how many characters it had.
CUT_FROM = "cut_from"
# In `metadata` of an answer, and in its wire form for the Responses API: the server's reasoning.
REASONING_ITEMS: Final = "reasoning_items"
# In `metadata` of an answer: the model that was asked, where the server named another, or none.
ASKED_MODEL: Final = "asked_model"
# In `metadata` of an answer: its server told the tokens of what it read anew, not of all.
NEW_PART_ONLY: Final = "usage_of_new_part"
# In `metadata` of an answer: its server told so many tokens that nobody believes it.
DOUBTED_USAGE: Final = "usage_doubted"
# In `metadata` of an answer: what its request was made of, in the context backend's word
# (chatapp.context.assembly.Context.mark).
REQUEST_MARK: Final = "request_mark"
# In `metadata` of an answer: what of the conversation its request went without, {messages, first,
# last, tokens, why}, and what happened in its turn (chatapp/turns/events.py).
LEFT_OUT: Final = "left_out"
EVENTS: Final = "events"
# A column of an answer, and the key of it in its wire form: what its server alone takes back
# (chatapp/messages/vendor.py). No wire sends the key.
VENDOR: Final = "vendor"
MAX_VENDOR_CHARS: Final = 64 * 1024
"""The most JSON that is kept of an answer's own fields, and of those of its calls."""
# In `metadata`: the names of own fields that were not kept.
VENDOR_LEFT_OUT: Final = "vendor_left_out"
# In a stored vendor: the field that thoughts go back in; in the wire form, the thoughts beside it.
_THOUGHTS_IN, _THOUGHTS = "thoughts_in", "thoughts"
# Deeper JSON is refused: nobody writes it by hand, and every reader of it recurses.
MAX_DEPTH = 100
_KNOWN = {
    "role",
    "content",
    "tool_calls",
    "tool_call_id",
    "name",
    "reasoning_content",
    "refusal",
    "function_call",
}
# In a stored part: how many characters of `content` are its text.
_TEXT_LENGTH = "chars"


class InvalidMessageError(ValueError):
    """The message cannot be stored; the text says which part and why."""


class Cleaner:
    """Replaces what no database stores, and counts how often it did."""

    def __init__(self, *, replaced: int = 0) -> None:
        self.replaced = replaced

    def text(self, value: str) -> str:
        """Return `value` without NUL and lone surrogates."""
        cleaned, count = _UNSTORABLE.subn("\ufffd", value)
        self.replaced += count
        return cleaned

    def json(self, value: Any, depth: int = 0) -> Any:
        """Return `value` with every string in it cleaned, keys included; NaN becomes null.

        Raises InvalidMessageError for lists and objects that are nested deeper than MAX_DEPTH.
        """
        if depth > MAX_DEPTH:
            raise InvalidMessageError(f"It is nested deeper than {MAX_DEPTH} levels.")
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(k)): self.json(item, depth + 1) for k, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.json(item, depth + 1) for item in value]
        if isinstance(value, float) and not math.isfinite(value):
            return None
        return value


def fields_of(wire: Mapping[str, Any], *, is_stored: bool = False) -> dict[str, Any]:
    """Return the columns of a wire message, cleaned.

    `is_stored`: the message is one of ours, whose parts may name the files that they are kept in.
    Raises InvalidMessageError for what has no place in a transcript: an unknown role, content that
    is neither text, null nor a list of parts, calls that are not a list of objects.
    """
    cleaner = Cleaner()
    role = wire.get("role")
    if role not in ("system", "user", "assistant", "tool", *_ROLES):
        raise InvalidMessageError(
            f"role: {role!r} is none of system, developer, user, assistant, tool."
        )
    content, parts = _content(wire.get("content"), cleaner, () if is_stored else (KEPT_APART,))
    calls = _calls(wire, cleaner)
    if calls and role != "assistant":
        raise InvalidMessageError("tool_calls: only an assistant's message can have them.")
    metadata = _metadata(wire, cleaner)
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
        "vendor": _vendor(wire, cleaner),
    }
    if cleaner.replaced:
        metadata[REPLACED] = cleaner.replaced
    fields["metadata"] = metadata
    return fields


def _metadata(wire: Mapping[str, Any], cleaner: Cleaner) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    if wire["role"] == "developer":
        metadata["wire_role"] = "developer"
    if refusal := _string(wire, "refusal"):
        metadata["refusal"] = cleaner.text(refusal)
    extra = {k: v for k, v in wire.items() if k not in _KNOWN and v is not None}
    if is_vendor(wire.get(VENDOR)):
        del extra[VENDOR]  # it has a column
    if extra:
        metadata["extra"] = cleaner.json(extra)
    return metadata


def is_vendor(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """Whether a value is an answer's `vendor`: it names the server."""
    return isinstance(value, Mapping) and isinstance(value.get("server"), str)


def _vendor(wire: Mapping[str, Any], cleaner: Cleaner) -> dict[str, Any] | None:
    vendor = wire.get(VENDOR)
    if not is_vendor(vendor):
        return None
    kept: dict[str, Any] = cleaner.json({k: v for k, v in vendor.items() if k != _THOUGHTS})
    too_long = len(json.dumps(kept, ensure_ascii=False)) > 2 * MAX_VENDOR_CHARS
    return None if too_long else kept


def _string(wire: Mapping[str, Any], key: str) -> str:
    value = wire.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidMessageError(f"{key}: must be a text, not {type(value).__name__}.")
    return value


def _content(
    value: Any, cleaner: Cleaner, own_keys: Sequence[str]
) -> tuple[str | None, list[dict[str, Any]] | None]:
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
        if own := next((key for key in (_TEXT_LENGTH, *own_keys) if key in part), None):
            raise InvalidMessageError(f"content[{number}]: has a key that no part has, `{own}`.")
        cleaned = cleaner.json(part)
        if isinstance(cleaned.get("text"), str):
            # The text moves to `content`; its length in characters finds it again.
            texts.append(cleaned.pop("text"))
            cleaned[_TEXT_LENGTH] = len(texts[-1])
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


def check_size(fields: Mapping[str, Any], *, most_chars: int, most_part_chars: int) -> None:
    """Raise InvalidMessageError where a message's columns hold more characters than they may.

    Names, ids and fields that nobody knows count like text; the parts' JSON is counted apart.
    """
    texts = (fields[name] for name in ("content", "reasoning", "tool_call_id", "tool_name"))
    structured = (fields["tool_calls"], fields["metadata"])
    chars = sum(len(text) for text in texts if text) + sum(map(_json_size, structured))
    if chars > most_chars:
        raise InvalidMessageError(
            f"Has {chars:,} characters; {most_chars:,} are allowed (MAX_MESSAGE_CHARS)."
        )
    if (chars := _json_size(fields["parts"])) > most_part_chars:
        raise InvalidMessageError(
            f"content: its parts have {chars:,} characters beside their text; {most_part_chars:,} "
            "are allowed (MAX_PART_CHARS)."
        )


def _json_size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False)) if value else 0


def has_parts_besides_text(fields: Mapping[str, Any]) -> bool:
    """Whether a message's columns hold an image or another part that is no text."""
    return any(_TEXT_LENGTH not in part for part in fields["parts"] or ())


def text_of(content: Any) -> str:
    """Return the text in a wire message's content: a text, null, or a list of parts."""
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


# Letters and signs that show nothing: fillers of Hangul, Braille's blank.
_BLANK_SIGNS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
_BLANK_CATEGORIES = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs"})


def is_blank(text: str | None) -> bool:
    """Whether a text shows nothing: none, spaces, line feeds, characters without a width."""
    return not text or all(
        unicodedata.category(char) in _BLANK_CATEGORIES or char in _BLANK_SIGNS for char in text
    )


class WireMessage(TypedDict, total=False):
    """A message as OpenAI's Chat Completions take it: what passes between the apps and to models.

    `reasoning_items` never goes on the chat wire; the Responses API gets them back. `vendor` goes
    on no wire: chatapp/messages/vendor.py puts what it holds in its place.
    """

    role: Required[str]
    content: Any
    tool_calls: Any
    tool_call_id: str
    name: str
    refusal: str
    reasoning_items: Any
    vendor: Any


class StoredMessage(Protocol):
    """The columns of a stored message that its wire form is made of."""

    role: str
    content: str | None
    parts: Any
    tool_calls: Any
    tool_call_id: str
    tool_name: str
    reasoning: str
    metadata: dict[str, Any]
    vendor: Any


def content_of(message: StoredMessage) -> str | list[dict[str, Any]] | None:
    """Return the content as the client sent it: text, null, or its list of parts.

    Parts that are kept apart are still without their data: chatapp.part_store makes them whole.
    """
    if message.parts is None:
        return message.content
    text, start, parts = message.content or "", 0, []
    for part in message.parts:
        if _TEXT_LENGTH in part:
            end = start + part[_TEXT_LENGTH]
            rest = {k: v for k, v in part.items() if k not in (_TEXT_LENGTH, "type")}
            parts.append({"type": part["type"], "text": text[start:end], **rest})
            start = end
        else:
            parts.append(dict(part))
    return parts


def to_wire(message: StoredMessage) -> WireMessage:
    """Return the row as an OpenAI chat message; keys a model has no use for are left out."""
    wire: WireMessage = {
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
    if message.vendor:
        wire["vendor"] = message.vendor
        if message.vendor.get(_THOUGHTS_IN) and message.reasoning:
            wire["vendor"] = {**message.vendor, _THOUGHTS: message.reasoning}
    return wire


def chars_of(message: StoredMessage) -> int:
    """Return the characters (code points) of a message: its texts, its calls' names and arguments.

    Thoughts, images and files have none; a file inside a tool's text has those of its placeholder.
    """
    calls = [call["function"] for call in message.tool_calls or ()]
    called = sum(len(call["name"]) + len(without_inline_files(call["arguments"])) for call in calls)
    if message.role != "tool":
        return len(message.content or "") + called
    return sum(len(without_inline_files(text)) for text in texts_of(content_of(message))) + called


def as_sent(message: WireMessage) -> WireMessage:
    """Return a stored message with placeholders for the files in what tools said and are given.

    What people and models said stays as it is. The very same message where there is no such file.
    """
    changed: WireMessage = message
    if message["role"] == "tool":
        texts = texts_of(message.get("content"))
        told = [without_inline_files(text) for text in texts]
        if told != texts:
            changed = {**changed, "content": with_texts(message.get("content"), told)}
    if calls := message.get("tool_calls"):
        told_calls = [_call_as_sent(call) for call in calls]
        if told_calls != calls:
            changed = {**changed, "tool_calls": told_calls}
    return changed


def _call_as_sent(call: Any) -> Any:
    arguments = call["function"]["arguments"]
    told = without_inline_files(arguments)
    return (
        call if told is arguments else call | {"function": call["function"] | {"arguments": told}}
    )


def texts_of(content: Any) -> list[str]:
    """Return the texts of a content in order: of a text itself, or of each part that has one."""
    if isinstance(content, str):
        return [content]
    if isinstance(content, list):
        return [part["text"] for part in content if _has_text(part)]
    return []


def with_texts(content: Any, texts: Sequence[str]) -> Any:
    """Return the content with these texts in the places of its own; images and the rest stay."""
    if isinstance(content, str):
        return texts[0]
    left = iter(texts)
    return [{**part, "text": next(left)} if _has_text(part) else part for part in content]


def is_image(part: Any) -> bool:
    """Whether a part of a content holds an image or a file."""
    return isinstance(part, Mapping) and not _has_text(part)


def _has_text(part: Any) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("text"), str)
