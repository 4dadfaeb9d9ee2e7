"""JSON as bytes: encoded once, by orjson; what is stored as JSON is passed on as it stands.

orjson refuses what the standard library writes: half an emoji, numbers of more than 64 bits, keys
that are no texts. All of them can come in, so all of them must go out: such a value is written by
the slower encoder, with escapes, which any reader takes.
"""

from __future__ import annotations

import json
from typing import Any

import orjson
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import JSONRenderer
from rest_framework.utils.encoders import JSONEncoder

# Times of databases without zones are UTC, and all are written with a Z.
_OPTIONS = orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z
JSON = "application/json"
FORMAT = "format"
"""The query parameter that REST framework itself reads of any address."""
_EMPTY = orjson.Fragment(b"{}")
_encoder = JSONEncoder()


def as_bytes(value: Any) -> bytes:
    """Return a value as JSON: rows' UUIDs and UTC times, and whatever REST framework writes."""
    try:
        return orjson.dumps(value, default=_encoder.default, option=_OPTIONS)
    except TypeError:
        return in_ascii(value)


def in_ascii(value: Any) -> bytes:
    """Return a value as JSON of ASCII alone; slower, and it takes what orjson refuses."""
    text = json.dumps(value, cls=JSONEncoder, allow_nan=False, separators=(",", ":"))
    return text.encode("ascii")


def as_stored(text: str | None) -> Any:
    """Return the JSON text of a column, or nothing, as a part of a value for `as_bytes`."""
    if text is None:
        return None
    return orjson.Fragment(text) if text != "{}" else _EMPTY


def encoded(value: Any) -> Any:
    """Return a value as a part of another one, encoded already: it may hold whatever came in."""
    return orjson.Fragment(as_bytes(value))


class BytesRenderer(JSONRenderer):
    """Writes what views answer. Bytes are JSON already."""

    def render(
        self, data: Any, accepted_media_type: Any = None, renderer_context: Any = None
    ) -> bytes:
        """Return the body; indented where a client asks for it in its Accept header."""
        if data is None:
            return b""
        if accepted_media_type != JSON and self.get_indent(
            accepted_media_type, renderer_context or {}
        ):
            whole = json.loads(data) if isinstance(data, bytes) else data
            indented: bytes = super().render(whole, accepted_media_type, renderer_context)
            return indented
        return data if isinstance(data, bytes) else as_bytes(data)


class JsonAccept(DefaultContentNegotiation):
    """As the framework chooses; an Accept header that leaves no choice is not taken apart."""

    def select_renderer(
        self, request: Any, renderers: Any, format_suffix: str | None = None
    ) -> Any:
        """Return a renderer that the client takes, and its media type; or raise NotAcceptable."""
        first, accept = renderers[0], request.META.get("HTTP_ACCEPT", "*/*")
        if first.media_type == JSON and accept in ("*/*", JSON) and FORMAT not in request.GET:
            return first, first.media_type
        return super().select_renderer(request, renderers, format_suffix)
