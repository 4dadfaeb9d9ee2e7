"""Texts without the secrets in them: each becomes `[REDACTED:kind]`, the name before it stays.

What a summariser reads and what is stored as a summary goes through here; stored messages stay as
they are, and every offset of a redacted text leads back to its place in the original.

No library serves: detect-secrets (Apache-2.0) is made for files, keeps its settings for the whole
process, says in which line a secret is and not where, and sees the first line of a private key.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from compaction.engine.extractive.sentences import remembered
from compaction.engine.fidelity.entities import find_entities
from compaction.engine.fidelity.secret_marks import secrets_by_mark
from compaction.engine.fidelity.secret_names import secrets_by_name
from compaction.engine.fidelity.secret_shapes import secrets_by_shape
from compaction.engine.fidelity.secret_values import MARKER, Secret
from compaction.engine.provenance import Unit
from compaction.engine.types import Item, ToolCall

MOST_PASSES = 8
LONGEST_REMEMBERED = 1000
"""Characters of a text, a message or a kept clause, whose secrets are looked for once."""
LONGEST_MARKER = 31
_MARKER = re.compile(r"\[REDACTED:[a-z-]{1,20}\]")
# A value of JSON that stands bare, such as a number: a marker there needs quotation marks.
_BARE_JSON = re.compile(r"(?P<quote>\\{0,4}\")\s{0,4}:\s{0,4}$")
_JSON_GOES_ON = re.compile(r"\s{0,4}[,}\]]")


class RedactedSpan(NamedTuple):
    """A marker's place in the redacted text, and the place of what it hides in the original."""

    start: int
    end: int
    original_start: int
    original_end: int
    kind: str


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text without its secrets, and how its offsets lead back; `spans` stand in order."""

    text: str
    spans: tuple[RedactedSpan, ...] = ()

    @classmethod
    def of_files(cls, item: Item) -> Redacted:
        """Return an item's text, whose placeholders hide the files of the stored one."""
        return cls(item.text, tuple(RedactedSpan(*span) for span in item.inline_files))

    @property
    def kinds(self) -> Counter[str]:
        """Return how many secrets of each kind were hidden."""
        return Counter(span.kind for span in self.spans)

    def original(self, offset: int) -> int:
        """Return the original place of an offset; inside a marker, the start of what it hides."""
        span = self._span_at(offset)
        if span is None:
            return offset
        if offset < span.end:
            return span.original_start
        return offset - span.end + span.original_end

    def original_end(self, offset: int) -> int:
        """Return the original place of an end; inside a marker, the end of what it hides."""
        span = self._span_at(offset)
        if span is not None and span.start < offset < span.end:
            return span.original_end
        return self.original(offset)

    def _span_at(self, offset: int) -> RedactedSpan | None:
        """Return the last span that starts at or before an offset."""
        index = bisect_right(self.spans, offset, key=lambda span: span.start)
        return self.spans[index - 1] if index else None


@remembered(longest=LONGEST_REMEMBERED, most=2048)
def redact(text: str) -> Redacted:
    """Return a text with its secrets hidden; the very same text when it has none."""
    done, hidden = Redacted(text), list[Secret]()
    # A marker can free what stood glued to a secret: look again until nothing is found.
    for _ in range(MOST_PASSES):
        found = _secrets(done.text)
        if not found:
            break
        for start, end, kind in found:
            hidden.append(Secret(done.original(start), done.original_end(end), kind))
        done = _without(text, sorted(hidden))
    return done


def redact_items(items: Sequence[Item]) -> tuple[list[Item], dict[Any, Redacted]]:
    """Return items without secrets in texts, thoughts and calls, and by id what texts changed."""
    changed: dict[Any, Redacted] = {}
    safe = []
    for item in items:
        redacted = redact(item.text)
        if redacted.spans:
            changed[item.id] = redacted
            item = replace(item, text=redacted.text)
        if item.thinking:
            item = replace(item, thinking=redact(item.thinking).text)
        calls = tuple(_safe_call(call) for call in item.tool_calls)
        if any(new is not old for new, old in zip(calls, item.tool_calls, strict=True)):
            item = replace(item, tool_calls=calls)
        safe.append(item)
    return safe, changed


def redact_units(units: Iterable[Unit]) -> list[Unit]:
    """Return clauses without secrets: neither in a text, nor in what it replaces or names."""
    return [_safe_unit(unit) for unit in units]


def _safe_unit(unit: Unit) -> Unit:
    text, note = redact(unit.text), redact(unit.note)
    if not (text.spans or note.spans):
        return unit
    named = dict.fromkeys(one.key for one in find_entities(text.text))
    return unit._replace(text=text.text, note=note.text, entities=tuple(named))


def _safe_call(call: ToolCall) -> ToolCall:
    redacted = redact(call.arguments)
    return replace(call, arguments=redacted.text) if redacted.spans else call


def _secrets(text: str) -> list[Secret]:
    """Return the secrets of a text in order, none over another or over a marker."""
    low = text.lower()
    if len(low) != len(text):
        # A few letters become two when they are made small; offsets must stay.
        low = "".join(small if len(small := one.lower()) == 1 else one for one in text)
    finders = (secrets_by_shape, secrets_by_mark, secrets_by_name)
    found = sorted({one for find in finders for one in find(text, low)})
    if found and MARKER in text:
        found = sorted(_outside_markers(text, found))
    merged: list[Secret] = []
    for one in found:
        if merged and one.start < merged[-1].end:
            last = merged[-1]
            merged[-1] = last._replace(end=max(last.end, one.end))
        else:
            merged.append(one)
    return merged


def _outside_markers(text: str, found: Iterable[Secret]) -> Iterator[Secret]:
    """Return the pieces of secrets between markers: a marker inside one must not shield it."""
    for start, end, kind in found:
        # It may begin inside a marker.
        opening = text.rfind(MARKER, max(0, start - LONGEST_MARKER), start)
        around = _MARKER.match(text, opening) if opening >= 0 else None
        at = max(start, around.end()) if around else start
        while at < end:
            marker = _MARKER.search(text, at, min(len(text), end + LONGEST_MARKER))
            stop = min(end, marker.start()) if marker else end
            if text[at:stop].strip():
                yield Secret(at, stop, kind)
            at = marker.end() if marker else end


def _without(text: str, secrets: Iterable[Secret]) -> Redacted:
    pieces: list[str] = []
    spans: list[RedactedSpan] = []
    length = done = 0
    for start, end, kind in secrets:
        marker = f"{MARKER}{kind}]"
        bare = _BARE_JSON.search(text, max(0, start - 16), start)
        if bare and _JSON_GOES_ON.match(text, end):
            marker = f"{bare['quote']}{marker}{bare['quote']}"
        pieces += (text[done:start], marker)
        length += start - done
        spans.append(RedactedSpan(length, length + len(marker), start, end, kind))
        length += len(marker)
        done = end
    return Redacted("".join((*pieces, text[done:])), tuple(spans))


def redact_json(value: Any) -> Any:
    """Return a JSON value with the secrets in its texts hidden."""
    if isinstance(value, str):
        return redact(value).text
    if isinstance(value, list):
        return [redact_json(each) for each in value]
    if isinstance(value, dict):
        return {key: redact_json(each) for key, each in value.items()}
    return value
