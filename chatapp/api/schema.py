"""The OpenAPI schema: its address, its page, who may log in how; see also operations.py."""

from __future__ import annotations

from typing import Any

from csp.constants import SELF, UNSAFE_INLINE
from csp.decorators import csp_update
from django.conf import settings
from django.utils.decorators import method_decorator
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerView
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from chatapp.api.base import KnownQueryView
from chatapp.api.problems import PROBLEM_SCHEMA


class SchemaView(KnownQueryView, SpectacularAPIView):
    """The OpenAPI schema; `version` becomes part of its file's name, so it must be fit for one."""

    query = ("version", "lang")

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return the schema, or 400 for a version that no header can carry."""
        if not request.query_params.get("version", "").isprintable():
            raise ValidationError({"version": ["Must be printable characters."]})
        response: Response = super().get(request, *args, **kwargs)  # type: ignore[no-untyped-call]
        return response


@method_decorator(
    csp_update(
        {
            "script-src": [SELF, UNSAFE_INLINE],
            "style-src": [SELF, UNSAFE_INLINE],
            "img-src": [SELF, "data:"],
        }
    ),
    name="dispatch",
)
class DocsView(KnownQueryView, SpectacularSwaggerView):
    """The schema as a page where requests can be tried."""

    query = ("version", "lang")

    url_name = "schema"
    # OPTIONS would ask for a template that describes the page.
    http_method_names = ["get", "head"]


def add_shared_parts(
    result: dict[str, Any], generator: Any, request: Any, public: Any
) -> dict[str, Any]:
    """Add what operations refer to and no serializer describes: the problem document."""
    schemas = result.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = dict(PROBLEM_SCHEMA)
    return result


class KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the OpenAPI schema describes API keys: both words that may stand before one."""

    target_class = "chatapp.api.access.KeyAuthentication"
    name = ["apiKey", "apiKeyToken"]

    def get_security_requirement(self, auto_schema: Any) -> list[dict[str, list[Any]]]:
        """Return that one of the two is enough."""
        return [{name: []} for name in self.name]

    def get_security_definition(self, auto_schema: Any) -> list[dict[str, str]]:
        """Return the schemes."""
        return [
            {
                "type": "http",
                "scheme": "bearer",
                "bearerFormat": "pk_…",
                "description": "An API key: `Authorization: Bearer pk_…`. Reading takes the scope "
                "`read`, everything else `write`.",
            },
            {
                "type": "apiKey",
                "in": "header",
                "name": "Authorization",
                "description": "The same as clients of earlier versions send it: "
                "`Authorization: Token …`, the word and a space included.",
            },
        ]


class LoggedInScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the OpenAPI schema describes a logged-in browser."""

    target_class = "rest_framework.authentication.SessionAuthentication"
    name = "cookieAuth"
    priority = 1

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """Return the scheme."""
        return {
            "type": "apiKey",
            "in": "cookie",
            "name": settings.SESSION_COOKIE_NAME,
            "description": "The session of the admin. Methods that write also take the CSRF "
            f"token, in the header `X-CSRFToken` and the cookie `{settings.CSRF_COOKIE_NAME}`.",
        }
