"""Parts whose data is kept apart, in files: what stays in the row, and how a part is whole again.

A long string of a part (base64, a data URL, JSON as text) becomes a file, and an empty string
stands in its place. Under KEPT_APART the part says where its strings belong, which files hold them,
and what it is: kind, name, media type, size, pages and seconds of an attachment; the line and the
tokens of any other part. So tokens are counted and summaries made without a file being read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chatapp.messages.parts import (
    FACTS,
    FREE_PARTS,
    KEPT_APART,
    Attachment,
    attachment_of,
    kept_apart,
    note_of,
    one_line,
)

MISSING = "its file is missing from the store"
DAMAGED = "its file in the store is damaged"
UNREADABLE = "its file cannot be read from the store"

# Words, which are read with every summary, stay in the row; so does what tells a part's kind.
_STAYS = frozenset({"type", "text", "refusal"})
_TEXT_LENGTH = "chars"
_BYTES_PER_CHAR = 4

Place = tuple[str | int, ...]


class PartFileError(Exception):
    """A part's file cannot be had; the text says why, as the end of a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFile:
    """A file that holds one string of a part: its SHA-256, its bytes, and the string's place."""

    digest: str
    size: int
    place: Place = ()


Read = Callable[[PartFile], str]


def files_of(parts: Iterable[Any] | None) -> list[PartFile]:
    """Return the files that stored parts are kept in, in order; one may be there twice."""
    return [file for part in parts or () for file in _files_of(part)]


def _files_of(part: Any) -> Iterator[PartFile]:
    for file in (kept_apart(part) or {}).get("files", ()):
        yield PartFile(digest=file["sha256"], size=file["bytes"], place=tuple(file["at"]))


def put_apart(
    parts: Sequence[dict[str, Any]], *, longest: int, tokens_of: Callable[[Any], int]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the parts as they are stored, and the texts of their files by digest.

    Strings of more than `longest` bytes go into files. `tokens_of` counts a part that is no
    attachment: nobody can, once its strings are gone.
    """
    texts: dict[str, str] = {}
    return [_put_apart(part, longest, tokens_of, texts) for part in parts], texts


def _put_apart(
    part: dict[str, Any], longest: int, tokens_of: Callable[[Any], int], texts: dict[str, str]
) -> dict[str, Any]:
    if KEPT_APART in part:
        return part
    found = attachment_of(part)
    stays = _STAYS | {"source"} if found is not None and found.text else _STAYS
    long = [
        one for key in part if key not in stays for one in _long_strings(part[key], longest, (key,))
    ]
    if not long:
        return part
    files, bare = [], part
    for place, text in long:
        data = text.encode()
        digest = hashlib.sha256(data).hexdigest()
        texts[digest] = text
        files.append({"at": list(place), "sha256": digest, "bytes": len(data)})
        bare = _replaced(bare, place, "")
    return {**bare, KEPT_APART: {"files": files} | _told(part, found, tokens_of)}


def _long_strings(value: Any, longest: int, place: Place) -> Iterator[tuple[Place, str]]:
    if isinstance(value, str):
        if len(value) * _BYTES_PER_CHAR > longest and len(value.encode()) > longest:
            yield place, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _long_strings(inner, longest, (*place, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _long_strings(inner, longest, (*place, index))


def _told(
    part: dict[str, Any], found: Attachment | None, tokens_of: Callable[[Any], int]
) -> dict[str, Any]:
    """Return what a stored part says of itself."""
    if found is not None:
        facts = {name: getattr(found, name) for name in FACTS}
        return {name: fact for name, fact in facts.items() if fact not in (None, "")}
    if _TEXT_LENGTH in part or part["type"] in FREE_PARTS:
        return {}
    return {"note": note_of(part, None), "tokens": tokens_of(part)}


def _replaced(value: Any, place: Place, text: str) -> Any:
    """Return a JSON value with another string at a place; everything else is the same."""
    if not place:
        return text
    key, rest = place[0], place[1:]
    if isinstance(value, list):
        items = list(value)
        items[int(key)] = _replaced(items[int(key)], rest, text)
        return items
    return {**value, key: _replaced(value[key], rest, text)}


def whole_part(part: Any, read: Read) -> Any:
    """Return a part as it came in; where a file cannot be had, a line of text that says so.

    A part that is the text itself keeps the text, without what stood beside it.
    """
    if kept_apart(part) is None:
        return part
    whole = {key: value for key, value in part.items() if key != KEPT_APART}
    try:
        for file in _files_of(part):
            whole = _replaced(whole, file.place, read(file))
    except (PartFileError, LookupError, TypeError, ValueError) as error:
        if "text" in whole or _TEXT_LENGTH in whole:
            return whole
        return {"type": "text", "text": line_without_file(part, error)}
    return whole


def line_without_file(part: Mapping[str, Any], error: Exception) -> str:
    """Return what stands for a part whose file cannot be had: what it was, and why it is none."""
    found = attachment_of(part)
    note = found.words if found is not None else note_of(part, None)
    kind = one_line(str(part.get("type")))
    why = str(error) if isinstance(error, PartFileError) else DAMAGED
    return f"{(note or f'[{kind}]').removesuffix(']')}: {why}]"


def with_files(content: Any, read: Read) -> Any:
    """Return a content with all of its parts whole; one that has no files is returned as it is."""
    if not isinstance(content, list) or not any(map(kept_apart, content)):
        return content
    return [whole_part(part, read) for part in content]
