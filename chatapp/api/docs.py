"""The schema, and the API's page: Swagger UI from our own static files, with its CSP exception."""

from __future__ import annotations

from typing import Any

from csp.constants import SELF, UNSAFE_INLINE
from csp.decorators import csp_update
from django.utils.decorators import method_decorator
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerView
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response


class SchemaView(SpectacularAPIView):
    """The OpenAPI schema; `version` becomes part of its file's name, so it must be fit for one."""

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
class DocsView(SpectacularSwaggerView):
    """The schema as a page where requests can be tried."""

    url_name = "schema"
    # OPTIONS would ask for a template that describes the page.
    http_method_names = ["get", "head"]
