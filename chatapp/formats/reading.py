"""Files and values as they are read: JSON, JSON lines, and what every format's reader needs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from chatapp.formats.decoding import UnreadableError, decode, read_lines, skip_whitespace
from chatapp.formats.file_records import Record
from chatapp.formats.large_files import LargeFile
from chatapp.formats.message_shelf import Keep, Shelf, as_it_is
from chatapp.formats.records import (
    NO_LIMITS,
    FileLimits,
    Problem,
    ProblemList,
    refuse_lines,
    refuse_marks,
)
from chatapp.formats.stored_json import (
    plain,
)
from chatapp.spooled_files import CODING, SpooledFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file and its values; `is_lines` is False where it is one JSON value.

    Of a large file the values are decoded when they are looked at, and `keep` has what messages
    say lie in a file, too: a reader calls it for each that it makes.
    """

    file: SpooledFile
    records: tuple[Record, ...]
    is_lines: bool
    problems: Sequence[Problem] = ()
    keep: Keep = as_it_is

    @property
    def text(self) -> str:
        """The text of the file."""
        return self.file.read().decode(*CODING)

    @property
    def lines(self) -> int:
        """How many lines there are, or items of the list that the file is."""
        if self.is_lines:
            return self.file.lines()
        value = self.records[0].value
        return len(value) if isinstance(value, list) else 1


def read_document(text: str, *, limits: FileLimits = NO_LIMITS) -> Document:
    """The JSON values of a text; lines that cannot be read become problems, the rest is kept.

    Raises TooMuchInFileError where there is more than the limits allow; what can be counted before
    it is read is.
    """
    file = SpooledFile([text.encode(*CODING)])
    if limits.marks is not None:
        refuse_marks(sum(map(text.count, "[{:")), limits)
    start = skip_whitespace(text, 0)
    try:
        value, end = decode(text, start)
    except UnreadableError:
        return _read_lines(text, file, limits)
    if skip_whitespace(text, end) < len(text):
        return _read_lines(text, file, limits)
    refuse_lines(len(value) if isinstance(value, list) else 1, limits)
    line = text.count("\n", 0, start) + 1
    return Document(file=file, records=(Record(line=line, value=value),), is_lines=False)


def read_file(file: SpooledFile, *, limits: FileLimits = NO_LIMITS) -> Document:
    """The same of a file in UTF-8; values of a large one stay where they are."""
    if not file.is_large:
        return read_document(file.read().decode(*CODING), limits=limits)
    if limits.marks is not None:
        refuse_marks(file.count(b"[", b"{", b":"), limits)
    large = LargeFile(file)
    start = large.skip_blank(0)
    found = large.value(start, file.size)
    if found is None or large.skip_blank(found[1]) < file.size:
        return _read_large_lines(file, large, limits)
    value = found[0]
    refuse_lines(len(value) if isinstance(value, list) else 1, limits)
    record = Record(line=file.count_before(b"\n", start) + 1, value=value)
    return Document(file=file, records=(record,), is_lines=False, keep=Shelf().keep)


def compact_json(value: Any) -> str:
    """A value as JSON without spaces, in the characters it has: the form of call arguments."""
    return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))


def _read_large_lines(file: SpooledFile, large: LargeFile, limits: FileLimits) -> Document:
    refuse_lines(file.lines(), limits)
    records: list[Record] = []
    problems = ProblemList()
    for record in large.records(problems):
        records.append(record)
        refuse_lines(len(records), limits)
    return Document(
        file=file,
        records=tuple(records),
        is_lines=True,
        problems=problems,
        keep=Shelf().keep,
    )


def _read_lines(text: str, file: SpooledFile, limits: FileLimits) -> Document:
    refuse_lines(text.count("\n") + (not text.endswith("\n")), limits)
    records: list[Record] = []
    problems = ProblemList()
    for number, value in read_lines(text, 1, problems):
        records.append(Record(line=number, value=value))
        refuse_lines(len(records), limits)
    return Document(file=file, records=tuple(records), is_lines=True, problems=problems)


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
    return hashlib.sha256(_canonical(values)).hexdigest()


def digest_of_line(*values: Any, items: Iterable[Any]) -> str:
    """The digest of the values and a list behind them, of which one item is held at a time."""
    found = hashlib.sha256(b"[")
    for value in values:
        found.update(_canonical(value) + b",")
    found.update(b"[")
    for number, item in enumerate(items):
        found.update((b"," if number else b"") + _canonical(item))
    found.update(b"]]")
    return found.hexdigest()


def _canonical(value: Any) -> bytes:
    # Escaped to ASCII, so that lone surrogates can be hashed too.
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":")).encode("ascii")


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
