"""Serves the product over HTTP, as in production."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

HIGHEST_PORT = 65_535
APPLICATION = "chatapp.asgi:application"
PROTOCOL = "chatapp.http_protocol:TimedHeadProtocol"
LOG_LEVELS = ("critical", "error", "warning", "info", "debug")


class Command(BaseCommand):
    """Runs the web server until it is stopped; SIGTERM lets turns that work come to their end."""

    help = (
        "Runs the web server: uvicorn with our ASGI application, and a limit of time for heads of "
        "requests as well as for bodies. Behind a proxy that ends TLS, name the proxy's address."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="the address (default: 127.0.0.1)")
        parser.add_argument("--port", type=int, default=8000, help="the port (default: 8000)")
        parser.add_argument("--workers", type=int, default=1, help="processes (default: 1)")
        parser.add_argument(
            "--forwarded-allow-ips",
            metavar="IPS",
            help="proxies, with commas between, whose X-Forwarded-For and -Proto are believed",
        )
        parser.add_argument(
            "--log-level",
            default="info",
            choices=LOG_LEVELS,
            help="what the server itself logs; requests are logged up to info (default: info)",
        )
        parser.add_argument(
            "--graceful-seconds",
            type=int,
            metavar="N",
            help="how long turns that work are waited for at the end (default: as long as they do)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if not 0 <= options["port"] <= HIGHEST_PORT:
            raise CommandError(f"--port must be from 0 to {HIGHEST_PORT:,}.")
        if options["workers"] < 1:
            raise CommandError("--workers must be 1 or more.")
        # It takes a while to load, and no other command needs it.
        import uvicorn

        uvicorn.run(
            APPLICATION,
            host=options["host"],
            port=options["port"],
            workers=options["workers"],
            forwarded_allow_ips=options["forwarded_allow_ips"],
            log_level=options["log_level"],
            timeout_graceful_shutdown=options["graceful_seconds"],
            http=PROTOCOL,
            log_config=_log_config(uvicorn.config.LOGGING_CONFIG),
            lifespan="off",
            ws="none",
        )


def _log_config(own: dict[str, Any]) -> dict[str, Any] | None:
    """Return how the server writes its lines; None where our setting says it (LOG_FORMAT)."""
    return None if "uvicorn" in settings.LOGGING["loggers"] else own
