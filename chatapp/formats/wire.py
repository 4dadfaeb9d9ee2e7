"""Building blocks of OpenAI chat messages that the importers share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from chatapp.formats.json_lines import compact_json

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
        return _image(block)
    return None


def _image(block: Wire) -> Wire:
    source = block.get("source")
    if not isinstance(source, dict):
        return image_part(media_type=block.get("mimeType"), data=block.get("data"))
    if isinstance(url := source.get("url"), str):
        return {"type": "image_url", "image_url": {"url": url}}
    return image_part(media_type=source.get("media_type"), data=source.get("data"))
