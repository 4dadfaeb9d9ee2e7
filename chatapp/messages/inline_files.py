"""Files inside texts: a picture as base64 in a tool's JSON, told by a placeholder where it is read.

A model sees no picture in the letters of its base64, and pays for them as for words. So what is
sent, what summarisers read and what is counted has `[image/jpeg, 96 kB]` in its place; what is
stored stays whole (docs/compaction.md#tool-results). The same text always gives the same
placeholders, in time that is linear in its length: starts are looked for with `str.find`, each
pattern behind them is bounded or possessive, and no character is matched twice.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from chatapp.messages.parts import size_words
from chatapp.messages.patterns import lazy_pattern

SHORTEST_FILE_CHARS = 256
"""Shorter base64 stays: an icon in a style sheet may be what somebody works on."""

_BASE64_MARK = "base64,"
_LONGEST_URL_HEAD = 300
# `data:image/jpeg;name=a.jpg;base64,`; JSON may be inside JSON, its slashes escaped at any depth.
_URL_HEAD = lazy_pattern(
    r"data:(?:(?P<type>[\w.+-]{1,60})\\{0,8}/(?P<subtype>[\w.+-]{1,80}))?"
    r"(?:;[\w.+-]{1,40}=[^;,\s\"'\\]{0,80}){0,4};base64,"
)
_ESCAPED = r"\\{1,8}+(?:/|u002[bBfF])|%2[bBfF]"
_LINE = lazy_pattern(rf"(?:[A-Za-z0-9+/_-]++|{_ESCAPED})++")
_ESCAPED_CHARACTER = lazy_pattern(_ESCAPED)
_PADDING = lazy_pattern(r"(?:=|%3[dD]|\\{1,8}+u003[dD]){1,2}")
# Long base64 is often broken into lines of one width, in JSON by an escaped line feed.
_BREAK = lazy_pattern(r"\r?\n[ \t]{0,40}|(?:\\{1,8}+r)?\\{1,8}+n")
_LEAST_WIDTH, _MOST_WIDTH, _SHORTEST_LAST_LINE = 40, 1_000, 16

_HEAD_CHARS = 64
_JPEG_STARTS = ("/9j", "_9j")
# How the base64 of each kind begins: bytes of the file, the base64 of its start, its media type.
_KINDS: tuple[tuple[bytes, tuple[str, ...], str], ...] = (
    (rb"\xff\xd8\xff", _JPEG_STARTS, "image/jpeg"),
    (rb"\x89PNG\r\n\x1a\n", ("iVBORw0KGg",), "image/png"),
    (rb"GIF8[79]a", ("R0lGOD",), "image/gif"),
    (rb"RIFF....WEBP", ("UklGR",), "image/webp"),
    (rb"RIFF....WAVE", ("UklGR",), "audio/wav"),
    (rb"BM....\0\0\0\0", ("Qk",), "image/bmp"),
    (rb"II\x2a\0", ("SUkqA",), "image/tiff"),
    (rb"MM\0\x2a", ("TU0AK",), "image/tiff"),
    (rb"\x00\x00\x01\x00", ("AAABAA",), "image/x-icon"),
    (rb"\0\0\0.ftypavi[fs]", ("AAAA",), "image/avif"),
    (rb"\0\0\0.ftyp(?:hei[cfmsx]|mif1|msf1)", ("AAAA",), "image/heic"),
    (rb"\0\0\0.ftyp", ("AAAA",), "video/mp4"),
    (rb"\x1a\x45\xdf\xa3", ("GkXfo",), "video/webm"),
    (rb"<svg[\s>]", ("PHN2Z",), "image/svg+xml"),
    (rb"%PDF-", ("JVBERi0",), "application/pdf"),
    (rb"PK\x03\x04", ("UEsDB",), "application/zip"),
    (rb"\x1f\x8b\x08", ("H4sI",), "application/gzip"),
    (rb"ID3[\x02-\x04]\x00", ("SUQz",), "audio/mpeg"),
    (rb"OggS\0", ("T2dnUw",), "audio/ogg"),
    (rb"fLaC\0", ("ZkxhQw",), "audio/flac"),
    (rb"wOF[F2]", ("d09GR", "d09GM"), "font/woff"),
)
_SIGNATURES = tuple((re.compile(start, re.DOTALL), name) for start, _, name in _KINDS)
_ANCHORS = (_BASE64_MARK, *dict.fromkeys(one for _, starts, _ in _KINDS for one in starts))


class FileSpan(NamedTuple):
    """A placeholder's place in the told text, and the place of its file in the whole one."""

    start: int
    end: int
    original_start: int
    original_end: int
    words: str


class _Found(NamedTuple):
    start: int
    end: int
    words: str


def without_inline_files(text: str) -> str:
    """Return a text with a placeholder for each file in it; the very same text without any."""
    return told(text)[0]


def told(text: str) -> tuple[str, tuple[FileSpan, ...]]:
    """Return a text with a placeholder for each file in it, and where these stand, in order."""
    if len(text) < SHORTEST_FILE_CHARS:
        return text, ()
    pieces: list[str] = []
    spans: list[FileSpan] = []
    length = done = 0
    for start, end, words in _files(text):
        pieces += (text[done:start], words)
        length += start - done
        spans.append(FileSpan(length, length + len(words), start, end, words))
        length += len(words)
        done = end
    return ("".join((*pieces, text[done:])), tuple(spans)) if spans else (text, ())


def _files(text: str) -> Iterator[_Found]:
    """Yield the files in a text in order, none over another."""
    coming = [(at, anchor) for anchor in _ANCHORS if (at := text.find(anchor)) >= 0]
    heapify(coming)
    done = 0
    while coming:
        at, anchor = coming[0]
        found = _file_at(text, at, anchor, done) if at >= done else None
        if found is not None:
            yield found
            done = found.end
        following = text.find(anchor, max(at + len(anchor), done))
        if following < 0:
            heappop(coming)
        else:
            heapreplace(coming, (following, anchor))


def _file_at(text: str, at: int, anchor: str, done: int) -> _Found | None:
    """Return the file that an anchor belongs to; None where it is only letters."""
    if anchor != _BASE64_MARK:
        start = _start_of_data(text, at, done)
        return None if start is None else _file(text, start, start, "")
    body = at + len(_BASE64_MARK)
    start = text.rfind("data:", max(done, at - _LONGEST_URL_HEAD), at)
    head = _URL_HEAD.match(text, start, body) if start >= 0 else None
    if head is None or head.end() != body:
        return None
    media_type = f"{head['type']}/{head['subtype']}".lower() if head["type"] else ""
    return _file(text, start, body, media_type)


def _start_of_data(text: str, at: int, done: int) -> int | None:
    """Return where base64 begins that an anchor is the beginning of; None in the midst of some."""
    start = at
    if text.startswith("/", at):
        while start > done and at - start < 8 and text[start - 1] == "\\":
            start -= 1
    before = text[start - 1 : start]
    if before.isascii() and (before.isalnum() or before in ("+", "/", "_", "-")):
        # A letter of an escaped line feed or tab is none of the data.
        is_escape = before in "nrt" and text[start - 2 : start - 1] == "\\"
        return start if is_escape else None
    return start


def _file(text: str, start: int, body: int, media_type: str) -> _Found | None:
    """Return the file whose base64 begins at `body`; None where it is too short or of no kind."""
    first = _LINE.match(text, body)
    if first is None:
        return None
    if not media_type:
        # Before its end is looked for: a text may have many lines that only begin like files.
        media_type = _kind_of(first[0])
        if not media_type and start == body:
            return None
    end, chars = _end_of_data(text, first)
    if end - body < SHORTEST_FILE_CHARS:
        return None
    return _Found(start, end, f"[{media_type or 'data'}, {size_words(chars * 3 // 4)}]")


def _end_of_data(text: str, first: re.Match[str]) -> tuple[int, int]:
    """Return where base64 ends, its padding included, and how many characters carry bytes."""
    end, width = first.end(), _length(first[0])
    chars = width
    is_wrapped = _LEAST_WIDTH <= width <= _MOST_WIDTH
    while is_wrapped and (gap := _BREAK.match(text, end)):
        line = _LINE.match(text, gap.end())
        size = _length(line[0]) if line else 0
        if line is None or size > width:
            break
        is_last = size < width
        if is_last and size < _SHORTEST_LAST_LINE and not _PADDING.match(text, line.end()):
            # A word behind the data, and none of it.
            break
        end, chars = line.end(), chars + size
        if is_last:
            break
    padding = _PADDING.match(text, end)
    return padding.end() if padding else end, chars


def _length(line: str) -> int:
    """Return how many characters of base64 a line holds, escaped ones counted once."""
    if "\\" not in line and "%" not in line:
        return len(line)
    return len(_ESCAPED_CHARACTER.sub("/", line))


def _kind_of(data: str) -> str:
    """Return the media type that the first bytes of base64 tell; an empty text for no known one."""
    if len(data) < _LEAST_WIDTH:
        return ""
    head = _ESCAPED_CHARACTER.sub("/", data[: _HEAD_CHARS * 2])
    head = head.replace("-", "+").replace("_", "/")[:_HEAD_CHARS]
    try:
        decoded = binascii.a2b_base64(head[: len(head) // 4 * 4])
    except binascii.Error:
        return ""
    return next((name for start, name in _SIGNATURES if start.match(decoded)), "")
