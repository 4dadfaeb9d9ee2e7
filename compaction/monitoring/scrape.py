"""/metrics: who may see the figures, and what those read who may not or cannot."""

from __future__ import annotations

import importlib.util
import logging
from typing import Any

from django.conf import settings
from django.db import Error
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.http import require_safe

from chatapp.api.exceptions import plain_problem
from chatapp.keys import ApiKey, bearer_of, find_key, note_use

logger = logging.getLogger(__name__)
LIBRARY = "prometheus_client"
BEARER = "bearer "


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Return all figures in the format that the scraper accepts; a problem document otherwise."""
    if importlib.util.find_spec(LIBRARY) is None:
        return plain_problem(
            404,
            "Metrics are not installed here. Install the extra: pip install palimpsest[metrics].",
        )
    refusal = _refusal(request)
    if refusal is not None:
        return refusal
    # Whoever installs no metrics never loads the library.
    from compaction.monitoring.metrics import exposition

    try:
        body, content_type = exposition(request.headers.get("Accept", ""))
    except Error:
        logger.exception("The figures cannot be read")
        return plain_problem(
            503, "The figures cannot be read from the database; the server's log has the error."
        )
    return HttpResponse(body, content_type=content_type, headers={"Cache-Control": "no-store"})


def _refusal(request: HttpRequest) -> HttpResponse | None:
    """Return why the caller may not see the figures; None for those who may."""
    if _has_token(request):
        return None
    user = _owner_of_key(request) or request.user
    if user.is_active and user.is_staff:
        return None
    if user.is_authenticated:
        return plain_problem(
            403, "Metrics are for staff, which this user is not, and for the token METRICS_TOKEN."
        )
    refusal = plain_problem(
        401,
        "Metrics need the token that METRICS_TOKEN holds, as `Authorization: Bearer …`, a staff "
        "user's API key with the scope `admin-read`, or staff who are logged in to the admin.",
    )
    refusal.headers["WWW-Authenticate"] = 'Bearer realm="metrics"'
    return refusal


def _owner_of_key(request: HttpRequest) -> Any:
    """Return whose API key with the scope `admin-read` the request carries; None for no such."""
    secret = bearer_of(request.headers.get("Authorization", ""))
    key = find_key(secret) if secret else None
    if key is None or key.state != "active" or not key.may(ApiKey.Scope.ADMIN_READ):
        return None
    note_use(key)
    return key.owner


def _has_token(request: HttpRequest) -> bool:
    """Whether the request carries the token. Without METRICS_TOKEN none does."""
    expected: str = settings.METRICS_TOKEN
    given = request.headers.get("Authorization", "")
    if not expected or given[: len(BEARER)].lower() != BEARER:
        return False
    return constant_time_compare(given[len(BEARER) :].strip(), expected)
