"""How log records are written where LOG_FORMAT is `json`."""

from __future__ import annotations

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

# Objects and colours that frameworks hang on their records; a request's text holds its query.
LEFT_OUT = ("request", "color_message")


class JsonLineFormatter(JsonFormatter):
    """One JSON object a record: level, logger, message, the record's own fields, time in UTC."""

    def __init__(self) -> None:
        super().__init__(
            "{levelname} {name} {message}",
            style="{",
            rename_fields={"levelname": "level", "name": "logger"},
            reserved_attrs=[*RESERVED_ATTRS, *LEFT_OUT],
            timestamp="time",
        )
