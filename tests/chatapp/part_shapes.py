"""Parts with long data, as clients of several interfaces send them, and a store to keep them in."""

from __future__ import annotations

import base64
import hashlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chatapp.models import Session
from chatapp.part_store import PartStorage, name_of, part_storage

LONGEST = 1_000
"""What stays in the row, in the tests of the store."""
OPENED: list[str] = []


class CountingStorage(PartStorage):
    """The store, with a list of what was read of it."""

    def open(self, name: str, mode: str = "rb") -> Any:
        OPENED.append(name)
        return super().open(name, mode)


class BrokenStorage(PartStorage):
    """A store whose disk is full."""

    def _save(self, name: str, content: Any) -> str:
        raise OSError("No space left on device")


def b64(size: int, *, head: bytes = b"") -> str:
    """Return base64 that differs from every other size's."""
    return base64.b64encode(head + random.Random(size).randbytes(size)).decode()


PAGE = b"<< /Type /Page /Parent 2 0 R >>\n"
IMAGE = {
    "type": "image_url",
    "image_url": {"url": f"data:image/png;base64,{b64(3_000)}", "detail": "high"},
}
PDF = {
    "type": "file",
    "file": {
        "filename": "report.pdf",
        "file_data": f"data:application/pdf;base64,{b64(4_000, head=b'%PDF-1.4' + PAGE * 14)}",
    },
}
SOUND = {"type": "input_audio", "input_audio": {"data": b64(48_000), "format": "mp3"}}
FILM = {"type": "video", "mediaType": "video/mp4", "data": b64(5_000)}
RESPONSES_IMAGE = {"type": "input_image", "image_url": f"data:image/jpeg;base64,{b64(2_500)}"}
DOCUMENT = {
    "type": "document",
    "title": "Lease",
    "source": {"type": "base64", "media_type": "application/pdf", "data": b64(6_000)},
}
JSON_TEXT = {"type": "widget", "state": json.dumps({"rows": ["naïve ☃ row"] * 300})}
NESTED = {"type": "gallery", "items": [{"thumb": b64(900)}, "short", {"full": b64(9_000)}, 7]}
TWO_STRINGS = {"type": "image", "url": f"data:image/png;base64,{b64(1_100)}", "mask": b64(1_200)}

SHAPES: dict[str, tuple[dict[str, Any], str]] = {
    "image": (IMAGE, "[image 3 kB]"),
    "pdf": (PDF, "[file report.pdf, application/pdf, 4 kB, 14 pages]"),
    "sound": (SOUND, "[audio 48 kB, 3 s]"),
    "film": (FILM, "[video 5 kB, 1 s]"),
    "image of responses": (RESPONSES_IMAGE, "[image 2 kB]"),
    "document": (DOCUMENT, "[file Lease, application/pdf, 6 kB]"),
    "two strings": (TWO_STRINGS, "[image 1 kB]"),
    "nested": (NESTED, '[gallery: {"items":({"thumb":""},"short",{"full":""},7)}]'),
}


def path_of(session: Session, text: str) -> Path:
    """Return where a session's file of a text lies."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Path(part_storage().path(name_of(session.pk, digest)))


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def strings_in(value: Any) -> Iterator[str]:
    """Yield every text of a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from strings_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from strings_in(one)


def user_with(*parts: dict[str, Any], text: str = "Look at this.") -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}, *parts]}


def messages_url(session: Session) -> str:
    return f"/api/v1/sessions/{session.pk}/messages/"


def content_over_api(api, session: Session, **query):
    return api.get(messages_url(session), query).json()["results"][0]["content"]


def use_store(settings: Any, tmp_path: Path, storage: type) -> Path:
    backend = f"{storage.__module__}.{storage.__name__}"
    store = {"BACKEND": backend, "OPTIONS": {"location": tmp_path / "parts"}}
    settings.STORAGES = settings.STORAGES | {"parts": store}
    settings.CHATAPP = settings.CHATAPP | {"PART_STORAGE_BYTES": LONGEST}
    OPENED.clear()
    return tmp_path / "parts"
