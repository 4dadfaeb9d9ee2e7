"""What is refused before any view sees it."""

from __future__ import annotations

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from chatapp.api.exceptions import plain_problem


class LengthRequiredMiddleware(MiddlewareMixin):
    """Refuses bodies of unknown length: the frameworks would read them as empty."""

    def process_request(self, request: HttpRequest) -> HttpResponseBase | None:
        """Return 411 for a body that is sent in chunks."""
        is_chunked = "HTTP_TRANSFER_ENCODING" in request.META
        if not is_chunked or request.META.get("CONTENT_LENGTH"):
            return None
        return plain_problem(
            411, "The body came without its length. Send a Content-Length header, not chunks."
        )
