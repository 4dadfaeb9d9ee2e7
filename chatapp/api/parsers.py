"""Reading request bodies: JSON of a bounded size and depth."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import IO, Any

from rest_framework import parsers, status
from rest_framework.exceptions import APIException, ParseError

from chatapp.api.json_types import json_type
from chatapp.conf import chatapp_settings
from chatapp.messages.wire import MAX_DEPTH


class BodyTooLarge(APIException):
    """The body is larger than the settings allow."""

    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_code = "body_too_large"


class JSONParser(parsers.JSONParser):
    """DRF's strict JSON parser, within MAX_BODY_BYTES, with a sentence for hopeless nesting."""

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the parsed body; raise ParseError or BodyTooLarge."""
        request = (parser_context or {}).get("request")
        length = int(request.META.get("CONTENT_LENGTH") or 0) if request is not None else 0
        if length > chatapp_settings.max_body_bytes:
            raise BodyTooLarge(
                f"The body has {length:,} bytes; {chatapp_settings.max_body_bytes:,} are allowed. "
                "Send it in parts, or raise MAX_BODY_BYTES."
            )
        try:
            parsed = super().parse(stream, media_type, parser_context)
        except RecursionError as error:
            raise ParseError("The JSON is nested too deeply to be read.") from error
        if not isinstance(parsed, dict):
            raise ParseError(f"The body must be a JSON object, not {json_type(parsed)}.")
        _walk(parsed)
        return parsed


def _walk(value: Any) -> None:
    """Raise ParseError for what is nested too deeply and numbers too large; without recursion."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        if any(isinstance(item, float) and not isfinite(item) for item in level):
            raise ParseError("The JSON has a number that is too large for any reader.")
        nested = [item for item in level if isinstance(item, dict | list)]
        if not nested:
            return
        level = [
            child
            for item in nested
            for child in (item.values() if isinstance(item, dict) else item)
        ]
    raise ParseError(f"The JSON is nested deeper than {MAX_DEPTH} levels.")
