"""What the parts of a message are that hold no text: their kind, name, size, pages and seconds.

Parts come in the forms of several interfaces (Chat Completions, the Responses API, Anthropic's,
a chat widget's). They are told by their type and, where it is known, by the media type of what they
hold. Of the base64 in a part no more is decoded than HEAD_CHARS and TAIL_CHARS, so that a look at
15 MB costs some milliseconds.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_letters, digits
from typing import Any, Final

HEAD_CHARS: Final = 2_000_000
"""How much base64 is decoded from the start of a file; what stands there is 1.5 MB."""

TAIL_CHARS: Final = 1_000_000
"""The same of its end, where many PDF files say how many pages they have."""

MAX_NAME_CHARS: Final = 120
MAX_PAGES: Final = 10_000
MAX_SECONDS: Final = 24 * 60 * 60
MAX_SHOWN_CHARS: Final = 1_000
"""How much is shown of a part of unknown kind."""

IMAGE, FILE, AUDIO, VIDEO = "image", "file", "audio", "video"
_KINDS: Final = {
    "image": IMAGE,
    "image_url": IMAGE,
    "input_image": IMAGE,
    "file": FILE,
    "file_url": FILE,
    "input_file": FILE,
    "document": FILE,
    "document_url": FILE,
    "audio": AUDIO,
    "audio_url": AUDIO,
    "input_audio": AUDIO,
    "output_audio": AUDIO,
    "video": VIDEO,
    "video_url": VIDEO,
    "input_video": VIDEO,
}
FREE_PARTS: Final = ("reasoning", "thinking", "redacted_thinking")
"""Parts that no request is charged for, and that no summary is made of."""

KEPT_APART: Final = "kept_apart"
"""The key of a stored part whose data is in files of the part store (chatapp/messages/apart.py).

Beside the files it says what the part is, so that nobody has to read them to know.
"""
FACTS: Final = ("kind", "name", "media_type", "size", "pages", "seconds")

_TEXT_LENGTH: Final = "chars"  # stands in a stored part in the place of its text
_NAMES = ("filename", "file_name", "name", "title")
_MEDIA_TYPES = ("mime_type", "mimeType", "media_type", "mediaType", "content_type", "contentType")
_PAYLOADS = ("file_data", "data", "url", "file_url", "image_url", "base64", "fileUri", "uri")
_IDS = ("file_id", "id", "fileId")
_PAGES = ("pages", "page_count", "num_pages")
_SECONDS = ("seconds", "duration", "duration_seconds", "durationSeconds")
_SIZES = ("size", "bytes", "size_bytes", "file_size")
_BYTES_PER_SECOND: Final = {"mp3": 16_000, "mpeg": 16_000, "pcm16": 48_000, "wav": 48_000}
_BYTES_PER_SECOND_ELSE: Final = 12_000
_VIDEO_BYTES_PER_SECOND: Final = 250_000
_DATA_CHARS = 256
"""A text as long as this, all of base64's characters, is data and no text."""

_DATA = re.compile(rf"[A-Za-z0-9+/_-]{{{_DATA_CHARS}}}")
_DATA_URI = re.compile(r"data:([\w.+-]{1,60}/[\w.+-]{1,80})?[^,]{0,200},")
_PAGE_OBJECT = re.compile(rb"/Type\s{0,8}/Page(?![A-Za-z])")
_PAGE_TREE = re.compile(rb"/Type\s{0,8}/Pages(?![A-Za-z])")
_COUNT = re.compile(rb"/Count\s{1,8}(\d{1,6})")
_LINEARIZED = re.compile(rb"/N\s{1,8}(\d{1,6})")
_TREE_NODES_READ = 500
_DICTIONARY_BYTES = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A part that is an image, a file, a recording or a film.

    `size` is in bytes; what is not known is None. `text` are the words that a document holds as
    words. `is_remote`: the part names an address or an id, and holds nothing itself.
    """

    kind: str
    name: str = ""
    media_type: str = ""
    size: int | None = None
    pages: int | None = None
    seconds: float | None = None
    text: str = ""
    is_remote: bool = False

    @property
    def words(self) -> str:
        """What stands for it where only text can: `[file report.pdf, application/pdf, 2 pages]`."""
        said = [self.name, self.media_type if self.kind == FILE else ""]
        said.append("" if self.size is None else size_words(self.size))
        if self.pages:
            said.append(f"{self.pages:,} page{'' if self.pages == 1 else 's'}")
        if self.seconds:
            said.append(f"{max(1, round(self.seconds)):,} s")
        return f"[{' '.join([self.kind, ', '.join(filter(None, said))]).strip()}]"


def attachment_of(part: Any) -> Attachment | None:
    """Return what a part holds besides text; None for texts and for parts of unknown kinds."""
    kind = kind_of(part)
    if kind is None:
        return None
    if told := kept_apart(part):
        facts = {name: told[name] for name in FACTS if name in told}
        return Attachment(**{"kind": kind, **facts}, text=_inner_text(part))
    layers = _layers(part)
    payload = _Payload.of(layers)
    media_type = payload.media_type or _media_type(layers)
    kind = _kind_by_media_type(media_type, kind)
    name = one_line(_first_text(layers, _NAMES) or payload.name)
    text = _inner_text(part)
    return Attachment(
        kind=kind,
        name=name,
        media_type=one_line(media_type.lower()),
        size=payload.size if payload.data else _whole(layers, _SIZES),
        pages=_whole(layers, _PAGES, most=MAX_PAGES) or payload.pages if kind == FILE else None,
        seconds=_seconds(kind, layers, payload, media_type),
        text=text,
        is_remote=not payload.data and not text,
    )


def kept_apart(part: Any) -> Mapping[str, Any] | None:
    """Return what a stored part says of its files and of itself; None where it holds its data."""
    told = part.get(KEPT_APART) if isinstance(part, Mapping) else None
    return told if isinstance(told, Mapping) and isinstance(told.get("files"), list) else None


def kind_of(part: Any) -> str | None:
    """Return `image`, `file`, `audio` or `video` by a part's type; None for any other part."""
    kind = part.get("type") if isinstance(part, Mapping) else None
    return _KINDS.get(kind) if isinstance(kind, str) else None


def notes_of(parts: Sequence[Any] | None) -> list[str]:
    """Return a line for each of a message's parts that holds no text, in their order."""
    return [note for part in parts or () if (note := note_of(part, attachment_of(part)))]


def note_of(part: Any, found: Attachment | None) -> str:
    """Return what stands for a part in a text; `found` is its attachment. Empty for texts."""
    if found is not None:
        return "\n".join(filter(None, [found.words, found.text]))
    kind = part.get("type") if isinstance(part, Mapping) else None
    if not isinstance(kind, str) or kind in FREE_PARTS:
        return ""
    if told := kept_apart(part):
        return str(told.get("note", ""))
    if _TEXT_LENGTH in part or isinstance(part.get("text"), str):
        return ""
    if isinstance(part.get("refusal"), str):
        return str(part["refusal"])
    inner = {key: value for key, value in part.items() if key != "type"}
    shown = one_line(shown_text(inner), most=MAX_SHOWN_CHARS) if inner else ""
    return f"[{one_line(kind)}{': ' if shown else ''}{shown}]"


def shown_text(value: Any) -> str:
    """Return a value as compact JSON, in which data (base64, data URIs) is left out."""
    return json.dumps(without_data(value), ensure_ascii=False, separators=(",", ":"), default=str)


def without_data(value: Any) -> Any:
    """Return a JSON value with an empty text wherever it holds data."""
    if isinstance(value, str):
        return "" if is_data(value) else value
    if isinstance(value, Mapping):
        return {key: without_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_data(item) for item in value]
    return value


def data_size(value: Any) -> int:
    """Return how many bytes the data are that `without_data` leaves out."""
    if isinstance(value, str):
        return _bytes_of(len(value)) if is_data(value) else 0
    if isinstance(value, Mapping):
        return sum(map(data_size, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(data_size, value))
    return 0


def is_data(text: str) -> bool:
    """Whether a text is base64 or a data URI, by its beginning."""
    return bool(_DATA.match(text)) or (
        text.startswith("data:") and _DATA_URI.match(text) is not None
    )


def one_line(text: str, *, most: int = MAX_NAME_CHARS) -> str:
    """Return a stranger's text on one line: printable, without brackets, not too long."""
    start = text[: most * 4].replace("[", "(").replace("]", ")")
    line = " ".join("".join(c if c.isprintable() else " " for c in start).split())
    return line if len(line) <= most and len(text) <= most * 4 else f"{line[: most - 1]}…"


def size_words(size: int) -> str:
    """Return a number of bytes as people write it: 0.3 MB, 12 kB, 80 bytes."""
    if size >= 100_000:
        return f"{size / 1_000_000:,.1f} MB"
    if size >= 1_000:
        return f"{size // 1_000} kB"
    return f"{size} byte{'' if size == 1 else 's'}"


# --- where the parts of each interface keep what ----------------------------------------------


def _layers(part: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the part and the objects directly inside it, innermost first."""
    return [*(value for value in part.values() if isinstance(value, Mapping)), part]


def _first_text(layers: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> str:
    found = (layer.get(key) for layer in layers for key in keys)
    return next((text for text in found if isinstance(text, str) and text), "")


def _number(layers: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> float:
    found = (layer.get(key) for layer in layers for key in keys)
    numbers = (n for n in found if isinstance(n, int | float) and not isinstance(n, bool))
    return next((number for number in numbers if 0 < number < 10**12), 0)


def _whole(
    layers: Sequence[Mapping[str, Any]], keys: Sequence[str], *, most: int = 10**12
) -> int | None:
    return min(int(_number(layers, keys)), most) or None


def _media_type(layers: Sequence[Mapping[str, Any]]) -> str:
    told = _first_text(layers, _MEDIA_TYPES)
    form = _first_text(layers, ("format",))
    if not told and form:
        return form if "/" in form else f"audio/{form}"
    return told


def _kind_by_media_type(media_type: str, kind: str) -> str:
    family = media_type.partition("/")[0].lower()
    if family in (IMAGE, AUDIO, VIDEO):
        return family
    return FILE if family in ("application", "text") and kind != FILE else kind


def _inner_text(part: Mapping[str, Any]) -> str:
    """Return the words of a document that is given as words."""
    source = part.get("source")
    if not isinstance(source, Mapping):
        return ""
    if source.get("type") == "text" and isinstance(source.get("data"), str):
        return str(source["data"])
    content = source.get("content")
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else ()
    texts = (block.get("text") for block in blocks if isinstance(block, Mapping))
    return "\n".join(text for text in texts if isinstance(text, str))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Payload:
    """The text that holds a file or says where it is: base64 from `start` on, or an address."""

    data: str = ""
    start: int = 0
    media_type: str = ""
    name: str = ""

    @classmethod
    def of(cls, layers: Sequence[Mapping[str, Any]]) -> _Payload:
        found = next(_payloads(layers), "")
        if match := _DATA_URI.match(found):
            return cls(data=found, start=match.end(), media_type=match[1] or "")
        if not found or "://" in found[:_DATA_CHARS]:
            # Without the query: a signed address is a key.
            path = re.split(r"[?#]", found[: 8 * _DATA_CHARS], maxsplit=1)[0]
            return cls(name=path.rstrip("/").rpartition("/")[2] or _first_text(layers, _IDS))
        return cls(data=found)

    @property
    def size(self) -> int:
        padding = self.data[-2:].count("=")
        return _bytes_of(len(self.data) - self.start - padding)

    def head(self, chars: int) -> bytes:
        return _decoded(self.data[self.start : self.start + chars])

    @property
    def pages(self) -> int | None:
        """How many pages a PDF has, as far as its start and its end say."""
        if not self.data or not self.head(16).startswith(b"%PDF"):
            return None
        rest = max(0, len(self.data) - self.start - HEAD_CHARS)
        seen = [self.head(HEAD_CHARS)]
        if rest:
            # From the end in whole groups of four, which stand for three bytes each.
            tail = self.data[-min(rest, TAIL_CHARS) // 4 * 4 :]
            seen.append(_decoded(tail))
        pages = _pages(seen)
        whole, looked_at = self.size, sum(map(len, seen))
        if pages and rest > TAIL_CHARS and not any(map(_said_pages, seen)):
            pages = pages * whole // looked_at
        return min(pages, MAX_PAGES) or None


def _payloads(layers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for layer in layers:
        if layer.get("type") == "text":  # a document that is given as words
            continue
        for key in _PAYLOADS:
            value = layer.get(key)
            if isinstance(value, str) and value:
                yield value


def _bytes_of(chars: int) -> int:
    return max(0, chars) * 3 // 4


def _decoded(base64: str) -> bytes:
    """Return the bytes of base64 text, ordinary or for addresses; what is none is passed over."""
    written = base64.encode("ascii", "ignore").translate(_ORDINARY)
    try:
        return binascii.a2b_base64(written + b"===")
    except binascii.Error:  # one character too many at the end
        letters = bytes(letter for letter in written if letter in _ALPHABET)
        return binascii.a2b_base64(letters[: len(letters) // 4 * 4])


_ORDINARY = bytes.maketrans(b"-_", b"+/")
_ALPHABET = frozenset(f"{ascii_letters}{digits}+/".encode())


# --- pages and seconds ------------------------------------------------------------------------


def _pages(seen: Sequence[bytes]) -> int:
    objects = sum(len(_PAGE_OBJECT.findall(piece)) for piece in seen)
    return max(objects, *map(_said_pages, seen))


def _said_pages(piece: bytes) -> int:
    """Return the largest number of pages that a piece of a PDF states; 0 where it states none."""
    said = [0]
    if b"/Linearized" in piece[:1024] and (match := _LINEARIZED.search(piece[:1024])):
        said.append(int(match[1]))
    for number, match in enumerate(_PAGE_TREE.finditer(piece)):
        if number == _TREE_NODES_READ:
            break
        start = piece.rfind(b"<<", max(0, match.start() - _DICTIONARY_BYTES), match.start())
        end = piece.find(b">>", match.end(), match.end() + _DICTIONARY_BYTES)
        stated = _COUNT.search(piece, max(0, start), end if end >= 0 else match.end())
        said.append(int(stated[1]) if start >= 0 and stated else 0)
    return max(said)


def _seconds(
    kind: str, layers: Sequence[Mapping[str, Any]], payload: _Payload, media_type: str
) -> float | None:
    """Return how long a recording is: as told, as its header says, or by its bytes."""
    if kind not in (AUDIO, VIDEO):
        return None
    if told := _number(layers, _SECONDS):
        return min(told, MAX_SECONDS)
    if not payload.data:
        return None
    rate = _VIDEO_BYTES_PER_SECOND
    if kind == AUDIO:
        form = media_type.rpartition("/")[2].lower().removeprefix("x-")
        rate = _wav_rate(payload) or _BYTES_PER_SECOND.get(form, _BYTES_PER_SECOND_ELSE)
    return min(payload.size / rate, MAX_SECONDS)


def _wav_rate(payload: _Payload) -> int:
    """Return the bytes a second that a WAV file's header states; 0 for any other file."""
    header = payload.head(4096)
    at = header.find(b"fmt ")
    if header[:4] != b"RIFF" or at < 0:
        return 0
    return int.from_bytes(header[at + 16 : at + 20], "little")
