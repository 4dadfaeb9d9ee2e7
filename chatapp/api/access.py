"""Who may use the API: keys and their scopes; and that nobody keeps its answers."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from csp.constants import HEADER
from csp.middleware import CSPMiddleware
from csp.utils import build_policy
from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.cache import patch_cache_control
from django.utils.deprecation import MiddlewareMixin
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied
from rest_framework.permissions import SAFE_METHODS, IsAuthenticated
from rest_framework.request import Request

from chatapp.keys import ApiKey, find_key, note_use

if TYPE_CHECKING:
    # The framework loads this module while it loads its views.
    from rest_framework.views import APIView

# `Token` is how clients of earlier versions say it.
SCHEMES = (b"bearer", b"token")
API = "/api/"
_CLOSED = {
    "revoked": "This API key was revoked. Use another one.",
    "expired": "This API key has expired. Use another one.",
}


class KeyAuthentication(BaseAuthentication):
    """`Authorization: Bearer pk_…` or `Authorization: Token …`; the key becomes `request.auth`."""

    def authenticate(self, request: Request) -> tuple[Any, ApiKey] | None:
        """Return the owner and the key; None where the header names no key at all."""
        scheme, *rest = get_authorization_header(request).split() or [b""]
        if scheme.lower() not in SCHEMES:
            return None
        if len(rest) != 1:
            raise AuthenticationFailed(
                "The Authorization header must be `Bearer`, a space, and one API key."
            )
        key = find_key(rest[0])
        if key is None:
            raise AuthenticationFailed("There is no such API key.")
        if key.state in _CLOSED:
            raise AuthenticationFailed(_CLOSED[key.state])
        if not key.owner.is_active:
            raise AuthenticationFailed("The user of this API key is switched off.")
        note_use(key)
        return key.owner, key

    def authenticate_header(self, request: Request) -> str:
        """Return what a 401 says: how to come back."""
        return 'Bearer realm="api"'


class HasScope(IsAuthenticated):
    """Logged in; and a key has the scope that the method takes."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Whether the request may be answered; a missing scope is refused with a sentence."""
        if not super().has_permission(request, view):
            return False
        is_safe = request.method in SAFE_METHODS
        wanted = ApiKey.Scope.READ if is_safe else ApiKey.Scope.WRITE
        key = request.auth
        if isinstance(key, ApiKey) and not key.may(wanted):
            raise PermissionDenied(
                f"This API key may not {wanted}: its scopes are {', '.join(key.scopes)}. "
                f"Use a key with the scope `{wanted}`.",
                code="missing_scope",
            )
        return True


class NoStoreMiddleware(MiddlewareMixin):
    """Answers of the API are private: no browser, no proxy keeps them."""

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        """Add `no-store`; a stream's `no-cache` stays beside it."""
        if request.path_info.startswith(API):
            patch_cache_control(response, no_store=True)
        return response


class PolicyMiddleware(CSPMiddleware):
    """The header Content-Security-Policy; answers that ask for nothing else share one text."""

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        """Add the policy: the API's answers have no nonce, and few pages a policy of their own."""
        is_shared = request.path_info.startswith(API) and not self._is_changed(response)
        if not is_shared or settings.DEBUG:
            return super().process_response(request, response)
        response.headers.setdefault(HEADER, self._shared)
        return response

    @cached_property
    def _shared(self) -> str:
        return build_policy()

    @staticmethod
    def _is_changed(response: HttpResponseBase) -> bool:
        return any(name.startswith("_csp") for name in vars(response))
