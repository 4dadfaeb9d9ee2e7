"""What is logged, how much of it, and in which form: the value of Django's LOGGING."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured

_FORMATTERS = {
    "line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"},
    "json": {"()": "chatapp.log_lines.JsonLineFormatter"},
}


def logging_settings(*, line_format: str, level: str) -> dict[str, Any]:
    """Return the value of LOGGING; raise ImproperlyConfigured for a format that there is not."""
    if line_format not in _FORMATTERS:
        raise ImproperlyConfigured(f"LOG_FORMAT must be line or json, not {line_format!r}.")
    loggers: dict[str, dict[str, Any]] = {
        "django-q": {"level": "WARNING", "propagate": True},
        "httpx2": {"level": "WARNING", "propagate": True},
        # Tells of every client that goes away in the middle of a stream.
        "asyncio": {"level": "ERROR", "propagate": True},
    }
    if line_format == "json":
        # The web server writes lines of its own, which a reader of JSON could not read.
        own = {"handlers": [], "propagate": True}
        loggers |= {"uvicorn": own, "uvicorn.access": own}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"chosen": _FORMATTERS[line_format]},
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "chosen"}},
        "root": {"handlers": ["console"], "level": level},
        "loggers": loggers,
    }
