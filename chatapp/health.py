"""Answers for load balancers: the process lives, and what it needs can be reached.

Other apps add parts of readiness (see chatapp.extensions); READYZ_PARTS chooses those that count.
"""

from __future__ import annotations

import logging
from dataclasses import asdict
from uuid import uuid4

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from chatapp.answer_files import sessions_waiting
from chatapp.database import AWAY
from chatapp.extensions import ReadinessCheck, ReadinessPart, registered
from chatapp.formatting import plural
from chatapp.models import LearnedLimits
from chatapp.pools import Pool, answered_in

logger = logging.getLogger(__name__)
NOT_STORED = {"Cache-Control": "no-store"}
_WRITTEN_BY = "/readyz"
PLAIN = {"X-Content-Type-Options": "nosniff", "Content-Length": "3"}


ALIVE_PATHS = ("/healthz", "/health/")
"""Where `alive` is answered; the second is the older name. The ASGI handler does it by itself."""


def alive() -> HttpResponse:
    """Return that this process lives. Nothing else is asked, so a slow database restarts nobody."""
    return HttpResponse("ok\n", content_type="text/plain", headers=NOT_STORED | PLAIN)


@answered_in(Pool.HEALTH)
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Answer the same under servers that have no handler of ours, and other methods with 405."""
    return alive()


@answered_in(Pool.HEALTH)
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Answer whether requests can be served here: 200, or 503 and which part says what."""
    parts = examine()
    ready = all(part.ok for part in parts.values())
    shown = {"ready": ready, "parts": {name: asdict(part) for name, part in parts.items()}}
    if ready:
        return JsonResponse(shown, headers=NOT_STORED)
    return JsonResponse(shown, status=503, headers={**NOT_STORED, "Retry-After": str(AWAY.seconds)})


def examine() -> dict[str, ReadinessPart]:
    """Return every part that counts by its name, each looked at now."""
    checks = readiness_checks()
    return {name: _examine(name, checks.get(name)) for name in counting_parts()}


def readiness_checks() -> dict[str, ReadinessCheck]:
    """Return everything that can be looked at by its name, in order."""
    found: dict[str, ReadinessCheck] = {"database": database}
    for extension in registered():
        found |= extension.readiness
    return found


def counting_parts() -> list[str]:
    """Return the names that READYZ_PARTS chooses; without a choice all count."""
    chosen: list[str] | None = settings.READYZ_PARTS
    return list(readiness_checks()) if chosen is None else chosen


def _examine(name: str, look: ReadinessCheck | None) -> ReadinessPart:
    if look is None:
        return ReadinessPart(ok=False, text=unknown_part(name))
    try:
        return look()
    except Exception:
        # The error may hold addresses and passwords: it is for the log.
        logger.exception("The part %s of readiness cannot be looked at", name)
        return ReadinessPart(ok=False, text="This cannot be looked at; the server's log says why.")


def unknown_part(name: str) -> str:
    """Return the sentence about a name in READYZ_PARTS that stands for nothing."""
    known = ", ".join(readiness_checks())
    return f"READYZ_PARTS has {name!r}, which is no part that can be looked at; there are {known}."


def database() -> ReadinessPart:
    """Look whether the database answers and stores: one that is full or read-only does not."""
    try:
        # A row is really written, and gone again before anybody sees it: what changes no row is
        # done by a full disk, too.
        with transaction.atomic():
            LearnedLimits.objects.create(server=_WRITTEN_BY, name=uuid4().hex).delete()
    except Exception:
        logger.exception("The database does not answer")
        return ReadinessPart(
            ok=False,
            text="The database does not answer, or stores nothing. Start it, correct "
            "DATABASE_URL, or make it writable; the server's log has the error.",
        )
    text = "The database answers and stores."
    if waiting := len(sessions_waiting()):
        has = "has" if waiting == 1 else "have"
        text += (
            f" {plural(waiting, 'session')} {has} answers in this machine's ANSWER_DIR that are "
            "not stored yet: `manage.py store_answers` stores them, and says why where it cannot."
        )
    return ReadinessPart(ok=True, text=text)
