"""The output of a response, put together from its events: texts, calls, reasoning.

Servers leave out ids, numbers, pieces or ends of items. An item may be told four times (announced,
in pieces, as done, in the finished response) or once; whatever came is used and nothing twice.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chatapp.llm.answer_shapes import listed
from chatapp.llm.call_pieces import whole_calls
from chatapp.llm.growing_text import GrowingText
from chatapp.llm.requests import OnEvent
from chatapp.llm.response_parts import (
    DIGEST,
    END,
    REFUSAL,
    TEXT,
    THOUGHTS,
    WHOLE_PART,
    PartTexts,
    kind_of,
)
from chatapp.llm.streams import splitter_for
from chatapp.messages.vendor import fitting, own_fields
from chatapp.messages.wire import MAX_VENDOR_CHARS, text_of

_BETWEEN_ITEMS = "\n\n"
_MESSAGE, _CALL, _REASONING = "message", "function_call", "reasoning"
_REFUSAL = "refusal"
_KINDS = (_MESSAGE, _CALL, _REASONING)
_CALL_KEYS = ("type", "id", "call_id", "name", "arguments", "status")
_OF_PARTS = ("annotations", "logprobs")
_ITEM_OF = {TEXT: _MESSAGE, REFUSAL: _MESSAGE, THOUGHTS: _REASONING, DIGEST: _REASONING}
_PIECE = "piece"
# Of the events of parts: what they are of, and which way they tell it.
_PARTS: dict[str, tuple[str, str]] = {
    f"response.{name}.{end}": (of, way)
    for name, of in (
        ("output_text", TEXT),
        ("refusal", REFUSAL),
        ("reasoning", THOUGHTS),
        ("reasoning_text", THOUGHTS),
        ("reasoning_summary", DIGEST),
        ("reasoning_summary_text", DIGEST),
    )
    for end, way in (("delta", _PIECE), ("done", END))
} | {
    "response.content_part.done": (TEXT, WHOLE_PART),
    "response.reasoning_summary_part.done": (DIGEST, WHOLE_PART),
}


@dataclass(slots=True, kw_only=True, eq=False)
class _Item:
    """One item of the answer, as far as it is known."""

    kind: str
    item_id: str = ""
    call_id: str = ""
    index: int | None = None
    announced: bool = False
    filled: bool = False  # no more pieces follow
    whole: dict[str, Any] | None = None
    # Of a message, or the arguments of a call.
    text: GrowingText = field(default_factory=GrowingText)
    offered: str = ""  # arguments that came with the announcement
    refusal: GrowingText = field(default_factory=GrowingText)
    name: str = ""
    thoughts: GrowingText = field(default_factory=GrowingText)
    # The summary of the thoughts.
    digest: GrowingText = field(default_factory=GrowingText)
    parts: PartTexts | None = None  # of one that has such
    place: int = 0  # among all items
    number: int = 0  # among those of its kind


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clue:
    """What an event says about which item it belongs to. `step`: announced, piece, filled, done."""

    step: str
    item_id: str = ""
    call_id: str = ""
    index: int | None = None

    @property
    def ids(self) -> tuple[tuple[str, str], ...]:
        """The ids that the event has, each with the word for whose it is."""
        return ("item", self.item_id), ("call", self.call_id)

    def fits(self, item: _Item) -> bool:
        """Whether nothing the event says speaks against this item."""
        if item.whole is not None or (self.step in ("piece", "filled") and item.filled):
            return False
        if self.call_id and item.call_id and self.call_id != item.call_id:
            return False
        other_id = bool(self.item_id and item.item_id and self.item_id != item.item_id)
        same_index = self.index is not None and self.index == item.index
        if self.step == "announced":
            return same_index and not other_id
        if self.index is not None and item.index is not None:
            # Some servers number every item 0; others change the id of an item they announced.
            return same_index and (not other_id or item.announced)
        return not other_id


class Output:
    """Takes events in and tells `on_event` what is new for those who watch: texts and calls."""

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._splitter = splitter_for(on_event)
        self._items: list[_Item] = []
        self._by_kind: dict[str, list[_Item]] = {kind: [] for kind in _KINDS}
        # Those whose end has not come, by their places: no event belongs to another one.
        self._open: dict[str, dict[int, _Item]] = {kind: {} for kind in _KINDS}
        self._open_at: defaultdict[tuple[str, int | None], dict[int, _Item]] = defaultdict(dict)
        # The first one of each kind and id.
        self._by_id: dict[tuple[str, str, str], _Item] = {}
        self._others: list[dict[str, Any]] = []
        self._lengths: Counter[str] = Counter()
        self._most_parts = 0

    @property
    def characters(self) -> int:
        """How long its text, its thoughts or its calls have become, whichever is longest."""
        return max(self._lengths.values(), default=0)

    @property
    def items(self) -> int:
        """How many messages, calls and thoughts it has, or parts of one of them."""
        return max(len(self._items), self._most_parts)

    def take(self, kind: str, event: Mapping[str, Any]) -> None:
        """Take one event in; those of unknown kinds are passed over."""
        item = event.get("item")
        if kind in ("response.output_item.added", "response.output_item.done"):
            if isinstance(item, Mapping) and item.get("type") in _KINDS:
                self._take_item(item, event, done=kind.endswith("done"))
        elif kind in _PARTS:
            self._take_part(*_PARTS[kind], event)
        elif kind == "response.function_call_arguments.delta":
            self._argue(self._find(_CALL, event, "piece"), _arguments(event.get("delta")))
        elif kind == "response.function_call_arguments.done":
            self._fill(event)
        elif kind == "response.reasoning_summary_part.added":
            thoughts = self._find(_REASONING, event, "piece")
            if thoughts.digest:
                thoughts.digest.add(_BETWEEN_ITEMS)

    def _take_part(self, of: str, way: str, event: Mapping[str, Any]) -> None:
        """Take a piece of a part in, or what its end says besides."""
        part = event.get("part")
        if way == WHOLE_PART:
            if not isinstance(part, Mapping):
                return
            of = kind_of(part)
        is_piece = way == _PIECE
        item = self._find(_ITEM_OF[of], event, "piece" if is_piece else "done")
        item.parts = parts = item.parts or PartTexts()
        number = event.get("summary_index" if of == DIGEST else "content_index")
        if is_piece:
            text = _delta(event)
            parts.take(of, number, text)
        else:
            told: Mapping[str, Any] = part if isinstance(part, Mapping) else event
            whole = text_of(told.get("refusal" if of == REFUSAL else "text"))
            text = parts.rest_of(of, number, whole, way=way)
        self._most_parts = max(self._most_parts, len(parts))
        self._tell(item, of, text)

    def _tell(self, item: _Item, of: str, text: str) -> None:
        if of == TEXT:
            self._say(item, text)
        elif of == REFUSAL:
            self._refuse(item, text)
        elif text:
            self._lengths[_REASONING] += len(text)
            (item.digest if of == DIGEST else item.thoughts).add(text)
            self._on_event("reasoning", {"text": text})

    def _find(self, kind: str, event: Mapping[str, Any], step: str) -> _Item:
        """Return the item that an event belongs to; a new one where it fits none."""
        item = event.get("item")
        inside = item if isinstance(item, Mapping) else {}
        index = event.get("output_index")
        clue = _Clue(
            step=step,
            item_id=str(event.get("item_id") or inside.get("id") or ""),
            call_id=str(event.get("call_id") or inside.get("call_id") or ""),
            index=index if isinstance(index, int) else None,
        )
        found = self._named(kind, clue)
        if found is None:
            own = self._in_question(kind, clue)
            # Ends come in the order of the items, pieces belong to the newest.
            ordered = own if step in ("filled", "done") else reversed(own)
            found = next((item for item in ordered if clue.fits(item)), None)
        return self._learn(found or self._new(kind), clue)

    def _named(self, kind: str, clue: _Clue) -> _Item | None:
        """Return the first item whose id an event has."""
        keys = [(kind, name, told) for name, told in clue.ids if told]
        named = [self._by_id[key] for key in keys if key in self._by_id]
        return min(named, key=lambda item: item.place, default=None)

    def _in_question(self, kind: str, clue: _Clue) -> list[_Item]:
        """Return the open items, in order, of which nothing about their number speaks against."""
        if clue.index is None:
            return list(self._open[kind].values())
        alike = self._open_at[kind, None] | self._open_at[kind, clue.index]
        return [alike[place] for place in sorted(alike)]

    def _new(self, kind: str) -> _Item:
        own = self._by_kind[kind]
        own.append(_Item(kind=kind, place=len(self._items), number=len(own)))
        self._items.append(own[-1])
        self._open[kind][own[-1].place] = self._open_at[kind, None][own[-1].place] = own[-1]
        return own[-1]

    def _learn(self, item: _Item, clue: _Clue) -> _Item:
        item.item_id = item.item_id or clue.item_id
        item.call_id = item.call_id or clue.call_id
        if item.index is None and clue.index is not None:
            item.index = clue.index
            if self._open_at[item.kind, None].pop(item.place, None):
                self._open_at[item.kind, item.index][item.place] = item
        for name, told in (("item", item.item_id), ("call", item.call_id)):
            if told:
                self._by_id.setdefault((item.kind, name, told), item)
        return item

    def _take_item(self, item: Mapping[str, Any], event: Mapping[str, Any], *, done: bool) -> None:
        found = self._find(str(item["type"]), event, "done" if done else "announced")
        if done:
            self._complete(found, item)
            return
        found.announced = True
        if found.kind == _CALL:
            found.name = found.name or str(item.get("name") or "")
            found.offered = _arguments(item.get("arguments"))
            self._argue(found, "")

    def settle(self, output: Any) -> None:
        """Take the finished response's list of items in: what had not come in pieces is added."""
        self._others = []
        told: list[tuple[Mapping[str, Any], str, _Clue, _Item | None]] = []
        for item in listed(output):
            kind = item.get("type") if isinstance(item, Mapping) else None
            if kind not in _KINDS:
                self._others += [dict(item)] if isinstance(item, Mapping) else []
                continue
            clue = _Clue(
                step="done",
                item_id=str(item.get("id") or ""),
                call_id=str(item.get("call_id") or ""),
            )
            told.append((item, kind, clue, self._named(kind, clue)))
        named = {found.place for *_, found in told if found}
        counted = dict.fromkeys(_KINDS, 0)
        for item, kind, clue, found in told:
            own = self._by_kind[kind][counted[kind] :][:1]
            counted[kind] += 1
            # Without an id that is known, their order counts; nobody takes what has another's id.
            alike = next((one for one in own if one.place not in named), None)
            self._complete(self._learn(found or alike or self._new(kind), clue), item)

    def _complete(self, known: _Item, item: Mapping[str, Any]) -> None:
        """Take a whole item in; say of it what had not been said."""
        if known.kind == _REASONING and known.whole and known.whole.get("encrypted_content"):
            return  # what is in the finished response may lack it
        known.whole = dict(item)
        self._open[known.kind].pop(known.place, None)
        self._open_at[known.kind, known.index].pop(known.place, None)
        if known.kind == _MESSAGE:
            parts = _parts(item.get("content"))
            text = "".join(text_of([part]) for part in parts)
            if known.text.opens(text):
                self._say(known, known.text.rest_of(text))
            if refusal := "".join(str(part.get("refusal") or "") for part in parts):
                known.refusal = GrowingText(refusal)
        elif known.kind == _CALL:
            self._settle_call(known, item)

    def _say(self, item: _Item, text: str) -> None:
        if not text:
            return
        if not item.text and self._lengths[_MESSAGE]:
            self._splitter.feed(_BETWEEN_ITEMS)
        item.text.add(text)
        self._lengths[_MESSAGE] += len(text)
        self._splitter.feed(text)

    def _refuse(self, item: _Item, text: str) -> None:
        item.refusal.add(text)
        self._lengths[_REFUSAL] += len(text)

    def finish(self) -> None:
        """Tell what was held back of the text."""
        self._splitter.finish()

    def _argue(self, call: _Item, arguments: str) -> None:
        call.text.add(arguments)
        self._lengths[_CALL] += len(arguments)
        self._on_event(
            "tool_call",
            {
                "index": call.number,
                "id": call.call_id,
                "name": call.name,
                "arguments_delta": arguments,
            },
        )

    def _fill(self, event: Mapping[str, Any]) -> None:
        call = self._find(_CALL, event, "filled")
        call.filled = True
        self._settle_call(call, event)

    def _settle_call(self, call: _Item, end: Mapping[str, Any]) -> None:
        """Give a call the name and the arguments that its end has; tell what is news."""
        arguments = _arguments(end.get("arguments"))
        named = not call.name and bool(end.get("name"))
        call.name = call.name or str(end.get("name") or "")
        goes_on = call.text.opens(arguments)
        rest = call.text.rest_of(arguments) if goes_on else ""
        if arguments and not goes_on:
            call.text = GrowingText(arguments)
        if named or rest:
            self._argue(call, rest)

    @property
    def has_begun(self) -> bool:
        """Whether anything of an answer has come."""
        return bool(self._items)

    @property
    def text(self) -> str:
        """The text of the answer; several messages are parted by an empty line."""
        texts = [str(item.text) for item in self._by_kind[_MESSAGE] if item.text]
        return _BETWEEN_ITEMS.join(texts)

    @property
    def refusal(self) -> str:
        """What the model said instead of an answer."""
        return "".join(str(item.refusal) for item in self._items)

    @property
    def reasoning(self) -> str:
        """The model's thoughts as far as they are told: themselves, or else their summary."""
        told = [_thoughts(item) for item in self._by_kind[_REASONING]]
        return _BETWEEN_ITEMS.join(text for text in told if text)

    @property
    def reasoning_items(self) -> tuple[dict[str, Any], ...]:
        """The finished reasoning items as they came."""
        return tuple(item.whole for item in self._by_kind[_REASONING] if item.whole is not None)

    @property
    def about(self) -> dict[str, Any]:
        """What came beside texts, calls and thoughts: sources, probabilities, other items."""
        parts = [
            part
            for item in self._by_kind[_MESSAGE]
            if item.whole
            for part in _parts(item.whole.get("content"))
        ]
        found = {
            name: [one for part in parts for one in listed(part.get(name))] for name in _OF_PARTS
        }
        return {name: value for name, value in (found | {"items": self._others}).items() if value}

    def tool_calls(self, *, is_cut: bool = False) -> tuple[dict[str, Any], ...]:
        """Return the calls in chat form; an id that never came is made up once, here.

        Of an answer that was cut at its length, the call that it was cut in is none.
        """
        calls = self._by_kind[_CALL]
        for call in calls:
            call.call_id = call.call_id or call.item_id or f"call_{uuid.uuid4().hex[:24]}"
        told = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": str(call.text) or call.offered},
                **fitting(own_fields(call.whole or {}, _CALL_KEYS), MAX_VENDOR_CHARS // len(calls)),
            }
            for call in calls
            if call.name or call.text
        ]
        return tuple(whole_calls(told) if is_cut else told)


def _parts(content: Any) -> list[Mapping[str, Any]]:
    if isinstance(content, str):
        return [{"text": content}]
    parts = [{"text": p} if isinstance(p, str) else p for p in listed(content)]
    return [part for part in parts if isinstance(part, Mapping)]


def _delta(event: Mapping[str, Any]) -> str:
    """Return the text of a piece: as it is, or in a part."""
    delta = event.get("delta")
    return text_of([delta] if isinstance(delta, Mapping) else delta)


def _arguments(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


def _thoughts(item: _Item) -> str:
    whole = item.whole or {}
    texts = [text_of([part]) for part in _parts(whole.get("content"))]
    digests = [text_of([part]) for part in _parts(whole.get("summary"))]
    return (
        "".join(texts)
        or str(item.thoughts)
        or _BETWEEN_ITEMS.join(text for text in digests if text)
        or str(item.digest)
    )
