"""The OpenAPI schema: the problems every operation may answer with, and the page that shows it."""

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


_PROBLEM = {
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "errors": {"type": "object", "additionalProperties": True},
    },
    "required": ["type", "title", "status", "detail"],
}
_EVERYWHERE = {
    "400": "The request cannot be used; `errors` names the fields.",
    "401": "Not logged in.",
    "403": "Not allowed.",
    "404": "There is no such thing, or it belongs to somebody else.",
    "406": "No answer in the media type that was asked for.",
    "409": "It does not fit the state of things.",
    "411": "The body came in chunks, without its length.",
    "413": "The body is too large.",
    "415": "The body is no JSON.",
    "422": "Understood, but it cannot be done.",
    "429": "Too many requests.",
}


def add_problem_responses(
    result: dict[str, Any], generator: Any, request: Any, public: Any
) -> dict[str, Any]:
    """Add the problem document to every operation, once, here."""
    result.setdefault("components", {}).setdefault("schemas", {})["Problem"] = _PROBLEM
    for path in result.get("paths", {}).values():
        for operation in path.values():
            if isinstance(operation, dict) and "responses" in operation:
                for code, text in _EVERYWHERE.items():
                    operation["responses"].setdefault(code, _response(text))
    return result


def _response(text: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": text, "content": {"application/problem+json": {"schema": schema}}}
