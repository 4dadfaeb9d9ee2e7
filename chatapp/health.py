"""Answers for load balancers: the process lives, and what it needs can be reached.

The parts of readiness are named in READINESS_PARTS, so that what belongs to another app stays
there; READYZ_PARTS chooses those that count.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass

from django.conf import settings
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.module_loading import import_string
from django.views.decorators.http import require_safe

logger = logging.getLogger(__name__)
NOT_STORED = {"Cache-Control": "no-store"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """How one part of the installation is. `text` is a sentence that strangers may read."""

    ok: bool
    text: str


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Answer that this process lives. Nothing else is asked, so a slow database restarts nobody."""
    return HttpResponse("ok\n", content_type="text/plain", headers=NOT_STORED)


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Answer whether requests can be served here: 200, or 503 and which part says what."""
    parts = examine()
    ready = all(part.ok for part in parts.values())
    shown = {"ready": ready, "parts": {name: asdict(part) for name, part in parts.items()}}
    return JsonResponse(shown, status=200 if ready else 503, headers=NOT_STORED)


def examine() -> dict[str, Part]:
    """Return every part that counts by its name, each looked at now."""
    return {name: _examine(name) for name in settings.READYZ_PARTS}


def _examine(name: str) -> Part:
    path = settings.READINESS_PARTS.get(name)
    if path is None:
        return Part(ok=False, text=unknown_part(name))
    try:
        look: Callable[[], Part] = import_string(path)
        return look()
    except Exception:
        # The error may hold addresses and passwords: it is for the log.
        logger.exception("The part %s of readiness cannot be looked at", name)
        return Part(ok=False, text="This cannot be looked at; the server's log says why.")


def unknown_part(name: str) -> str:
    """Return the sentence about a name in READYZ_PARTS that stands for nothing."""
    known = ", ".join(settings.READINESS_PARTS)
    return f"READYZ_PARTS has {name!r}, which is no part that can be looked at; there are {known}."


def database() -> Part:
    """Look whether the database answers."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()
    except Exception:
        logger.exception("The database does not answer")
        return Part(
            ok=False,
            text="The database does not answer: nothing can be read or stored. Start it, or "
            "correct DATABASE_URL; the server's log has the error.",
        )
    return Part(ok=True, text="The database answers.")
