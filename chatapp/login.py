"""Logging in with a password: how often it may be tried, and how long it lasts.

The counting is django-axes' (its settings stand in chatapp/settings.py); here is what people see of
it. A session ends when nothing was done with it for SESSION_COOKIE_AGE seconds.
"""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY, user_logged_in
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.deprecation import MiddlewareMixin

from chatapp.formatting import span_words

# When the session was last written because somebody used it, in seconds since 1970.
SEEN = "seen_at"
# A session's end is moved at most this often: pages must not write with every request.
MOST_SECONDS_BETWEEN = 300


def locked_out(
    request: HttpRequest, response: HttpResponseBase | None, credentials: Any
) -> HttpResponse:
    """Return the page for whoever tried too many passwords."""
    pause = settings.AXES_COOLOFF_TIME
    page = render(
        request, "admin/chatapp/locked_out.html", {"pause": span_words(pause)}, status=429
    )
    page["Retry-After"] = str(int(pause.total_seconds()))
    return page


@receiver(user_logged_in, dispatch_uid="chatapp.login")
def begin(request: HttpRequest | None = None, **kwargs: Any) -> None:
    """Note that the session was used just now."""
    if request is not None:
        request.session[SEEN] = int(time.time())


class IdleMiddleware(MiddlewareMixin):
    """Moves the end of a session on while its user does something."""

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        """Have the session written anew, with a new end, where that was not done a moment ago."""
        session = request.session
        # Where the database is away it would be waited for once more.
        if (
            response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR
            or not session.accessed
            or SESSION_KEY not in session
        ):
            return response
        now = int(time.time())
        between = min(MOST_SECONDS_BETWEEN, settings.SESSION_COOKIE_AGE // 10)
        if now - session.get(SEEN, 0) >= between:
            session[SEEN] = now
        return response
