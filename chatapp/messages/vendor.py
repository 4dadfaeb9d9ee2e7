"""What a server put beside an answer and wants back: kept with the row, for that server alone.

A row's `vendor`:

    {"server": who answered, "prefix": digest of what the answer answered,
     "fields": of the message, "thoughts_in": the field that its thoughts came in,
     "about": of the choice and the body, which no server takes back}

All but `server` may be missing. Own fields of calls stay in the calls. What is signed (signatures,
encrypted content) is good only behind the prompt, tools and messages that it was made behind:
`prefix` tells.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final, cast

from chatapp.messages.outgoing import WITH_THOUGHTS, WITHOUT_THOUGHTS
from chatapp.messages.wire import (
    MAX_VENDOR_CHARS,
    REASONING_ITEMS,
    VENDOR,
    WireMessage,
    is_vendor,
)

# What a message, a call, a choice and a body have that is no field of the server's own.
MESSAGE_KEYS = frozenset(
    {"role", "content", "tool_calls", "tool_call_id", "function_call", "name", "refusal"}
)
CALL_KEYS = frozenset({"id", "type", "function", "index"})
# What a choice and a body say about an answer, besides what everybody has.
ABOUT_KEYS = (
    "logprobs",
    "annotations",
    "citations",
    "search_results",
    "references",
    "grounding_metadata",
    "groundingMetadata",
    "provider",
)
IMPORTED = "an imported file"
"""Stands for the server of what a file brought: nobody takes it back."""
# Fields of a message that hold thoughts as a text; the first that holds some counts, because
# servers repeat the same thoughts in several.
THOUGHT_TEXTS = (
    "reasoning_content", "reasoning", "thinking", "reasoning_text", "thinking_content",
    "thinking_text", "reasoningContent", "reasoning_summary", "thoughts", "thought",
)  # fmt: skip
# Those that hold them as a list of parts.
THOUGHT_PARTS = ("reasoning_details", "thinking_blocks")
_THOUGHTS = frozenset({*THOUGHT_TEXTS, *THOUGHT_PARTS})
_SIGNED = re.compile(r"signature|encrypted|redacted", re.IGNORECASE)
# Pieces of these grow; of all others the newest counts.
_GROWING = frozenset({"text", "thinking", "summary", "content", "data", "reasoning", "arguments"})
MAX_FIELDS: Final = 1_000
"""Of one message: more names than any server has."""
# Nested deeper, nothing is kept: every reader of it recurses.
_DEEPEST = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFields:
    """What is stored of an answer's own fields, and the names of those that were too large."""

    vendor: dict[str, Any]
    left_out: tuple[str, ...] = ()


def server_of(name: str, base_url: str) -> str:
    """Return what tells one server's model from others: only it reads its own fields."""
    return f"{name} at {base_url}"


# --- arriving -------------------------------------------------------------------------------------


def own_fields(value: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Return the fields that are the server's own and hold something."""
    skipped = frozenset(known)
    return {
        str(key): one
        for key, one in value.items()
        if key not in skipped and one is not None and one not in ("", [], {})
    }


class GrowingFields:
    """Own fields that come in pieces; one that is too large to be kept grows no more."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._arrived: Counter[str] = Counter()

    def add(self, pieces: Mapping[str, Any]) -> None:
        """Take pieces of fields in, by their names; they are changed when more comes."""
        for name, piece in pieces.items():
            is_full = self._arrived[name] > MAX_VENDOR_CHARS
            if is_full or (name not in self.values and len(self.values) >= MAX_FIELDS):
                continue
            self.values[name] = _grown(self.values.get(name), piece, name)
            self._arrived[name] += _size(piece)
            # Of some fields every piece is the whole once more.
            if (
                self._arrived[name] > MAX_VENDOR_CHARS
                and _size(self.values[name]) <= MAX_VENDOR_CHARS
            ):
                self._arrived[name] = 0


def merged(known: Any, piece: Any, name: str = "") -> Any:
    """Return a field that came in pieces: texts and lists grow, objects are put together."""
    return _grown(deepcopy(known), deepcopy(piece), name)


def _grown(known: Any, piece: Any, name: str = "", depth: int = 0) -> Any:
    """Return what `merged` does; `known` is changed, so that a piece costs no more than itself."""
    if known is None or depth > _DEEPEST:
        return piece
    if isinstance(known, dict) and isinstance(piece, Mapping):
        for key, value in piece.items():
            if value is not None or key not in known:
                known[key] = _grown(known.get(key), value, str(key), depth + 1)
        return known
    if isinstance(known, list) and isinstance(piece, list):
        for one in piece:
            place = _place_of(one, known)
            if place is None:
                known.append(one)
            else:
                known[place] = _grown(known[place], one, "", depth + 1)
        return known
    if isinstance(known, str) and isinstance(piece, str) and name in _GROWING:
        return known + piece
    return known if piece in ("", [], {}) else piece


def _place_of(piece: Any, known: Sequence[Any]) -> int | None:
    """Return the item that a piece goes on with: the one of its number, or the unsigned last."""
    if not isinstance(piece, Mapping) or not known:
        return None
    index = piece.get("index")
    if index is not None:
        # Mostly it is the newest.
        for place in range(len(known) - 1, -1, -1):
            item = known[place]
            if isinstance(item, Mapping) and _number(item) == _number(piece):
                return place
        return None
    last = known[-1]
    grows = isinstance(last, Mapping) and bool(_GROWING & last.keys() & piece.keys())
    goes_on = grows and last.get("type") == piece.get("type") and not is_signed(last)
    return len(known) - 1 if goes_on and "thinking" in str(piece.get("type")) else None


def _number(item: Mapping[str, Any]) -> tuple[Any, Any]:
    return item.get("index"), item.get("type")


def fitting(fields: Mapping[str, Any], room: int = MAX_VENDOR_CHARS) -> dict[str, Any]:
    """Return the fields whose JSON fits, the smallest first where not all do."""
    sizes = {name: _size(value) for name, value in fields.items()}
    kept = set()
    for name in sorted(sizes, key=lambda name: sizes[name]):
        room -= sizes[name] + len(name)
        if room < 0:
            break
        kept.add(name)
    return {name: fields[name] for name in fields if name in kept}


def _size(value: Any) -> int:
    if _is_too_deep(value):
        return MAX_VENDOR_CHARS + 1
    return len(json.dumps(value, ensure_ascii=False, default=str))


def _is_too_deep(value: Any, depth: int = 0) -> bool:
    if depth > _DEEPEST:
        return True
    inside = value.values() if isinstance(value, Mapping) else value
    return isinstance(value, Mapping | list) and any(
        _is_too_deep(one, depth + 1) for one in inside if isinstance(one, Mapping | list)
    )


def kept_fields(
    fields: Mapping[str, Any],
    about: Mapping[str, Any],
    *,
    thoughts_in: str = "",
    server: str,
    prefix: str,
) -> KeptFields:
    """Return what is stored of an answer's own fields; those of the message come first."""
    kept = fitting(fields)
    room = MAX_VENDOR_CHARS - sum(_size(value) for value in kept.values())
    kept_about = fitting(about, room)
    vendor: dict[str, Any] = {"server": server, "prefix": prefix}
    vendor |= {"fields": kept} if kept else {}
    vendor |= {"thoughts_in": thoughts_in} if thoughts_in else {}
    vendor |= {"about": kept_about} if kept_about else {}
    left_out = [name for name in (*fields, *about) if name not in kept and name not in kept_about]
    return KeptFields(vendor=vendor, left_out=tuple(left_out))


def kept_of_file(about: Mapping[str, Any]) -> KeptFields:
    """Return what is stored of what a file says about an answer, besides its message."""
    kept = fitting(about)
    vendor = {"server": IMPORTED, "about": kept} if kept else {}
    return KeptFields(vendor=vendor, left_out=tuple(name for name in about if name not in kept))


def without_imported(wire: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message as it tells conversations apart: without what a file says about it."""
    vendor = wire.get(VENDOR)
    if not is_vendor(vendor) or vendor["server"] != IMPORTED:
        return wire
    return {key: value for key, value in wire.items() if key != VENDOR}


def is_signed(value: Any, depth: int = 0) -> bool:
    """Whether a field holds a signature or encrypted content anywhere in it."""
    if depth > _DEEPEST:
        return True
    if isinstance(value, list):
        return any(is_signed(one, depth + 1) for one in value)
    if not isinstance(value, Mapping):
        return False
    kind = value.get("type")
    return (isinstance(kind, str) and bool(_SIGNED.search(kind))) or any(
        (bool(one) and bool(_SIGNED.search(str(name)))) or is_signed(one, depth + 1)
        for name, one in value.items()
    )


# --- going out ------------------------------------------------------------------------------------


def for_server(
    message: WireMessage, server: str, *, prefix: str = "", in_tool_loop: bool = False
) -> WireMessage:
    """Return a message as one server takes it: its own fields in their places, no `vendor`.

    `prefix` is the digest of everything before it (prefix_digest): what is signed goes out only
    behind the one it was made behind. Thoughts go back inside a running tool loop. An answer of
    another server keeps nothing that was not in chat form; one that a client brought stays as it
    is.
    """
    bare = cast(WireMessage, {key: value for key, value in message.items() if key != VENDOR})
    vendor: Any = message.get(VENDOR)
    if not is_vendor(vendor):
        return bare
    is_own = bool(server) and vendor["server"] == server
    holds = is_own and bool(prefix) and vendor.get("prefix") == prefix
    if calls := message.get("tool_calls"):
        bare["tool_calls"] = [_call_for(call, is_own=is_own, holds=holds) for call in calls]
    if not holds:
        bare.pop(REASONING_ITEMS, None)
    if not is_own:
        return bare
    added = {}
    if in_tool_loop and calls and vendor.get("thoughts_in") and vendor.get("thoughts"):
        added[str(vendor["thoughts_in"])] = vendor["thoughts"]
    for name, value in _fields_of(vendor).items():
        may = in_tool_loop or name not in _THOUGHTS
        if may and name not in MESSAGE_KEYS and (holds or not _is_signed_field(name, value)):
            added[name] = value
    return cast(WireMessage, {**added, **bare})


def _fields_of(vendor: Mapping[str, Any]) -> Mapping[str, Any]:
    fields = vendor.get("fields")
    return fields if isinstance(fields, Mapping) else {}


def _is_signed_field(name: str, value: Any) -> bool:
    return is_signed({name: value})


def _call_for(call: Any, *, is_own: bool, holds: bool) -> Any:
    return {
        key: value
        for key, value in call.items()
        if key in CALL_KEYS or (is_own and (holds or not _is_signed_field(key, value)))
    }


def for_server_all(
    messages: Sequence[WireMessage],
    tools: Sequence[Any],
    server: str,
    codes: Collection[str] = frozenset(),
) -> list[WireMessage]:
    """Return a request's messages as one server takes them; see for_server.

    `codes` are those of the outgoing form (outgoing.py), which is made of what this returns: the
    same messages in another form are another prefix. No server (`""`) leaves every server's own
    fields out.
    """
    if not any(VENDOR in message for message in messages):
        return list(messages)
    return _walk(messages, tools, server, codes)[0]


def prefix_digest(
    messages: Sequence[WireMessage],
    tools: Sequence[Any],
    server: str,
    codes: Collection[str] = frozenset(),
) -> str:
    """Return what tells the prompt, the tools and the messages of one request from any other's.

    It is what for_server_all compares with, for the same arguments.
    """
    return _walk(messages, tools, server, codes)[1]


def _walk(
    messages: Sequence[WireMessage], tools: Sequence[Any], server: str, codes: Collection[str]
) -> tuple[list[WireMessage], str]:
    """Return the messages as they go to a server, and the digest of all of them."""
    if WITHOUT_THOUGHTS in codes:
        server = ""
    # A code with a colon names a parameter of the request, no form of its messages.
    form = sorted(code for code in codes if ":" not in code)
    before = hashlib.sha256(_bytes([list(tools), form]))
    loop_from = max((n for n, one in enumerate(messages) if one["role"] == "user"), default=-1)
    sent: list[WireMessage] = []
    for number, message in enumerate(messages):
        prefix = before.hexdigest() if VENDOR in message else ""
        in_loop = number > loop_from or WITH_THOUGHTS in codes
        sent.append(for_server(message, server, prefix=prefix, in_tool_loop=in_loop))
        before.update(_bytes(sent[-1]))
    return sent, before.hexdigest()


def _bytes(value: Any) -> bytes:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return text.encode("utf-8", "surrogatepass") + b"\n"
