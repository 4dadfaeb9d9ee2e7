"""Tool calls as they come in a stream: in pieces that may lack what tells them apart."""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from chatapp.llm.growing_text import GrowingJson, is_json
from chatapp.messages.patterns import lazy_pattern
from chatapp.messages.vendor import CALL_KEYS, GrowingFields, fitting, own_fields
from chatapp.messages.wire import MAX_VENDOR_CHARS

MAX_NAME_CHARS: Final = 1_000
"""Of a call's name that comes in pieces; no server takes a longer one than 128."""

_DECODER = json.JSONDecoder()
_BLANKS = lazy_pattern(r"\s*")


@dataclass(slots=True, kw_only=True)
class StreamedCall:
    """One call, as far as it has come."""

    number: int
    id: str = ""
    name: str = ""
    arguments: GrowingJson = field(default_factory=GrowingJson)
    own: GrowingFields = field(default_factory=GrowingFields)
    has_index: bool = False


class CallPieces:
    """Puts tool calls together from pieces that may lack an index, an id or a name.

    A piece belongs to the call of its index; without one, to the call of its id; without either,
    to the last one. Empty strings mean: as before.
    """

    def __init__(self) -> None:
        self._calls: list[StreamedCall] = []
        self._by_index: dict[str, StreamedCall] = {}
        self._by_id: defaultdict[str, list[StreamedCall]] = defaultdict(list)
        self.characters = 0
        """How long the arguments of all of them are."""

    def __len__(self) -> int:
        """Return how many calls there are."""
        return len(self._calls)

    def add(self, piece: dict[str, Any]) -> StreamedCall:
        """Take one piece in; return the call it belongs to, as far as it is known."""
        function = piece.get("function") or {}
        call = self._find(piece)
        if not call.id and piece.get("id"):
            call.id = str(piece["id"])
            self._by_id[call.id].append(call)
        name, arguments = str(function.get("name") or ""), arguments_in(function)
        # A name may come in pieces; one that comes with an id is whole.
        if not call.name or not (piece.get("id") or call.arguments or name == call.name):
            call.name = (call.name + name)[:MAX_NAME_CHARS]
        # Some servers say all of them once more at the end.
        is_again = len(arguments) == len(call.arguments) and arguments == str(call.arguments)
        if not (is_again and is_json(arguments)):
            call.arguments.add(arguments)
        call.own.add(own_fields(piece, CALL_KEYS))
        self.characters += len(arguments)
        return call

    def _find(self, piece: dict[str, Any]) -> StreamedCall:
        index, call_id = _key_of(piece.get("index")), str(piece.get("id") or "")
        known = self._by_index.get(index) if index is not None else None
        if known is not None and not _starts_another(known, piece):
            return known
        same: list[StreamedCall] = []
        if index is None:
            same = self._by_id.get(call_id, []) if call_id else self._calls
        elif known is None and call_id:
            # The same call in two forms, of which one has no index.
            same = [one for one in self._by_id.get(call_id, ()) if not one.has_index]
        if same and not _starts_another(same[-1], piece):
            return self._numbered(same[-1], index)
        self._calls.append(StreamedCall(number=len(self._calls)))
        return self._numbered(self._calls[-1], index)

    def _numbered(self, call: StreamedCall, index: str | None) -> StreamedCall:
        if index is not None:
            call.has_index = True
            self._by_index[index] = call
        return call

    def finished(self, *, is_cut: bool = False) -> tuple[dict[str, Any], ...]:
        """Return the calls in OpenAI form; a missing id is made up once, here.

        Of an answer that was cut at its length, the call that it was cut in is none.
        """
        room = MAX_VENDOR_CHARS // max(1, len(self._calls))
        calls = [
            {
                "id": call.id or f"call_{uuid.uuid4().hex[:24]}",
                "type": "function",
                "function": {"name": call.name, "arguments": _one_object(str(call.arguments))},
                **fitting(call.own.values, room),
            }
            for call in self._calls
            if call.name or call.arguments
        ]
        return tuple(whole_calls(calls) if is_cut else calls)

    def left_out(self) -> list[str]:
        """Return the names of own fields that were too large to be kept."""
        room = MAX_VENDOR_CHARS // max(1, len(self._calls))
        return [
            name
            for call in self._calls
            for name in call.own.values.keys() - fitting(call.own.values, room).keys()
        ]

    def has_half_a_call(self) -> bool:
        """Whether the arguments of a call break off."""
        found = (_one_object(str(call.arguments)) for call in self._calls)
        return any(not is_json(arguments) for arguments in found if arguments)


def whole_calls(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the calls without the last one, where its arguments break off."""
    is_half = bool(calls) and not is_json(calls[-1]["function"]["arguments"])
    return calls[:-1] if is_half else calls


def _starts_another(call: StreamedCall, piece: dict[str, Any]) -> bool:
    """Whether a piece that seems to go on with a call is a further one.

    Some servers number every call 0, or give all of them one id or none: then a name behind whole
    arguments tells.
    """
    function = piece.get("function") or {}
    call_id, name = piece.get("id"), function.get("name")
    if not name or not call.name:
        return False
    if call_id and call.id and call_id != call.id:
        return True
    has_new = name != call.name or (not call_id and piece.get("index") is None)
    return has_new and bool(arguments_in(function)) and call.arguments.is_whole


def _one_object(arguments: str) -> str:
    """Return the arguments of a call that were said several times in a row, once.

    Some servers open a call with `{}` and send the real arguments behind it; some say the whole
    once more in another spelling. Of two objects that differ nothing tells which is meant: all
    stays as it came.
    """
    objects: dict[str, str] = {}
    place = _end_of_blanks(arguments, 0)
    try:
        while place < len(arguments):
            value, end = _DECODER.raw_decode(arguments, place)
            if not isinstance(value, dict):
                return arguments
            objects.setdefault(json.dumps(value, sort_keys=True), arguments[place:end])
            place = _end_of_blanks(arguments, end)
    except (ValueError, RecursionError):
        return arguments
    told = [text for said, text in objects.items() if said != "{}"] or list(objects.values())
    return told[0] if len(told) == 1 else arguments


def _end_of_blanks(text: str, start: int) -> int:
    found = _BLANKS.match(text, start)
    return found.end() if found else start


def _key_of(index: Any) -> str | None:
    """Return what tells a call's number from others: a number, or whatever a server sends."""
    return None if index is None else str(index)


def arguments_in(function: Mapping[str, Any]) -> str:
    """Return the arguments of a call, or of a piece of one, as a text: some send an object."""
    arguments = function.get("arguments") or ""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False)
