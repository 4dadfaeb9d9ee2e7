"""Files and values as they are read: JSON, JSON lines, and what every format's reader needs."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from chatapp.formats.nesting import flattened
from chatapp.formats.records import (
    NO_LIMITS,
    FileLimits,
    Problem,
    ProblemList,
    refuse_more,
)

MAX_DEPTH = 100
"""Levels of nesting; deeper values would later exhaust the stack of whoever walks through them."""

_WHITESPACE = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One decoded JSON value and the line, counted from 1, that it starts on."""

    line: int
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The text of a file and its values; `is_lines` is False where it is one JSON value."""

    text: str
    records: tuple[Record, ...]
    is_lines: bool
    problems: Sequence[Problem] = ()

    @property
    def lines(self) -> int:
        """How many lines there are, or items of the list that the file is."""
        if self.is_lines:
            return self.text.count("\n") + (not self.text.endswith("\n"))
        value = self.records[0].value
        return len(value) if isinstance(value, list) else 1


def only_objects(records: Iterable[Record], problems: list[Problem]) -> list[Record]:
    """The records that are JSON objects; every other one is added to the problems."""
    objects = []
    for record in records:
        if isinstance(record.value, dict):
            objects.append(record)
        else:
            text = "The line was left out: it holds no JSON object."
            problems.append(Problem(line=record.line, text=text))
    return objects


def read_document(text: str, *, limits: FileLimits = NO_LIMITS) -> Document:
    """The JSON values of a text; lines that cannot be read become problems, the rest is kept.

    Raises TooMuchInFileError where there is more than the limits allow; what can be counted before
    it is read is.
    """
    if limits.marks is not None:
        refuse_marks(sum(map(text.count, "[{:")), limits)
    start = _skip_whitespace(text, 0)
    try:
        value, end = _decode(text, start)
    except _UnreadableError:
        return _read_lines(text, limits)
    if _skip_whitespace(text, end) < len(text):
        return _read_lines(text, limits)
    refuse_lines(len(value) if isinstance(value, list) else 1, limits)
    line = text.count("\n", 0, start) + 1
    return Document(text=text, records=(Record(line=line, value=value),), is_lines=False)


def refuse_marks(number: int, limits: FileLimits) -> None:
    """Raise TooMuchInFileError where a file has too many brackets and colons."""
    refuse_more(number, limits.marks, what="brackets and colons", code="too_many_values")


def refuse_lines(number: int, limits: FileLimits) -> None:
    """Raise TooMuchInFileError where a file has too many lines, or a list too many items."""
    refuse_more(
        number,
        limits.lines,
        what="lines or items",
        code="too_many_lines",
        setting="MAX_IMPORT_LINES",
    )


def compact_json(value: Any) -> str:
    """A value as JSON without spaces, in the characters it has: the form of call arguments."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class _UnreadableError(ValueError):
    """No JSON value starts here; the text says why."""


class _TooDeepError(_UnreadableError):
    """A value is nested deeper than MAX_DEPTH."""

    def __init__(self) -> None:
        super().__init__(f"nested deeper than {MAX_DEPTH} levels")


def _read_lines(text: str, limits: FileLimits) -> Document:
    refuse_lines(text.count("\n") + (not text.endswith("\n")), limits)
    records: list[Record] = []
    problems = ProblemList()
    for number, line in enumerate(_lines(text), start=1):
        position = _skip_whitespace(line, 0)
        while position < len(line):
            try:
                value, position = _decode(line, position)
            except _UnreadableError as error:
                problems.append(_broken(number, position, error))
                break
            records.append(Record(line=number, value=value))
            if position < len(line):
                position = _skip_whitespace(line, position)
                refuse_lines(len(records), limits)
    return Document(text=text, records=tuple(records), is_lines=True, problems=problems)


def _lines(text: str) -> Iterator[str]:
    """Yield line by line, as all of them at once would take more memory than the text.

    Not as str.splitlines does: it also splits at U+2028 and others, which may stand in a string.
    """
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:]


def _broken(number: int, position: int, error: _UnreadableError) -> Problem:
    part = f"The line from character {position + 1} on" if position else "The line"
    return Problem(line=number, text=f"{part} was left out: it is not readable JSON ({error}).")


def _decode(text: str, position: int) -> tuple[Any, int]:
    """Return the value that starts here and where it ends; of deep trees a flatter form."""
    try:
        return _decode_one(text, position)
    except _TooDeepError:
        flat = flattened(text, position)
        if flat is None:
            raise
    return _decode_one(flat[0], 0)[0], flat[1]


def _decode_one(text: str, position: int) -> tuple[Any, int]:
    try:
        value, end = _DECODER.raw_decode(text, position)
    except json.JSONDecodeError as error:
        raise _UnreadableError(f"{error.msg}, character {error.pos + 1}") from error
    except RecursionError as error:
        raise _TooDeepError from error
    except ValueError as error:  # Python refuses to read integers of more than 4300 digits
        raise _UnreadableError("a number with too many digits") from error
    # What is nested that deep opens that many lists and objects.
    opened = text.count("[", position, end) + text.count("{", position, end)
    if opened > MAX_DEPTH and _is_too_deep(value):
        raise _TooDeepError
    return value, end


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return False
    return True


def _children(value: Any) -> list[Any]:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [item for item in items if isinstance(item, (dict, list))]


def _skip_whitespace(text: str, position: int) -> int:
    found = _WHITESPACE.match(text, position)
    return found.end() if found else position


def _finite(literal: str) -> float | None:
    number = float(literal)
    return number if math.isfinite(number) else None


_DECODER = json.JSONDecoder(strict=False, parse_float=_finite, parse_constant=lambda _: None)


Wire = dict[str, Any]

MILLISECONDS_FROM = 100_000_000_000
"""Epoch numbers from here on are milliseconds: as seconds they would lie after the year 5000."""


class DamagedError(ValueError):
    """This part of a file cannot be used; the text completes the sentence "was left out: …"."""


def shown(value: Any) -> str:
    """A value from a file as it may stand in a sentence: printable and short."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def digest(*values: Any) -> str:
    """A stable hash (hex) of JSON values, whatever characters are in them."""
    # Escaped to ASCII, so that lone surrogates can be hashed too.
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def tool_call(*, call_id: Any, name: Any, arguments: Any) -> Wire:
    """One entry of `tool_calls`; arguments that are no text yet are dumped as compact JSON."""
    if not isinstance(name, str) or not name:
        raise DamagedError("a tool call has no name")
    if arguments is None:
        arguments = ""
    text = arguments if isinstance(arguments, str) else compact_json(arguments)
    function = {"name": name, "arguments": text}
    return {"id": text_or_empty(call_id), "type": "function", "function": function}


def image_part(*, media_type: Any, data: Any) -> Wire:
    """An image as a part with a data URI; a note in its place when the data are missing."""
    if not isinstance(data, str) or not data:
        return {"type": "text", "text": "[an image whose data are missing]"}
    mime = media_type if isinstance(media_type, str) and media_type else "image/png"
    return {"type": "image_url", "image_url": {"url": f"data:{mime};base64,{data}"}}


def file_part(*, name: Any, media_type: Any, data: Any, where: Any = "") -> Wire:
    """A file as a part with a data URI; a line that names it in its place when it is elsewhere."""
    called = text_or_empty(name)
    if not isinstance(data, str) or not data:
        said = " ".join(filter(None, [called, text_or_empty(where)])) or "whose data are missing"
        return {"type": "text", "text": f"[file {said}]"}
    mime = media_type if isinstance(media_type, str) and media_type else "application/pdf"
    file = {"filename": called or "file", "file_data": f"data:{mime};base64,{data}"}
    return {"type": "file", "file": file}


def content_of(blocks: Any) -> str | list[Wire]:
    """Text, or parts when there are images: from a string or blocks of pi and Claude Code."""
    if isinstance(blocks, str):
        return blocks
    if blocks is None:
        return ""
    if not isinstance(blocks, list):
        raise DamagedError("its content is neither text nor a list of blocks")
    parts = [part for block in blocks if (part := _part(block))]
    if any(part["type"] != "text" for part in parts):
        return parts
    return joined(part["text"] for part in parts)


def joined(texts: Iterable[str]) -> str:
    """The texts that say something, one below the other."""
    return "\n".join(text for text in texts if text)


def texts_of(blocks: Sequence[Any], *, kind: str, key: str) -> str:
    """The texts under `key` of all blocks of one kind, one below the other."""
    found = (block.get(key) for block in blocks if is_block(block, kind))
    return joined(text for text in found if isinstance(text, str))


def is_block(value: Any, kind: str) -> bool:
    """Whether a value is a content block of this kind."""
    return isinstance(value, dict) and value.get("type") == kind


READ_BLOCKS = frozenset(
    {
        "text",
        "image",
        "document",
        "thinking",
        "redacted_thinking",
        "tool_use",
        "tool_result",
        "toolCall",
    }
)
"""Kinds of content blocks that have a place in a message."""


def unread_kinds(content: Any) -> list[str]:
    """The kinds of those blocks of a content, of results too, that `content_of` leaves out."""
    kinds = []
    for block in content if isinstance(content, list) else ():
        kind = block.get("type") if isinstance(block, dict) else None
        if not isinstance(kind, str) or kind not in READ_BLOCKS:
            kinds.append(shown(kind))
        elif kind == "tool_result":
            kinds += unread_kinds(block.get("content"))
    return kinds


def text_or_empty(value: Any) -> str:
    """The value if it is text, else an empty text."""
    return value if isinstance(value, str) else ""


def count(value: Any) -> int:
    """A number of tokens: the value if it is a whole number from 0 on, else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def usage_of(*, fresh: Any, read: Any, written: Any, output: Any) -> dict[str, Any] | None:
    """OpenAI's usage object from counts that exclude the cache; None when nothing was used."""
    prompt = count(fresh) + count(read) + count(written)
    completion = count(output)
    if not prompt + completion:
        return None
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": count(read)},
    }


def blocks_of(content: Any) -> list[Any]:
    """The blocks of an assistant's content; raises DamagedError where there are none."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise DamagedError("its content is neither text nor a list of blocks")
    return content


def assistant_wire(blocks: Sequence[Any], *, kind: str, arguments: str) -> Wire:
    """The assistant message of content blocks.

    Calls are the blocks of that `kind`; their arguments stand under the key `arguments`.
    """
    calls = [
        tool_call(call_id=block.get("id"), name=block.get("name"), arguments=block.get(arguments))
        for block in blocks
        if is_block(block, kind)
    ]
    text = texts_of(blocks, kind="text", key="text")
    wire: Wire = {"role": "assistant", "content": text or (None if calls else "")}
    if calls:
        wire["tool_calls"] = calls
    return wire


def moment(value: Any) -> datetime | None:
    """A point in time (UTC) from ISO 8601, epoch seconds or epoch milliseconds; else None."""
    try:
        if isinstance(value, str):
            time = datetime.fromisoformat(value)
            return time.replace(tzinfo=time.tzinfo or UTC).astimezone(UTC)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            seconds = value / 1000 if value >= MILLISECONDS_FROM else value
            return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def _part(block: Any) -> Wire | None:
    if is_block(block, "text"):
        text = block.get("text")
        return {"type": "text", "text": text} if isinstance(text, str) else None
    if is_block(block, "image"):
        return image_of(block)
    if is_block(block, "document") and isinstance(source := block.get("source"), dict):
        if source.get("type") == "text":
            return {"type": "text", "text": text_or_empty(source.get("data"))}
        media_type, data = source.get("media_type"), source.get("data")
        name, where = block.get("title"), source.get("url")
        return file_part(name=name, media_type=media_type, data=data, where=where)
    return None


def image_of(block: Wire) -> Wire:
    """An image block, with its data or its address, as a part."""
    source = block.get("source")
    if not isinstance(source, dict):
        return image_part(media_type=block.get("mimeType"), data=block.get("data"))
    if isinstance(url := source.get("url"), str):
        return {"type": "image_url", "image_url": {"url": url}}
    return image_part(media_type=source.get("media_type"), data=source.get("data"))
